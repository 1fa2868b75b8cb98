//! The optimizer updates one parameter at a time and needs no temporaries of the size of all.

use super::{Kind, Numbers, Offer, with_option};
use crate::plan::{
    Remedy,
    change::{Edit, Place},
};

pub(super) const KIND: Kind = Kind {
    id: "foreach",
    what: "the optimizer updates one parameter at a time and needs no temporaries of the size of all",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change,
    page: include_str!("foreach.md"),
};

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let optimizer = place.sites.only("optimizer")?;
    let all = std::iter::once(optimizer).chain(place.sites.all("clip"));
    all.map(|it| with_option(it, &["fused", "foreach"], "foreach=False")).collect()
}
