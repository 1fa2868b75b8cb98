//! Settings of PyTorch's allocator.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "allocator",
    what: "settings of PyTorch's allocator",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("allocator.md"),
};
