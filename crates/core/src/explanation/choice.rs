//! The one cause that a report leads with: what would have made this request fit, and was most avoidable.
//!
//! The first in this order that explains the failure. It explains it if the request fits without the blocks that it is about,
//! replayed on the allocator as it stood; where nothing can be replayed, if it has as many bytes as were missing.
//!
//! 1. what no step needs again: leaks, results that are kept, growth;
//! 2. an evaluation that keeps its graph;
//! 3. an input larger than those before;
//! 4. copies of what is there already;
//! 5. a limit that the process set itself;
//! 6. another process, if this one would have fitted without it;
//! 7. pieces: only if a replay with nothing but expandable segments serves the request, and the step had fitted before or a
//!    quarter of what is reserved is free; a request that is a fifth of all there is has to find a quarter of itself in pieces;
//! 8. what a mistake or another form of the same program would not have: casts that are repeated, networks that are not frozen or that no step calls,
//!    a whole validation set at once, attention that is written out, windows that overlap, an optimizer's temporaries;
//! 9. data that is on the device before a step needs it, and caches;
//! 10. one result that is a fifth of all there is;
//! 11. the model's own states;
//! 12. the activations of a step, of batches that are mostly padding as that.
//!
//! Models of earlier experiments without an optimizer, which may be in use, come after the leaks; the passes of a step's inner loop
//! before what one line made.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    codes::{ProblemCode, RemarkCode},
    explanation::{
        oom::Oom,
        proof::Proof,
        root_cause::{LARGE_PART, OF_DERIVATIVES, RootCause, is_leak, told_as},
    },
    failures::Cause,
    findings::{self, Case, Finding, Kind, Weight, are_a_few, are_apart, category_name},
    prediction::{Category, origins::Live, stacks::Signs, timeline::Stage},
    recording::{CodeLine, Models, Operand, Phase},
    replay::{BlockId, Config, TorchVersion, rounding},
    trace::EventId,
    units::{Bytes, percent},
};

/// Results of one size that a line may make on its way to one.
const IN_A_LINE: usize = 2;
/// Of what was allocated, in percent: less is not what made the run too large.
const LEAST_SHARE: u64 = 10;

/// So many models of one class are more than a network, its copy and its teacher.
const MANY_MODELS: u64 = 4;

/// What needs not be there by the program's own design, what is a mistake first, and data and caches last.
const CAUSES: [ProblemCode; 18] = [
    ProblemCode::IdleCheckpointing,
    ProblemCode::RepeatedCasts,
    ProblemCode::CastCopies,
    ProblemCode::MadeAgain,
    ProblemCode::NoOptimizer,
    ProblemCode::UnusedGraph,
    ProblemCode::IdleWeights,
    ProblemCode::LargeEvaluation,
    ProblemCode::WrittenOutAttention,
    ProblemCode::Unfolded,
    ProblemCode::WholeVolume,
    ProblemCode::DenseTable,
    ProblemCode::GraphRetained,
    ProblemCode::StepBefore,
    ProblemCode::UnrolledLoop,
    ProblemCode::ForeachTemporaries,
    ProblemCode::AllOnDevice,
    ProblemCode::KvCache,
];

/// Chooses the cause of the failed request `event`.
pub(super) fn choose(
    case: &Case<'_>,
    event: EventId,
    oom: &Oom,
    findings: &[Finding],
    proof: Option<&Proof<'_>>,
) -> RootCause {
    let failed = Failed::new(case, event, oom, findings, proof);
    failed
        .leak()
        .or_else(|| failed.avoidable(ProblemCode::EarlierModels))
        .or_else(|| failed.larger_input())
        .or_else(|| failed.avoidable(ProblemCode::DoubleBuffer))
        .or_else(|| failed.limit())
        .or_else(|| failed.other_process())
        .or_else(|| failed.pieces())
        .or_else(|| failed.by_design())
        .or_else(|| failed.graphs_of_one_step())
        .or_else(|| failed.states_are_moved())
        .or_else(|| failed.one_result())
        .or_else(|| failed.several_of_one_size())
        .unwrap_or_else(|| failed.of_padding(failed.states_or_activations()))
}

