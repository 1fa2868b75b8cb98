//! What a growth is made of: a graph that is still there, results of passes, a cache, something else.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    codes::RemarkCode,
    findings::{
        Case,
        accumulation::{
            bounded::drop_bounded,
            larger::{is_cache, pages},
            look::{Group, Groups, Key, Look},
        },
        growth::{A_RUN, Growth, Kind},
        keepers,
    },
    prediction::{Category, Counted, stacks::Signs, timeline::Stage},
    recording::{CodeLine, End, EndReason, Later},
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

/// Iterations after which a small growth is no accident.
const LONG: usize = 8;

/// By what it is made of, and by line.
type ByKind = BTreeMap<(Kind, Option<CodeLine>), Groups>;

/// What the groups are together.
pub(super) fn classify(
    look: &Look<'_>,
    moment: EventId,
    groups: BTreeMap<Key, Group>,
) -> Vec<Growth> {
    let case = look.case;
    let (mut graph, mut rest) = by_stage(look, groups);
    let passes = Passes::of(look, moment, &graph, &rest);
    // A graph is told though each epoch lets go of its own: it is what a step should not leave.
    if passes.left_their_graph {
        passes.move_what_the_graph_holds(&mut rest, &mut graph);
    } else {
        drop_bounded(look, moment, &mut graph);
    }
    for ((kind, _), groups) in &mut rest {
        if *kind == Kind::Other {
            drop_bounded(look, moment, groups);
        }
    }
    let mut res = Vec::new();
    if passes.left_their_graph {
        res.extend(growth(look, moment, passes.kind_of_graph(look, &graph), &graph));
    } else {
        graph.retain(|(_, it)| !is_of_the_step_under_way(case, moment, it));
        for (key, group) in graph {
            rest.entry((Kind::Results, case.line_outside(key.0))).or_default().push((key, group));
        }
    }
    for ((kind, _), groups) in rest.into_iter().filter(|(_, it)| !it.is_empty()) {
        res.extend(growth(look, moment, kind, &groups));
    }
    res
}

/// What passes made, which may be a graph, and everything else.
fn by_stage(look: &Look<'_>, groups: BTreeMap<Key, Group>) -> (Groups, ByKind) {
    let case = look.case;
    let pages = pages(look, &groups);
    let mut graph: Groups = Vec::new();
    let mut rest = ByKind::new();
    for (key, group) in groups {
        let stage = group.kept.first().map_or(Stage::Setup, |(_, it)| case.stage(*it));
        if is_cache(case, key.0) || pages.contains(&key.0) {
            rest.entry((Kind::KvCache, None)).or_default().push((key, group));
        } else if in_pass(stage) || stage == Stage::Backward && case.run.stacks.is_autograds(key.0)
        {
            graph.push((key, group));
        } else {
            rest.entry((Kind::Other, case.line_outside(key.0))).or_default().push((key, group));
        }
    }
    (graph, rest)
}

fn in_pass(stage: Stage) -> bool {
    matches!(stage, Stage::Forward | Stage::Loss | Stage::Evaluation)
}

/// What is still there of what passes made.
struct Passes {
    /// Much of it: their graph is.
    left_their_graph: bool,
    /// The iteration before the newest that left most: with `retain_graph` only some do.
    most: Option<u32>,
    /// What each iteration left.
    left: BTreeMap<u32, Bytes>,
}

