//! What a process left behind: the agent's notes, the phantom's log and a snapshot, one after the other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::sources::{self, ProcessFiles};

/// Between the three files of an input.
const SEPARATOR: &[u8] = b"\n#####\n";

fuzz_target!(|bytes: &[u8]| {
    plimsoll_fuzz::bounded(bytes, |bytes| {
        let (notes, rest) = cut(bytes);
        let (phantom_log, snapshot) = cut(rest);
        sources::read_process(ProcessFiles {
            pid: 1,
            notes,
            snapshot: Some(snapshot),
            phantom_log: Some(phantom_log),
        });
    });
});

fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let at = bytes.windows(SEPARATOR.len()).position(|it| it == SEPARATOR);
    at.map_or((bytes, &[]), |at| (&bytes[..at], &bytes[at + SEPARATOR.len()..]))
}
