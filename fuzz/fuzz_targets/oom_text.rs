//! A log, from whatever wrote it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::{explanation, sources::oom_text};

fuzz_target!(|bytes: &[u8]| {
    plimsoll_fuzz::bounded(bytes, |bytes| {
        let failures = oom_text::read(&String::from_utf8_lossy(bytes));
        explanation::of_text("fuzz", failures);
    });
});