impl Passes {
    fn of(look: &Look<'_>, moment: EventId, graph: &Groups, rest: &ByKind) -> Passes {
        let Look { case, iterations, .. } = look;
        let timeline = &case.run.timeline;
        let mut left: BTreeMap<u32, Bytes> = BTreeMap::new();
        for (step, block) in graph.iter().flat_map(|(_, it)| &it.kept) {
            *left.entry(*step).or_default() += case.life(*block).size;
        }
        let newest = iterations.at(moment);
        let most = left.range(..newest).max_by_key(|(_, it)| **it).map(|(step, _)| *step);
        let share = most.map_or(0, |step| {
            let made = made_in(look, moment, step);
            left[&step].0 * 100 / made.0.max(1)
        });
        // Layers of one kind share a stack, so blocks count as well.
        let n_blocks = most.map_or(0, |most| {
            graph.iter().flat_map(|(_, it)| &it.kept).filter(|(step, _)| *step == most).count()
        });
        // A graph holds what went into the pass as well; scratch memory makes its share of what the pass made a small one.
        let is_input = |group: &Group| {
            let category = group.kept.first().map(|(_, it)| case.evidence.category(*it));
            // A plain snapshot has no name for what stays.
            let is_it = category == Some(Category::Inputs)
                || !timeline.marked && category == Some(Category::Retained);
            let near = |step: u32| Some(step) == most || Some(step + 1) == most;
            is_it && group.kept.iter().any(|(step, _)| near(*step))
        };
        let with_input = rest.values().flatten().any(|(_, it)| is_input(it));
        let is_much = 6 <= graph.len()
            || 3 <= n_blocks && 25 <= share
            || 2 <= n_blocks && 50 <= share
            || with_input && 4 <= n_blocks && 10 <= share;
        // Where a model is called, its graph has something that it made; results alone have not.
        let in_model = |stack: StackId| case.run.stacks.signs(stack).has(Signs::MODULE);
        let has_model = timeline.has(Stage::Forward) || timeline.has(Stage::Evaluation);
        let is_of_model = graph.iter().any(|((stack, _), _)| in_model(*stack));
        let blocks: Vec<BlockId> =
            graph.iter().flat_map(|(_, it)| &it.kept).map(|(_, block)| *block).collect();
        // Autograd has made it: gradients with a graph of their own, of which a loss is made.
        let is_of_gradients =
            || case.has_remark(RemarkCode::CreatesGraph) && is_awaited(case, graph);
        let left_their_graph = is_much
            && (is_of_model || !has_model || is_of_gradients())
            && !keepers::is_stored_without_graph(case, &blocks);
        Passes { left_their_graph, most, left }
    }

    /// The graph holds the inputs of its step too, wherever these were made.
    fn move_what_the_graph_holds(&self, rest: &mut ByKind, graph: &mut Groups) {
        let most = self.most.map_or(Bytes::ZERO, |it| self.left[&it]);
        let is_heavy = |step: u32| self.left.get(&step).is_some_and(|it| it.0 * 10 >= most.0);
        let is_held =
            |group: &Group| group.kept.iter().all(|(it, _)| is_heavy(*it) || is_heavy(it + 1));
        for ((kind, _), groups) in rest {
            if *kind == Kind::Other {
                let (held, own): (Groups, Groups) =
                    std::mem::take(groups).into_iter().partition(|(_, it)| is_held(it));
                *groups = own;
                graph.extend(held);
            }
        }
    }

    fn kind_of_graph(&self, look: &Look<'_>, graph: &Groups) -> Kind {
        let Look { case, iterations, .. } = look;
        let timeline = &case.run.timeline;
        // Was there a backward pass in the step that left it?
        let backwards: BTreeSet<u32> =
            timeline.starts(Stage::Backward).map(|it| iterations.at(it)).collect();
        let followed = self.most.is_some_and(|it| backwards.contains(&it))
            || timeline.step_ends.is_empty() && self.are_followed(&backwards);
        let evaluates = graph.iter().any(|(_, it)| {
            it.kept.iter().any(|(_, block)| case.stage(*block) == Stage::Evaluation)
        });
        if is_awaited(case, graph) {
            return Kind::GraphAwaited;
        }
        let loss =
            graph.iter().any(|((stack, _), _)| case.run.stacks.signs(*stack).has(Signs::LOSS));
        let unmarked = timeline.has(Stage::Backward) && !timeline.marked;
        if !evaluates && (followed || loss || unmarked && !is_after_training(case, graph)) {
            Kind::Graph
        } else {
            Kind::GraphWithoutBackward
        }
    }
}

impl Passes {
    /// Without optimizer steps each pass is an iteration of its own, and a model that is called part by part has its backward pass
    /// in a later one: most of what was left has one before the next is left.
    fn are_followed(&self, backwards: &BTreeSet<u32>) -> bool {
        let left: Vec<u32> = self.left.keys().copied().collect();
        let followed =
            left.windows(2).filter(|it| backwards.range(it[0]..it[1]).next().is_some()).count();
        1 < left.len() && left.len() - 1 <= followed * 2
    }
}

/// What passes made in iteration `step`, up to `moment`.
fn made_in(look: &Look<'_>, moment: EventId, step: u32) -> Bytes {
    let Look { case, iterations, .. } = look;
    let made = case.run.replay.blocks.iter().filter(|block| {
        block.alloc <= moment
            && in_pass(case.run.timeline.stage(block.alloc))
            && iterations.at(block.alloc) == step
    });
    made.map(|it| it.size).sum()
}

