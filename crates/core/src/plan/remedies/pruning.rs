//! Half of the weights are pruned while the model trains.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "pruning",
    what: "half of the weights are pruned, which takes memory in training",
    numbers: Numbers::Training,
    offer: Offer::ByHand,
    change: by_hand,
    page: include_str!("pruning.md"),
};
