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
    /// The events of each function, and those within each loop.
    by_function: Vec<Vec<usize>>,
    by_loop: Vec<Vec<usize>>,
    /// Functions that a function calls itself.
    calls: BTreeMap<usize, BTreeSet<usize>>,
    /// Whether each loop trains.
    trains: Vec<bool>,
}

impl<'f, 'a> Story<'f, 'a> {
    pub(crate) fn of(file: &'f File<'a>) -> Story<'f, 'a> {
        let mut known = Known::default();
        let mut res = None;
        for _ in 0..ROUNDS {
            let mut walker = Walker::new(file, &known);
            let mut entries = Entries { file, known: &known, seen: BTreeMap::new() };
            for function in 0..file.functions.len() {
                walker.function(function, entries.of(function, 0));
            }
            let (events, loops, handlers, next) = walker.end();
            known = next;
            res = Some((events, loops, handlers));
        }
        let (events, loops, handlers) = res.unwrap_or_default();
        let mut by_function = vec![Vec::new(); file.functions.len()];
        let mut by_loop = vec![Vec::new(); loops.len()];
        let mut calls: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (n, it) in events.iter().enumerate() {
            by_function[it.function].push(n);
            for at in &it.loops {
                by_loop[*at].push(n);
            }
            if let What::Call { function } = it.what {
                calls.entry(it.function).or_default().insert(function);
            }
        }
        let trains = Vec::new();
        let mut res =
            Story { file, events, loops, handlers, known, by_function, by_loop, calls, trains };
        let walks = |it: &Event<'_>| matches!(it.what, What::Backward { .. } | What::Step { .. });
        res.trains = (0..res.loops.len()).map(|it| res.within(it).any(walks)).collect();
        res
    }

    /// All that happens, from the beginning: for who goes through it again and again.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Event<'a>> {
        let is_left = self.file.steps.take(self.events.len() / 4);
        self.events.iter().filter(move |_| is_left)
    }

    /// These of the events.
    fn some<'s>(&'s self, which: &'s [usize]) -> impl Iterator<Item = &'s Event<'a>> {
        let is_left = self.file.steps.take(which.len() / 4);
        which.iter().filter(move |_| is_left).map(|it| &self.events[*it])
    }

    /// What happens in a function itself.
    pub(crate) fn in_function(&self, function: usize) -> impl Iterator<Item = &Event<'a>> {
        self.some(&self.by_function[function])
    }

    /// What happens in a loop itself.
    pub(crate) fn in_loop(&self, index: usize) -> impl Iterator<Item = &Event<'a>> {
        self.some(&self.by_loop[index])
    }

    /// What happens in a loop, and in the functions that it calls.
    pub(crate) fn within(&self, index: usize) -> impl Iterator<Item = &Event<'a>> {
        let called = self.in_loop(index).filter_map(|event| match event.what {
            What::Call { function } => Some(function),
            _ => None,
        });
        self.and_called(&self.by_loop[index], called.collect())
    }

    /// What happens in a function, and in those that it calls.
    pub(crate) fn within_function(&self, function: usize) -> impl Iterator<Item = &Event<'a>> {
        let called = self.calls.get(&function).cloned().unwrap_or_default();
        self.and_called(&self.by_function[function], called)
    }

    /// These events, and those in the functions that were called and in what those call, in order.
    fn and_called(
        &self,
        own: &[usize],
        mut called: BTreeSet<usize>,
    ) -> impl Iterator<Item = &Event<'a>> {
        let mut which = own.to_vec();
        let mut open: Vec<usize> = called.iter().copied().collect();
        while let Some(function) = open.pop() {
            let events = &self.by_function[function];
            if !self.file.steps.take(1 + events.len() / 4) {
                break;
            }
            which.extend(events);
            for it in self.calls.get(&function).into_iter().flatten() {
                if called.insert(*it) {
                    open.push(*it);
                }
            }
        }
        if !called.is_empty() {
            which.sort_unstable();
            which.dedup();
        }
        self.file.steps.take(which.len() / 4);
        which.into_iter().map(|it| &self.events[it])
    }

    /// Whether a loop trains: a backward pass or a step is in it.
    pub(crate) fn trains(&self, index: usize) -> bool {
        self.trains[index]
    }

    /// The innermost loops that train: no loop in them does.
    pub(crate) fn step_loops(&self) -> Vec<usize> {
        let mut trains: Vec<usize> = (0..self.loops.len()).filter(|it| self.trains(*it)).collect();
        trains.sort_by_key(|it| self.loops[*it].at.start());
        // What is in a loop comes right after it.
        let is_inner = |at: usize| {
            let next = trains.get(at + 1).map(|it| self.loops[*it].at);
            next.is_none_or(|it| !self.loops[trains[at]].at.contains_range(it))
        };
        let mut res: Vec<usize> =
            (0..trains.len()).filter(|it| is_inner(*it)).map(|it| trains[it]).collect();
        res.sort_unstable();
        res
    }

    /// Whether the gradients that this pass makes are not set to `None` afterwards.
    pub(crate) fn uses_only_backward_of(&self, event: &Event<'_>) -> bool {
        !self.file.says(self.file.functions[event.function].at, &[".grad = None"])
    }

    /// Whether the file does anything on a GPU.
    pub(crate) fn uses_gpu(&self) -> bool {
        self.file.says_anywhere(&["cuda", ".to(", "accelerat", "device"])
    }
}

/// Whether gradients are on when a function begins.
struct Entries<'f, 'a> {
    file: &'f File<'a>,
    known: &'f Known,
    /// By function, and by how many calls lead to it from where somebody asked.
    seen: BTreeMap<(usize, usize), Grad>,
}

impl Entries<'_, '_> {
    fn of(&mut self, function: usize, depth: usize) -> Grad {
        if let Some(it) = self.seen.get(&(function, depth)) {
            return *it;
        }
        let res = self.look(function, depth);
        self.seen.insert((function, depth), res);
        res
    }

    fn look(&mut self, function: usize, depth: usize) -> Grad {
        let it = &self.file.functions[function];
        let decorators = it.def.iter().flat_map(|it| &it.decorator_list);
        for decorator in decorators {
            let expr = match &decorator.expression {
                Expr::Call(it) => &*it.func,
                other => other,
            };
            let name = dotted(expr).unwrap_or_default();
            let words = ["no_grad", "inference_mode", "nograd", "set_grad_enabled"];
            if words.iter().any(|it| name.contains(it)) {
                return Grad::Off;
            }
            // A decorator of this file that does it.
            let own = self.file.function_named(&name).map(|it| self.file.functions[it].at);
            if own.is_some_and(|at| self.file.says(at, &["no_grad(", "inference_mode("])) {
                return Grad::Off;
            }
        }
        if self.known.grad_off {
            return Grad::Off;
        }
        let Some(calls) = self.known.calls.get(&function) else { return Grad::On };
        self.file.steps.take(calls.len());
        let mut is_off = |(caller, off): &(usize, bool)| {
            *off || depth < ROUNDS
                && *caller != function
                && self.of(*caller, depth + 1) == Grad::Off
        };
        let n_off = calls.iter().filter(|it| is_off(it)).count();
        match n_off {
            0 => Grad::On,
            n if n == calls.len() => Grad::Off,
            _ => Grad::Maybe,
        }
    }
}
