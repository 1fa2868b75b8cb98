//! A memory snapshot: the pickle machine, the decoder, and everything that `explain` does with it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::{explanation, recording::Recording, sources::snapshot};

fuzz_target!(|bytes: &[u8]| {
    let mut trace = None;
    plimsoll_fuzz::bounded(bytes, |bytes| trace = snapshot::read(bytes).ok().map(|it| it.0));
    let recording = Recording { trace, ..Recording::default() };
    explanation::of_recording("fuzz", &recording, &[]);
});
