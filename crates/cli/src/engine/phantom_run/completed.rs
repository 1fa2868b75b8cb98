//! A run completed: an inquiry says which runs it wants beside the first, whoever has the script makes them, and what all of them recorded
//! is held together here.

use std::ffi::OsString;

use plimsoll_core::{
    cards::Card,
    prediction::{self, BetweenEnds, Inquiry, Job, OtherEnd, Outcome, Prediction, Wanted},
    recording::Recording,
    units::Bytes,
};

use crate::{
    engine::{
        host_memory,
        launch::{self, Ranks},
        phantom_run::ends::left_open,
    },
    options::assumption::Assumption,
};

/// What the runs of a script have in common that complete its first one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completing<'a> {
    pub(crate) command: &'a [OsString],
    /// Of the first run.
    pub(crate) ranks: &'a Ranks,
    pub(crate) card: &'a Card,
    pub(crate) assumed: &'a [Assumption],
}

/// How one more run is made: on this card, at these other ends, as these ranks. None if it was interrupted.
pub(crate) type OneMore<'a> =
    &'a mut dyn FnMut(
        &Card,
        &[OtherEnd],
        &Ranks,
    ) -> anyhow::Result<Option<(Prediction, Vec<Recording>)>>;

impl Completing<'_> {
    /// Makes the runs that complete what the first one says. `recordings` become those of the run that the answer shows.
    pub(crate) fn complete(
        &self,
        inquiry: &mut Inquiry,
        recordings: &mut Vec<Recording>,
        one_more: OneMore<'_>,
    ) -> anyhow::Result<()> {
        // Those that the answer shows.
        let mut ranks = self.ranks.clone();
        while let Some(wanted) = inquiry.wanted() {
            // What is compared with the run that the answer shows differs from it in one thing.
            let mut ends: Vec<OtherEnd> = match wanted {
                Wanted::OtherEnd(_) | Wanted::Rank(_) | Wanted::Beside(_)
                    if inquiry.shows_late() =>
                {
                    vec![OtherEnd::Late]
                }
                _ => Vec::new(),
            };
            if let Wanted::OtherEnd(end) = wanted {
                ends.push(end);
            }
            let without_end = self.card.clone().without_end();
            let card = match wanted {
                Wanted::Larger(card) | Wanted::Smaller(card) | Wanted::Named(card) => card,
                Wanted::WithoutEnd => &without_end,
                _ => self.card,
            };
            let these = match wanted {
                Wanted::Rank(rank) => self.ranks.with_rank(rank),
                Wanted::Beside(rank) => self.ranks.with_ranks(vec![0, rank]),
                Wanted::Stages => self.ranks.with_ranks(stages_of(recordings)),
                Wanted::AllRanks => self.ranks.together(),
                Wanted::EndsOfStages => match inquiry.ends_of_stages() {
                    all if all.is_empty() => self.ranks.together(),
                    some => self.ranks.with_ranks(some),
                },
                _ => ranks.clone(),
            };
            let there = one_more(card, &ends, &these)?;
            let is_shown = inquiry.came(wanted, there.as_ref().map(|it| &it.0))?;
            if let (Wanted::OtherEnd(end @ (OtherEnd::Late | OtherEnd::Routed)), Some(there)) =
                (wanted, &there)
            {
                let between = prediction::between_ends(recordings, &there.1, card);
                let most = BetweenEnds::of_all(&between);
                most.iter().for_each(|it| inquiry.took_between(end, it));
            }
            if let (Wanted::WithoutEnd, Some((prediction, whole))) = (wanted, &there)
                && prediction.outcome == Outcome::Fits
            {
                let differs = OtherEnd::of(whole).contains(&OtherEnd::Late);
                let late = if differs { one_more(card, &[OtherEnd::Late], &these)? } else { None };
                let late = late.as_ref().map(|it| it.1.as_slice());
                inquiry.may_fit(prediction::may_fit(recordings, whole, late, card));
            }
            let Some((_, there)) = there.filter(|_| is_shown) else { continue };
            *recordings = there;
            ranks = match inquiry.stand_for_all() {
                [] => these,
                some => self.ranks.with_ranks(some.to_vec()),
            };
            if matches!(wanted, Wanted::Stages | Wanted::EndsOfStages | Wanted::AllRanks) {
                inquiry.left_open(&left_open(recordings, self.assumed));
            }
        }
        Ok(())
    }

    /// The job that the first run was one rank of, whose ranks take so much of the host each. All of them run together only where half
    /// of the host's memory, and what is free of it, is enough for what each needs.
    pub(crate) fn job(&self, recordings: &[Recording], of_one: Bytes) -> Option<Job> {
        let world = world_of(recordings)?;
        let total = recordings.iter().find_map(|it| it.notes.host?.total);
        let has_room = |n: usize| {
            let all = of_one.0.saturating_mul(u64::try_from(n).unwrap_or(u64::MAX));
            let is_free = host_memory::free().is_none_or(|free| all <= free);
            is_free && total.is_some_and(|total| all <= total.0 / 2)
        };
        let is_one_machine = world <= devices_of(recordings);
        // Its launcher would start all ranks once more for each of them.
        let starts_all =
            matches!(self.ranks, Ranks::One { .. }) && launch::has_launcher(self.command);
        let together = is_one_machine && !starts_all && has_room(world as usize);
        let mut stages = stages_of(recordings);
        if !has_room(stages.len()) {
            stages.clear();
        }
        let named = recordings.iter().flat_map(|it| it.notes.named_ranks.iter().copied());
        let named = named.filter(|it| (1..world - 1).contains(it));
        let others = [world - 1].into_iter().chain(named).collect();
        Some(Job { world, together, stages, others })
    }
}

/// How many devices the machine of these recordings has.
pub(crate) fn devices_of(recordings: &[Recording]) -> u32 {
    let devices = recordings.iter().filter_map(|it| it.phantom.as_ref()).map(|it| it.devices.len());
    devices.max().and_then(|it| u32::try_from(it).ok()).unwrap_or(0)
}

/// How many ranks the job of these recordings has; none if it is one process.
pub(crate) fn world_of(recordings: &[Recording]) -> Option<u32> {
    let begun = recordings.iter().filter_map(|it| it.notes.begin.as_ref());
    begun.filter_map(|it| it.world_size).find(|it| 1 < *it)
}

/// One rank of each stage of the job's pipeline; nothing if it has none.
fn stages_of(recordings: &[Recording]) -> Vec<u32> {
    recordings.iter().map(|it| it.notes.stages.clone()).find(|it| 1 < it.len()).unwrap_or_default()
}
