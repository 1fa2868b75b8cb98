//! What a real GPU's allocator counted, to the byte: peaks and number of allocations of every
//! snapshot under `fixtures/snapshots`, and no event that the allocator would not have produced.

use std::{fs, path::Path};

use plimsoll_core::{
    replay::{self, Config},
    sources::snapshot,
};
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

        // Run freely under the same settings, with no more than it ever had where it ran out.
        let (torch, (followed, program)) = replay::follow_best(&trace, 0);
        let config = Config::of_recording(&settings, torch);
        assert_eq!(followed.mismatches, [], "{name}");
        let config = Config { capacity: program.observed_limit, ..config };
        let free = replay::what_if(&program, &config);
        assert_eq!(free.ran_out.is_some(), program.ends_failing(), "{name}");
        assert_eq!(free.peak_reserved.bytes, replay.peak_reserved.bytes, "{name}");
        assert_eq!(free.peak_allocated.bytes, replay.peak_allocated.bytes, "{name}");
        assert_eq!(free.stats.num_ooms, replay.stats.num_ooms, "{name}");
        n_checked += 1;
    }
    assert!(5 <= n_checked, "the fixtures are there");
}

#[test]
fn what_a_recording_lost_is_rebuilt_from_its_end() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/snapshots");
    let bytes = fs::read(folder.join("seed-deepcnn-adam-b64.pickle")).unwrap();
    let (trace, _) = snapshot::read(&bytes).unwrap();
    let settings = trace.settings.clone().unwrap();
    let whole = &trace.devices[0];
    let replay = replay::checked(whole, &settings);
    let levels: Vec<_> = replay.levels(&whole.events).map(|(_, it)| it).collect();
    // As a ring would have left it, overwritten up to each of these events.
    for start in (1..whole.events.len()).step_by(7) {
        let mut rest = whole.clone();
        rest.events = rest.events.split_off(start);
        let late = replay::checked(&rest, &settings);
        assert_eq!(late.mismatches, [], "from event {start}");
        assert_eq!(late.reserved_before, levels[start - 1].reserved, "from event {start}");
        assert_eq!(late.allocated_before, levels[start - 1].allocated, "from event {start}");
        let highest = levels[start - 1..].iter().map(|it| it.allocated).max().unwrap();
        assert_eq!(late.peak_allocated.bytes, highest, "from event {start}");
        let last = late.levels(&rest.events).last().unwrap().1;
        assert_eq!(last, *levels.last().unwrap(), "from event {start}");
    }
}
