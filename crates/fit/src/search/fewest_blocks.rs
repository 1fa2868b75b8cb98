//! The blocks to checkpoint under a budget: two measured runs say what each block keeps and costs, the choice is
//! solved from that, and a run proves it. What the proof takes more than was thought is taken off the budget; what it
//! takes less is added.

use plimsoll_core::{
    plan::{Parameter, Plan, Remedy, remedies},
    units::Bytes,
};

use super::{
    ask::{Run, Until},
    candidate::Candidate,
    ladder,
    program::{MeasuredBlocks, Program, few_parts},
};
use crate::cost::{
    blocks::{Blocks, Choice},
    seconds,
};

/// So many choices are run at most,
const MOST_PROOFS: usize = 6;
/// and of what is compiled, where each is compiled anew, and the compiler has its own mind about what is kept,
const MOST_COMPILED: usize = 2;
/// and where batches differ in size: the first that fits is enough there.
const MOST_DIFFERING: usize = 2;
/// Where batches differ in size, and all of at least so many blocks leave less than one part in so many of what they save, fewer are not looked for: what
/// runs again is a quarter of a step, and a step time is not estimated to a fortieth.
const WORTH: u64 = 10;

/// As few blocks as fit, by what each keeps and costs where that can be told; else the first ones, but all of what is compiled. `it` checkpoints all
/// of its `n_blocks`, and fits.
pub(super) async fn fewest_blocks(
    program: &mut Program,
    it: Candidate,
    n_blocks: u64,
) -> Candidate {
    let is_all_but_needed =
        program.known.sizes_differ && WORTH <= n_blocks && leaves_next_to_nothing(program, &it);
    // One that is tight need not leave less.
    if is_all_but_needed || program.is_tight(&it) {
        return it;
    }
    let MeasuredBlocks { blocks, without, .. } = measured(program, &it.plan).await;
    let cheapest = match blocks {
        Some(blocks) => cheapest_blocks(program, &it, &blocks).await,
        None => None,
    };
    match cheapest {
        Some(cheapest) => cheapest,
        None if program.known.compiles => it,
        None => first_blocks(program, it, n_blocks, without).await,
    }
}

/// Looks between too few blocks and enough for how many have to be checkpointed: where their needs say, if both are known, else in the middle. `without`:
/// what it needs with none.
/// The first ones are: backward reaches the last ones first, and frees them before anything is run again.
async fn first_blocks(
    program: &mut Program,
    mut it: Candidate,
    n_blocks: u64,
    without: Option<Bytes>,
) -> Candidate {
    let most = at_most(program, &it);
    let (mut too_few, mut enough) = (0, n_blocks);
    // Between two that are far from each other blocks need not save alike.
    let mut needs_of_too_few = without.filter(|_| program.known.sizes_differ);
    while too_few + 1 < enough && !program.interrupted {
        let needs = needs_of_too_few.map(|more| (more, it.needs));
        let n = between(too_few, enough, needs, most);
        let plan = with_blocks(&it.plan, (0..n).collect());
        let run = program.run(&plan).await;
        match run {
            Some(fewer) if fewer.fits && !program.is_tight(&fewer) => {
                (it, enough) = (fewer, n);
                if program.known.sizes_differ {
                    break;
                }
            }
            run => {
                let whole = run.filter(|it| it.cut_after.is_none() && !it.fits);
                (too_few, needs_of_too_few) = (n, whole.map(|it| it.needs));
            }
        }
    }
    it
}

/// Whether `it`, which checkpoints all blocks, leaves next to nothing of what that saves, by what the same without took.
fn leaves_next_to_nothing(program: &Program, it: &Candidate) -> bool {
    let strong = |plan: &Plan| -> Vec<Remedy> {
        let strong = plan.remedies.iter().filter(|it| !ladder::is_free(it.id));
        strong
            .filter(|it| ![remedies::ALLOCATOR, remedies::CHECKPOINT].contains(&it.id))
            .cloned()
            .collect()
    };
    let has_none = |plan: &Plan| !plan.remedies.iter().any(|it| it.id == remedies::CHECKPOINT);
    let same = program
        .tried()
        .iter()
        .filter(|other| has_none(&other.plan) && strong(&other.plan) == strong(&it.plan));
    let Some(without) = same.map(|it| program.needs_at_least(&it.took)).max() else { return false };
    let saved = without.saturating_sub(program.needs_at_least(&it.took));
    at_most(program, it).saturating_sub(it.needs).0 < saved.0 / WORTH
}

/// What is to be needed at most, of less than `all`, which checkpoints all blocks: where batches differ in size that leaves some room, if all blocks do.
fn at_most(program: &Program, all: &Candidate) -> Bytes {
    let spare = program.rules.most().saturating_sub(all.needs);
    program.rules.most().saturating_sub(program.room_for_orders().min(spare))
}

/// The fewest blocks, of more than `too_few` and less than `enough`, that need at most `most` if each saves as much as the others; `needs` are
/// those of too few and of enough.
fn between(too_few: u64, enough: u64, needs: Option<(Bytes, Bytes)>, most: Bytes) -> u64 {
    let middle = too_few + (enough - too_few) / 2;
    let Some((more, less)) = needs.filter(|(more, less)| less < more && *less <= most) else {
        return middle;
    };
    let (spare, saved) = (u128::from((most - less).0), u128::from((more - less).0));
    let fewer = spare * u128::from(enough - too_few) / saved;
    let n = enough.saturating_sub(u64::try_from(fewer).unwrap_or(u64::MAX));
    n.clamp(too_few + 1, enough - 1)
}

