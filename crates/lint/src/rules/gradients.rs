//! Gradients, accumulation and optimizers: PLM3xx.

use std::collections::BTreeSet;

use ruff_python_ast::{
    CmpOp, Expr, Operator, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{
        events::{Event, What},
        file::{LONGEST_NAME, dotted},
        story::Story,
        value::Kind,
    },
    rules::found::{Found, Mend, clipped},
};

pub(super) fn find(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for index in story.step_loops() {
        step_loop(story, index, acc);
    }
    micro_loops(story, acc);
    for event in &story.events {
        match &event.what {
            What::Method { name, call, .. } if name == "zero_grad" => {
                let value = call.arguments.find_argument("set_to_none", 0).map(|it| it.value());
                // Who adds to `.grad` needs one that is there.
                let adds = || {
                    story.file.says_anywhere(&[
                        ".grad +=",
                        ".grad.add_(",
                        ".grad = torch.zeros_like",
                    ])
                };
                if let Some(Expr::BooleanLiteral(it)) = value
                    && !it.value
                    && !adds()
                {
                    acc.push(Found {
                        code: "PLM306",
                        at: event.at,
                        statement: event.statement,
                        message: "gradients stay allocated through the next forward pass: remove `set_to_none=False`, so that PyTorch frees them".to_owned(),
                        mend: vec![Mend::Replace(it.range, "True".to_owned())],
                    });
                }
            }
            What::Method { name, receiver, value, .. }
                if name == "zero_" && receiver.ends_with(".grad") =>
            {
                let function = story.file.functions[event.function].name;
                if !function.contains("zero") && (value.of.is_some() || over_weights(story, event))
                {
                    acc.push(Found {
                        code: "PLM306",
                        at: event.at,
                        statement: event.statement,
                        message: format!("gradients stay allocated through the next forward pass: set `{receiver} = None`, or call `optimizer.zero_grad()`"),
                        mend: vec![Mend::Replace(event.at, format!("setattr({}, \"grad\", None)", receiver.trim_end_matches(".grad")))],
                    });
                }
            }
            What::Library { path, .. } if path == "copy.deepcopy" => copied(story, event, acc),
            _ => {}
        }
    }
    best_of_a_class(story, acc);
    moved_late(story, acc);
}

fn over_weights(story: &Story<'_, '_>, event: &Event<'_>) -> bool {
    event
        .loops
        .last()
        .and_then(|it| story.loops[*it].iter)
        .is_some_and(|it| story.file.text_at(it.range()).contains("parameters"))
}

/// `i % n == 0`: the name that counts, and whether `+ 1` stands with it. Conditions that also hold at the end say so.
struct Every {
    counter: String,
    plus: bool,
    /// Whether it is compared with 0.
    with_zero: bool,
    /// It holds at the end of the loader, too.
    at_end: bool,
}

fn every(expr: &Expr) -> Option<Every> {
    match expr {
        Expr::BoolOp(it) => {
            let mut found = it.values.iter().find_map(every)?;
            found.at_end |= matches!(it.op, ruff_python_ast::BoolOp::Or);
            Some(found)
        }
        Expr::Compare(it) => {
            let found = modulus(&it.left)?;
            let zero = it.comparators.first().is_some_and(|it| matches!(it, Expr::NumberLiteral(it) if matches!(&it.value, ruff_python_ast::Number::Int(it) if *it == 0)));
            let equal = matches!(it.ops.first(), Some(ruff_python_ast::CmpOp::Eq));
            Some(Every { with_zero: zero && equal, ..found })
        }
        Expr::UnaryOp(it) if matches!(it.op, ruff_python_ast::UnaryOp::Not) => {
            let found = modulus(&it.operand)?;
            Some(Every { with_zero: true, ..found })
        }
        _ => None,
    }
}

fn modulus(expr: &Expr) -> Option<Every> {
    let Expr::BinOp(it) = expr else { return None };
    if !matches!(it.op, Operator::Mod) {
        return None;
    }
    let (name, plus) = match &*it.left {
        Expr::BinOp(sum) if matches!(sum.op, Operator::Add) => {
            (dotted(&sum.left).or_else(|| dotted(&sum.right))?, true)
        }
        other => (dotted(other)?, false),
    };
    Some(Every { counter: name, plus, with_zero: false, at_end: false })
}

