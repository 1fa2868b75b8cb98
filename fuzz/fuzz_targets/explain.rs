//! Everything that `explain` does with a snapshot once it is read: replay, findings, verdict.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::{explanation, recording::Recording, sources::snapshot};

fuzz_target!(|bytes: &[u8]| {
    let trace = snapshot::read(bytes).ok().map(|it| it.0);
    let recording = Recording { trace, ..Recording::default() };
    explanation::of_recording("fuzz", &recording, &[]);
});
