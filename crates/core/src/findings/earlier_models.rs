//! Models of earlier experiments are still there: a sweep, folds, a notebook's cell that ran again.
//!
//! A line that moves or builds a model does it again after a backward pass, and what it made before is still live. With it
//! go the gradients and states of its time that have the sizes of its parameters.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, origins::Live, stacks::Signs, timeline::Stage},
    recording::CodeLine,
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::EarlierModels, find };

/// Of each parameter: its gradient, and the two states of Adam.
const MOST_BESIDE: u32 = 3;
/// The model's own states may have been made between its first copy and its next.
const MOST_COPIES: u64 = 1;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let moment = case.run.oom.unwrap_or(case.peak.event);
    let live = case.live_after(moment);
    let mut by_line: BTreeMap<(bool, CodeLine), Vec<Live>> = BTreeMap::new();
    // A copy is no model of an experiment, unless it was trained itself.
    for (is_copy, is_one) in [(false, is_of_a_model as IsOne), (true, is_copied)] {
        for it in live.iter().filter(|it| is_one(case, it.block)) {
            if let Some(line) = case.line(it.block) {
                by_line.entry((is_copy, line)).or_default().push(*it);
            }
        }
    }
    let backward: Vec<EventId> = case.run.timeline.starts(Stage::Backward).collect();
    let found = by_line.into_iter().filter_map(|((is_copy, line), blocks)| {
        let models = models(case, &backward, blocks);
        let (newest, earlier) = models.split_last()?;
        let is_one = if is_copy { is_copied } else { is_of_a_model };
        if earlier.is_empty() || all_are_trained(case, is_one, &models, moment) {
            return None;
        }
        let res = Earlier::of(case, &live, newest, earlier);
        let are_models = !is_copy || MOST_COPIES < res.models && res.with_states == res.models;
        are_models.then_some((line, res))
    });
    let most = found.max_by_key(|(_, it)| it.bytes);
    let Some((line, it)) = most.filter(|(_, it)| case.matters(it.bytes, 10, Bytes::mib(32))) else {
        return Vec::new();
    };
    let (what, whose) = match it.models {
        1 => ("an earlier model is".to_owned(), "its"),
        n => (format!("{n} earlier models are"), "their"),
    };
    // A copy that only stores weights has nothing beside them.
    let with = match (it.parameters < it.bytes, it.with_states) {
        (false, _) => String::new(),
        (true, 0) => format!(", with {whose} gradients"),
        (true, _) => format!(", with {whose} gradients and optimizer states"),
    };
    let title = format!("{what} still on the device{with}: {}", it.bytes);
    // They may be teachers, or parts of an ensemble; nobody needs their optimizers then.
    let weight = if it.with_states != 0 { Weight::Problem } else { Weight::Chance };
    let mut res = RULE.finding(weight, it.bytes, title);
    res.count = it.models;
    // Each further experiment leaves one more.
    res.per_step = Bytes(it.bytes.0 / it.models.max(1));
    res.at = Some(line);
    res.evidence.push(format!(
        "one line made {} models, with a backward pass between each two: {} of parameters, {} of gradients and optimizer states",
        it.models + 1,
        it.parameters,
        it.bytes.saturating_sub(it.parameters)
    ));
    res.remedy = "store numbers, not models (`results[rate] = loss.item()`), and delete the model, its optimizer and its scheduler before you make the next: `del model, optimizer`, then `gc.collect()`. In a notebook, `_`, `Out` and the last error hold them too. If you still use the earlier models, nothing is wrong".to_owned();
    res.blocks.clone_from(&it.blocks);
    res.shown = it.blocks;
    vec![res]
}

