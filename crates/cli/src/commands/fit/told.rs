//! What a trial tells, in the words of a search.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use plimsoll_core::{
    plan::{
        Places, Sites, Work,
        blocks::{At, Reading},
        search::{Noted, Ran, Split, Steps, Took},
    },
    recording::{MarkKind, Notes, Phase, Place, Recording, Role, contract::NoteKind},
    units::Bytes,
};
use serde_json::Value;

use crate::{bounded_file, trials::Trial};

/// What came of a run that took so many seconds, and what it recorded.
pub(super) fn ran(trial: Trial, seconds: f64) -> (Ran, Vec<Recording>) {
    let noted = noted(&trial);
    let marks = trial.recordings.iter().flat_map(|it| &it.notes.marks);
    let evaluates = marks.filter(|it| it.kind == MarkKind::Begin(Phase::Evaluation)).count() != 0;
    let mut remarks = trial.recordings.iter().flat_map(|it| &it.notes.remarks);
    let failed_later = remarks.find(|it| it.code == "failed-later").map(|it| it.text.clone());
    let refused = refused(&trial.notes);
    let why = refused.first().map(|(id, whom)| format!("{id} does not suit {whom}"));
    let ran = Ran {
        outcome: trial.prediction.outcome,
        took: Took::of(trial.prediction),
        failure: trial.failure.map(|it| why.unwrap_or(it)),
        refused: refused.into_iter().map(|it| it.0).collect(),
        n_ooms: trial.n_ooms,
        interrupted: trial.interrupted.is_some(),
        was_cut: trial.was_cut,
        n_retries: trial.n_retries,
        ends: trial.ends,
        evaluates,
        failed_later,
        noted,
        seconds,
    };
    (ran, trial.recordings)
}

/// What came of measuring.
pub(super) fn steps(trial: &Trial) -> Steps {
    let times = trial.recordings.iter().filter_map(|it| it.notes.step_times);
    Steps {
        each: times.map(|it| it.device.unwrap_or(it.host)).collect(),
        failure: trial.failure.clone(),
        interrupted: trial.interrupted.is_some(),
    }
}

/// The remedies that a run ended of, because they do not suit the program; each with what of it, and why.
fn refused(notes: &[Value]) -> Vec<(String, String)> {
    let text = |it: &Value, key: &str| it[key].as_str().map(str::to_owned);
    let lines = notes.iter().filter(|it| it["kind"] == NoteKind::Refused.word());
    lines.filter_map(|it| Some((text(it, "id")?, text(it, "why")?))).collect()
}

fn noted(trial: &Trial) -> Noted {
    let sites = trial.noted(NoteKind::Sites);
    let places = sites.and_then(Sites::read).map(places);
    let idle = sites.and_then(|it| it["idle"].as_object());
    let idle = idle.map(|it| {
        it.iter().map(|(id, why)| (id.clone(), why.as_str().map(str::to_owned))).collect()
    });
    let names = trial.noted(NoteKind::Blocks).and_then(|it| it["names"].as_array());
    let split = trial.noted(NoteKind::Split);
    let work = trial.noted(NoteKind::Work);
    let memory = trial.noted(NoteKind::BlockMemory);
    let block_work = trial.noted(NoteKind::BlockWork);
    Noted {
        idle,
        compiles: trial.compiles(),
        compiled_anew: trial.noted(NoteKind::Compiled).is_some_and(|it| it["found"] == 0),
        trains_nothing: sites.is_some_and(|it| it["trains"] == false),
        is_distributed: places.as_ref().is_some_and(|it| it.sites.has("distributed")),
        places,
        batches_change: trial.recordings.first().is_some_and(|it| batches_change(&it.notes)),
        batches: batches(trial),
        n_blocks: names.and_then(|it| u64::try_from(it.len()).ok()),
        split: split
            .map(|it| Split { exact: it["exact"] == true, samples: it["samples"].as_u64() }),
        exact: trial.noted(NoteKind::Exact).map(|it| it["exact"] == true),
        work: work.map(|it| operations(&it["ops"])).unwrap_or_default(),
        readings: memory.map(|it| each(&it["readings"], reading)).unwrap_or_default(),
        block_work: block_work
            .map(|it| each(&it["blocks"], |it| Some(operations(it))))
            .unwrap_or_default(),
    }
}

/// With the files that hold them.
fn places(sites: Sites) -> Places {
    let read = |it: &str| {
        let text = bounded_file::text(Path::new(it), bounded_file::SOURCE);
        Some((it.to_owned(), text.ok()?))
    };
    Places { sources: sites.files().filter_map(read).collect(), sites }
}

