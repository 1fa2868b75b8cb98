//! What a loop, a function or a method adds to in each step: PLM101 to PLM104, PLM111, PLM112.

use std::collections::BTreeSet;

use ruff_python_ast::{
    Expr, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{
        events::{Event, Grad, How, What},
        file::dotted,
        guess,
        story::Story,
        value::{Kind, Value},
    },
    rules::{
        found::{Found, wrapped},
        graph::{
            emptied::{is_emptied, is_made_again},
            instead::{detached, is_many, number_of, with},
        },
    },
};

/// The names out of which the losses are made that are walked backwards around here.
fn walked<'s>(
    story: &'s Story<'_, '_>,
    function: usize,
) -> impl Iterator<Item = (&'s Event<'s>, &'s Value)> {
    story.in_function(function).filter_map(|event| match &event.what {
        What::Backward { loss, .. } => Some((event, loss)),
        _ => None,
    })
}

pub(super) fn in_loops(
    story: &Story<'_, '_>,
    step_loops: &BTreeSet<usize>,
    event: &Event<'_>,
    acc: &mut Vec<Found>,
) {
    let What::Keep { target, how, value, bounded, arg, .. } = &event.what else { return };
    let text = story.file.text_at(*arg);
    let Some(innermost) = event.loops.last().copied() else { return };
    // The innermost loop across which it is kept has to be one whose iterations are steps or batches.
    let is_step = event.loops.iter().any(|it| step_loops.contains(it));
    let is_batch = event.loops.iter().any(|it| story.loops[*it].over_batches);
    let evaluates = event.grad == Grad::Off
        || guess::evaluates(story.file.functions[event.function].name)
        || story
            .in_function(event.function)
            .any(|it| matches!(&it.what, What::Mode { train: false, .. }));
    let in_evaluation = is_batch && evaluates;
    // Single pictures, not batches: what a model makes of each is joined.
    let the_loop = &story.loops[innermost];
    let over_samples = *how == How::Cat
        && !value.attached
        && the_loop.iter.is_some()
        && (!the_loop.is_counted || goes_over_parts(story.file.text_at(the_loop.at)))
        && joins_rows(story, *arg)
        && story.in_loop(innermost).any(|it| matches!(it.what, What::Forward { .. }));
    // Single pictures again, each moved to the device, and the result of each appended.
    let moves = |it: &Event<'_>| {
        let What::Method { name, call, value, .. } = &it.what else { return false };
        let device = || {
            let target = call.arguments.args.first().map(|it| story.file.text_at(it.range()));
            target.is_some_and(|it| it.contains("device") || it.contains("cuda"))
        };
        !value.is_module() && !value.is_output && (name == "cuda" || name == "to" && device())
    };
    let over_items = *how == How::Append
        && event.grad == Grad::Off
        && the_loop.iter.is_some()
        && !the_loop.is_counted
        && !story.file.says(
            story.file.functions[event.function].at,
            &[&format!("{}.clear(", target.trim_end_matches("[]"))],
        )
        && story.in_loop(innermost).any(moves)
        && !shows(story, event.function);
    if !(is_step || in_evaluation || over_samples || over_items) {
        return;
    }
    // What is cut, emptied or made anew in the loop is not kept.
    let is_cleared = || {
        story.in_loop(innermost).any(|other| {
            matches!(&other.what, What::Clear { target: cleared } if cleared == target)
                && other.at != event.at
                && other.statement != event.statement
        })
    };
    let bare = target.trim_end_matches("[]");
    // What goes into a queue, somebody else takes out; what goes into a file, is there.
    if bare.to_ascii_lowercase().contains("queue") || guess::writes_out(bare) {
        return;
    }
    if *bounded || is_cleared() || is_bounded(story, innermost, bare) {
        return;
    }
    let of_meter = *how == How::Meter;
    if *how == How::Cat {
        let is_batch_loop = is_batch || is_step || over_samples;
        // What a loader gave, and the script moved there.
        let is_moved = [".cuda(", ".to(device", ".to(\"cuda"].iter().any(|it| text.contains(it));
        if is_batch_loop && (value.attached || value.is_output || is_moved) && !value.on_host {
            acc.push(Found {
                code: "PLM104",
                at: *arg,
                statement: event.statement,
                message: format!("each iteration copies all of `{bare}` on the device, and both copies are allocated for a moment: append `.detach().cpu()` to a list, and concatenate once after the loop"),
                mend: Vec::new(),
            });
        }
        return;
    }
    // A model that was frozen has no graph, unless its input has one.
    let of_frozen = value.of.is_some()
        && story.all().any(
            |it| matches!(&it.what, What::Freeze { model } if Some(model) == value.of.as_ref()),
        );
    if value.attached && event.grad != Grad::Off && !of_frozen {
        // A sum that is walked backwards is meant to have a graph; so is what a function gives its caller, if nothing was
        // walked here.
        let is_walked = walked(story, event.function).any(|(_, it)| it.from.has(bare));
        if is_walked {
            return;
        }
        if !is_step && event.grad == Grad::Maybe {
            return;
        }
        let (code, message) = match how {
            How::Sum => (
                "PLM101",
                format!(
                    "`{bare}` keeps the autograd graph of every iteration: add {} instead",
                    number_of(text, value)
                ),
            ),
            How::Append | How::Cat => (
                "PLM102",
                format!(
                    "`{bare}` keeps the autograd graph of every iteration: append {} instead",
                    if value.is_scalar || is_many(value) {
                        number_of(text, value)
                    } else {
                        with(text, "detach().cpu()")
                    }
                ),
            ),
            How::Meter => (
                "PLM102",
                format!(
                    "`{bare}` keeps each tensor, and its autograd graph: pass {} instead",
                    number_of(text, value)
                ),
            ),
        };
        let mend = detached(story, *arg, value);
        acc.push(Found { code, at: *arg, statement: event.statement, message, mend });
        return;
    }
    // Detached, and still on the device.
    let is_scalar = value.is_scalar || guess::is_loss(text);
    let is_on_device = value.is_output && !is_scalar && !value.on_host && !value.attached;
    if is_on_device && matches!(how, How::Append | How::Sum) && story.uses_gpu() && !of_meter {
        if *how == How::Sum {
            return;
        }
        acc.push(Found {
            code: "PLM103",
            at: *arg,
            statement: event.statement,
            message: format!(
                "`{bare}` keeps the outputs of all batches on the device: append {} instead",
                if is_many(value) {
                    "tensors that are moved with `.cpu()`".to_owned()
                } else {
                    with(text, "cpu()")
                }
            ),
            mend: if is_many(value) { Vec::new() } else { wrapped(story, *arg, "(", ").cpu()") },
        });
    }
}

