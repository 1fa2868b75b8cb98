//! `plimsoll diff`, and folders of ranks: what is compared, and what is said when nothing can be.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::support::{Place, Ran};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// A folder with the two ranks of a job, and with `others`.
fn job(others: &[(&str, &[u8])]) -> Place {
    let place = Place::new();
    fs::create_dir(place.path().join("job")).unwrap();
    for rank in [0, 1] {
        let from = fixture(&format!("distributed/ddp.rank{rank}.pickle.xz"));
        fs::copy(from, place.path().join(format!("job/snapshot_rank_{rank}.pickle"))).unwrap();
    }
    for (name, bytes) in others {
        fs::write(place.path().join("job").join(name), bytes).unwrap();
    }
    place
}

/// The rows and the rest are the change, to the byte.
fn assert_adds_up(document: &Value) {
    let rows = document["differences"].as_array().unwrap();
    let sum: i64 = rows.iter().map(|it| it["change_bytes"].as_i64().unwrap()).sum();
    let bytes = |side: &str| document[side]["allocated_bytes"].as_i64().unwrap();
    assert_eq!(sum + document["rest_bytes"].as_i64().unwrap(), bytes("after") - bytes("before"));
    assert_eq!(document["change_bytes"], bytes("after") - bytes("before"));
}

