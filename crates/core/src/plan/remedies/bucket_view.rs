//! DistributedDataParallel keeps gradients once, as views of what it sends.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "bucket-view",
    what: "DistributedDataParallel keeps gradients once, as views of what it sends",
    numbers: Numbers::Same,
    offer: Offer::Asked,
    page: include_str!("bucket_view.md"),
};
