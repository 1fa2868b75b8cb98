//! `plimsoll export`: what is written is whole, where it was asked for, and replaces nothing unasked.

use std::{fs, io::Write as _, path::PathBuf, process::Stdio};

use crate::support::{Place, Ran, names};

fn snapshot(name: &str) -> String {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/snapshots").join(name);
    path.to_str().unwrap().to_owned()
}

fn files(place: &Place) -> Vec<String> {
    names(place.path()).into_iter().filter(|it| it != "cache" && it != "home").collect()
}

#[test]
fn every_target_is_written_under_the_recordings_name() {
    let place = Place::new();
    let file = snapshot("mempool.pickle");
    let ran = place.run(&["export", &file, "--to", "flamegraph,html,parquet,perfetto"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let made =
        ["mempool.flamegraph.svg", "mempool.html", "mempool.parquet", "mempool.perfetto.json"];
    assert_eq!(ran.stdout, made.map(|it| format!("{it}\n")).concat());
    assert_eq!(files(&place), made);
    assert_eq!(
        names(&place.path().join("mempool.parquet")),
        ["blocks.parquet", "events.parquet", "segments.parquet", "stacks.parquet"]
    );
    for it in names(&place.path().join("mempool.parquet")) {
        let bytes = fs::read(place.path().join("mempool.parquet").join(it)).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    }
    let json = fs::read(place.path().join("mempool.perfetto.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert!(json["traceEvents"].is_array());
}

#[test]
fn nothing_is_replaced_unasked() {
    let place = Place::new();
    let file = snapshot("mempool.pickle");
    fs::write(place.path().join("mine.svg"), "mine").unwrap();
    let arguments = ["export", &file, "--to", "flamegraph", "-o", "mine.svg"];
    place
        .run(&arguments)
        .assert_sentence("mine.svg exists with other contents; replace it with --force");
    assert_eq!(fs::read_to_string(place.path().join("mine.svg")).unwrap(), "mine");
    let forced: Vec<&str> = arguments.iter().copied().chain(["--force"]).collect();
    assert_eq!(place.run(&forced).code, Some(0));
    // What is equal is left as it is.
    assert_eq!(place.run(&arguments).code, Some(0));
    assert!(fs::read_to_string(place.path().join("mine.svg")).unwrap().starts_with("<svg"));

    fs::copy(&file, place.path().join("own.pickle")).unwrap();
    let arguments = ["export", "own.pickle", "--to", "perfetto", "-o", "own.pickle", "--force"];
    place.run(&arguments).assert_sentence("own.pickle is the file that is read");
    place
        .run(&["export", &file, "--to", "perfetto", "-o", "no/where.json"])
        .assert_sentence("there is no folder no");
    assert_eq!(files(&place), ["mine.svg", "own.pickle"]);
}

#[test]
fn a_pipe_in_is_a_pipe_out() {
    let place = Place::new();
    let bytes = fs::read(snapshot("seed-mlp-adam-b64.pickle")).unwrap();
    let piped = |arguments: &[&str]| -> Ran {
        let mut child = place
            .plimsoll(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // One that refuses its arguments does not read.
        let _ = child.stdin.take().unwrap().write_all(&bytes);
        child.wait_with_output().unwrap().into()
    };
    let ran = piped(&["export", "-", "--to", "flamegraph"]);
    assert!(ran.stdout.starts_with("<svg") && ran.stdout.ends_with("</svg>\n"), "{}", ran.stderr);
    piped(&["export", "-", "--to", "parquet"]).assert_sentence("name it with -o FOLDER");
    piped(&["export", "-", "--to", "flamegraph,perfetto"])
        .assert_sentence("can take one target only");
    assert_eq!(piped(&["export", "-", "--to", "parquet", "-o", "tables"]).code, Some(0));
    assert_eq!(files(&place), ["tables"]);
}

#[test]
fn a_page_is_one_file_and_what_view_writes() {
    let place = Place::new();
    let file = snapshot("mempool.pickle");
    assert_eq!(place.run(&["export", &file, "--to", "html"]).code, Some(0));
    assert_eq!(place.run(&["view", &file, "--html", "viewed.html"]).code, Some(0));
    assert_eq!(place.run(&["view", &file, "--html", "viewed.html"]).code, Some(0));
    fs::write(place.path().join("viewed.html"), "mine").unwrap();
    place
        .run(&["view", &file, "--html", "viewed.html"])
        .assert_sentence("viewed.html exists with other contents; replace it with --force");
    assert_eq!(place.run(&["view", &file, "--html", "viewed.html", "--force"]).code, Some(0));
    let page = fs::read_to_string(place.path().join("mempool.html")).unwrap();
    assert_eq!(page, fs::read_to_string(place.path().join("viewed.html")).unwrap());
    for elsewhere in ["src=\"", "href=\"style.css", "import "] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
}

#[test]
fn what_cannot_be_exported_is_a_sentence() {
    let place = Place::new();
    let file = snapshot("mempool.pickle");
    let export = |arguments: &[&str]| {
        let all: Vec<&str> = ["export", &file].iter().chain(arguments).copied().collect();
        place.run(&all)
    };
    export(&["--to", "flamegraph", "--at", "step:4"]).assert_sentence("there is no step 4");
    export(&["--to", "flamegraph", "--device", "1"])
        .assert_sentence("nothing happened on device 1");
    export(&["--to", "parquet", "--device", "1"]).assert_sentence("nothing happened on device 1");
    export(&["--to", "html", "--device", "1"]).assert_sentence("nothing happened on device 1");
    export(&["--to", "perfetto", "--at", "oom"])
        .assert_sentence("--at chooses the moment of a flame graph");
    export(&["--to", "perfetto", "--rank", "5"]).assert_sentence("there is no rank 5");
    let ran = export(&["--to", "flamegraph", "--at", "noon"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("expected peak, oom, end"), "{ran:?}");
    fs::write(place.path().join("text"), "hello").unwrap();
    place.run(&["export", "text", "--to", "flamegraph"]).assert_sentence("not a memory snapshot");
    place.run(&["export", ".", "--to", "flamegraph"]).assert_sentence("is a folder");
    assert_eq!(files(&place), ["text"]);
}
