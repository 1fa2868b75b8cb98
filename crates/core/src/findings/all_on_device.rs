//! The whole data set is on the device before training begins: many blocks alike, made by one line, outside of any model. Or one variable
//! holds most of what a pass without gradients made.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, keepers},
    prediction::{Category, stacks::Signs, timeline::Stage},
    recording::CodeLine,
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::AllOnDevice, find };

/// Fewer blocks are a table, a buffer, a batch that is used again.
const LEAST_BLOCKS: usize = 16;
/// Enough where they are most of all.
const FEW_BLOCKS: usize = 4;
/// Variables of transformers that collect what layers return.
const OUTPUTS_OF_LAYERS: [&str; 4] =
    ["collected_outputs", "all_self_attentions", "all_attentions", "all_hidden_states"];

fn find(case: &Case<'_>) -> Vec<Finding> {
    let moment = case.run.oom.unwrap_or(case.peak.event);
    // What is made after a first forward pass may be its result.
    let timeline = &case.run.timeline;
    let passes = timeline.starts(Stage::Forward).chain(timeline.starts(Stage::Evaluation));
    let first = passes.min().unwrap_or(timeline.end());
    let mut by_line: BTreeMap<CodeLine, Vec<BlockId>> = BTreeMap::new();
    for it in case.live_after(moment) {
        let of_a_model = [Signs::MODULE, Signs::APPLY, Signs::BUILT, Signs::OPTIMIZER];
        let signs = case.signs(it.block);
        let is_data =
            matches!(it.category, Category::Retained | Category::Inputs | Category::Unknown)
                && case.stage(it.block) == Stage::Setup
                && case.life(it.block).alloc <= first
                && !of_a_model.iter().any(|it| signs.has(*it));
        if let Some(line) = case.line(it.block).filter(|_| is_data) {
            by_line.entry(line).or_default().push(it.block);
        }
    }
    // What is made longer as the program goes on is no data that was there before.
    by_line.retain(|line, _| {
        !case.growth.iter().any(|it| it.larger_each_time && it.at.as_ref() == Some(line))
    });
    let size = |it: &BlockId| case.life(*it).size;
    let sum = |it: &[BlockId]| -> Bytes { it.iter().map(size).sum() };
    let most = by_line.into_iter().max_by_key(|(_, blocks)| sum(blocks));
    let Some((line, blocks)) = most.filter(|it| LEAST_BLOCKS <= it.1.len()) else {
        return of_an_evaluation(case).into_iter().collect();
    };
    let bytes = sum(&blocks);
    if !case.matters(bytes, 20, Bytes::mib(64)) || are_weights(case, &blocks) {
        return of_an_evaluation(case).into_iter().collect();
    }
    let begins =
        if timeline.has(Stage::Backward) { "training begins" } else { "the first forward pass" };
    let computed = are_computed(case, &line, &blocks);
    let what = if computed { "all results of one line stay" } else { "all data is" };
    let title = format!(
        "{what} on the device before {begins}: {bytes} in {} blocks of one line",
        blocks.len()
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = Some(line);
    res.remedy = if computed { "use each result as soon as it is computed, and let the next one take its variable; or move each to the CPU (`.cpu()`)" } else { "keep the data on the CPU and move each batch as it comes: a DataLoader with `pin_memory=True`, then `x = x.cuda(non_blocking=True)` in the loop" }.to_owned();
    res.frees(blocks);
    vec![res]
}

/// What one variable of the script collected in the pass without gradients that ran out: a statistic of each layer.
fn of_an_evaluation(case: &Case<'_>) -> Option<Finding> {
    case.run.oom?;
    let is_made = |category: Category| {
        matches!(
            category,
            Category::Activations | Category::Temporaries | Category::Retained | Category::Unknown
        )
    };
    let live = case.live_after(case.moment());
    // Passes that several threads make at a time have one mark.
    let trains = case.run.timeline.has(Stage::Backward);
    let made: Vec<BlockId> = (live.iter())
        .filter(|it| is_made(it.category) && (!trains || case.stage(it.block) == Stage::Evaluation))
        .map(|it| it.block)
        .collect();
    let (keeper, blocks) = keepers::collected(case, &made)?;
    let bytes = case.sum(&blocks);
    let is_told = case.growth.iter().any(|it| bytes.0 / 2 < it.held.0);
    // A few, if they have most of what is there.
    let all = case.at_oom.map_or(Bytes::ZERO, |it| it.allocated);
    let least = if all.0 / 2 < bytes.0 { FEW_BLOCKS } else { LEAST_BLOCKS };
    if is_told || blocks.len() < least || !case.matters(bytes, 30, Bytes::mib(64)) {
        return None;
    }
    let name = keeper.name.trim_end_matches("[...]");
    let is_of_layers = OUTPUTS_OF_LAYERS.contains(&name);
    let (title, remedy) = match name.rsplit_once("_modules[...].") {
        // Those of transformers' own functions.
        _ if is_of_layers => (
            format!("the model collects what each layer returns: {bytes} in {} tensors so far", blocks.len()),
            "without `output_attentions=True` and `output_hidden_states=True` it collects none of them; where you need one layer's, store it by a hook on that layer; or use fewer or shorter inputs at a time".to_owned(),
        ),
        it => of_a_variable(it, name, bytes, blocks.len()),
    };
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    let called = || blocks.last().and_then(|it| case.line(*it));
    res.at = if is_of_layers { called() } else { keeper.at.clone() };
    res.remedy = remedy;
    res.frees(blocks);
    Some(res)
}

/// The title and the remedy.
fn of_a_variable(
    of_modules: Option<(&str, &str)>,
    name: &str,
    bytes: Bytes,
    n: usize,
) -> (String, String) {
    match of_modules {
        Some((_, attribute)) => (
            format!("modules store {bytes} in their attribute `{attribute}`, {n} tensors of one pass"),
            format!(
                "compute it where it is used, and do not store it; or delete `{attribute}` (or what it is computed from) when the module is done"
            ),
        ),
        None => (
            format!("`{name}` holds {bytes} in {n} tensors, and each forward pass may add to it"),
            "store only what is used of it, and use it as soon as it is complete, one layer or one part at a time; or store it on the CPU (`.cpu()`)".to_owned(),
        ),
    }
}

/// Whether the line computes them: on its way to most of them it made something as large, which it gave back. What only moves data makes nothing else.
fn are_computed(case: &Case<'_>, line: &CodeLine, blocks: &[BlockId]) -> bool {
    let least = blocks.iter().map(|it| case.life(*it).size).min().unwrap_or_default();
    let until = blocks.iter().map(|it| case.life(*it).alloc).max().unwrap_or(EventId(0));
    let made = (0..).map(BlockId).zip(&case.run.replay.blocks).take_while(|it| it.1.alloc <= until);
    let on_the_way = made.filter(|(block, life)| {
        least <= life.size
            && life.free.is_some_and(|free| free <= until)
            && case.line(*block).as_ref() == Some(line)
    });
    blocks.len() <= 2 * on_the_way.count()
}

/// Weights that somebody makes by hand get gradients of their sizes.
fn are_weights(case: &Case<'_>, blocks: &[BlockId]) -> bool {
    let mut sizes: BTreeMap<Bytes, usize> = BTreeMap::new();
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        if case.stage(block) == Stage::Backward {
            *sizes.entry(life.requested).or_default() += 1;
        }
    }
    let with = blocks.iter().filter(|it| sizes.contains_key(&case.life(**it).requested)).count();
    blocks.len() <= with * 2
}
