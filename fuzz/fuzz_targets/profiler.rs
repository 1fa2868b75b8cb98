//! A profiler's Chrome trace.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::{explanation, sources::chrome_trace};

fuzz_target!(|bytes: &[u8]| {
    plimsoll_fuzz::bounded(bytes, |bytes| {
        if let Ok(curve) = chrome_trace::read(bytes) {
            explanation::of_curve("fuzz", &curve);
        }
    });
});
