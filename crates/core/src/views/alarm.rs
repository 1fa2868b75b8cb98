//! An alarm of a watched run: one sentence for people, one JSON object for programs.

use serde_json::{Value, json};

use crate::{
    codes::AlarmCode,
    plan::Drift,
    recording::{Alarm, AlarmNote, CodeLine},
    units::Bytes,
    views::explain_wire,
};

/// The version of the JSON.
const VERSION: u32 = 1;

/// Whose alarm it is.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// The process.
    pub pid: u32,
    /// Its rank in a distributed job.
    pub rank: Option<u32>,
    /// What the run is called.
    pub label: &'a str,
}

/// What was found out when an alarm was raised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The line that keeps what grows.
    pub line: Option<CodeLine>,
    /// Who else holds most of the device.
    pub neighbour: Option<Neighbour>,
}

/// Another process on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Its number, as the driver tells it.
    pub pid: u32,
    /// The program, with its script if it is Python's; none where the system does not show the process.
    pub name: Option<String>,
    /// Whose it is.
    pub user: Option<String>,
    /// What it holds on the device.
    pub held: Bytes,
}

impl Neighbour {
    fn named(&self) -> String {
        let Self { pid, name, user, .. } = self;
        let of = user.as_ref().map_or_else(String::new, |it| format!(" of {it}"));
        match name {
            Some(name) => format!("{name}{of} (process {pid})"),
            None => format!("process {pid}{of}"),
        }
    }
}

