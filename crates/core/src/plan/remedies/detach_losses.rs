//! Losses give their graph back once backward has used it.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "detach-losses",
    what: "losses give their graph back once backward has used it",
    numbers: Numbers::Same,
    offer: Offer::Asked,
    change: by_hand,
    page: include_str!("detach_losses.md"),
};
