//! What a real GPU's allocator counted, to the byte: peaks and number of allocations of every
//! snapshot under `fixtures/snapshots`, and no event that the allocator would not have produced.

use std::{fs, path::Path};

use plimsoll_core::{replay, sources::snapshot};
use serde_json::Value;

#[test]
fn peaks_and_blocks_are_those_of_the_gpu() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/snapshots");
    let mut n_checked = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "pickle") {
            continue;
        }
        let name = path.display();
        let truth: Value =
            serde_json::from_slice(&fs::read(path.with_extension("json")).unwrap()).unwrap();
        let count = |key: &str| truth[key].as_u64().unwrap();

        let (trace, warnings) = snapshot::read(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(warnings, [], "{name}");
        assert_eq!(trace.devices.len(), 1, "{name}");
        let settings = trace.settings.clone().unwrap();
        let replay = replay::checked(&trace.devices[0], &settings);
        assert_eq!(replay.mismatches, [], "{name}");
        assert_eq!(replay.peak_allocated.bytes.0, count("max_allocated"), "{name}");
        assert_eq!(replay.peak_reserved.bytes.0, count("max_reserved"), "{name}");
        assert_eq!(replay.peak_requested.bytes.0, count("max_requested"), "{name}");
        assert_eq!(replay.blocks.len() as u64, count("allocations"), "{name}");

        // The levels, walked a second time, pass through the same peaks.
        let levels: Vec<_> = replay.levels(&trace.devices[0].events).collect();
        let highest = levels.iter().map(|(_, it)| it.allocated).max().unwrap();
        assert_eq!(highest, replay.peak_allocated.bytes, "{name}");
        let first = levels.iter().find(|(_, it)| it.allocated == highest).unwrap().0;
        assert_eq!(first, replay.peak_allocated.event, "{name}");
        n_checked += 1;
    }
    assert!(5 <= n_checked, "the fixtures are there");
}
