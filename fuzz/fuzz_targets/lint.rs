//! A script, or a notebook, by its first byte: what is found in it, and its text without that.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_lint::{Selection, lint, lint_notebook, probed, whole_numbers};

fuzz_target!(|bytes: &[u8]| {
    plimsoll_fuzz::bounded(bytes, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let all = Selection { select: vec!["ALL".to_owned()], ignore: Vec::new() };
        if text.starts_with('{') {
            let _ = lint_notebook(&text, &all);
        }
        let read = lint(&text, &all);
        if let Err(it) = &read {
            assert!(!it.message.contains("a mistake of plimsoll's"), "{it}");
        }
        let found = read.unwrap_or_default();
        for it in &found {
            it.mended(&text);
        }
        probed(&text, &found, |n| format!("seen({n})"));
        whole_numbers(&text);
    });
});
