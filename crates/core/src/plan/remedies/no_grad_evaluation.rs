//! Evaluation keeps no activations.

use super::{Kind, Numbers, Offer};
use crate::plan::{
    Remedy,
    change::{Edit, Place, Site},
};

pub(super) const KIND: Kind = Kind {
    id: "no-grad-evaluation",
    what: "evaluation keeps no activations",
    numbers: Numbers::Same,
    offer: Offer::Asked,
    change,
    page: include_str!("no_grad_evaluation.md"),
};

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let under = |site: &Site| {
        place.sites.torch(&site.file)?;
        let lines = (site.statement.first.0, site.statement.end.0);
        Some(Edit::under(&site.file, lines, "with torch.no_grad():"))
    };
    let all: Vec<Edit> = place.sites.all("evaluation").map(under).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}