#[expect(clippy::too_many_lines, reason = "one loop, looked at from each side")]
fn step_loop(story: &Story<'_, '_>, index: usize, acc: &mut Vec<Found>) {
    let the_loop = &story.loops[index];
    let at = the_loop.at;
    let own: Vec<&Event<'_>> =
        story.in_loop(index).filter(|it| it.loops.last() == Some(&index)).collect();
    let all: Vec<&Event<'_>> = story.within(index).collect();
    let passes: Vec<&&Event<'_>> =
        own.iter().filter(|it| matches!(it.what, What::Backward { .. })).collect();
    let steps: Vec<&&Event<'_>> =
        own.iter().filter(|it| matches!(it.what, What::Step { .. })).collect();
    let zeros: Vec<&&Event<'_>> =
        own.iter().filter(|it| matches!(it.what, What::ZeroGrad { .. })).collect();
    never_emptied(story, index, (&passes, &steps), &all, acc);

    // Accumulation: a pass in each iteration, a step in some.
    let conditional = |it: &&&&Event<'_>| it.tests_in(at).any(|it| every(it).is_some());
    let sometimes: Vec<&&&Event<'_>> = steps.iter().filter(conditional).collect();
    let always = steps.iter().any(|it| it.is_unconditional_in(at));
    // The guard of one step says nothing of the others.
    let accumulates = sometimes.iter().find_map(|step| {
        let test = step.tests_in(at).find_map(every)?;
        let guard = step
            .branches
            .iter()
            .find(|it| at.contains_range(it.at) && it.test.is_some_and(|it| every(it).is_some()))?
            .at;
        let outside = passes.iter().find(|it| !guard.contains_range(it.at))?;
        let inside = passes.iter().any(|it| guard.contains_range(it.at));
        (!inside && !always).then_some((*step, test, guard, *outside))
    });
    if let Some((step, test, guard, pass)) = accumulates {
        if let Some(zero) =
            zeros.iter().find(|it| !guard.contains_range(it.at) && it.is_unconditional_in(at))
        {
            acc.push(Found {
                code: "PLM302",
                at: zero.at,
                statement: zero.statement,
                message: "this deletes the gradients of the earlier micro-batches, so each step uses the last micro-batch alone: move the call after `step()`, under the same condition".to_owned(),
                mend: Vec::new(),
            });
        }
        let counts_from_0 = the_loop.counter.as_deref() == Some(test.counter.as_str());
        if counts_from_0 && !test.plus && test.with_zero && !counter_moves(story, at, &test.counter)
        {
            acc.push(Found {
                code: "PLM305",
                at: step.at,
                statement: step.statement,
                message: format!("`{0}` begins at 0, so the first step has one micro-batch, and each later step begins one too late: test `({0} + 1) % ...`", test.counter),
                mend: Vec::new(),
            });
        }
        let library = [
            "accelerator.accumulate",
            "accelerator.backward",
            "reduction=\"sum\"",
            "reduction='sum'",
            "gradient_accumulation_steps=",
            "fabric.backward",
        ];
        let is_handled = story.file.says_anywhere(&library);
        if let What::Backward { loss, by_engine: false, .. } = &pass.what
            && !loss.divided
            && !is_handled
        {
            acc.push(Found {
                code: "PLM303",
                at: pass.at,
                statement: pass.statement,
                message: "the loss is not divided by the number of micro-batches, so their gradients add up to a larger step: divide the loss before `backward()`".to_owned(),
                mend: Vec::new(),
            });
        }
        let after = story.all().any(|event| {
            event.function == the_loop.function
                && event.at.start() > at.end()
                && matches!(event.what, What::Step { .. })
        });
        let ends = test.at_end
            || after
            || story.file.says(at, &["len("])
                && step.tests_in(at).any(|it| story.file.text_at(it.range()).contains("len("));
        if the_loop.over_batches && !ends {
            acc.push(Found {
                code: "PLM304",
                at: step.at,
                statement: step.statement,
                message: "if the number of batches does not divide evenly, the last micro-batches get no step, and their gradients stay allocated: call `step()` after the loop, too".to_owned(),
                mend: Vec::new(),
            });
        }
    }

    // Emptied only after the forward pass.
    let models: BTreeSet<&str> = zeros
        .iter()
        .filter_map(|event| match &event.what {
            What::ZeroGrad { of } => Some(of.as_str()),
            _ => None,
        })
        .collect();
    let forwards: Vec<&&Event<'_>> = own
        .iter()
        .filter(|event| {
            matches!(event.what, What::Forward { .. })
                && event.grad != crate::reading::events::Grad::Off
        })
        .collect();
    if let ([zero], [step], Some(pass), Some(forward)) =
        (zeros.as_slice(), steps.as_slice(), passes.last(), forwards.first())
        && models.len() == 1
        && passes.len() == 1
        && forward.at.end() < zero.at.start()
        && zero.at.end() < pass.at.start()
        && pass.at.end() < step.at.start()
        && zero.is_unconditional_in(at)
        && step.is_unconditional_in(at)
    {
        let call = story.file.piece(zero.at).unwrap_or("zero_grad()").to_owned();
        acc.push(Found {
            code: "PLM307",
            at: zero.at,
            statement: zero.statement,
            message: format!("the gradients of the previous step stay allocated through the forward pass: call `{call}` right after `step()`"),
            mend: vec![
                Mend::Replace(zero.at, "None".to_owned()),
                Mend::After(step.statement, call),
            ],
        });
    }
}

