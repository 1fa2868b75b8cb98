//! The blocks of a model are on several devices, one after the other.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "model-parallel",
    what: "the blocks of the model are on several devices, which work one after the other",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("model_parallel.md"),
};
