//! Graphs and results that live longer than their step: PLM1xx.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::{
    Expr, Operator, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{
        events::{Event, Grad, How, What},
        expressions::owner,
        file::{dotted, names_in, takes_no_graph},
        guess,
        story::Story,
        value::{Kind, Value},
    },
    rules::found::{Found, Mend, wrapped},
};

pub(super) fn find(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let step_loops: BTreeSet<usize> = story.step_loops().into_iter().collect();
    for event in &story.events {
        match &event.what {
            What::Keep { .. } => kept(story, &step_loops, event, acc),
            What::Gather { value, mapped } => gathered(story, event, value, *mapped, acc),
            What::Backward { .. } => passes(story, event, acc),
            What::Forward { .. } => carried(story, &step_loops, event, acc),
            _ => {}
        }
    }
    in_functions_of_autograd(story, acc);
    hooks(story, acc);
    lightning(story, acc);
    metrics(story, acc);
    recursive(story, acc);
    in_functions(story, &step_loops, acc);
    for (index, class) in story.file.classes.iter().enumerate() {
        in_methods(story, index, acc);
        if class.is_module() {
            state_of_a_module(story, index, acc);
        }
    }
}

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

fn kept(
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
        && !the_loop.is_counted
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
        if is_batch_loop && (value.attached || value.is_output) && !value.on_host {
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
fn gathered(
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

/// The same expression without its graph, on the host; a list or a dictionary has no such methods.
fn detached(story: &Story<'_, '_>, at: TextRange, value: &Value) -> Vec<Mend> {
    if is_many(value) { Vec::new() } else { wrapped(story, at, "(", ").detach().cpu()") }
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

/// A list or a dictionary: it has no methods of a tensor.
fn is_many(value: &Value) -> bool {
    matches!(value.kind, Kind::List | Kind::Dict)
}

/// `text` with a method behind it, as code that runs; of long or broken text, the method alone.
fn with(text: &str, method: &str) -> String {
    let is_name =
        text.chars().all(|it| it.is_alphanumeric() || "_.[]()\"'".contains(it)) && text.len() < 40;
    match text {
        _ if is_name => format!("`{text}.{method}`"),
        _ if text.len() < 60 && !text.contains('\n') && !text.ends_with([']', '}']) => {
            format!("`({text}).{method}`")
        }
        _ => format!("`.{method}` of it"),
    }
}

fn number_of(text: &str, value: &Value) -> String {
    if is_many(value) {
        return "values that are `.detach()`ed first, or numbers (`.item()`)".to_owned();
    }
    with(text, if value.is_scalar { "item()" } else { "detach()" })
}

/// `retain_graph=True` in the last pass over a graph, and `create_graph=True`.
fn passes(story: &Story<'_, '_>, event: &Event<'_>, acc: &mut Vec<Found>) {
    let What::Backward { loss, retain, create, call, .. } = &event.what else { return };
    let keyword = |name: &str| call.arguments.find_keyword(name).map_or(event.at, Ranged::range);
    if *create && story.uses_only_backward_of(event) {
        acc.push(Found {
            code: "PLM106",
            at: keyword("create_graph"),
            statement: event.statement,
            message: "`backward(create_graph=True)` makes a reference cycle of each weight and the graph of its gradient, and PyTorch frees neither: use `torch.autograd.grad(..., create_graph=True)`".to_owned(),
            mend: vec![Mend::Replace(keyword("create_graph"), "create_graph=False".to_owned())],
        });
    }
    if !*retain || *create {
        return;
    }
    let innermost = event.loops.last().copied();
    let within = |it: &Event<'_>| innermost.is_none_or(|at| it.loops.contains(&at));
    // Made before the innermost loop: each of its iterations walks the same graph.
    let is_made_outside =
        loss.at.zip(innermost).is_some_and(|(at, index)| !story.loops[index].at.contains_range(at));
    let comes_again = story.in_function(event.function).any(|other| {
        let walks = match &other.what {
            // Another loss walks this graph again only where they have a part of it in common.
            What::Backward { loss: next, .. } => {
                loss.graph.is_empty() || next.graph.is_empty() || loss.graph.meets(&next.graph)
            }
            What::Walks | What::Call { .. } => true,
            _ => false,
        };
        walks && other.at.start() > event.at.end() && within(other)
    });
    if is_made_outside || comes_again || innermost.is_none() {
        return;
    }
    let at = keyword("retain_graph");
    acc.push(Found {
        code: "PLM105",
        at,
        statement: event.statement,
        message: "no later backward pass of the step uses this graph, and `retain_graph=True` keeps it into the next step: remove `retain_graph=True`; if that raises an error, detach the tensors that the step passes to the next".to_owned(),
        mend: vec![Mend::Replace(at, "retain_graph=False".to_owned())],
    });
}

/// A state that goes from step to step with its graph.
fn carried(
    story: &Story<'_, '_>,
    step_loops: &BTreeSet<usize>,
    event: &Event<'_>,
    acc: &mut Vec<Found>,
) {
    let What::Forward { model, carried, call, .. } = &event.what else { return };
    let (Some(name), Some(innermost)) = (carried.first(), event.loops.last()) else { return };
    let has_pass = story
        .in_loop(*innermost)
        .any(|it| matches!(it.what, What::Backward { .. } | What::Step { .. }));
    if !step_loops.contains(innermost) || !has_pass {
        return;
    }
    // A function takes it apart, by the look of its name.
    let text = story.file.text_at(story.loops[*innermost].at);
    let cut = ["detach", "repackage", "no_grad", "init_hidden"];
    let in_place = format!("{name}.detach_");
    let assigns = text.split('\n').any(|line| {
        let line = line.trim_start();
        line.starts_with(name.as_str()) && cut.iter().any(|it| line.contains(it))
            || line.contains(&in_place)
    });
    // A method of the object that holds it does.
    let attribute = name.rsplit_once('.').map(|(_, it)| format!(".{it}"));
    let by_method = || {
        let is_cut = |line: &str| {
            attribute.as_ref().is_some_and(|it| line.contains(it.as_str()))
                && line.contains("detach")
        };
        story.file.steps.take_text(story.file.text.len());
        story.file.text.lines().any(is_cut)
    };
    if assigns || by_method() {
        return;
    }
    let body = story.loops[*innermost].body;
    acc.push(Found {
        code: "PLM107",
        at: call.range(),
        statement: event.statement,
        message: format!("`{name}` brings the autograd graph of all earlier steps into `{model}`: set `{name} = {name}.detach()` at the start of each step"),
        mend: vec![Mend::Before(
            body,
            format!("{name} = ({name} if {name} is None else tuple(_it.detach() for _it in {name}) if isinstance({name}, tuple) else {name}.detach()) if '{name}' in dir() else None"),
        )],
    });
}

/// `ctx.name = tensor` in the forward of an autograd function.
fn in_functions_of_autograd(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for class in story.file.classes.iter().filter(|it| it.is_function()) {
        let Some(forward) = class.methods.get("forward").copied() else { continue };
        let function = &story.file.functions[forward];
        let parameters = function.parameters();
        let Some(ctx) = parameters.first().copied() else { continue };
        let mut seen = Assigned { ctx, found: Vec::new(), values: BTreeMap::new() };
        seen.visit_body(function.body);
        for (statement, name, value) in &seen.found {
            let Some(given) = dotted(value) else { continue };
            let is_parameter = parameters.contains(&given.as_str());
            let is_tensor = match (is_parameter, seen.values.get(&given)) {
                (true, _) => is_used_as_tensor(story, forward, &given),
                (false, Some(made)) => makes_tensor(story, made),
                (false, None) => false,
            };
            if is_tensor {
                acc.push(Found {
                    code: "PLM108",
                    at: *statement,
                    statement: *statement,
                    message: format!("`{ctx}.{name}` holds a tensor past the backward pass of this function, and forever if the tensor is the output: use `{ctx}.save_for_backward({given})`"),
                    mend: Vec::new(),
                });
            }
        }
    }
}

struct Assigned<'a> {
    ctx: &'a str,
    found: Vec<(TextRange, &'a str, &'a Expr)>,
    /// What was assigned to a name first.
    values: BTreeMap<String, &'a Expr>,
}

impl<'a> Assigned<'a> {
    fn assigned(&mut self, at: TextRange, target: &'a Expr, value: &'a Expr) {
        if let Expr::Attribute(it) = target
            && dotted(&it.value).is_some_and(|it| it == self.ctx)
        {
            self.found.push((at, it.attr.as_str(), value));
        }
    }
}

impl<'a> Visitor<'a> for Assigned<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::Assign(it) = stmt {
            for target in &it.targets {
                match target {
                    Expr::Attribute(_) => self.assigned(it.range, target, &it.value),
                    Expr::Tuple(targets) => match &*it.value {
                        Expr::Tuple(values) if values.elts.len() == targets.elts.len() => {
                            for (target, value) in targets.elts.iter().zip(&values.elts) {
                                self.assigned(value.range(), target, value);
                            }
                        }
                        _ => {}
                    },
                    _ => {
                        if let Some(name) = dotted(target) {
                            self.values.entry(name).or_insert(&it.value);
                        }
                    }
                }
            }
        }
        visitor::walk_stmt(self, stmt);
    }
}

/// Methods that only tensors have, and what names of tensors look like.
fn is_used_as_tensor(story: &Story<'_, '_>, function: usize, name: &str) -> bool {
    let at = story.file.functions[function].at;
    let methods = [
        "view(",
        "size(",
        "clone(",
        "contiguous(",
        "new(",
        "mul(",
        "add(",
        "matmul(",
        "mm(",
        "exp(",
        "clamp(",
        "sum(",
        "mean(",
        "abs(",
        "detach(",
        "new_zeros(",
        "new_empty(",
        "relu(",
        "sigmoid(",
        "pow(",
        "sqrt(",
        "log(",
        "norm(",
        "shape",
        "dim(",
        "t(",
    ];
    let has = |it: &str| story.file.says(at, &[&format!("{name}.{it}")]);
    let annotated =
        story.file.says(at, &[&format!("{name}: torch.Tensor"), &format!("{name}: Tensor")]);
    let names = ["input", "inputs", "x", "weight", "bias", "output", "tensor", "logits"];
    annotated || names.contains(&name) || methods.iter().any(|it| has(it))
}

fn makes_tensor(story: &Story<'_, '_>, expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => {
            let path = story.file.import(&call.func).unwrap_or_default();
            let by_torch = path.starts_with("torch.")
                && !path.starts_with("torch.cuda")
                && path
                    .rsplit('.')
                    .next()
                    .is_some_and(|it| it.starts_with(|it: char| it.is_ascii_lowercase()));
            let method = match &*call.func {
                Expr::Attribute(it) => it.attr.as_str(),
                _ => "",
            };
            by_torch && !path.ends_with("size")
                || [
                    "exp", "clamp", "sigmoid", "relu", "softmax", "matmul", "mm", "mul", "clone",
                    "tanh", "abs",
                ]
                .contains(&method)
        }
        Expr::BinOp(it) => makes_tensor(story, &it.left) || makes_tensor(story, &it.right),
        _ => false,
    }
}

