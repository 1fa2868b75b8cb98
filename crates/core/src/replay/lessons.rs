//! What a recording teaches about itself: it is followed again with what only its end, or a contradiction,
//! could tell.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use crate::{
    replay::{
        Config, Program, Replay, TorchVersion, checked::follower, doubt::Doubt, known::Known,
        recorded::Goal,
    },
    trace::{DeviceTrace, PoolId},
};

/// How often a recording is followed again with what was learned.
const MOST_LESSONS: usize = 24;

/// How often it is followed up to its first mismatch, to find out which segments were private pools'.
const MOST_GUESSES: usize = 300;

/// How many events are followed again in all: a long recording is followed again less often, and one that is
/// longer than this never.
const MOST_EVENTS_AGAIN: usize = 3_000_000;

/// Where the ids of pools begin that recordings do not name: beyond all that they can.
pub(super) const UNNAMED_POOLS: u32 = 1 << 16;

/// Follows `device`, more than once where it teaches above which level garbage is collected, which no recording
/// says.
pub(super) fn run(device: &DeviceTrace, config: &Config, known: &Known) -> (Replay, Program) {
    let attempt = Attempt { device, config, known };
    attempt.with_goal(&Pools::default())
}

/// As [`run`]; where that disagrees with a recording whose events name no pool, the segments are looked for
/// that were private pools' and were gone in the end. None says before torch 2.12.
pub(super) fn run_with_pools(
    device: &DeviceTrace,
    config: &Config,
    known: &Known,
) -> (Replay, Program) {
    let attempt = Attempt { device, config, known };
    let plain = attempt.with_goal(&Pools::default());
    if plain.0.n_mismatches == 0
        || device.events.names_pools()
        || TorchVersion::two(12) <= config.torch
    {
        return plain;
    }
    let pools = attempt.pools();
    if pools.is_empty() {
        return plain;
    }
    let mut with_pools = attempt.with_goal(&pools);
    with_pools.0.inferred_segments = pools.len();
    if with_pools.0.n_mismatches < plain.0.n_mismatches { with_pools } else { plain }
}

/// The private pools of segments, by the events that made them.
type Pools = BTreeMap<usize, PoolId>;

/// A recording that is followed again and again.
struct Attempt<'a> {
    device: &'a DeviceTrace,
    config: &'a Config,
    known: &'a Known,
}

/// Something to be tried further; the one that agrees longest comes first, and of those the simplest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Guess {
    agrees_until: usize,
    n_pools: Reverse<usize>,
    /// The earlier first.
    number: Reverse<usize>,
    /// Where it is, with its pools and its doubt.
    place: usize,
}

impl Attempt<'_> {
    /// Follows it with `pools` until it teaches no more about its garbage.
    fn with_goal(&self, pools: &Pools) -> (Replay, Program) {
        let (mut best, mut goal) = self.follow(pools, None);
        let n_lessons = MOST_LESSONS.min(MOST_EVENTS_AGAIN / self.device.events.len().max(1));
        let mut known = None;
        for _ in 0..n_lessons {
            if goal == known {
                break;
            }
            let (again, next) = self.follow(pools, goal);
            if best.0.n_mismatches < again.0.n_mismatches {
                break;
            }
            (known, best, goal) = (goal, again, next);
        }
        best
    }

    fn follow(&self, pools: &Pools, goal: Option<Goal>) -> ((Replay, Program), Option<Goal>) {
        let mut follower = follower(self.device, self.config.clone(), self.known);
        follower.learn(pools, goal);
        follower.follow();
        let goal = follower.model.driver.goal;
        (follower.finish(), goal.most.map(|_| goal))
    }

    /// Follows it up to its first mismatch; none when there is none.
    fn doubt(&self, pools: &Pools) -> Option<Doubt> {
        let first = |goal| {
            let mut follower = follower(self.device, self.config.clone(), self.known);
            follower.learn(pools, goal);
            follower.stops_in_doubt = true;
            follower.follow();
            let goal = follower.model.driver.goal;
            (follower.doubt_at_end(), goal.most.map(|_| goal))
        };
        let (doubt, goal) = first(None);
        let doubt = doubt?;
        if goal.is_none() {
            return Some(doubt);
        }
        let (again, _) = first(goal);
        again.map(|it| if doubt.event < it.event { it } else { doubt })
    }

    /// The private pools that leave no mismatch, or of all that were tried those that agree longest.
    fn pools(&self) -> Pools {
        let n_guesses = MOST_GUESSES.min(MOST_EVENTS_AGAIN / self.device.events.len().max(1));
        let mut known: Vec<(Pools, Doubt)> = Vec::new();
        let mut open: BinaryHeap<Guess> = BinaryHeap::new();
        let mut seen: BTreeSet<Pools> = BTreeSet::new();
        let mut best = (0, Pools::default());
        let mut next = vec![Pools::default()];
        while seen.len() < n_guesses {
            for pools in next {
                if !seen.insert(pools.clone()) {
                    continue;
                }
                let Some(doubt) = self.doubt(&pools) else { return pools };
                if best.0 < doubt.event {
                    best = (doubt.event, pools.clone());
                }
                open.push(Guess {
                    agrees_until: doubt.event,
                    n_pools: Reverse(pools.len()),
                    number: Reverse(seen.len()),
                    place: known.len(),
                });
                known.push((pools, doubt));
            }
            let Some(guess) = open.pop() else { break };
            let (pools, doubt) = &known[guess.place];
            next = further(pools, doubt);
        }
        best.1
    }
}

/// What may be tried after `pools` led to `doubt`: each group is the pool's that served last, or one that is
/// thought of already, or one more, or the default pool's after all.
fn further(pools: &Pools, doubt: &Doubt) -> Vec<Pools> {
    let thought_of: BTreeSet<PoolId> = pools.values().copied().collect();
    let one_more = (UNNAMED_POOLS..).map(PoolId).find(|it| !thought_of.contains(it));
    let mut choices: Vec<PoolId> = one_more.into_iter().collect();
    choices.extend(Some(doubt.near).filter(|it| *it != PoolId(0)));
    choices.extend(thought_of.iter().rev().filter(|it| **it != doubt.near).take(3));
    let mut res = Vec::new();
    for group in &doubt.groups {
        for choice in &choices {
            let mut next = pools.clone();
            next.extend(group.iter().map(|it| (*it, *choice)));
            res.push(next);
        }
        if group.iter().any(|it| pools.contains_key(it)) {
            let mut next = pools.clone();
            next.retain(|it, _| !group.contains(it));
            res.push(next);
        }
    }
    res
}