/// Text that empties gradients where no event says so: a function of another file, or a closure that only `step` gets.
const EMPTYING: [&str; 7] = [
    ".grad = None",
    ".grad=None",
    "grad.zero_",
    "grad.data.zero_",
    "set_grad_to_none",
    "clear_grad",
    "grad.fill_",
];

/// A loop steps, and nothing in it empties the gradients of what it steps.
fn never_emptied(
    story: &Story<'_, '_>,
    index: usize,
    (passes, steps): (&[&&Event<'_>], &[&&Event<'_>]),
    all: &[&Event<'_>],
    acc: &mut Vec<Found>,
) {
    let function = &story.file.functions[story.loops[index].function];
    // An engine's pass, and a step of another kind, empty them by themselves.
    let is_plain = !passes.is_empty()
        && passes.iter().all(|it| matches!(it.what, What::Backward { by_engine: false, .. }))
        && steps.iter().all(|it| matches!(it.what, What::Step { known: true, .. }));
    if steps.is_empty() || all.iter().any(|it| empties_by_hand(it)) || !repeats(story, index) {
        return;
    }
    let by_hand = || story.file.says(function.at, &EMPTYING);
    let mut add = |step: &Event<'_>, name: &str| {
        acc.push(Found {
            code: "PLM301",
            at: step.at,
            statement: step.statement,
            message: format!(
                "gradients add up over all steps: call `{name}.zero_grad()` right after this"
            ),
            mend: vec![Mend::After(step.statement, format!("{name}.zero_grad()"))],
        });
    };
    let zeros: Vec<&&Event<'_>> =
        all.iter().filter(|it| matches!(it.what, What::ZeroGrad { .. })).collect();
    if zeros.is_empty() {
        let may_be_emptied = steps.iter().any(|it| {
            let What::Step { optimizer, .. } = &it.what else { return false };
            optimizer.contains('.') && story.file.says_anywhere(&["zero_grad"])
                || has_unknown_calls_with(story, index, optimizer)
        });
        if let Some(step) = steps.first()
            && let What::Step { optimizer, .. } = &step.what
            && is_plain
            && !may_be_emptied
            && !by_hand()
            && !story.file.says(function.at, &["zero_grad"])
        {
            add(step, optimizer);
        }
        return;
    }
    // Of several optimizers one is never emptied; a model that is emptied may have the weights of any.
    let owner = |event: &Event<'_>, call: &str| {
        let text = story.file.piece(event.at)?;
        text.split_once(call).map(|it| it.0.to_owned())
    };
    let stepped: BTreeSet<String> = steps
        .iter()
        .filter(|it| matches!(it.what, What::Step { known: true, by_scaler: false, .. }))
        .filter_map(|it| owner(it, ".step("))
        .collect();
    let emptied: Option<BTreeSet<String>> =
        zeros.iter().map(|it| owner(it, ".zero_grad(")).collect();
    let Some(emptied) = emptied.filter(|it| it.is_subset(&stepped)) else { return };
    let forgotten = steps.iter().find_map(|it| {
        let name =
            owner(it, ".step(").filter(|it| stepped.contains(it) && !emptied.contains(it))?;
        (!has_unknown_calls_with(story, index, &name)).then_some((it, name))
    });
    if let Some((step, name)) = forgotten.filter(|_| !by_hand()) {
        add(step, &name);
    }
}

