//! Fragments of mangled names stand in one file.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

/// Every file below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    entries.flat_map(|it| if it.is_dir() { files(&it) } else { vec![it] }).collect()
}

/// Whether this is a word of a name, and no more than letters that stand for types, or a rule of mangling.
fn is_fragment(literal: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_all_letters = literal.chars().all(|c| c.is_ascii_lowercase());
    !is_all_letters && literal.split(|c| !is_part(c)).any(|run| 4 <= run.len())
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
