//! What happened, why, and what to change: the findings of a recording or the failures of a text, with
//! the verdict on the out-of-memory error if there was one.

pub(crate) mod at;
mod caught;
mod choice;
mod comparison;
mod diff;
pub(crate) mod held;
mod largest;
mod next;
mod oom;
mod proof;
mod ranks;
mod root_cause;
mod verdict;

pub use at::{At, NoSuchMoment, ParseAtError};
pub use caught::Caught;
pub use comparison::{Comparison, compare};
pub use diff::{Difference, NameRow, NoDifference, Row, Side, Total, difference};
pub use held::{NoSuchDevice, origin_words};
pub use next::Next;
pub use oom::{Oom, Shape};
pub use ranks::{RankFacts, RankLine, RankTable, rank_facts};
pub use root_cause::RootCause;

pub use crate::prediction::device_run::InOnePiece;

use std::sync::Arc;

use crate::{
    codes::{Family, ProblemCode, RemarkCode, StatementCode},
    failures::{self, Failure},
    findings::{self, Finding, Weight, Window},
    prediction::{Outcome, Runs, device_run::DeviceRun},
    printed::{self, Printed, PrintedText, Statement},
    recording::{CodeLine, OomNote, Recording},
    replay::{Ahead, Replay, TorchVersion},
    trace::{Action, EventId},
    units::Bytes,
};

/// What kind of input it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A memory snapshot.
    Snapshot,
    /// Our own recording.
    Recording,
    /// A log, or a message.
    Text,
    /// A profiler's trace: curves without blocks.
    ProfilerTrace,
}

/// What one input says.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What kind of input it was.
    pub kind: Kind,
    /// The file, or another word for the input.
    pub name: String,
    /// The rank, where it is known.
    pub rank: Option<u32>,
    /// The version of torch, where it is known.
    pub torch_version: Option<String>,
    /// Where it is not, the oldest that can have written the recording.
    pub torch_at_least: Option<TorchVersion>,
    /// What the recording covers; of the device with the highest peak.
    pub window: Option<Window>,
    /// Most allocated.
    pub peak_allocated: Option<Bytes>,
    /// Most reserved.
    pub peak_reserved: Option<Bytes>,
    /// Optimizer steps that were seen.
    pub steps: u32,
    /// Findings, what decides first: of a run that ended in an error, its cause.
    pub findings: Vec<Finding>,
    /// The out-of-memory errors, the one that ended the run first.
    pub ooms: Vec<Oom>,
    /// The out-of-memory errors of a recording that the program caught, if none ended it.
    pub caught: Option<Caught>,
    /// What NVIDIA's driver or a library wanted for itself, and did not find, where that ended the run.
    pub lacked: Bytes,
    /// Failures that are none: warnings, shared memory.
    pub others: Vec<Failure>,
    /// What a text has of memory beside errors.
    pub printed: Vec<Printed>,
    /// What that says, the most telling first.
    pub says: Vec<Statement>,
    /// The command that a text is of, as it would be typed.
    pub command: Option<String>,
    /// What to type next.
    pub next: Option<Next>,
    /// Each device that was used, to be compared with those of other ranks.
    pub devices: Vec<RankFacts>,
    /// What could not be read, or not be known.
    pub notes: Vec<String>,
    /// Why nothing can be said of the run as a whole, although something was read.
    pub unsure: Option<String>,
}

impl Explanation {
    fn new(kind: Kind, name: &str) -> Explanation {
        Explanation {
            kind,
            name: name.to_owned(),
            rank: None,
            torch_version: None,
            torch_at_least: None,
            window: None,
            peak_allocated: None,
            peak_reserved: None,
            steps: 0,
            findings: Vec::new(),
            ooms: Vec::new(),
            caught: None,
            lacked: Bytes::ZERO,
            others: Vec::new(),
            printed: Vec::new(),
            says: Vec::new(),
            command: None,
            next: None,
            devices: Vec::new(),
            notes: Vec::new(),
            unsure: None,
        }
    }

    /// What a reader warned of. A file that was not read to its end says nothing about the rest of the run.
    pub fn heed(&mut self, warnings: impl IntoIterator<Item = String>, is_damaged: bool) {
        self.notes.extend(warnings);
        if is_damaged {
            // What was not read may have been anything.
            self.unsure = Some(
                "the file is cut off or damaged; this report covers the part before the damage"
                    .to_owned(),
            );
        }
    }

