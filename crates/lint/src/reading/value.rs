//! What a name may hold, as far as memory is concerned.

use std::rc::Rc;

use ruff_text_size::TextRange;

/// What kind of thing it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Unknown,
    /// Something imported, by its full name: `torch.nn.functional.mse_loss`.
    Import(String),
    Module,
    /// A module that computes a loss.
    Criterion,
    /// What `parameters()` gives.
    Parameters,
    Optimizer,
    Scaler,
    Loader,
    Tensor,
    /// A number of Python's: nothing of it is on a device.
    Number,
    List,
    Dict,
    /// A function of this file.
    Function(usize),
    /// A class of this file.
    Class(usize),
    /// An object of a class of this file.
    Object(usize),
    /// What switches gradients off in a `with`; `false` if it is not known whether it does.
    NoGrad(bool),
    Autocast,
    /// What `torch.load` gave.
    Loaded,
    /// A metric of torchmetrics.
    Metric,
    /// A generator of this file that keeps what it is sent.
    Receiver,
    /// What cannot hold a tensor of the device: text, `None`.
    Plain,
}

/// The name by which a generator knows what it is sent.
pub(crate) const SENT: &str = "yield";

/// What a name holds.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about a tensor of its own")]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    /// A graph of autograd hangs on it.
    pub(crate) attached: bool,
    /// It is on the host.
    pub(crate) on_host: bool,
    /// It came out of a model.
    pub(crate) is_output: bool,
    /// It has one element.
    pub(crate) is_scalar: bool,
    /// It was divided by something on its way.
    pub(crate) divided: bool,
    /// A gradient scaler scaled it.
    pub(crate) scaled: bool,
    /// When it was made: statements are counted as they are read, so those of a loop's second pass come later.
    pub(crate) tick: u32,
    /// The names that it was made of.
    pub(crate) from: Sources,
    /// Of these, those whose graph hangs on it.
    pub(crate) graph: Sources,
    /// The model whose output it is, or whose parameters.
    pub(crate) of: Option<String>,
    /// The model whose call this is with some arguments.
    pub(crate) partial_of: Option<String>,
    /// Of a list that is made whole: how many it holds at most is fixed, as in `deque(maxlen=...)`.
    pub(crate) bounded: bool,
    /// Of a model: its weights take no gradients.
    pub(crate) frozen: bool,
    /// Of a model: it is in eval mode.
    pub(crate) is_eval: bool,
    /// Where it was made.
    pub(crate) at: Option<TextRange>,
}

/// So many names are remembered that went into what something was made of. What everything goes into is made of no name in particular.
const MOST_SOURCES: usize = 32;

/// The names that something was made of, shared by all that was made of the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(Option<Rc<[Rc<str>]>>);

impl Sources {
    pub(crate) fn of(name: &str) -> Sources {
        Sources(Some(Rc::new([name.into()])))
    }

    fn all(&self) -> &[Rc<str>] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.iter().any(|it| it == name)
    }

    /// It is what has this name itself, which counts more than what that was made of.
    pub(crate) fn add(&mut self, name: &str) {
        if self.all().len() < 2 * MOST_SOURCES && !self.has(name) {
            self.0 = Some(self.all().iter().cloned().chain([name.into()]).collect());
        }
    }

    pub(crate) fn extend(&mut self, other: &Sources) {
        let is_new = |it: &&Rc<str>| !self.has(it);
        let more: Vec<Rc<str>> = match (&self.0, &other.0) {
            (None, _) => {
                self.0.clone_from(&other.0);
                return;
            }
            (Some(own), Some(other)) if Rc::ptr_eq(own, other) => return,
            (Some(own), Some(other)) => {
                let room = MOST_SOURCES.saturating_sub(own.len());
                other.iter().filter(is_new).take(room).cloned().collect()
            }
            (_, None) => return,
        };
        if !more.is_empty() {
            self.0 = Some(self.all().iter().cloned().chain(more).collect());
        }
    }

    pub(crate) fn meets(&self, other: &Sources) -> bool {
        self.iter().any(|it| other.has(it))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.all().iter().map(|it| &**it)
    }
}

impl Value {
    pub(crate) fn of(kind: Kind) -> Value {
        Value { kind, ..Value::default() }
    }

    pub(crate) fn number() -> Value {
        Value { on_host: true, is_scalar: true, ..Value::of(Kind::Number) }
    }

    /// The same by this name.
    pub(crate) fn named(mut self, name: &str) -> Value {
        self.from.add(name);
        if self.attached || self.is(&Kind::Unknown) {
            self.graph.add(name);
        }
        self
    }

    pub(crate) fn is(&self, kind: &Kind) -> bool {
        self.kind == *kind
    }

    pub(crate) fn is_module(&self) -> bool {
        matches!(self.kind, Kind::Module | Kind::Criterion)
    }

    pub(crate) fn path(&self) -> Option<&str> {
        match &self.kind {
            Kind::Import(it) => Some(it),
            _ => None,
        }
    }

    /// The same without what autograd knows of it.
    pub(crate) fn without_graph(self) -> Value {
        Value { attached: false, graph: Sources::default(), ..self }
    }

    /// What an operation on both gives.
    pub(crate) fn with(mut self, other: &Value) -> Value {
        self.from.extend(&other.from);
        self.graph.extend(&other.graph);
        if self.of.is_none() {
            self.of.clone_from(&other.of);
        }
        self.attached |= other.attached;
        self.is_output |= other.is_output;
        self.divided |= other.divided;
        self.scaled |= other.scaled;
        self.frozen |= other.frozen;
        self
    }

    /// Either of both: what comes of two branches.
    pub(crate) fn or(self, other: &Value) -> Value {
        let is_more = |it: &Value| !matches!(it.kind, Kind::Unknown | Kind::Plain | Kind::Number);
        let kind =
            if is_more(&self) || !is_more(other) { self.kind.clone() } else { other.kind.clone() };
        let tick = self.tick.max(other.tick);
        let (on_host, is_scalar) =
            (self.on_host && other.on_host, self.is_scalar && other.is_scalar);
        let bounded = self.bounded || other.bounded;
        let is_eval = self.is_eval && other.is_eval;
        let at = self.at.or(other.at);
        Value { kind, tick, on_host, is_scalar, bounded, is_eval, at, ..self.with(other) }
    }
}
