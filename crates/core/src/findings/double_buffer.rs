//! Twice the same bytes for a moment: what was collected is joined (`cat`, `stack`), or a checkpoint is
//! loaded onto the device beside the model.

use crate::{
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, timeline::Stage},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule {
    code: "copies/double-buffer",
    title: "the same data twice at the peak",
    page: include_str!("double_buffer.md"),
    find,
};

fn find(case: &Case<'_>) -> Vec<Finding> {
    joined(case).into_iter().chain(loaded(case)).chain(copied(case)).collect()
}

/// One block as large as all that a line has collected, made while it was there.
fn joined(case: &Case<'_>) -> Option<Finding> {
    let growth = case.growth.iter().find(|it| !it.larger_each_time && Bytes::mib(8) <= it.held)?;
    let near = |it: Bytes| it.0.abs_diff(growth.held.0) * 50 < growth.held.0;
    let joined =
        case.live.iter().find(|it| near(it.size) && growth.since < case.life(it.block).alloc)?;
    let title = format!(
        "{} are on the device twice: the parts, and the whole that they were joined into",
        joined.size
    );
    let mut res = RULE.finding(Weight::Chance, joined.size, title);
    res.count = growth.blocks;
    res.at = case.line(joined.block);
    res.evidence.push(format!(
        "one block of {} while {} parts of together {} were live",
        joined.size, growth.blocks, growth.held
    ));
    res.remedy = "collect the parts on the CPU and join them there, or fill a tensor that was made at its full size".to_owned();
    Some(res)
}

/// A second copy of a whole model: the best state so far, an average.
fn copied(case: &Case<'_>) -> Option<Finding> {
    let moment = case.run.oom.unwrap_or(case.peak.event);
    let live = case.live_after(moment);
    let is_copy = |it: &&crate::prediction::origins::Live| {
        case.stage(it.block) != Stage::Setup && case.stack_says(case.stack(it.block), &["deepcopy"])
    };
    let blocks: Vec<_> = live.iter().filter(is_copy).collect();
    let bytes: Bytes = blocks.iter().map(|it| it.size).sum();
    if !case.matters(bytes, 15, Bytes::mib(32)) {
        return None;
    }
    let title = format!("{bytes} are copies of what is on the device already");
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.count = blocks.len() as u64;
    res.at = blocks.iter().max_by_key(|it| it.size).and_then(|it| case.line(it.block));
    res.blocks = blocks.iter().map(|it| it.block).collect();
    res.remedy = "keep copies on the CPU: `{name: it.detach().cpu().clone() for name, it in model.state_dict().items()}`, or save them to a file".to_owned();
    Some(res)
}

/// `torch.load` onto the device, while the model is there.
fn loaded(case: &Case<'_>) -> Option<Finding> {
    let is_load = |it: &&crate::prediction::origins::Live| {
        let stack = case.stack(it.block);
        case.stack_says(stack, &["serialization.py"])
    };
    let mut blocks = case.live.iter().filter(is_load).peekable();
    let first = *blocks.peek()?;
    let bytes: Bytes = blocks.map(|it| it.size).sum();
    let parameters = case.by_category().get(&Category::Parameters).map_or(0, |(it, _)| it.0);
    if !case.matters(bytes, 10, Bytes::mib(32))
        || parameters == 0 && case.stage(first.block) == Stage::Setup
    {
        return None;
    }
    let title =
        format!("{bytes} loaded with torch.load are on the device beside the model at the peak");
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line(first.block);
    res.remedy = "`torch.load(path, map_location=\"cpu\", mmap=True)`, then `load_state_dict`; delete the state dict afterwards".to_owned();
    Some(res)
}
