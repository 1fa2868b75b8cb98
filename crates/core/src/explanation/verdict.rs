//! The verdict on one out-of-memory error: what was asked, what was free and why it could not serve, what
//! would have had to go, and whether it is size, growth, fragmentation, a limit or somebody else.

use std::collections::BTreeMap;

use crate::{
    failures::{Backend, Cause, Failure},
    findings::{Case, Finding, Weight, place},
    prediction::timeline::Stage,
    recording::{CodeLine, CurveDevice, Phase},
    units::Bytes,
};

/// The shapes that people know such errors by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Before the first backward pass.
    FirstForward,
    /// In a backward pass.
    Backward,
    /// In the optimizer's first step.
    FirstOptimizerStep,
    /// Something grew until it was too much.
    OverTime,
    /// At an input larger than the others.
    LargeInput,
    /// After many steps that fitted.
    Late,
    /// In an evaluation.
    Evaluation,
    /// Nothing that has a name.
    Other,
}

/// An out-of-memory error.
#[derive(Clone, Debug, PartialEq)]
pub struct Oom {
    /// Who refused.
    pub backend: Backend,
    /// Why.
    pub cause: Cause,
    /// Whether it is sure that memory was what failed.
    pub is_sure: bool,
    /// Which of the shapes that people know.
    pub shape: Shape,
    /// The sentences that lead to the cause.
    pub why: String,
    /// What to try, in order.
    pub remedies: Vec<String>,
    /// The device.
    pub device: Option<u32>,
    /// The rank.
    pub rank: Option<u32>,
    /// What was asked for.
    pub requested: Option<Bytes>,
    /// What the device has.
    pub capacity: Option<Bytes>,
    /// What it had left.
    pub free: Option<Bytes>,
    /// What tensors had.
    pub allocated: Option<Bytes>,
    /// What the allocator held.
    pub reserved: Option<Bytes>,
    /// Held and not allocated.
    pub slack: Option<Bytes>,
    /// What the process had.
    pub process: Option<Bytes>,
    /// What others had.
    pub others: Option<Bytes>,
    /// The limit it set itself.
    pub limit: Option<Bytes>,
    /// Of the allocated, in private pools.
    pub private_pools: Option<Bytes>,
    /// Every other number of the message.
    pub numbers: Vec<(String, Bytes)>,
    /// The innermost line of the user's own code.
    pub at: Option<CodeLine>,
    /// What it was doing.
    pub phase: Option<Phase>,
    /// The step, from 1.
    pub step: Option<u32>,
    /// How far it was, in the log's words.
    pub progress: Option<String>,
    /// The smallest set of live blocks whose absence would have been enough, by line.
    pub enough: Vec<(String, Bytes, u64)>,
    /// How often it is told.
    pub times: u64,
    /// The line of the log.
    pub line: Option<usize>,
    /// The message.
    pub message: String,
    /// The message ends in the middle.
    pub clipped: bool,
}

impl Oom {
    pub(super) fn of_failure(failure: &Failure) -> Oom {
        let verdict = failure.verdict();
        let shape = match failure.phase {
            Some(Phase::Backward) => Shape::Backward,
            Some(Phase::Evaluation) => Shape::Evaluation,
            Some(Phase::Forward) if failure.progress.is_none() => Shape::FirstForward,
            _ if failure.progress.is_some() => Shape::Late,
            _ => Shape::Other,
        };
        Oom {
            backend: failure.backend,
            cause: verdict.cause,
            is_sure: failure.kind != crate::failures::Kind::Perhaps,
            shape,
            why: verdict.why,
            remedies: verdict.remedies,
            device: failure.device,
            rank: failure.rank,
            requested: failure.requested,
            capacity: failure.capacity,
            free: failure.free,
            allocated: failure.allocated,
            reserved: failure.reserved,
            slack: failure.slack,
            process: failure.process,
            others: failure.others(),
            limit: failure.limit,
            private_pools: failure.private_pools,
            numbers: failure.numbers.clone(),
            at: failure.user_frame.clone().or_else(|| failure.innermost.clone()),
            phase: failure.phase,
            step: None,
            progress: failure.progress.clone(),
            enough: Vec::new(),
            times: failure.times,
            line: Some(failure.at),
            message: failure.text.clone(),
            clipped: failure.clipped,
        }
    }

