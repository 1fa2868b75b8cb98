//! How reports speak of what nobody computed, and what memory depends on: how much masks select, and what a router chooses.

use crate::prediction::OtherEnd;

/// The words for one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherValues {
    /// After "depending on".
    pub(super) depends_on: &'static str,
    /// After what the run as shown needs.
    pub(super) as_shown: &'static str,
    /// After what the run at the other end needs.
    pub(super) at_most: &'static str,
    /// What to say to know more.
    pub(super) say: &'static str,
}

impl OtherValues {
    pub(super) fn of(end: OtherEnd) -> OtherValues {
        if end == OtherEnd::Routed {
            return OtherValues {
                depends_on: "how the router spreads tokens over experts",
                as_shown: "if the router spreads tokens evenly over the experts",
                at_most: "if it sends all of them to one",
                say: "say the largest share of an expert, such as a tenth: --assume experts=0.1",
            };
        }
        OtherValues {
            depends_on: "how many elements boolean masks select",
            as_shown: "if boolean masks select nothing",
            at_most: "if they select everything",
            say: "say how much they select, such as a quarter: --assume nonzero=0.25",
        }
    }
}
