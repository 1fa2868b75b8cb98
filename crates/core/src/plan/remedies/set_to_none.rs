//! Zero_grad gives gradients back instead of filling them with zeros.

use super::{Kind, Numbers, Offer};
use crate::plan::{
    Remedy,
    change::{Edit, Place},
};

pub(super) const KIND: Kind = Kind {
    id: "set-to-none",
    what: "zero_grad gives gradients back instead of filling them with zeros",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change,
    page: include_str!("set_to_none.md"),
};

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let mut res = Vec::new();
    for site in place.sites.all("zero_grad") {
        let call = site.call.as_ref()?;
        // Where nothing is said, it is what PyTorch does.
        if let Some(said) = call.keywords.get("set_to_none").or(call.arguments.first()) {
            res.push(Edit::instead(&site.file, *said, "True"));
        }
    }
    Some(res)
}
