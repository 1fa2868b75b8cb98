//! The forward pass runs in mixed precision.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "autocast",
    what: "the forward pass runs in mixed precision",
    numbers: Numbers::Precision,
    offer: Offer::Usual,
    page: include_str!("autocast.md"),
};
