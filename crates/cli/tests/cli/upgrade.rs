//! What 0.1.0 wrote is read as it was meant. Its JSON is held against the schemas in `tests/python/test_json.py`.

use std::fs;

use crate::support::Place;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/0.1");

#[test]
fn a_recording_of_0_1_has_the_peaks_that_0_1_reported() {
    let place = Place::new();
    let ran = place.run(&["replay", &format!("{FOLDER}/run.zip"), "--json", "-"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&report["events"], &report["mismatches"]), (&1371.into(), &0.into()));
    let recorded = &report["recorded"];
    assert_eq!(recorded["peak_allocated_bytes"], 991_265_792);
    assert_eq!(recorded["peak_reserved_bytes"], 1_071_644_672);
    let ran = place.run(&["explain", &format!("{FOLDER}/run.zip")]);
    assert!(ran.stdout.contains("train.py:9"), "{ran:?}");
}

#[test]
fn a_plan_of_0_1_is_applied() {
    let place = Place::new();
    fs::copy(format!("{FOLDER}/plan.toml"), place.path().join("plan.toml")).unwrap();
    place.script("train", "echo \"$PYTORCH_CUDA_ALLOC_CONF $PLIMSOLL_PLAN\"");
    let ran = place.run(&["run", "--no-gpu", "--plan", "plan.toml", "--", "./train"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("expandable_segments:True"), "{ran:?}");
    assert!(ran.stdout.contains("autocast-fp16"), "{ran:?}");
}
