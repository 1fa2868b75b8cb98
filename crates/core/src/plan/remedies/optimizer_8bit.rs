//! The optimizer keeps its state in 8 bits.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "optimizer-8bit",
    what: "the optimizer keeps its state in 8 bits",
    numbers: Numbers::Precision,
    offer: Offer::Usual,
    page: include_str!("optimizer_8bit.md"),
};
