//! What a trial tells, in the words of a search.

use std::path::Path;

use plimsoll_core::{
    prediction::{Outcome, Verdict},
    printable::one_line,
    recording::{MarkKind, Phase, Recording, Refused, SiteKind, Sites},
};
use plimsoll_fit::{
    change::Places,
    search::{Noted, Ran, Steps, Took},
    trials::Trial,
};

use super::workshop::Read;
use crate::files::bounded_file;

/// What came of a run that took so many seconds, and what it recorded.
pub(super) fn ran(trial: Trial<Read>, seconds: f64) -> (Ran, Vec<Recording>) {
    let Trial { n_ooms, read, .. } = trial;
    let noted = noted(&read);
    let marks = read.recordings.iter().flat_map(|it| &it.notes.marks);
    let evaluates = marks.filter(|it| it.kind == MarkKind::Begin(Phase::Evaluation)).count() != 0;
    let mut ends = read.recordings.iter().filter_map(|it| it.notes.end.as_ref());
    let failed_later = ends.find_map(|it| it.failed_later.as_ref());
    let failed_later =
        failed_later.map(|it| format!("after its training steps the script raised {it}"));
    let refused: Vec<&Refused> =
        read.recordings.iter().flat_map(|it| &it.notes.plan.refused).collect();
    let why = refused.first().map(|it| format!("{} does not suit {}", it.id, it.why));
    let refused = refused.iter().map(|it| it.id.clone()).collect();
    let is_sure = read.prediction.verdict() != Verdict::Depends;
    let ran = Ran {
        outcome: if is_sure { read.prediction.outcome } else { Outcome::OutOfMemory },
        took: Took { by_hand: read.by_hand, ..Took::of(read.prediction) },
        failure: read.failure.map(|it| why.unwrap_or(it)),
        refused,
        n_ooms,
        interrupted: read.interrupted.is_some(),
        was_cut: read.was_cut,
        n_retries: read.n_retries,
        ends: read.ends,
        is_part: read.is_part,
        evaluates,
        failed_later,
        noted,
        seconds,
    };
    (ran, read.recordings)
}

/// What came of measuring.
pub(super) fn steps(read: &Read) -> Steps {
    let times = read.recordings.iter().filter_map(|it| it.notes.step_times);
    Steps {
        each: times.map(|it| it.device.unwrap_or(it.host)).collect(),
        failure: read.failure.clone(),
        interrupted: read.interrupted.is_some(),
    }
}

fn noted(read: &Read) -> Noted {
    let survey = read.noted(|it| it.survey.as_ref());
    let places = survey.map(|it| places(it.sites.clone()));
    Noted {
        idle: survey.and_then(|it| it.idle.clone()),
        compiles: read.compiles(),
        compiled_anew: read.noted(|it| it.found_compiled) == Some(0),
        trains_nothing: survey.is_some_and(|it| it.trains_nothing),
        is_distributed: places.as_ref().is_some_and(|it| it.sites.has(SiteKind::Distributed)),
        places,
        sizes_differ: read.recordings.iter().any(|it| it.notes.plan.sizes_differ),
        sizes_are_drawn: read.recordings.iter().any(|it| it.notes.plan.sizes_are_drawn),
        batches: batches(read),
        n_blocks: read.noted(|it| it.blocks.as_ref()).and_then(|it| u64::try_from(it.len()).ok()),
        split: read.noted(|it| it.split),
        exact: read.noted(|it| it.exact),
        work: read.noted(|it| it.work.clone()).unwrap_or_default(),
        readings: read.noted(|it| it.block_memory.clone()).unwrap_or_default(),
        block_work: read.noted(|it| it.block_work.clone()).unwrap_or_default(),
    }
}

/// With the files that hold them.
fn places(sites: Sites) -> Places {
    let read = |path: &str| {
        let text = bounded_file::text(Path::new(path), bounded_file::SOURCE);
        Some((path.to_owned(), text.ok()?))
    };
    // A name that ends a line cannot stand in a diff.
    let files = sites.files().filter(|it| one_line(it) == *it);
    Places { sources: files.filter_map(read).collect(), sites }
}

/// What was done to the batches (`--worst-seq`, `--worst-size`), a sentence each.
fn batches(read: &Read) -> Vec<String> {
    let all = read.recordings.iter().flat_map(|it| &it.notes.plan.batches);
    let mut res: Vec<String> = all.cloned().collect();
    res.dedup();
    res
}