    /// The one cause to begin with: of the error that ended the run, else the largest problem.
    pub fn root_cause(&self) -> Option<RootCause> {
        let wrong = || self.first_problem().map(RootCause::of_finding);
        self.ooms.first().map(|it| it.root.clone()).or_else(wrong)
    }

    /// What a report of a run without an error begins with.
    pub fn first_problem(&self) -> Option<&Finding> {
        self.findings.first().filter(|it| it.weight == Weight::Problem)
    }

    /// Whether an answer to what happened can be given: an error speaks for itself, an absence does not.
    pub fn is_sure(&self) -> bool {
        self.unsure.is_none() || !self.ooms.is_empty()
    }

    /// Whether anything of memory was in it at all.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
            && self.ooms.is_empty()
            && self.others.is_empty()
            && self.printed.is_empty()
            && self.peak_allocated.is_none()
    }
}

/// What the recording of one process says. `messages` are the failures that its texts tell of.
pub fn of_recording(name: &str, recording: &Recording, messages: &[Failure]) -> Explanation {
    Followed::of(recording).explanation(name, messages)
}

/// A recording that was followed, and not yet looked at.
pub struct Followed<'a> {
    recording: &'a Recording,
    runs: Vec<DeviceRun<'a>>,
}

impl<'a> Followed<'a> {
    /// Follows the recording of one process.
    pub fn of(recording: &'a Recording) -> Followed<'a> {
        Followed { recording, runs: DeviceRun::all(recording) }
    }

    /// The same; of one device, which has an index, what was followed ahead. `soon` gets what [`Followed::explanation`] is likely
    /// to ask for, and would replay itself: something for a second thread to do meanwhile.
    pub fn after(
        recording: &'a Recording,
        ahead: Option<(usize, Ahead)>,
        mut soon: impl FnMut(Arc<InOnePiece>),
    ) -> Followed<'a> {
        let mut begun = |replay: &Replay, oom: Option<EventId>, it: &Arc<InOnePiece>| {
            let (reserved, allocated) = (replay.peak_reserved.bytes, replay.peak_allocated.bytes);
            if oom.is_some() || findings::is_much_slack(reserved, allocated) {
                soon(Arc::clone(it));
            }
        };
        Followed { recording, runs: DeviceRun::all_after(recording, ahead, &mut begun) }
    }

    /// What it says; as [`of_recording`].
    pub fn explanation(&self, name: &str, messages: &[Failure]) -> Explanation {
        of_runs(name, self.recording, &self.runs, messages)
    }
}

/// The same of runs that were worked out already.
pub(crate) fn of_runs<'a, 'b: 'a>(
    name: &str,
    recording: &Recording,
    runs: impl IntoIterator<Item = &'a DeviceRun<'b>>,
    messages: &[Failure],
) -> Explanation {
    let is_ours = recording.notes.begin.is_some() || recording.phantom.is_some();
    let kind = if is_ours { Kind::Recording } else { Kind::Snapshot };
    let mut res = Explanation::new(kind, name);
    let begin = recording.notes.begin.as_ref();
    res.rank = begin.and_then(|it| it.rank);
    res.torch_version = begin.map(|it| it.torch.clone()).filter(|it| !it.is_empty());
    if res.torch_version.is_none() {
        let since = recording.trace.as_ref().and_then(|it| it.written_since);
        res.torch_at_least = since.map(TorchVersion::two);
    }
    res.lacked = recording.lacked();
    let sampled = recording.notes.remarks.iter().filter(|it| it.code == RemarkCode::SampledStacks);
    res.notes.extend(sampled.map(|it| it.text.clone()));
    for run in runs {
        let evidence = run.evidence();
        res.devices.push(ranks::of_run(name, res.rank, run, &evidence));
        let case = findings::case(run, &evidence);
        let found = findings::find(&case);
        if let Some(oom) = verdict::of_case(&case, &found, messages) {
            res.ooms.push(oom);
        }
        let reserved = run.replay.peak_reserved.bytes.max(case.reserved_at_peak);
        let held: Bytes = run.device.segments.iter().map(|it| it.size).sum();
        let is_first = res.peak_allocated.is_none_or(|it| it < case.peak.bytes);
        if is_first {
            res.window = Some(case.window);
            res.peak_allocated = Some(case.peak.bytes);
            res.peak_reserved = Some(reserved.max(held));
        }
        res.steps = res.steps.max(run.steps_seen());
        res.findings.extend(found);
        if run.replay.n_mismatches != 0 && !case.window.began_late && !case.window.overwritten {
            res.notes.push(format!(
                "{} events of the recording differ from plimsoll's model of the allocator; sizes may be off there",
                run.replay.n_mismatches
            ));
        }
        if !run.stacks.recorded && !run.replay.blocks.is_empty() {
            res.notes.push("the recording has no call stacks, so this report names no lines, phases or growth: record with context=\"all\"".to_owned());
        }
        let failed = run.device.events.actions().iter().filter(|it| **it == Action::Oom).count();
        if run.oom.is_none() && failed != 0 {
            let caught = Caught::of(&case, failed);
            res.caught = caught.into_iter().chain(res.caught.take()).max_by_key(|it| it.requested);
        }
    }
    findings::sort(&mut res.findings);
    if let Some(root) = res.ooms.first().map(|it| it.root.clone()) {
        res.findings.sort_by_key(|it| !root.is_of(it));
    }
    let argv = begin.map(|it| it.argv.as_slice()).unwrap_or_default();
    res.next = res.ooms.first().and_then(|it| {
        let is_its = |note: &&OomNote| it.facts.device.is_none_or(|of| of as usize == note.device);
        next::of_recording(it, argv, recording.notes.ooms.iter().rfind(is_its))
    });
    res.unsure = unsure(recording);
    res
}

