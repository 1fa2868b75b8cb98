//! The optimizer is Adafactor, which keeps one row and one column for each matrix.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "adafactor",
    what: "the optimizer is Adafactor, which keeps one row and one column for each matrix",
    numbers: Numbers::Training,
    offer: Offer::Asked,
    page: include_str!("adafactor.md"),
};
