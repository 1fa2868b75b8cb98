//! The graph of earlier steps is still there: losses or outputs in a list, `total += loss`, `retain_graph`.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, growth::Kind},
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::GraphRetained, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
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
