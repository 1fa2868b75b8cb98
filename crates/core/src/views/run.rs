//! What came of `plimsoll run`, for programs.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    plan::{Drift, Plan},
    prediction::{Prediction, ScriptExit},
    recording::{Recording, Redone, RedoneNote, RedoneWay, Spread},
    views::explain_wire::phase,
};

/// The version of the JSON.
const VERSION: u32 = 1;

/// One JSON object. `files` are the recordings that were kept.
pub fn json(
    seen: &Prediction,
    recordings: &[Recording],
    plan: &Plan,
    drift: Option<&Drift>,
    files: &[PathBuf],
) -> String {
    let spread = |it: Spread| json!({"count": it.count, "median": it.median, "low": it.low, "high": it.high});
    let processes = recordings.iter().filter(|it| !it.notes.stats.is_empty()).map(|recording| {
        let begin = recording.notes.begin.clone().unwrap_or_default();
        let times = recording.notes.step_times;
        let devices = recording.notes.stats.iter().map(|stat| {
            json!({
                "device": stat.device,
                "peak_allocated_bytes": stat.peak_allocated.0,
                "peak_reserved_bytes": stat.peak_reserved.0,
                "retries": stat.retries,
                "ooms": stat.ooms,
            })
        });
        json!({
            "pid": recording.pid,
            "rank": begin.rank,
            "torch": begin.torch,
            "steps": recording.notes.end.as_ref().map(|it| it.steps),
            "out_of_memory": recording.ended_out_of_memory(),
            "redone": recording.notes.redone.iter().map(redone).collect::<Vec<_>>(),
            "devices": devices.collect::<Vec<_>>(),
            "step_seconds": times.and_then(|it| it.device).map(spread),
            "step_seconds_host": times.map(|it| spread(it.host)),
        })
    });
    let (exit_code, signal) = match seen.exit {
        ScriptExit::Code(code) => (Some(code), None),
        ScriptExit::Signal(number) => (None, Some(number)),
    };
    let remedies: Vec<String> = plan.remedies.iter().map(crate::plan::Remedy::shown).collect();
    let report = json!({
        "version": VERSION,
        "exit_code": exit_code,
        "signal": signal,
        "seconds": seen.seconds,
        "out_of_memory": recordings.iter().any(Recording::ended_out_of_memory),
        "plan": remedies,
        "drift": drift.map(|drift| json!({
            "predicted_reserved_bytes": drift.predicted.0,
            "reserved_bytes": drift.reserved.0,
            "causes": drift.causes,
        })),
        "recordings": files.iter().map(|it| it.display().to_string()).collect::<Vec<_>>(),
        "processes": processes.collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

/// A part of a step that ran out of memory: how it was done again, or why it was not.
fn redone(it: &RedoneNote) -> serde_json::Value {
    let (way, parts, seconds, refused) = match &it.how {
        Redone::As(way, seconds) => {
            let (word, parts) = match way {
                RedoneWay::Again => ("again", None),
                RedoneWay::OnHost => ("host", None),
                RedoneWay::Parts(n) => ("parts", Some(n)),
                RedoneWay::WithRoom => ("room", None),
                RedoneWay::InChunks => ("chunks", None),
            };
            (Some(word), parts, Some(seconds), None)
        }
        Redone::Refused(why) => (None, None, None, Some(why)),
    };
    json!({
        "step": it.step + 1,
        "phase": it.phase.map(phase),
        "file": it.user_frame.as_ref().map(|it| &it.file),
        "line": it.user_frame.as_ref().map(|it| it.line),
        "way": way,
        "parts": parts,
        "seconds": seconds,
        "refused": refused,
    })
}
