//! What is remembered while a file is read: what the names hold, what is around, what happened so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use ruff_python_ast::Expr;
use ruff_text_size::{TextRange, TextSize};

use crate::reading::{
    events::{Branch, Event, Grad, Loop, What},
    file::{File, names_in},
    guess,
    names::{Held, Names},
    value::{Kind, Sources, Value},
};

/// A handler of exceptions.
#[derive(Clone, Debug)]
pub(crate) struct Handler<'a> {
    pub(crate) at: TextRange,
    pub(crate) type_: Option<&'a Expr>,
    pub(crate) name: Option<&'a str>,
    pub(crate) function: usize,
}

/// What is known of the file's functions and objects before a function is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// By function and parameter: what it is called with.
    pub(crate) parameters: BTreeMap<(usize, String), Value>,
    pub(crate) returns: BTreeMap<usize, Value>,
    /// By class: what its objects hold.
    pub(crate) attributes: BTreeMap<(usize, String), Value>,
    /// What the names of a function hold at its end: its own, seen from the functions in it.
    pub(crate) names: BTreeMap<usize, Rc<Held>>,
    /// By function: whether gradients are on where it is called.
    pub(crate) calls: BTreeMap<usize, BTreeSet<(usize, bool)>>,
    /// Methods that keep what they are given, by class.
    pub(crate) keepers: BTreeSet<(usize, String)>,
    /// Generators that keep what they are sent.
    pub(crate) receivers: BTreeSet<usize>,
    /// The file switches gradients off, for good.
    pub(crate) grad_off: bool,
}

impl Known {
    /// What a name holds in a function, by itself or by those around it.
    pub(crate) fn name(&self, file: &File<'_>, function: usize, name: &str) -> Option<&Value> {
        let mut function = Some(function);
        while let Some(it) = function {
            if let Some(value) = self.names.get(&it).and_then(|it| it.get(name)) {
                return Some(value);
            }
            function = file.functions[it].parent;
        }
        None
    }
}

/// A loop that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    pub(crate) index: usize,
    /// When its first pass began.
    pub(crate) first: u32,
    /// When its second pass began; none during the first.
    pub(crate) second: Option<u32>,
}

/// Reads one function after the other.
pub(crate) struct Walker<'f, 'a> {
    pub(crate) file: &'f File<'a>,
    /// Of the round before.
    pub(crate) known: &'f Known,
    /// For the next round.
    pub(crate) next: Known,
    pub(crate) names: Names,
    pub(crate) events: Vec<Event<'a>>,
    pub(crate) loops: Vec<Loop<'a>>,
    pub(crate) loops_by_place: BTreeMap<TextSize, usize>,
    pub(crate) handlers: Vec<Handler<'a>>,
    pub(crate) handlers_by_place: BTreeSet<TextSize>,
    pub(crate) tick: u32,
    /// When the function began.
    pub(crate) began: u32,
    pub(crate) function: usize,
    pub(crate) statement: TextRange,
    pub(crate) inside: Vec<Inside>,
    branches: Vec<Branch<'a>>,
    /// The same, as the events share them.
    shared: Rc<[Branch<'a>]>,
    pub(crate) grad: Grad,
    pub(crate) autocast: bool,
    pub(crate) in_handler: bool,
    /// In a `yield`.
    pub(crate) is_yielded: bool,
}

impl<'f, 'a> Walker<'f, 'a> {
    pub(crate) fn new(file: &'f File<'a>, known: &'f Known) -> Walker<'f, 'a> {
        Walker {
            file,
            known,
            next: Known::default(),
            names: Names::default(),
            events: Vec::new(),
            loops: Vec::new(),
            loops_by_place: BTreeMap::new(),
            handlers: Vec::new(),
            handlers_by_place: BTreeSet::new(),
            tick: 1,
            began: 1,
            function: 0,
            statement: TextRange::default(),
            inside: Vec::new(),
            branches: Vec::new(),
            shared: Rc::new([]),
            grad: Grad::On,
            autocast: false,
            in_handler: false,
            is_yielded: false,
        }
    }

    pub(crate) fn end(self) -> (Vec<Event<'a>>, Vec<Loop<'a>>, Vec<Handler<'a>>, Known) {
        (self.events, self.loops, self.handlers, self.next)
    }

