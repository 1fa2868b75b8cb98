//! Where things are in a program's files, as the agent saw and looked them up.

use std::collections::BTreeMap;

/// First line and byte, last line and the byte after it; lines from 1, bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first line and byte.
    pub first: (u32, u32),
    /// The last line, and the byte after it.
    pub end: (u32, u32),
}

/// A call in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// All of it.
    pub span: Span,
    /// `loss` of `loss.backward()`.
    pub owner: Option<Span>,
    /// What it is given by place,
    pub arguments: Vec<Span>,
    /// and by name: the values, by name.
    pub keywords: BTreeMap<String, Span>,
    /// Where another keyword can be added: after the last argument.
    pub end: Option<(u32, u32)>,
    /// Neither `*args` nor `**kwargs`.
    pub plain: bool,
}

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// An optimizer is made.
    Optimizer,
    /// `zero_grad()`.
    ZeroGrad,
    /// `backward()`.
    Backward,
    /// `step()` of an optimizer.
    Step,
    /// Gradients are clipped.
    Clip,
    /// A model is called without a backward pass to come.
    Evaluation,
    /// A model is wrapped for several devices.
    Distributed,
    /// `to()` of a pipeline.
    To,
    /// Something else.
    Other,
}

/// A place.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// What is there.
    pub kind: SiteKind,
    /// In this file,
    pub file: String,
    /// in this statement.
    pub statement: Span,
    /// The line of the function that it is in; 0 for the module.
    pub function: u64,
    /// What it is given to, as in `optimizer = ...`.
    pub name: Option<String>,
    /// The call.
    pub call: Option<Call>,
    /// How the script calls the model whose parameters the optimizer has.
    pub model: Option<String>,
    /// The names of that model's blocks, if it is the one that is called.
    pub blocks: Vec<String>,
    /// It has a cache of transformers that would be filled again.
    pub cache: bool,
    /// Other models that train beside it and have blocks.
    pub beside: Vec<Blocks>,
    /// The method by which that model has its blocks run again in backward.
    pub switch: Option<String>,
    /// The lines from the call of the model to what comes before backward.
    pub forward: Option<(u32, u32)>,
    /// The batch of that call, where one line makes the loss of it.
    pub batch: Option<Batch>,
}

/// The blocks of one of several models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// How the script calls the model.
    pub model: String,
    /// Their names.
    pub blocks: Vec<String>,
    /// It has a cache of transformers that would be filled again.
    pub cache: bool,
}

/// The batch of `loss = model(**batch).loss`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The dictionary.
    pub name: String,
    /// Where it stands in the call.
    pub at: Span,
    /// The name of the loss.
    pub loss: String,
}

/// Who has switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// The `Trainer` of transformers.
    Transformers,
    /// Lightning.
    Lightning,
    /// Accelerate.
    Accelerate,
    /// A `DataLoader`.
    Loader,
    /// `generate` of transformers.
    Generate,
    /// A pipeline of diffusers.
    Pipeline,
    /// `from_pretrained` of a model of transformers.
    Loading,
    /// Low-rank adapters of PEFT.
    Adapters,
    /// What makes batches of samples for the `Trainer` of transformers.
    Collator,
    /// The configuration of DeepSpeed.
    DeepSpeed,
}

/// What a switch came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// `None`.
    Nothing,
    /// On or off.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A text.
    Text(String),
    /// As JSON has it.
    Other(String),
}

/// The switches of a framework, as a program has them.
#[derive(Clone, Debug, PartialEq)]
pub struct Switches {
    /// Whose they are.
    pub framework: Framework,
    /// What is called to set them.
    pub name: String,
    /// What they came to.
    pub values: BTreeMap<String, Setting>,
    /// What tells all its other settings from others.
    pub rest: String,
    /// The call, where a line of the script has it.
    pub site: Option<Site>,
    /// They are read from the command line.
    pub from_words: bool,
}

/// Every place that was found in one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sites {
    /// Where something is done.
    pub all: Vec<Site>,
    /// What frameworks are told.
    pub switches: Vec<Switches>,
    /// After which line `torch` is a name in a file.
    pub torch: BTreeMap<String, u32>,
    /// Libraries that switches of frameworks need, and this environment does not have.
    pub missing: Vec<String>,
}

impl Sites {
    /// The files that hold a place.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let more = self.switches.iter().filter_map(|it| it.site.as_ref());
        self.all.iter().chain(more).map(|it| it.file.as_str())
    }

    /// The switches of this framework, if they are set once only.
    pub fn of(&self, framework: Framework) -> Option<&Switches> {
        let mut all = self.switches.iter().filter(|it| it.framework == framework);
        all.next().filter(|_| all.next().is_none())
    }

    /// Whether there is a place of this kind.
    pub fn has(&self, kind: SiteKind) -> bool {
        self.all(kind).next().is_some()
    }

    /// Every place of this kind.
    pub fn all(&self, kind: SiteKind) -> impl Iterator<Item = &Site> {
        self.all.iter().filter(move |it| it.kind == kind)
    }

    /// The place of this kind, if there is one only.
    pub fn only(&self, kind: SiteKind) -> Option<&Site> {
        let mut all = self.all(kind);
        all.next().filter(|_| all.next().is_none())
    }

    /// Whether the environment is known not to have this library.
    pub fn is_missing(&self, library: &str) -> bool {
        self.missing.iter().any(|it| it == library)
    }

    /// The line after which `torch` is a name in this file.
    pub fn torch(&self, file: &str) -> Option<u32> {
        self.torch.get(file).copied()
    }
}

impl Switches {
    /// The number that a switch has.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.values.get(name)? {
            Setting::Whole(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// Whether it is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.values.get(name) == Some(&Setting::Flag(true))
    }

    /// Whether these differ from `before` as `changed` says, and in nothing else.
    pub fn is(&self, before: &Switches, changed: &[(String, Setting)]) -> bool {
        let mut wanted = before.values.clone();
        wanted.extend(changed.iter().cloned());
        self.values == wanted && self.rest == before.rest
    }
}
