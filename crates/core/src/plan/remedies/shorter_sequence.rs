//! Batches are half as long.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "shorter-sequence",
    what: "batches are half as long",
    numbers: Numbers::Training,
    offer: Offer::ByHand,
    change: by_hand,
    page: include_str!("shorter_sequence.md"),
};
