//! Graphs that go from one backward pass or step into the next: PLM105 to PLM107.

use std::collections::BTreeSet;

use ruff_python_ast::{
    Expr, Stmt,
    visitor::{self, Visitor},
};
use ruff_text_size::{Ranged, TextRange};

use crate::{
    reading::{
        events::{Event, Grad, What},
        file::dotted,
        story::Story,
    },
    rules::found::{Found, Mend},
};

/// `retain_graph=True` in the last pass over a graph, and `create_graph=True`.
pub(super) fn passes(story: &Story<'_, '_>, event: &Event<'_>, acc: &mut Vec<Found>) {
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
pub(super) fn into_a_model(
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
    let given = format!("({name})");
    let assigns = text.split('\n').any(|line| {
        let line = line.trim_start();
        line.starts_with(name.as_str()) && cut.iter().any(|it| line.contains(it))
            || line.contains(&in_place)
            || line.contains(&given) && cut.iter().any(|it| line.contains(it))
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

/// `y, self.hidden = self.rnn(x, self.hidden)`: the graph of all earlier calls hangs on the state.
pub(super) fn state_of_a_module(story: &Story<'_, '_>, class: usize, acc: &mut Vec<Found>) {
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