type IsOne = fn(&Case<'_>, BlockId) -> bool;

fn is_copied(case: &Case<'_>, block: BlockId) -> bool {
    case.signs(block).has(Signs::DEEPCOPY)
}

fn is_of_a_model(case: &Case<'_>, block: BlockId) -> bool {
    let signs = case.signs(block);
    let is_made = signs.has(Signs::APPLY) || signs.has(Signs::BUILT);
    is_made && !signs.has(Signs::OPTIMIZER)
}

/// What one line made, cut where a backward pass began in between.
fn models(case: &Case<'_>, backward: &[EventId], blocks: Vec<Live>) -> Vec<Vec<Live>> {
    let time = |it: &Live| backward.partition_point(|begin| *begin <= case.life(it.block).alloc);
    blocks.chunk_by(|a, b| time(a) == time(b)).map(<[Live]>::to_vec).collect()
}

/// Whether all of them were trained side by side once several were there: stages that are added, experts, an actor beside its
/// critics. There are as many gradients at once as parameters then, all of them made since the last model was.
fn all_are_trained(case: &Case<'_>, is_one: IsOne, models: &[Vec<Live>], moment: EventId) -> bool {
    let made = |it: Option<&Live>| it.map(|it| case.life(it.block).alloc);
    let births = || models.iter().filter_map(|it| made(it.last()));
    let ends = models.iter().skip(1).filter_map(|it| made(it.first())).chain([moment]);
    let trains = |(born, end): &(EventId, EventId)| {
        case.run.timeline.starts(Stage::Backward).any(|it| *born <= it && it < *end)
    };
    let with_others = births().zip(ends).skip(1);
    let Some((born, end)) = with_others.filter(trains).last() else { return false };
    let mut parameters: BTreeMap<Bytes, u64> = BTreeMap::new();
    for it in case.live_after(born).iter().filter(|it| is_one(case, it.block)) {
        *parameters.entry(case.life(it.block).requested).or_default() += 1;
    }
    // When each gradient of a parameter's size comes and goes.
    let mut changes: BTreeMap<Bytes, Vec<(EventId, bool)>> = BTreeMap::new();
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        if born <= life.alloc
            && life.alloc < end
            && parameters.contains_key(&life.requested)
            && case.evidence.category(block) == Category::Gradients
        {
            let changes = changes.entry(life.requested).or_default();
            changes.push((life.alloc, true));
            changes.extend(life.free.map(|it| (it, false)));
        }
    }
    let mut all = Bytes::ZERO;
    let mut trained = Bytes::ZERO;
    for (size, n) in parameters {
        let mut changes = changes.remove(&size).unwrap_or_default();
        changes.sort_unstable();
        let (mut now, mut most) = (0_u64, 0_u64);
        for (_, comes) in changes {
            now = if comes { now + 1 } else { now.saturating_sub(1) };
            most = most.max(now);
        }
        all += Bytes(size.0 * n);
        trained += Bytes(size.0 * n.min(most));
    }
    all.0 / 10 * 9 <= trained.0
}

/// What is left of earlier models.
struct Earlier {
    models: u64,
    parameters: Bytes,
    /// Parameters, gradients and states.
    bytes: Bytes,
    /// How many of them were trained.
    with_states: u64,
    blocks: Vec<BlockId>,
}

impl Earlier {
    fn of(case: &Case<'_>, live: &[Live], newest: &[Live], earlier: &[Vec<Live>]) -> Earlier {
        let made = |it: &Live| case.life(it.block).alloc;
        let mut blocks: Vec<BlockId> = earlier.iter().flatten().map(|it| it.block).collect();
        let parameters = earlier.iter().flatten().map(|it| it.size).sum();
        let mut with_states = 0;
        let ends = earlier.iter().skip(1).map(Vec::as_slice).chain([newest]);
        for (model, next) in earlier.iter().zip(ends) {
            let (Some(begin), Some(end)) = (model.first().map(made), next.first().map(made)) else {
                continue;
            };
            let mut has_states = false;
            let mut beside: BTreeMap<Bytes, u32> = BTreeMap::new();
            for it in model {
                *beside.entry(case.life(it.block).requested).or_default() += MOST_BESIDE;
            }
            for it in live.iter().filter(|it| begin < made(it) && made(it) < end) {
                let left = beside.get_mut(&case.life(it.block).requested).filter(|it| 0 < **it);
                let is_state = case.signs(it.block).has(Signs::OPTIMIZER);
                if let Some(left) = left.filter(|_| is_state || it.category == Category::Gradients)
                {
                    *left -= 1;
                    has_states |= is_state;
                    blocks.push(it.block);
                }
            }
            with_states += u64::from(has_states);
        }
        blocks.sort_unstable();
        let bytes = blocks.iter().map(|it| case.life(*it).size).sum();
        Earlier { models: earlier.len() as u64, parameters, bytes, with_states, blocks }
    }
}
