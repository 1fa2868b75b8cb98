//! Activations and dropout write into their input.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "inplace-activations",
    what: "activations and dropout write into their input",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("inplace_activations.md"),
};
