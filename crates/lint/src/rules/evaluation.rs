//! Forward passes that nobody walks backwards: PLM2xx.

use std::collections::BTreeSet;

use ruff_python_ast::{Decorator, Expr};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{
        events::{Event, Grad, What},
        file::{dotted, names_in},
        guess,
        story::Story,
    },
    rules::found::{Found, Mend, wrapped},
};

pub(super) fn find(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    without_no_grad(story, acc);
    frozen(story, acc);
    retries(story, acc);
}

fn walks(event: &Event<'_>) -> bool {
    matches!(event.what, What::Backward { .. } | What::Step { .. } | What::Walks)
}

/// An evaluation with a graph.
fn without_no_grad(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let of_tests = story.file.is_of_tests;
    for (index, function) in story.file.functions.iter().enumerate() {
        // Lightning and transformers switch gradients off around these.
        if function.name.ends_with("_step")
            || function.name == "forward"
            || of_tests && function.name.contains("test")
            || function.name.starts_with("test_")
        {
            continue;
        }
        // A test of a test suite is no evaluation; nor is a model's own part.
        if story.file.class_of(index).is_some_and(|it| it.is_module() && !it.is_lightning())
            && function.name != "evaluate"
        {
            continue;
        }
        if story
            .file
            .class_of(index)
            .is_some_and(|it| it.bases.iter().any(|it| it.ends_with("TestCase")))
        {
            continue;
        }
        let events: Vec<&Event<'_>> = story.in_function(index).collect();
        // Attributions and attacks walk back to their input.
        let walks_back = ["requires_grad", "autograd", "set_grad_enabled", "enable_grad"];
        if story.file.says(function.at, &walks_back) {
            continue;
        }
        let is_evaluation = guess::evaluates(function.name) && index != 0;
        let is_endpoint = function.def.is_some_and(|it| answers_requests(&it.decorator_list));
        let mut told = BTreeSet::new();
        for event in &events {
            let (model, by_helper) = match &event.what {
                What::Forward { model, .. } => (model, false),
                What::Call { function } => match helped(story, *function) {
                    Some(model) => (model, true),
                    None => continue,
                },
                _ => continue,
            };
            if event.grad != Grad::On || event.in_handler {
                continue;
            }
            // The innermost loop over batches, or else the function.
            let around = event
                .loops
                .iter()
                .rev()
                .find(|it| story.loops[**it].over_batches)
                .or(event.loops.last());
            let base = model.split('.').next().unwrap_or(model);
            let is_it = |model: &str| model == base || model == format!("{base}.module");
            let mode = |it: &&&Event<'_>| matches!(&it.what, What::Mode { model, .. } if is_it(model) || base == "self" || by_helper);
            if !story.file.steps.take(events.len() / 8) {
                return;
            }
            let last = events.iter().rfind(|it| mode(it) && it.at.start() < event.at.start());
            let is_eval = last.is_some_and(|mode| {
                matches!(mode.what, What::Mode { train: false, .. }) && is_before(mode, event)
            });
            let is_train = last.is_some_and(|it| matches!(it.what, What::Mode { train: true, .. }));
            // The model was set to `eval()` when the service began.
            let is_served = is_endpoint
                && story.all().any(
                    |it| matches!(&it.what, What::Mode { model, train: false } if model == base),
                );
            if is_train || !(is_eval || is_served || is_evaluation && around.is_some()) {
                continue;
            }
            // Without a loop only where the function is an evaluation, too, or the file is a script.
            if around.is_none() && !is_eval && !is_served {
                continue;
            }
            let any_walks = match around {
                Some(around) => story.within(*around).any(walks),
                None => story.within_function(index).any(walks),
            };
            story.file.steps.take(story.loops.len() / 8);
            // What comes of it may go through a loop in ways that are not seen here, unless all of it is an evaluation.
            let goes_on = around.is_none()
                && !(is_evaluation && is_eval)
                && story.loops.iter().any(|it| it.function == index);
            if any_walks || goes_on && index != 0 {
                continue;
            }
            let key = around.copied();
            if !told.insert(key) {
                continue;
            }
            // At the loop's own place gradients are switched off, and on again after it.
            let outermost = match around {
                Some(around) => story.loops[*around].at,
                None => event.statement,
            };
            let off = |on: bool| format!("__import__(\"torch\").set_grad_enabled({on})");
            let mend = if function.name.is_empty() || around.is_some() {
                vec![
                    Mend::Before(outermost, off(false).replace("false", "False")),
                    Mend::After(outermost, off(true).replace("true", "True")),
                ]
            } else {
                off_around(story, event.at)
            };
            let what = match (is_served, is_eval && !is_evaluation) {
                (true, _) => "for each request",
                (_, true) => "after `eval()`",
                _ => "in an evaluation",
            };
            acc.push(Found {
                code: "PLM201",
                at: event.at,
                statement: event.statement,
                message: format!("`{model}` is called {what} with gradients on, so each batch builds an autograd graph that no backward pass uses: put the call under `with torch.no_grad():`"),
                mend,
            });
        }
    }
}

/// The model that a function of this file calls with gradients on, and does no more: a helper of a loop.
fn helped<'s>(story: &'s Story<'_, '_>, function: usize) -> Option<&'s String> {
    let own = &story.file.functions[function];
    if own.class.is_some() || guess::evaluates(own.name) || story.in_function(function).any(walks) {
        return None;
    }
    story.in_function(function).find_map(|it| match &it.what {
        What::Forward { model, .. } if it.grad != Grad::Off => Some(model),
        _ => None,
    })
}

