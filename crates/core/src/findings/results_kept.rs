//! Results of each step stay on the device: outputs, losses or metrics in a list. No graph hangs on them, or a small one.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, growth::Kind},
    prediction::Category,
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::ResultsKept, find };

/// The smallest block there is: a number.
const NUMBER: Bytes = Bytes(512);

fn find(case: &Case<'_>) -> Vec<Finding> {
    let growths = case.growth.iter().filter(|it| it.kind == Kind::Results);
    growths
        .map(|growth| {
            let size = |gradients: bool| -> Bytes {
                let of_kind = |block: &&BlockId| {
                    !gradients || case.evidence.category(**block) == Category::Gradients
                };
                growth.older.iter().filter(of_kind).map(|it| case.life(*it).size).sum()
            };
            let what = if size(false).0 / 2 < size(true).0 { "gradients" } else { "results" };
            let is_given_back = growth.is_given_back(case);
            let until = if is_given_back { " until all are given back" } else { "" };
            let title = format!("{what} of {} {} stay on the device{until}: {}, {} more in each", growth.steps, growth.steps_are.several(), growth.bytes, growth.per_step);
            let weight = if is_given_back { Weight::Chance } else { Weight::Problem };
            let mut res = RULE.finding(weight, growth.bytes, title);
            res.remedy = if what == "gradients" {
                "find who stores these gradients (a list, a hook, the `.grad` of a tensor that is no parameter), and empty that after the step; to look at gradients later, store `it.cpu()` or their norm"
            } else {
                "move each one at once with `.cpu()` or `.item()`, or store a running sum; if they have a graph, `.detach()` first"
            }
            .to_owned();
            // A number each: a loss that is logged.
            if growth.older.iter().all(|it| case.life(*it).size <= NUMBER) {
                res.remedy = "each is a single number: store its `.item()`, a Python number, instead of the tensor. That waits for the GPU, so do it every tenth step, or leave the list on the device and read it once with `torch.stack(values).tolist()`".to_owned();
            }
            growth.tell(case, &mut res);
            res
        })
        .collect()
}
