//! The optimizer is plain SGD, which keeps nothing.

use super::{Kind, Numbers, Offer};
use crate::plan::{
    Remedy,
    change::{Edit, Place, Span},
};

pub(super) const KIND: Kind = Kind {
    id: "sgd",
    what: "the optimizer is plain SGD, which keeps nothing",
    numbers: Numbers::Training,
    offer: Offer::Asked,
    change,
    page: include_str!("sgd.md"),
};

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    another_optimizer(place, "SGD")
}

/// The optimizer's call with another class of `torch.optim`, with what both understand.
pub(super) fn another_optimizer(place: &Place<'_>, class: &str) -> Option<Vec<Edit>> {
    let site = place.sites.only("optimizer")?;
    let call = site.call.as_ref().filter(|it| it.plain)?;
    place.sites.torch(&site.file)?;
    let text = |it: &Span| place.text(&site.file, *it);
    let mut all = vec![text(call.arguments.first()?)?.to_owned()];
    match call.keywords.get("lr").or(call.arguments.get(1)) {
        Some(rate) => all.push(format!("lr={}", text(rate)?)),
        // What Adam and AdamW take without one; others have other ones.
        None if site.name.as_deref().is_some_and(|it| it.starts_with("Adam")) => {
            all.push("lr=1e-3".to_owned())
        }
        None => return None,
    }
    if let Some(decay) = call.keywords.get("weight_decay") {
        all.push(format!("weight_decay={}", text(decay)?));
    }
    let written = format!("torch.optim.{class}({})", all.join(", "));
    Some(vec![Edit::instead(&site.file, call.span, &written)])
}
