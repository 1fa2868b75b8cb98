//! The allocator gives unused memory back at one point of the loop.

use super::{Kind, Numbers, Offer};
use crate::plan::{
    Remedy,
    change::{Edit, Place},
};

pub(super) const KIND: Kind = Kind {
    id: "empty-cache",
    what: "the allocator gives unused memory back at one point of the loop",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change,
    page: include_str!("empty_cache.md"),
};

fn change(remedy: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let site = match remedy.text("after")? {
        "step" => place.sites.only("step")?,
        "backward" => place.sites.only("backward")?,
        _ => return None,
    };
    place.sites.torch(&site.file)?;
    Some(vec![Edit::after(site, "torch.cuda.empty_cache()")])
}
