//! What a recording teaches about itself: it is followed again with what only its end, or a contradiction,
//! could tell.

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use crate::{
    replay::{
        Config, Program, Replay, Reserve, TorchVersion,
        follow::follower::{Doubt, Follower, UNNAMED_POOLS},
        known::Known,
        recorded::Goal,
        rounding::SMALL_BUFFER,
    },
    trace::{DeviceTrace, PoolId},
    units::Bytes,
};

/// How often a recording is followed again with what was learned.
const MOST_LESSONS: usize = 24;

/// How often it is followed up to its first mismatch, to find out which segments were private pools'.
const MOST_GUESSES: usize = 1500;

/// Of how many guesses one is the oldest that was not tried further, instead of the one that agrees longest: what
/// is wrong can agree for long.
const OLDEST_OF: usize = 3;

/// How many events are followed again in all: a long recording is followed again less often, and one that is
/// longer than this never.
const MOST_EVENTS_AGAIN: usize = 3_000_000;

/// How many lengths of expandable segments are tried, each a granule shorter.
const MOST_LENGTHS: usize = 64;

/// Follows `device`, more than once where it teaches above which level garbage is collected, or how long an expandable
/// segment is, which no recording says.
///
/// What was followed `ahead` is taken for the beginning of the first time, where it is one.
pub(super) fn run(
    device: &DeviceTrace,
    config: &Config,
    known: &Known,
    ahead: Option<Follower<'static>>,
) -> (Replay, Program) {
    let ahead = Cell::new(ahead);
    let attempt = Attempt { ahead, ..Attempt::new(device, config, known) };
    let plain = attempt.with_goal(&Pools::default());
    attempt.with_lengths(plain)
}

/// As [`run`]; where that disagrees with a recording whose events name no pool, the segments are looked for
/// that were private pools' and were gone in the end. None says before torch 2.12.
pub(super) fn run_with_pools(
    device: &DeviceTrace,
    config: &Config,
    known: &Known,
) -> (Replay, Program) {
    let attempt = Attempt::new(device, config, known);
    let plain = attempt.with_goal(&Pools::default());
    let plain = attempt.with_lengths(plain);
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
    /// How long an expandable segment is at most, as the last time showed that it was followed.
    range_most: Cell<Option<u64>>,
    /// What was followed already, as if nothing was to be learned of it.
    ahead: Cell<Option<Follower<'static>>>,
}

/// Something to be tried further; the one that agrees longest comes first, and of those the simplest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Guess {
    agrees_until: usize,
    n_pools: Reverse<usize>,
    n_segments: Reverse<usize>,
    /// The earlier first.
    number: Reverse<usize>,
    /// Where it is, with its pools and its doubt.
    place: usize,
}

