//! Twice the same bytes for a moment: what was collected is joined (`cat`, `stack`), or a checkpoint is
//! loaded onto the device beside the model.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, loaded_twice},
    prediction::{
        Category,
        origins::Live,
        stacks::{Signs, is_of_a_layer},
        timeline::Stage,
    },
    recording::CodeLine,
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::DoubleBuffer, find };

/// Fewer blocks are no parts of one whole.
const PARTS: usize = 4;
const JOIN: &str = "collect the parts on the CPU and join them there, or fill a tensor that you allocate at its full size";

fn find(case: &Case<'_>) -> Vec<Finding> {
    let joined = joined(case).or_else(|| refused(case)).or_else(|| made_longer(case));
    joined.into_iter().chain(loaded(case)).chain(copied(case)).collect()
}

/// One block as large as all that a line has collected, made while it was there.
fn joined(case: &Case<'_>) -> Option<Finding> {
    let growth = case.growth.iter().find(|it| !it.larger_each_time && Bytes::mib(8) <= it.held)?;
    let near = |it: Bytes| it.0.abs_diff(growth.held.0) * 50 < growth.held.0;
    let stack = |it: BlockId| case.run.device.events.stack(case.life(it).alloc.index());
    // What was as large before half of the parts were there is not made of them.
    let was_as_large = |it: BlockId| {
        let half_way = EventId(growth.since.0.midpoint(case.life(it).alloc.0));
        let earlier = (0..).map(BlockId).zip(&case.run.replay.blocks);
        let mut earlier = earlier.filter(|(_, life)| life.alloc < half_way && near(life.size));
        earlier.any(|(other, _)| stack(other) == stack(it))
    };
    let is_whole = |it: &&Live| {
        near(it.size)
            && growth.since < case.life(it.block).alloc
            && !is_of_a_layer(case.run.trace, stack(it.block))
            && !was_as_large(it.block)
    };
    let joined = case.live.iter().find(is_whole)?;
    let title =
        format!("joined parts are on the device twice, as parts and as a whole: {}", joined.size);
    let mut res = RULE.finding(Weight::Chance, joined.size, title);
    res.show(vec![joined.block]);
    res.at = case.line(joined.block);
    res.evidence.push(format!(
        "one block of {} was allocated while {} parts of {} in all were live",
        joined.size, growth.blocks, growth.held
    ));
    res.remedy = JOIN.to_owned();
    Some(res)
}

