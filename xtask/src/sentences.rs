//! `cargo xtask sentences` prints every sentence that people can see, file by file: to be read from top to bottom. It reads
//! literals in Rust, Python and JavaScript, and the doc comments of the command line, which are its help.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use proc_macro2::{TokenStream, TokenTree};
use regex_lite::Regex;
use syn::visit::{self, Visit};

/// Text with fewer words is a label.
const WORDS: usize = 4;
/// Where clap makes help of doc comments.
const GRAMMAR: &str = "crates/cli/src/options/cli";
/// Prints the literals of Python files, a blank-separated line each, a file's name first.
const OF_PYTHON: &str = include_str!("sentences.py");

/// Prints them all. Errors: as of [`all`].
pub(crate) fn run() -> anyhow::Result<()> {
    for (file, sentences) in all()? {
        println!("== {file}\n{}", sentences.join("\n"));
    }
    Ok(())
}

/// Each file that has sentences for people, by its path from the root, with these. Errors: a file that does not parse, no `python3`.
pub(crate) fn all() -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let root = root()?;
    let mut res = Vec::new();
    for folder in fs::read_dir(root.join("crates"))? {
        for path in files(&folder?.path().join("src"), "rs")? {
            let shown = path.strip_prefix(&root)?.to_string_lossy().into_owned();
            if !shown.contains("/tests") {
                let sentences = of_rust(&path, shown.starts_with(GRAMMAR))?;
                res.push((shown, sentences));
            }
        }
    }
    let mut python = Command::new("python3");
    python.current_dir(&root).args(["-c", OF_PYTHON, "agent", "python"]);
    let answer = python.output().context("cannot run python3, which parses the agent")?;
    ensure!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    for file in format!("\n{}", String::from_utf8(answer.stdout)?).split("\n== ").skip(1) {
        let mut lines = file.lines();
        let name = lines.next().unwrap_or_default().to_owned();
        res.push((name, lines.filter_map(sentence).collect()));
    }
    let literal = Regex::new(r#"(?s)"([^"\n]*)"|`([^`]*)`"#)?;
    for path in files(&root.join("web"), "js")? {
        let text = fs::read_to_string(&path)?;
        let found = literal.captures_iter(&text).filter_map(|literal| {
            sentence(literal.get(1).or(literal.get(2)).map_or("", |text| text.as_str()))
        });
        res.push((path.strip_prefix(&root)?.to_string_lossy().into_owned(), found.collect()));
    }
    res.retain(|(_, sentences)| !sentences.is_empty());
    res.sort();
    Ok(res)
}

/// The root of the repository.
pub(crate) fn root() -> io::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()
}

/// The files below `folder` that end so, sorted. A folder that is not there has none.
pub(crate) fn files(folder: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let mut res = Vec::new();
    if !folder.is_dir() {
        return Ok(res);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            res.extend(files(&path, ending)?);
        } else if path.extension().is_some_and(|found| found == ending) {
            res.push(path);
        }
    }
    res.sort();
    Ok(res)
}

/// The text on one line, if it has enough words.
fn sentence(text: &str) -> Option<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_word = |word: &&str| 1 < word.chars().filter(|it| it.is_alphabetic()).count();
    (WORDS <= text.split(' ').filter(is_word).count()).then_some(text)
}

fn of_rust(path: &Path, is_grammar: bool) -> anyhow::Result<Vec<String>> {
    let file = syn::parse_file(&fs::read_to_string(path)?)
        .with_context(|| format!("cannot parse {}", path.display()))?;
    let mut res = Literals { is_grammar, found: Vec::new() };
    res.visit_file(&file);
    Ok(res.found)
}

struct Literals {
    is_grammar: bool,
    found: Vec<String>,
}

impl Literals {
    /// The literals of a macro's arguments: `format!("...")`.
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                // A comment of what the macro declares.
                TokenTree::Group(group) if group.stream().to_string().starts_with("doc =") => {}
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                        self.found.extend(sentence(&text.value()));
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Literals {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_for_tests = module.attrs.iter().any(|attribute| {
            matches!(&attribute.meta, syn::Meta::List(list) if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
        });
        if !is_for_tests {
            visit::visit_item_mod(self, module);
        }
    }

    // Comments and lints are not seen; errors are, and help.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let is_help = self.is_grammar && attribute.path().is_ident("doc");
        if is_help || attribute.path().is_ident("error") {
            visit::visit_attribute(self, attribute);
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let name = called.path.segments.last().map(|last| last.ident.to_string());
        if !name.is_some_and(|name| name.starts_with("debug_assert")) {
            self.tokens(called.tokens.clone());
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.found.extend(sentence(&literal.value()));
    }
}
