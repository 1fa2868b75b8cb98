//! Fragments of mangled names stand in one file.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

/// Every file below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    entries.flat_map(|it| if it.is_dir() { files(&it) } else { vec![it] }).collect()
}

/// Whether an identifier is in this, as C++ mangles it (its length, then its letters), or a word that is a part of one; letters that stand for
/// types and rules of mangling are neither.
fn is_fragment(literal: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_small = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_all_letters = literal.chars().all(|c| c.is_ascii_lowercase());
    let has_word = literal.split(|c| !is_small(c)).any(|run| 4 <= run.len());
    let has_identifier = literal.char_indices().any(|(at, _)| {
        let digits = literal[at..].chars().take_while(char::is_ascii_digit).count();
        let (length, rest) = literal[at..].split_at(digits);
        let letters = rest.chars().take_while(|c| is_letter(*c)).count();
        length.parse().is_ok_and(|length| (4..=letters).contains(&length))
    });
    !is_all_letters && (has_word || has_identifier)
}

#[test]
fn what_a_fragment_is() {
    for it in ["12LoadWithCast", "6MaxOpsI", "4GTOpI", "9NonZeroOpI", "15and_kernel_cuda"] {
        assert!(is_fragment(it), "{it}");
    }
    for it in ["Li4ELi4E", "jLi1ELi1ELi4E", "EUlb", "N3c10", "fdlihsa", "clEvENKUlvE1_", "EEj"] {
        assert!(!is_fragment(it), "{it}");
    }
}

#[test]
fn fragments_stand_in_one_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in files(&folder).into_iter().filter(|it| !it.ends_with("names.rs")) {
        let text = fs::read_to_string(&path).unwrap();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        // What stands between quotation marks is every other part; of those, byte strings.
        let parts: Vec<&str> = shipped.split('"').collect();
        let literals = parts.chunks(2).filter(|it| it[0].ends_with("b")).filter_map(|it| it.get(1));
        let found: Vec<&&str> = literals.filter(|it| is_fragment(it)).collect();
        assert!(found.is_empty(), "{}: {found:?} belong in names.rs", path.display());
    }
}

#[test]
fn a_fragment_is_declared_once() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/names.rs");
    let text = fs::read_to_string(path).unwrap();
    let mut all: Vec<&str> = text.lines().filter_map(|it| it.split("= b\"").nth(1)).collect();
    assert!(150 < all.len());
    all.sort_unstable();
    assert!(all.windows(2).all(|it| it[0] != it[1]), "{all:?}");
}