/// `torch.autograd.grad` went back through what is kept, `backward()` has not, and no optimizer has worked since: an inner loop whose
/// passes the step's one backward pass needs. Or nothing went back through it, and memory ran out before the backward pass.
fn is_awaited(case: &Case<'_>, graph: &Groups) -> bool {
    let run = case.run;
    let made = graph.iter().flat_map(|(_, it)| &it.kept).map(|(_, it)| case.life(*it).alloc);
    let Some(since) = made.min() else { return false };
    // A closure that the optimizer calls (L-BFGS) is inside of its step.
    let begun = run.timeline.step_ends.iter().rfind(|it| **it <= since).copied();
    let is_in_closure = (run.timeline.starts(Stage::Optimizer))
        .any(|it| begun.is_none_or(|begun| begun <= it) && it <= since);
    let has_stepped = if is_in_closure {
        run.timeline.step_ends.iter().any(|it| since < *it)
    } else {
        run.timeline.starts(Stage::Optimizer).any(|it| since < it)
    };
    if has_stepped {
        return false;
    }
    // It died on its way there: a model that is called for each token of a text, or derivatives that a loss is made of.
    let creates_graph = || case.has_remark(RemarkCode::CreatesGraph);
    let goes_back = || run.timeline.starts(Stage::Backward).any(|it| since < it);
    if case.died_before_backward() && (!goes_back() || creates_graph()) {
        return true;
    }
    // Without an optimizer there is no such step: weights that are computed from weights, with the graph of all that were before.
    if run.recording.notes.end.as_ref().is_some_and(|it| !it.has_optimizer) {
        return false;
    }
    let later = run.device.events.allocations().filter(|(event, _)| since <= *event);
    let signs = later.map(|(_, stack)| run.stacks.signs(stack));
    let mut calls = signs.filter(|it| it.has(Signs::BACKWARD)).peekable();
    calls.peek().is_some() && calls.all(|it| it.has(Signs::GRAD))
}

/// What several passes of one step made, and the step's one backward pass is going back through, or will be: the inputs of layers that are
/// checkpointed one by one.
fn is_of_the_step_under_way(case: &Case<'_>, moment: EventId, group: &Group) -> bool {
    let timeline = &case.run.timeline;
    let made = |it: &BlockId| case.life(*it).alloc;
    let blocks = || group.kept.iter().map(|(_, it)| it);
    let Some(since) = blocks().map(made).min() else { return false };
    let in_forward = |it: &BlockId| matches!(case.stage(*it), Stage::Forward | Stage::Loss);
    let back = timeline.stretches().find(|it| it.2 == Stage::Backward && since < it.0);
    let is_needed = match back {
        Some((begin, end, _)) => {
            let steps = |it: EventId| since < it && it < begin;
            moment <= end && !timeline.starts(Stage::Optimizer).any(steps)
        }
        None => case.died_before_backward(),
    };
    is_needed && blocks().all(in_forward)
}

/// All of it was made after the last optimizer step.
fn is_after_training(case: &Case<'_>, groups: &[(Key, Group)]) -> bool {
    let last = case.run.timeline.step_ends.last();
    last.is_some_and(|last| {
        groups.iter().flat_map(|(_, it)| &it.kept).all(|(_, it)| *last <= case.life(*it).alloc)
    })
}

/// Whether results are what a loop after the training collected, all of whose turns were seen, and little beside the peak.
fn is_little_of_a_loop_that_is_over(
    case: &Case<'_>,
    groups: &[(Key, Group)],
    bytes: Bytes,
) -> bool {
    let end = case.run.recording.notes.end.as_ref();
    let is_cut = |it: Later| it.evaluation_cut;
    let is_over = |it: &End| it.why == EndReason::Exit && !it.later.is_some_and(is_cut);
    end.is_some_and(is_over) && is_after_training(case, groups) && bytes.0 < case.peak.bytes.0 / 100
}

/// Steps of a run that is short enough for two of them to be nearly all.
const FEW: usize = 8;

/// Whether a few steps left something, and one or two of them nearly all of it: not each leaves as much, but one batch is far larger than the others.
fn is_of_one_pass(by_step: &BTreeMap<u32, Bytes>) -> bool {
    let mut sizes: Vec<u64> = by_step.values().map(|it| it.0).collect();
    sizes.sort_unstable();
    let middle = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    let of_the_usual = middle.saturating_mul(sizes.len() as u64);
    sizes.len() <= FEW && of_the_usual.saturating_mul(8) < sizes.iter().sum()
}

