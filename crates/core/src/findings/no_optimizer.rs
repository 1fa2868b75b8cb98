//! A network that is meant to be frozen and is not: its parameters require gradients, backward passes make them, and no optimizer
//! uses them. Where nothing that is trained is before it, autograd stores its whole graph for these gradients alone.

use std::collections::BTreeSet;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{Category, origins::Live},
    recording::{Role, Unowned},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::NoOptimizer, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let graphs = case.run.recording.notes.graphs.iter();
    let unowned: Vec<&Unowned> = graphs.flat_map(|it| &it.unowned).collect();
    if unowned.is_empty() {
        return Vec::new();
    }
    let names: BTreeSet<&str> =
        unowned.iter().flat_map(|it| &it.names).map(String::as_str).collect();
    let idle: BTreeSet<&str> =
        unowned.iter().filter(|it| !it.is_needed).filter_map(|it| it.part.as_deref()).collect();
    let live = case.live_after(case.moment());
    let is_gradient = |live: &&Live| {
        let name = case.evidence.name(live.block).filter(|it| it.role == Role::Gradient);
        name.is_some_and(|it| names.contains(it.name))
    };
    // What only these gradients need.
    let is_stored = |live: &&Live| {
        let within = |path: &str| {
            let inside = |part: &&str| {
                path.strip_prefix(*part).is_some_and(|it| it.is_empty() || it.starts_with('.'))
            };
            idle.iter().any(inside)
        };
        live.category == Category::Activations && case.module(live.block).is_some_and(within)
    };
    let blocks = |is_one: &dyn Fn(&&Live) -> bool| -> Vec<BlockId> {
        live.iter().filter(is_one).map(|it| it.block).collect()
    };
    let (mut all, stored) = (blocks(&is_gradient), blocks(&is_stored));
    let (gradients, activations) = (case.sum(&all), case.sum(&stored));
    all.extend(stored);
    let bytes = gradients + activations;
    if !case.matters(bytes, 5, Bytes::mib(32)) {
        return Vec::new();
    }
    let mut parts: Vec<&str> = unowned.iter().filter_map(|it| it.part.as_deref()).collect();
    parts.sort_unstable();
    parts.dedup();
    let mut models: Vec<Option<&str>> = unowned.iter().map(|it| it.model.as_deref()).collect();
    models.dedup();
    let (whose, is) = match (&parts[..], &models[..]) {
        ([one], _) => (format!("`{one}`"), "is"),
        (_, [Some(model)]) => (format!("the network of class `{model}`"), "is"),
        _ => ("some parameters".to_owned(), "are"),
    };
    let what = match (gradients, activations) {
        (gradients, Bytes::ZERO) => format!("{gradients} of gradients"),
        (Bytes::ZERO, activations) => format!("{activations} of activations"),
        (gradients, activations) => {
            format!("{bytes} ({gradients} of gradients, {activations} of activations)")
        }
    };
    let title = format!("{whose} {is} not frozen, and no optimizer uses the gradients: {what}");
    let mut res = RULE.finding(Weight::Problem, bytes, title);
    res.step = case.step(case.moment());
    let n = names.len();
    let held: Bytes = unowned.iter().map(|it| it.bytes).sum();
    let example = names.first().copied().unwrap_or_default();
    res.evidence.push(format!("{n} parameters ({held}) require gradients, such as `{example}`"));
    res.remedy = if idle.is_empty() {
        "freeze the network before the training: `network.requires_grad_(False)`. Gradients still go through it to what is trained. If your script uses these gradients itself, nothing is wrong"
    } else {
        "freeze the network before the training (`network.requires_grad_(False)`) or call it under `with torch.no_grad():`. If your script uses these gradients itself, nothing is wrong"
    }
    .to_owned();
    res.frees(all);
    vec![res]
}
