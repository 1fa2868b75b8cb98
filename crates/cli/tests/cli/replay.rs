//! `plimsoll replay`: what it says, as JSON and by its exit code, however the recording is packed.

use std::{fs, io::Write as _, path::PathBuf, process::Stdio};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use crate::support::{Place, Ran, names};

fn snapshot(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/snapshots").join(name)
}

#[test]
fn a_recording_is_checked() {
    let place = Place::new();
    let path = snapshot("lstm-adam-b32-s128.pickle");
    let ran = place.run(&["replay", path.to_str().unwrap(), "--json", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["mode"], "checked");
    assert_eq!(document["mismatches"], 0);
    assert_eq!(document["recorded"], document["replayed"]);
    let ran = place.run(&["replay", path.to_str().unwrap()]);
    assert!(ran.stdout.contains("EXPLAINED all 609 events match"), "{ran:?}");
}

#[test]
fn the_keys_are_those_of_the_manual() {
    let place = Place::new();
    let path = snapshot("lstm-adam-b32-s128.pickle");
    for setting in [&["--capacity", "24GiB"][..], &[]] {
        let arguments = [&["replay", path.to_str().unwrap(), "--json", "-"][..], setting].concat();
        let ran = place.run(&arguments);
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        for key in ["events", "checked_events", "mismatches"] {
            assert!(document[key].is_u64(), "{key}: {ran:?}");
        }
        for run in ["recorded", "replayed"] {
            for key in [
                "peak_allocated_bytes",
                "peak_reserved_bytes",
                "final_reserved_bytes",
                "alloc_retries",
                "ooms",
            ] {
                assert!(document[run][key].is_u64(), "{run}.{key}: {ran:?}");
            }
            let peak = &document[run]["statistics"]["reserved_bytes.all.peak"];
            assert_eq!(*peak, document[run]["peak_reserved_bytes"]);
        }
    }
}

#[test]
fn a_smaller_card_runs_out() {
    let place = Place::new();
    let path = snapshot("lstm-adam-b32-s128.pickle");
    let arguments = ["replay", path.to_str().unwrap(), "--capacity", "40MiB", "--json", "-"];
    let ran = place.run(&arguments);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["mode"], "what_if");
    assert_eq!(document["runs_out"], true);
    assert!(document["ran_out"]["requested_bytes"].as_u64().unwrap() > 0);

    let arguments = ["replay", path.to_str().unwrap(), "--capacity", "24GiB", "--sweep"];
    let ran = place.run(&arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("FITS in 24.00 GiB"), "{ran:?}");
    assert!(ran.stdout.contains("expandable_segments:True\n"), "{ran:?}");
    assert!(ran.stdout.contains("--outside"), "{ran:?}");
}

