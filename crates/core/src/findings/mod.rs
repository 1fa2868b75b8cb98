//! What is wrong with a run's memory, or could be had back. One file is one kind of problem: its code,
//! its manual page, its check. A rule reads a `Case` and returns what it found; it changes nothing and
//! calls no other rule.
//!
//! A code never changes its meaning, because people search for it.

mod accumulation;
mod all_on_device;
mod all_trainable;
mod began_late;
mod case;
mod cast_copies;
mod dense_table;
mod double_buffer;
mod dynamic_shapes;
mod earlier_models;
mod eval_without_no_grad;
mod finding;
mod first_gpu;
mod first_step;
mod foreach;
mod fragmentation;
mod gradients_kept;
mod graph_retained;
mod growth;
mod host_grows;
mod host_nearly_full;
mod host_swaps;
mod idle_checkpointing;
mod idle_graph;
mod idle_passes;
mod idle_pools;
mod idle_streams;
mod idle_weights;
mod keepers;
mod kv_cache;
mod large_evaluation;
mod loaded_twice;
mod made_again;
mod many_passes;
mod no_optimizer;
mod not_quantized;
mod one_allocation;
mod outside;
mod padding;
mod peak;
mod per_step;
mod repeated_casts;
mod results_kept;
mod ring;
mod step_before;
mod streams;
mod traceback_kept;
mod unfolded;
mod unrolled_loop;
mod unused_graph;
mod what_if;
mod whole_volume;
mod workspaces;
mod written_out_attention;

pub use case::Window;
pub(crate) use case::{Case, as_rounded};
pub(crate) use growth::Kind;
pub(crate) use keepers::{as_large_when_dense, holders};

pub use finding::{Finding, Rule, Weight};
pub(crate) use finding::{blocks, category_name, place};
pub(crate) use fragmentation::is_much as is_much_slack;
pub(crate) use one_allocation::{IN_CHUNKS, are_a_few, are_apart};

use std::collections::BTreeSet;

use crate::{
    codes::{ProblemCode, RemarkCode},
    prediction::{categories::Evidence, device_run::DeviceRun},
    recording::{EndReason, Later},
    replay::BlockId,
};

/// Every rule, in the order of its codes.
pub const RULES: &[Rule] = &[
    graph_retained::RULE,
    eval_without_no_grad::RULE,
    unused_graph::RULE,
    results_kept::RULE,
    traceback_kept::RULE,
    earlier_models::RULE,
    per_step::RULE,
    kv_cache::RULE,
    fragmentation::RULE,
    one_allocation::RULE,
    foreach::RULE,
    idle_checkpointing::RULE,
    written_out_attention::RULE,
    repeated_casts::RULE,
    cast_copies::RULE,
    made_again::RULE,
    no_optimizer::RULE,
    dense_table::RULE,
    unfolded::RULE,
    padding::RULE,
    large_evaluation::RULE,
    whole_volume::RULE,
    step_before::RULE,
    many_passes::RULE,
    unrolled_loop::RULE,
    gradients_kept::RULE,
    double_buffer::RULE,
    loaded_twice::RULE,
    idle_weights::RULE,
    not_quantized::RULE,
    all_trainable::RULE,
    dynamic_shapes::RULE,
    all_on_device::RULE,
    streams::RULE,
    idle_streams::RULE,
    idle_pools::RULE,
    workspaces::RULE,
    first_gpu::RULE,
    outside::RULE,
    first_step::RULE,
    host_grows::RULE,
    host_nearly_full::RULE,
    host_swaps::RULE,
    peak::RULE,
    ring::RULE,
    began_late::RULE,
];

/// What the rules read of one device of a recording.
pub(crate) fn case<'a>(run: &'a DeviceRun<'a>, evidence: &'a Evidence<'a>) -> Case<'a> {
    let mut res = Case::new(run, evidence);
    res.growth = accumulation::growths(&res);
    // Parts that are joined each so many steps were given back the time before.
    if let Some((block, _)) = step_before::the_time_before(&res) {
        let whole = res.life(block).size;
        res.growth.retain(|it| whole.0 / 8 < it.held.0.abs_diff(whole.0));
    }
    res.idle = idle_passes::at(&res, run.oom.unwrap_or(res.peak.event));
    if res.has_remark(RemarkCode::OpenAutocast) {
        for it in res.growth.iter_mut().filter(|it| it.kind.is_graph()) {
            it.kind = Kind::Casts;
            res.idle = None;
        }
    }
    // Passes that are evaluations leave no training's graph behind, although training goes on around them.
    let line = res.idle.as_ref().and_then(|it| it.at.clone());
    for it in res.growth.iter_mut().filter(|it| it.kind == Kind::Graph) {
        if line.is_some() && it.at == line {
            it.kind = Kind::GraphWithoutBackward;
        }
    }
    res
}