    pub(super) fn of_curve(device: &CurveDevice) -> Oom {
        let failure =
            Failure { device: Some(device.index), times: device.ooms, ..Failure::default() };
        let mut res = Oom::of_failure(&failure);
        res.allocated = Some(device.peak_allocated);
        res.reserved = Some(device.peak_reserved);
        res.line = None;
        res.why = "the profiler noted an out-of-memory event; it has neither request nor stack"
            .to_owned();
        res
    }
}

/// The error that ended the run on this device, if there was one.
pub(super) fn of_case(case: &Case<'_>, findings: &[Finding], messages: &[Failure]) -> Option<Oom> {
    let run = case.run;
    let event = run.oom?;
    let recorded = run.device.events.get(event.index());
    let levels = case.at_oom.unwrap_or_default();
    let note = run.recording.notes.ooms.iter().rev().find(|it| it.device == run.index);
    let message =
        messages.iter().rev().find(|it| it.device.is_none_or(|it| it as usize == run.index));
    let free = Bytes(recorded.address);
    let slack = levels.reserved.saturating_sub(levels.allocated);
    let mut facts = message.cloned().unwrap_or_default();
    facts.kind = crate::failures::Kind::OutOfMemory;
    facts.requested = Some(recorded.size);
    facts.free = facts.free.or(Some(free));
    facts.allocated = Some(levels.allocated);
    facts.reserved = Some(levels.reserved);
    facts.slack = Some(slack);
    let mut res = Oom::of_failure(&facts);
    let moment = run.moment(event);
    res.at = note
        .and_then(|it| it.user_frame.clone())
        .or_else(|| case.line_of(recorded.stack))
        .or(res.at);
    res.phase = note.and_then(|it| it.phase).or(moment.phase);
    // From stacks alone, an optimizer that was cut short looks like the end of its step.
    let last = run.timeline.step_ends.last().copied();
    let passed = last.is_none_or(|last| run.timeline.starts(Stage::Forward).any(|it| last <= it));
    let cut_short = !run.timeline.marked && !passed;
    res.step = Some(moment.step.saturating_sub(u32::from(cut_short)).max(1));
    if cut_short && res.phase.is_none() {
        res.phase = Some(Phase::Optimizer);
    }
    res.device = u32::try_from(run.index).ok();
    res.line = None;
    if message.is_none() {
        res.message = String::new();
        if recorded.size <= free {
            res.cause = Cause::Limit;
            res.why = format!(
                "the device had {free} free, and {} were refused: the process limits itself (set_per_process_memory_fraction), or the driver does",
                recorded.size
            );
            res.remedies = vec![
                "raise the limit, or remove it".to_owned(),
                "else the job has to shrink to it: a smaller batch, checkpointing, a smaller type"
                    .to_owned(),
            ];
        }
    }
    // Under a limit, what the device has free does not help.
    let helps = if res.cause == Cause::Limit { Bytes::ZERO } else { free };
    let missing = recorded.size.saturating_sub(helps);
    let leak = findings
        .iter()
        .filter(|it| it.weight == Weight::Problem && !it.code.starts_with("fragmentation"));
    let leak = leak.max_by_key(|it| it.bytes);
    let fragmented =
        findings.iter().any(|it| it.code == "fragmentation/slack" && it.weight == Weight::Problem);
    let asked = recorded.size;
    if let Some(leak) =
        leak.filter(|it| missing <= it.bytes && levels.allocated.0 / 10 <= it.bytes.0)
    {
        res.cause = Cause::Leak;
        let at = leak.at.as_ref().map(|it| format!(" at {}", place(it))).unwrap_or_default();
        res.why = format!("{}{at}; without it the {asked} would have fitted", leak.title);
        res.remedies.insert(0, leak.remedy.clone());
    } else if fragmented && res.cause != Cause::Limit {
        res.cause = Cause::Fragmentation;
    } else if res.cause == Cause::Size {
        res.why = format!(
            "{} were allocated and {asked} more asked for; {free} were free on the device and {slack} free in pieces of what PyTorch holds. Nothing grew and little is wasted: the run is too large",
            levels.allocated
        );
    }
    let gains: Vec<String> = findings
        .iter()
        .filter(|it| it.weight != Weight::Fact && Bytes::mib(1) <= it.bytes)
        .map(|it| format!("{} (up to {}): {}", it.code, it.bytes, it.remedy))
        .collect();
    if res.cause != Cause::Leak {
        res.remedies.splice(0..0, gains.into_iter().take(3));
    }
    res.enough = enough(case, event, missing);
    res.shape = shape(&res, findings, run.timeline.has(Stage::Backward));
    Some(res)
}

