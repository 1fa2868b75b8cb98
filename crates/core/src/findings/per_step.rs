//! Something else grows: the same line leaves memory allocated in each step, or makes the same tensor anew, larger each time.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, growth::Kind},
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::PerStep, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let growths = case.growth.iter().filter(|it| it.kind == Kind::Other);
    growths
        .map(|it| {
            let title = if it.larger_each_time {
                let which = match it.tensors {
                    0 | 1 => "one tensor grew".to_owned(),
                    n => format!("{n} tensors grew, each about"),
                };
                format!("{which} {} times by joining (stored results, or a cache): {} so far", it.steps, it.held)
            } else {
                format!("memory stays allocated after {} of {} steps: {}, {} in each", it.steps, it.of, it.bytes, it.per_step)
            };
            let mut res = RULE.finding(Weight::Problem, it.bytes, title);
            res.remedy = if it.larger_each_time { "allocate the tensor once at its final size and fill it, or collect parts on the CPU and join them once: `cat` in a loop copies everything each time and needs it twice" } else { "find the object that stores the results of this line (a list, a dict, an attribute, a closure, the traceback of an error), and empty it after the step. If the results have a graph, `.detach()` them; if this is a buffer on purpose, limit its length or store it on the CPU" }.to_owned();
            it.tell(case, &mut res);
            res
        })
        .collect()
}
