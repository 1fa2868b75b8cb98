//! Which batches a run goes through first: the worst that the user names, or else those that the data shows.

use crate::{
    contract::{self, Setting},
    options::{worst_sequence::WorstSequence, worst_size::WorstSize},
};

/// As the agent reads what the user names (`--worst-seq`, `--worst-size`).
pub(crate) fn named(sequence: Option<WorstSequence>, size: Option<WorstSize>) -> Vec<Setting> {
    let longer = sequence.map(WorstSequence::setting);
    longer.into_iter().chain(size.map(WorstSize::setting)).collect()
}

/// Where nothing is named, the loaders of the script begin with their worst batches.
pub(crate) fn of_the_data() -> Setting {
    (contract::WORST_BATCHES, "1".into())
}
