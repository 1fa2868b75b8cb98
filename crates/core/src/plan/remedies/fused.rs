//! The optimizer updates many parameters in one kernel and needs no temporaries of their size.

use super::{Kind, Numbers, Offer, with_option};
use crate::plan::{
    Remedy,
    change::{Edit, Place},
};

pub(super) const KIND: Kind = Kind {
    id: "fused",
    what: "the optimizer updates many parameters in one kernel and needs no temporaries of their size",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change,
    page: include_str!("fused.md"),
};

/// Only these classes know the option.
const HAVE_IT: [&str; 4] = ["SGD", "Adam", "AdamW", "Adagrad"];

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let site = place.sites.only("optimizer")?;
    let is_known = site.name.as_ref().is_some_and(|it| HAVE_IT.contains(&it.as_str()));
    Some(vec![with_option(site, &["fused", "foreach"], "fused=True").filter(|_| is_known)?])
}
