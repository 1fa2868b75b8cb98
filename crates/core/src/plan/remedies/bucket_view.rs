//! DistributedDataParallel keeps gradients once, as views of what it sends.

use super::{Kind, Numbers, Offer, with_option};
use crate::plan::{
    Remedy,
    change::{Edit, Place},
};

pub(super) const KIND: Kind = Kind {
    id: "bucket-view",
    what: "DistributedDataParallel keeps gradients once, as views of what it sends",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change,
    page: include_str!("bucket_view.md"),
};

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let option = "gradient_as_bucket_view";
    Some(vec![with_option(
        place.sites.only("distributed")?,
        &[option],
        "gradient_as_bucket_view=True",
    )?])
}
