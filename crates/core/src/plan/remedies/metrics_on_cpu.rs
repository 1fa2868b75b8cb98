//! Outputs and metrics that are kept are kept on the CPU.

use super::{Kind, Numbers, Offer, by_hand};

pub(super) const KIND: Kind = Kind {
    id: "metrics-on-cpu",
    what: "outputs and metrics that are kept are kept on the CPU",
    numbers: Numbers::Same,
    offer: Offer::ByHand,
    change: by_hand,
    page: include_str!("metrics_on_cpu.md"),
};
