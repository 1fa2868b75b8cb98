//! A loop within one forward pass, or within a loss, of which each turn's results wait for the backward pass: Sinkhorn's iterations, a recursion over
//! words, rounds of messages.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, timeline::Stage},
    replay::BlockId,
    trace::{EventId, StackId},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::UnrolledLoop, find };

/// Fewer blocks of one size may be made by the operations of one line.
const LEAST_TURNS: usize = 6;
/// Of the peak, in percent.
const LEAST_SHARE: u64 = 40;

fn find(case: &Case<'_>) -> Vec<Finding> {
    of_one_pass(case).into_iter().collect()
}

fn of_one_pass(case: &Case<'_>) -> Option<Finding> {
    let timeline = &case.run.timeline;
    if !timeline.marked {
        return None; // Layers of one kind have one stack, and only the agent's names of modules tell them apart.
    }
    // A recurrent network is a loop, and no mistake where it fits.
    let asked = case.run.device.events.get(case.run.oom?.index()).size;
    let moment = case.moment();
    let passes: Vec<EventId> = timeline.starts(Stage::Forward).filter(|it| *it <= moment).collect();
    // What one module, in one pass, made of one size at one place.
    let mut by_place: BTreeMap<(usize, Option<&str>, StackId, Bytes), Vec<BlockId>> =
        BTreeMap::new();
    for it in case.live_after(moment) {
        let made = case.life(it.block).alloc;
        let is_of_pass = matches!(timeline.stage(made), Stage::Forward | Stage::Loss)
            && matches!(
                it.category,
                Category::Activations | Category::Temporaries | Category::Unknown
            );
        let stack = case.stack(it.block);
        if is_of_pass && stack != StackId::EMPTY {
            let pass = passes.partition_point(|begin| *begin <= made);
            let key = (pass, case.module(it.block), stack, case.life(it.block).requested);
            by_place.entry(key).or_default().push(it.block);
        }
    }
    by_place.retain(|_, blocks| LEAST_TURNS <= blocks.len());
    // The lines of one function are of one loop.
    let mut by_loop: BTreeMap<_, Vec<Vec<BlockId>>> = BTreeMap::new();
    for ((pass, ..), blocks) in by_place {
        if let Some(line) = case.line(blocks[0]) {
            by_loop.entry((pass, line.file, line.function)).or_default().push(blocks);
        }
    }
    let all_but_one = |places: &Vec<Vec<BlockId>>| -> Vec<BlockId> {
        places.iter().flat_map(|it| it.iter().skip(1).copied()).collect()
    };
    let places = by_loop.into_values().max_by_key(|it| case.sum(&all_but_one(it)))?;
    let extra = all_but_one(&places);
    let bytes = case.sum(&extra);
    if bytes < asked || !case.matters(bytes, LEAST_SHARE, Bytes::mib(64)) {
        return None;
    }
    let most = places.iter().max_by_key(|it| case.sum(it))?;
    let (count, each) = (most.len(), case.sum(most).0 / most.len() as u64);
    let title = format!(
        "the results of a loop wait for the backward pass: {}, of which one line made {count} of {} each",
        case.sum(&places.concat()),
        Bytes(each)
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line(most[0]);
    res.step = case.step(moment);
    res.remedy = "put `torch.utils.checkpoint.checkpoint` around the body of the loop: the backward pass then computes each turn's results again, and only what goes from turn to turn is stored. Or make fewer turns; and compute before the loop what is the same in each turn".to_owned();
    res.show(places.concat());
    res.blocks = extra;
    Some(res)
}
