//! Zero_grad gives gradients back instead of filling them with zeros.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "set-to-none",
    what: "zero_grad gives gradients back instead of filling them with zeros",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    page: include_str!("set_to_none.md"),
};
