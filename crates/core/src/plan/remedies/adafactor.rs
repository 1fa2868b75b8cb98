//! The optimizer is Adafactor, which keeps one row and one column for each matrix.

use super::{Kind, Numbers, Offer, sgd::another_optimizer};
use crate::plan::{
    Remedy,
    change::{Edit, Place},
};

pub(super) const KIND: Kind = Kind {
    id: "adafactor",
    what: "the optimizer is Adafactor, which keeps one row and one column for each matrix",
    numbers: Numbers::Training,
    offer: Offer::Asked,
    change,
    page: include_str!("adafactor.md"),
};

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    another_optimizer(place, "Adafactor")
}
