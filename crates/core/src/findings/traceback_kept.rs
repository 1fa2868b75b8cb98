//! After an error that the program caught, what the failed pass had made is still there: a traceback holds its frames.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{stacks::Signs, timeline::Stage},
    replay::BlockId,
    trace::{Action, EventId},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::TracebackKept, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let run = case.run;
    let actions = run.device.events.actions();
    let failed = (0..)
        .map(EventId)
        .zip(actions)
        .filter(|(id, action)| **action == Action::Oom && run.oom != Some(*id))
        .filter(|(id, _)| !goes_on_by_itself(case, *id));
    let found = failed.filter_map(|(failed, _)| kept(case, failed));
    let most = found.max_by_key(|(bytes, _, _)| *bytes);
    let Some((bytes, failed, blocks)) = most else { return Vec::new() };
    if !case.matters(bytes, 10, Bytes::mib(32)) {
        return Vec::new();
    }
    let title = format!("a caught out-of-memory error keeps the failed pass allocated: {bytes}");
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.step = case.step(failed);
    let largest = blocks.iter().copied().max_by_key(|it| case.life(*it).size);
    res.at = largest.and_then(|it| case.line_outside(case.stack(it)));
    res.evidence.push(format!(
        "{} blocks of the failed pass were live when the program went on",
        blocks.len()
    ));
    res.remedy = "retry after the `except` block, not in it: inside it, the error's traceback holds every frame, and each frame its tensors. To store an error, store `str(error)`. In a notebook the last error stays alive: `plimsoll.release()` clears it, or `import sys, gc; sys.last_value.__traceback__ = sys.last_traceback = get_ipython().InteractiveTB.tb = None; gc.collect()`, then torch.cuda.empty_cache()".to_owned();
    res.frees(blocks);
    vec![res]
}

/// Whether nobody sees the refusal: cuDNN asks for scratch memory, does not get it, and takes an algorithm that needs less. In the
/// backward pass nothing says who asked.
fn goes_on_by_itself(case: &Case<'_>, failed: EventId) -> bool {
    let stacks = &case.run.stacks;
    let event = case.run.device.events.get(failed.index());
    let stack = event.stack;
    let mut told = case.run.recording.notes.ooms.iter();
    // The agent tells of those that became an exception.
    if told.any(|it| it.device == case.run.index && it.requested == event.size) {
        return false;
    }
    stacks.is_autograds(stack) || stacks.signs(stack).has(Signs::CUDNN)
}

fn in_pass(stage: Stage) -> bool {
    matches!(stage, Stage::Forward | Stage::Loss | Stage::Evaluation)
}

/// What the pass that failed at `failed` had made, and what of it is there in the next pass and in the end.
fn kept(case: &Case<'_>, failed: EventId) -> Option<(Bytes, EventId, Vec<BlockId>)> {
    let run = case.run;
    // A pass that an exception left may have no end, so the next allocation of any pass is asked for.
    let blocks = &run.replay.blocks;
    let after = blocks.partition_point(|it| it.alloc <= failed);
    let next =
        blocks[after..].iter().map(|it| it.alloc).find(|it| in_pass(run.timeline.stage(*it)));
    // The next one may not even have begun: its batch had no room.
    let next = next.or(run.oom.filter(|it| failed < *it))?;
    let moment = run.oom.unwrap_or(case.peak.event);
    let begun = run.timeline.step_ends.iter().rev().find(|it| **it <= failed).copied();
    let begun = begun.unwrap_or(EventId(0));
    if moment < next {
        return None;
    }
    let blocks: Vec<BlockId> = case
        .live_after(next)
        .iter()
        .map(|it| it.block)
        .filter(|block| {
            let life = case.life(*block);
            begun <= life.alloc
                && life.alloc < failed
                && in_pass(case.stage(*block))
                && life.is_live_after(moment)
        })
        .collect();
    let bytes = blocks.iter().map(|it| case.life(*it).size).sum();
    Some((bytes, failed, blocks))
}