impl<'a> Attempt<'a> {
    fn new(device: &'a DeviceTrace, config: &'a Config, known: &'a Known) -> Attempt<'a> {
        Attempt { device, config, known, range_most: Cell::default(), ahead: Cell::default() }
    }

    /// A share of a device that nobody names is no length. A request that fits no more shows what it is at most; less than that is tried
    /// where `plain` has mismatches, since segments that lie one after the other look like one.
    fn with_lengths(&self, plain: (Replay, Program)) -> (Replay, Program) {
        let mut best = plain;
        let Some(most) = self.range_most.get() else { return best };
        let n = MOST_LENGTHS.min(MOST_EVENTS_AGAIN / self.device.events.len().max(1));
        let shorter = std::iter::successors(Some(most), |it| it.checked_sub(SMALL_BUFFER.0));
        for length in shorter.take(n) {
            if best.0.n_mismatches == 0 {
                break;
            }
            let reserve = Some(Reserve::Size(Bytes(length)));
            let config = Config { expandable_segments_reserve: reserve, ..self.config.clone() };
            let attempt = Attempt::new(self.device, &config, self.known);
            let again = attempt.with_goal(&Pools::default());
            if again.0.n_mismatches < best.0.n_mismatches {
                best = again;
            }
        }
        best
    }

    /// Follows it with `pools` until it teaches no more about its garbage, and about pools that never split.
    fn with_goal(&self, pools: &Pools) -> (Replay, Program) {
        let mut whole = BTreeSet::new();
        let (mut best, mut doubt) = self.with_whole(pools, &whole);
        for _ in 0..self.most_lessons() {
            let Some(pool) = doubt.as_ref().and_then(|it| self.may_be_whole(it, &whole)) else {
                break;
            };
            whole.insert(pool);
            let (again, next) = self.with_whole(pools, &whole);
            if !agrees_longer(next.as_ref(), doubt.as_ref()) {
                break;
            }
            (best, doubt) = (again, next);
        }
        best
    }

    /// The same, with the private pools `whole` that never split a segment.
    fn with_whole(
        &self,
        pools: &Pools,
        whole: &BTreeSet<PoolId>,
    ) -> ((Replay, Program), Option<Doubt>) {
        let (mut best, mut goal, mut doubt) = self.follow(pools, whole, None);
        let mut known = None;
        for _ in 0..self.most_lessons() {
            if goal == known {
                break;
            }
            let (again, next, next_doubt) = self.follow(pools, whole, goal);
            if best.0.n_mismatches < again.0.n_mismatches {
                break;
            }
            (known, best, goal, doubt) = (goal, again, next, next_doubt);
        }
        (best, doubt)
    }

    fn most_lessons(&self) -> usize {
        MOST_LESSONS.min(MOST_EVENTS_AGAIN / self.device.events.len().max(1))
    }

    fn follow(
        &self,
        pools: &Pools,
        whole: &BTreeSet<PoolId>,
        goal: Option<Goal>,
    ) -> ((Replay, Program), Option<Goal>, Option<Doubt>) {
        let mut follower = Follower::new(self.device, self.config.clone(), self.known);
        // What comes first knows nothing of these.
        if let Some(ahead) = self.ahead.take() {
            follower = follower.or_ahead(ahead);
        }
        follower.learn(pools, whole, goal);
        follower.follow();
        let goal = follower.model.driver.goal;
        let doubt = follower.doubt.first.take();
        self.range_most.set(follower.model.range_most);
        (follower.finish(), goal.most.map(|_| goal), doubt)
    }

    /// The pool that served where the recording first disagrees, if it may be one that never splits: no event
    /// says which do.
    fn may_be_whole(&self, doubt: &Doubt, whole: &BTreeSet<PoolId>) -> Option<PoolId> {
        let pool = Some(doubt.near).filter(|it| *it != PoolId(0) && !whole.contains(it));
        pool.filter(|_| TorchVersion::two(10) <= self.config.torch)
    }

    /// Follows it up to its first mismatch; none when there is none.
    fn doubt(&self, pools: &Pools) -> Option<Doubt> {
        let first = |whole: &BTreeSet<PoolId>, goal| {
            let mut follower = Follower::new(self.device, self.config.clone(), self.known);
            follower.learn(pools, whole, goal);
            follower.doubt.stops = true;
            follower.follow();
            let goal = follower.model.driver.goal;
            (follower.doubt_at_end(), goal.most.map(|_| goal))
        };
        let mut whole = BTreeSet::new();
        let (doubt, goal) = first(&whole, None);
        let mut doubt = doubt?;
        if goal.is_some() {
            let again = first(&whole, goal).0?;
            doubt = if doubt.event < again.event { again } else { doubt };
        }
        while let Some(pool) = self.may_be_whole(&doubt, &whole) {
            whole.insert(pool);
            let again = first(&whole, goal).0?;
            if again.event <= doubt.event {
                break;
            }
            doubt = again;
        }
        Some(doubt)
    }

    /// The private pools that leave no mismatch, or of all that were tried those that agree longest.
    fn pools(&self) -> Pools {
        let n_guesses = MOST_GUESSES.min(MOST_EVENTS_AGAIN / self.device.events.len().max(1));
        let mut known: Vec<(Pools, Doubt)> = Vec::new();
        let mut open: BinaryHeap<Guess> = BinaryHeap::new();
        let mut seen: BTreeSet<Pools> = BTreeSet::new();
        let mut best = (0, Pools::default());
        let mut next = vec![Pools::default()];
        let mut tried: BTreeSet<usize> = BTreeSet::new();
        let mut turn = 0;
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
                    n_pools: Reverse(pools.values().collect::<BTreeSet<_>>().len()),
                    n_segments: Reverse(pools.len()),
                    number: Reverse(seen.len()),
                    place: known.len(),
                });
                known.push((pools, doubt));
            }
            turn += 1;
            let Some(place) = (match turn % OLDEST_OF {
                0 => (0..known.len()).find(|it| !tried.contains(it)),
                _ => std::iter::from_fn(|| open.pop())
                    .map(|it| it.place)
                    .find(|it| !tried.contains(it)),
            }) else {
                break;
            };
            tried.insert(place);
            let (pools, doubt) = &known[place];
            next = further(pools, doubt);
        }
        best.1
    }
}

/// Whether a recording agrees longer when what led to `one` is so than when what led to `other` is.
fn agrees_longer(one: Option<&Doubt>, other: Option<&Doubt>) -> bool {
    let until = |it: Option<&Doubt>| it.map_or(usize::MAX, |it| it.event);
    until(other) < until(one)
}

/// What may be tried after `pools` led to `doubt`: each group is the pool's that served last, or one that is
/// thought of already, or one more, or the default pool's after all.
fn further(pools: &Pools, doubt: &Doubt) -> Vec<Pools> {
    let thought_of: BTreeSet<PoolId> = pools.values().copied().collect();
    let one_more = (UNNAMED_POOLS..).map(PoolId).find(|it| !thought_of.contains(it));
    let mut choices: Vec<PoolId> =
        Some(doubt.near).filter(|it| *it != PoolId(0)).into_iter().collect();
    choices.extend(thought_of.iter().rev().filter(|it| **it != doubt.near).take(3));
    choices.extend(one_more);
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
