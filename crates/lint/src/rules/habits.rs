//! Habits of loops: PLM5xx.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::Expr;
use ruff_text_size::Ranged;

use crate::{
    reading::{
        events::{Event, What},
        story::Story,
        value::Kind,
    },
    rules::found::{Found, Mend},
};

pub(super) fn find(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let step_loops: BTreeSet<usize> = story.step_loops().into_iter().collect();
    let mut items: BTreeMap<usize, Vec<&Event<'_>>> = BTreeMap::new();
    for event in &story.events {
        match &event.what {
            What::Library { path, .. } if path == "torch.cuda.empty_cache" => {
                let Some(innermost) = event.loops.last() else {
                    if is_called_each_step(story, event) {
                        acc.push(empties(event));
                    }
                    continue;
                };
                let the_loop = &story.loops[*innermost];
                let is_step = step_loops.contains(innermost)
                    && story.in_loop(*innermost).any(|event| {
                        event.loops.last() == Some(innermost)
                            && matches!(event.what, What::Backward { .. } | What::Forward { .. })
                    });
                let is_batch = the_loop.over_batches
                    && story.in_loop(*innermost).any(|it| matches!(it.what, What::Forward { .. }));
                if (is_step || is_batch)
                    && event.is_unconditional_in(the_loop.at)
                    && !event.in_handler
                {
                    acc.push(empties(event));
                }
            }
            What::Library { path, call }
                if path.ends_with("set_detect_anomaly")
                    || path.ends_with("autograd.detect_anomaly") =>
            {
                let mode = call.arguments.find_argument("mode", 0).map(|it| it.value());
                let is_on = match mode {
                    Some(Expr::BooleanLiteral(it)) => it.value,
                    Some(_) => false,
                    None => {
                        path.ends_with("detect_anomaly") && !path.ends_with("set_detect_anomaly")
                    }
                };
                let in_test = story.file.functions[event.function].name.starts_with("test");
                if is_on && !in_test {
                    acc.push(Found {
                        code: "PLM504",
                        at: event.at,
                        statement: event.statement,
                        message: "anomaly detection stores a traceback for every operation and checks every gradient: use it to find an error only, and remove it from training".to_owned(),
                        mend: mode.map(|it| vec![Mend::Replace(it.range(), "False".to_owned())]).unwrap_or_default(),
                    });
                }
            }
            What::Method { name, value, .. }
                if name == "item"
                    && (value.attached || value.is_output || value.is(&Kind::Tensor)) =>
            {
                if let Some(innermost) = event.loops.last()
                    && step_loops.contains(innermost)
                    && event.is_unconditional_in(story.loops[*innermost].at)
                {
                    items.entry(*innermost).or_default().push(event);
                }
            }
            _ => {}
        }
    }
    for (_, found) in items {
        let (Some(first), 3..) = (found.first(), found.len()) else { continue };
        acc.push(Found {
            code: "PLM503",
            at: first.at,
            statement: first.statement,
            message: format!("each step reads {} numbers from the GPU, and each `.item()` waits for the GPU: keep `.detach()`ed sums, and read them every 10 to 100 steps", found.len()),
            mend: Vec::new(),
        });
    }
    benchmark(story, acc);
}

fn empties(event: &Event<'_>) -> Found {
    Found {
        code: "PLM501",
        at: event.at,
        statement: event.statement,
        message: "each step returns free memory to the driver and requests it again; that waits for the GPU and frees nothing that is in use: remove the call".to_owned(),
        mend: vec![Mend::Replace(event.at, "None".to_owned())],
    }
}

/// Whether a method is one that Lightning, Transformers or the file's own loop calls in each step.
fn is_called_each_step(story: &Story<'_, '_>, event: &Event<'_>) -> bool {
    let function = &story.file.functions[event.function];
    let by_framework = matches!(
        function.name,
        "on_train_batch_end"
            | "on_train_batch_start"
            | "on_validation_batch_end"
            | "on_before_zero_grad"
            | "on_batch_end"
            | "on_step_end"
            | "on_substep_end"
            | "training_step"
            | "validation_step"
            | "compute_loss"
    );
    let by_itself = function.class.is_some()
        && story.in_function(event.function).any(|it| matches!(it.what, What::Step { .. }));
    function.class.is_some()
        && (by_framework || by_itself)
        && event.is_unconditional_in(function.at)
        && !event.in_handler
}

/// `cudnn.benchmark` where sizes vary: a search and its workspaces for each new size.
fn benchmark(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let text = story.file.text;
    let varies = ["pad_sequence", "multi_scale", "multiscale", "max_len_in_batch", "pack_padded"]
        .iter()
        .any(|it| text.contains(it));
    if !varies {
        return;
    }
    for (at, _) in text.match_indices("cudnn.benchmark = True") {
        let (Ok(start), Ok(end)) =
            (u32::try_from(at), u32::try_from(at + "cudnn.benchmark = True".len()))
        else {
            continue;
        };
        let range = ruff_text_size::TextRange::new(start.into(), end.into());
        if story.file.line_until(at).contains('#') {
            continue;
        }
        acc.push(Found {
            code: "PLM502",
            at: range,
            statement: range,
            message: "batches vary in size here, and for each new size `benchmark` tries all algorithms with their workspaces: set it to `False`".to_owned(),
            mend: vec![Mend::Replace(range, "cudnn.benchmark = False".to_owned())],
        });
    }
}
