//! What would have made a failed request fit, each answer tried on the allocator as it stood: nothing here
//! adds sizes up and calls that an answer.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    findings::{Case, Finding, category_name, place},
    replay::{self, BlockId, Config, Failure, Held, WhatIf},
    trace::EventId,
    units::Bytes,
};

/// Sets of blocks that are tried at most.
const TRIES: usize = 48;

/// A failed request, ready to be asked about.
pub(super) struct Proof<'a> {
    case: &'a Case<'a>,
    failure: Failure,
    program: &'a replay::Program,
    config: Config,
    asked: Bytes,
}

/// Blocks that one line had made.
pub(super) type Lines = Vec<(String, Bytes, u64)>;

#[derive(Clone, Copy)]
struct Live {
    held: Held,
    address: u64,
    size: Bytes,
}

impl<'a> Proof<'a> {
    /// None when the model of the allocator does not fail where the recorded one did: then it has nothing to say.
    pub(super) fn of(case: &'a Case<'a>, event: EventId) -> Option<Proof<'a>> {
        let run = case.run;
        let settings = run.trace.settings.clone().unwrap_or_default();
        let program = &run.program;
        let config = Config::of_recording(&settings, run.torch);
        // What the device had left says how much there was; where it was more than what was asked for, a limit
        // failed the request, of which only the failure itself is known.
        let recorded = run.device.events.get(event.index());
        let (asked, free) = (recorded.size, Bytes(recorded.address));
        let had = case.at_oom.filter(|_| free < asked).map(|it| it.reserved + free);
        let capacity = had.or(config.capacity).or(program.observed_limit);
        let config = Config { capacity, ..config };
        let failure = Failure::at(run.trace, run.index, &config, event)?;
        (!failure.fits_without(&[])).then_some(Proof { case, failure, program, config, asked })
    }

    /// Whether the request would have been served without the blocks that `finding` is about.
    pub(super) fn fits_without(&self, finding: &Finding) -> bool {
        let held: Vec<Held> = finding.blocks.iter().copied().map(Held::Made).collect();
        !held.is_empty() && self.failure.fits_without(&held)
    }

    /// The same run with expandable segments; none if it had them.
    pub(super) fn with_expandable_segments(&self) -> Option<WhatIf> {
        if self.config.expandable_segments {
            return None;
        }
        let config = Config { expandable_segments: true, ..self.config.clone() };
        Some(replay::what_if(self.program, &config))
    }

    /// The fewest blocks without which the request is served, by line, each of which is needed for that; and
    /// of as many, those of the fewest bytes that were found.
    pub(super) fn fewest(&self) -> Lines {
        let live = self.live();
        let mut best: Option<Vec<Live>> = self.largest(&live);
        for set in self.neighbours(&live).into_iter().chain(self.singles(&live)) {
            let rank = |it: &[Live]| (it.len(), it.iter().map(|it| it.size).sum::<Bytes>());
            let is_better = best.as_ref().is_none_or(|old| rank(&set) < rank(old));
            if is_better && self.serves(&set) {
                best = Some(set);
            }
        }
        let mut set = best.unwrap_or_default();
        // From the largest on: what is not needed stays.
        let mut n = 0;
        while n < set.len() && set.len() <= TRIES {
            let mut fewer = set.clone();
            fewer.remove(n);
            if self.serves(&fewer) {
                set = fewer;
            } else {
                n += 1;
            }
        }
        self.by_line(&set)
    }

    fn serves(&self, set: &[Live]) -> bool {
        let held: Vec<Held> = set.iter().map(|it| it.held).collect();
        self.failure.fits_without(&held)
    }

    fn live(&self) -> Vec<Live> {
        let replay = &self.case.run.replay;
        let live = self.failure.live().filter_map(|held| match held {
            Held::Made(block) => {
                let it = replay.blocks.get(block.index())?;
                Some(Live { held, address: it.address, size: it.size })
            }
            Held::Before(index) => {
                let it = replay.initial.get(usize::try_from(index).ok()?)?;
                Some(Live { held, address: it.address, size: it.size })
            }
        });
        live.collect()
    }

    /// As many of the largest as it takes.
    fn largest(&self, live: &[Live]) -> Option<Vec<Live>> {
        let mut sorted = live.to_vec();
        sorted.sort_by_key(|it| (Reverse(it.size), it.address));
        if !self.serves(&sorted) {
            return None;
        }
        let (mut low, mut high) = (1, sorted.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.serves(&sorted[..middle]) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        sorted.truncate(high);
        Some(sorted)
    }

    /// Blocks that lie side by side, with what is free around them as large as the request.
    fn neighbours(&self, live: &[Live]) -> Vec<Vec<Live>> {
        let mut sorted = live.to_vec();
        sorted.sort_by_key(|it| it.address);
        let starts = |at: usize| match at.checked_sub(1).and_then(|it| sorted.get(it)) {
            // Far away is another segment.
            Some(it) if gap(it, &sorted[at]) <= self.asked.0 => end(it),
            _ => sorted[at].address,
        };
        let ends = |at: usize| {
            let next = sorted.get(at + 1).filter(|it| gap(&sorted[at], it) <= self.asked.0);
            next.map_or(end(&sorted[at]), |it| it.address)
        };
        let mut windows: Vec<(usize, Bytes, usize)> = Vec::new();
        let mut last = 0;
        for first in 0..sorted.len() {
            last = last.max(first);
            while last + 1 < sorted.len() && ends(last).saturating_sub(starts(first)) < self.asked.0
            {
                last += 1;
            }
            if self.asked.0 <= ends(last).saturating_sub(starts(first)) {
                let bytes = sorted[first..=last].iter().map(|it| it.size).sum();
                windows.push((last + 1 - first, bytes, first));
            }
        }
        windows.sort_unstable();
        windows.into_iter().take(TRIES).map(|(n, _, at)| sorted[at..at + n].to_vec()).collect()
    }

    /// One alone, from the smallest that can be enough.
    fn singles(&self, live: &[Live]) -> Vec<Vec<Live>> {
        let mut sorted: Vec<Live> = live.to_vec();
        sorted.sort_by_key(|it| (it.size, it.address));
        let enough = sorted.partition_point(|it| it.size.0 < self.asked.0 / 2);
        sorted[enough..].iter().take(TRIES).map(|it| vec![*it]).collect()
    }

    fn by_line(&self, set: &[Live]) -> Lines {
        let mut lines: BTreeMap<String, (Bytes, u64)> = BTreeMap::new();
        for it in set {
            let (bytes, blocks) = lines.entry(self.name(it.held)).or_default();
            *bytes += it.size;
            *blocks += 1;
        }
        let mut res: Lines =
            lines.into_iter().map(|(at, (bytes, blocks))| (at, bytes, blocks)).collect();
        res.sort_by_key(|(at, bytes, _)| (Reverse(*bytes), at.clone()));
        res
    }

    /// What a person knows a block by.
    fn name(&self, held: Held) -> String {
        let Held::Made(block) = held else { return "allocated before the recording".to_owned() };
        let line = self.case.line(block).map(|it| place(&it));
        let what = category_name(self.case.evidence.category(block));
        match line {
            Some(line) => format!("{line}, {what}"),
            None => format!("made by autograd, {what}"),
        }
    }
}

fn end(it: &Live) -> u64 {
    it.address.saturating_add(it.size.0)
}

/// What lies between two blocks.
fn gap(low: &Live, high: &Live) -> u64 {
    high.address.saturating_sub(end(low))
}

/// Blocks of `finding` that are live after `event`.
pub(super) fn live_bytes(case: &Case<'_>, finding: &Finding, event: EventId) -> Bytes {
    let blocks: BTreeSet<BlockId> = finding.blocks.iter().copied().collect();
    let live = blocks.into_iter().map(|it| case.life(it)).filter(|it| it.is_live_after(event));
    live.map(|it| it.size).sum()
}
