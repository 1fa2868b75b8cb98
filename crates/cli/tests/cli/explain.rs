//! `plimsoll explain` and `diff`: what goes in is told apart by content, and every end has its code.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use crate::support::{Place, Ran};

const OOM: &str = "epoch 3\nTraceback (most recent call last):\n  File \"train.py\", line 61, in main\n    loss.backward()\nRuntimeError: CUDA out of memory. Tried to allocate 2.87 GiB (GPU 0; 14.76 GiB total capacity; 8.77 GiB already allocated; 19.75 MiB free; 13.71 GiB reserved in total by PyTorch)\n";

fn piped(place: &Place, arguments: &[&str], text: &str) -> Ran {
    let mut command: Command = place.plimsoll(arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_log_from_a_pipe() {
    let place = Place::new();
    let ran = piped(&place, &["explain"], OOM);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("OUT OF MEMORY: "), "{ran:?}");
    assert!(ran.stdout.contains("[fragmentation/slack]"), "{ran:?}");
    assert!(ran.stdout.contains("\n  It ran out at epoch 3, at train.py:61 in main"), "{ran:?}");
    assert!(ran.stdout.lines().all(|it| it.chars().count() <= 80), "{ran:?}");

    let ran = piped(&place, &["explain", "-", "--json", "-"], OOM);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["kind"], "text");
    assert_eq!(json["oom"]["requested_bytes"], 3_081_639_035_u64);
    assert_eq!(json["oom"]["cause"], "fragmentation");
    assert_eq!(json["cause"]["code"], "fragmentation/slack");
}

/// Who pipes a run here still sees it, and the report is alone on standard output.
#[test]
fn a_pipe_passes_the_log_on() {
    let place = Place::new();
    let ran = piped(&place, &["explain"], OOM);
    assert_eq!(ran.stderr, OOM);
    assert!(!ran.stdout.contains("epoch 3\n"), "{ran:?}");
    // A snapshot is not for eyes.
    let ran = piped_bytes(&place, &["explain", "-"], SNAPSHOT);
    assert!(!ran.stderr.contains("segment"), "{ran:?}");
}

#[test]
fn the_command_of_a_log_is_what_is_to_be_typed_next() {
    let place = Place::new();
    let log = format!("me@box:~$ python train.py --batch 8 2>&1 | tee log\n{OOM}");
    let ran = piped(&place, &["explain"], &log);
    assert!(
        ran.stdout.contains("\n  plimsoll fit --budget 14.76GiB -- python train.py --batch 8\n"),
        "{ran:?}"
    );
    // It is told, and what is run is what stands behind `--`.
    fs::write(place.path().join("train.log"), &log).unwrap();
    let ran = place.run(&["explain", "train.log", "--fix", "--", "./nowhere", "--batch", "4"]);
    assert!(
        ran.stdout.contains("\n$ plimsoll fit --budget 14.76GiB -- ./nowhere --batch 4\n"),
        "{ran:?}"
    );
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("nowhere"), "{ran:?}");
    // The text names no card.
    assert!(ran.stderr.contains("no --gpu was given, so plimsoll imitates "), "{ran:?}");
    assert_eq!(place.run(&["explain", "train.log", "--fix"]).code, Some(2));
}

#[test]
fn a_traceback_alone() {
    let text = "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 88, in <module>\n    \
                loss.backward()\n  File \"/home/u/pytorch/torch/_tensor.py\", line 521, in backward\n    \
                torch.autograd.backward(\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate \
                2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free.\n";
    let ran = piped(&Place::new(), &["explain"], text);
    assert!(ran.stdout.contains("\n  It ran out at train.py:88\n    loss.backward()\n"), "{ran:?}");
}

