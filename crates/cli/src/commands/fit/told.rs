//! What a trial tells, in the words of a search.

use std::collections::{BTreeMap, BTreeSet};

use crate::trials::Trial;
use plimsoll_core::{
    plan::{
        Places,
        search::{Noted, Ran, Steps, Took},
    },
    recording::{MarkKind, Notes, Phase, Place, Recording, Refused, Role, SiteKind, Sites},
    units::Bytes,
};

/// What came of a run that took so many seconds, and what it recorded.
pub(super) fn ran(trial: Trial, seconds: f64) -> (Ran, Vec<Recording>) {
    let noted = noted(&trial);
    let marks = trial.recordings.iter().flat_map(|it| &it.notes.marks);
    let evaluates = marks.filter(|it| it.kind == MarkKind::Begin(Phase::Evaluation)).count() != 0;
    let mut ends = trial.recordings.iter().filter_map(|it| it.notes.end.as_ref());
    let failed_later = ends.find_map(|it| it.failed_later.as_ref());
    let failed_later =
        failed_later.map(|it| format!("after its training steps the script raised {it}"));
    let refused: Vec<&Refused> =
        trial.recordings.iter().flat_map(|it| &it.notes.plan.refused).collect();
    let why = refused.first().map(|it| format!("{} does not suit {}", it.id, it.why));
    let refused = refused.iter().map(|it| it.id.clone()).collect();
    let ran = Ran {
        outcome: trial.prediction.outcome,
        took: Took::of(trial.prediction),
        failure: trial.failure.map(|it| why.unwrap_or(it)),
        refused,
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

fn noted(trial: &Trial) -> Noted {
    let survey = trial.noted(|it| it.survey.as_ref());
    let places = survey.map(|it| places(it.sites.clone()));
    Noted {
        idle: survey.and_then(|it| it.idle.clone()),
        compiles: trial.compiles(),
        compiled_anew: trial.noted(|it| it.found_compiled) == Some(0),
        trains_nothing: survey.is_some_and(|it| it.trains_nothing),
        is_distributed: places.as_ref().is_some_and(|it| it.sites.has(SiteKind::Distributed)),
        places,
        batches_change: trial.recordings.first().is_some_and(|it| batches_change(&it.notes)),
        batches: batches(trial),
        n_blocks: trial.noted(|it| it.blocks.as_ref()).and_then(|it| u64::try_from(it.len()).ok()),
        split: trial.noted(|it| it.split),
        exact: trial.noted(|it| it.exact),
        work: trial.noted(|it| it.work.clone()).unwrap_or_default(),
        readings: trial.noted(|it| it.block_memory.clone()).unwrap_or_default(),
        block_work: trial.noted(|it| it.block_work.clone()).unwrap_or_default(),
    }
}

/// With the files that hold them.
fn places(sites: Sites) -> Places {
    let read = |it: &str| Some((it.to_owned(), std::fs::read_to_string(it).ok()?));
    Places { sources: sites.files().filter_map(read).collect(), sites }
}

/// What was done to the batches (`--worst-seq`, `--worst-size`), a sentence each.
fn batches(trial: &Trial) -> Vec<String> {
    let all = trial.recordings.iter().flat_map(|it| &it.notes.plan.batches);
    let mut res: Vec<String> = all.cloned().collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::recording::{Mark, NamedTensor, Tensors};

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
}
