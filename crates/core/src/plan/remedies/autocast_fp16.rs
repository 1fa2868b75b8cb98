//! The forward pass runs in mixed precision with float16, the loss is scaled.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "autocast-fp16",
    what: "the forward pass runs in mixed precision with float16, the loss is scaled",
    numbers: Numbers::Precision,
    offer: Offer::Usual,
    page: include_str!("autocast_fp16.md"),
};
