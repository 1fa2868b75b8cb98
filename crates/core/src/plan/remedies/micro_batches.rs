//! The batch goes through the model in parts; one step for the whole batch, as before.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "micro-batches",
    what: "the batch goes through the model in parts; one step for the whole batch, as before",
    numbers: Numbers::Statistics,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("micro_batches.md"),
};
