//! Attention of transformers' models is PyTorch's fused one.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "attention",
    what: "attention of transformers' models is PyTorch's fused one",
    numbers: Numbers::Statistics,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("attention.md"),
};