/// What was done to the batches (`--worst-seq`, `--worst-size`), a sentence each.
fn batches(trial: &Trial) -> Vec<String> {
    let remarks = trial.recordings.iter().flat_map(|it| &it.notes.remarks);
    let ours = remarks.filter(|it| matches!(it.code.as_str(), "worst-seq" | "worst-size"));
    let mut res: Vec<String> = ours.map(|it| it.text.clone()).collect();
    res.dedup();
    res
}

/// Whether most steps are given a number of bytes that no other one is given. Of few sizes none is new for long: those of two models in turns,
/// or of the last batch of each epoch.
fn batches_change(notes: &Notes) -> bool {
    let allocs = |it: &Place, device: usize| it.allocs.get(device).copied().unwrap_or_default();
    let ends: Vec<&Place> =
        notes.marks.iter().filter(|it| it.kind == MarkKind::StepEnd).map(|it| &it.place).collect();
    let mut given: BTreeMap<usize, Bytes> = BTreeMap::new();
    for it in &notes.tensors {
        let inputs: Bytes =
            it.entries.iter().filter(|it| it.role == Role::Input).map(|it| it.size).sum();
        let before = |end: &&Place| allocs(end, it.device) <= allocs(&it.place, it.device);
        let step = ends.partition_point(before);
        if inputs != Bytes::ZERO && step < ends.len() {
            *given.entry(step).or_default() += inputs;
        }
    }
    let sizes: BTreeSet<Bytes> = given.values().copied().collect();
    2 < given.len() && given.len() < 2 * sizes.len()
}

/// Counted operations, as the agent writes them.
fn operations(ops: &Value) -> Vec<Work> {
    each(ops, |it| {
        let number = |key: &str| it[key].as_f64();
        Some(Work {
            op: it["op"].as_str()?.to_owned(),
            dtype: it["dtype"].as_str()?.to_owned(),
            count: number("count")?,
            flops: number("flops")?,
            bytes: number("bytes")?,
        })
    })
}

fn reading(it: &Value) -> Option<Reading> {
    let number = |i: usize| it[i].as_u64();
    let block = usize::try_from(number(1)?).ok()?;
    let at = match it[0].as_str()? {
        "enter" => At::Enter(block),
        "leave" => At::Leave(block),
        "back" => At::Back(block),
        _ => At::End,
    };
    Some(Reading { at, current: Bytes(number(2)?), peak: Bytes(number(3)?) })
}

fn each<T>(list: &Value, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    list.as_array().into_iter().flatten().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::recording::{Mark, NamedTensor, Tensors};
    use serde_json::json;

    use super::*;

    /// A recording of steps that are given so many bytes, and allocate as much.
    fn given(sizes: &[u64]) -> Notes {
        let mut notes = Notes::default();
        for (n, size) in sizes.iter().enumerate() {
            let allocs = 10 * n as u64;
            let input = NamedTensor {
                name: "x".to_owned(),
                role: Role::Input,
                address: 0,
                size: Bytes(*size),
                model: String::new(),
            };
            let place = |allocs: u64| Place { allocs: vec![allocs], frees: vec![allocs] };
            notes.tensors.push(Tensors { place: place(allocs), device: 0, entries: vec![input] });
            notes.marks.push(Mark {
                kind: MarkKind::StepEnd,
                step: 1,
                place: place(allocs + 10),
                reserved: Vec::new(),
                allocated: Vec::new(),
                seconds: 0.0,
                with_gradients: false,
                host: None,
                workers: None,
            });
        }
        notes
    }

    #[test]
    fn batches_change_where_most_steps_have_a_size_of_their_own() {
        assert!(batches_change(&given(&[512, 640, 528, 544, 640])));
        assert!(!batches_change(&given(&[512, 512, 512, 512, 96])), "the end of an epoch");
        assert!(!batches_change(&given(&[512, 64, 512, 64, 512, 64])), "two models in turns");
        assert!(!batches_change(&given(&[512, 640])), "nobody knows");
    }

    #[test]
    fn who_refuses_is_named() {
        let applied = json!({ "kind": "remedy", "id": "checkpoint" });
        let why = "MoCo: each call of it writes into its `queue`";
        let line = json!({ "kind": "refused", "id": "micro-batches", "why": why });
        let expected = ("micro-batches".to_owned(), why.to_owned());
        assert_eq!(refused(&[applied, line]), [expected]);
    }
}