/// What is wrong with the runs of a prediction, or could be had back, what decides first: where memory ran out, its cause, as in the explanation of the
/// recording. What is only good to know is left out.
pub fn findings_of(runs: &Runs<'_>, outcome: Outcome) -> Vec<Finding> {
    let (mut res, oom) = found_in(runs);
    // What no rule found is told all the same. How much its change gives back is not known. What grows is no matter of size.
    if let Some(Oom { root, edit, remedies, .. }) = oom
        && root.code.family() == Family::Size
        && outcome != Outcome::Grows
        && !res.iter().any(|it| root.is_of(it))
    {
        let remedy = edit.or_else(|| remedies.into_iter().next()).unwrap_or_default();
        // A rule may know how large it is, and not that memory runs out by it.
        let place = |at: &CodeLine| (at.file.clone(), at.line);
        let is_it = |it: &Finding| {
            it.code == root.code && it.at.as_ref().map(place) == root.at.as_ref().map(place)
        };
        let known = match res.iter().position(is_it) {
            Some(i) => res.remove(i),
            None => Finding::new(root.code, Weight::Problem, Bytes::ZERO, String::new()),
        };
        let (title, at) = (root.text, root.at);
        res.insert(0, Finding { weight: Weight::Problem, title, at, remedy, ..known });
    }
    res
}

/// What only an edit of the script removes, of the runs of a prediction: findings, and above them the cause of the error where memory ran out, if a
/// person has something to change for it.
pub fn edits_of(runs: &Runs<'_>) -> Vec<Finding> {
    let (mut res, oom) = found_in(runs);
    res.retain(|it| it.code.needs_an_edit());
    if let Some((root, edit)) = oom.and_then(|it| Some((it.root, it.edit?)))
        && !res.iter().any(|it| root.is_of(it))
    {
        let cause = Finding::new(root.code, Weight::Problem, root.bytes, root.text);
        res.insert(0, Finding { at: root.at, remedy: edit, ..cause });
    }
    res
}

/// The findings, and the error that ended the run.
fn found_in(runs: &Runs<'_>) -> (Vec<Finding>, Option<Oom>) {
    let (mut res, mut oom) = (Vec::new(), None);
    for run in &runs.runs {
        let evidence = run.evidence();
        let case = findings::case(run, &evidence);
        let found = findings::find(&case);
        oom = oom.or_else(|| verdict::of_case(&case, &found, &[]));
        res.extend(found.into_iter().filter(|it| it.weight != Weight::Fact));
    }
    findings::sort(&mut res);
    if let Some(oom) = &oom {
        res.sort_by_key(|it| !oom.root.is_of(it));
    }
    (res, oom)
}

