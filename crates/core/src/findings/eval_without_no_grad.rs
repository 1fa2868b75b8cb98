//! Forward passes that no backward pass follows keep their graph: evaluation without `no_grad`.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, growth::Kind},
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::EvalWithoutNoGrad, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let growths = case.growth.iter().filter(|it| it.kind == Kind::GraphWithoutBackward);
    growths
        .map(|growth| {
            let title = format!(
                "evaluation without no_grad: the activations of {} forward passes stay allocated, though no backward pass uses them: {}",
                growth.steps, growth.bytes
            );
            let mut res = RULE.finding(Weight::Problem, growth.bytes, title);
            res.remedy = "put the loop under `with torch.no_grad():` (or `torch.inference_mode()`), and store results on the CPU: `preds.append(model(x).cpu())`. `model.eval()` alone does not switch the graph off. If this is training that first sums its losses: call backward on each".to_owned();
            growth.tell(case, &mut res);
            res
        })
        .collect()
}