/// Whether gradients are emptied, in whole or in part, without an optimizer: `p.grad = None`, `w.grad[:n].zero_()`.
fn empties_by_hand(event: &Event<'_>) -> bool {
    let is_gradient = |name: &str| {
        let name = name.trim_end_matches("[]").trim_end_matches(".data");
        name.trim_end_matches("[]").rsplit('.').next().is_some_and(|it| it.contains("grad"))
    };
    match &event.what {
        What::Clear { target } => is_gradient(target),
        What::Method { receiver, name, .. } => {
            matches!(name.as_str(), "zero_" | "fill_") && is_gradient(receiver)
        }
        What::Library { path, .. } => path.ends_with("_foreach_zero_"),
        _ => false,
    }
}

/// Whether the counter is changed in the loop.
fn counter_moves(story: &Story<'_, '_>, at: TextRange, counter: &str) -> bool {
    story.file.says(at, &[&format!("{counter} += "), &format!("{counter} = {counter}")])
}

/// The loop goes round more than once.
fn repeats(story: &Story<'_, '_>, index: usize) -> bool {
    !story.file.text_at(story.loops[index].head).contains("range(1)")
}

/// Whether something else in the loop may empty the gradients: a function from elsewhere gets the optimizer.
fn has_unknown_calls_with(story: &Story<'_, '_>, index: usize, optimizer: &str) -> bool {
    let text = story.file.text_at(story.loops[index].at);
    let after = text.match_indices(optimizer).any(|(at, _)| {
        let before = text[..at].trim_end();
        let end = text[at + optimizer.len()..].trim_start();
        (before.ends_with('(') || before.ends_with(',') || before.ends_with('='))
            && (end.starts_with(')') || end.starts_with(','))
            && !text[..at].ends_with("scaler.step(")
            && !text[..at].ends_with("unscale_(")
    });
    after || optimizer.is_empty()
}

/// `for i in range(n): ...; loss.backward()` in a loop with one step: accumulation in a loop of its own.
fn micro_loops(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for (index, the_loop) in story.loops.iter().enumerate() {
        let own: Vec<&Event<'_>> = story.in_loop(index).collect();
        let passes: Vec<&&Event<'_>> = own
            .iter()
            .filter(|it| matches!(it.what, What::Backward { by_engine: false, .. }))
            .collect();
        let steps = own.iter().any(|it| matches!(it.what, What::Step { .. }));
        if passes.is_empty() || steps {
            continue;
        }
        // The step comes after it, in the loop around it.
        let Some(outer) = own.first().and_then(|event| {
            event.loops.iter().rev().find(|outer| {
                **outer != index
                    && story.loops[**outer].at.contains_range(the_loop.at)
                    && story.loops[**outer].at != the_loop.at
            })
        }) else {
            continue;
        };
        let step = story.in_loop(*outer).find(|event| {
            matches!(event.what, What::Step { .. })
                && event.at.start() > the_loop.at.end()
                && event.loops.last() == Some(outer)
        });
        let head = story.file.text_at(the_loop.head);
        // `for x, y in zip(xs.chunk(n), ys.chunk(n))`
        let over_parts = [".chunk(", ".split("].iter().any(|it| head.contains(it));
        if step.is_none() || !the_loop.is_counted && !the_loop.over_batches && !over_parts {
            continue;
        }
        let forward =
            own.iter().any(|it| matches!(it.what, What::Forward { .. } | What::Call { .. }));
        if let Some(zero) = own.iter().find(|event| {
            matches!(event.what, What::ZeroGrad { .. }) && event.is_unconditional_in(the_loop.at)
        }) {
            acc.push(Found {
                code: "PLM302",
                at: zero.at,
                statement: zero.statement,
                message: "this deletes the gradients of the earlier micro-batches, so each step uses the last micro-batch alone: move the call out of the inner loop".to_owned(),
                mend: Vec::new(),
            });
        }
        let is_micro = ["accum", "micro", "grad_steps", "gradient_steps"]
            .iter()
            .any(|it| head.to_ascii_lowercase().contains(it));
        let handled = ["accelerator.", "reduction=\"sum\"", "reduction='sum'"];
        let is_alone = forward && is_micro && !story.file.says_anywhere(&handled);
        if let (true, Some(pass)) = (is_alone, passes.first())
            && let What::Backward { loss, .. } = &pass.what
            && !loss.divided
        {
            acc.push(Found {
                code: "PLM303",
                at: pass.at,
                statement: pass.statement,
                message: "the loss is not divided by the number of micro-batches, so their gradients add up to a larger step: divide the loss before `backward()`".to_owned(),
                mend: Vec::new(),
            });
        }
    }
}

