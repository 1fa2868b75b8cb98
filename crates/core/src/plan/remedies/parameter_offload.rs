//! The weights of blocks wait in the host's memory.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "parameter-offload",
    what: "the weights of blocks wait in the host's memory, and are there while a block runs",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("parameter_offload.md"),
};
