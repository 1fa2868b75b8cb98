//! How reports speak of the ends that memory depends on: how much masks select, what a router chooses, when queued work is done.

use crate::prediction::OtherEnd;

/// The words for one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndWords {
    /// After "depending on".
    pub(super) depends_on: &'static str,
    /// After what the run needs at the end that it was at first.
    pub(super) as_shown: &'static str,
    /// After what the run at the other end needs.
    pub(super) at_most: &'static str,
    /// Where it is between both.
    pub(super) between: &'static str,
    /// What to say to know more, or what to know.
    pub(super) say: &'static str,
}

impl EndWords {
    pub(super) fn of(end: OtherEnd) -> EndWords {
        match end {
            OtherEnd::Routed => EndWords {
                depends_on: "how the router spreads tokens over experts",
                as_shown: "if the router spreads tokens evenly over the experts",
                at_most: "if it sends all of them to one",
                between: "if it sends other numbers in each layer and step",
                say: "say the largest share of an expert, such as a tenth: --assume experts=0.1",
            },
            OtherEnd::Late => EndWords {
                depends_on: "when PyTorch's threads and the GPU finish their work",
                as_shown: "if PyTorch's threads and the GPU finish their work early",
                at_most: "if they finish it late",
                between: "if a rank changes between the two",
                say: "that differs between the ranks of a job, and from run to run; a job runs out if one of its ranks does",
            },
            OtherEnd::Found | OtherEnd::Overflow | OtherEnd::Workspaces => EndWords {
                depends_on: "how many elements boolean masks select",
                as_shown: "if boolean masks select nothing",
                at_most: "if they select everything",
                between: "if they select some",
                say: "say how much they select, such as a quarter: --assume nonzero=0.25",
            },
        }
    }
}
