//! Mixed precision and what models are told: PLM6xx.

use std::collections::BTreeSet;

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
    let mut told = BTreeSet::new();
    for event in &story.events {
        match &event.what {
            What::Backward { .. } if event.autocast => {
                // Where the whole loop is under autocast, that is said.
                let whole = event.loops.iter().find(|it| story.loops[**it].autocast).copied();
                let steps = |index: usize| {
                    story
                        .in_loop(index)
                        .find(|it| matches!(it.what, What::Step { .. }) && it.autocast)
                        .is_some()
                };
                match whole {
                    Some(index) if steps(index) => {
                        if told.insert(index) {
                            acc.push(Found {
                                code: "PLM602",
                                at: story.loops[index].head,
                                statement: story.loops[index].at,
                                message: "autocast keeps a half-precision copy of each weight until its block ends, and uses the copies of the first step in all later steps: put `with autocast():` inside the loop, around the forward pass".to_owned(),
                                mend: Vec::new(),
                            });
                        }
                    }
                    _ => acc.push(Found {
                        code: "PLM601",
                        at: event.at,
                        statement: event.statement,
                        message: "under autocast, the copies of the weights stay allocated during the backward pass, which may compute in another precision: call `backward()` after the `with` block".to_owned(),
                        mend: Vec::new(),
                    }),
                }
            }
            What::Forward { call, .. } => {
                let cache = call.arguments.find_keyword("use_cache");
                let trains = event.loops.iter().any(|it| story.trains(*it))
                    && event.grad != crate::reading::events::Grad::Off;
                if let Some(keyword) = cache
                    && matches!(&keyword.value, Expr::BooleanLiteral(it) if it.value)
                    && trains
                {
                    acc.push(cached(keyword.range(), event));
                }
            }
            _ => {}
        }
    }
    config(story, acc);
    scaler(story, acc);
}

fn cached(at: ruff_text_size::TextRange, event: &Event<'_>) -> Found {
    Found {
        code: "PLM604",
        at,
        statement: event.statement,
        message: "each layer keeps a KV cache that training never reads: pass `use_cache=False`"
            .to_owned(),
        mend: vec![Mend::Replace(at, "use_cache=False".to_owned())],
    }
}

/// `model.config.use_cache = True` in a file that trains.
fn config(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let text = story.file.text;
    let trains = story.events.iter().any(|it| matches!(it.what, What::Backward { .. }));
    let pattern = "config.use_cache = True";
    if !trains || text.contains("use_cache = False") || text.contains("use_cache=False") {
        return;
    }
    let first = story.events.iter().find(|it| matches!(it.what, What::Backward { .. }));
    for (at, _) in text.match_indices(pattern) {
        let line = story.file.line_until(at);
        // Before training: turned on again for what comes after it is right.
        let is_before = first.is_some_and(|it| at < it.at.start().to_usize());
        if let (false, true, Ok(start), Ok(end)) =
            (line.contains('#'), is_before, u32::try_from(at), u32::try_from(at + pattern.len()))
        {
            let range = ruff_text_size::TextRange::new(start.into(), end.into());
            acc.push(Found {
                code: "PLM604",
                at: range,
                statement: range,
                message:
                    "each layer keeps a KV cache that training never reads: set `use_cache = False`"
                        .to_owned(),
                mend: vec![Mend::Replace(range, "config.use_cache = False".to_owned())],
            });
        }
    }
}

/// A gradient scaler that is half used.
fn scaler(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for index in story.step_loops() {
        let own: Vec<&Event<'_>> = story.in_loop(index).collect();
        let scaled =
            own.iter().find(|it| matches!(&it.what, What::Backward { loss, .. } if loss.scaled));
        let method = |of: &str| {
            own.iter().find(|it| matches!(&it.what, What::Method { name, value, .. } if name == of && (value.is(&Kind::Scaler) || of != "update")))
        };
        let says = |word: &str| story.file.says(story.loops[index].at, &[word]);
        if let Some(scaled) = scaled {
            let by_scaler =
                own.iter().find(|it| matches!(it.what, What::Step { by_scaler: true, .. }));
            let plain =
                own.iter().find(|it| matches!(it.what, What::Step { by_scaler: false, .. }));
            if let (None, Some(plain)) = (by_scaler, plain) {
                acc.push(Found {
                    code: "PLM603",
                    at: plain.at,
                    statement: plain.statement,
                    message: "the loss is scaled, but this step is not, so its gradients are up to 65,536 times too large: call `scaler.step(optimizer)`, then `scaler.update()`".to_owned(),
                    mend: Vec::new(),
                });
            }
            if let Some(step) = by_scaler
                && method("update").is_none()
                && !says(".update(")
            {
                acc.push(Found {
                    code: "PLM603",
                    at: step.at,
                    statement: step.statement,
                    message: "the scale never changes: call `scaler.update()` after this"
                        .to_owned(),
                    mend: Vec::new(),
                });
            }
            let clip = own.iter().find(|event| match &event.what {
                What::Library { path, .. } => {
                    path.ends_with("clip_grad_norm_") || path.ends_with("clip_grad_value_")
                }
                _ => false,
            });
            if let (Some(clip), Some(_)) = (clip, by_scaler)
                && clip.at.start() > scaled.at.start()
                && !says("unscale_")
            {
                acc.push(Found {
                    code: "PLM603",
                    at: clip.at,
                    statement: clip.statement,
                    message: "this clips gradients that are still scaled: call `scaler.unscale_(optimizer)` before it".to_owned(),
                    mend: Vec::new(),
                });
            }
        }
        let made = own.iter().find(
            |it| matches!(&it.what, What::Library { path, .. } if path.ends_with("GradScaler")),
        );
        if let Some(made) = made {
            acc.push(Found {
                code: "PLM603",
                at: made.at,
                statement: made.statement,
                message: "each step creates a new scaler, which never adapts its scale: create the scaler once, before the loop".to_owned(),
                mend: Vec::new(),
            });
        }
    }
}
