//! What can be so of a remedy.

use crate::parameter::Takes;

/// What a remedy does to the numbers that training computes; a later one does more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Numbers {
    /// The same, up to the rounding of sums in another order.
    #[default]
    Same,
    /// Others of the same kind: other random numbers, other batch statistics.
    Statistics,
    /// Less precision.
    Precision,
    /// Another way to train: what it comes to is to be found out.
    Training,
}

/// How the search uses a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It costs no time worth telling: used from the start, and left out again where it is not needed.
    Free,
    /// It costs time or precision: tried alone and with others, from the mildest on.
    Rung,
    /// A replay of the recording says whether it is enough.
    Tuned,
    /// Tried if somebody named it.
    Asked,
    /// Only a person can do it: run on the phantom to say what it would take, and never part of a plan.
    Advice,
    /// Only a person can do it; it is said.
    ByHand,
}

/// Who decides that a remedy is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The search tries it.
    Usual,
    /// The search tries it if somebody named it, and a plan may hold it.
    Asked,
    /// Only a person can do it; it is said and never applied.
    ByHand,
}

/// Where a remedy takes hold inside a process. An earlier one is around a later one where they meet at the same call; two of
/// the same layer are in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Around everything that a model's call does.
    Loop,
    /// The numbers that a model has, before it goes anywhere.
    Weights,
    /// Which device does what.
    Devices,
    /// Of which parts the model is made.
    Model,
    /// How many samples go through it at a time.
    Batch,
    /// In which form they are given to it.
    Input,
    /// How its forward pass computes.
    Forward,
    /// What is kept for backward, and where.
    Saved,
    /// What a block of it does when it is entered and left.
    Blocks,
    /// How single functions compute: the loss, matrix products.
    Functions,
    /// With which options gradients are kept and the optimizer is made.
    Options,
    /// Which optimizer it is, and where its state is.
    Optimizer,
    /// When its step is made.
    Step,
    /// Not in the process: PyTorch's allocator reads it, the data have it, a person does it.
    Outside,
}

/// Over how many devices a remedy spreads a program; a plan has one such remedy at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// It does not.
    One,
    /// A process for each device, with a share of every batch.
    Shares,
    /// One process, whose blocks are on several devices and work one after the other.
    InTurn,
}

/// With which remedies over several devices a remedy can be in one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bears {
    /// Any.
    Devices,
    /// None that gives each process a share: it looks at gradients before those of all devices are there, or at one
    /// device's part for the whole.
    NoShares,
    /// None.
    OneDevice,
}

/// Which programs have a use for a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Every one, unless it does so already.
    Every,
    /// Those with some models: the remedy's module in the agent has `suits(torch, model)`.
    SomeModels,
    /// Those with some optimizers.
    SomeOptimizers,
}

/// What a program that trains nothing has of a remedy: one that generates, or evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untrained {
    /// Nothing, and nobody wonders.
    Nothing,
    /// Nothing, and a person may wonder: it is said.
    NothingSaid,
    /// As much as one that trains may have.
    Something,
}

/// One technique.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// How it is called, everywhere. Its module in the agent has `_` for `-`.
    pub id: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// What it does to the numbers.
    pub numbers: Numbers,
    /// How the search uses it.
    pub role: Role,
    /// Who decides that it is used, which its role says.
    pub offer: Offer,
    /// Where it takes hold.
    pub layer: Layer,
    /// Over how many devices it spreads a program.
    pub devices: Devices,
    /// With which of those that spread it can be.
    pub bears: Bears,
    /// Which programs have a use for it. Unless the agent says otherwise, it is none of those of which not every one has.
    pub of: Use,
    /// What a program has of it that trains nothing.
    pub untrained: Untrained,
    /// As advice it is tried together with this one.
    pub beside: Option<&'static str>,
    /// The parameters that a plan can give it.
    pub takes: &'static [Takes],
    /// The manual page, in Markdown.
    pub page: &'static str,
}

impl Numbers {
    /// In words.
    pub const fn shown(self) -> &'static str {
        match self {
            Numbers::Same => "same",
            Numbers::Statistics => "dropout, batch-norm",
            Numbers::Precision => "less precise",
            Numbers::Training => "another training",
        }
    }
}

impl Role {
    /// Who decides that a remedy of this role is used.
    pub const fn offer(self) -> Offer {
        match self {
            Role::Free | Role::Rung | Role::Tuned => Offer::Usual,
            Role::Asked => Offer::Asked,
            Role::Advice | Role::ByHand => Offer::ByHand,
        }
    }
}

impl Kind {
    /// Whether it is applied in the process, by a module of the agent.
    pub const fn is_applied(&self) -> bool {
        !matches!(self.layer, Layer::Outside)
    }

    /// What a person would write, in plain PyTorch: the first code of the manual page.
    pub fn snippet(&self) -> &'static str {
        self.snippets().next().unwrap_or_default()
    }

    /// The same for each kind of program that the page tells apart.
    pub fn snippets(&self) -> impl Iterator<Item = &'static str> {
        let by_hand = self.page.split_once("## By hand").map_or("", |it| it.1);
        let parts = by_hand.split("```").skip(1).step_by(2);
        parts.filter_map(|it| it.split_once('\n')).map(|it| it.1.trim_end())
    }
}
