//! The words of `crates/core/src/codes.rs` stand there, and nowhere else in the Rust code: what compares one compares a value.

use std::collections::BTreeSet;

use regex_lite::Regex;

use crate::{root_folder, rust_files};

const CODES: &str = "crates/core/src/codes.rs";

#[test]
fn no_code_is_spelt_elsewhere() {
    let text = std::fs::read_to_string(root_folder().join(CODES)).unwrap();
    let rows = Regex::new(r#"= "([a-z0-9_/-]+)","#).unwrap();
    // One word may be anything's; `steps` and `fits` are.
    let codes: BTreeSet<String> = rows
        .captures_iter(&text)
        .map(|it| it[1].to_owned())
        .filter(|it| it.contains(['-', '/']))
        .collect();
    assert!(50 < codes.len(), "{codes:?}");
    let literal = Regex::new(r#""([a-z0-9/-]+)""#).unwrap();
    let mut wrong = Vec::new();
    for (path, text) in ["crates/core/src", "crates/cli/src"].iter().flat_map(|it| rust_files(it)) {
        let path = path.to_string_lossy().into_owned();
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for (n, line) in shipped.lines().enumerate().filter(|_| path != CODES && !is_test) {
            for found in literal.captures_iter(line).map(|it| it[1].to_owned()) {
                if codes.contains(&found) {
                    wrong.push(format!("{path}:{}: {found}", n + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "use the value that codes.rs has for it:\n{}", wrong.join("\n"));
}
