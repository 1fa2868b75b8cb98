//! What is left of the memory where nothing fits, and what was tried against it.

use plimsoll_core::{
    plan::remedies,
    prediction::{Category, CategoryShare},
    units::Bytes,
};

use super::{candidate::Candidate, program::Program};
use crate::search::ladder;

/// What became of a remedy in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is in the plan that needs least.
    InIt,
    /// It was run, alone or with others, and is not in that plan.
    Tried,
    /// The script has no use for it, or did not run with it.
    Unsuited,
    /// It was not run: nobody named it, it was forbidden, or the search did not come to it.
    NotTried,
}

/// What one thing takes at the peak of the plan that needs least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// What it is for.
    pub category: Category,
    /// What it takes at the peak of that plan,
    pub bytes: Bytes,
    /// and of the script as it is.
    pub as_it_is: Bytes,
    /// The remedies that could make it smaller.
    pub remedies: Vec<(&'static str, Fate)>,
}

/// What could make this smaller, beside smaller batches, sequences and models.
fn against(category: Category) -> &'static [&'static str] {
    match category {
        Category::Parameters => &[remedies::PARAMETER_OFFLOAD, remedies::PURE_BF16],
        Category::Gradients => {
            &[remedies::OPTIMIZER_IN_BACKWARD, remedies::SET_TO_NONE, remedies::PURE_BF16]
        }
        Category::OptimizerState => &[
            remedies::OPTIMIZER_OFFLOAD,
            remedies::OPTIMIZER_8BIT,
            remedies::PURE_BF16,
            remedies::ADAFACTOR,
            remedies::SGD,
        ],
        Category::Activations => &[
            remedies::MICRO_BATCHES,
            remedies::CHECKPOINT,
            remedies::OFFLOAD,
            remedies::AUTOCAST,
            remedies::AUTOCAST_FP16,
            remedies::INPLACE_ACTIVATIONS,
            remedies::ATTENTION,
            remedies::CHUNKED_LOSS,
            remedies::NO_GRAD_EVALUATION,
        ],
        Category::Temporaries => &[
            remedies::MICRO_BATCHES,
            remedies::CHUNKED_LOSS,
            remedies::ATTENTION,
            remedies::FOREACH,
            remedies::FUSED,
        ],
        Category::Inputs | Category::Buffers | Category::Unknown => &[],
        Category::Workspaces => &[remedies::MICRO_BATCHES, remedies::CHANNELS_LAST],
        Category::Retained => &[remedies::DETACH_LOSSES, remedies::NO_GRAD_EVALUATION],
        Category::Slack => &[remedies::ALLOCATOR, remedies::EMPTY_CACHE],
        Category::KeyValueCache | Category::Graphs | Category::Other | Category::Context => &[],
    }
}

/// What is left of `plain` in the candidate that needs least, the largest first.
pub(super) fn remaining(
    program: &Program,
    plain: &Candidate,
    nearest: &Candidate,
) -> Vec<Remaining> {
    let is_in = |it: &Candidate, id: &str| it.plan.remedies.iter().any(|it| it.id == id);
    let suits_card = |id: &str| {
        let is_autocast = [remedies::AUTOCAST, remedies::AUTOCAST_FP16].contains(&id);
        !is_autocast || id == ladder::for_card(&program.rules.card, remedies::AUTOCAST)
    };
    let fate = |id: &str| match () {
        () if is_in(nearest, id) => Fate::InIt,
        () if program.tried().iter().any(|it| is_in(it, id)) => Fate::Tried,
        () if !program.suits(id) => Fate::Unsuited,
        () => Fate::NotTried,
    };
    let of = |held: &[CategoryShare], category| {
        held.iter().find(|it| it.category == category).map_or(Bytes::ZERO, |it| it.bytes)
    };
    let one = |share: &CategoryShare| Remaining {
        category: share.category,
        bytes: share.bytes,
        as_it_is: of(&plain.took.held, share.category),
        remedies: against(share.category)
            .iter()
            .filter(|id| suits_card(id))
            .map(|id| (*id, fate(id)))
            .collect(),
    };
    let mut res: Vec<Remaining> = nearest.took.held.iter().map(one).collect();
    res.sort_by_key(|it| std::cmp::Reverse(it.bytes));
    res
}

#[cfg(test)]
mod tests {
    use plimsoll_core::plan::{CATALOGUE, find, remedies::Role};

    use super::*;

    /// What only takes time away, spreads a program, or saves elsewhere than where PyTorch's memory is.
    const OTHERS: [&str; 5] = ["tf32", "bucket-view", "zero1", "fsdp2", "model-parallel"];

    #[test]
    fn each_remedy_of_a_search_is_against_something() {
        let all: Vec<_> = [
            Category::Parameters,
            Category::Gradients,
            Category::OptimizerState,
            Category::Activations,
            Category::Temporaries,
            Category::Workspaces,
            Category::Retained,
            Category::Slack,
        ]
        .iter()
        .flat_map(|it| against(*it))
        .copied()
        .collect();
        assert!(all.iter().all(|id| find(id).is_some()), "{all:?}");
        let is_searched = |role| !matches!(role, Role::Advice | Role::ByHand);
        let searched = CATALOGUE.iter().filter(|it| is_searched(it.role)).map(|it| it.id);
        let missing: Vec<_> =
            searched.filter(|id| !all.contains(id) && !OTHERS.contains(id)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
