//! Forward passes whose graph is thrown away: evaluation without `no_grad` that keeps no results.
//!
//! What autograd saves of a pass goes at once, when its output does: a run of frees without an allocation between them, of most
//! of what the pass made, and no backward pass since. Without a graph a pass gives its values back while it goes on; what a
//! function keeps in variables until it returns is few, caches and lists of outputs are little of what was made meanwhile.
//! A pass of which the agent says that gradients were off has no graph, whatever it gives back at once, and one that ran out of memory and was
//! given up would have had a backward pass.

use std::collections::BTreeSet;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, growth::Kind},
    prediction::{
        Category,
        origins::{self, Live},
        stacks::Signs,
        timeline::{Places, Stage},
    },
    recording::{LoopLines, MarkKind, Phase},
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::UnusedGraph, find };

/// Blocks that one pass gives back at once: more than the variables of a function that is written out.
const LEAST_BLOCKS: usize = 24;
/// What a pass without a graph still holds at its largest: an input, an output, and what lies between.
const STILL_THERE: usize = 4;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let mut res = of_passes(case);
    if res.is_empty() {
        res.extend(of_a_variable(case));
    }
    res
}

/// What the statement made that sets a variable whose graph no backward pass goes through, and that is there beside one that is needed.
fn of_a_variable(case: &Case<'_>) -> Option<Finding> {
    let graphs = case.run.recording.notes.graphs.iter().flat_map(|it| &it.unused);
    let live = case.live_after(case.moment());
    let of_pass = |it: &&Live| {
        is_pass(case.stage(it.block))
            && matches!(
                it.category,
                Category::Activations | Category::Temporaries | Category::Unknown
            )
    };
    // What is given back before the backward pass begins was needed to compute the value.
    let outlives = |it: &&Live| {
        let life = case.life(it.block);
        let next = case.run.timeline.next(Stage::Backward, life.alloc);
        next.is_none_or(|next| life.free.is_none_or(|free| next < free))
    };
    let made_by = |lines: &LoopLines| -> Vec<BlockId> {
        let is_it =
            |it: &&Live| origins::passes_through(case.run.trace, case.stack(it.block), lines);
        live.iter().filter(of_pass).filter(outlives).filter(is_it).map(|it| it.block).collect()
    };
    let all = graphs.map(|(name, lines)| (name, made_by(lines)));
    let (name, blocks) = all.max_by_key(|(_, blocks)| case.sum(blocks))?;
    let bytes = case.sum(&blocks);
    if !case.matters(bytes, 5, Bytes::mib(32)) {
        return None;
    }
    let title = format!(
        "`{name}` has a graph that no backward pass uses: {bytes} stored for it beside the graph of the loss"
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line_of_most(&blocks);
    res.step = case.step(case.moment());
    res.evidence.push(format!(
        "in the first steps, `{name}` was gone before a backward pass had gone through its graph"
    ));
    res.remedy = format!(
        "compute `{name}` under `with torch.no_grad():`, or from `.detach()`ed values, if it is only logged; if a later step trains with it, nothing is wrong"
    );
    res.frees(blocks);
    Some(res)
}

fn of_passes(case: &Case<'_>) -> Vec<Finding> {
    let is_told = |kind: Kind| matches!(kind, Kind::GraphWithoutBackward | Kind::Casts);
    let kept = case.growth.iter().any(|it| is_told(it.kind));
    if kept || !case.window.stacks || case.died_before_backward() {
        return Vec::new();
    }
    let passes = Passes::of(case);
    if passes.unused.is_empty() {
        return from_its_first_batch(case).into_iter().collect();
    }
    let now = case.peak.event;
    let ended = passes.backward_before(now);
    let is_unused = |block: BlockId| {
        let (life, stack) = (case.life(block), case.stack(block));
        let is_used = life.free.is_some_and(|free| passes.has_backward(life.alloc, free));
        // Where memory ran out nothing was given back; then the line must be one that never trains.
        let is_known = life.free.is_some() || !passes.used.contains(&stack);
        let is_given_up = life.free.is_some_and(|it| case.evidence.was_refused(life.alloc, it));
        ended <= life.alloc
            && !is_used
            && is_known
            && !is_given_up
            && passes.unused.contains(&stack)
    };
    let mut blocks: Vec<BlockId> =
        case.live.iter().map(|it| it.block).filter(|it| is_unused(*it)).collect();
    blocks.truncate(blocks.len().saturating_sub(STILL_THERE));
    let bytes: Bytes = blocks.iter().map(|it| case.life(*it).size).sum();
    let Some(largest) = blocks.iter().copied().max_by_key(|it| case.life(*it).size) else {
        return from_its_first_batch(case).into_iter().collect();
    };
    if blocks.len() < LEAST_BLOCKS / 2 || !case.matters(bytes, 10, Bytes::mib(1)) {
        return from_its_first_batch(case).into_iter().collect();
    }
    let title = format!(
        "evaluation without no_grad: {bytes} of the peak wait for a backward pass that does not come"
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.at = case.line_outside(case.stack(largest));
    res.step = case.step(now);
    res.evidence.push(format!(
        "{} forward passes freed most of their results together at their end, without a backward pass",
        passes.n_unused
    ));
    res.evidence
        .push(format!("{} blocks of such a forward pass are live at the peak", blocks.len()));
    res.remedy = REMEDY.to_owned();
    res.frees(blocks);
    vec![res]
}

/// Before any pass was seen to throw its graph away.
fn from_its_first_batch(case: &Case<'_>) -> Option<Finding> {
    let idle = case.idle.as_ref().filter(|it| case.matters(it.bytes, 10, Bytes::mib(1)))?;
    let title = format!(
        "evaluation without no_grad: {} wait for a backward pass that does not come",
        idle.bytes
    );
    let mut res = RULE.finding(Weight::Problem, idle.bytes, title);
    res.at.clone_from(&idle.at);
    res.frees(idle.blocks.clone());
    res.evidence.push(
        if idle.is_sure {
            "the model was in evaluation mode, gradients were on, and no backward pass used the graph"
        } else {
            "no forward pass of this line had a backward pass; those of the training's lines had one"
        }
        .to_owned(),
    );
    res.remedy = REMEDY.to_owned();
    Some(res)
}

const REMEDY: &str = "put the loop under `with torch.no_grad():` (or `torch.inference_mode()`); `model.eval()` alone does not switch the graph off. If this is training that skips a loss (one that is not finite, for example), nothing is wrong with these passes";

/// From which event up to which the agent saw passes with gradients off, in order.
fn without_gradients(case: &Case<'_>) -> Vec<(EventId, EventId)> {
    let run = case.run;
    let notes = &run.recording.notes;
    let places = Places::new(&run.replay, run.index, &notes.stats);
    let mut res: Vec<(EventId, EventId)> = Vec::new();
    let mut begun = None;
    for mark in &notes.marks {
        match mark.kind {
            MarkKind::Begin(Phase::Evaluation) if !mark.with_gradients => {
                begun = Some(places.event(&mark.place));
            }
            MarkKind::End(Phase::Evaluation) => {
                res.extend(begun.take().map(|it| (it, places.event(&mark.place))));
            }
            _ => {}
        }
    }
    // One that memory ran out in has no end.
    res.extend(begun.map(|it| (it, EventId(u32::MAX))));
    res.sort_unstable();
    res
}

fn is_pass(stage: Stage) -> bool {
    matches!(stage, Stage::Forward | Stage::Loss | Stage::Evaluation | Stage::Between)
}

/// What is known of the lines that forward passes run through.
struct Passes {
    /// Where backward passes and optimizer steps begin, in order.
    backward: Vec<EventId>,
    /// Lines whose blocks were thrown away with their pass.
    unused: BTreeSet<StackId>,
    /// Lines whose blocks lived until a backward pass came.
    used: BTreeSet<StackId>,
    n_unused: u64,
}

impl Passes {
    fn of(case: &Case<'_>) -> Passes {
        let timeline = &case.run.timeline;
        let mut backward: Vec<EventId> =
            timeline.starts(Stage::Backward).chain(timeline.starts(Stage::Optimizer)).collect();
        backward.sort_unstable();
        let mut res =
            Passes { backward, unused: BTreeSet::new(), used: BTreeSet::new(), n_unused: 0 };
        let run = case.run;
        let lives = &run.replay.blocks;
        // What passes had made before each block.
        let mut made = Vec::with_capacity(lives.len() + 1);
        let mut sum = Bytes::ZERO;
        let mut stages = timeline.in_order();
        let mut without = without_gradients(case).into_iter().peekable();
        for life in lives {
            made.push(sum);
            while without.next_if(|it| it.1 <= life.alloc).is_some() {}
            let has_graph = without.peek().is_none_or(|it| life.alloc < it.0);
            let signs = run.stacks.signs(run.device.events.stack(life.alloc.index()));
            if has_graph && signs.has(Signs::MODULE) && is_pass(stages.stage(life.alloc)) {
                sum += life.size;
            }
        }
        made.push(sum);
        let is_of_pass = |it: BlockId| made[it.index()] != made[it.index() + 1];
        // When they were freed, and how many had been made by then: as many, and nothing was made in between.
        let mut freed: Vec<(EventId, BlockId, usize)> = Vec::new();
        let mut n_made = 0;
        for it in run.replay.freed.iter().take_while(|it| it.event < case.evidence.over()) {
            while lives.get(n_made).is_some_and(|life| life.alloc < it.event) {
                n_made += 1;
            }
            let block = it.block.filter(|it| is_of_pass(*it));
            freed.extend(block.map(|block| (it.event, block, n_made)));
        }
        for burst in freed.chunk_by(|a, b| a.2 == b.2) {
            let blocks = || burst.iter().map(|(_, block, _)| *block);
            let (Some(first), Some(last)) = (blocks().min(), blocks().max()) else { continue };
            let (begin, end) = (case.life(first).alloc, burst[burst.len() - 1].0);
            if case.evidence.was_refused(begin, end) {
                continue;
            }
            if res.has_backward(begin, end) {
                let used = burst.iter().filter(|it| res.has_backward(case.life(it.1).alloc, it.0));
                let used: Vec<StackId> = used.map(|it| case.stack(it.1)).collect();
                res.used.extend(used);
                continue;
            }
            let bytes: Bytes = blocks().map(|it| case.life(it).size).sum();
            let of = made[last.index() + 1].saturating_sub(made[first.index()]);
            if LEAST_BLOCKS <= burst.len() && of.0 / 2 <= bytes.0 {
                res.n_unused += 1;
                res.unused.extend(blocks().map(|it| case.stack(it)));
            }
        }
        res
    }

    fn has_backward(&self, from: EventId, until: EventId) -> bool {
        let next = self.backward.partition_point(|it| *it <= from);
        self.backward.get(next).is_some_and(|it| *it < until)
    }

    /// Where the last one before that moment began.
    fn backward_before(&self, moment: EventId) -> EventId {
        let next = self.backward.partition_point(|it| *it <= moment);
        next.checked_sub(1).map_or(EventId(0), |it| self.backward[it])
    }
}