/// A copy of the weights in each epoch, on the device.
fn copied(story: &Story<'_, '_>, event: &Event<'_>, acc: &mut Vec<Found>) {
    let What::Library { call, .. } = &event.what else { return };
    let Some(arg) = call.arguments.args.first() else { return };
    let text = story.file.text_at(arg.range());
    let is_state = text.ends_with(".state_dict()");
    let is_model =
        dotted(arg).is_some_and(|it| crate::reading::guess::kind(story.file, &it) == Kind::Module);
    let statement = story.file.text_at(event.statement);
    let after = story.file.text_at(event.at);
    let to_cpu = statement.contains("cpu") || after.contains("cpu");
    let trains = event.loops.iter().any(|index| {
        story.trains(*index)
            || story
                .in_loop(*index)
                .any(|it| matches!(it.what, What::Call { .. } | What::Mode { .. }))
    });
    // Made to be saved, and gone after that.
    let (names, values) = statement.split_once('=').unwrap_or_default();
    let around = event.loops.first().map(|it| story.loops[*it].at);
    let saves = |name: &str| {
        let saves = [format!("torch.save({name}"), format!("del {name}")];
        around.is_some_and(|it| story.file.says(it, &saves.each_ref().map(String::as_str)))
    };
    let is_saved = statement.contains("torch.save(")
        || names.split(',').map(str::trim).any(|it| !it.is_empty() && saves(it));
    // All that is assigned, or one of several: `best, state = score, copy.deepcopy(...)`.
    let is_kept = values.split(", ").any(|it| it.trim() == after.trim());
    if is_saved || !is_kept {
        return;
    }
    if (is_state || is_model) && trains && !to_cpu && story.uses_gpu() {
        let owner = clipped(text.trim_end_matches(".state_dict()"));
        acc.push(Found {
            code: "PLM309",
            at: event.at,
            statement: event.statement,
            message: format!("a second set of weights stays on the device: store `{{k: v.cpu() for k, v in {owner}.state_dict().items()}}` instead"),
            mend: if is_state && text.len() <= LONGEST_NAME {
                vec![Mend::Replace(event.at, format!("{{_k: _v.detach().cpu().clone() for _k, _v in {text}.items()}}"))]
            } else {
                Vec::new()
            },
        });
    }
}

/// `self.weights = {k: v.clone() for k, v in model.state_dict().items()}` where a score is better: what stops early.
fn best_of_a_class(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for (index, function) in story.file.functions.iter().enumerate() {
        if function.class.is_none() || function.name == "__init__" {
            continue;
        }
        let mut seen = Copies { found: Vec::new(), compares: 0 };
        seen.visit_body(function.body);
        for (at, owner) in seen.found {
            let text = story.file.text_at(at);
            let is_known = acc.iter().any(|it| it.code == "PLM309" && it.statement == at);
            if is_known || text.contains("cpu") || !is_only_kept(story, index, at) {
                continue;
            }
            let owner = clipped(&owner).to_owned();
            acc.push(Found {
                code: "PLM309",
                at,
                statement: at,
                message: format!("a second set of weights stays on the device: store `{{k: v.cpu() for k, v in {owner}.state_dict().items()}}` instead"),
                mend: Vec::new(),
            });
        }
    }
}

