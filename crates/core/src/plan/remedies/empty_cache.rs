//! The allocator gives unused memory back at one point of the loop.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "empty-cache",
    what: "the allocator gives unused memory back at one point of the loop",
    numbers: Numbers::Same,
    offer: Offer::Asked,
    page: include_str!("empty_cache.md"),
};
