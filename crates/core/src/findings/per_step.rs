//! Something else grows: the same line leaves memory allocated in each step, or makes the same tensor anew, larger each time.

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight, growth::Kind},
    prediction::{stacks::Signs, timeline::Stage},
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::PerStep, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let growths = case.growth.iter().filter(|it| it.kind == Kind::Other);
    growths
        .map(|growth| {
            // A program that never trains makes results, and nothing else.
            let timeline = &case.run.timeline;
            let are_results = timeline.marked
                && timeline.has(Stage::Evaluation)
                && !timeline.has(Stage::Backward)
                && timeline.starts(Stage::Evaluation).any(|begin| begin < growth.since);
            let is_collected = growth.counted.iter().any(|block| case.signs(*block).has(Signs::COLLECTED));
            let title = if is_collected {
                format!("the Trainer's evaluation collects the logits of all batches on the GPU: {} after {} batches", growth.held, growth.steps + 1)
            } else if growth.larger_each_time {
                let which = match growth.tensors {
                    0 | 1 => "one tensor grew".to_owned(),
                    n => format!("{n} tensors grew, each about"),
                };
                format!("{which} {} times by joining (stored results, or a cache): {} so far", growth.steps, growth.held)
            } else if are_results {
                format!("results of {} of {} forward passes stay on the device: {}, {} of each", growth.steps, growth.of, growth.bytes, growth.per_step)
            } else {
                format!("memory stays allocated after {} of {} steps: {}, {} in each", growth.steps, growth.of, growth.bytes, growth.per_step)
            };
            let mut res = RULE.finding(Weight::Problem, growth.bytes, title);
            res.remedy = if is_collected { "set `eval_accumulation_steps=8` in TrainingArguments: the Trainer then moves the logits to host memory after so many batches; or return only what `compute_metrics` needs from `preprocess_logits_for_metrics` (`logits.argmax(-1)`)" } else if growth.larger_each_time { "allocate the tensor once at its final size and fill it, or collect parts on the CPU and join them once: `cat` in a loop copies everything each time and needs it twice" } else if are_results { "store them on the CPU: `results.append(it.cpu())`, or write each part into one tensor there" } else { "find the object that stores the results of this line (a list, a dict, an attribute, a closure, the traceback of an error), and empty it after the step. If the results have a graph, `.detach()` them; if this is a buffer on purpose, limit its length or store it on the CPU" }.to_owned();
            growth.tell(case, &mut res);
            res
        })
        .collect()
}
