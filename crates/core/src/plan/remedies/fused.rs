//! The optimizer updates many parameters in one kernel and needs no temporaries of their size.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "fused",
    what: "the optimizer updates many parameters in one kernel and needs no temporaries of their size",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    page: include_str!("fused.md"),
};
