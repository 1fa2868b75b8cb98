//! Cross-entropy of many classes is computed some rows at a time.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "chunked-loss",
    what: "cross-entropy of many classes is computed some rows at a time",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change: by_hand,
    page: include_str!("chunked_loss.md"),
};