/// Hooks that collect outputs, and hooks that are set again in each step.
fn hooks(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
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

/// Whether the file empties a list, or makes it anew; what is an attribute here may be reached by other names elsewhere.
fn is_emptied(story: &Story<'_, '_>, target: &str) -> bool {
    let attribute = target.rsplit_once('.').map(|(_, it)| format!(".{it}"));
    let name = attribute.as_deref().unwrap_or(target);
    let emptied = [".clear(", ".pop", "[:] = "].map(|it| format!("{name}{it}"));
    let deleted = story.file.text.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("del ") && line.contains(name)
    });
    let is_emptied = emptied.iter().any(|it| story.file.text.contains(it.as_str()));
    let assigned = format!("{name} = ");
    let n_made =
        story.file.text.split(assigned.as_str()).skip(1).filter(|it| makes_one(it)).count();
    deleted || is_emptied || 1 < n_made
}

/// Whether a text begins with a new list or dictionary: `[]`, `{}`, `list()`, `deque(maxlen=9)`, or `self.empty()`, which may be one.
fn makes_one(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let (called, rest) = line.split_once('(').unwrap_or_default();
    let is_type = matches!(
        called.rsplit('.').next().unwrap_or_default(),
        "list" | "dict" | "deque" | "defaultdict" | "OrderedDict"
    );
    let is_own = called.starts_with("self.") && rest.starts_with(')');
    line.starts_with(['[', '{']) || is_type || is_own
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

/// Outputs of a LightningModule's steps that are kept on it, and never cleared.
fn lightning(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
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
fn in_functions(story: &Story<'_, '_>, step_loops: &BTreeSet<usize>, acc: &mut Vec<Found>) {
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

/// What a method that a framework calls in each step, or a model's `forward`, adds to an attribute that nothing empties.
fn in_methods(story: &Story<'_, '_>, class: usize, acc: &mut Vec<Found>) {
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

/// Whether a text assigns to a name more than `times` times.
fn is_made_again(text: &str, name: &str, times: usize) -> bool {
    times < text.matches(&format!("{name} = ")).count()
}

/// Whether a call joins along the first dimension: a bank of rows, not keys and values along a text.
fn joins_rows(story: &Story<'_, '_>, call: TextRange) -> bool {
    let text = story.file.text_at(call);
    !text.contains("hstack")
        && !["dim=1", "dim=2", "dim=-", "axis=1", "axis=-", ", 1)", ", 2)", ", -1)", ", -2)"]
            .iter()
            .any(|it| text.contains(it))
}

/// `y, self.hidden = self.rnn(x, self.hidden)`: the graph of all earlier calls hangs on the state.
fn state_of_a_module(story: &Story<'_, '_>, class: usize, acc: &mut Vec<Found>) {
    let it = &story.file.classes[class];
    // Lightning makes the backward pass itself.
    let trains =
        it.is_lightning() || story.events.iter().any(|it| matches!(it.what, What::Backward { .. }));
    for method in ["forward", "training_step"].iter().filter_map(|name| it.methods.get(name)) {
        state_of_a_method(story, class, *method, trains, acc);
    }
}

fn state_of_a_method(
    story: &Story<'_, '_>,
    class: usize,
    forward: usize,
    trains: bool,
    acc: &mut Vec<Found>,
) {
    let file = story.file;
    let mut seen = States { found: Vec::new() };
    seen.visit_body(file.functions[forward].body);
    // A method of its own, which gives no graph: `self.seen = self.trimmed(self.seen)`.
    seen.found.retain(|it| {
        let method = file.classes[class].methods.get(it.method);
        method.is_none_or(|it| story.known.returns.get(it).is_some_and(|it| it.attached))
    });
    for State { at, statement, name, .. } in seen.found {
        file.steps.take_text(2 * file.text.len());
        let last = name.strip_prefix("self.").unwrap_or(&name);
        // Somebody cuts it, or begins anew: here, or by another name of the object.
        let is_cut = file.text.lines().any(|line| {
            let line = line.trim();
            let of_it = line.contains(last);
            let is_set = line.contains(&format!(".{last} = ")) && !line.contains(&name);
            of_it && (line.contains("detach") || is_set)
        });
        let own = file.text_at(file.classes[class].def.range);
        let n_set = own.matches(&format!("{name} = ")).count();
        let in_forward = file.text_at(file.functions[forward].at);
        let is_begun = in_forward.contains(&format!("{name} = ")) && 2 < n_set
            || own.contains("def reset")
            || own.contains("def init_hidden");
        let off = story.in_function(forward).any(|it| it.grad == Grad::Off);
        if !trains || is_cut || is_begun || off {
            continue;
        }
        acc.push(Found {
            code: "PLM107",
            at,
            statement,
            message: format!("`{name}` brings the autograd graph of all earlier calls into this one: set `{name} = {name}.detach()` before it, or `{name} = None` where a new sequence begins"),
            mend: Vec::new(),
        });
    }
}

struct States<'a> {
    found: Vec<State<'a>>,
}

/// `self.name = self.method(x, self.name)`
struct State<'a> {
    at: TextRange,
    statement: TextRange,
    name: String,
    method: &'a str,
}

impl<'a> Visitor<'a> for States<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::Assign(it) = stmt
            && let Expr::Call(call) = &*it.value
            && dotted(&call.func).is_some_and(|it| it.starts_with("self."))
            && let Expr::Attribute(func) = &*call.func
        {
            let targets = it.targets.iter().flat_map(|it| match it {
                Expr::Tuple(it) => it.elts.iter().collect(),
                it => vec![it],
            });
            for name in targets.filter_map(dotted).filter(|it| it.starts_with("self.")) {
                if call.arguments.args.iter().any(|it| dotted(it).as_deref() == Some(&name)) {
                    let (at, statement, method) = (call.range(), it.range, func.attr.as_str());
                    self.found.push(State { at, statement, name, method });
                }
            }
        }
        visitor::walk_stmt(self, stmt);
    }
}