fn growth(look: &Look<'_>, moment: EventId, kind: Kind, groups: &[(Key, Group)]) -> Option<Growth> {
    let Look { case, iterations, .. } = look;
    let all: Vec<(u32, BlockId)> =
        groups.iter().flat_map(|(_, it)| it.kept.iter().copied()).collect();
    let newest_block = all.iter().map(|(_, it)| case.life(*it).alloc).max()?;
    let newest = iterations.at_for(moment, newest_block);
    // The newest is still under way: what it works on is no more than what it leaves.
    let mut by_step: BTreeMap<u32, Bytes> = BTreeMap::new();
    for (step, block) in all.iter().filter(|(step, _)| *step < newest) {
        *by_step.entry(*step).or_default() += case.life(*block).size;
    }
    let most = by_step.values().copied().max().unwrap_or_default();
    // With `retain_graph` in some steps only, the others leave their loss, and that is no graph.
    let is_graph = kind.is_graph();
    let counts = |it: &Bytes| !is_graph || most.0 / 10 <= it.0;
    let steps: BTreeSet<u32> =
        by_step.iter().filter(|(_, it)| counts(it)).map(|(step, _)| *step).collect();
    if !is_graph && is_of_one_pass(&by_step) {
        return None;
    }
    let total: Bytes = all.iter().map(|(_, it)| case.life(*it).size).sum();
    let bytes: Bytes =
        all.iter().filter(|(step, _)| *step < newest).map(|(_, it)| case.life(*it).size).sum();
    if kind == Kind::Results && is_little_of_a_loop_that_is_over(case, groups, bytes) {
        return None;
    }
    let since = all.iter().map(|(_, it)| case.life(*it).alloc).min()?;
    let first = *steps.first()?;
    let per_step = Bytes(bytes.0 / (steps.len() as u64).max(1));
    let is_large = Bytes::mib(1) <= bytes || Bytes::kib(16) <= per_step;
    // A little in each step is no accident when there are enough of them, and a long run adds it up; some
    // bytes beside gigabytes are not worth a person's time.
    let is_sure =
        LONG <= steps.len() && case.peak.bytes.0 / 100 <= per_step.0.saturating_mul(A_RUN);
    if !(is_large || is_sure) {
        return None;
    }
    let mut lines: BTreeMap<CodeLine, Bytes> = BTreeMap::new();
    // A graph is made by the pass, though what went into it may be larger.
    let of_pass =
        |group: &Group| group.kept.first().is_some_and(|(_, it)| in_pass(case.stage(*it)));
    let is_pass = is_graph && groups.iter().any(|(_, it)| of_pass(it));
    for ((stack, _), group) in groups.iter().filter(|(_, it)| !is_pass || of_pass(it)) {
        if let Some(line) = case.line_outside(*stack) {
            *lines.entry(line).or_default() += group.bytes;
        }
    }
    let at = lines.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(line, _)| line);
    let of_line =
        || groups.iter().filter(|((it, _), _)| at.is_some() && case.line_outside(*it) == at);
    let stacks: BTreeSet<StackId> = of_line().map(|((stack, _), _)| *stack).collect();
    // The newest that are over: of a graph the last one, which a call gives back; of results the first, after which the call went on.
    let over = || {
        let all = of_line().flat_map(|(_, it)| it.kept.iter().copied());
        all.filter(|(step, _)| *step < newest)
    };
    let last_step = over().map(|(step, _)| step).max();
    let newest_of = over().filter(|(step, _)| Some(*step) == last_step).map(|(_, it)| it);
    let block = if is_graph { newest_of.max() } else { newest_of.min() };
    let at = block
        .filter(|_| kind != Kind::KvCache)
        .and_then(|it| case.run.line_that_kept(&stacks, it))
        .or(at);
    let largest = all.iter().map(|(_, it)| *it).max_by_key(|it| case.life(*it).size);
    let older: Vec<BlockId> =
        all.iter().filter(|(step, _)| *step < newest).map(|(_, it)| *it).collect();
    let at = at.or_else(|| case.line_of_backward(largest?));
    let steps_are = iterations.are(since);
    let (mut n_steps, mut of) =
        (steps.len() as u64, u64::from(iterations.begun(moment, newest_block) - first));
    let mut per_step = per_step;
    if steps_are == Counted::ForwardPasses {
        // As many of them as a step has are an iteration; a reader counts passes.
        let left: BTreeSet<u64> =
            older.iter().map(|it| iterations.pass_at(case.life(*it).alloc)).collect();
        n_steps = left.len() as u64;
        of = iterations.pass_at(moment) - left.first()? + 1;
        per_step = Bytes(bytes.0 / n_steps.max(1));
    }
    Some(Growth {
        kind,
        at,
        bytes,
        blocks: all.len() as u64,
        steps: n_steps,
        steps_are,
        of,
        since,
        per_step,
        larger_each_time: false,
        apart: false,
        tensors: 0,
        seen_at: moment,
        held: total,
        counted: match kind {
            Kind::KvCache => all.iter().map(|(_, it)| *it).collect(),
            _ => older.clone(),
        },
        older,
    })
}
