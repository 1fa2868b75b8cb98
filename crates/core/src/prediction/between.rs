//! What the ranks of a job may come to between both ends of a race or of a router: the allocator's model replays what they asked for, with
//! blocks that come free now as at one end and now as at the other, or with other sizes in each layer and step. A real rank changes from
//! one end to the other, and then the blocks that it kept from the first do not fit what the second asks for.

use crate::{
    cards::Card,
    prediction::{Doubt, Peaks, Unknowns, device_run::DeviceRun, safe_bytes},
    recording::Recording,
    replay::{self, Config, Program},
    units::Bytes,
};

/// The most that a rank took in any of these replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BetweenEnds {
    /// Which; none of a job of one process, or of all of them.
    pub rank: Option<u32>,
    /// In PyTorch's allocator.
    pub reserved: Bytes,
    /// As a process, with what others hold on its device.
    pub most: Bytes,
    /// The same with an allowance.
    pub with_allowance: Bytes,
    /// Whether one ran out of memory.
    pub runs_out: bool,
    /// Whether an end fits because PyTorch gave its cache back when memory was full, and one of these ran out with a little less memory.
    pub tight: bool,
}

/// Real ranks take orders that no replay had, which leave other holes: memory that is enough only because PyTorch gives its cache back is enough
/// for them, too, if all replays come to their end with less of it by one part in so many. The three jobs that were seen to fail where
/// both ends fit had less than a fiftieth more than where an end fails.
pub(super) const LITTLE: u64 = 20;

impl BetweenEnds {
    /// The most that any of them took; none if there is none.
    pub fn of_all(all: &[BetweenEnds]) -> Option<BetweenEnds> {
        all.iter().copied().reduce(|a, b| BetweenEnds {
            rank: None,
            reserved: a.reserved.max(b.reserved),
            most: a.most.max(b.most),
            with_allowance: a.with_allowance.max(b.with_allowance),
            runs_out: a.runs_out || b.runs_out,
            tight: a.tight || b.tight,
        })
    }

    /// Why it may not fit between them, if it may not.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        let is_tight = self.tight.then_some(Doubt::GaveCacheBack);
        if self.runs_out { Some(Doubt::RunsOut) } else { is_tight }
    }
}

/// Of each rank of a job that ran at both ends, by their recordings; none of those where these do not differ. Where they differ in more than that,
/// or one ran at one end only, nothing is replayed.
pub fn between_ends(first: &[Recording], second: &[Recording], card: &Card) -> Vec<BetweenEnds> {
    let first_runs: Vec<DeviceRun<'_>> = first.iter().flat_map(DeviceRun::all).collect();
    let mut res = Vec::new();
    for there in second.iter().flat_map(DeviceRun::all) {
        let mut same = first_runs.iter().filter(|it| key(it) == key(&there));
        let run = same.next().filter(|_| same.next().is_none());
        if run.is_some_and(|it| it.program.asks_the_same(&there.program)) {
            continue;
        }
        let gave_back = gave_cache_back(&there) || run.is_some_and(gave_cache_back);
        let between =
            run.and_then(|it| Some((it, replay::Between::of(&it.program, &there.program)?)));
        res.push(match between {
            Some((run, it)) => of_rank((run, first), &it, card, gave_back),
            None => BetweenEnds { rank: key(&there).0, tight: gave_back, ..Default::default() },
        });
    }
    res
}

fn gave_cache_back(run: &DeviceRun<'_>) -> bool {
    run.recording.notes.stats.iter().any(|it| it.device == run.index && it.retries != 0)
}

/// Whether it fits because PyTorch gave its cache back when memory was full, and would not if the driver had placed its segments in another order:
/// what else a process maps (the host's memory, what NCCL exchanges with other ranks) decides where they lie.
pub(super) fn depends_on_addresses(run: &DeviceRun<'_>, all: &[Recording], card: &Card) -> bool {
    if !gave_cache_back(run) {
        return false;
    }
    let Place { config, limit, .. } = Place::of(run, all, card);
    // What libraries took may have come later than the most that PyTorch held.
    let limit = limit.max(run.replay.peak_reserved.bytes);
    replay::depends_on_addresses(&run.program, &config.with_capacity(limit), shared(run))
}

