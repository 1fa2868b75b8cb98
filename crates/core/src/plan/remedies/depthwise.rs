//! Dense convolutions are separable ones.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "depthwise",
    what: "dense convolutions are one kernel for each channel, then a mix of the channels",
    numbers: Numbers::Training,
    offer: Offer::ByHand,
    change: by_hand,
    page: include_str!("depthwise.md"),
};