/// `everything`, which checkpoints all blocks and fits, with the cheapest blocks that fit instead; none if what they keep does not say.
async fn cheapest_blocks(
    program: &mut Program,
    everything: &Candidate,
    blocks: &Blocks,
) -> Option<Candidate> {
    let most = at_most(program, everything).saturating_sub(program.room_for_sizes());
    let a_little = Bytes(most.0 / 100);
    let mut best: Option<(f64, Candidate)> = None;
    // What is beside the blocks: the allocator's slack, the context, the allowance.
    let mut beside = everything.needs.saturating_sub(everything.took.peak.allocated);
    let mut seen: Vec<Vec<u64>> = Vec::new();
    let most_proofs = match &program.known {
        it if it.compiles => MOST_COMPILED,
        it if it.sizes_differ => MOST_DIFFERING,
        _ => MOST_PROOFS,
    };
    for _ in 0..most_proofs {
        let Some(choice) = blocks.cheapest(most.saturating_sub(beside)) else { break };
        program.line.say_computed(format!(
            "{} of {} blocks, {:.0} % of the time that running all of them again takes",
            choice.blocks.len(),
            blocks.len(),
            100.0 * choice.seconds / blocks.seconds(),
        ));
        let numbers = numbers_of(&choice);
        if seen.contains(&numbers) || program.interrupted {
            break;
        }
        seen.push(numbers.clone());
        let run = if numbers.len() == blocks.len() {
            Some(everything.clone()) // Which was run.
        } else {
            program.run_through_training(&with_blocks(&everything.plan, numbers)).await
        };
        let Some(it) = run else { break };
        let really = it.needs.saturating_sub(choice.peak);
        let fits = it.fits && !program.is_tight(&it);
        if fits && best.as_ref().is_none_or(|(seconds, _)| choice.seconds < *seconds) {
            best = Some((choice.seconds, it.clone()));
        }
        if fits && program.known.sizes_differ {
            break;
        }
        beside = if fits {
            // It may bear one block less than two measured runs make believe: the next choice is bolder.
            really.min(beside.saturating_sub(a_little))
        } else {
            really.max(beside + Bytes::mib(2))
        };
    }
    best.map(|(_, it)| it)
}

fn numbers_of(choice: &Choice) -> Vec<u64> {
    choice.blocks.iter().filter_map(|it| u64::try_from(*it).ok()).collect()
}

/// What its blocks keep and cost with `plan`, in two runs that are made once.
async fn measured(program: &mut Program, plan: &Plan) -> MeasuredBlocks {
    if let Some(known) = program.known.measured.iter().find(|it| it.plan == *plan) {
        return known.clone();
    }
    let (plan, nothing) = (plan.clone(), measuring(program, plan, Some(Vec::new()), 3));
    let everything = measuring(program, &plan, None, 2);
    let ran = program.trial(nothing).await;
    let without = ran.fits().then(|| program.needs(&ran.took));
    let nothing = ran.noted;
    let mut blocks = None;
    if nothing.readings.is_empty() || Blocks::are_told_apart(&nothing.readings) {
        let everything = program.trial(everything).await.noted;
        let card = &program.rules.card;
        let times: Vec<f64> = nothing.block_work.iter().map(|it| seconds(it, card)).collect();
        blocks = Blocks::new(&nothing.readings, &everything.readings, &times);
    }
    let measured = MeasuredBlocks { plan, blocks, without };
    program.known.measured.push(measured.clone());
    measured
}

/// A run of `plan` that measures, with these blocks checkpointed, or with all.
fn measuring(program: &Program, plan: &Plan, blocks: Option<Vec<u64>>, steps: u32) -> Run {
    let measure = Remedy::plain(remedies::CHECKPOINT).with(Parameter::Measure);
    let checkpoint = match blocks {
        Some(blocks) => measure.with(Parameter::Blocks(blocks)),
        None => measure,
    };
    let run = program.roomy(&instead(plan, &checkpoint), Until::Steps(steps));
    Run { few_parts: few_parts(plan), ..run }
}

/// `plan` with these blocks checkpointed.
fn with_blocks(plan: &Plan, blocks: Vec<u64>) -> Plan {
    instead(plan, &Remedy::plain(remedies::CHECKPOINT).with(Parameter::Blocks(blocks)))
}

fn instead(plan: &Plan, checkpoint: &Remedy) -> Plan {
    let change =
        |it: &Remedy| if it.id == remedies::CHECKPOINT { checkpoint.clone() } else { it.clone() };
    Plan::of(plan.remedies.iter().map(change).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_blocks_save_alike_the_second_look_is_the_last_but_one() {
        let of = |more, less, most| {
            between(12, 24, Some((Bytes::mib(more), Bytes::mib(less))), Bytes::mib(most))
        };
        assert_eq!(between(12, 24, None, Bytes::gib(11)), 18, "in the middle");
        assert_eq!(of(1167, 1086, 1163), 13);
        assert_eq!(of(1400, 800, 1100), 18);
        // Beyond both ends is the next to them.
        assert_eq!(of(1100, 1000, 1200), 13);
        assert_eq!(of(1100, 1000, 1000), 23);
        assert_eq!(of(1100, 1200, 1150), 18);
    }
}