/// `[model(x) for x in loader]`, with gradients off: with them on it is an evaluation that keeps its graphs.
pub(super) fn gathered(
    story: &Story<'_, '_>,
    event: &Event<'_>,
    value: &Value,
    mapped: Option<TextRange>,
    acc: &mut Vec<Found>,
) {
    if value.attached || value.is_scalar || event.grad != Grad::Off || !story.uses_gpu() {
        return;
    }
    let mend = match mapped {
        _ if is_many(value) => Vec::new(),
        Some(function) => wrapped(story, function, "lambda _it: (", ")(_it).cpu()"),
        None => wrapped(story, event.at, "(", ").cpu()"),
    };
    let place = if mapped.is_some() { "what `map` calls" } else { "the comprehension" };
    acc.push(Found {
        code: "PLM103",
        at: event.at,
        statement: event.statement,
        message: format!("this keeps the outputs of all batches on the device: move each with `.cpu()` in {place}"),
        mend,
    });
}

/// Whether the loop shortens it: `if len(x) > n: x.pop(0)`, `x = x[-100:]`.
fn is_bounded(story: &Story<'_, '_>, innermost: usize, target: &str) -> bool {
    let words = [format!("{target} = {target}["), format!("{target}.pop"), format!("del {target}")];
    story.file.says(story.loops[innermost].at, &words.each_ref().map(String::as_str))
}

/// Whether a function makes one picture of several, to be looked at: they are few.
fn shows(story: &Story<'_, '_>, function: usize) -> bool {
    let words = ["grid(", "imshow(", "save_image(", "subplots("];
    story.file.says(story.file.functions[function].at, &words)
}

/// Outputs of a LightningModule's steps that are kept on it, and never cleared.
pub(super) fn lightning(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for class in story.file.classes.iter().filter(|it| it.is_lightning()) {
        for (name, index) in &class.methods {
            let trains = *name == "training_step";
            if !matches!(*name, "training_step" | "validation_step" | "test_step") {
                continue;
            }
            for event in story.in_function(*index) {
                let What::Keep { target, value, arg, .. } = &event.what else { continue };
                let bare = target.trim_end_matches("[]");
                if !bare.starts_with("self.")
                    || value.on_host
                    || !(value.attached || value.is_output || value.is(&Kind::Dict))
                {
                    continue;
                }
                let text = story.file.text_at(class.def.range);
                let cleared = text.contains(&format!("{bare}.clear("))
                    || text.matches(&format!("{bare} = ")).count() > 1
                    || text.contains(&format!("del {bare}"));
                if !cleared {
                    let what =
                        if trains && value.attached { "with its graph" } else { "on the device" };
                    acc.push(Found {
                        code: "PLM111",
                        at: *arg,
                        statement: event.statement,
                        message: format!("every `{name}` adds to `{bare}`, {what}, and the script never clears it: call `{bare}.clear()` at the end of the epoch"),
                        mend: wrapped(story, *arg, "(", ").detach().cpu()"),
                    });
                }
            }
            let has_end = class.methods.contains_key("training_epoch_end");
            if trains && has_end {
                for event in story.in_function(*index) {
                    let What::Return { value } = &event.what else { continue };
                    let text = story.file.text_at(event.at);
                    if value.is(&Kind::Dict)
                        && text.matches(':').count() > 1
                        && !text.contains("detach")
                        && value.attached
                    {
                        acc.push(Found {
                            code: "PLM111",
                            at: event.at,
                            statement: event.statement,
                            message: "Lightning holds the outputs of `training_step` until `training_epoch_end`, with the autograd graph of all but the loss: return `loss` alone, or detach the rest".to_owned(),
                            mend: Vec::new(),
                        });
                    }
                }
            }
        }
    }
}