/// Metrics of torchmetrics that are updated in a loop and never reset.
fn metrics(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
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

/// `shadow[name] = decay * shadow[name] + (1 - decay) * param`, with its graph.
fn recursive(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    for (index, function) in story.file.functions.iter().enumerate() {
        let mut seen = Averages { found: Vec::new(), in_place: Vec::new() };
        seen.visit_body(function.body);
        for (statement, value) in seen.in_place {
            let names = names_in(value);
            let text = story.file.text_at(statement);
            let cut = text.contains(".data") || text.contains("detach");
            let off = story.known.grad_off || is_off(story, index, statement);
            let is_weight = |name: &String| {
                let held = story.known.name(story.file, index, name);
                held.is_some_and(|it| {
                    it.attached && it.of.is_some() && it.is(&Kind::Tensor) && !it.is_output
                })
            };
            if !off && !cut && matches!(names.as_slice(), [name] if is_weight(name)) {
                acc.push(Found {
                    code: "PLM110",
                    at: statement,
                    statement,
                    message: format!("the average keeps the autograd graph of all earlier updates: update it under `torch.no_grad()`, or from `{}.detach()`", names[0]),
                    mend: wrapped(story, value.range(), "(", ").detach()"),
                });
            }
        }
        for (statement, target, value) in seen.found {
            // Weights, under gradients: what the walk knows of the names in it.
            let off = story.known.grad_off || is_off(story, index, statement);
            let names = names_in(value);
            let text = story.file.text_at(value.range());
            let is_weight = |name: &String| {
                let held = story.known.name(story.file, index, name);
                let is_made = |it: &Value| it.is_output || it.is_scalar;
                held.is_some_and(|it| {
                    it.attached && it.of.is_some() && it.is(&Kind::Tensor) && !is_made(it)
                })
            };
            let cut = text.contains(".data") || text.contains("detach") || text.contains(".item");
            let is_asked = text.contains(".get_parameter(") || text.contains("parameters()");
            if !off && !cut && (is_asked || names.iter().any(|it| is_weight(it) && *it != target)) {
                acc.push(Found {
                    code: "PLM110",
                    at: statement,
                    statement,
                    message: format!("the average `{target}` keeps the autograd graph of all earlier updates: update it under `torch.no_grad()`, or from `.detach()`ed weights"),
                    mend: wrapped(story, value.range(), "(", ").detach()"),
                });
            }
        }
    }
}

/// Whether gradients are off at a statement, by the events around it, or by the text around it.
fn is_off(story: &Story<'_, '_>, function: usize, statement: TextRange) -> bool {
    let inside = |it: &&Event<'_>| it.function == function && statement.contains_range(it.at);
    if let Some(it) = story.all().find(inside) {
        return it.grad == Grad::Off;
    }
    story.file.says(story.file.functions[function].at, &["no_grad", "inference_mode"])
}

/// `a * x + b * y`, `torch.lerp(x, y, w)`, `x.mul(a).add(y)`
fn mixes(expr: &Expr) -> bool {
    match expr {
        Expr::BinOp(_) => true,
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Attribute(it) if matches!(it.attr.as_str(), "lerp" | "add" | "addcmul"))
        }
        _ => false,
    }
}