#[test]
fn the_same_contents_do_not_differ() {
    let place = Place::new();
    let path = fixture("snapshots/mempool.pickle");
    let path = path.to_str().unwrap();
    fs::copy(path, place.path().join("copy.pickle")).unwrap();
    let ran = place.run(&["diff", path, "copy.pickle"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("no difference: mempool.pickle"), "{ran:?}");
    let document = json(&place.run(&["diff", path, "copy.pickle", "--json", "-"]));
    assert_eq!(document["differences"], Value::Array(Vec::new()));
    assert_eq!(document["change_bytes"], 0);
}

#[test]
fn two_steps_two_moments_and_two_recordings() {
    let place = Place::new();
    let path = fixture("distributed/ddp.rank0.pickle.xz");
    let path = path.to_str().unwrap();
    let other = fixture("snapshots/seed-deepcnn-adam-b64.pickle");
    let other = other.to_str().unwrap();
    let steps = json(&place.run(&["diff", path, "--steps", "1..2", "--json", "-"]));
    let named = json(&place.run(&[
        "diff",
        &format!("{path}@step:1"),
        &format!("{path}@step:2"),
        "--json",
        "-",
    ]));
    assert_eq!(steps, named);
    assert_eq!(steps["after"]["at"], "at the peak of step 2");
    let kept = json(&place.run(&[
        "diff",
        &format!("{path}@event:5"),
        &format!("{path}@end"),
        "--json",
        "-",
    ]));
    let two = json(&place.run(&["diff", path, other, "--json", "-"]));
    for document in [&steps, &kept, &two] {
        assert_adds_up(document);
        assert!(!document["differences"].as_array().unwrap().is_empty());
    }
    let row = &two["differences"][0];
    assert!(row["stack"].as_array().unwrap().len() > 1, "{row:#}");
}

#[test]
fn a_prediction_is_compared_with_the_real_thing() {
    let place = Place::new();
    let mut zip = zip::ZipWriter::new(fs::File::create(place.path().join("run.zip")).unwrap());
    for name in ["agent.jsonl", "snapshot.pickle"] {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(format!("process-7/{name}"), options).unwrap();
        let bytes = fs::read(fixture("recordings/train").join(name)).unwrap();
        std::io::Write::write_all(&mut zip, &bytes).unwrap();
    }
    zip.finish().unwrap();
    let real = fixture("recordings/train/snapshot.pickle");
    let ran = place.run(&["diff", "run.zip", real.to_str().unwrap(), "--json", "-"]);
    let document = json(&ran);
    // The same snapshot, once with names and once without: no line differs.
    assert_eq!(document["differences"], Value::Array(Vec::new()), "{document:#}");
    assert!(document["notes"][0].as_str().unwrap().contains("only run.zip has the agent's names"));
}

#[test]
fn ranks_of_a_folder_are_beside_each_other() {
    let place = job(&[("rank7.pickle", b"\x80\x04damaged"), ("notes.txt", b"lr 3e-4")]);
    let document = json(&place.run(&["diff", "job", "--json", "-"]));
    assert_adds_up(&document);
    let rows = document["ranks"]["rows"].as_array().unwrap();
    let ranks: Vec<u64> = rows.iter().map(|it| it["rank"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [0, 1]);
    assert_eq!(document["ranks"]["highest"], 0);
    assert!(!document["ranks"]["lines"].as_array().unwrap().is_empty());
    let notes = document["ranks"]["notes"].to_string();
    assert!(notes.contains("rank7.pickle"), "{notes}");
    assert!(notes.contains("not recordings: notes.txt"), "{notes}");

    let ran = place.run(&["diff", "job/@rank:0", "job/@rank:1"]);
    assert!(ran.stdout.starts_with("snapshot_rank_0.pickle, device 0, at the peak"), "{ran:?}");
    place
        .run(&["diff", "job@rank:0", "job@rank:4"])
        .assert_sentence("there is no rank 4; there is 0, 1");
}

#[test]
fn one_rank_of_a_folder_is_replayed() {
    let place = job(&[]);
    let replayed = |arguments: &[&str]| place.run(&[&["replay", "job"][..], arguments].concat());
    for rank in ["0", "1"] {
        let file = format!("job/snapshot_rank_{rank}.pickle");
        let alone = json(&place.run(&["replay", &file, "--json", "-"]));
        assert_eq!(json(&replayed(&["--rank", rank, "--json", "-"])), alone);
    }
    replayed(&["--rank", "4"]).assert_sentence("there is no rank 4; there is 0, 1");
    let ran = replayed(&[]);
    assert!(ran.stdout.contains("the one with the most requests (ranks: 0, 1)"), "{ran:?}");
}

#[test]
fn explain_shows_the_ranks_that_can_be_read_and_names_the_other() {
    let place = job(&[("rank7.pickle", b"\x80\x04damaged")]);
    let ran = place.run(&["explain", "job"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("snapshot_rank_0.pickle: highest peak"), "{ran:?}");
    assert!(ran.stdout.contains("- cannot explain job/rank7.pickle"), "{ran:?}");
    let document = json(&place.run(&["explain", "job", "--json", "-"]));
    assert_eq!(document["comparison"]["ranks"]["rows"][1]["rank"], 1);
    let peaks: Vec<&Value> = document["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["peak_allocated_bytes"])
        .collect();
    let rows = document["comparison"]["ranks"]["rows"].as_array().unwrap();
    let of_table: Vec<&Value> = rows.iter().map(|it| &it["peak_allocated_bytes"]).collect();
    assert_eq!(peaks, of_table);
}

#[test]
fn what_cannot_be_compared_is_a_sentence() {
    let place = Place::new();
    let path = fixture("snapshots/mempool.pickle");
    let path = path.to_str().unwrap();
    place.run(&["diff", path]).assert_sentence("so it has nothing to compare");
    place.run(&["diff", path, "--steps", "3..4"]).assert_sentence("there is no step 3");
    place.run(&["diff", path, "nowhere.pickle"]).assert_sentence("no such file");
    place
        .run(&["diff", path, path, "--steps", "1..2"])
        .assert_sentence("plimsoll diff A@step:3 B@step:4");
    place
        .run(&["diff", &format!("{path}@lunch"), path])
        .assert_sentence("is no moment: expected peak, oom, end");
    fs::create_dir(place.path().join("empty")).unwrap();
    place.run(&["diff", "empty"]).assert_sentence("empty is an empty folder");
    fs::write(place.path().join("empty/log.txt"), "hello").unwrap();
    place.run(&["diff", "empty"]).assert_sentence("no file of empty is a recording");
    let ran = place.run(&["diff", path, "--steps", "0..4"]);
    assert!(ran.stderr.contains("expected two steps, counted from 1"), "{ran:?}");
}
