//! The blocks to checkpoint under a budget: two measured runs say what each block keeps and costs, the choice is
//! solved from that, and a run proves it. What the proof takes more than was thought is taken off the budget; what it
//! takes less is added.

use std::time::Instant;

use plimsoll_core::{
    plan::{
        Plan, Remedy, Value,
        blocks::{At, Blocks, Reading},
        seconds,
    },
    units::Bytes,
};

use super::{
    plans::Search,
    ranking::{self, Candidate},
};
use crate::{launch::Stop, trials::Trial};

/// So many choices are run at most.
const MOST_PROOFS: usize = 6;

impl Search<'_> {
    /// As few blocks as fit, by what each keeps and costs where that can be told; else the first ones.
    pub(super) fn fewest_blocks(
        &mut self,
        it: Candidate,
        n_blocks: u64,
    ) -> anyhow::Result<Candidate> {
        match self.cheapest_blocks(&it)? {
            Some(cheapest) => Ok(cheapest),
            None => self.first_blocks(it, n_blocks),
        }
    }

    /// Bisects how many blocks have to be checkpointed. The first ones are: backward reaches the last ones first,
    /// and frees them before anything is run again.
    fn first_blocks(&mut self, mut it: Candidate, n_blocks: u64) -> anyhow::Result<Candidate> {
        let (mut too_few, mut enough) = (0, n_blocks);
        while too_few + 1 < enough && !self.interrupted {
            let n = too_few + (enough - too_few) / 2;
            let remedies = it.plan.remedies.iter().map(|it| match it.id {
                "checkpoint" => {
                    Remedy::plain("checkpoint").with("blocks", Value::Numbers((0..n).collect()))
                }
                _ => it.clone(),
            });
            match self.run(&Plan::of(remedies.collect()))?.filter(|it| it.fits) {
                Some(fewer) => (it, enough) = (fewer, n),
                None => too_few = n,
            }
        }
        Ok(it)
    }

    /// `everything`, which checkpoints all blocks and fits, with the cheapest blocks that fit instead; none if the
    /// blocks of this model cannot be told apart.
    fn cheapest_blocks(&mut self, everything: &Candidate) -> anyhow::Result<Option<Candidate>> {
        let Some(blocks) = self.measured(&everything.plan)? else { return Ok(None) };
        let mut best: Option<(f64, Candidate)> = None;
        // What is beside the blocks: the allocator's slack, the context, the allowance.
        let mut beside = everything.needs.saturating_sub(everything.prediction.peak.allocated);
        let mut seen: Vec<Vec<u64>> = Vec::new();
        for _ in 0..MOST_PROOFS {
            let began = Instant::now();
            let Some(choice) = blocks.cheapest(self.most.saturating_sub(beside)) else { break };
            self.say(&format!(
                "{} of {} blocks, {:.0} % of what running all of them again takes; solved in {:.1} ms",
                choice.blocks.len(),
                blocks.len(),
                100.0 * choice.seconds / blocks.seconds(),
                began.elapsed().as_secs_f64() * 1e3,
            ));
            let numbers: Vec<u64> =
                choice.blocks.iter().filter_map(|it| u64::try_from(*it).ok()).collect();
            if seen.contains(&numbers) || self.interrupted {
                break;
            }
            seen.push(numbers.clone());
            let run = if numbers.len() == blocks.len() {
                Some(everything.clone()) // Which was run.
            } else {
                self.run_through(&with_blocks(&everything.plan, numbers))?
            };
            let Some(it) = run else { break };
            let really = it.needs.saturating_sub(choice.peak);
            if it.fits && best.as_ref().is_none_or(|(seconds, _)| choice.seconds < *seconds) {
                best = Some((choice.seconds, it.clone()));
            }
            beside = if it.fits {
                // It may bear one block less than two measured runs make believe: the next choice is bolder.
                really.min(beside.saturating_sub(Bytes(self.most.0 / 100)))
            } else {
                really.max(beside + Bytes::mib(2))
            };
        }
        Ok(best.map(|(_, it)| it))
    }

    /// What each block keeps and costs, with the plan's other remedies.
    fn measured(&mut self, plan: &Plan) -> anyhow::Result<Option<Blocks>> {
        let nothing = self.trial(&measuring(plan, Some(Vec::new())), Stop::Steps(3), &[])?;
        let everything = self.trial(&measuring(plan, None), Stop::Steps(2), &[])?;
        let card = self.trials.card();
        let times: Vec<f64> = nothing.noted("block-work").map_or_else(Vec::new, |it| {
            let blocks = it["blocks"].as_array().into_iter().flatten();
            blocks.map(|it| seconds(&ranking::operations(it), card)).collect()
        });
        Ok(Blocks::new(&readings(&nothing), &readings(&everything), &times))
    }
}

/// `plan` in a run that measures, with these blocks checkpointed, or with all.
fn measuring(plan: &Plan, blocks: Option<Vec<u64>>) -> Plan {
    let measure = Remedy::plain("checkpoint").with("measure", Value::Number(1));
    instead(
        plan,
        &match blocks {
            Some(blocks) => measure.with("blocks", Value::Numbers(blocks)),
            None => measure,
        },
    )
}

/// `plan` with these blocks checkpointed.
fn with_blocks(plan: &Plan, blocks: Vec<u64>) -> Plan {
    instead(plan, &Remedy::plain("checkpoint").with("blocks", Value::Numbers(blocks)))
}

fn instead(plan: &Plan, checkpoint: &Remedy) -> Plan {
    let change = |it: &Remedy| if it.id == "checkpoint" { checkpoint.clone() } else { it.clone() };
    Plan::of(plan.remedies.iter().map(change).collect())
}

fn readings(trial: &Trial) -> Vec<Reading> {
    let read = |it: &serde_json::Value| {
        let number = |i: usize| it[i].as_u64();
        let block = usize::try_from(number(1)?).ok()?;
        let at = match it[0].as_str()? {
            "enter" => At::Enter(block),
            "leave" => At::Leave(block),
            "back" => At::Back(block),
            _ => At::End,
        };
        Some(Reading { at, current: Bytes(number(2)?), peak: Bytes(number(3)?) })
    };
    let noted = trial.noted("block-memory").and_then(|it| it["readings"].as_array());
    noted.into_iter().flatten().filter_map(read).collect()
}
