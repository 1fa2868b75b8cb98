//! A process that dies while it writes leaves a snapshot without its end. Wherever that is, the reader
//! gives what came before and says where it ends, or says that nothing could be read.

use std::{fs, io::Read, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use plimsoll_core::{
    sources::snapshot,
    trace::{Action, Trace},
};

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/snapshots");
    fs::read(folder.join(name)).expect("a fixture")
}

/// Without optimization each takes long; a release build looks at more.
const AT_THE_START: usize = if cfg!(debug_assertions) { 700 } else { 2000 };

/// Offsets in a file of `len` bytes: all of the first ones, where the format changes fastest, the last
/// ones, and some between.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    (0..len).filter(move |at| *at < AT_THE_START || len - at < 100 || at % 997 == 0)
}

fn n_events(trace: &Trace) -> usize {
    trace.devices.iter().map(|it| it.events.len()).sum()
}

/// Checks one cut and returns what was read: events and segments.
fn check(whole: &Trace, bytes: &[u8], cut: usize) -> (usize, usize) {
    let (trace, warnings) = match snapshot::read(&bytes[..cut]) {
        Ok(it) => it,
        Err(error) => {
            let text = error.to_string();
            let says = [
                "the file is empty",
                "before anything of a memory snapshot",
                "not a memory snapshot",
            ];
            assert!(says.iter().any(|it| text.contains(it)), "cut at {cut}: {text}");
            return (0, 0);
        }
    };
    let at = trace.cut_at.unwrap_or_else(|| panic!("cut at {cut} looks whole"));
    assert!(at <= cut as u64, "cut at {cut}, says {at}");
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let expected = format!(
        "snapshot.pickle, byte {at}: the file is cut off here; plimsoll read the part before"
    );
    assert!(told.contains(&expected), "cut at {cut}: {told:?}");
    let segments = trace.devices.iter().map(|it| it.segments.len()).sum();
    assert!(0 < n_events(&trace) + segments, "cut at {cut}: nothing read, and no error");
    for (device, part) in trace.devices.iter().enumerate() {
        for (id, event) in part.events.iter() {
            let real = whole.devices[device].events.get(id.index());
            assert_eq!(
                (event.action, event.address, event.size),
                (real.action, real.address, real.size)
            );
        }
        for segment in &part.segments {
            assert!(whole.devices[device].segments.iter().any(|it| it.address == segment.address));
        }
    }
    (n_events(&trace), segments)
}

#[test]
fn no_cut_gives_a_clean_result() {
    for name in ["mempool.pickle", "seed-mlp-adam-b64.pickle"] {
        let bytes = fixture(name);
        let (whole, warnings) = snapshot::read(&bytes).unwrap();
        assert_eq!((whole.cut_at, warnings), (None, Vec::new()));
        let mut most = (0, 0);
        for cut in cuts(bytes.len()) {
            let found = check(&whole, &bytes, cut);
            assert!(
                most <= found || found == (0, 0) || most.1 <= found.1,
                "{name}: more bytes, less read"
            );
            most = most.max(found);
        }
        assert_eq!(most.0, n_events(&whole), "{name}: all events come before the last byte");
    }
}

#[test]
fn cut_json_is_told_as_well() {
    let event = |n: u32| {
        format!(
            r#"{{"action": "alloc", "addr": {}, "size": 512, "stream": 0, "frames": [{{"filename": "t.py", "line": {n}, "name": "f"}}]}}"#,
            n * 512
        )
    };
    let text = format!(
        r#"{{"segments": [{{"device": 0, "address": 0, "total_size": 2097152, "segment_pool_id": [0, 3], "blocks": []}}], "device_traces": [[], [{}, {}, {}]]}}"#,
        event(1),
        event(2),
        event(3)
    );
    let (whole, warnings) = snapshot::read(text.as_bytes()).unwrap();
    assert_eq!(warnings, []);
    assert_eq!((whole.devices.len(), n_events(&whole)), (2, 3));
    assert_eq!(whole.pools, [(0, 0), (0, 3)]);
    let last = whole.devices[1].events.get(2);
    assert_eq!((last.action, last.address), (Action::Alloc, 1536));
    assert_eq!(whole.frames(last.stack).map(|it| it.line).collect::<Vec<_>>(), [3]);
    let mut found = Vec::new();
    for cut in 0..text.len() {
        found.push(check(&whole, text.as_bytes(), cut));
    }
    found.dedup();
    assert_eq!(found, [(0, 0), (0, 1), (1, 1), (2, 1), (3, 1)]);
}

#[test]
fn the_page_that_torch_makes_says_what_its_pickle_says() {
    let bytes = fixture("seed-mlp-adam-b64.pickle");
    let (whole, _) = snapshot::read(&bytes).unwrap();
    // As `_memory_viz.py` pads it.
    let padded = [bytes.as_slice(), &[0; 3][..3 - bytes.len() % 3]].concat();
    let page = format!(
        "\n<!DOCTYPE html>\n<html>\n<script type=\"module\">\nconst local_files = [{{\"name\": \"snapshot.pickle\", \"base64\": \"{}\"}}]\nadd_local_files(local_files, 'Active Memory Timeline')\n</script>\n",
        STANDARD.encode(&padded)
    );
    assert!(snapshot::is_snapshot(page.as_bytes()));
    let (found, warnings) = snapshot::read(page.as_bytes()).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(found.cut_at, None);
    assert_eq!(found.devices[0].events, whole.devices[0].events);
    assert_eq!(found.devices[0].segments, whole.devices[0].segments);
    // A page that was not saved whole.
    let (cut, _) = snapshot::read(&page.as_bytes()[..page.len() - 2000]).unwrap();
    assert!(cut.cut_at.is_some());
}

#[test]
fn logs_are_no_snapshots() {
    for log in [
        "(EngineCore_DP0 pid=81) ERROR torch.OutOfMemoryError: CUDA out of memory.",
        "(lora) step 3",
        "(dp rank 0) loss 1.5",
        "]0;train\nepoch 1",
        "{\"level\": \"error\", \"segments\": [1, 2], \"msg\": \"CUDA out of memory\"}",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory.",
        "<html>an error page</html>",
        "Traceback (most recent call last):",
        "",
    ] {
        assert!(!snapshot::is_snapshot(log.as_bytes()), "{log}");
    }
}

#[test]
fn a_source_that_fails_is_a_cut_with_its_reason() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the xz data is damaged"))
        }
    }
    let bytes = fixture("mempool.pickle");
    let half = &bytes[..bytes.len() / 2];
    let (trace, warnings) = snapshot::read_from(half.chain(Failing)).unwrap();
    assert!(trace.cut_at.is_some());
    let text = warnings.last().unwrap().to_string();
    assert!(text.contains("cannot be read on from here: the xz data is damaged"), "{text}");
    let error = snapshot::read_from(Failing).unwrap_err().to_string();
    assert!(error.contains("the xz data is damaged"), "{error}");
}