/// A request as large as all that one line had made before, refused while that was there.
fn refused(case: &Case<'_>) -> Option<Finding> {
    let failed = case.run.oom?;
    let event = case.run.device.events.get(failed.index());
    // Four activations add up to what the widest layer of a transformer asks for.
    if is_of_a_layer(case.run.trace, event.stack) {
        return None;
    }
    let mut by_line: BTreeMap<CodeLine, Vec<BlockId>> = BTreeMap::new();
    for it in case.live_after(failed) {
        // What a pass made is needed for the way back.
        let in_pass =
            matches!(case.stage(it.block), Stage::Forward | Stage::Loss | Stage::Backward);
        if let Some(line) = case.line(it.block).filter(|_| !in_pass) {
            by_line.entry(line).or_default().push(it.block);
        }
    }
    let sum = |it: &[BlockId]| -> Bytes { it.iter().map(|it| case.life(*it).size).sum() };
    let near = |it: Bytes| it.0.abs_diff(event.size.0) * 50 < event.size.0;
    let mut all = by_line.into_values();
    // Two or three of any size add up to something by chance; to the very request, hardly.
    let exactly = |it: Bytes| it.0.abs_diff(event.size.0) * 1000 < event.size.0;
    let is_few = |it: &[BlockId]| 2 <= it.len() && Bytes::mib(32) <= event.size && exactly(sum(it));
    let parts = all.find(|it| PARTS <= it.len() && near(sum(it)) || is_few(it))?;
    let bytes = sum(&parts);
    let title = format!(
        "joining needs the data on the device twice: {bytes} for {} parts, and {} for the whole",
        parts.len(),
        event.size
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line_of(event.stack);
    res.frees(parts);
    res.remedy = JOIN.to_owned();
    Some(res)
}

/// A pass without gradients makes anew what the pass before returned, each piece a little longer: keys and values that are joined with those of a
/// token.
fn made_longer(case: &Case<'_>) -> Option<Finding> {
    let failed = case.run.oom?;
    let timeline = &case.run.timeline;
    let begun = timeline.starts(Stage::Evaluation).filter(|it| *it <= failed).last()?;
    let mut by_size: BTreeMap<(bool, Bytes), Vec<BlockId>> = BTreeMap::new();
    for it in case.live_after(failed) {
        if case.stage(it.block) == Stage::Evaluation {
            let is_new = begun <= case.life(it.block).alloc;
            by_size.entry((is_new, case.life(it.block).requested)).or_default().push(it.block);
        }
    }
    let most = |is_new: bool| {
        let of = by_size.iter().filter(|((new, _), it)| *new == is_new && PARTS <= it.len());
        of.max_by_key(|((_, size), it)| size.0 * it.len() as u64)
    };
    let (((_, before), given), ((_, now), made)) = (most(false)?, most(true)?);
    // Keys and values may have been halves of one tensor.
    let is_longer = |part: u64| part < now.0 && (now.0 - part) * 20 <= part;
    let bytes = case.sum(given);
    if !(is_longer(before.0) || is_longer(before.0 / 2)) || !case.matters(bytes, 20, Bytes::mib(64))
    {
        return None;
    }
    let title = format!(
        "a pass makes anew what it was given, a little longer: {bytes} of the pass before, and {} so far",
        case.sum(made)
    );
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.at = made.last().and_then(|it| case.line(*it));
    res.remedy = "make it once at its final size, and write into it (`keys[:, :, at : at + n] = k` instead of `torch.cat`): what a pass is given stays until it returns, so the old one and the new one are there together".to_owned();
    res.frees(given.clone());
    Some(res)
}

/// A second copy of a whole model: the best state so far, an average.
fn copied(case: &Case<'_>) -> Option<Finding> {
    let moment = case.run.oom.unwrap_or(case.peak.event);
    let live = case.live_after(moment);
    let cloned = cloned(case, &live);
    let is_copy = |live: &&Live| {
        case.stage(live.block) != Stage::Setup && case.signs(live.block).has(Signs::DEEPCOPY)
            || cloned.contains(&live.block)
    };
    let blocks: Vec<_> = live.iter().filter(is_copy).collect();
    let bytes: Bytes = blocks.iter().map(|it| it.size).sum();
    if !case.matters(bytes, 15, Bytes::mib(32)) {
        return None;
    }
    let title = format!("copies of data that is already on the device: {bytes}");
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    let mut by_line: BTreeMap<CodeLine, Bytes> = BTreeMap::new();
    for it in &blocks {
        if let Some(line) = case.line(it.block) {
            *by_line.entry(line).or_default() += it.size;
        }
    }
    res.at = by_line.into_iter().rev().max_by_key(|(_, bytes)| *bytes).map(|(line, _)| line);
    res.frees(blocks.iter().map(|it| it.block).collect());
    res.remedy = "keep copies on the CPU: `{name: it.detach().cpu().clone() for name, it in model.state_dict().items()}`, or save them to a file".to_owned();
    Some(res)
}

/// What lines made that copied a model tensor by tensor, outside of passes: as many blocks of each size as it has weights.
fn cloned(case: &Case<'_>, live: &[Live]) -> BTreeSet<BlockId> {
    let size = |it: &Live| case.life(it.block).requested;
    let mut weights: BTreeMap<Bytes, u64> = BTreeMap::new();
    for it in live.iter().filter(|it| it.category == Category::Parameters) {
        *weights.entry(size(it)).or_default() += 1;
    }
    if weights.values().sum::<u64>() < PARTS as u64 {
        return BTreeSet::new();
    }
    let all: u64 = weights.iter().map(|(size, n)| size.0 * n).sum();
    let collected: BTreeSet<BlockId> =
        case.growth.iter().flat_map(|it| it.older.iter().copied()).collect();
    let is_made = |live: &&Live| {
        let signs = case.signs(live.block);
        let others = [Signs::MODULE, Signs::OPTIMIZER, Signs::BACKWARD, Signs::APPLY, Signs::BUILT];
        !matches!(case.stage(live.block), Stage::Setup | Stage::Backward | Stage::Optimizer)
            && !others.iter().any(|it| signs.has(*it))
            && !matches!(
                live.category,
                Category::Parameters | Category::Gradients | Category::OptimizerState
            )
            && weights.contains_key(&size(live))
            && !collected.contains(&live.block)
    };
    let mut by_line: BTreeMap<CodeLine, Vec<Live>> = BTreeMap::new();
    for it in live.iter().filter(is_made) {
        if let Some(line) = case.line(it.block) {
            by_line.entry(line).or_default().push(*it);
        }
    }
    by_line.retain(|_, blocks| {
        let mut copied: BTreeMap<Bytes, u64> = BTreeMap::new();
        blocks.iter().for_each(|it| *copied.entry(size(it)).or_default() += 1);
        let found: u64 = copied.iter().map(|(size, n)| size.0 * (*n).min(weights[size])).sum();
        all / 10 * 9 <= found
    });
    by_line.into_values().flatten().map(|it| it.block).collect()
}

/// `torch.load` onto the device, while the model is there. A state dict of nothing but its weights is `loaded_twice`'s.
fn loaded(case: &Case<'_>) -> Option<Finding> {
    if loaded_twice::state_dict(case).is_some() {
        return None;
    }
    // What a model or its optimizer took over is in use, and no second copy.
    let in_use = |category: Category| {
        matches!(category, Category::Parameters | Category::Buffers | Category::OptimizerState)
    };
    let is_load = |live: &&Live| {
        let named = case.evidence.name(live.block).is_some();
        case.signs(live.block).has(Signs::LOADED) && !(named && in_use(live.category))
    };
    let loaded: Vec<&Live> = case.live.iter().filter(is_load).collect();
    let first = *loaded.first()?;
    let bytes: Bytes = loaded.iter().map(|it| it.size).sum();
    let parameters = case.by_category().get(&Category::Parameters).map_or(0, |(it, _)| it.0);
    if !case.matters(bytes, 2, Bytes::mib(32))
        || parameters == 0 && case.stage(first.block) == Stage::Setup
    {
        return None;
    }
    let title =
        format!("the data of torch.load is on the device beside the model at the peak: {bytes}");
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line(first.block);
    res.show(loaded.iter().map(|it| it.block).collect());
    res.remedy = "`torch.load(path, map_location=\"cpu\", mmap=True)`, then `load_state_dict`; delete the state dict afterwards".to_owned();
    Some(res)
}
