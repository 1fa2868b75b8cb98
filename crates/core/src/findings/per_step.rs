//! Something else grows: the same line leaves memory allocated in each step, or makes the same tensor anew, larger each time.

use std::collections::BTreeMap;

use crate::{
    codes::{ProblemCode, RemarkCode},
    findings::{Case, Finding, Rule, Weight, blocks, growth::Kind},
    prediction::{Category, stacks::Signs, timeline::Stage},
    replay::BlockId,
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::PerStep, find };

fn find(case: &Case<'_>) -> Vec<Finding> {
    let growths = case.growth.iter().filter(|it| it.kind == Kind::Other);
    let res: Vec<Finding> = growths
        .map(|growth| {
            // A program that never trains makes results, and nothing else.
            let timeline = &case.run.timeline;
            let are_results = timeline.marked
                && timeline.has(Stage::Evaluation)
                && !timeline.has(Stage::Backward)
                && timeline.starts(Stage::Evaluation).any(|begin| begin < growth.since);
            let is_collected = growth.counted.iter().any(|block| case.signs(*block).has(Signs::COLLECTED));
            let collects_inputs = case.has_remark(RemarkCode::CollectsInputs);
            let title = if is_collected {
                let what = if collects_inputs { "the inputs (`include_for_metrics`) and the logits" } else if growth.tensors < 3 { "the logits" } else { "all that the model returns, such as hidden states," };
                format!("the Trainer's evaluation collects {what} of all batches on the GPU: {} after {} batches", growth.held, growth.steps + 1)
            } else if growth.larger_each_time {
                let which = match growth.tensors {
                    0 | 1 => "one tensor was made anew".to_owned(),
                    n => format!("{n} tensors were made anew, each about"),
                };
                format!("{which} {} times, larger each time (results that are joined, or a cache): {} so far", growth.steps, growth.held)
            } else if are_results {
                format!("results of {} of {} forward passes stay on the device: {}, {} of each", growth.steps, growth.of, growth.bytes, growth.per_step)
            } else {
                format!("memory stays allocated after {} of {} {}: {}, {} in each", growth.steps, growth.of, growth.steps_are.several(), growth.bytes, growth.per_step)
            };
            let mut res = RULE.finding(Weight::Problem, growth.bytes, title);
            res.remedy = if is_collected && collects_inputs { "take `inputs` out of `include_for_metrics` (`include_inputs_for_metrics`), and return what `compute_metrics` needs of them as a label; or set `eval_accumulation_steps=8` in TrainingArguments: the Trainer then moves what it collects to host memory after so many batches" } else if is_collected && 2 < growth.tensors { "switch off what `compute_metrics` does not need (`output_hidden_states`, `output_attentions`), or name it in `ignore_keys_for_eval` of `train()`; or set `eval_accumulation_steps=8` in TrainingArguments: the Trainer then moves what it collects to host memory after so many batches" } else if is_collected { "set `eval_accumulation_steps=8` in TrainingArguments: the Trainer then moves the logits to host memory after so many batches; or return only what `compute_metrics` needs from `preprocess_logits_for_metrics` (`logits.argmax(-1)`)" } else if growth.larger_each_time { "allocate the tensor once at its final size and fill it, or collect parts on the CPU and join them once: `cat` in a loop copies everything each time and needs it twice" } else if are_results { "store them on the CPU: `results.append(it.cpu())`, or write each part into one tensor there" } else { "find the object that stores the results of this line (a list, a dict, an attribute, a closure, the traceback of an error), and empty it after the step. If the results have a graph, `.detach()` them; if this is a buffer on purpose, limit its length or store it on the CPU" }.to_owned();
            growth.tell(case, &mut res);
            res
        })
        .collect();
    if case.growth.is_empty() { of_evaluations(case).into_iter().collect() } else { res }
}

/// Less than this of an evaluation is a number, or a few.
const LEAST_OF_AN_EVALUATION: Bytes = Bytes::mib(1);

/// What each of several evaluations between training steps left, which is as much.
fn of_evaluations(case: &Case<'_>) -> Option<Finding> {
    let timeline = &case.run.timeline;
    let last = case.last();
    let n_steps = timeline.step_ends.len();
    if !timeline.marked || n_steps < 4 {
        return None;
    }
    // How much each step has that is no training: an evaluation before it makes that many times more.
    let mut made = vec![0_u32; n_steps + 1];
    let mut left: BTreeMap<usize, Vec<BlockId>> = BTreeMap::new();
    let mut in_order = timeline.in_order();
    for (block, life) in (0..).map(BlockId).zip(&case.run.replay.blocks) {
        if last < life.alloc {
            break;
        }
        let step = in_order.steps_before(life.alloc) as usize;
        let stage = in_order.stage(life.alloc);
        if stage == Stage::Evaluation {
            made[step] += 1;
        }
        let is_result = matches!(
            stage,
            Stage::Evaluation | Stage::Between | Stage::AfterBackward | Stage::Setup
        ) && matches!(
            case.evidence.category(block),
            Category::Retained
                | Category::Activations
                | Category::Temporaries
                | Category::Inputs
                | Category::Unknown
        );
        if life.is_live_after(last) && is_result {
            left.entry(step).or_default().push(block);
        }
    }
    let mut sorted = made.clone();
    sorted.sort_unstable();
    let usual = sorted[sorted.len() / 2];
    let evaluated: Vec<usize> =
        (1..made.len()).filter(|it| usual.saturating_mul(2) < made[*it]).collect();
    let of = |step: &usize| left.get(step).map_or(Bytes::ZERO, |it| case.sum(it));
    let least = evaluated.iter().map(of).min()?;
    let most = evaluated.iter().map(of).max()?;
    let is_as_much = LEAST_OF_AN_EVALUATION <= least && most.0 <= 2 * least.0;
    if evaluated.len() < 2 || made.len() < 3 * evaluated.len() || !is_as_much {
        return None;
    }
    let all: Vec<BlockId> = evaluated.iter().flat_map(|it| left[it].iter().copied()).collect();
    let newest = evaluated.last()?;
    let title = format!(
        "results of {} evaluations stay on the device: {}, {least} of each",
        evaluated.len(),
        case.sum(&all)
    );
    let older: Vec<BlockId> =
        evaluated.iter().filter(|it| *it != newest).flat_map(|it| left[it].clone()).collect();
    let mut res = RULE.finding(Weight::Problem, case.sum(&older), title);
    res.evidence.push(format!(
        "{} of {} evaluations are still live",
        blocks(all.len()),
        evaluated.len()
    ));
    res.at = case.line_of_most(&all);
    res.step = u32::try_from(evaluated[0] + 1).ok();
    res.per_step = least;
    res.remedy = "store them on the CPU (`results.append(it.cpu())`), and empty what stores them before each evaluation".to_owned();
    res.show(all);
    res.blocks = older;
    Some(res)
}