/// The largest blocks until they are as much as was missing, by line.
fn enough(
    case: &Case<'_>,
    event: crate::trace::EventId,
    missing: Bytes,
) -> Vec<(String, Bytes, u64)> {
    let mut live = case.live_after(event);
    live.sort_by_key(|it| (std::cmp::Reverse(it.size), it.block));
    let mut sum = Bytes::ZERO;
    let mut lines: BTreeMap<String, (Bytes, u64)> = BTreeMap::new();
    for it in live {
        if missing <= sum {
            break;
        }
        sum += it.size;
        let at = case.line(it.block).map_or("no stack".to_owned(), |it| place(&it));
        let (bytes, blocks) = lines.entry(at).or_default();
        *bytes += it.size;
        *blocks += 1;
    }
    let mut res: Vec<(String, Bytes, u64)> =
        lines.into_iter().map(|(at, (bytes, blocks))| (at, bytes, blocks)).collect();
    res.sort_by_key(|(at, bytes, _)| (std::cmp::Reverse(*bytes), at.clone()));
    if missing <= sum { res } else { Vec::new() }
}

fn shape(oom: &Oom, findings: &[Finding], has_backward: bool) -> Shape {
    let step = oom.step.unwrap_or(1);
    let dynamic =
        findings.iter().any(|it| it.code == "inputs/dynamic-shapes" && it.step == oom.step);
    match oom.phase {
        _ if oom.cause == Cause::Leak => Shape::OverTime,
        _ if dynamic => Shape::LargeInput,
        Some(Phase::Evaluation) => Shape::Evaluation,
        Some(Phase::Optimizer) if step == 1 => Shape::FirstOptimizerStep,
        Some(Phase::Forward) if step == 1 && !has_backward => Shape::FirstForward,
        _ if 3 < step => Shape::Late,
        Some(Phase::Backward) => Shape::Backward,
        Some(Phase::Forward) if step == 1 => Shape::FirstForward,
        _ => Shape::Other,
    }
}

impl Shape {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Shape::FirstForward => "first_forward",
            Shape::Backward => "backward",
            Shape::FirstOptimizerStep => "first_optimizer_step",
            Shape::OverTime => "over_time",
            Shape::LargeInput => "large_input",
            Shape::Late => "late",
            Shape::Evaluation => "evaluation",
            Shape::Other => "other",
        }
    }

    /// What it tells, in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Shape::FirstForward => {
                "It runs out in the first forward pass: parameters and activations of one batch are too much already."
            }
            Shape::Backward => {
                "It runs out in the backward pass: activations are still there while gradients come."
            }
            Shape::FirstOptimizerStep => {
                "It runs out in the optimizer's first step, when its state is made: forward and backward fit, the state does not."
            }
            Shape::OverTime => "It grew step by step until it was too much.",
            Shape::LargeInput => "It runs out at an input that is larger than those before.",
            Shape::Late => {
                "Earlier steps fitted: something grew, an input was larger, or pieces of memory did not fit together any more."
            }
            Shape::Evaluation => "It runs out while evaluating.",
            Shape::Other => "",
        }
    }
}