/// Whether a name is multiplied somewhere in it: an average takes a share of what was there, and a plain sum all of it.
fn weighs(expr: &Expr, name: &str) -> bool {
    let has = |it: &Expr| names_in(it).iter().any(|it| it == name);
    match expr {
        Expr::BinOp(it) if matches!(it.op, Operator::Mult | Operator::Div) => has(expr),
        Expr::BinOp(it) => weighs(&it.left, name) || weighs(&it.right, name),
        Expr::Call(call) => {
            let Expr::Attribute(func) = &*call.func else { return false };
            match func.attr.as_str() {
                "mul" | "div" | "lerp" => has(expr),
                _ => {
                    weighs(&func.value, name)
                        || call.arguments.args.iter().any(|it| weighs(it, name))
                }
            }
        }
        _ => false,
    }
}

struct Averages<'a> {
    found: Vec<(TextRange, String, &'a Expr)>,
    /// Statements like `average.mul_(a).add_(weight, alpha=b)`, each with the weight.
    in_place: Vec<(TextRange, &'a Expr)>,
}

impl<'a> Visitor<'a> for Averages<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::Assign(it) = stmt
            && let Some(target) = it.targets.first().and_then(dotted)
            && let Some((sum, target)) = match &*it.value {
                sum @ (Expr::BinOp(_) | Expr::Call(_)) if target.ends_with("[]") => {
                    Some((sum, target))
                }
                Expr::DictComp(it) => Some((&*it.value, format!("{target}[]"))),
                _ => None,
            }
            && mixes(sum)
            && weighs(sum, &target)
        {
            self.found.push((it.range, target, &it.value));
        }
        if let Stmt::Expr(it) = stmt
            && let Expr::Call(call) = &*it.value
            && let Expr::Attribute(func) = &*call.func
            && matches!(func.attr.as_str(), "add_" | "lerp_")
            && let Some(weight) = call.arguments.args.first()
            && !dotted(&func.value).is_some_and(|it| takes_no_graph(&it))
        {
            self.in_place.push((it.range, weight));
        }
        if !matches!(stmt, Stmt::FunctionDef(_) | Stmt::ClassDef(_)) {
            visitor::walk_stmt(self, stmt);
        }
    }
}