    /// Only what happens in the last pass of each loop is told.
    pub(crate) fn is_last_pass(&self) -> bool {
        self.inside.iter().all(|it| it.second.is_some())
    }

    pub(crate) fn tell(&mut self, at: TextRange, what: What<'a>) {
        if !self.is_last_pass() {
            return;
        }
        if self.shared.len() != self.branches.len() {
            self.shared = Rc::from(self.branches.as_slice());
        }
        self.events.push(Event {
            what,
            at,
            statement: self.statement,
            function: self.function,
            loops: self.inside.iter().map(|it| it.index).collect(),
            branches: Rc::clone(&self.shared),
            grad: self.grad,
            autocast: self.autocast,
            in_handler: self.in_handler,
        });
    }

    /// What a name holds: as it was assigned, here or around here, or as it is used and called.
    pub(crate) fn look_up(&self, name: &str) -> Value {
        if let Some(it) = self.names.get(name).filter(|it| !it.is(&Kind::Unknown)) {
            return it.clone();
        }
        if let Some(it) = self.attribute(name).filter(|it| !it.is(&Kind::Unknown)) {
            return it;
        }
        let known =
            self.names.get(name).cloned().or_else(|| self.attribute(name)).unwrap_or_default();
        if known.attached || known.is_output {
            return known;
        }
        // One of several, on which a backward pass is made here: `losses["mask"].backward()`.
        let is_loss = || self.file.losses.contains(&(self.function, name.to_owned()));
        if name.ends_with("[]") && self.grad != Grad::Off && is_loss() {
            return Value { attached: true, is_scalar: true, kind: Kind::Tensor, ..known };
        }
        Value { kind: guess::kind(self.file, name), ..known }
    }

    /// What `self.name` holds.
    pub(crate) fn attribute(&self, name: &str) -> Option<Value> {
        let rest = name.strip_prefix("self.")?;
        let class = self.class()?;
        self.known.attributes.get(&(class, rest.to_owned())).cloned()
    }

    /// The class that is being read; functions in methods know it, too.
    pub(crate) fn class(&self) -> Option<usize> {
        let mut function = Some(self.function);
        while let Some(it) = function {
            if let Some(class) = self.file.functions[it].class {
                return Some(class);
            }
            function = self.file.functions[it].parent;
        }
        None
    }

    pub(crate) fn bind(&mut self, name: &str, value: Value) {
        if let (Some(rest), Some(class)) = (name.strip_prefix("self."), self.class()) {
            let key = (class, rest.to_owned());
            let stored = Value {
                tick: 0,
                from: Sources::default(),
                graph: Sources::default(),
                ..value.clone()
            };
            let merged = match self.next.attributes.remove(&key) {
                Some(before) => before.or(&stored),
                None => stored,
            };
            self.next.attributes.insert(key, merged);
        }
        self.names.set(name, value);
    }

    /// Whether a value that was made at `tick` is there before the loop begins.
    pub(crate) fn outlives(&self, tick: u32, inside: Inside) -> bool {
        tick < inside.first
    }

    /// Whether it was made in the iteration before this one.
    pub(crate) fn is_carried(&self, tick: u32) -> bool {
        self.inside
            .last()
            .is_some_and(|it| it.first <= tick && it.second.is_some_and(|second| tick < second))
    }

    /// Whether a loop that is being read gives each of something this name.
    pub(crate) fn is_target(&self, name: &str) -> bool {
        let is_it = |it: &Expr| names_in(it).iter().any(|it| it == name);
        self.inside.iter().any(|it| self.loops[it.index].target.is_some_and(is_it))
    }

    /// A branch that has to be taken for what follows.
    pub(crate) fn branch(&mut self, at: TextRange, test: Option<&'a Expr>) {
        self.branches.push(Branch { at, test });
        self.shared = Rc::new([]);
    }

    /// It is left.
    pub(crate) fn leave_branch(&mut self) {
        self.branches.pop();
        self.shared = Rc::new([]);
    }

    pub(crate) fn is_in_a_branch(&self) -> bool {
        !self.branches.is_empty()
    }
}
