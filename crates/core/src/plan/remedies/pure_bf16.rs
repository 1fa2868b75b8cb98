//! Weights, gradients and the optimizer's state are bfloat16.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "pure-bf16",
    what: "weights, gradients and the optimizer's state are bfloat16",
    numbers: Numbers::Precision,
    offer: Offer::Asked,
    change: by_hand,
    page: include_str!("pure_bf16.md"),
};