/// Models of one class that have most of what is `allocated`: more than a network with its copy.
pub(super) fn many_models<'a>(case: &Case<'a>, allocated: Bytes) -> Option<&'a Models> {
    let most = case.run.recording.notes.models.iter().max_by_key(|it| it.bytes)?;
    (MANY_MODELS <= most.count && allocated.0 / 2 <= most.bytes.0).then_some(most)
}

/// Most that was allocated in a step that came to its end before `event`; None where none did.
pub(super) fn most_in_a_step(case: &Case<'_>, event: EventId) -> Option<Bytes> {
    let run = case.run;
    // From stacks alone, an optimizer that was cut short looks like the end of its step.
    let is_over = |end: &&EventId| {
        let mut passes = run.timeline.starts(Stage::Forward);
        **end <= event && (run.timeline.marked || passes.any(|it| **end <= it && it <= event))
    };
    let end = run.timeline.step_ends.iter().rev().find(is_over)?;
    let levels = run.replay.levels(&run.device.events);
    levels.filter(|(id, _)| id < end).map(|(_, it)| it.allocated).max()
}

fn is_pass(stage: Stage) -> bool {
    matches!(stage, Stage::Forward | Stage::Loss | Stage::Evaluation)
}

/// What a pass makes that is neither the model's nor a library's.
pub(super) fn is_kept(category: Category) -> bool {
    matches!(
        category,
        Category::Activations
            | Category::Temporaries
            | Category::Retained
            | Category::Unknown
            | Category::Inputs
    )
}

struct Failed<'a> {
    case: &'a Case<'a>,
    event: EventId,
    oom: &'a Oom,
    findings: &'a [Finding],
    proof: Option<&'a Proof<'a>>,
    asked: Bytes,
    allocated: Bytes,
    slack: Bytes,
    free: Bytes,
}

