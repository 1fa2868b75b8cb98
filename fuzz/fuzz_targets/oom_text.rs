//! A log, from whatever wrote it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::{
    explanation,
    sources::{oom_text, printed_text},
};

fuzz_target!(|bytes: &[u8]| {
    plimsoll_fuzz::bounded(bytes, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let failures = oom_text::read(&text);
        let printed = printed_text::read(&text, &failures);
        explanation::of_text("fuzz", failures, printed);
    });
});
