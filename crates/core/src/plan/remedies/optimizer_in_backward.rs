//! Each parameter is updated as soon as its gradient is complete.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "optimizer-in-backward",
    what: "each parameter is updated as soon as its gradient is complete",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("optimizer_in_backward.md"),
};
