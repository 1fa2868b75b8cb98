//! What a script does that matters for memory, in the order in which it stands, with what is around it.

use std::rc::Rc;

use ruff_python_ast::{Expr, ExprCall};
use ruff_text_size::TextRange;

use crate::reading::value::Value;

/// Whether autograd keeps a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grad {
    #[default]
    On,
    Off,
    /// Something decides while it runs.
    Maybe,
}

/// A branch that has to be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch<'a> {
    /// Of the whole `if`.
    pub(crate) at: TextRange,
    /// The condition; none in an `else`.
    pub(crate) test: Option<&'a Expr>,
}

/// A loop.
#[derive(Clone, Debug)]
pub(crate) struct Loop<'a> {
    pub(crate) at: TextRange,
    /// Of its first line.
    pub(crate) head: TextRange,
    /// Of its first statement.
    pub(crate) body: TextRange,
    pub(crate) function: usize,
    /// What it goes over, unless it is a `while`.
    pub(crate) iter: Option<&'a Expr>,
    /// The names that it gives to each, unless it is a `while`.
    pub(crate) target: Option<&'a Expr>,
    /// It goes over batches.
    pub(crate) over_batches: bool,
    /// It goes over numbers, or has no end.
    pub(crate) is_counted: bool,
    /// The count, if `enumerate` or `range` gives it from 0.
    pub(crate) counter: Option<String>,
    /// An exit at the end of its first pass.
    pub(crate) autocast: bool,
}

/// How something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// `total += x`, `total = total + x`
    Sum,
    /// `list.append(x)`
    Append,
    /// `x = torch.cat((x, y))`
    Cat,
    /// `meter.update(x)`, where the class is in this file and keeps what it gets.
    Meter,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum What<'a> {
    /// A module is called.
    Forward {
        model: String,
        input_attached: bool,
        carried: Vec<String>,
        call: &'a ExprCall,
    },
    /// `x.backward()`
    Backward {
        loss: Value,
        retain: bool,
        create: bool,
        by_engine: bool,
        call: &'a ExprCall,
    },
    /// `optimizer.step()`
    Step {
        optimizer: String,
        by_scaler: bool,
        known: bool,
    },
    ZeroGrad {
        of: String,
    },
    /// A value goes into something that may outlive the iteration.
    Keep {
        target: String,
        how: How,
        value: Value,
        bounded: bool,
        arg: TextRange,
    },
    /// A comprehension over batches makes a list or dictionary of such values.
    Gather {
        value: Value,
        /// The function, where `map` makes it.
        mapped: Option<TextRange>,
    },
    /// A list is emptied, or made anew.
    Clear {
        target: String,
    },
    /// A value leaves the function.
    Return {
        value: Value,
    },
    /// `model.eval()`, `model.train()`
    Mode {
        model: String,
        train: bool,
    },
    /// `optim.Adam(model.parameters())`
    NewOptimizer {
        models: Vec<String>,
    },
    /// `model.cuda()`
    Move {
        model: String,
        call: &'a ExprCall,
    },
    /// `model.requires_grad_(False)`
    Freeze {
        model: String,
    },
    /// A function of this file is called.
    Call {
        function: usize,
    },
    /// A function of torch, or of another library, by its full name.
    Library {
        path: String,
        call: &'a ExprCall,
    },
    /// A method that tells something: `scaler.update()`, `loss.item()`.
    Method {
        receiver: String,
        name: String,
        value: Value,
        call: &'a ExprCall,
    },
    /// `model.load_state_dict(x)`
    LoadState {
        of: String,
        value: Value,
    },
    /// `torch.autograd.grad` and what else walks a graph.
    Walks,
}

/// What happens, and where.
#[derive(Clone, Debug)]
pub(crate) struct Event<'a> {
    pub(crate) what: What<'a>,
    pub(crate) at: TextRange,
    pub(crate) statement: TextRange,
    pub(crate) function: usize,
    /// Indices of the loops around it, the outermost first.
    pub(crate) loops: Vec<usize>,
    /// How many branches were around each of these loops, so that those within are known.
    pub(crate) branches: Rc<[Branch<'a>]>,
    pub(crate) grad: Grad,
    pub(crate) autocast: bool,
    /// In a handler of exceptions.
    pub(crate) in_handler: bool,
}

impl Event<'_> {
    /// Whether it happens in each iteration of the loop at `within`, as far as conditions go.
    pub(crate) fn is_unconditional_in(&self, within: TextRange) -> bool {
        !self.branches.iter().any(|it| within.contains_range(it.at) && it.at != within)
    }

    /// The tests that have to be true in the loop at `within`.
    pub(crate) fn tests_in(&self, within: TextRange) -> impl Iterator<Item = &Expr> {
        self.branches.iter().filter(move |it| within.contains_range(it.at)).filter_map(|it| it.test)
    }
}