fn shared(run: &DeviceRun<'_>) -> replay::Shared {
    let world = run.recording.notes.begin.as_ref().and_then(|it| it.world_size);
    replay::Shared(world.is_some_and(|it| 1 < it))
}

/// Why what ran out of memory may fit all the same, if it may: `whole` ran with memory that does not end, and once more with its work done late
/// where that differs. With the memory that there is, each rank has to come to its end in some replay.
pub fn may_fit(
    ran_out: &[Recording],
    whole: &[Recording],
    late: Option<&[Recording]>,
    card: &Card,
) -> Option<Doubt> {
    let own_limit = ran_out.iter().flat_map(DeviceRun::all).filter_map(|it| it.own_limit()).max();
    let late: Vec<DeviceRun<'_>> = late.into_iter().flatten().flat_map(DeviceRun::all).collect();
    let mut res = None;
    for run in whole.iter().flat_map(DeviceRun::all) {
        let Place { config, limit, .. } = Place::of(&run, whole, card);
        let config = config.with_capacity(own_limit.map_or(limit, |it| it.min(limit)));
        if replay::what_if(&run.program, &config).ran_out.is_none() {
            continue;
        }
        let there = late.iter().find(|it| key(it) == key(&run));
        let between = there.and_then(|it| replay::Between::of(&run.program, &it.program));
        let comes_to_its_end = |it: Program| replay::what_if(&it, &config).ran_out.is_none();
        if replay::fits_at_other_addresses(&run.program, &config, shared(&run)) {
            res = res.or(Some(Doubt::FitsElsewhere));
        } else if between.is_some_and(|it| it.programs().any(comes_to_its_end)) {
            res = Some(Doubt::FitsBetween);
        } else {
            return None;
        }
    }
    res
}

/// Which rank, and which of its devices.
fn key(run: &DeviceRun<'_>) -> (Option<u32>, usize) {
    (run.recording.notes.begin.as_ref().and_then(|it| it.rank), run.index)
}

/// Where a run is replayed.
struct Place {
    config: Config,
    /// What others hold on its device.
    outside: Bytes,
    /// The most that PyTorch can reserve.
    limit: Bytes,
}

impl Place {
    fn of(run: &DeviceRun<'_>, all: &[Recording], card: &Card) -> Place {
        let settings = run.trace.settings.clone().unwrap_or_default();
        let mut config = Config::of_recording(&settings, run.torch);
        let said = run.recording.notes.begin.as_ref().map(|it| it.torch.as_str());
        config.torch = said.and_then(|it| it.parse().ok()).unwrap_or(config.torch);
        let outside = run.other(card) + run.context(card) + run.beside(all, card);
        let room = card.usable().saturating_sub(outside);
        let limit = run.own_limit().map_or(room, |it| it.min(room));
        Place { config, outside, limit }
    }
}

fn of_rank(
    (run, all): (&DeviceRun<'_>, &[Recording]),
    between: &replay::Between<'_>,
    card: &Card,
    gave_back: bool,
) -> BetweenEnds {
    let Place { config, outside, limit } = Place::of(run, all, card);
    let unknowns = Unknowns::of(run, card, run.evidence().largest_scratch());
    let rank = run.recording.notes.begin.as_ref().and_then(|it| it.rank);
    let mut res = BetweenEnds { rank, ..BetweenEnds::default() };
    for program in between.programs() {
        let free = replay::what_if(&program, &config).peak_reserved.bytes;
        let with = |most: Bytes| {
            (most < free).then(|| replay::what_if(&program, &config.clone().with_capacity(most)))
        };
        let runs_out =
            |it: &Option<replay::WhatIf>| it.as_ref().is_some_and(|it| it.ran_out.is_some());
        let within = with(limit);
        res.runs_out |= runs_out(&within);
        res.tight |= gave_back && runs_out(&with(limit.saturating_sub(Bytes(limit.0 / LITTLE))));
        let reserved = within.map_or(free, |it| it.peak_reserved.bytes);
        let peak = Peaks { reserved, device: reserved + outside, ..run.peaks(card) };
        res.reserved = res.reserved.max(reserved);
        res.most = res.most.max(peak.device);
        res.with_allowance = res.with_allowance.max(safe_bytes(peak, &unknowns));
    }
    res
}
