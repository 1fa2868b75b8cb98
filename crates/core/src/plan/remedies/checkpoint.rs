//! Blocks keep their input only, and run again when backward reaches them.

use super::{Kind, Numbers, Offer};

pub(super) const KIND: Kind = Kind {
    id: "checkpoint",
    what: "blocks keep their input only, and run again when backward reaches them",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    page: include_str!("checkpoint.md"),
};
