//! Matrix products of float32 run on tensor cores; time only.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "tf32",
    what: "matrix products of float32 run on tensor cores; time only",
    numbers: Numbers::Precision,
    offer: Offer::Asked,
    page: include_str!("tf32.md"),
};
