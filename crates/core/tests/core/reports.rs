//! The reports of the runs under `fixtures/recordings`, as people and programs see them.

use std::{fs, path::Path};

use expect_test::expect_file;
use plimsoll_core::{
    cards, explanation,
    prediction::{CardFit, Carries, Prediction, RunFacts, ScriptExit, predict},
    sources::{self, ProcessFiles, oom_text},
    units::Bytes,
    views::{
        answer::Answer,
        text::{self, Extent, Styles},
        wire,
    },
};

fn prediction_of(name: &str, code: i32, card: &str, max: Option<Bytes>) -> Prediction {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name);
    let notes = fs::read(folder.join("agent.jsonl")).unwrap();
    let snapshot = fs::read(folder.join("snapshot.pickle")).unwrap();
    let files =
        ProcessFiles { pid: 4711, notes: &notes, snapshot: Some(&snapshot), phantom_log: None };
    let reading = sources::read_process(files);
    assert_eq!(reading.warnings, []);
    let exit = ScriptExit::Code(code);
    let facts = RunFacts { exit, seconds: 4.2, max, waited_in_vain: false };
    predict(&[reading.recording], cards::find(card).unwrap(), facts)
}

/// The full report is drawn, and what the short one leaves out of it.
fn check_text(prediction: &Prediction, expect: expect_test::ExpectFile) {
    let text_of = |extent, styles, width| {
        text::prediction(prediction.into(), extent, styles, width).to_string()
    };
    for (extent, width) in
        [76, 80, 132].into_iter().flat_map(|width| [(Extent::Full, width), (Extent::Short, width)])
    {
        let text = text_of(extent, Styles::default(), width);
        for line in text.lines() {
            assert!(line.chars().count() <= width, "wider than {width}: {line}");
            assert_eq!(line.trim_end(), line, "blanks at the end");
        }
        assert!(!text.contains('\u{1b}'));
    }
    let coloured = text_of(Extent::Full, Styles::COLOR, 80);
    assert_eq!(coloured.matches("\x1b[0m").count() * 2, coloured.matches('\x1b').count());
    let short = text_of(Extent::Short, Styles::default(), 80);
    let full = text_of(Extent::Full, Styles::default(), 80);
    assert!(short.lines().count() <= 22, "more than a screen, with what is around it:\n{short}");
    expect.assert_eq(&format!("{full}\n---- without --full ----\n{short}"));
}

#[test]
fn a_run_that_fits() {
    let prediction = prediction_of("train", 0, "rtx4090", None);
    check_text(&prediction, expect_file!["reports/train.txt"]);
    expect_file!["reports/train.json"].assert_eq(&wire::prediction((&prediction).into()));
}

#[test]
fn a_card_that_nobody_asked_for_is_not_the_answer() {
    let prediction = prediction_of("train", 0, "b200", None);
    let answer = Answer { any_card: true, ..Answer::from(&prediction) };
    let text = text::prediction(answer, Extent::Full, Styles::default(), 100).to_string();
    let first = text.lines().take(2).collect::<Vec<_>>().join(" ");
    assert!(first.starts_with("FITS rtx3050-laptop (3.62 GiB) and larger cards"), "{first}");
    assert!(!text.contains("to spare"));
}

/// Whoever has a small card reads it in the short list, too.
#[test]
fn the_short_list_begins_at_the_smallest_card_of_all() {
    let prediction = prediction_of("train", 0, "t4", None);
    let listed = |prediction: &Prediction| {
        let text = text::prediction(prediction.into(), Extent::Short, Styles::default(), 132);
        let text = text.to_string();
        text.lines().find(|line| line.starts_with("Cards:")).unwrap().to_owned()
    };
    let fits = |it: &&CardFit| it.carries == Carries::Yes;
    let smallest = prediction.cards.iter().find(fits).unwrap().card;
    assert!(!smallest.usual && smallest.total < Bytes::gib(4), "{}", smallest.id);
    let sentence = format!("Cards: fits {} ({}) and larger", smallest.id, smallest.total);
    assert!(listed(&prediction).starts_with(&sentence), "{}", listed(&prediction));
}

