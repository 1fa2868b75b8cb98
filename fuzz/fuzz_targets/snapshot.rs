//! A memory snapshot, as a pickle, as JSON or in torch's page: what reads it, and nothing after that.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::sources::snapshot;

fuzz_target!(|bytes: &[u8]| {
    plimsoll_fuzz::bounded(bytes, |bytes| {
        let is_one = snapshot::is_snapshot(bytes);
        let read = snapshot::read(bytes);
        // What is told to be none is read as a text.
        assert!(is_one || read.is_err() || bytes.first() != Some(&0x80));
        if let Ok((trace, warnings)) = read {
            assert_eq!(trace.cut_at.is_some(), warnings.iter().any(|it| it.is_damage()));
        }
    });
});
