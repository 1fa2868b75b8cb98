//! Matrix products of float32 run on tensor cores; time only.

use super::{Kind, Numbers, Offer};
use crate::plan::{
    Remedy,
    change::{Edit, Place},
};

pub(super) const KIND: Kind = Kind {
    id: "tf32",
    what: "matrix products of float32 run on tensor cores; time only",
    numbers: Numbers::Precision,
    offer: Offer::Asked,
    change,
    page: include_str!("tf32.md"),
};

fn change(_: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let file = &place.sites.only("optimizer")?.file;
    let line = "torch.set_float32_matmul_precision(\"high\")";
    Some(vec![Edit::after_line(file, place.sites.torch(file)?, line)])
}
