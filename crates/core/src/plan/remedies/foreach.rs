//! The optimizer updates one parameter at a time and needs no temporaries of the size of all.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "foreach",
    what: "the optimizer updates one parameter at a time and needs no temporaries of the size of all",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    page: include_str!("foreach.md"),
};