/// Everything that the rules find, in order.
pub(crate) fn find(case: &Case<'_>) -> Vec<Finding> {
    // What another thread replays meanwhile is asked for last.
    let (late, rules): (Vec<&Rule>, Vec<&Rule>) =
        RULES.iter().partition(|it| it.code == ProblemCode::Slack);
    let mut res: Vec<Finding> = rules.iter().chain(&late).flat_map(|it| (it.find)(case)).collect();
    let end = case.run.recording.notes.end.as_ref();
    let is_cut = |it: Later| it.epochs_cut || it.evaluation_cut;
    let is_over = end.is_some_and(|it| it.why == EndReason::Exit && !it.later.is_some_and(is_cut));
    for it in &mut res {
        it.device = case.run.index;
        it.is_over = is_over;
    }
    // What is large, or of an earlier step, is told by what it is, where a rule knows that.
    let names = res.iter().filter(|it| it.code.names_its_blocks());
    let named: BTreeSet<BlockId> = names.flat_map(|it| it.shown.iter().copied()).collect();
    res.retain(|finding| {
        let is_general =
            matches!(finding.code, ProblemCode::OneAllocation | ProblemCode::GradientsKept);
        let told = finding.shown.iter().filter(|it| named.contains(it)).count();
        !is_general || told * 2 <= finding.shown.len()
    });
    // Calls that wait for a backward pass with copies of weights, most of all, are told by these.
    let again = res.iter().filter(|it| it.code == ProblemCode::MadeAgain);
    let again: BTreeSet<BlockId> = again.flat_map(|it| it.blocks.iter().copied()).collect();
    res.retain(|it| {
        let copies = it.shown.iter().filter(|it| again.contains(it)).count();
        it.code != ProblemCode::ManyPasses || copies * 2 <= it.shown.len()
    });
    // So are turns of a loop.
    res.retain(|it| {
        let copies = it.shown.iter().filter(|it| again.contains(it));
        let copies: u64 = copies.map(|it| case.life(*it).size.0).sum();
        it.code != ProblemCode::UnrolledLoop || copies <= case.sum(&it.shown).0 / 2
    });
    // What a line made the time before is no part of what it joins.
    let before = res.iter().filter(|it| it.code == ProblemCode::StepBefore);
    let before: BTreeSet<BlockId> = before.flat_map(|it| it.blocks.iter().copied()).collect();
    res.retain(|it| {
        it.code != ProblemCode::DoubleBuffer || !it.blocks.iter().any(|it| before.contains(it))
    });
    keepers::name(case, &mut res);
    // Of models that are over, all is told with them.
    let earlier = res.iter().filter(|it| it.code == ProblemCode::EarlierModels);
    let earlier: BTreeSet<BlockId> = earlier.flat_map(|it| it.blocks.iter().copied()).collect();
    res.retain_mut(|it| {
        it.code != ProblemCode::GradientsKept || gradients_kept::without(case, it, &earlier)
    });
    sort(&mut res);
    res
}

/// What decides first stands first, in every report.
pub(crate) fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(Finding::order);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_with_a_page_has_its_rule_and_each_page_says_what_it_is_about() {
        let with_page = ProblemCode::ALL.iter().filter(|it| it.page().is_some()).copied();
        let of_rules = RULES.iter().map(|it| it.code);
        assert_eq!(with_page.collect::<Vec<_>>(), of_rules.collect::<Vec<_>>());
        for (code, page) in ProblemCode::ALL.iter().filter_map(|it| Some((it, it.page()?))) {
            assert_eq!(page.lines().next().unwrap(), format!("# {code}"));
            for part in ["## What it means", "## What to change", "## What it cannot know"] {
                assert!(page.contains(part), "{code}: {part}");
            }
        }
    }
}
