//! A plan without what it does not need.

use plimsoll_core::plan::{Plan, Remedy, remedies};

use super::{candidate::Candidate, fewest_blocks, ladder::is_free, program::Program};

/// `it`, which fits, without what it does not need, and with as few blocks checkpointed as it needs.
pub(super) async fn weakest(program: &mut Program, mut it: Candidate) -> Candidate {
    // Most often the free ones were not needed at all.
    let strong = without(&it.plan, |it| is_free(it.id));
    if !strong.is_empty()
        && strong.len() < it.plan.remedies.len()
        && let Some(less) =
            program.run(&Plan::of(strong)).await.filter(|less| is_enough(program, less, &it))
    {
        it = less;
    }
    for remedy in it.plan.remedies.clone() {
        let rest = without(&it.plan, |it| *it == remedy);
        // What makes sizes that differ fit together is free, and the plan is safer with it.
        let stays = program.wants_allocator() && remedy.id == remedies::ALLOCATOR;
        if rest.is_empty() || stays || program.interrupted {
            continue;
        }
        if let Some(less) =
            program.run(&Plan::of(rest)).await.filter(|less| is_enough(program, less, &it))
        {
            it = less;
        }
    }
    match program.known.n_blocks {
        Some(n) if it.plan.remedies.iter().any(|it| it.id == remedies::CHECKPOINT) => {
            fewest_blocks::fewest_blocks(program, it, n).await
        }
        _ => it,
    }
}

/// Whether `less` fits, too, and is not tight where `it` is not.
fn is_enough(program: &Program, less: &Candidate, it: &Candidate) -> bool {
    less.fits && (program.is_tight(it) || !program.is_tight(less))
}

fn without(plan: &Plan, goes: impl Fn(&Remedy) -> bool) -> Vec<Remedy> {
    plan.remedies.iter().filter(|it| !goes(it)).cloned().collect()
}
