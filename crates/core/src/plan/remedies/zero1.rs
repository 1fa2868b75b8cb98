//! Each device keeps the optimizer's state of its part of the parameters, and runs its share of the batch.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "zero1",
    what: "each device has a share of the batch and of the optimizer's state",
    numbers: Numbers::Statistics,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("zero1.md"),
};
