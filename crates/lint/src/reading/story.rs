//! All that happens in a file. The functions are read three times: what one returns, and what it is called with, is known
//! only after the others were read.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::Expr;

use crate::reading::{
    events::{Event, Grad, Loop, What},
    file::{File, dotted},
    walker::{Handler, Known, Walker},
};

/// How often everything is read: what is known of a function goes through two others at most.
const ROUNDS: usize = 3;

/// All that happens in a file.
#[derive(Debug)]
pub(crate) struct Story<'f, 'a> {
    pub(crate) file: &'f File<'a>,
    pub(crate) events: Vec<Event<'a>>,
    pub(crate) loops: Vec<Loop<'a>>,
    pub(crate) handlers: Vec<Handler<'a>>,
    pub(crate) known: Known,
    /// Functions that a function calls, and those that they call.
    reaches: BTreeMap<usize, BTreeSet<usize>>,
}

impl<'f, 'a> Story<'f, 'a> {
    pub(crate) fn of(file: &'f File<'a>) -> Story<'f, 'a> {
        let mut known = Known::default();
        let mut res = None;
        for _ in 0..ROUNDS {
            let mut walker = Walker::new(file, &known);
            for function in 0..file.functions.len() {
                walker.function(function, entry(file, &known, function, 0));
            }
            let (events, loops, handlers, next) = walker.end();
            known = next;
            res = Some((events, loops, handlers));
        }
        let (events, loops, handlers) = res.unwrap_or_default();
        let mut res = Story { file, events, loops, handlers, known, reaches: BTreeMap::new() };
        res.reach();
        res
    }

    fn reach(&mut self) {
        let mut reaches: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for it in &self.events {
            if let What::Call { function } = it.what {
                reaches.entry(it.function).or_default().insert(function);
            }
        }
        loop {
            let before: usize = reaches.values().map(BTreeSet::len).sum();
            for of in 0..self.file.functions.len() {
                let own = reaches.get(&of).cloned().unwrap_or_default();
                let more: BTreeSet<usize> =
                    own.iter().filter_map(|it| reaches.get(it)).flatten().copied().collect();
                if !more.is_empty() {
                    reaches.entry(of).or_default().extend(more);
                }
            }
            if reaches.values().map(BTreeSet::len).sum::<usize>() == before {
                break;
            }
        }
        self.reaches = reaches;
    }

    /// What happens in a function itself.
    pub(crate) fn in_function(&self, function: usize) -> impl Iterator<Item = &Event<'a>> {
        self.events.iter().filter(move |it| it.function == function)
    }

    /// What happens in a loop itself.
    pub(crate) fn in_loop(&self, index: usize) -> impl Iterator<Item = &Event<'a>> {
        self.events.iter().filter(move |it| it.loops.contains(&index))
    }

    /// What happens in a loop, and in the functions that it calls.
    pub(crate) fn within(&self, index: usize) -> impl Iterator<Item = &Event<'a>> {
        let mut called = BTreeSet::new();
        for it in self.in_loop(index) {
            if let What::Call { function } = it.what {
                called.insert(function);
                called.extend(self.reaches.get(&function).into_iter().flatten());
            }
        }
        self.events
            .iter()
            .filter(move |it| it.loops.contains(&index) || called.contains(&it.function))
    }

    /// What happens in a function, and in those that it calls.
    pub(crate) fn within_function(&self, function: usize) -> impl Iterator<Item = &Event<'a>> {
        let called = self.reaches.get(&function).cloned().unwrap_or_default();
        self.events
            .iter()
            .filter(move |it| it.function == function || called.contains(&it.function))
    }

    /// Whether a loop trains: a backward pass or a step is in it.
    pub(crate) fn trains(&self, index: usize) -> bool {
        self.within(index).any(|it| matches!(it.what, What::Backward { .. } | What::Step { .. }))
    }

    /// The innermost loops that train: no loop in them does.
    pub(crate) fn step_loops(&self) -> Vec<usize> {
        let trains: Vec<usize> = (0..self.loops.len()).filter(|it| self.trains(*it)).collect();
        let is_inner = |it: &&usize| {
            let at = self.loops[**it].at;
            !trains.iter().any(|other| other != *it && at.contains_range(self.loops[*other].at))
        };
        trains.iter().filter(is_inner).copied().collect()
    }

    /// Whether the gradients that this pass makes are not set to `None` afterwards.
    pub(crate) fn uses_only_backward_of(&self, event: &Event<'_>) -> bool {
        let text = self.file.text_at(self.file.functions[event.function].at);
        !text.contains(".grad = None")
    }

    /// Whether the file does anything on a GPU.
    pub(crate) fn uses_gpu(&self) -> bool {
        let text = self.file.text;
        ["cuda", ".to(", "accelerat", "device"].iter().any(|it| text.contains(it))
    }
}

/// Whether gradients are on when a function begins.
fn entry(file: &File<'_>, known: &Known, function: usize, depth: usize) -> Grad {
    let it = &file.functions[function];
    let decorators = it.def.iter().flat_map(|it| &it.decorator_list);
    for decorator in decorators {
        let expr = match &decorator.expression {
            Expr::Call(it) => &*it.func,
            other => other,
        };
        let name = dotted(expr).unwrap_or_default();
        if name.contains("no_grad") || name.contains("inference_mode") || name.contains("nograd") {
            return Grad::Off;
        }
        if name.contains("set_grad_enabled") {
            return Grad::Off;
        }
    }
    if known.grad_off {
        return Grad::Off;
    }
    let calls = known.calls.get(&function);
    let is_off = |(caller, off): &(usize, bool)| {
        *off || depth < ROUNDS
            && *caller != function
            && entry(file, known, *caller, depth + 1) == Grad::Off
    };
    match calls {
        Some(calls) if !calls.is_empty() && calls.iter().all(is_off) => Grad::Off,
        Some(calls) if calls.iter().any(is_off) => Grad::Maybe,
        _ => Grad::On,
    }
}