/// What a function that makes a step, or that each step calls, adds to something that was there before it.
pub(super) fn in_functions(
    story: &Story<'_, '_>,
    step_loops: &BTreeSet<usize>,
    acc: &mut Vec<Found>,
) {
    let called: BTreeSet<usize> = step_loops
        .iter()
        .flat_map(|it| story.within(*it))
        .filter_map(|it| match it.what {
            What::Call { function } => Some(function),
            _ => None,
        })
        .collect();
    for event in &story.events {
        let What::Keep { target, how, value, arg, bounded } = &event.what else { continue };
        let function = &story.file.functions[event.function];
        let bare = target.trim_end_matches("[]");
        let root = bare.split(['.', '[']).next().unwrap_or_default();
        let is_sum = *how == How::Sum;
        if !event.loops.is_empty()
            || event.function == 0
            || root == "self"
            || *bounded
            || !(is_sum || *how == How::Append)
            || !value.attached
            || event.grad == Grad::Off
        {
            continue;
        }
        let steps =
            story.in_function(event.function).any(|it| matches!(it.what, What::Step { .. }));
        let outlives = if function.parameters().contains(&root) {
            steps
        } else {
            owner_of(story, event.function, root).is_some_and(|owner| {
                !called.contains(&owner) && (steps || called.contains(&event.function))
            })
        };
        let is_walked = || {
            let of_it = |loss: &Value| loss.from.has(bare) || loss.from.has(root);
            story
                .events
                .iter()
                .any(|it| matches!(&it.what, What::Backward { loss, .. } if of_it(loss)))
        };
        story.file.steps.take(acc.len() + story.events.len() / 8);
        if !outlives
            || acc.iter().any(|it| it.at == *arg)
            || !is_sum && is_emptied(story, bare)
            || is_sum && is_made_again(story.file.text, bare, 2)
            || is_walked()
        {
            continue;
        }
        let verb = if is_sum { "add" } else { "append" };
        acc.push(Found {
            code: if is_sum { "PLM101" } else { "PLM102" },
            at: *arg,
            statement: event.statement,
            message: format!(
                "`{bare}` outlives `{}` and keeps the autograd graph of every call: {verb} {} instead",
                function.name,
                number_of(story.file.text_at(*arg), value)
            ),
            mend: detached(story, *arg, value),
        });
    }
}

/// The function around this one, or the file, that a name is made in; none if the function itself makes it.
fn owner_of(story: &Story<'_, '_>, function: usize, name: &str) -> Option<usize> {
    let own = &story.file.functions[function];
    let mut seen = Made { name, makes: false, declares: false };
    seen.visit_body(own.body);
    if seen.makes && !seen.declares {
        return None;
    }
    let mut at = own.parent;
    while let Some(index) = at {
        let around = &story.file.functions[index];
        let mut seen = Made { name, makes: false, declares: false };
        seen.visit_body(around.body);
        if seen.makes && !seen.declares {
            return Some(index);
        }
        at = around.parent;
    }
    None
}

/// Whether a body assigns to a name, and whether it says that the name is of another function.
struct Made<'n> {
    name: &'n str,
    makes: bool,
    declares: bool,
}

impl<'a> Visitor<'a> for Made<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        let is = |it: &Expr| dotted(it).is_some_and(|it| it == self.name);
        match stmt {
            Stmt::Assign(it) => {
                self.makes |= it.targets.iter().any(|it| match it {
                    Expr::Tuple(it) => it.elts.iter().any(is),
                    it => is(it),
                });
            }
            Stmt::AnnAssign(it) => self.makes |= is(&it.target),
            Stmt::AugAssign(it) => self.makes |= is(&it.target),
            Stmt::Nonlocal(it) => self.declares |= it.names.iter().any(|it| it == self.name),
            Stmt::Global(it) => self.declares |= it.names.iter().any(|it| it == self.name),
            Stmt::FunctionDef(_) | Stmt::ClassDef(_) => return,
            _ => {}
        }
        visitor::walk_stmt(self, stmt);
    }
}

