//! The agent, the phantom and the Python package use the names of the contract and no others, each name of the
//! contract is used, and the rest of the Rust code spells none of them.
//!
//! The contract is two files, read as text: `recording/contract.rs` in core and `contract.rs` in cli.

use std::collections::BTreeSet;

use regex_lite::Regex;

use crate::{files, rust_files};

const OF_RECORDINGS: &str = "crates/core/src/recording/contract.rs";
const OF_RUNS: &str = "crates/cli/src/contract.rs";
/// Who meets the binary by these names.
const OTHERS: [&str; 4] = ["agent", "crates/phantom/src", "crates/writes/src", "python"];

/// A variable of ours, in quotes.
const VARIABLE: &str = r#"["'](PLIMSOLL_[A-Z_]+)["']"#;
/// A file of a recording, in quotes or at the end of a path in quotes.
const FILE: &str = r#"["'/]([a-z]+(?:\.jsonl|\.pickle|\.conf)|manifest\.json)["']"#;
/// The kind of a line that somebody writes: what a `write` of the recording is given first, or a key of JSON.
const NOTE: &str =
    r#"(?:recording\.write\(\s*|self\.write\(|"kind": ?)"([a-z_-]+)"(?:,|, |\s|\}|\))"#;

#[test]
fn what_passes_between_processes_is_called_as_the_contract_says() {
    let contract = text_of(OF_RECORDINGS) + &text_of(OF_RUNS);
    let others: String = OTHERS.iter().map(|it| all_text(it)).collect();
    let kinds = found(r#" = "([a-z_-]+)",\n"#, &text_of(OF_RECORDINGS));
    for (what, told, used) in [
        ("variables", found(VARIABLE, &contract), found(VARIABLE, &others)),
        ("files", found(FILE, &contract), found(FILE, &others)),
        ("kinds of notes", kinds, found(NOTE, &others)),
    ] {
        // Only people set these, and only the binary reads them.
        let known = [
            "PLIMSOLL_CACHE",
            "PLIMSOLL_CARDS",
            "PLIMSOLL_FORGET_CARDS",
            "PLIMSOLL_PYTHON",
            "PLIMSOLL_WRITES_WAY",
        ];
        let known = known.map(str::to_owned).into();
        let unknown: Vec<&String> = used.difference(&told).collect();
        assert!(unknown.is_empty(), "{what} that the contract does not have: {unknown:?}");
        let unused = &(&told - &used) - &known;
        assert!(unused.is_empty(), "{what} that only the contract has: {unused:?}");
    }
}

#[test]
fn only_the_contract_spells_the_names() {
    let contract = text_of(OF_RECORDINGS) + &text_of(OF_RUNS);
    let told = &found(VARIABLE, &contract) | &found(FILE, &contract);
    let mut wrong = BTreeSet::new();
    for (path, text) in
        rust_files("crates/core/src").into_iter().chain(rust_files("crates/cli/src"))
    {
        let path = path.to_string_lossy().into_owned();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        let names = &(&found(VARIABLE, shipped) | &found(FILE, shipped)) & &told;
        if path != OF_RECORDINGS && path != OF_RUNS && !names.is_empty() {
            wrong.insert(format!("{path}: {names:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What stands in notes is read into types by `sources/agent`, and nothing else looks into JSON for it: a look by name into
/// something is a reader, too, not only what parses.
#[test]
fn notes_are_read_at_one_door() {
    let look = Regex::new(r#"[a-z_)\]]\["[a-z_-]+"\]|\.get\("[a-z_-]+"\)\??\.as_"#).unwrap();
    let mut wrong = Vec::new();
    for (path, text) in
        rust_files("crates/core/src").into_iter().chain(rust_files("crates/cli/src"))
    {
        let path = path.to_string_lossy().into_owned();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        let of_core = path.starts_with("crates/core");
        // Sources read, views write.
        let is_tests = path.contains("/tests/") || path.ends_with("tests.rs");
        if is_tests || path.contains("/src/sources/") || path.contains("/src/views/") {
            continue;
        }
        // The binary reads other JSON: what another plimsoll wrote, what a program of ours answers. Who has notes reads none.
        let has_notes =
            ["ProcessFile::Notes", "NoteKind", ".notes"].iter().any(|it| shipped.contains(it));
        let looks = look.is_match(shipped) || shipped.contains("serde_json::from");
        if path != OF_RECORDINGS && looks && (of_core || has_notes) {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "reads JSON beside notes: {wrong:#?}");
}

fn found(pattern: &str, text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    pattern.captures_iter(text).map(|it| it[1].to_owned()).collect()
}

fn all_text(folder: &str) -> String {
    files(folder)
        .into_iter()
        .map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

fn text_of(file: &str) -> String {
    std::fs::read_to_string(crate::root_folder().join(file)).unwrap()
}
