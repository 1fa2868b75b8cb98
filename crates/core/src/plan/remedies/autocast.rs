//! The forward pass runs in mixed precision.

use super::{Kind, Numbers, Offer};
use crate::plan::{
    Remedy,
    change::{Edit, Place, Site},
};

pub(super) const KIND: Kind = Kind {
    id: "autocast",
    what: "the forward pass runs in mixed precision",
    numbers: Numbers::Precision,
    offer: Offer::Usual,
    change,
    page: include_str!("autocast.md"),
};

fn change(remedy: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let dtype = remedy.text("dtype").unwrap_or("bfloat16");
    under_autocast(place, dtype)
}

/// The lines from the call of the model to the loss, for each backward, under autocast.
pub(super) fn under_autocast(place: &Place<'_>, dtype: &str) -> Option<Vec<Edit>> {
    let head = format!("with torch.autocast(\"cuda\", dtype=torch.{dtype}):");
    let under = |site: &Site| {
        place.sites.torch(&site.file)?;
        Some(Edit::under(&site.file, site.forward?, &head))
    };
    let all: Vec<Edit> = place.sites.all("backward").map(under).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}