/// `for i in range(0, len(frames), 8)` with `frames[i : i + 8]` in it.
fn goes_over_parts(text: &str) -> bool {
    let (head, body) = text.split_once('\n').unwrap_or_default();
    let (name, over) =
        head.trim().trim_start_matches("for ").split_once(" in ").unwrap_or_default();
    let body: String = body.chars().filter(|it| *it != ' ').collect();
    over.trim_start().starts_with("range(") && body.contains(&format!("[{name}:{name}+"))
}

/// What a method that a framework calls in each step, or a model's `forward`, adds to an attribute that nothing empties.
pub(super) fn in_methods(story: &Story<'_, '_>, class: usize, acc: &mut Vec<Found>) {
    let it = &story.file.classes[class];
    if it.is_lightning() {
        return;
    }
    let is_trainer = it.bases.iter().any(|base| base.ends_with("Trainer"));
    for (name, index) in &it.methods {
        let is_step = is_trainer && matches!(*name, "compute_loss" | "training_step")
            || it.is_module() && *name == "forward"
            || story.in_function(*index).any(|it| matches!(it.what, What::Step { .. }));
        for event in story.in_function(*index) {
            let What::Keep { target, how, value, arg, bounded } = &event.what else { continue };
            let bare = target.trim_end_matches("[]");
            if !bare.starts_with("self.") || *bounded || !event.loops.is_empty() {
                continue;
            }
            let text = story.file.text_at(it.def.range);
            if *how == How::Cat {
                // What `__init__` made on the device gets longer with each call.
                let on_device = text.lines().any(|line| {
                    let made = line.trim_start().strip_prefix(bare);
                    made.is_some_and(|it| it.trim_start().starts_with('='))
                        && ["cuda", "device"].iter().any(|it| line.contains(it))
                });
                let is_part = |rest: &str| {
                    let index = rest.split(']').next().unwrap_or_default();
                    index.contains(':') || !guess::comes_again(index)
                };
                let is_cut = text.split(&format!("{bare}[")).skip(1).any(is_part)
                    || is_made_again(text, bare, 2);
                if on_device && !is_cut && joins_rows(story, *arg) && !value.on_host {
                    acc.push(Found {
                        code: "PLM104",
                        at: *arg,
                        statement: event.statement,
                        message: format!("each call copies all of `{bare}` on the device, and the script never makes it shorter: allocate it once at its final size and overwrite the oldest rows"),
                        mend: Vec::new(),
                    });
                }
                continue;
            }
            let grows = value.attached && event.grad != Grad::Off && is_step;
            if !grows || is_emptied(story, bare) || acc.iter().any(|it| it.at == *arg) {
                continue;
            }
            if *how == How::Sum && is_made_again(text, bare, 2) {
                continue;
            }
            let code = if *how == How::Sum { "PLM101" } else { "PLM102" };
            acc.push(Found {
                code,
                at: *arg,
                statement: event.statement,
                message: format!(
                    "each call of `{name}` adds to `{bare}` with its autograd graph, and the script never empties it: keep {} instead",
                    number_of(story.file.text_at(*arg), value)
                ),
                mend: detached(story, *arg, value),
            });
        }
    }
}

/// Metrics of torchmetrics that are updated in a loop and never reset.
pub(super) fn metrics(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for event in &story.events {
        let What::Method { receiver, name, value, .. } = &event.what else { continue };
        // One loop is enough where the metric outlives the function; those that make it anew do not count.
        let n_needed = if receiver.contains('.') { 1 } else { 2 };
        let is_new = |at: &usize| value.at.is_some_and(|it| story.loops[*at].at.contains_range(it));
        let n_loops = event.loops.iter().filter(|it| !is_new(it)).count();
        if !value.is(&Kind::Metric) || name != "update" || n_loops < n_needed {
            continue;
        }
        let last = receiver.rsplit('.').next().unwrap_or_default();
        let resets = story.file.says_anywhere(&[&format!("{last}.reset("), ".reset()"]);
        story.file.steps.take(acc.len());
        if !resets && !acc.iter().any(|it| it.code == "PLM112") {
            acc.push(Found {
                code: "PLM112",
                at: event.at,
                statement: event.statement,
                message: format!("`{receiver}` collects batches and is never reset: call `{receiver}.reset()` at the end of each epoch"),
                mend: Vec::new(),
            });
        }
    }
}

/// Whether a call joins along the first dimension: a bank of rows, not keys and values along a text.
fn joins_rows(story: &Story<'_, '_>, call: TextRange) -> bool {
    let text = story.file.text_at(call);
    !text.contains("hstack")
        && !["dim=1", "dim=2", "dim=-", "axis=1", "axis=-", ", 1)", ", 2)", ", -1)", ", -2)"]
            .iter()
            .any(|it| text.contains(it))
}
