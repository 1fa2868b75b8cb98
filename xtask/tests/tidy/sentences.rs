//! Every sentence that `predict`, `explain`, `fit`, `run`, `lint` and `check` can say, in one file, in the order of the code: to be read from top
//! to bottom, and to be seen in a change. `UPDATE_EXPECT=1 cargo test -p xtask` writes it anew.

use std::{env, fmt::Write as _, fs, path::Path};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Where sentences for people are written.
const FOLDERS: [&str; 12] = [
    "crates/core/src/codes.rs",
    "crates/core/src/explanation",
    "crates/core/src/failures",
    "crates/core/src/findings",
    "crates/core/src/plan",
    "crates/core/src/prediction",
    "crates/core/src/printed",
    "crates/core/src/views",
    "crates/cli/src/commands",
    "crates/cli/src/machine",
    "crates/cli/src/phantom_run",
    "crates/lint/src",
];
const GOLDEN: &str = "xtask/tests/sentences.txt";
/// Fewer words are a label.
const WORDS: usize = 4;

#[derive(Default)]
struct Sentences(Vec<String>);

impl Sentences {
    fn take(&mut self, text: &str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let words =
            text.split(' ').filter(|it| it.chars().filter(|it| it.is_alphabetic()).count() > 1);
        if WORDS <= words.count() {
            self.0.push(text);
        }
    }

    /// The literals of a macro's arguments: `format!("...")`.
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                // A comment of what the macro declares.
                TokenTree::Group(it) if it.stream().to_string().starts_with("doc =") => {}
                TokenTree::Group(it) => self.tokens(it.stream()),
                TokenTree::Literal(it) => {
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&it.to_string()) {
                        self.take(&text.value());
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|it| matches!(&it.meta, syn::Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string() == "test"))
}

impl<'ast> Visit<'ast> for Sentences {
    fn visit_item_mod(&mut self, it: &'ast syn::ItemMod) {
        if !is_for_tests(&it.attrs) {
            visit::visit_item_mod(self, it);
        }
    }

    // Comments and lints.
    fn visit_attribute(&mut self, it: &'ast syn::Attribute) {
        if it.path().is_ident("error") {
            visit::visit_attribute(self, it);
        }
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        if !it
            .path
            .segments
            .last()
            .is_some_and(|it| it.ident.to_string().starts_with("debug_assert"))
        {
            self.tokens(it.tokens.clone());
        }
    }

    fn visit_lit_str(&mut self, it: &'ast syn::LitStr) {
        self.take(&it.value());
    }
}

#[test]
fn every_sentence_stands_in_one_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = String::new();
    for folder in FOLDERS {
        for (path, text) in super::rust_files(folder) {
            if path.components().any(|it| it.as_os_str().to_string_lossy().starts_with("tests")) {
                continue;
            }
            let mut sentences = Sentences::default();
            sentences.visit_file(&syn::parse_file(&text).unwrap());
            if !sentences.0.is_empty() {
                writeln!(found, "== {}", path.display()).unwrap();
                sentences.0.iter().for_each(|it| writeln!(found, "{it}").unwrap());
            }
        }
    }
    let golden = root.join(GOLDEN);
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&golden, &found).unwrap();
    }
    let known = fs::read_to_string(&golden).unwrap_or_default();
    let new: Vec<&str> =
        found.lines().filter(|it| !known.lines().any(|known| known == *it)).collect();
    assert!(
        known == found,
        "{GOLDEN} is of other code (UPDATE_EXPECT=1 writes it anew); new sentences:\n{}",
        new.join("\n")
    );
}
