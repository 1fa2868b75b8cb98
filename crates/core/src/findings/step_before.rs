//! Outputs of the pass before that are still there in the next one, because a variable holds them until it gets its next value: of the
//! step before in a training, of the batch before in an evaluation; or what a line makes for many steps, as a rollout, of the time before.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{
        Category,
        timeline::{Places, Stage},
    },
    recording::{Mark, MarkKind, Phase},
    replay::{BlockId, BlockLife},
    trace::{EventId, StackId},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::StepBefore, find };

/// Passes in which a line has to do it: once is chance. Where memory ran out, the last one is there without its end, and in the second
/// pass of all there can be no other.
const LEAST: usize = 2;

fn find(case: &Case<'_>) -> Vec<Finding> {
    if !case.run.timeline.marked {
        return Vec::new();
    }
    let of = |stage: Stage| match stage {
        Stage::Forward | Stage::Loss | Stage::Backward => of_training(case),
        Stage::Evaluation => of_evaluation(case),
        _ => None,
    };
    // Of a pass whose first request was refused, what was made last is of no pass.
    let refused = || {
        let ooms = case.run.oom.map_or(&[][..], |_| &case.run.recording.notes.ooms);
        match ooms.iter().rfind(|it| it.device == case.run.index)?.phase? {
            Phase::Evaluation => of(Stage::Evaluation),
            Phase::Forward => of(Stage::Forward),
            _ => None,
        }
    };
    of(case.stage_then())
        .or_else(refused)
        .or_else(|| of_the_time_before(case))
        .into_iter()
        .collect()
}

/// What the line whose request was refused had made some steps before, and a variable holds until it gets the next one: a rollout, the data of an epoch.
/// And how many steps that is ago.
pub(super) fn the_time_before(case: &Case<'_>) -> Option<(BlockId, u32)> {
    /// One step before may be what the next is computed from: an average, a queue.
    const LEAST_STEPS: u32 = 2;
    let event = case.run.oom?;
    let request = case.run.device.events.get(event.index());
    let live = case.live_after(case.moment());
    // A line may make small ones beside it.
    let is_as_large =
        |it: &BlockId| case.life(*it).size.0.abs_diff(request.size.0) <= request.size.0 / 4;
    let mut own = (live.iter().map(|it| it.block))
        .filter(|it| case.stack(*it) == request.stack && is_as_large(it));
    // Several are a list.
    let (block, None) = (own.next()?, own.next()) else { return None };
    let life = case.life(block);
    let timeline = &case.run.timeline;
    let steps = timeline.steps_before(event).saturating_sub(timeline.steps_before(life.alloc));
    let is_one = LEAST_STEPS <= steps
        && request.stack != StackId::EMPTY
        && case.evidence.name(block).is_none()
        && case.matters(life.size, 5, Bytes::mib(32));
    is_one.then_some((block, steps))
}

fn of_the_time_before(case: &Case<'_>) -> Option<Finding> {
    let event = case.run.oom?;
    let (block, steps) = the_time_before(case)?;
    let life = case.life(block);
    if case.growth.iter().any(|it| it.older.contains(&block)) {
        return None;
    }
    let title = format!(
        "what this line made {steps} steps before is still live when it makes the next: {}",
        life.size
    );
    let mut res = RULE.finding(Weight::Chance, life.size, title);
    res.at = case.line_outside(case.stack(block));
    res.step = case.step(event);
    res.remedy = "delete the variable before the line runs again (`del rollout`), or write the new values into the old tensor. If the next result is computed from the one before, nothing is wrong".to_owned();
    res.frees(vec![block]);
    Some(res)
}

/// What a forward pass of one step made, and the next step gives back.
fn of_training(case: &Case<'_>) -> Option<Finding> {
    let timeline = &case.run.timeline;
    let is_output =
        |it: &BlockLife| matches!(timeline.stage(it.alloc), Stage::Forward | Stage::Loss);
    told(case, "step", &is_output, &|it| timeline.steps_before(it))
}

