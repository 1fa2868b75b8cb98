//! OOM messages that were written down, with what each of them says, before the parser had seen them.

use plimsoll_core::{failures::Failure, sources::oom_text, units::Bytes};
use serde_json::Value;

const MESSAGES: &str = include_str!("../../../../fixtures/oom-messages-unseen.jsonl");

#[test]
fn each_is_told_as_it_was_written_down() {
    let (mut n, mut unlike) = (0, Vec::new());
    for line in MESSAGES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        n += 1;
        let wrong = differences(&case);
        if !wrong.is_empty() {
            let id = case["id"].as_str().unwrap();
            unlike.push(format!("{id} {}: {}", case["source"], wrong.join("; ")));
        }
    }
    let right = n - unlike.len();
    assert!(unlike.is_empty(), "{right} of {n} as written down; not:\n{}", unlike.join("\n"));
}

/// What is told and not expected, or the other way round.
fn differences(case: &Value) -> Vec<String> {
    let expected = case["expect"].as_array().unwrap();
    let found = oom_text::read(case["message"].as_str().unwrap());
    if expected.is_empty() {
        // A line that is told as no failure is as good as one that is not told.
        let wrong = found.iter().filter(|it| it.kind.is_oom());
        return wrong.map(|it| format!("called {}: {}", it.kind.word(), it.text)).collect();
    }
    if expected.len() != found.len() {
        let told: Vec<&str> = found.iter().map(|it| it.text.as_str()).collect();
        return vec![format!("{} failures instead of {}: {told:?}", found.len(), expected.len())];
    }
    expected.iter().zip(&found).flat_map(|(expected, found)| compare(expected, found)).collect()
}

fn compare(expected: &Value, found: &Failure) -> Vec<String> {
    let mut res = Vec::new();
    let mut word = |key: &str, is: &str| {
        let expected = &expected[key];
        if !expected.is_null() && expected != is {
            res.push(format!("{key} is {is}, not {expected}"));
        }
    };
    word("kind", found.kind.word());
    word("backend", found.backend.word());
    word("cause", found.verdict().cause.word());
    let frame = found.user_frame.as_ref().map_or("none".to_owned(), |it| {
        format!("{}:{}", it.file.rsplit(['/', '\\']).next().unwrap(), it.line)
    });
    word("frame", &frame);
    word("progress", found.progress.as_deref().unwrap_or("none"));
    for (key, is) in [("device", found.device), ("rank", found.rank)] {
        if expected[key].as_u64() != is.map(u64::from) && !expected[key].is_null() {
            res.push(format!("{key} is {is:?}, not {}", expected[key]));
        }
    }
    for (key, is) in [
        ("requested", found.requested),
        ("capacity", found.capacity),
        ("free", found.free),
        ("allocated", found.allocated),
        ("reserved", found.reserved),
        ("slack", found.slack),
        ("process", found.process),
        ("private", found.private_pools),
        ("limit", found.limit),
    ] {
        if let Some(text) = expected[key].as_str() {
            let size = size(text);
            if is.is_none_or(|it| size.0 / 100_000 < it.0.abs_diff(size.0)) {
                res.push(format!("{key} is {is:?}, not {text}"));
            }
        }
    }
    for pid in expected["pids"].as_array().into_iter().flatten() {
        if !found.processes.iter().any(|(it, _)| Some(u64::from(*it)) == pid.as_u64()) {
            res.push(format!("process {pid} is missing"));
        }
    }
    res
}

/// `14.75 GiB`, exact to the byte that two decimals can say.
fn size(text: &str) -> Bytes {
    let (number, unit) = text.split_once(' ').unwrap();
    let shift = ["bytes", "KiB", "MiB", "GiB"].iter().position(|it| *it == unit).unwrap() * 10;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_u64.pow(u32::try_from(part.len()).unwrap());
    let digits: u64 = format!("{whole}{part}").parse().unwrap();
    Bytes((digits << shift) / scale)
}
