//! Frozen linear layers are whole numbers of 8 bits.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "quantization",
    what: "frozen linear layers are whole numbers of 8 bits",
    numbers: Numbers::Training,
    offer: Offer::ByHand,
    change: by_hand,
    page: include_str!("quantization.md"),
};