#[test]
fn a_recording_that_ended_early_is_never_said_to_fit() {
    let place = Place::new();
    let path = snapshot("oom-gpt2-b32-cap12.pickle");
    let arguments = ["replay", path.to_str().unwrap(), "--capacity", "24GiB"];
    let ran = place.run(&arguments);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stdout.contains("UNKNOWN in 24.00 GiB"), "{ran:?}");
    assert!(ran.stdout.contains("later requests are not in the recording"), "{ran:?}");
    assert!(!ran.stdout.contains("FITS"), "{ran:?}");
    let ran = place.run(&[&arguments[..], &["--json", "-"]].concat());
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["runs_out"], false);
    assert_eq!(document["ends_early"], "the recorded run ended with a request that failed");

    let cut = place.path().join("cut.pickle");
    let whole = fs::read(snapshot("lstm-adam-b32-s128.pickle")).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let ran = place.run(&["replay", cut.to_str().unwrap()]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stdout.starts_with("UNKNOWN the file is cut off or damaged"), "{ran:?}");
    let ran = place.run(&["replay", cut.to_str().unwrap(), "--capacity", "24GiB"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(!ran.stdout.contains("FITS"), "{ran:?}");
}

#[test]
fn the_rules_are_those_of_the_torch_asked_for() {
    let place = Place::new();
    let path = snapshot("lstm-adam-b32-s128.pickle");
    let asked = |torch: &str, conf: &str| {
        let path = path.to_str().unwrap();
        place.run(&["replay", path, "--torch", torch, "--alloc-conf", conf, "--json", "-"])
    };
    let reserved = |torch: &str| {
        let ran = asked(torch, "roundup_power2_divisions:1");
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        document["replayed"]["peak_reserved_bytes"].as_u64().unwrap()
    };
    // Until 2.0 one division rounded to a power of two; since then it is off.
    assert!(reserved("2.1") < reserved("2.0"));
    assert_eq!(reserved("2.1"), reserved("2.11"));
    asked("2.0", "expandable_segments:True").assert_sentence("it came with torch 2.1");
}

#[test]
fn packed_files_and_recordings_are_opened() {
    let place = Place::new();
    let bytes = fs::read(snapshot("mempool.pickle")).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&bytes).unwrap();
    fs::write(place.path().join("packed"), encoder.finish().unwrap()).unwrap();

    let mut zip = zip::ZipWriter::new(fs::File::create(place.path().join("run.zip")).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("process-7/snapshot.pickle", options).unwrap();
    zip.write_all(&bytes).unwrap();
    zip.finish().unwrap();

    for name in ["packed", "run.zip"] {
        let ran = place.run(&["replay", name]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("EXPLAINED"), "{ran:?}");
    }
}

#[test]
fn standard_input_is_a_file() {
    let place = Place::new();
    let path = snapshot("lstm-adam-b32-s128.pickle");
    let piped = |bytes: &[u8], arguments: &[&str]| -> Ran {
        let mut child = place
            .plimsoll(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // One that sees what it is given may not read it to the end.
        let _ = child.stdin.take().unwrap().write_all(bytes);
        child.wait_with_output().unwrap().into()
    };
    let bytes = fs::read(&path).unwrap();
    let arguments = ["replay", "-", "--capacity", "24GiB", "--json", "-"];
    let ran = piped(&bytes, &arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stderr, "");
    let named = place.run(&[&["replay", path.to_str().unwrap()], &arguments[2..]].concat());
    assert_eq!(ran.stdout, named.stdout);
    piped(b"", &["replay", "-"]).assert_sentence("the file is empty");
}

/// It is waiting for the rest of its input when the signal comes.
#[test]
fn ctrl_c_leaves_nothing() {
    let place = Place::new();
    let bytes = fs::read(snapshot("oom-gpt2-b32-cap12.pickle")).unwrap();
    let mut child = place
        .plimsoll(&["replay", "-", "--json", "report.json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than the 64 KiB that a pipe holds, so that it reads by the time this returns.
    input.write_all(&bytes[..90_000]).unwrap();
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert!(!output.status.success());
    assert_eq!(output.stdout, b"");
    let left: Vec<String> =
        names(place.path()).into_iter().filter(|it| it != "cache" && it != "home").collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn what_cannot_be_read_is_a_sentence() {
    let place = Place::new();
    place.run(&["replay", "no-such"]).assert_sentence("no such file");
    fs::write(place.path().join("text"), "hello").unwrap();
    place.run(&["replay", "text"]).assert_sentence("not a memory snapshot");
    let path = snapshot("mempool.pickle");
    let arguments = ["replay", path.to_str().unwrap(), "--alloc-conf", "max_split:1"];
    place.run(&arguments).assert_sentence("unknown allocator setting");
}

#[test]
fn a_pool_that_may_lend_is_said_where_nothing_tells() {
    let place = Place::new();
    let snapshot = |owner: [u32; 2]| {
        let event = |action: &str, mib: u64| json!({"action": action, "addr": 1 << 30, "size": mib << 20, "stream": 0, "frames": []});
        let events = [
            event("segment_alloc", 20),
            event("alloc", 8),
            event("free_requested", 8),
            event("free_completed", 8),
        ];
        let block = json!({"address": 1 << 30, "size": 20 << 20, "requested_size": 0, "state": "inactive", "frames": []});
        json!({
            "segments": [{
                "device": 0, "address": 1 << 30, "total_size": 20 << 20, "allocated_size": 0, "active_size": 0,
                "segment_type": "large", "stream": 0, "segment_pool_id": owner, "is_expandable": false,
                "frames": [], "blocks": [block],
            }],
            "device_traces": [events],
        })
    };
    for (owner, is_said) in [([0, 1], true), ([7, 0], false), ([0, 0], false)] {
        fs::write(place.path().join("pool.json"), snapshot(owner).to_string()).unwrap();
        let ran = place.run(&["replay", "pool.json"]);
        assert_eq!(
            ran.stdout.contains("a recording does not store whether a MemPool has use_on_oom=True"),
            is_said,
            "{ran:?}"
        );
    }
}
