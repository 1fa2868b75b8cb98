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
                    0 | 1 => "one tensor was made longer".to_owned(),
                    n => format!("{n} tensors were each made longer about"),
                };
                format!("{which} {} times by joining (kept results, or a cache): {} by now", it.steps, it.held)
            } else {
                format!("{} of {} steps left something behind: {}, {} in each", it.steps, it.of, it.bytes, it.per_step)
            };
            let mut res = RULE.finding(Weight::Problem, it.bytes, title);
            res.remedy = if it.larger_each_time { "allocate it once at its final size and fill it, or collect parts on the CPU and join them once: `cat` in a loop copies everything each time and needs it twice" } else { "look at who keeps what this line makes (a list, a dict, an attribute, a closure, the traceback of an error) and drop it after the step; if it is made of what has a graph, `.detach()` it; if it is a buffer on purpose, give it a maximal length or keep it on the CPU" }.to_owned();
            it.tell(case, &mut res);
            res
        })
        .collect()
}