/// Whether nothing in the function saves or deletes what is kept there.
fn is_only_kept(story: &Story<'_, '_>, function: usize, at: TextRange) -> bool {
    let text = story.file.text_at(at);
    let name = text.split('=').next().unwrap_or_default().trim();
    let around = story.file.text_at(story.file.functions[function].at);
    !around.contains(&format!("torch.save({name}")) && !around.contains(&format!("del {name}"))
}

/// Assignments of copied weights to attributes, in branches that compare.
struct Copies {
    found: Vec<(TextRange, String)>,
    compares: usize,
}

impl<'a> Visitor<'a> for Copies {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::If(it) = stmt {
            let own = usize::from(compares(&it.test));
            self.compares += own;
            self.visit_body(&it.body);
            self.compares -= own;
            for clause in &it.elif_else_clauses {
                self.compares += 1;
                self.visit_body(&clause.body);
                self.compares -= 1;
            }
            return;
        }
        if let Stmt::Assign(it) = stmt
            && 0 < self.compares
            && it.targets.iter().filter_map(dotted).any(|it| it.starts_with("self."))
            && let Some(owner) = copied_state(&it.value)
        {
            self.found.push((it.range, owner));
        }
        visitor::walk_stmt(self, stmt);
    }
}

fn compares(test: &Expr) -> bool {
    match test {
        Expr::Compare(it) => !it.ops.iter().any(|it| matches!(it, CmpOp::Is | CmpOp::IsNot)),
        Expr::BoolOp(it) => it.values.iter().any(compares),
        Expr::UnaryOp(it) => compares(&it.operand),
        Expr::Call(_) | Expr::Name(_) => true,
        _ => false,
    }
}

/// The model whose weights this copies: `deepcopy(model.state_dict())`, `{k: v.clone() for k, v in model.state_dict().items()}`.
fn copied_state(expr: &Expr) -> Option<String> {
    let state = |expr: &Expr| {
        let Expr::Call(call) = expr else { return None };
        dotted(&call.func)?.strip_suffix(".state_dict").map(str::to_owned)
    };
    match expr {
        Expr::Call(call) if dotted(&call.func)?.ends_with("deepcopy") => {
            state(call.arguments.args.first()?)
        }
        Expr::DictComp(it) => {
            let Expr::Call(items) = &it.generators.first()?.iter else { return None };
            let Expr::Attribute(items) = &*items.func else { return None };
            let Expr::Call(value) = &*it.value else { return None };
            let is_copy = match &*value.func {
                Expr::Attribute(it) => it.attr.as_str() == "clone",
                it => dotted(it).is_some_and(|it| it.ends_with("deepcopy")),
            };
            is_copy.then(|| state(&items.value)).flatten()
        }
        _ => None,
    }
}

/// The model is moved after the optimizer was made.
fn moved_late(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for event in &story.events {
        let What::NewOptimizer { models } = &event.what else { continue };
        let is_first = |from: TextRange, to: TextRange| {
            story.file.steps.take(story.loops.len() / 8);
            !story.loops.iter().any(|the_loop| {
                the_loop.function == event.function
                    && from.end() < the_loop.at.start()
                    && the_loop.at.end() < to.start()
            })
        };
        let moved = story.in_function(event.function).find(|other| match &other.what {
            What::Move { model, call } => {
                let target = call
                    .arguments
                    .args
                    .first()
                    .map(|it| story.file.text_at(it.range()))
                    .unwrap_or_default();
                let name = story.file.text_at(call.func.range());
                let to_device = name.ends_with(".cuda")
                    || name.ends_with(".to")
                        && !target.contains("cpu")
                        && !target.contains("float")
                        && !target.contains("half");
                models.contains(model)
                    && to_device
                    && event.at.end() < other.at.start()
                    && is_first(event.at, other.at)
                    && other.branches.len() <= event.branches.len() + 1
            }
            _ => false,
        });
        if let Some(moved) = moved
            && let What::Move { model, .. } = &moved.what
        {
            acc.push(Found {
                code: "PLM308",
                at: moved.at,
                statement: moved.statement,
                message: format!("the optimizer is created before `{model}` is on the device, so its state stays on the CPU: move the model first"),
                mend: Vec::new(),
            });
        }
    }
}