#[test]
fn a_run_that_does_not() {
    let prediction = prediction_of("oom", 1, "h200", None);
    check_text(&prediction, expect_file!["reports/oom.txt"]);
    expect_file!["reports/oom.json"].assert_eq(&wire::prediction((&prediction).into()));
}

#[test]
fn a_run_over_the_limit() {
    let prediction = prediction_of("train", 0, "rtx4090", Some(Bytes::mib(500)));
    check_text(&prediction, expect_file!["reports/over-max.txt"]);
}

#[test]
fn the_numbers_are_the_allocators_own() {
    // What `torch.cuda.memory_stats` said at the end of the same run.
    for name in ["train", "oom"] {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name);
        let notes = fs::read_to_string(folder.join("agent.jsonl")).unwrap();
        let stats = notes.lines().find(|it| it.contains("\"kind\":\"stats\"")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
        let prediction = prediction_of(name, 0, "h200", None);
        assert_eq!(stats["peak_allocated"].as_u64(), Some(prediction.peak.allocated.0));
        assert_eq!(stats["peak_reserved"].as_u64(), Some(prediction.peak.reserved.0));
    }
}

#[test]
fn categories_sum_to_the_peak() {
    for (name, code) in [("train", 0), ("oom", 1)] {
        let prediction = prediction_of(name, code, "h200", None);
        let json: serde_json::Value =
            serde_json::from_str(&wire::prediction((&prediction).into())).unwrap();
        let sum: u64 =
            json["categories"].as_object().unwrap().values().map(|it| it.as_u64().unwrap()).sum();
        assert_eq!(Some(sum), json["categories_bytes"].as_u64());
        // Of one that died, the moment counts in which it did.
        assert_eq!(code == 0, json["categories_bytes"] == json["peak_device_bytes"]);
    }
}

/// The command that `explain` proposes after the recording of an error, with what the agent noted of it replaced.
fn next_of(changes: &[(&str, &str)]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/oom");
    let mut notes = fs::read_to_string(folder.join("agent.jsonl")).unwrap();
    for (old, new) in changes {
        assert!(notes.contains(old), "{old}");
        notes = notes.replace(old, new);
    }
    let snapshot = fs::read(folder.join("snapshot.pickle")).unwrap();
    let files = ProcessFiles {
        pid: 4711,
        notes: notes.as_bytes(),
        snapshot: Some(&snapshot),
        phantom_log: None,
    };
    let recording = sources::read_process(files).recording;
    let messages: Vec<_> =
        recording.notes.ooms.iter().flat_map(|oom| oom_text::read(&oom.message)).collect();
    explanation::of_recording("run.zip", &recording, &messages).next.unwrap().command
}

#[test]
fn the_next_command_is_for_the_card_of_the_recording() {
    let named = |gpu: &str, capacity: &str| {
        let key = format!("\"caught\":false,\"gpu\":\"{gpu}\",\"device_total\"");
        let command = next_of(&[
            ("\"caught\":false,\"device_total\"", &key),
            ("total capacity of 80.00 GiB", &format!("total capacity of {capacity} GiB")),
        ]);
        command.split_once(" -- ").unwrap().0.to_owned()
    };
    let rtx3060 = "NVIDIA GeForce RTX 3060";
    assert_eq!(named(rtx3060, "11.63"), "plimsoll fit --gpu rtx3060-12g");
    // `predict --memory 6GiB`.
    assert_eq!(named(rtx3060, "6.00"), "plimsoll fit --gpu rtx3060-12g --memory 6.00GiB");
    let slice = "NVIDIA A100-SXM4-80GB MIG 3g.40gb";
    assert_eq!(named(slice, "39.25"), "plimsoll fit --gpu a100-80g/3g.40gb");
    // A card of one's own, which the catalogue does not have.
    assert_eq!(named("Voodoo 2", "6.00"), "plimsoll fit --budget 6.00GiB");
}