/// Why a recording without a fault does not mean that there was none.
fn unsure(recording: &Recording) -> Option<String> {
    let devices = || recording.trace.iter().flat_map(|it| &it.devices);
    let count = |action: Action| -> usize {
        let events = devices().map(|it| it.events.actions());
        events.map(|it| it.iter().filter(|it| **it == action).count()).sum()
    };
    let held: usize = devices().map(|it| it.segments.len()).sum();
    let (allocs, frees) =
        (count(Action::Alloc), count(Action::FreeRequested) + count(Action::FreeCompleted));
    if allocs == 0 && frees != 0 && held == 0 {
        return Some(format!(
            "the recording has {frees} frees and no allocation, so the purpose of the memory is unknown. Record from the start: torch.cuda.memory._record_memory_history() before the model is built"
        ));
    }
    if allocs == 0 && frees == 0 && held != 0 {
        return Some("the recording has no events, only what was live in the end: it does not show how much that was at most, and whether memory ran out. Record the history, too: torch.cuda.memory._record_memory_history(enabled=\"all\")".to_owned());
    }
    (allocs == 0 && held == 0).then(|| "the recording has no allocation on a GPU: the recorder was off, or the program never used the GPU. Record from the start: torch.cuda.memory._record_memory_history() before the model is built".to_owned())
}

/// What a text says. `failures` are what was found in it, `text` what else it has of memory.
pub fn of_text(name: &str, failures: Vec<Failure>, text: PrintedText) -> Explanation {
    let mut res = Explanation::new(Kind::Text, name);
    for failure in failures {
        if failure.kind.is_oom() {
            res.ooms.push(Oom::of_failure(&failure));
        } else {
            res.others.push(failure);
        }
    }
    went_on(&mut res.ooms, &text.printed);
    // What ended the run first.
    res.ooms.sort_by_key(|it| it.facts.kind == failures::Kind::Caught);
    res.says = printed::statements(&text.printed);
    for oom in &mut res.ooms {
        grew(oom, &text, &res.says);
        over_time(oom, &text.printed);
    }
    res.command = next::command_of(&res.ooms, &text);
    res.next = next::of_text(&res.ooms, &text, &res.says);
    res.printed = text.printed;
    res
}

/// Of a card that was too small, levels that the program printed before may say that something grew.
fn grew(oom: &mut Oom, text: &PrintedText, says: &[Statement]) {
    let facts = &oom.facts;
    let is_its = |statement: &&Statement| {
        text.printed.get(statement.of).is_some_and(|of| {
            statement.code == StatementCode::LevelsGrow
                && !of.kind.is_of_device()
                && (&of.writer, of.rank) == (&facts.writer, facts.rank)
                && statement.line < facts.at
        })
    };
    // What kills without a word, where the host was nearly full, is the host's own.
    let is_full = |it: &Statement| it.code == StatementCode::HostNearlyFull && it.line < facts.at;
    if facts.backend == failures::Backend::Host
        && oom.cause == failures::Cause::Unknown
        && let Some(it) = says.iter().find(|it| is_full(it))
    {
        oom.cause = failures::Cause::Host;
        oom.why = format!("{}; then the process was killed", it.text);
        oom.root = RootCause {
            code: ProblemCode::Host,
            text: oom.why.clone(),
            is_sure: false,
            ..oom.root.clone()
        };
        return;
    }
    let Some(it) = says.iter().find(is_its).filter(|_| oom.cause == failures::Cause::Size) else {
        return;
    };
    let is_much = it.bytes.zip(facts.allocated).is_some_and(|(rise, all)| all.0 / 4 <= rise.0);
    if is_much {
        oom.cause = failures::Cause::Leak;
        oom.may_have_grown = false;
        oom.shape = Shape::OverTime;
        oom.why.clone_from(&it.text);
        oom.root = RootCause {
            code: ProblemCode::PerStep,
            bytes: it.bytes.unwrap_or_default(),
            text: it.text.clone(),
            is_sure: false,
            ..oom.root.clone()
        };
    }
}

/// What one program printed of its own memory: (line, level) of equal words, the device's counters left out.
fn levels_of(facts: &Failure, printed: &[Printed]) -> Vec<(usize, Bytes)> {
    let own = printed.iter().filter(|line| {
        !line.kind.is_of_device() && (&line.writer, line.rank) == (&facts.writer, facts.rank)
    });
    let levels = own.flat_map(|it| &it.levels);
    let label = levels.clone().next().map(|it| it.label.clone()).unwrap_or_default();
    let mut res: Vec<(usize, Bytes)> = levels
        .filter(|it| it.label == label)
        .filter_map(|it| Some((it.line, it.level()?)))
        .collect();
    res.sort_unstable();
    res
}