/// What is wrong, since when and how long that goes well.
pub fn sentence(note: &AlarmNote, found: &Found) -> String {
    let step = note.step;
    match &note.what {
        Alarm::Growth { per_step, grown, since, runs_out_at, .. } => {
            let place = found.line.as_ref().map_or_else(
                || " (line unknown)".to_owned(),
                |it| format!(" at {}:{}", it.file, it.line),
            );
            format!(
                "step {step}: memory grows by {per_step} a step{place}: {grown} since step {since}; it runs out near step {runs_out_at}"
            )
        }
        Alarm::OverPlan { expected, reserved } => format!(
            "step {step}: PyTorch reserved {reserved}, more than the {expected} expected of this run"
        ),
        Alarm::Drift { per_step, needed, since, runs_out_at } => format!(
            "step {step}: the peak of each step rises: {needed}, +{per_step} a step since step {since}; memory runs out near step {runs_out_at}"
        ),
        Alarm::Neighbour { taken, free, .. } => {
            let most = found
                .neighbour
                .as_ref()
                .map_or_else(String::new, |it| format!("; {} holds most, {}", it.named(), it.held));
            format!(
                "step {step}: other processes took {taken} of the device since this run began; {free} are free{most}"
            )
        }
        Alarm::Fragmentation { useless, retries } => {
            let times = match retries {
                0 => String::new(),
                n => format!(", and PyTorch gave memory back and allocated it again {n} times"),
            };
            format!(
                "step {step}: fragmentation: {useless} of PyTorch's reserved memory are free, in pieces too small to use{times}; set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            )
        }
    }
}

/// The alarm of a first step that took something else than its plan's, at `time` in seconds since 1970.
pub fn of_first_step(drift: &Drift, time: f64, whose: Whose<'_>) -> Value {
    let mut res = empty(AlarmCode::Drift, &drift.sentence("the first step"), whose);
    res["step"] = 1.into();
    res["time"] = time.into();
    res["expected_bytes"] = drift.predicted.0.into();
    res["reserved_bytes"] = drift.reserved.0.into();
    res
}

/// The same for programs. Sizes are bytes; what an alarm of this code does not have is null.
pub fn json(note: &AlarmNote, found: &Found, whose: Whose<'_>) -> Value {
    let mut res = empty(note.what.code(), &sentence(note, found), whose);
    res["step"] = note.step.into();
    res["device"] = note.device.into();
    res["time"] = note.at.into();
    res["room_bytes"] = note.room.0.into();
    res["at"] = explain_wire::line(found.line.as_ref());
    if let Some(it) = &found.neighbour {
        let Neighbour { pid, name, user, held } = it;
        res["neighbour"] = json!({ "pid": pid, "name": name, "user": user, "held_bytes": held.0 });
    }
    let numbers: Vec<(&str, u64)> = match &note.what {
        Alarm::Growth { per_step, grown, since, runs_out_at, .. } => vec![
            ("bytes_per_step", per_step.0),
            ("grown_bytes", grown.0),
            ("since_step", *since),
            ("runs_out_at_step", *runs_out_at),
        ],
        Alarm::Drift { per_step, needed, since, runs_out_at } => vec![
            ("bytes_per_step", per_step.0),
            ("needed_bytes", needed.0),
            ("since_step", *since),
            ("runs_out_at_step", *runs_out_at),
        ],
        Alarm::OverPlan { expected, reserved } => {
            vec![("expected_bytes", expected.0), ("reserved_bytes", reserved.0)]
        }
        Alarm::Neighbour { taken, free, .. } => {
            vec![("taken_bytes", taken.0), ("free_bytes", free.0)]
        }
        Alarm::Fragmentation { useless, retries } => {
            vec![("useless_bytes", useless.0), ("retries", *retries)]
        }
    };
    for (key, value) in numbers {
        res[key] = value.into();
    }
    res
}

/// With nothing but its words.
fn empty(code: AlarmCode, text: &str, whose: Whose<'_>) -> Value {
    json!({
        "version": VERSION,
        "code": code.word(),
        "text": text,
        "step": null,
        "label": whose.label,
        "pid": whose.pid,
        "rank": whose.rank,
        "device": null,
        "time": null,
        "room_bytes": null,
        "bytes_per_step": null,
        "grown_bytes": null,
        "since_step": null,
        "runs_out_at_step": null,
        "at": null,
        "expected_bytes": null,
        "reserved_bytes": null,
        "needed_bytes": null,
        "taken_bytes": null,
        "free_bytes": null,
        "neighbour": null,
        "useless_bytes": null,
        "retries": null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{ProcessFiles, read_process};

    fn of(line: &str) -> AlarmNote {
        let files =
            ProcessFiles { pid: 7, notes: line.as_bytes(), snapshot: None, phantom_log: None };
        let reading = read_process(files);
        assert!(reading.warnings.is_empty(), "{:?}", reading.warnings);
        reading.recording.notes.alarms[0].clone()
    }

    #[test]
    fn each_alarm_is_one_sentence_with_its_numbers() {
        let growth = of(
            r#"{"kind":"alarm","code":"watch/growth","step":900,"device":0,"room":1000000,"unix":1.5,"per_step":65536,"grown":58720256,"since":3,"runs_out_at":5000,"look":null}"#,
        );
        let line = CodeLine { file: "train.py".to_owned(), line: 31, ..CodeLine::default() };
        let none = Found::default();
        let seen = Found { line: Some(line), ..Found::default() };
        let texts = [
            sentence(&growth, &seen),
            sentence(&growth, &none),
            sentence(
                &of(
                    r#"{"kind":"alarm","code":"watch/over-plan","step":4,"expected":1073741824,"reserved":2147483648}"#,
                ),
                &none,
            ),
            sentence(
                &of(
                    r#"{"kind":"alarm","code":"watch/drift","step":400,"per_step":1048576,"needed":1073741824,"since":3,"runs_out_at":500}"#,
                ),
                &none,
            ),
            sentence(
                &of(
                    r#"{"kind":"alarm","code":"watch/neighbour","step":4,"taken":1073741824,"free":2097152}"#,
                ),
                &none,
            ),
            sentence(
                &of(
                    r#"{"kind":"alarm","code":"watch/fragmentation","step":4,"useless":1073741824,"retries":2}"#,
                ),
                &none,
            ),
        ];
        let expected = [
            "step 900: memory grows by 64.0 KiB a step at train.py:31: 56.0 MiB since step 3; it runs out near step 5000",
            "step 900: memory grows by 64.0 KiB a step (line unknown): 56.0 MiB since step 3; it runs out near step 5000",
            "step 4: PyTorch reserved 2.00 GiB, more than the 1.00 GiB expected of this run",
            "step 400: the peak of each step rises: 1.00 GiB, +1.0 MiB a step since step 3; memory runs out near step 500",
            "step 4: other processes took 1.00 GiB of the device since this run began; 2.0 MiB are free",
            "step 4: fragmentation: 1.00 GiB of PyTorch's reserved memory are free, in pieces too small to use, and PyTorch gave memory back and allocated it again 2 times; set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ];
        assert_eq!(texts, expected.map(str::to_owned));
        let whose = Whose { pid: 7, rank: Some(1), label: "night" };
        let json = json(&growth, &seen, whose);
        assert_eq!(json["at"]["line"], 31);
        assert_eq!(json["bytes_per_step"], 65536);
        assert_eq!(Bytes(json["room_bytes"].as_u64().unwrap()), growth.room);
    }

    #[test]
    fn who_holds_most_of_the_device_is_said_as_far_as_the_system_shows_it() {
        let note = of(
            r#"{"kind":"alarm","code":"watch/neighbour","step":4,"taken":1073741824,"free":2097152,"uuid":"GPU-1"}"#,
        );
        let hidden = Neighbour { pid: 4711, name: None, user: None, held: Bytes(1 << 30) };
        let shown = Neighbour {
            name: Some("python serve.py".to_owned()),
            user: Some("ann".to_owned()),
            ..hidden.clone()
        };
        let told = [shown, hidden].map(|neighbour| {
            let found = Found { neighbour: Some(neighbour), ..Found::default() };
            let json = json(&note, &found, Whose { pid: 7, rank: None, label: "night" });
            assert_eq!(json["neighbour"]["held_bytes"], 1 << 30);
            json["text"].as_str().unwrap().to_owned()
        });
        let took = "step 4: other processes took 1.00 GiB of the device since this run began; 2.0 MiB are free; ";
        assert_eq!(
            told,
            [
                format!("{took}python serve.py of ann (process 4711) holds most, 1.00 GiB"),
                format!("{took}process 4711 holds most, 1.00 GiB"),
            ]
        );
    }

    #[test]
    fn an_alarm_of_a_later_agent_is_passed_over() {
        let line = br#"{"kind":"alarm","code":"watch/moon","step":4}"#;
        let files = ProcessFiles { pid: 7, notes: line, snapshot: None, phantom_log: None };
        let reading = read_process(files);
        assert!(reading.recording.notes.alarms.is_empty() && reading.warnings.is_empty());
    }
}
