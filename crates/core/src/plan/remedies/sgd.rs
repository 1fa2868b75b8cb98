//! The optimizer is plain SGD, which keeps nothing.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "sgd",
    what: "the optimizer is plain SGD, which keeps nothing",
    numbers: Numbers::Training,
    offer: Offer::Asked,
    page: include_str!("sgd.md"),
};