/// `@app.post("/embed")`: a service calls the function.
fn answers_requests(decorators: &[Decorator]) -> bool {
    decorators.iter().any(|it| {
        let Expr::Call(call) = &it.expression else { return false };
        let Expr::Attribute(func) = &*call.func else { return false };
        let is_path = matches!(call.arguments.args.first(), Some(Expr::StringLiteral(it)) if it.value.to_str().starts_with('/'));
        is_path
            && matches!(
                func.attr.as_str(),
                "get" | "post" | "put" | "patch" | "route" | "api_route" | "websocket"
            )
    })
}

/// Whether the mode is set where this will be reached after it: not in another branch.
fn is_before(mode: &Event<'_>, event: &Event<'_>) -> bool {
    mode.branches.iter().all(|branch| {
        event.branches.iter().any(|other| {
            other.at == branch.at && other.test.map(Ranged::range) == branch.test.map(Ranged::range)
        }) || !branch.at.contains_range(event.at)
    }) && mode
        .branches
        .iter()
        .all(|it| it.at.contains_range(event.at) || it.test.is_none_or(|_| false))
}

/// The same expression with gradients off.
fn off_around(story: &Story<'_, '_>, at: TextRange) -> Vec<Mend> {
    let switch = "__import__(\"torch\").set_grad_enabled";
    wrapped(story, at, &format!("({switch}(False), "), &format!(", {switch}(True))[1]"))
}

/// A model that is not trained, run with gradients on in a step.
fn frozen(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let step_loops: BTreeSet<usize> = story.step_loops().into_iter().collect();
    let mut optimized = BTreeSet::new();
    for event in &story.events {
        if let What::NewOptimizer { models } = &event.what {
            optimized.extend(models.iter().cloned());
        }
    }
    if optimized.is_empty() {
        return;
    }
    let mut evaluated = BTreeSet::new();
    let mut trained = BTreeSet::new();
    let mut frozen = BTreeSet::new();
    for event in &story.events {
        match &event.what {
            What::Mode { model, train: false } => evaluated.insert(model),
            What::Mode { model, train: true } | What::ZeroGrad { of: model } => {
                trained.insert(model)
            }
            What::Freeze { model } => frozen.insert(model),
            _ => false,
        };
    }
    let mut told = BTreeSet::new();
    for event in &story.events {
        let What::Forward { model, input_attached, call, .. } = &event.what else { continue };
        // A method that makes the backward pass and the step is called in a loop elsewhere.
        let in_step = event.loops.iter().any(|it| step_loops.contains(it))
            || event.loops.is_empty()
                && story.file.class_of(event.function).is_some()
                && story.in_function(event.function).any(|it| matches!(it.what, What::Step { .. }));
        if event.grad != Grad::On || *input_attached || !in_step || told.contains(model) {
            continue;
        }
        if !evaluated.contains(model) || trained.contains(model) || frozen.contains(model) {
            continue;
        }
        let says = |word: &str| story.file.says_anywhere(&[word]);
        let is_frozen = says(&format!("in {model}.parameters()")) && says("requires_grad")
            || says(&format!("{model}.requires_grad_"));
        let part = format!("{model}.");
        let is_optimized = optimized.contains(model)
            || optimized.range(part.clone()..).next().is_some_and(|it| it.starts_with(&part));
        if !is_frozen && !is_optimized {
            told.insert(model.clone());
            acc.push(Found {
                code: "PLM202",
                at: call.range(),
                statement: event.statement,
                message: format!("no optimizer trains `{model}`, but each step keeps its activations for a backward pass: call the model under `torch.no_grad()`, or freeze it with `{model}.requires_grad_(False)`"),
                mend: off_around(story, event.at),
            });
        }
    }
}

/// Runs the model again while the exception holds what the first try made.
fn retries(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for handler in &story.handlers {
        let type_ = handler.type_.map(|it| story.file.text_at(it.range())).unwrap_or_default();
        let is_oom = type_.contains("OutOfMemory")
            || type_.contains("RuntimeError")
                && story.file.says(handler.at, &["out of memory", "empty_cache"]);
        if !is_oom {
            continue;
        }
        let inside = |it: &&Event<'_>| handler.at.contains_range(it.at) && it.in_handler;
        let again =
            story.in_function(handler.function).filter(inside).find(|event| match &event.what {
                What::Forward { .. } | What::Backward { .. } => true,
                What::Method { value, name, .. } => value.is_module() && guess::runs(name),
                What::Call { function } => {
                    *function == handler.function
                        || story.in_function(*function).chain(story.within_function(*function)).any(
                            |it| matches!(it.what, What::Forward { .. } | What::Backward { .. }),
                        )
                }
                _ => false,
            });
        if let Some(again) = again {
            acc.push(Found {
                code: "PLM203",
                at: again.at,
                statement: again.statement,
                message: "inside the `except`, the exception still holds the frames of the failed attempt, and their tensors: set a flag here, and retry after the `except` block".to_owned(),
                mend: Vec::new(),
            });
        } else if let Some(name) = handler.name {
            // The exception is kept.
            let keeps = story.in_function(handler.function).filter(inside).find(|event| {
                matches!(&event.what, What::Method { name: method, call, .. } if method == "append" && call.arguments.args.iter().any(|it| is_exactly(it, name)))
            });
            if let Some(keeps) = keeps {
                acc.push(Found {
                    code: "PLM203",
                    at: keeps.at,
                    statement: keeps.statement,
                    message: format!("`{name}` holds the frames of the failed attempt, and their tensors: store `str({name})` instead"),
                    mend: Vec::new(),
                });
            }
        }
    }
}

fn is_exactly(expr: &Expr, name: &str) -> bool {
    dotted(expr).is_some_and(|it| it == name)
        || matches!(expr, Expr::Tuple(it) if it.elts.iter().any(|it| names_in(it) == [name.to_owned()] && dotted(it).is_some()))
}
