//! Which notes a run calls for.

use std::cmp::Reverse;

use crate::{
    cards::{Card, Knowledge},
    codes::RemarkCode,
    prediction::{
        Category, CategoryShare, DeviceRun, Note, Outcome, Peaks, RunFacts, ScriptExit, verdict,
    },
    recording::{AskedSize, CodeLine, EndReason, MarkKind, Phase, Recording, Remark},
    units::Bytes,
};

/// How many lines with unknown reads a note names.
const NAMED_READS: usize = 3;
/// Less than this is not worth a note, whatever its share.
const MUCH_UNKNOWN: Bytes = Bytes::mib(64);

/// All notes on a run, what decides the outcome first.
pub(super) fn notes(
    recordings: &[Recording],
    runs: &[DeviceRun<'_>],
    card: &Card,
    facts: &RunFacts,
    outcome: Outcome,
) -> Vec<Note> {
    let mut res = Vec::new();
    let all = || recordings.iter().map(|it| &it.notes);
    let interrupted =
        all().filter_map(|it| it.end.as_ref()).any(|it| it.why == EndReason::Interrupt);
    if outcome == Outcome::ScriptFailed {
        if let Some(it) = all().find_map(|it| it.unsupported.as_ref()) {
            res.push(Note::Unsupported(it.text.clone()));
        } else if interrupted {
            res.push(Note::Interrupted);
        } else if facts.exit != ScriptExit::Code(0) {
            let exception = all().find_map(|it| it.end.as_ref()?.exception.clone());
            res.push(Note::ScriptFailed { exit: facts.exit, exception });
        } else if verdict::never_trained(recordings) {
            let evaluations = runs.iter().map(evaluations).max().unwrap_or(0);
            let went_back = all()
                .flat_map(|it| &it.marks)
                .any(|it| it.kind == MarkKind::Begin(Phase::Backward));
            let before = runs.iter().map(|it| it.peaks(card).device).max();
            res.push(Note::NeverTrained { evaluations, went_back, before });
        } else if recordings.is_empty() {
            res.push(Note::NothingRecorded);
        } else {
            res.push(Note::NoGpuUse);
        }
    }
    if outcome == Outcome::OutOfMemory {
        res.extend(ran_out_beside(recordings, card));
    }
    res.extend(all().find_map(|it| it.cut.clone()).map(Note::Cut));
    if facts.waited_in_vain || all().any(|it| it.waited.is_some()) {
        res.push(Note::Waited);
    }
    if let Some(run) = runs.first() {
        let seen = verdict::seen(recordings, run);
        let steady = run.recording.notes.end.as_ref().is_some_and(|it| it.steady);
        match outcome {
            Outcome::Fits if seen.steps == 0 && verdict::skipped(recordings) => {
                res.push(Note::AllSkipped)
            }
            // Its memory does not follow from how many passes were seen.
            Outcome::Fits if serves(recordings) => {}
            Outcome::Fits if seen.steps == 0 => res.push(Note::NoSteps),
            Outcome::Fits => {
                res.extend(seen.missing().map(Note::NotSeen));
                res.push(Note::Steps { seen, steady });
            }
            Outcome::Grows | Outcome::OutOfMemory | Outcome::ScriptFailed => {}
        }
        if !run.timeline.marked && seen.steps != 0 {
            res.push(Note::NoPhases);
        }
        if run.replay.reserved_before != Bytes::ZERO {
            res.push(Note::RecordingIncomplete { before: run.replay.reserved_before });
        } else if run.replay.n_mismatches != 0 {
            res.push(Note::Mismatches(run.replay.n_mismatches));
        }
    }
    let n_caught: usize = recordings.iter().map(verdict::caught_ooms).sum();
    if n_caught != 0 {
        let at = all().find_map(|it| it.ooms.first()).and_then(|it| it.user_frame.clone());
        res.push(Note::OomCaught { count: n_caught, at });
    }
    let retries: u64 = all().flat_map(|it| &it.stats).map(|it| it.retries).sum();
    if retries != 0 && outcome == Outcome::Fits {
        res.push(Note::Retries(retries));
    }
    let mut pids: Vec<u32> = runs.iter().map(|it| it.recording.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    if 1 < pids.len() {
        res.push(Note::SeveralProcesses(pids.len()));
    }
    let bytes = runs.first().map_or(Bytes::ZERO, |it| it.together(recordings));
    if bytes != Bytes::ZERO {
        res.push(Note::Together { bytes });
    }
    // An engine always asks, and says itself what it makes of other cards.
    if let Some(AskedSize { call, at }) = asked_size(recordings).filter(|_| !serves(recordings)) {
        res.push(Note::AskedSize { call, at });
    }
    for it in recordings.iter().filter_map(|it| it.phantom.as_ref()) {
        if let (Some(variable), seen @ 1..) = (it.visible_devices.clone(), it.devices.len()) {
            let note = Note::VisibleDevices { variable, seen };
            if !res.contains(&note) {
                res.push(note);
            }
        }
    }
    res.extend(sizes_unknown(recordings));
    // What an engine reads back are the tokens that it draws: its memory is planned before the first.
    res.extend(unknown_reads(recordings).filter(|_| !serves(recordings)));
    for report in recordings.iter().filter_map(|it| it.phantom.as_ref()) {
        for it in &report.not_imitated {
            let known = res.iter_mut().find_map(|note| match note {
                Note::NotImitated { name, count, .. } if *name == it.name => Some(count),
                _ => None,
            });
            match known {
                Some(count) => *count += it.count,
                None => res.push(Note::NotImitated {
                    name: it.name.clone(),
                    answer: it.answer.clone(),
                    count: it.count,
                }),
            }
        }
        for it in &report.approximated {
            let note = Note::Approximated(it.what.clone());
            if !res.contains(&note) {
                res.push(note);
            }
        }
    }
    // What counts as a step is said with the steps.
    let counts =
        |it: &&Remark| matches!(it.code, RemarkCode::StepsByForward | RemarkCode::StepsByBackward);
    for it in all().flat_map(|it| &it.remarks).filter(|it| !counts(it)) {
        let note = Note::Remark(it.clone());
        if !res.contains(&note) {
            res.push(note);
        }
    }
    if let Some(run) = runs.first().filter(|_| card.provenance.context == Knowledge::Derived) {
        res.push(Note::ContextDerived { context: run.context(card), range: card.context_range });
    }
    res
}

/// Who asked how large the card is: the script, or a program that it ran.
pub(super) fn asked_size(recordings: &[Recording]) -> Option<AskedSize> {
    let of_script = recordings.iter().flat_map(|it| it.notes.asked_size.first()).next().cloned();
    let of_nvml = recordings.iter().filter_map(|it| it.phantom.as_ref()?.asked_size.clone());
    of_script.or_else(|| of_nvml.map(|call| AskedSize { call, at: None }).next())
}

/// Who else held something on the device on which a process ended for lack of memory.
fn ran_out_beside(recordings: &[Recording], card: &Card) -> Option<Note> {
    let ended = recordings.iter().filter(|it| it.ended_out_of_memory());
    let devices = ended.filter_map(|it| it.phantom.as_ref()).flat_map(|it| &it.devices);
    let mut holders = devices.map(|it| &it.ran_out_beside).find(|it| !it.is_empty())?.clone();
    holders.sort_by_key(|it| (Reverse(it.bytes), it.pid));
    Some(Note::RanOutBeside { holders, total: card.total })
}

/// How often a model was called without gradients.
fn evaluations(run: &DeviceRun<'_>) -> u64 {
    let marks = run.recording.notes.marks.iter();
    marks.filter(|it| it.kind == MarkKind::Begin(Phase::Evaluation)).count() as u64
}

fn unknown_reads(recordings: &[Recording]) -> Option<Note> {
    let reports = recordings.iter().filter_map(|it| it.phantom.as_ref());
    let in_reports: u64 = reports.map(|it| it.unknown_reads).sum();
    let reads = || recordings.iter().flat_map(|it| &it.notes.reads);
    let count = in_reports.max(reads().map(|it| it.count).sum());
    // Those of no line, in the backward pass for one, are only counted.
    let named = reads().filter(|it| it.at.line != 0);
    let mut lines: Vec<(CodeLine, u64)> = named.map(|it| (it.at.clone(), it.count)).collect();
    lines.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    lines.truncate(NAMED_READS);
    (count != 0).then_some(Note::UnknownReads { count, lines })
}

/// What decides sizes, and nobody computed it.
fn sizes_unknown(recordings: &[Recording]) -> Option<Note> {
    let reads = recordings.iter().flat_map(|it| &it.notes.reads);
    let mut lines: Vec<CodeLine> =
        reads.filter(|it| it.becomes_size && it.at.line != 0).map(|it| it.at.clone()).collect();
    lines.sort();
    lines.dedup();
    lines.truncate(NAMED_READS);
    let reports = recordings.iter().filter_map(|it| it.phantom.as_ref());
    let assumed = reports.flat_map(|it| &it.approximated).filter_map(|report| {
        let (finder, what) = report.what.split_once(" was assumed to find ")?;
        (!what.starts_with("no index")).then(|| finder.to_owned())
    });
    let mut finders: Vec<String> = assumed.collect();
    finders.sort();
    finders.dedup();
    (!lines.is_empty() || !finders.is_empty()).then_some(Note::SizesUnknown { lines, finders })
}

/// Notes that the breakdown itself calls for.
pub(super) fn about_categories(categories: &[CategoryShare], peak: Peaks) -> Option<Note> {
    let unknown = categories.iter().find(|it| it.category == Category::Unknown)?;
    let bytes = unknown.bytes;
    (MUCH_UNKNOWN <= bytes && 0.05 < bytes.share_of(peak.allocated))
        .then_some(Note::MuchUnknown { bytes })
}

/// Whether the script starts a serving engine.
fn serves(recordings: &[Recording]) -> bool {
    recordings.iter().any(|it| it.notes.engine.is_some())
}
