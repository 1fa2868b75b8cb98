//! Activations wait in the host's memory between forward and backward.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "offload",
    what: "activations wait in the host's memory between forward and backward",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("offload.md"),
};
