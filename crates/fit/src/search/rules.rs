//! What a search may use, and what the script is to fit.

use plimsoll_core::{
    cards::Card,
    plan::{Numbers, Offer, find},
    units::Bytes,
};

/// What somebody asks of a search.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The card, with the memory that the process may take of it.
    pub card: Card,
    /// The most that PyTorch's allocator may reserve, if that is limited and not the device.
    pub limit_reserved: Option<Bytes>,
    /// The process has all of the card's memory to itself: no smaller budget was given.
    pub is_whole_card: bool,
    /// How many such devices there are.
    pub gpus: u32,
    /// Only these remedies may be used; all if empty.
    pub allow: Vec<String>,
    /// And these may not.
    pub forbid: Vec<String>,
    /// None may change the numbers by more than rounding.
    pub keep_numerics: bool,
    /// Of plans that add no time the fastest is wanted, whatever it does to the numbers.
    pub prefers_speed: bool,
    /// Runs may have files of the script's with another text.
    pub may_edit: bool,
    /// What is proposed is run to its end first.
    pub until_exit: bool,
    /// What only a person can decide is to be said even if a plan fits.
    pub advice: bool,
    /// The script speaks of `torch.compile`: its runs may take long, and what can be known of it as it is written is asked for first.
    pub speaks_of_compile: bool,
    /// What is free on the machine's own device, if steps are to be measured there.
    pub measure_in: Option<Bytes>,
}

impl Rules {
    /// How much there is of what is limited.
    pub fn most(&self) -> Bytes {
        self.limit_reserved.unwrap_or(self.card.usable())
    }

    /// Who has allocated more than this can never fit.
    pub fn most_allocated(&self) -> Bytes {
        let beside = self.limit_reserved.map_or(self.card.context, |_| Bytes::ZERO);
        self.most().saturating_sub(beside)
    }

    /// What is limited, for people.
    pub fn what(&self) -> &'static str {
        if self.limit_reserved.is_some() { "reserved" } else { "on the device" }
    }

    /// Whether this remedy is left to the search.
    pub(super) fn allow(&self, id: &str) -> bool {
        let Some(kind) = find(id) else { return false };
        let is_named = self.allow.iter().any(|it| it == id);
        match kind.offer {
            Offer::Usual => self.bears(id, kind.numbers),
            Offer::Asked => is_named && self.bears(id, kind.numbers),
            Offer::ByHand => false,
        }
    }

    /// Whether a change that goes by the name of this remedy may be run, whoever makes it.
    pub(super) fn bears(&self, id: &str, numbers: Numbers) -> bool {
        let is_offered = self.allow.is_empty() || self.allow.iter().any(|it| it == id);
        is_offered && !self.forbids(id) && self.bears_numbers(numbers)
    }

    /// Whether this may be done to the numbers.
    fn bears_numbers(&self, numbers: Numbers) -> bool {
        numbers < Numbers::Precision || !self.keep_numerics
    }

    /// Whether a change may be run that no remedy makes.
    pub(super) fn bears_other(&self, numbers: Numbers) -> bool {
        self.allow.is_empty() && self.bears_numbers(numbers)
    }

    pub(super) fn forbids(&self, id: &str) -> bool {
        self.forbid.iter().any(|it| it == id)
    }
}
