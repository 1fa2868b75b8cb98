//! The optimizer keeps its state in 8 bits.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "optimizer-8bit",
    what: "the optimizer keeps its state in 8 bits",
    numbers: Numbers::Precision,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("optimizer_8bit.md"),
};