#[test]
fn nothing_of_memory_is_1_and_nothing_readable_is_2() {
    let place = Place::new();
    assert_eq!(piped(&place, &["explain"], "loss 0.3\n").code, Some(1));
    place.run(&["explain", "nowhere.pickle"]).assert_sentence("no such file");
    fs::write(place.path().join("noise"), [0, 1, 2, 3, 4, 5, 0, 0]).unwrap();
    place.run(&["explain", "noise"]).assert_sentence("it is not a snapshot, a recording or a text");
    let evil = b"\x80\x04cposix\nsystem\n\x8c\x07echo hi\x85R.";
    fs::write(place.path().join("evil.pickle"), evil).unwrap();
    place.run(&["explain", "evil.pickle"]).assert_sentence("posix.system");
}

#[test]
fn pages_are_printed() {
    let place = Place::new();
    let ran = place.run(&["explain", "--code", "leak/graph-retained"]);
    assert!(ran.stdout.starts_with("# leak/graph-retained\n"), "{ran:?}");
    assert!(place.run(&["explain", "--list"]).stdout.contains("growth/kv-cache"));
    place.run(&["explain", "--code", "leak/nothing"]).assert_sentence("--list");
}

/// A snapshot of a run that ran out, as the binary reads it from a pipe.
const SNAPSHOT: &[u8] = include_bytes!("../../../../fixtures/snapshots/oom-gpt2-b32-cap12.pickle");

fn piped_bytes(place: &Place, arguments: &[&str], bytes: &[u8]) -> Ran {
    let input = place.path().join("input");
    fs::write(&input, bytes).unwrap();
    let mut command: Command = place.plimsoll(arguments);
    command.stdin(fs::File::open(input).unwrap()).output().unwrap().into()
}

#[test]
fn every_key_of_the_json_is_there() {
    let place = Place::new();
    for arguments in [["explain", "--json", "-"].as_slice(), &["explain", "-", "--json", "-"]] {
        let ran = piped_bytes(&place, arguments, SNAPSHOT);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let keys = |it: &serde_json::Value, names: &[&str]| {
            for name in names {
                assert!(it.get(name).is_some(), "{name} is missing in {it:#}");
            }
        };
        keys(&json, &["kind", "torch_version", "window", "peak_allocated_bytes"]);
        keys(&json, &["peak_reserved_bytes", "findings", "oom", "unsure", "notes"]);
        keys(&json["findings"][0], &["code", "title", "bytes", "count", "evidence", "remedy"]);
        let oom = &json["oom"];
        keys(oom, &["requested_bytes", "capacity_bytes", "free_bytes", "allocated_bytes"]);
        keys(oom, &["reserved_bytes", "slack_bytes", "process_bytes", "other_bytes"]);
        keys(oom, &["limit_bytes", "backend", "cause", "enough", "proven"]);
        assert_eq!(json["kind"], "snapshot");
        assert_eq!(oom["requested_bytes"], 201_326_592);
        assert_eq!(oom["cause"], "limit", "{oom:#}");
        let sum = |key: &str| oom[key].as_u64().unwrap();
        assert_eq!(sum("reserved_bytes") - sum("allocated_bytes"), sum("slack_bytes"));
        assert_eq!(oom["proven"], true, "{oom:#}");
    }
}

#[test]
fn a_snapshot_that_is_cut_off_is_not_called_healthy() {
    let place = Place::new();
    // Before anything of it was complete, there is nothing to explain.
    let ran = piped_bytes(&place, &["explain", "-"], &SNAPSHOT[..300]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("the file is cut off here"), "{ran:?}");
    for len in [3_000, SNAPSHOT.len() / 3] {
        let ran = piped_bytes(&place, &["explain", "-"], &SNAPSHOT[..len]);
        assert_eq!(ran.code, Some(2), "{len}: {ran:?}");
        assert!(ran.stdout.starts_with("COULD NOT TELL: the file is cut off"), "{len}: {ran:?}");
        assert!(ran.stdout.contains("the file is cut off here"), "{len}: {ran:?}");
    }
}
