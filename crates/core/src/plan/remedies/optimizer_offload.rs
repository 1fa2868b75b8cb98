//! The optimizer's state waits in the host's memory.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "optimizer-offload",
    what: "the optimizer's state waits in the host's memory",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("optimizer_offload.md"),
};