impl<'a> Failed<'a> {
    fn new(
        case: &'a Case<'a>,
        event: EventId,
        oom: &'a Oom,
        findings: &'a [Finding],
        proof: Option<&'a Proof<'a>>,
    ) -> Failed<'a> {
        let facts = &oom.facts;
        // Under a limit, what the device has free does not help.
        let free = if oom.cause == Cause::Limit { None } else { facts.free };
        Failed {
            case,
            event,
            oom,
            findings,
            proof,
            asked: facts.requested.unwrap_or_default(),
            allocated: facts.allocated.unwrap_or_default(),
            slack: facts.slack.unwrap_or_default(),
            free: free.unwrap_or_default(),
        }
    }

    fn missing(&self) -> Bytes {
        rounding::allocation_size(self.asked, &Config::of_torch(TorchVersion::NEWEST))
            .saturating_sub(self.free)
    }

    fn fits_without(&self, finding: &Finding) -> bool {
        match self.proof {
            Some(proof) if !finding.blocks.is_empty() => proof.fits_without(finding),
            _ => self.missing() <= finding.bytes,
        }
    }

    fn counts(&self, bytes: Bytes) -> bool {
        self.allocated.0 / 100 * LEAST_SHARE <= bytes.0
    }

    fn of(&self, finding: &Finding, tail: &str) -> RootCause {
        let text = format!("{}{tail}", finding.title);
        RootCause { text, is_sure: self.proof.is_some(), ..RootCause::of_finding(finding) }
    }

    /// The request, as the end of a sentence.
    fn would_have_fitted(&self) -> String {
        format!("; without them the request for {} would have fitted", self.asked)
    }

    /// What a leak is told as: a graph that an evaluation's line keeps is not the training's, and neither are results of a
    /// program that never trains and never switched gradients off.
    fn as_leak(&self, finding: &Finding) -> RootCause {
        let mut res = self.of(finding, "");
        let run = self.case.run;
        let idle = self.case.idle.as_ref().and_then(|it| it.at.as_ref());
        let is_idle = idle.is_some() && idle == finding.made_at.as_ref().or(finding.at.as_ref());
        let never_trains = run.timeline.marked
            && !run.timeline.has(Stage::Backward)
            && run.timeline.has(Stage::Forward)
            && !self.case.died_before_backward()
            && !run.timeline.has(Stage::Evaluation);
        if is_idle && res.code == ProblemCode::GraphRetained
            || never_trains && res.code == ProblemCode::ResultsKept
        {
            res.code = ProblemCode::EvalWithoutNoGrad;
            res.text = format!(
                "forward passes run without no_grad, and no backward pass follows: {}",
                res.text
            );
        }
        res
    }

    fn leak(&self) -> Option<RootCause> {
        let is_leak = |it: &&Finding| it.weight == Weight::Problem && is_leak(told_as(it.code));
        let leaks = || self.findings.iter().filter(is_leak).filter(|it| self.counts(it.bytes));
        // What an error holds looks like results that are kept, and is not mended like them.
        let is_held = |it: &Finding| it.code == ProblemCode::TracebackKept;
        let enough = leaks().filter(|it| self.fits_without(it));
        // Of one that is small beside another leak, the other one is the cause.
        let most = enough.clone().map(|it| it.bytes).max().unwrap_or_default();
        let enough = enough.max_by_key(|it| (is_held(it) && most.0 / 2 <= it.bytes.0, it.bytes));
        if let Some(it) = enough {
            let mut res = self.as_leak(it);
            res.text += &self.would_have_fitted();
            return Some(res);
        }
        // Not enough alone, and still half of everything, or so together with others: the parts of one list grow side by side.
        let most = leaks().max_by_key(|it| it.bytes)?;
        let of_all: BTreeSet<BlockId> = leaks().flat_map(|it| it.blocks.iter().copied()).collect();
        let is_live = |it: &BlockId| self.case.life(*it).is_live_after(self.event);
        let live = of_all.iter().filter(|it| is_live(it));
        let together: Bytes = live.map(|it| self.case.life(*it).size).sum();
        (self.allocated.0 / 2 <= most.bytes.max(together).0)
            .then(|| RootCause { is_sure: false, ..self.as_leak(most) })
    }

    fn larger_input(&self) -> Option<RootCause> {
        let is_it =
            |it: &&Finding| it.code == ProblemCode::DynamicShapes && it.step == self.oom.step;
        let found = self.findings.iter().find(is_it)?;
        let explains = self.counts(found.bytes) || self.missing() <= found.bytes;
        let mut res = self.of(found, "");
        res.at = res.at.or_else(|| self.oom.at.clone());
        res.is_sure = false;
        explains.then_some(res)
    }

    /// What needs not be there, although somebody uses it.
    fn avoidable(&self, code: ProblemCode) -> Option<RootCause> {
        let is_it = |it: &&Finding| it.code == code && self.counts(it.bytes);
        let found = self.findings.iter().filter(is_it).find(|it| self.fits_without(it))?;
        let mut res = self.of(found, &self.would_have_fitted());
        // Without blocks nothing was replayed.
        res.is_sure &= !found.blocks.is_empty();
        Some(res)
    }

    /// The first of these that would have been enough. What is there of the step before may be a part of what somebody stores.
    fn by_design(&self) -> Option<RootCause> {
        let mut enough = CAUSES.iter().filter_map(|it| self.avoidable(*it));
        let first = enough.next()?;
        let is_before = first.code == ProblemCode::StepBefore;
        let larger = enough.find(|it| is_before && first.bytes.0 * 2 <= it.bytes.0);
        Some(larger.unwrap_or(first))
    }

    fn limit(&self) -> Option<RootCause> {
        (self.oom.cause == Cause::Limit).then(|| RootCause {
            code: ProblemCode::ProcessLimit,
            at: None,
            bytes: self.asked,
            text: self.oom.why.clone(),
            is_sure: true,
        })
    }

    fn other_process(&self) -> Option<RootCause> {
        let others = self.oom.others.filter(|it| self.missing() <= *it)?;
        let capacity = self.oom.facts.capacity.unwrap_or(self.allocated + self.free);
        (capacity.0 / 100 * LEAST_SHARE <= others.0).then(|| RootCause {
            code: ProblemCode::NotPytorch,
            at: None,
            bytes: others,
            text: format!(
                "other processes hold {others} of the card; without them the request for {} would have fitted",
                self.asked
            ),
            is_sure: true,
        })
    }

    fn pieces(&self) -> Option<RootCause> {
        let replayed = self.proof.and_then(Proof::with_expandable_segments);
        let serves = match &replayed {
            Some(it) => it.served_now != 0 && it.ran_out.is_none(),
            None => self.proof.is_none() && self.missing() <= self.slack,
        };
        // A run that is too large fits a little longer in one piece, and then fails all the same.
        let reserved = self.allocated + self.slack;
        let is_much = reserved.0 / 4 <= self.slack.0;
        let most = most_in_a_step(self.case, self.event);
        // What is larger than any step before has not been seen to fit.
        let fitted_before = most
            .is_some_and(|it| self.allocated <= it && it + self.asked <= self.all())
            && reserved.0 / 100 * LEAST_SHARE <= self.slack.0
            && (!self.is_large_request() || self.asked.0 / 4 <= self.slack.0);
        // Before a step has come to its end, nothing shows that the run fits: a few results that are larger than all pieces come first.
        let is_of_size = |it: &Finding| {
            it.code == ProblemCode::OneAllocation && self.slack <= it.bytes && self.fits_without(it)
        };
        let is_much = is_much && (most.is_some() || !self.findings.iter().any(is_of_size));
        (serves && (is_much || fitted_before)).then(|| RootCause {
            code: ProblemCode::Slack,
            at: None,
            bytes: self.slack,
            text: format!(
                "PyTorch's free memory is fragmented: {} are free, but no piece is as large as the {} requested",
                self.slack, self.asked
            ),
            is_sure: replayed.is_some(),
        })
    }

    /// Passes of one step that its backward pass needs: an inner loop.
    fn graphs_of_one_step(&self) -> Option<RootCause> {
        let awaited = self.case.growth.iter().filter(|it| it.kind == Kind::GraphAwaited);
        let most = awaited.max_by_key(|it| it.held)?;
        // With what to change, where a rule has it.
        let many = self.findings.iter().any(|it| it.code == ProblemCode::ManyPasses);
        // Of which autograd has made most, without a line.
        let in_backward = |it: &&BlockId| self.case.stage(**it) == Stage::Backward;
        let is_of_autograd =
            most.counted.len() < 2 * most.counted.iter().filter(in_backward).count();
        let of = if is_of_autograd { OF_DERIVATIVES } else { "forward passes" };
        (self.allocated.0 / 3 <= most.held.0).then(|| RootCause {
            code: if many { ProblemCode::ManyPasses } else { ProblemCode::Activations },
            at: most.at.clone().or_else(|| self.oom.at.clone()),
            bytes: most.held,
            text: format!(
                "one step stores the graphs of {} {of} until its backward(): {} of the {} allocated",
                most.steps + 1,
                most.held,
                self.allocated
            ),
            is_sure: true,
        })
    }

    /// The model was just being made or moved, or its optimizer's state.
    fn states_are_moved(&self) -> Option<RootCause> {
        let run = self.case.run;
        let signs = run.stacks.signs(run.device.events.stack(self.event.index()));
        let first_step = self.oom.step.is_none_or(|it| it <= 1);
        // A state is no larger than all weights that it is of.
        let may_be_one = self.asked <= self.states_bytes();
        let is_state = signs.has(Signs::APPLY)
            || first_step
                && may_be_one
                && (signs.has(Signs::OPTIMIZER) || self.oom.facts.phase == Some(Phase::Optimizer));
        is_state.then(|| self.states(self.states_bytes()))
    }

    /// All that there is for this process.
    fn all(&self) -> Bytes {
        self.allocated + self.slack + self.free
    }

    fn is_large_request(&self) -> bool {
        self.all().0 / LARGE_PART <= self.asked.0
    }

    fn one_result(&self) -> Option<RootCause> {
        let all = self.all();
        let is_large = self.is_large_request();
        // As many of its size as are there, and the one more that failed.
        let few = self.findings.iter().find(|it| it.code == ProblemCode::OneAllocation);
        let few = few.filter(|finding| {
            finding.at.is_some()
                && finding.count <= 2
                && all.0 / LARGE_PART * 2 <= (finding.bytes + self.asked).0
        });
        let larger = self.larger_than_the_rest();
        // Layers of one kind make several as large; a line between the model and its backward pass is none.
        let is_one_of_many = !self.is_no_layer() && self.asked.0 * 2 <= self.activations().0;
        let in_backward = self.case.run.timeline.stage(self.event) == Stage::Backward;
        if in_backward && self.is_gradient() {
            return None;
        }
        let (at, bytes) = match (is_large && !is_one_of_many, few) {
            _ if larger.is_some() => larger.unwrap_or_default(),
            (true, Some(it)) if in_backward => (it.at.clone(), it.bytes + self.asked),
            (true, _) => (self.at(), self.asked),
            (false, Some(it)) => (it.at.clone(), it.bytes + self.asked),
            (false, None) => return None,
        };
        let share = if all < bytes {
            format!("more than the {all} that this process may have")
        } else {
            format!("{} of the memory there is", percent(bytes.share_of(all)))
        };
        // What that line computes with says where the size comes from.
        let notes = &self.case.run.recording.notes.ooms;
        let note = notes.iter().rfind(|it| it.device == self.case.run.index);
        let made_of = note.filter(|_| at.is_some() && at == self.oom.at && !in_backward);
        let made_of: Vec<String> =
            made_of.iter().flat_map(|it| &it.operands).map(Operand::shown).collect();
        let made_of = if made_of.is_empty() {
            String::new()
        } else {
            format!("; it is made of {}", made_of.join(", "))
        };
        let dense = findings::as_large_when_dense(self.case, self.asked);
        let dense = dense.map_or(String::new(), |it| {
            format!("; it is as large as the sparse {it} with all its zeros")
        });
        Some(RootCause {
            code: ProblemCode::OneAllocation,
            at,
            bytes,
            text: format!("one line's result is too large: {bytes}, {share}{made_of}{dense}"),
            is_sure: true,
        })
    }

    /// Results of one size that make most of all there is, each of another operation, as a kernel matrix of all pairs has them.
    fn several_of_one_size(&self) -> Option<RootCause> {
        let is_it = |it: &&Finding| it.code == ProblemCode::OneAllocation && it.at.is_some();
        let found = self.findings.iter().find(is_it)?;
        let is_most = self.all().0 / 2 <= (found.bytes + self.asked).0;
        let are_results = are_apart(self.case, &found.blocks) || are_a_few(self.case, &found.shown);
        (is_most && are_results).then(|| self.of(found, ""))
    }

    /// One block that is half of all there is, and what was asked for beside it is small: the line that made it, and its size.
    fn larger_than_the_rest(&self) -> Option<(Option<CodeLine>, Bytes)> {
        let live = self.case.live_after(self.event);
        let most = live.iter().filter(|it| is_kept(it.category)).max_by_key(|it| it.size)?;
        let line = self.case.line(most.block)?;
        (self.asked.0 * 2 <= most.size.0 && self.all().0 / 2 <= most.size.0)
            .then_some((Some(line), most.size))
    }

    /// What was asked for is as large as a parameter. A request that failed is recorded as it was rounded.
    fn is_gradient(&self) -> bool {
        let live = self.case.live_after(self.event);
        let mut parameters = live.iter().filter(|it| it.category == Category::Parameters);
        let rounded = |it: Bytes| it.0.next_multiple_of(512);
        parameters.any(|it| rounded(self.case.life(it.block).requested) == rounded(self.asked))
    }

    /// No module asked, and hardly anything as large is there of the line that did: a loss, a metric.
    fn is_no_layer(&self) -> bool {
        let run = self.case.run;
        let stack = run.device.events.stack(self.event.index());
        // Read from stacks, a pass lasts until the next request that is served.
        let stage = run.timeline.stage(self.event);
        let in_loss = stage == Stage::Loss || stage == Stage::Forward && !run.timeline.marked;
        let Some(line) = self.case.line_of(stack).filter(|_| in_loss) else { return false };
        let live = self.case.live_after(self.event);
        let rounded = |it: Bytes| it.0.next_multiple_of(512);
        let as_large = |live: &&crate::prediction::origins::Live| {
            rounded(self.case.life(live.block).requested) == rounded(self.asked)
        };
        let lines = live.iter().filter(as_large).filter_map(|it| self.case.line(it.block));
        !run.stacks.signs(stack).has(Signs::MODULE)
            && lines.filter(|it| *it == line).count() <= IN_A_LINE
    }

    /// The line that failed; of a backward pass, which runs no Python, the one that called it.
    fn at(&self) -> Option<CodeLine> {
        let blocks = &self.case.run.replay.blocks;
        let last = blocks.partition_point(|it| it.alloc <= self.event).checked_sub(1);
        let last = last.and_then(|it| u32::try_from(it).ok()).map(BlockId);
        let called = || last.and_then(|it| self.case.line_of_backward(it));
        self.oom.at.clone().or_else(called)
    }

    /// What passes made and is still there.
    fn activations(&self) -> Bytes {
        let live = self.case.live_after(self.event);
        let of_pass =
            live.iter().filter(|it| is_pass(self.case.stage(it.block)) && is_kept(it.category));
        of_pass.map(|it| it.size).sum()
    }

    fn by_category(&self) -> impl Fn(&[Category]) -> Bytes {
        let live = self.case.live_after(self.event);
        move |wanted: &[Category]| {
            live.iter().filter(|it| wanted.contains(&it.category)).map(|it| it.size).sum()
        }
    }

    fn states_bytes(&self) -> Bytes {
        use Category::{Buffers, Gradients, OptimizerState, Parameters};
        self.by_category()(&[Parameters, Gradients, OptimizerState, Buffers])
    }

    /// Where an optimizer that ran out makes most of its state; of one that the user wrote, that may not be where it ran out.
    fn line_of_states(&self) -> Option<CodeLine> {
        let run = self.case.run;
        let signs = run.stacks.signs(run.device.events.stack(self.event.index()));
        let of = self.by_category();
        let states = of(&[Category::OptimizerState]);
        if !signs.has(Signs::OPTIMIZER) || self.allocated.0 / 2 > states.0 {
            return None;
        }
        let mut lines: BTreeMap<CodeLine, Bytes> = BTreeMap::new();
        for it in self.case.live_after(self.event) {
            if it.category == Category::OptimizerState
                && let Some(line) = self.case.line(it.block)
            {
                *lines.entry(line).or_default() += it.size;
            }
        }
        lines.into_iter().rev().max_by_key(|(_, bytes)| *bytes).map(|(line, _)| line)
    }

    fn states(&self, bytes: Bytes) -> RootCause {
        let of = self.by_category();
        let parts = [
            ("parameters", of(&[Category::Parameters])),
            ("buffers", of(&[Category::Buffers])),
            ("gradients", of(&[Category::Gradients])),
            ("optimizer state", of(&[Category::OptimizerState])),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, it)| Bytes::ZERO < *it)
            .map(|(name, it)| format!("{it} of {name}"))
            .collect();
        let so_far =
            if parts.is_empty() { format!("{} so far", self.allocated) } else { parts.join(", ") };
        let many = many_models(self.case, self.allocated);
        let so_far = many.map_or(so_far.clone(), |it| {
            format!(
                "{so_far}; {} models of class `{}` have {} of that",
                it.count, it.model, it.bytes
            )
        });
        RootCause {
            code: ProblemCode::ModelStates,
            at: self.line_of_states().or_else(|| self.at()),
            bytes: bytes.max(self.asked),
            text: format!(
                "the model and its states are too large for this card: {so_far}, and the script requested {} more",
                self.asked
            ),
            is_sure: true,
        }
    }

    /// What most of it is, in parentheses, where that says something.
    fn largest_part(&self) -> String {
        let of = self.by_category();
        let most = Category::ALL.iter().map(|it| (of(&[*it]), *it)).max_by_key(|it| it.0);
        let most = most.filter(|(bytes, _)| self.allocated.0 / 2 < bytes.0);
        most.map_or(String::new(), |(bytes, it)| {
            format!(" ({bytes} of that {})", category_name(it))
        })
    }

    /// Activations of batches that are mostly padding. How many of them, a run without padding would say.
    fn of_padding(&self, cause: RootCause) -> RootCause {
        let is_it = |it: &&Finding| it.code == ProblemCode::Padding;
        let found = self.findings.iter().find(is_it);
        match found.filter(|_| cause.code == ProblemCode::Activations) {
            Some(it) => RootCause { is_sure: false, ..self.of(it, "") },
            None => cause,
        }
    }

    fn states_or_activations(&self) -> RootCause {
        let states = self.states_bytes();
        let run = self.case.run;
        let live = self.case.live_after(self.event);
        let kept: Vec<_> = live
            .iter()
            .filter(|it| {
                let stage = self.case.stage(it.block);
                // What is computed again, and graphs of gradients.
                let is_of_backward =
                    stage == Stage::Backward && it.category == Category::Activations;
                is_of_backward || is_kept(it.category) && is_pass(stage)
            })
            .collect();
        let activations: Bytes = kept.iter().map(|it| it.size).sum();
        let in_backward = |it: &&&Live| self.case.stage(it.block) == Stage::Backward;
        let of_backward: Bytes = kept.iter().filter(in_backward).map(|it| it.size).sum();
        // In a backward pass gradients come; they are the model's.
        let in_pass = is_pass(run.timeline.stage(self.event));
        let asked = if in_pass { self.asked } else { Bytes::ZERO };
        if activations + asked < states && self.counts(states) {
            return self.states(states);
        }
        if activations + asked < self.allocated && !self.counts(activations + asked) {
            return RootCause {
                code: ProblemCode::TooLarge,
                at: self.at(),
                bytes: self.allocated,
                text: format!(
                    "the run is too large for this card: {} were allocated{}, and the script requested {} more",
                    self.allocated,
                    self.largest_part(),
                    self.asked
                ),
                is_sure: false,
            };
        }
        // The line around the model that most of it hangs on.
        let mut lines: BTreeMap<(String, u32), (Bytes, CodeLine)> = BTreeMap::new();
        for it in &kept {
            if let Some(line) = self.case.line_outside(self.case.stack(it.block)) {
                lines
                    .entry((line.file.clone(), line.line))
                    .or_insert_with(|| (Bytes::ZERO, line))
                    .0 += it.size;
            }
        }
        let most =
            lines.into_values().max_by_key(|(bytes, line)| (*bytes, std::cmp::Reverse(line.line)));
        let at = most.map(|(_, line)| line).or_else(|| self.oom.at.clone());
        // Without gradients nothing is kept for later: it is what a pass works on.
        let what = match run.timeline.stage(self.event) {
            Stage::Evaluation => "one forward pass is too large".to_owned(),
            _ if activations.0 / 2 < of_backward.0
                && self.case.has_remark(RemarkCode::CreatesGraph) =>
            {
                format!("the graphs of {OF_DERIVATIVES} are too large")
            }
            _ => "the activations of one step are too large".to_owned(),
        };
        RootCause {
            code: ProblemCode::Activations,
            at,
            bytes: activations,
            text: format!("{what}: {activations} of the {} allocated", self.allocated),
            is_sure: true,
        }
    }
}
