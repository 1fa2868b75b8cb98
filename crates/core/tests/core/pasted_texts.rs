//! Tables and logs as people paste them, with what each says, written down before the reader had seen them
//! (`fixtures/pasted/expected.json`; `bench/instruments/pasted.py` says what its keys mean).

use std::{fs, path::Path};

use plimsoll_core::{
    explanation,
    sources::{oom_text, printed_text},
    views::{explain_text, explain_wire, text::Styles},
};
use serde_json::Value;

#[test]
fn each_is_told_as_it_was_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pasted");
    let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let mut unlike = Vec::new();
    for (name, expected) in expected.as_object().unwrap() {
        let text = fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        let wrong = differences(&text, expected);
        if !wrong.is_empty() {
            unlike.push(format!("{name}: {}", wrong.join("; ")));
        }
    }
    assert!(unlike.is_empty(), "{}", unlike.join("\n"));
}

/// What people reported: how the report has to begin, what it has to have, and what it may never.
#[test]
fn each_report_begins_with_what_is_true() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/reported");
    let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let mut unlike = Vec::new();
    for (name, expected) in expected.as_object().unwrap() {
        let text = fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        let failures = oom_text::read(&text);
        let printed = printed_text::read(&text, &failures);
        let found = [explanation::of_text("log", failures, printed)];
        let report = explain_text::explanations(&found, None, Styles::default(), 80).to_string();
        let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = |key: &str| -> Vec<String> {
            let all = expected[key].as_array().unwrap().iter();
            all.map(|it| it.as_str().unwrap().to_owned()).collect()
        };
        let has = |it: &String| report.to_lowercase().contains(&it.to_lowercase());
        let first = expected["first"].as_str().unwrap();
        if !report.starts_with(first) {
            unlike.push(format!("{name}: begins {:?}", &report[..report.len().min(60)]));
        }
        unlike.extend(
            words("words").iter().filter(|it| !has(it)).map(|it| format!("{name}: no {it:?}")),
        );
        let never = words("never");
        let too_much = never.iter().filter(|it| report.contains(it.as_str()));
        unlike.extend(too_much.map(|it| format!("{name}: has {it:?}")));
    }
    assert!(unlike.is_empty(), "{}", unlike.join("\n"));
}

/// What ends in the middle of anything is read as far as it goes.
#[test]
fn no_end_is_a_surprise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pasted");
    let mut n = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(path).unwrap();
        for len in (0..text.len()).step_by(997).filter(|it| text.is_char_boundary(*it)) {
            let failures = oom_text::read(&text[..len]);
            let printed = printed_text::read(&text[..len], &failures);
            explanation::of_text("log", failures, printed);
            n += 1;
        }
    }
    assert!(60 < n, "{n}");
}

fn differences(text: &str, expected: &Value) -> Vec<String> {
    let failures = oom_text::read(text);
    let printed = printed_text::read(text, &failures);
    let found = [explanation::of_text("log", failures, printed)];
    let json: Value = serde_json::from_str(&explain_wire::explanations(&found, None)).unwrap();
    let report = explain_text::explanations(&found, None, Styles::default(), 80).to_string();
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let list = |it: &Value| it.as_array().cloned().unwrap_or_default();
    let word = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let mut res = Vec::new();
    let mut kinds: Vec<String> =
        list(&json["printed"]).iter().map(|it| word(&it["kind"])).collect();
    kinds.extend((!list(&json["ooms"]).is_empty()).then(|| "oom".to_owned()));
    kinds.sort();
    kinds.dedup();
    let mut wanted: Vec<String> = list(&expected["kinds"]).iter().map(word).collect();
    wanted.sort();
    if kinds != wanted {
        res.push(format!("is {kinds:?}, not {wanted:?}"));
    }
    for reading in list(&expected["readings"]) {
        if !list(&json["printed"]).iter().any(|it| is_like(it, &reading)) {
            res.push(format!("no reading with {reading}"));
        }
    }
    let said: Vec<String> = list(&json["says"]).iter().map(|it| word(&it["code"])).collect();
    let unsaid = list(&expected["says"]).into_iter().filter(|it| !said.contains(&word(it)));
    res.extend(unsaid.map(|it| format!("does not say {it}")));
    let cause = &json["cause"]["code"];
    if *cause != expected["cause"]
        && (!expected["cause"].is_null() || !wanted.contains(&"oom".to_owned()))
    {
        res.push(format!("the cause is {cause}"));
    }
    let (next, command) = (word(&expected["next"]), word(&json["next"]["command"]));
    let is_next = match next.strip_prefix("re:") {
        // What is between `.*` stands there, in this order.
        Some(pattern) => pattern
            .split(".*")
            .try_fold(0, |at, part| command[at..].find(part).map(|it| at + it + part.len()))
            .is_some(),
        None => next.is_empty() || next == command,
    };
    if !is_next {
        res.push(format!("next is {command}"));
    }
    let missing =
        list(&expected["words"]).into_iter().map(|it| word(&it)).filter(|it| !report.contains(it));
    res.extend(missing.map(|it| format!("the report has no {it:?}")));
    let too_much = list(&expected["never"]).into_iter().map(|it| word(&it));
    let too_much = too_much.filter(|it| report.contains(it) || said.contains(it));
    res.extend(too_much.map(|it| format!("has {it:?}")));
    res
}

/// Sizes may be off by what a text rounds.
fn is_like(found: &Value, wanted: &Value) -> bool {
    wanted.as_object().unwrap().iter().all(|(key, value)| {
        if key == "processes" {
            return found["processes"].as_array().map(Vec::len)
                == value.as_u64().map(|it| usize::try_from(it).unwrap());
        }
        match value.as_str().and_then(size) {
            Some(size) => found[format!("{key}_bytes")]
                .as_f64()
                .is_some_and(|it| (it - size).abs() <= (size * 1e-4).max(1.0)),
            None => found[key] == *value,
        }
    })
}

fn size(text: &str) -> Option<f64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)];
    let (unit, shift) = units.into_iter().find(|it| text.ends_with(it.0))?;
    let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(number * f64::from(1_u32 << shift))
}
