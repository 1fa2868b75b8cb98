//! The model has half of its blocks.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "smaller-model",
    what: "the model has half of its blocks",
    numbers: Numbers::Training,
    offer: Offer::ByHand,
    change: by_hand,
    page: include_str!("smaller_model.md"),
};
