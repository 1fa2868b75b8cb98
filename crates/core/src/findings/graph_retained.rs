//! The graph of earlier steps is still there: losses or outputs in a list, `total += loss`, `retain_graph`. Or that of a backward pass of the same
//! step, which `retain_graph=True` leaves.

use crate::{
    codes::{ProblemCode, RemarkCode},
    findings::{Case, Finding, Rule, Weight, growth::Kind},
    prediction::{Category, timeline::Stage},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::GraphRetained, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let of_steps = of_steps(case);
    if of_steps.is_empty() { of_this_step(case).into_iter().collect() } else { of_steps }
}

/// What a backward pass of this step went through, and is still there when the step goes on.
fn of_this_step(case: &Case<'_>) -> Option<Finding> {
    if !case.has_remark(RemarkCode::RetainsGraph) {
        return None;
    }
    let (moment, timeline) = (case.moment(), &case.run.timeline);
    let step = timeline.steps_before(moment);
    let begin = timeline
        .stretches()
        .filter(|(_, end, stage)| *stage == Stage::Backward && *end <= moment)
        .map(|(begin, _, _)| begin)
        .filter(|it| timeline.steps_before(*it) == step || timeline.steps_before(*it) + 1 == step)
        .last()?;
    let is_of_graph = |block: BlockId, category: Category| {
        let made = case.life(block).alloc;
        made < begin
            && step <= timeline.steps_before(made) + 1
            && matches!(timeline.stage(made), Stage::Forward | Stage::Loss)
            && matches!(category, Category::Activations | Category::Temporaries)
            && case.evidence.name(block).is_none()
    };
    let live = case.live_after(moment);
    let blocks: Vec<BlockId> =
        live.iter().filter(|it| is_of_graph(it.block, it.category)).map(|it| it.block).collect();
    let bytes = case.sum(&blocks);
    if blocks.len() < 2 || !case.matters(bytes, 20, Bytes::mib(64)) {
        return None;
    }
    let title = format!(
        "the graph that `backward(retain_graph=True)` went through is still there while the step goes on: {bytes}"
    );
    let mut res = RULE.finding(Weight::Chance, bytes, title);
    res.at = case.line_of_most(&blocks);
    res.step = case.step(moment);
    res.remedy = "add up losses of one graph and call `backward()` once; or keep the first loss off what the second goes back through (`discriminator(fake.detach())`), and drop `retain_graph=True`".to_owned();
    res.frees(blocks);
    Some(res)
}

fn of_steps(case: &Case<'_>) -> Vec<Finding> {
    let growths = case.growth.iter().filter(|it| it.kind == Kind::Graph);
    growths
        .map(|growth| {
            let title = format!(
                "{} of {} {} leave their autograd graph allocated: {} of activations that no later step needs",
                growth.steps, growth.of, growth.steps_are.several(), growth.bytes
            );
            let mut res = RULE.finding(Weight::Problem, growth.bytes, title);
            res.remedy = "store numbers, not tensors with a graph: `losses.append(loss.detach())` or `loss.item()`, `total += loss.item()`; no `retain_graph=True` unless backward uses the same graph twice (for the gradient of a gradient, `create_graph=True` is enough, and its results must not be stored). If you sum losses on purpose, call backward on each".to_owned();
            growth.tell(case, &mut res);
            res
        })
        .collect()
}
