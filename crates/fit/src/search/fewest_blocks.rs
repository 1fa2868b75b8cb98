//! The blocks to checkpoint under a budget: two measured runs say what each block keeps and costs, the choice is
//! solved from that, and a run proves it. What the proof takes more than was thought is taken off the budget; what it
//! takes less is added.

use plimsoll_core::{
    plan::{Parameter, Plan, Remedy, remedies},
    units::Bytes,
};

use super::{ask::Run, ask::Until, candidate::Candidate, program::Program};
use crate::cost::{
    blocks::{Blocks, Choice},
    seconds,
};

/// So many choices are run at most,
const MOST_PROOFS: usize = 6;
/// and of what is compiled, where each is compiled anew, and the compiler has its own mind about what is kept,
const MOST_COMPILED: usize = 2;
/// and where batches differ in size, where each run goes through small and large ones.
const MOST_DIFFERING: usize = 3;

/// As few blocks as fit, by what each keeps and costs where that can be told; else the first ones, but all of what is compiled. `it` checkpoints all
/// of its `n_blocks`, and fits.
pub(super) async fn fewest_blocks(
    program: &mut Program,
    it: Candidate,
    n_blocks: u64,
) -> Candidate {
    match cheapest_blocks(program, &it).await {
        Some(cheapest) => cheapest,
        None if program.known.compiles => it,
        None => first_blocks(program, it, n_blocks).await,
    }
}

/// Bisects how many blocks have to be checkpointed. The first ones are: backward reaches the last ones first, and frees
/// them before anything is run again.
async fn first_blocks(program: &mut Program, mut it: Candidate, n_blocks: u64) -> Candidate {
    let may_be_tight = program.is_tight(&it);
    let (mut too_few, mut enough) = (0, n_blocks);
    while too_few + 1 < enough && !program.interrupted {
        let n = too_few + (enough - too_few) / 2;
        let plan = with_blocks(&it.plan, (0..n).collect());
        let run = program.run(&plan).await;
        match run.filter(|it| it.fits && (may_be_tight || !program.is_tight(it))) {
            Some(fewer) => (it, enough) = (fewer, n),
            None => too_few = n,
        }
    }
    it
}

/// `everything`, which checkpoints all blocks and fits, with the cheapest blocks that fit instead; none if the blocks of
/// this model cannot be told apart.
async fn cheapest_blocks(program: &mut Program, everything: &Candidate) -> Option<Candidate> {
    let blocks = measured(program, &everything.plan).await?;
    // Where all blocks leave no room for sizes that were not seen, fewer need not either.
    let may_be_tight = program.is_tight(everything);
    let room = if may_be_tight { Bytes::ZERO } else { program.room_for_sizes() };
    let most = program.rules.most().saturating_sub(room);
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
            program.run_through(&with_blocks(&everything.plan, numbers)).await
        };
        let Some(it) = run else { break };
        let really = it.needs.saturating_sub(choice.peak);
        let fits = it.fits && (may_be_tight || !program.is_tight(&it));
        if fits && best.as_ref().is_none_or(|(seconds, _)| choice.seconds < *seconds) {
            best = Some((choice.seconds, it.clone()));
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

/// What each block keeps and costs, with the plan's other remedies.
async fn measured(program: &mut Program, plan: &Plan) -> Option<Blocks> {
    let nothing = measuring(program, plan, Some(Vec::new()), 3);
    let everything = measuring(program, plan, None, 2);
    let nothing = program.trial(nothing).await.noted;
    let everything = program.trial(everything).await.noted;
    let card = &program.rules.card;
    let times: Vec<f64> = nothing.block_work.iter().map(|it| seconds(it, card)).collect();
    Blocks::new(&nothing.readings, &everything.readings, &times)
}

/// A run of `plan` that measures, with these blocks checkpointed, or with all.
fn measuring(program: &Program, plan: &Plan, blocks: Option<Vec<u64>>, steps: u32) -> Run {
    let measure = Remedy::plain(remedies::CHECKPOINT).with(Parameter::Measure);
    let checkpoint = match blocks {
        Some(blocks) => measure.with(Parameter::Blocks(blocks)),
        None => measure,
    };
    program.roomy(&instead(plan, &checkpoint), Until::Steps(steps))
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
