//! The model is frozen and low-rank adapters are trained.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "lora",
    what: "the model is frozen and low-rank adapters are trained",
    numbers: Numbers::Training,
    offer: Offer::ByHand,
    change: by_hand,
    page: include_str!("lora.md"),
};