/// What one forward pass without gradients made, and the next one from the same line gives back.
fn of_evaluation(case: &Case<'_>) -> Option<Finding> {
    let timeline = &case.run.timeline;
    let mut passes: Vec<EventId> = timeline.starts(Stage::Evaluation).collect();
    // One whose first request was refused has nothing in it.
    let notes = &case.run.recording.notes;
    let places = Places::new(&case.run.replay, case.run.index, &notes.stats);
    let is_begin = |it: &&Mark| it.kind == MarkKind::Begin(Phase::Evaluation);
    let last = notes.marks.iter().rfind(is_begin).map(|it| places.event(&it.place));
    let refused = last.filter(|it| case.run.oom.is_some() && passes.last() < Some(it));
    passes.extend(refused);
    let is_output = |it: &BlockLife| timeline.stage(it.alloc) == Stage::Evaluation;
    let pass = |event: EventId| {
        u32::try_from(passes.partition_point(|begin| *begin <= event)).unwrap_or(u32::MAX)
    };
    told(case, "batch", &is_output, &pass)
}

/// `number` counts the passes up to an event.
fn told(
    case: &Case<'_>,
    what: &str,
    is_output: &dyn Fn(&BlockLife) -> bool,
    number: &dyn Fn(EventId) -> u32,
) -> Option<Finding> {
    let moment = case.moment();
    let now = number(moment);
    let is_late = |life: &BlockLife| {
        is_output(life) && life.free.is_some_and(|free| number(free) == number(life.alloc) + 1)
    };
    let collected: BTreeSet<BlockId> =
        case.growth.iter().flat_map(|it| it.older.iter().copied()).collect();
    let is_before = |block: &BlockId| {
        let life = case.life(*block);
        number(life.alloc) + 1 == now
            && is_output(life)
            // Where memory ran out nothing was given back.
            && (is_late(life) || case.run.oom.is_some() && life.free.is_none_or(|it| moment <= it))
            && case.evidence.name(*block).is_none()
            && !collected.contains(block)
    };
    let is_result = |category: Category| {
        matches!(
            category,
            Category::Activations | Category::Temporaries | Category::Retained | Category::Unknown
        )
    };
    let live = case.live_after(moment);
    let candidates = live.iter().filter(|it| is_result(it.category)).map(|it| it.block);
    let mut blocks: Vec<BlockId> = candidates.filter(is_before).collect();
    if !case.matters(case.sum(&blocks), 5, Bytes::mib(32)) {
        return None;
    }
    // What another line's pass made may be what this one works with.
    let made = case.run.replay.blocks.partition_point(|it| it.alloc <= moment);
    let newest = (0..made).rev().filter_map(|it| u32::try_from(it).ok()).map(BlockId);
    let of_pass = |it: &BlockId| is_output(case.life(*it)) && number(case.life(*it).alloc) == now;
    let here = newest.take_while(of_pass).find_map(|it| case.line_outside(case.stack(it)));
    // Memory may have run out before the pass made anything.
    let refused = || case.line_outside(case.run.device.events.stack(case.run.oom?.index()));
    let here = here.or_else(refused);
    blocks.retain(|it| here.is_some() && case.line_outside(case.stack(*it)) == here);
    // Each does so in more passes than this one.
    let mut times: BTreeMap<StackId, usize> = BTreeMap::new();
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        if is_late(life) {
            *times.entry(case.stack(block)).or_default() += 1;
        }
    }
    let is_earlier = |it: &BlockLife| number(it.alloc) + 1 < now && is_output(it);
    let least = match case.run.oom {
        Some(_) if !case.run.replay.blocks.iter().any(is_earlier) => 0,
        Some(_) => LEAST - 1,
        None => LEAST,
    };
    blocks.retain(|it| least <= times.get(&case.stack(*it)).copied().unwrap_or_default());
    let bytes = case.sum(&blocks);
    if !case.matters(bytes, 5, Bytes::mib(32)) {
        return None;
    }
    let title = format!("outputs of the {what} before are live during the next: {bytes}");
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = here;
    res.step = case.step(moment);
    res.evidence.push(format!(
        "PyTorch frees {} of one {what} only in the next, when their variables get new values",
        crate::findings::blocks(blocks.len())
    ));
    res.remedy = format!(
        "delete the variables at the end of the {what} (`del outputs, loss`), or compute the {what} in a function, whose variables go when it returns"
    );
    res.frees(blocks);
    Some(res)
}