/// Errors after which the program printed its memory as before them: it caught them. Levels that are higher after them than before are
/// what it retains of the failed steps.
fn went_on(ooms: &mut [Oom], printed: &[Printed]) {
    let of_device = |it: &Oom| it.facts.backend != failures::Backend::Host;
    for n in 0..ooms.len() {
        let oom = &ooms[n];
        if oom.facts.kind != failures::Kind::OutOfMemory || !of_device(oom) {
            continue;
        }
        let levels = levels_of(&oom.facts, printed);
        let before = levels.iter().filter(|it| it.0 < oom.facts.began).count();
        let is_caught = 2 <= before && levels.last().is_some_and(|it| oom.facts.at < it.0);
        // The same line of the script runs out again under the same `except`, also at the end of the text.
        let is_again = ooms[..n].iter().any(|earlier| {
            let is_same = earlier.at.is_some()
                && earlier.at == oom.at
                && earlier.facts.rank == oom.facts.rank;
            is_same && earlier.facts.kind == failures::Kind::Caught && 2 <= before
        });
        if is_caught || is_again {
            let mut facts = ooms[n].facts.clone();
            facts.kind = failures::Kind::Caught;
            ooms[n] = Oom::of_failure(&facts);
        }
    }
    let Some(first) = ooms.iter().position(|it| it.facts.kind == failures::Kind::Caught) else {
        return;
    };
    let (began, n_caught) = (ooms[first].facts.began, ooms.len() - first);
    let levels = levels_of(&ooms[first].facts, printed);
    let before = levels.iter().rfind(|it| it.0 < began).map(|it| it.1);
    let after = levels.iter().rfind(|it| ooms[first].facts.at < it.0).map(|it| it.1);
    let Some((before, after)) = before.zip(after) else { return };
    let kept = after.saturating_sub(before);
    let is_much = ooms[first].facts.capacity.is_some_and(|it| it.0 / 4 <= kept.0);
    if !is_much {
        return;
    }
    let errors = if n_caught == 1 { "error".to_owned() } else { format!("{n_caught} errors") };
    let oom = &mut ooms[first];
    oom.cause = failures::Cause::Leak;
    oom.may_have_grown = false;
    oom.why = format!(
        "memory stays allocated after each caught error: {before} before the first and {after} after the {errors}. Whoever keeps the exception keeps its traceback, and the traceback keeps the tensors of the failed step"
    );
    oom.remedies = vec![
        "leave the `except` block before the next step: set a flag in it, and retry or skip after it; do not store the exception".to_owned(),
        "after it, `del` the outputs and the loss, `optimizer.zero_grad(set_to_none=True)`, then `torch.cuda.empty_cache()`".to_owned(),
        "limit the longest inputs, so that the first error does not happen".to_owned(),
    ];
    oom.root = RootCause {
        code: ProblemCode::TracebackKept,
        bytes: kept,
        text: oom.why.clone(),
        is_sure: false,
        ..oom.root.clone()
    };
}

/// What the text shows of the time before the error, or that it does not.
fn over_time(oom: &mut Oom, printed: &[Printed]) {
    if !oom.may_have_grown || oom.facts.kind == failures::Kind::Caught {
        return;
    }
    let mut levels = levels_of(&oom.facts, printed);
    levels.retain(|it| it.0 < oom.facts.at);
    let more = match levels[..] {
        [(_, first), .., (_, last)] => format!(
            "Before the error, the program printed its memory {} times: {first} first, {last} last",
            levels.len()
        ),
        _ => "The text does not show whether memory grew over time".to_owned(),
    };
    oom.why = format!("{}. {more}", oom.why);
    oom.root.text.clone_from(&oom.why);
}

/// A curve without blocks.
pub fn of_curve(name: &str, curve: &crate::recording::Curve) -> Explanation {
    let mut res = Explanation::new(Kind::ProfilerTrace, name);
    res.torch_version.clone_from(&curve.torch_version);
    let Some(device) = curve.devices.iter().max_by_key(|it| it.peak_reserved) else { return res };
    res.peak_allocated = Some(device.peak_allocated);
    res.peak_reserved = Some(device.peak_reserved);
    for (operator, bytes) in &device.operators {
        res.notes
            .push(format!("{operator} requested {bytes} of the memory that was live at the peak"));
    }
    res.notes.push(format!(
        "a profiler's trace has {} memory events of device {} and no call stacks of blocks: for findings, record a snapshot (torch.cuda.memory._record_memory_history, or plimsoll predict --record)",
        device.events, device.index
    ));
    if device.ooms != 0 {
        res.ooms.push(Oom::of_curve(device));
    }
    res
}
