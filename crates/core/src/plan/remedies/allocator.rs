//! Settings of PyTorch's allocator.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "allocator",
    what: "settings of PyTorch's allocator",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    page: include_str!("allocator.md"),
};
