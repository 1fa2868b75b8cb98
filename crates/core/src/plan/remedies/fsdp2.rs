//! Weights, gradients and the optimizer's state are spread over the devices, and so is the batch.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "fsdp2",
    what: "each device has a share of the batch, the weights, the gradients and the optimizer's state",
    numbers: Numbers::Statistics,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("fsdp2.md"),
};
