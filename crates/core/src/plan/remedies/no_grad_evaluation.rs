//! Evaluation keeps no activations.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "no-grad-evaluation",
    what: "evaluation keeps no activations",
    numbers: Numbers::Same,
    offer: Offer::Asked,
    page: include_str!("no_grad_evaluation.md"),
};
