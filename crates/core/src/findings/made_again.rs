//! Weights that each call of a layer makes anew, and that each wait for the backward pass: what a parametrization computes (weight normalisation), and
//! what cuDNN joins where the weights of a recurrent layer are no single piece of memory.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, as_rounded},
    prediction::{Category, stacks::Signs},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::MadeAgain, find };

/// Fewer calls are those of layers that share a weight.
const LEAST: usize = 4;

fn find(case: &Case<'_>) -> Vec<Finding> {
    let live = case.live_after(case.moment());
    let is_made = |category: Category| {
        matches!(
            category,
            Category::Activations | Category::Temporaries | Category::Retained | Category::Unknown
        )
    };
    let made = || live.iter().filter(|it| is_made(it.category)).map(|it| it.block);
    let computed = made().filter(|it| case.signs(*it).has(Signs::PARAMETRIZED)).collect();
    let in_pieces: BTreeMap<u64, &str> = (case.run.recording.notes.in_pieces.iter())
        .map(|it| (as_rounded(it.bytes), it.module.as_str()))
        .collect();
    let layer = |block: &BlockId| in_pieces.get(&as_rounded(case.life(*block).requested)).copied();
    let joined: Vec<BlockId> = made().filter(|it| layer(it).is_some()).collect();
    let name = joined.first().and_then(layer).unwrap_or_default();
    let of_cudnn = format!("cuDNN joins the weights of `{name}` into one piece in each call");
    [
        (
            computed,
            "parametrizations (weight normalisation, for example) compute weights anew in each call".to_owned(),
            "compute them once for all calls of a step: `with torch.nn.utils.parametrize.cached():` around the loop that calls the layer (weight_norm and spectral_norm of `torch.nn.utils.parametrizations`; the older `torch.nn.utils.weight_norm` has no such cache)".to_owned(),
        ),
        (
            joined,
            of_cudnn,
            format!("call `{name}.flatten_parameters()` once after its weights were set, loaded or moved one by one; or give it the whole sequence in one call"),
        ),
    ]
    .into_iter()
    .filter_map(|(blocks, what, remedy)| of(case, blocks, &what, remedy))
    .collect()
}

fn of(case: &Case<'_>, blocks: Vec<BlockId>, what: &str, remedy: String) -> Option<Finding> {
    let mut by_size: BTreeMap<Bytes, Vec<BlockId>> = BTreeMap::new();
    for it in blocks {
        by_size.entry(case.life(it).requested).or_default().push(it);
    }
    // One of each is needed.
    by_size.retain(|_, it| LEAST <= it.len());
    let calls = by_size.values().map(Vec::len).max()?;
    let extra: Vec<BlockId> = by_size.into_values().flat_map(|it| it.into_iter().skip(1)).collect();
    let bytes = case.sum(&extra);
    if !case.matters(bytes, 15, Bytes::mib(64)) {
        return None;
    }
    let title = format!("{what}, and {calls} copies wait for the backward pass: {bytes}");
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line_of_most(&extra);
    res.step = case.step(case.moment());
    res.remedy = remedy;
    res.frees(extra);
    Some(res)
}
