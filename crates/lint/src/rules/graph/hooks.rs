//! Hooks that collect outputs, and hooks that are registered in each step: PLM109.

use std::collections::BTreeSet;

use ruff_python_ast::{
    Expr, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{events::What, expressions::owner, file::dotted, story::Story},
    rules::{
        found::{Found, wrapped},
        graph::{emptied::is_emptied, instead::with},
    },
};

/// Hooks that collect outputs, and hooks that are set again in each step.
pub(super) fn registered(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let step_loops: BTreeSet<usize> = story.step_loops().into_iter().collect();
    for event in &story.events {
        let What::Method { name, call, .. } = &event.what else { continue };
        if !matches!(
            name.as_str(),
            "register_forward_hook"
                | "register_full_backward_hook"
                | "register_backward_hook"
                | "register_forward_pre_hook"
        ) {
            continue;
        }
        let is_repeated =
            event.loops.iter().any(|it| step_loops.contains(it) || story.loops[*it].over_batches);
        let is_discarded = event.statement == call.range();
        if is_repeated && is_discarded {
            acc.push(Found {
                code: "PLM109",
                at: event.at,
                statement: event.statement,
                message: "each iteration registers one more hook, and the script removes none: register the hook once before the loop, or call `remove()` on its handle".to_owned(),
                mend: Vec::new(),
            });
        }
        let Some(hook) = call.arguments.args.first() else { continue };
        if let Expr::Lambda(it) = hook {
            let names: Vec<&str> = it
                .parameters
                .iter()
                .flat_map(|it| it.iter_non_variadic_params())
                .map(|it| it.parameter.name.as_str())
                .collect();
            // Behind them may stand names with defaults: `lambda m, i, o, name=name: ...`.
            let outputs = names.get(1..).unwrap_or_default();
            story.file.steps.take_text(story.file.text.len());
            if let Some((at, target)) = collected(&it.body, outputs) {
                let bare = target.trim_end_matches("[]");
                let lives = bare.contains('.')
                    || is_of_the_file(story, bare)
                    || lives_on(story, event.function, &step_loops)
                    || story.in_function(event.function).any(|it| {
                        matches!(it.what, What::Return { .. }) && is_listed(story, it.at, bare)
                    });
                if lives && !is_emptied(story, bare) {
                    acc.push(hook_keeps(story, at, event.statement, bare));
                }
            }
            continue;
        }
        let name = match hook {
            // `register_forward_hook(partial(hook, name))`
            Expr::Call(it) if dotted(&it.func).is_some_and(|it| it.ends_with("partial")) => {
                it.arguments.args.first().and_then(dotted)
            }
            // `register_forward_hook(make(name))`
            Expr::Call(it) => dotted(&it.func),
            _ => dotted(hook),
        };
        let Some(name) = name else { continue };
        let name = name.rsplit('.').next().unwrap_or_default().to_owned();
        story.file.steps.take(story.file.functions.len() / 8);
        let indices: Vec<usize> = (0..story.file.functions.len())
            .filter(|index| {
                let function = &story.file.functions[*index];
                function.name == name
                    || function
                        .parent
                        .is_some_and(|it| story.file.functions[it].name == name && it != 0)
            })
            .collect();
        for index in indices {
            let function = &story.file.functions[index];
            let parameters = function.parameters();
            let outputs: Vec<&str> = parameters.iter().rev().take(2).copied().collect();
            if !story.file.steps.take(function.at.len().to_usize()) {
                return;
            }
            let mut seen = Collected { outputs: &outputs, found: Vec::new() };
            seen.visit_body(function.body);
            for (at, statement, target) in seen.found {
                story.file.steps.take_text(story.file.text.len());
                story.file.steps.take(acc.len());
                let bare = target.trim_end_matches("[]");
                if !is_emptied(story, bare) && !acc.iter().any(|it| it.at == at) {
                    acc.push(hook_keeps(story, at, statement, bare));
                }
            }
        }
    }
}

/// Whether a name is made outside of all functions.
fn is_of_the_file(story: &Story<'_, '_>, name: &str) -> bool {
    story.known.names.get(&0).is_some_and(|it| it.contains_key(name))
}

/// Whether a `return` gives back this name, alone or as one of several.
fn is_listed(story: &Story<'_, '_>, at: TextRange, name: &str) -> bool {
    let text = story.file.text_at(at);
    text.trim_start_matches("return").split(',').any(|it| it.trim() == name)
}

/// Whether what a function makes outlives a step: a list that is made in a function goes with its call, unless that has steps.
fn lives_on(story: &Story<'_, '_>, function: usize, step_loops: &BTreeSet<usize>) -> bool {
    function == 0 || step_loops.iter().any(|it| story.loops[*it].function == function)
}

/// What is said of a list that a hook fills.
fn hook_keeps(story: &Story<'_, '_>, at: TextRange, statement: TextRange, target: &str) -> Found {
    let text = with(story.file.text_at(at), "detach()");
    Found {
        code: "PLM109",
        at,
        statement,
        message: format!(
            "the hook appends every output, with its autograd graph, to `{target}`, and the script never clears it: store {text}, and clear `{target}` after each step"
        ),
        mend: wrapped(story, at, "(", ").detach().cpu()"),
    }
}

/// What `list.append(output)` puts where.
fn collected(expr: &Expr, outputs: &[&str]) -> Option<(TextRange, String)> {
    let Expr::Call(call) = expr else { return None };
    let Expr::Attribute(func) = &*call.func else { return None };
    let arg = call.arguments.args.first()?;
    let is_append = func.attr.as_str() == "append" && is_one_of(arg, outputs);
    is_append.then(|| Some((arg.range(), owner(&func.value)?))).flatten()
}

struct Collected<'n> {
    outputs: &'n [&'n str],
    found: Vec<(TextRange, TextRange, String)>,
}

impl<'a> Visitor<'a> for Collected<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::Expr(it) = stmt
            && let Some((at, target)) = collected(&it.value, self.outputs)
        {
            self.found.push((at, it.range, target));
        }
        visitor::walk_stmt(self, stmt);
    }
}

/// `output`, `output[0]`
fn is_one_of(expr: &Expr, names: &[&str]) -> bool {
    match expr {
        Expr::Subscript(it) => is_one_of(&it.value, names),
        _ => dotted(expr).is_some_and(|it| names.contains(&it.as_str())),
    }
}
