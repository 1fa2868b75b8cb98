//! Settings that are not options: a project's file and the environment.

use std::fs;

use crate::support::{BEGIN, Place, Ran};

/// A script that says which card it was given.
const SAYS_THE_CARD: &str = "cat $PLIMSOLL_SESSION/phantom.conf | grep ^name";

#[test]
fn an_option_goes_before_the_environment_and_that_before_the_file() {
    let place = Place::new();
    let script = place.noting_script("train", &[BEGIN], SAYS_THE_CARD);
    let script = script.to_str().unwrap();
    fs::write(place.path().join("plimsoll.toml"), "gpu = \"rtx4090\"\n").unwrap();
    let run = |more: &[&str], variable: Option<&str>| {
        let mut words = vec!["predict"];
        words.extend(more);
        words.push(script);
        let mut command = place.plimsoll(&words);
        if let Some(it) = variable {
            command.env("PLIMSOLL_GPU", it);
        }
        Ran::from(command.output().unwrap())
    };
    let ran = run(&[], None);
    assert!(ran.stdout.contains("RTX 4090"), "{ran:?}");
    assert!(ran.stderr.contains("plimsoll: with --gpu rtx4090 (plimsoll.toml:1)\n"), "{ran:?}");
    let ran = run(&[], Some("t4"));
    assert!(ran.stdout.contains("T4"), "{ran:?}");
    assert!(ran.stderr.contains("with --gpu t4 (PLIMSOLL_GPU)\n"), "{ran:?}");
    let ran = run(&["--gpu", "h200"], Some("t4"));
    assert!(ran.stdout.contains("H200"), "{ran:?}");
    assert!(!ran.stderr.contains("with --gpu"), "{ran:?}");
    // Of several cards the first is meant, and not the one of the file.
    let ran = run(&["--cards", "a10,h200"], None);
    assert!(ran.stdout.contains("A10"), "{ran:?}");
    let ran = run(&["--quiet"], None);
    assert!(!ran.stderr.contains("with --gpu"), "{ran:?}");
}

#[test]
fn a_file_that_is_wrong_stops_what_reads_it_and_nothing_else() {
    let place = Place::new();
    fs::write(place.path().join("plimsoll.toml"), "\n[fit]\nforbiden = [\"offload\"]\n").unwrap();
    let expected =
        "plimsoll.toml:3:1: there is no setting `fit.forbiden`; did you mean `fit.forbid`?";
    for words in [&["predict", "true"][..], &["config"], &["fit", "--gpu", "t4", "true"]] {
        place.run(words).assert_sentence(expected);
    }
    for words in [&["cards"][..], &["predict", "--help"], &["--version"]] {
        assert_eq!(place.run(words).code, Some(0), "{words:?}");
    }
}

#[test]
fn a_strangers_file_cannot_have_a_script_write_into_files_of_yours() {
    let place = Place::new();
    let script = place.script("train", "echo harm > made");
    for (file, text) in [
        ("plimsoll.toml", "writes = \"through\"\n"),
        ("pyproject.toml", "[tool.plimsoll]\nwrites = \"through\"\n"),
    ] {
        let path = place.path().join(file);
        fs::write(&path, text).unwrap();
        for words in [&["predict"][..], &["predict", "--quiet"], &["fit", "--gpu", "t4"]] {
            let words = [words, &["--", script.to_str().unwrap()]].concat();
            let ran = place.run(&words);
            ran.assert_sentence("a project's file may not set writes = through");
        }
        assert!(!place.path().join("made").exists());
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn config_says_who_made_a_setting() {
    let place = Place::new();
    fs::write(
        place.path().join("pyproject.toml"),
        "[tool.plimsoll]\noffline = true\n[tool.plimsoll.fit]\nforbid = [\"offload\", \"autocast\"]\n",
    )
    .unwrap();
    let mut command = place.plimsoll(&["config", "--json"]);
    let ran = Ran::from(command.env("PLIMSOLL_PREDICT_MAX", "12GiB").output().unwrap());
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(document["file"].as_str().unwrap().ends_with("pyproject.toml"));
    let of = |name: &str| {
        let all = document["settings"].as_array().unwrap();
        let it = all.iter().find(|it| it["name"] == name).unwrap();
        (it["value"].clone(), it["from"].clone(), it["line"].clone())
    };
    assert_eq!(of("offline"), (true.into(), "file".into(), 2.into()));
    assert_eq!(of("fit.forbid"), (vec!["offload", "autocast"].into(), "file".into(), 4.into()));
    assert_eq!(of("predict.max"), ("12GiB".into(), "environment".into(), ().into()));
    assert_eq!(of("gpu"), (().into(), ().into(), ().into()));
    let shown = place.run(&["config"]);
    assert!(shown.stdout.contains("offload, autocast"), "{shown:?}");
    assert!(
        shown.stdout.lines().filter(|it| !it.contains('/')).all(|it| it.chars().count() <= 80),
        "{}",
        shown.stdout
    );
}

#[test]
fn a_slip_is_answered_with_what_was_meant() {
    let place = Place::new();
    for (words, meant) in [
        (&["predcit", "train.py"][..], "'predict'"),
        (&["predict", "--gppu", "t4", "train.py"], "`--gpu`"),
        (&["predict", "--as", "slrum", "train.py"], "'slurm'"),
        (&["predict", "--gpu", "rtx4900", "true"], "`rtx4090`"),
        (&["fit", "--gpu", "t4", "--forbid", "ofload", "true"], "`offload`"),
        (&["explain", "--code", "leak/graph-retaind"], "`leak/graph-retained`"),
        (&["glossary", "activatoins"], "`activations`"),
        (&["man", "predcit"], "`predict`"),
    ] {
        let ran = place.run(words);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(meant), "{words:?}: {ran:?}");
    }
}
