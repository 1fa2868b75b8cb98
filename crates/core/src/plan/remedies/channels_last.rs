//! Convolutions have their channels last in memory.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "channels-last",
    what: "convolutions have their channels last in memory",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("channels_last.md"),
};
