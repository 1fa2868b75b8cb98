//! Memory that grows with the steps: what lives after each of them is more and more, to the end of what was seen.
//!
//! What ends is no growth. A cache that is full, a buffer of fixed length, the state of an optimizer rise and then stay,
//! so the last steps are what counts: the second half of them is cut into four, and the least that lives in each part has
//! to rise from part to part, at about one pace. What makes it rise has to be what earlier steps left; or one tensor that
//! is made anew, larger in each step. Batches of different sizes show neither.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use crate::{
    cards::Card,
    prediction::{
        Counted, DeviceRun, Seen, StepGrowth, StepPeaks,
        origins::{self, Origins},
        steps,
        timeline::Places,
    },
    recording::{CodeLine, EndReason, Recording},
    replay::{BlockId, BlockLife},
    trace::{Action, EventId, PoolId, StackId},
    units::Bytes,
};

/// Fewer steps than this show no growth.
const LEAST: usize = 8;
/// Parts of the second half that are compared.
const PARTS: usize = 4;
/// Less than this in a step is no reason to stop anybody: a million steps leave 16 GiB.
const LEAST_PER_STEP: Bytes = Bytes::kib(16);

/// How the run of one device grows, of which other processes hold `beside`; none if it does not, or if its script came to its end by itself: then all of it was
/// seen.
pub(super) fn of(run: &DeviceRun<'_>, card: &Card, beside: Bytes) -> Option<StepGrowth> {
    of_turns(run, card, beside)
        .or_else(|| of_steps(run, card, beside))
        .or_else(|| of_evaluations(run, card, beside))
}

/// Less than this, left by an evaluation or a turn, is a few numbers.
const LEAST_LEFT: Bytes = Bytes::mib(1);

/// Whether one of them left about as much as the other.
fn is_as_much(once: Bytes, again: Bytes) -> bool {
    LEAST_LEFT <= again && once.0 / 2 <= again.0 && again.0 / 2 <= once.0
}

/// What each turn of a loop around the steps leaves, each of which makes an optimizer, if two of them left about as much.
fn of_turns(run: &DeviceRun<'_>, card: &Card, beside: Bytes) -> Option<StepGrowth> {
    /// Turns that were seen, the last of them in part.
    const SEEN: u32 = 3;
    let end = run.recording.notes.end.as_ref()?;
    let (first, second) = end.turned_at.filter(|it| 0 < it.0 && it.0 < it.1)?;
    let curve = steps::curve(run.device, &run.replay, &run.timeline, run.oom);
    let steps: Vec<StepPeaks> = curve.steps.iter().filter(|it| !it.unfinished).copied().collect();
    let after = |step: u32| steps.iter().find(|it| it.step == step).map(|it| it.allocated_after);
    let (before, left) = (after(first)?, after(second)?);
    let now = steps.iter().filter(|it| second < it.step).map(|it| it.allocated_after).max()?;
    let (once, again) = (left.saturating_sub(before), now.saturating_sub(left));
    let is_over = end.ahead.turns.is_some_and(|it| it <= SEEN.into());
    if is_over || !is_as_much(once, again) {
        return None;
    }
    let needs = needs(run, &steps);
    let room = card.usable().saturating_sub(run.context(card) + run.other(card) + beside);
    let more = room.saturating_sub(needs).0.checked_div(again.0)?;
    Some(StepGrowth {
        per_step: again,
        every: 1,
        taken: again,
        at: line_of_what_is_left(run, first),
        seen: SEEN,
        needs,
        grown: once + again,
        runs_out_at: u64::from(SEEN) + more + 1,
        has_run_out: false,
        counted: Counted::Turns,
    })
}

/// What each evaluation leaves, if two of them left about as much, and the steps between them gave nothing back.
fn of_evaluations(run: &DeviceRun<'_>, card: &Card, beside: Bytes) -> Option<StepGrowth> {
    let later = run.recording.notes.end.as_ref()?.later?;
    let (first, second) = later.evaluated_at?;
    let curve = steps::curve(run.device, &run.replay, &run.timeline, run.oom);
    let after = |step: u32| {
        curve.steps.iter().find(|it| it.step == step && !it.unfinished).map(|it| it.allocated_after)
    };
    let (before, left) = (after(first.checked_sub(1)?)?, after(first)?);
    let (between, now) = (after(second.checked_sub(1)?)?, after(second)?);
    let (once, again) = (left.saturating_sub(before), now.saturating_sub(between));
    if !is_as_much(once, again) || between + Bytes(once.0 / 4) < left {
        return None;
    }
    let steps: Vec<StepPeaks> = curve.steps.iter().filter(|it| !it.unfinished).copied().collect();
    // What was collected may be joined: then it is there twice.
    let most = |step: u32| steps.iter().find(|it| it.step == step).map(|it| it.allocated);
    let (first_most, second_most) = (most(first)?, most(second)?);
    let taken = again.max(second_most.saturating_sub(first_most));
    let needs = needs(run, &steps).max(second_most);
    let room = card.usable().saturating_sub(run.context(card) + run.other(card) + beside);
    let more = room.saturating_sub(needs).0.checked_div(taken.0)?;
    Some(StepGrowth {
        per_step: again,
        every: 1,
        taken,
        at: line_of_what_is_left(run, first),
        seen: 2,
        needs,
        grown: once + again,
        runs_out_at: 2 + more + 1,
        has_run_out: false,
        counted: Counted::Evaluations,
    })
}

/// The line that made most of what is still there of the step `step`, from 1, and of the evaluation before it.
fn line_of_what_is_left(run: &DeviceRun<'_>, step: u32) -> Option<CodeLine> {
    let step = usize::try_from(step).ok()?.checked_sub(1)?;
    let origins = Origins::new(run.trace, run.device, (&run.replay, &run.timeline, &run.stacks));
    let mut lines: BTreeMap<CodeLine, Bytes> = BTreeMap::new();
    for life in made_in(run, step).filter(|it| it.free.is_none()) {
        let stack = origins.stack_at(life.alloc);
        if let Some(line) = origins::line_outside(run.trace, &run.stacks, stack) {
            *lines.entry(line).or_default() += life.size;
        }
    }
    lines.into_iter().max_by_key(|it| it.1).map(|it| it.0)
}

fn of_steps(run: &DeviceRun<'_>, card: &Card, beside: Bytes) -> Option<StepGrowth> {
    let end = run.recording.notes.end.as_ref();
    // Where epochs were ended early, a list that each of them clears was cleared too soon: what came before counts.
    let cut = end.and_then(|it| it.later).filter(|it| it.epochs_cut);
    if cut.is_none() && end.is_some_and(|it| it.why == EndReason::Exit) {
        return None;
    }
    let curve = steps::curve(run.device, &run.replay, &run.timeline, run.oom);
    let most = cut.map_or(u32::MAX, |it| it.steps_before);
    let is_counted = |it: &StepPeaks| !it.unfinished && it.step <= most;
    let steps: Vec<StepPeaks> = curve.steps.into_iter().filter(is_counted).collect();
    let last = steps.last()?;
    let mut after: Vec<u64> = steps.iter().map(|it| it.allocated_after.0).collect();
    after.truncate(before_what_is_given_back(&after));
    let half = after.len() / 2;
    let in_tensors = asked_for_after(run, &steps[..after.len()]);
    if after.len() < LEAST
        || !rises_in_each_part(&after[half..])
        || !has_not_stopped(&in_tensors[half..])
    {
        return of_stairs(run, &steps, &after, card, beside);
    }
    let left = Remains::of(run, half, after.len());
    let grown = after.last()?.saturating_sub(after[half]);
    let is_left = grown / 2 <= left.bytes.0;
    let is_joined = || {
        left.largest
            .is_some_and(|it| is_joined(run, (it, &left.newest), half..after.len(), Bytes(grown)))
    };
    if !(is_left || is_joined()) {
        return None;
    }
    let per_step = pace(&after[half..]);
    let (before, now) = (needs(run, &steps[..half]), needs(run, &steps));
    let between = (steps.len() - half) as u64;
    let taken = now.saturating_sub(before).0.checked_div(between)?.max(per_step);
    let room = card.usable().saturating_sub(run.context(card) + run.other(card) + beside);
    let more = room.saturating_sub(now).0.checked_div(taken)?;
    // The pool of a CUDA graph keeps what its tensors gave back.
    let has_graphs = run.trace.pools.iter().any(|it| *it != (0, 0));
    Some(StepGrowth {
        per_step: Bytes(if has_graphs { taken } else { per_step }),
        every: 1,
        taken: Bytes(taken),
        at: left.at,
        seen: last.step,
        needs: now,
        grown: Bytes(after.last()?.saturating_sub(after[..half].iter().copied().min()?))
            .max(Bytes(taken.saturating_mul(last.step.into()))),
        runs_out_at: u64::from(last.step) + more + 1,
        has_run_out: false,
        counted: run.counted(),
    })
}

/// What a script keeps every so many steps (a copy of its model, results of so many batches), if it did so four times and gave nothing back.
fn of_stairs(
    run: &DeviceRun<'_>,
    steps: &[StepPeaks],
    after: &[u64],
    card: &Card,
    beside: Bytes,
) -> Option<StepGrowth> {
    let Stairs { first, every, rise } = stairs(after)?;
    let left = Remains::of(run, first, after.len());
    let grown = Bytes(after.last()?.saturating_sub(after[first - 1]));
    if left.bytes.0 < grown.0 / 2 {
        return None;
    }
    let per_step = Bytes(rise.div_ceil(every.into()));
    let needs = needs(run, steps);
    let room = card.usable().saturating_sub(run.context(card) + run.other(card) + beside);
    let seen = steps.last()?.step;
    Some(StepGrowth {
        per_step,
        every,
        taken: per_step,
        at: left.at,
        seen,
        needs,
        grown,
        runs_out_at: u64::from(seen) + room.saturating_sub(needs).0.checked_div(per_step.0)? + 1,
        has_run_out: false,
        counted: run.counted(),
    })
}

/// Levels that rise by about as much after every so many steps.
#[derive(Debug, PartialEq, Eq)]
struct Stairs {
    /// Where it rose first, by its place among the levels.
    first: usize,
    /// How many levels lie between two rises.
    every: u32,
    /// By how much it rises.
    rise: u64,
}

/// Whether these levels are stairs: at least four rises that nothing takes back, all at the same distance and about as high. The first
/// steps do not count, in which much is made that stays.
fn stairs(after: &[u64]) -> Option<Stairs> {
    /// Rises.
    const FEWEST: usize = 4;
    // What lives from there on, at least.
    let mut floors: Vec<u64> = after.to_vec();
    for at in (1..floors.len()).rev() {
        floors[at - 1] = floors[at - 1].min(floors[at]);
    }
    // Of the last ones nobody knows whether they stay.
    let known = LEAST / 2..floors.len().saturating_sub(LEAST);
    let mut rises: Vec<(usize, u64)> = known.map(|at| (at, floors[at] - floors[at - 1])).collect();
    let highest = rises.iter().map(|it| it.1).max()?;
    // Batches of different sizes leave a little more or less.
    rises.retain(|it| LEAST_LEFT.0.max(highest / 4) <= it.1);
    let (first, rise) = *rises.first()?;
    let every = rises.get(1)?.0 - first;
    let is_even = rises.windows(2).all(|it| it[1].0 - it[0].0 == every);
    let is_as_high = rises.iter().all(|it| is_as_much(Bytes(rise), Bytes(it.1)));
    // Since the last one of all, too, as far as it stays.
    let quiet = floors.windows(2).rev().take_while(|it| it[1] - it[0] < LEAST_LEFT.0).count();
    let is_overdue = every + LEAST < floors.len() - rises.last()?.0 || every + LEAST <= quiet + 1;
    let are_stairs = FEWEST <= rises.len() && is_even && is_as_high && !is_overdue;
    are_stairs.then_some(Stairs { first, every: u32::try_from(every).ok()?, rise: highest })
}

/// The line that made most of what the steps of a recording left on a device; none if they left nothing. That
/// something grows is known from elsewhere: the recording may be of a few steps.
pub fn line_that_grows(recording: &Recording, device: u32) -> Option<CodeLine> {
    let run = DeviceRun::of(recording, usize::try_from(device).ok()?)?;
    let ends = &run.timeline.step_ends;
    // Steps before the oldest event of the ring all end at its beginning.
    let first = ends.partition_point(|it| *it == EventId(0)).max(1);
    let of = |first: usize| Remains::of(&run, first, ends.len());
    // Steps that were seen without stacks have the lines of others, and these need not have done the same.
    let places = Places::new(&run.replay, run.index, &recording.notes.stats);
    let seen = recording.notes.stacks.iter().rfind(|it| it.kept).map(|it| places.event(&it.place));
    let in_full = seen.map(|seen| ends.partition_point(|it| *it < seen));
    let in_full = in_full.filter(|it| first < *it && it + 3 < ends.len()).map(of);
    in_full.filter(|it| it.bytes != Bytes::ZERO).unwrap_or_else(|| of(first)).at
}

impl StepGrowth {
    /// How fast it is, in words: `16.0 MiB a step`, `80.0 MiB an evaluation`, `156 KiB every 10 steps`.
    pub fn pace(&self) -> String {
        let each = match self.counted {
            Counted::Turns => "a turn of the loop around the steps",
            Counted::Evaluations => "an evaluation",
            Counted::Steps => "a step",
            Counted::BackwardPasses => "a backward pass",
            Counted::ForwardPasses => "a forward pass",
        };
        match self.every {
            1 => format!("{} {each}", self.per_step),
            _ => format!("{} {}", self.at_a_time(), self.counted.when(self.every)),
        }
    }

    /// What was seen of it, and what that does not tell apart from it.
    pub fn seen_in_words(&self) -> String {
        let (times, when) = (self.counted.times(self.seen), self.counted.when(self.every));
        match (self.every, self.has_run_out) {
            (1, true) => {
                format!(
                    "after each of {times} that much more stayed allocated, until memory ran out"
                )
            }
            (1, false) => format!(
                "{times}; after each of the later ones that much more stayed allocated. A buffer that stops growing only after more {} looks the same",
                self.counted.limits()
            ),
            (_, true) => {
                format!("{times}; {when} that much more stayed allocated, until memory ran out")
            }
            (_, false) => format!("{times}; {when} that much more stayed allocated"),
        }
    }

    /// What stays at a time: after each step, or every so many.
    pub fn at_a_time(&self) -> Bytes {
        Bytes(self.per_step.0.saturating_mul(self.every.into()))
    }

    /// How many steps, or what it counts, the script comes to, if that is known.
    pub(super) fn in_all(&self, seen: Seen) -> Option<u64> {
        match self.counted {
            Counted::Evaluations => None,
            Counted::Turns => seen.ahead.turns,
            _ => seen.steps_in_all(),
        }
    }

    /// Whether a training is long enough to run out of it: this one, if the number of its steps is known, or any.
    pub(super) fn matters(&self, seen: Seen) -> bool {
        match self.in_all(seen) {
            // A quarter more steps than the script has: later steps may leave a little more than those seen.
            Some(all) if LEAST_PER_STEP <= self.per_step => self.runs_out_at <= all + all / 4,
            Some(all) => self.runs_out_at <= all,
            None => LEAST_PER_STEP <= self.per_step,
        }
    }

    /// What the steps that were not seen leave, of so many in all.
    pub(super) fn still_to_come(&self, in_all: u64) -> Bytes {
        let steps = in_all.saturating_sub(self.seen.into());
        Bytes(self.taken.0.saturating_mul(steps)).round_up_to(Bytes::mib(2))
    }

    /// The step at which it runs out where so much can be reserved.
    pub fn runs_out_with(&self, room: Bytes) -> u64 {
        let more = room.saturating_sub(self.needs).0 / self.taken.0.max(1);
        // Of a smaller card, some steps ago.
        let less = self.needs.saturating_sub(room).0.div_ceil(self.taken.0.max(1));
        (u64::from(self.seen) + more + 1).saturating_sub(less)
    }
}

/// What the device has to have at the end of these steps: segments that hold something, which the allocator cannot give
/// back, or what lived at most in the last few, if that is more. What is free in one piece it gives back before it runs out.
fn needs(run: &DeviceRun<'_>, steps: &[StepPeaks]) -> Bytes {
    let few = steps.len() / 16 + 1;
    let most = steps.iter().rev().take(few).map(|it| it.allocated).max().unwrap_or_default();
    let ends = &run.timeline.step_ends;
    let end = steps.len().checked_sub(1).and_then(|it| ends.get(it)).copied();
    let Some(end) = end else { return most };
    let mut segments: BTreeMap<u64, (Bytes, bool)> = BTreeMap::new();
    for (_, event) in run.device.events.iter().take_while(|(id, _)| *id < end) {
        match event.action {
            Action::SegmentAlloc => {
                segments.insert(event.address, (event.size, false));
            }
            Action::SegmentFree => {
                segments.remove(&event.address);
            }
            // Segments that grow give back each piece that is free.
            Action::SegmentMap | Action::SegmentUnmap => return most,
            _ => {}
        }
    }
    for life in run.replay.blocks.iter().filter(|it| it.alloc < end) {
        if life.free.is_none_or(|free| end <= free)
            && let Some((_, holds)) = segments.range_mut(..=life.address).next_back().map(|it| it.1)
        {
            *holds = true;
        }
    }
    // What is free in the pool of a CUDA graph, the allocator gives back when the graph goes.
    let of_graphs = run.device.segments.iter().filter(|it| it.pool != PoolId(0));
    let of_graphs: BTreeSet<u64> = of_graphs.map(|it| it.address).collect();
    let holds = |address: &u64, holds: bool| holds || of_graphs.contains(address);
    let held = segments.iter().filter(|(at, it)| holds(at, it.1)).map(|(_, it)| it.0);
    most.max(held.sum())
}

/// How many of these levels there are before the last rise, if earlier ones that were as high were given back: a session that is closed, a list that is
/// cleared after so many steps, objects that wait for the garbage collector. Such a rise shows no growth, and what remained after each of them may. All
/// levels, if the last rise is like none before.
fn before_what_is_given_back(levels: &[u64]) -> usize {
    /// Steps in which it rose before it fell: the results of one evaluation are there at once.
    const FEWEST: usize = 4;
    let mut given_back: Vec<u64> = Vec::new();
    let (mut begin, mut floor) = (0, levels.first().copied().unwrap_or(0));
    let (mut top, mut rises) = (floor, 0);
    for (at, &level) in levels.iter().enumerate() {
        // Of what it rose by, less than a quarter remains.
        let has_fallen = level <= floor + top.saturating_sub(floor) / 4;
        if top < level {
            (top, rises) = (level, rises + 1);
        } else if has_fallen {
            if FEWEST <= rises {
                given_back.push(top - floor);
                begin = at;
            }
            (floor, top, rises) = (level, level, 0);
        }
    }
    let highest = given_back.iter().copied().max().unwrap_or(0);
    // Once may be a warm-up; what was given back twice may take a little longer the next time.
    let as_high = if given_back.len() == 1 { highest } else { 2 * highest };
    if top - floor <= as_high && 0 < begin { begin + 1 } else { levels.len() }
}

/// Whether the least of each part is more than that of the part before, at about one pace.
pub(crate) fn rises_in_each_part(after: &[u64]) -> bool {
    let border = |part: usize| part * after.len() / PARTS;
    let floors: Vec<u64> = (0..PARTS)
        .filter_map(|it| after[border(it)..border(it + 1)].iter().copied().min())
        .collect();
    let rises: Vec<u64> = floors.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    let most = rises.iter().copied().max().unwrap_or(0);
    floors.len() == PARTS
        && 0 < most
        && rises.iter().all(|it| most / 3 <= *it)
        && has_not_stopped(after)
}

/// What tensors were asked for that live after each of these steps. The allocator's blocks are rounded, so of something that grows they rise
/// only now and then.
fn asked_for_after(run: &DeviceRun<'_>, steps: &[StepPeaks]) -> Vec<u64> {
    let ends = &run.timeline.step_ends;
    let mut changes = vec![0_i128; steps.len() + 1];
    for life in &run.replay.blocks {
        let from = ends.partition_point(|it| *it <= life.alloc);
        let until = life.free.map_or(usize::MAX, |free| ends.partition_point(|it| *it <= free));
        if let Some(it) = changes.get_mut(from).filter(|_| from < until) {
            *it += i128::from(life.requested.0);
        }
        if let Some(it) = changes.get_mut(until).filter(|_| from < until) {
            *it -= i128::from(life.requested.0);
        }
    }
    let levels = changes.iter().take(steps.len()).scan(0_i128, |level, change| {
        *level += change;
        Some(u64::try_from(*level).unwrap_or(0))
    });
    levels.collect()
}

/// Whether the last rise is less long ago than twice the time between two, for which the agent waits.
fn has_not_stopped(after: &[u64]) -> bool {
    let (mut most, mut last, mut longest) = (after.first().copied().unwrap_or(0), 0, 0);
    for (at, level) in after.iter().enumerate() {
        if most < *level {
            (longest, last, most) = (longest.max(at - last), at, *level);
        }
    }
    after.len() - 1 - last < 2 * longest
}

/// Whether what grew by `grown` in these steps is what the line of `largest`, and perhaps those of others that are `there`, make anew, larger each time:
/// a tensor that is joined with more and more. Batches that are sorted by their length make everything larger, and what a step makes first; of such a
/// step the first part is as ever.
fn is_joined(
    run: &DeviceRun<'_>,
    (largest, there): (BlockId, &[BlockId]),
    steps: Range<usize>,
    grown: Bytes,
) -> bool {
    /// The last steps are looked at: a validation stands at the beginning of one.
    const LAST: usize = 4;
    let stack = |life: &BlockLife| run.device.events.stack(life.alloc.index());
    let stack_of = |block: BlockId| stack(&run.replay.blocks[block.index()]);
    // By how much what a stack makes in a step rises. A line may be one of several layers: what it makes in a step counts. A
    // step may not reach it.
    let mut made: BTreeMap<StackId, Vec<Bytes>> =
        there.iter().map(|block| (stack_of(*block), Vec::new())).collect();
    for step in steps.clone() {
        let mut now: BTreeMap<StackId, Bytes> = BTreeMap::new();
        for life in made_in(run, step).filter(|it| made.contains_key(&stack(it))) {
            *now.entry(stack(life)).or_default() += life.requested;
        }
        for (stack, size) in now {
            made.entry(stack).or_default().push(size);
        }
    }
    let rise = |sizes: &Vec<Bytes>| {
        let rises = 1 + sizes.windows(2).filter(|it| it[0] < it[1]).count();
        let more = sizes.last()?.saturating_sub(*sizes.first()?);
        (4 * sizes.len() <= 5 * rises).then_some(more)
    };
    let of_largest = stack_of(largest);
    let is_larger_each_time = made.get(&of_largest).and_then(rise).is_some();
    let risen: Bytes = made.values().filter_map(rise).sum();
    if !is_larger_each_time || risen < Bytes(grown.0 / 2) {
        return false;
    }
    let of = |step: usize| -> Vec<Bytes> {
        let is_other = |life: &&BlockLife| made.get(&stack(life)).and_then(rise).is_none();
        let others = made_in(run, step).filter(is_other);
        others.map(|it| it.requested).collect()
    };
    let before = of(steps.start);
    steps.rev().take(LAST).any(|step| {
        let now = of(step);
        let same = before.iter().zip(&now).take_while(|it| it.0 == it.1).count();
        same == before.len() && same != 0 || 3 <= same && before.len() <= 8 * same
    })
}

/// The blocks that a step made, from 0, in their order.
fn made_in<'a>(run: &'a DeviceRun<'_>, step: usize) -> impl Iterator<Item = &'a BlockLife> {
    let ends = &run.timeline.step_ends;
    let begin = step.checked_sub(1).and_then(|it| ends.get(it)).copied().unwrap_or(EventId(0));
    let end = ends.get(step).copied().unwrap_or(EventId(u32::MAX));
    let blocks = &run.replay.blocks;
    let at = |event: EventId| blocks.partition_point(|it| it.alloc < event);
    blocks[at(begin)..at(end)].iter()
}

/// What one step adds: what most of them add, or the slope of the line that lies nearest.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a card are far below what a double counts exactly, and a slope below zero is none"
)]
fn pace(levels: &[u64]) -> u64 {
    let mut differences: Vec<u64> =
        levels.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    differences.sort_unstable();
    let middle = differences.get(differences.len() / 2).copied().unwrap_or(0);
    let same = differences.iter().filter(|it| **it == middle).count();
    // What is given back in between is no step's.
    let in_all =
        levels.last().zip(levels.first()).map_or(0, |(last, first)| last.saturating_sub(*first));
    let is_all = middle.saturating_mul(differences.len() as u64) / 2 <= in_all;
    if middle != 0 && differences.len() * 4 <= same * 5 && is_all {
        return middle;
    }
    let n = levels.len() as f64;
    let mean_at = (n - 1.0) / 2.0;
    let mean = levels.iter().map(|it| *it as f64).sum::<f64>() / n;
    let pairs =
        || levels.iter().enumerate().map(|(at, it)| (at as f64 - mean_at, *it as f64 - mean));
    let slope =
        pairs().map(|(at, it)| at * it).sum::<f64>() / pairs().map(|(at, _)| at * at).sum::<f64>();
    slope.max(0.0).round() as u64
}

/// What is left of what one line called.
#[derive(Default)]
struct Surviving {
    bytes: Bytes,
    stacks: BTreeSet<StackId>,
    newest: Option<BlockId>,
}

/// What the steps of the second half left, but for the newest: whose variables hold its values until the next ones come.
struct Remains {
    bytes: Bytes,
    /// The line that most of it was made at; where little was left, the line of the largest tensor there is.
    at: Option<CodeLine>,
    /// That tensor: of the newest steps.
    largest: Option<BlockId>,
    /// All that the newest steps left.
    newest: Vec<BlockId>,
}

impl Remains {
    /// Of the first `n` steps.
    fn of(run: &DeviceRun<'_>, half: usize, n: usize) -> Remains {
        let ends = run.timeline.step_ends.get(..n).unwrap_or_default();
        let (Some(first), Some(last)) =
            (half.checked_sub(1).and_then(|it| ends.get(it)), ends.last())
        else {
            return Remains { bytes: Bytes::ZERO, at: None, largest: None, newest: Vec::new() };
        };
        let newest = ends.len().checked_sub(3).and_then(|it| ends.get(it)).copied();
        let newest = newest.unwrap_or(EventId(0));
        let origins =
            Origins::new(run.trace, run.device, (&run.replay, &run.timeline, &run.stacks));
        let mut lines: BTreeMap<Option<CodeLine>, Surviving> = BTreeMap::new();
        let (mut bytes, mut largest, mut left_by_newest) = (Bytes::ZERO, None, Vec::new());
        for (block, life) in (0..).map(BlockId).zip(&run.replay.blocks) {
            let is_there = life.alloc < *last && life.free.is_none_or(|free| *last <= free);
            if !is_there || life.alloc < *first {
                continue;
            }
            if newest <= life.alloc {
                largest = largest.max(Some((life.size, block)));
                left_by_newest.push(block);
                continue;
            }
            bytes += life.size;
            let stack = origins.stack_of(block);
            let line = origins::line_outside(run.trace, &run.stacks, stack);
            let kept = lines.entry(line).or_default();
            kept.bytes += life.size;
            kept.stacks.insert(stack);
            kept.newest = Some(block);
        }
        let most = lines.into_iter().max_by_key(|(_, kept)| kept.bytes);
        let most = most.and_then(|(line, kept)| {
            kept.newest.and_then(|it| run.line_that_kept(&kept.stacks, it)).or(line)
        });
        let at = most.or_else(|| {
            let (_, block) = largest?;
            let stack = origins.stack_of(block);
            origins::line_outside(run.trace, &run.stacks, stack)
        });
        Remains { bytes, at, largest: largest.map(|(_, block)| block), newest: left_by_newest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_rises_and_what_is_full_does_not() {
        let leak: Vec<u64> = (0..15).map(|it| 100 + 7 * it).collect();
        let full: Vec<u64> = (0..15).map(|it| 100 + 7 * it.min(9)).collect();
        let stairs: Vec<u64> = (0..200).map(|it| 100 + 7 * (it / 8)).collect();
        let late: Vec<u64> = (0..200).map(|it| 100 + 7 * (it / 8).min(22)).collect();
        // It ended as soon as the agent had waited for twice the time between two rises.
        let waited: Vec<u64> = (0..193).map(|it| 100 + 7 * (it / 8).min(22)).collect();
        let noise: Vec<u64> = (0..200).map(|it| 100 + (it * 7919) % 31).collect();
        assert!(rises_in_each_part(&leak));
        for end in 160..200 {
            assert!(rises_in_each_part(&stairs[..end]), "{end}");
        }
        for it in [full, late, waited, noise, vec![5; 100], vec![0; 4]] {
            assert!(!rises_in_each_part(&it), "{it:?}");
        }
    }

    #[test]
    fn what_is_kept_every_so_many_steps_makes_stairs() {
        const MIB: u64 = 1 << 20;
        let copies: Vec<u64> =
            (0..237).map(|it| 900 * MIB + 74 * MIB * (it / 50) + it % 3 * 4 * MIB).collect();
        assert_eq!(stairs(&copies), Some(Stairs { first: 50, every: 50, rise: 74 * MIB }));
        let three = &copies[..190];
        let full: Vec<u64> = (0..300).map(|it| 74 * MIB * (it / 50).min(4)).collect();
        let small: Vec<u64> = (0..237).map(|it| 900 * MIB + 1024 * (it / 50)).collect();
        let given_back: Vec<u64> = (0..237).map(|it| 74 * MIB * (it / 50 % 3)).collect();
        let uneven: Vec<u64> = (0..237).map(|it| 74 * MIB * [0, 1, 1, 2, 3][it / 50]).collect();
        // What a first epoch keeps, and nothing in the eight steps since.
        let epoch: Vec<u64> = (0..32).map(|it| 16 * MIB * it.min(23)).collect();
        for levels in [three, &full, &small, &given_back, &uneven, &epoch] {
            assert_eq!(stairs(levels), None, "{levels:?}");
        }
    }

    #[test]
    fn what_was_given_back_twice_is_no_growth_and_what_stays_each_time_is() {
        const MIB: u64 = 1 << 20;
        let grows = |levels: &[u64]| {
            let levels = &levels[..before_what_is_given_back(levels)];
            rises_in_each_part(&levels[levels.len() / 2..]) || stairs(levels).is_some()
        };
        for length in [13_usize, 40, 100] {
            let in_session = |it: usize| 120 * MIB + (it % length) as u64 * MIB;
            let sessions: Vec<u64> = (0..900).map(in_session).collect();
            // Each of them leaves something.
            let leak = |it: usize| in_session(it) + (it / length) as u64 * 4 * MIB;
            let leaks: Vec<u64> = (0..900).map(leak).collect();
            // Each takes a little longer than the one before.
            let lengths = (0..9).map(|it| length + it);
            let longer: Vec<u64> =
                lengths.flat_map(|it| (0..it as u64).map(|it| it * MIB)).collect();
            for end in length + 1..900.min(longer.len()) {
                assert!(!grows(&sessions[..end]), "{length} {end}");
                assert!(end < 2 * length + 2 || !grows(&longer[..end]), "{length} {end}");
            }
            for end in (7 * length..900).step_by(7) {
                assert!(grows(&leaks[..end]), "{length} {end}");
            }
        }
        // A list is cleared once, and a leak begins.
        let late: Vec<u64> =
            (0..100).map(|it| if it < 30 { it * MIB } else { (it - 30) * MIB }).collect();
        assert!(grows(&late));
        // Batches of different sizes, and a leak.
        let noise: Vec<u64> = (0..400).map(|it| it * MIB + (it * 7919) % 31 * MIB).collect();
        assert!(grows(&noise));
        assert_eq!(before_what_is_given_back(&[5, 90, 5, 6, 7, 8, 9]), 7);
    }

    #[test]
    fn the_pace_is_what_most_steps_add_or_the_slope() {
        let even: Vec<u64> = (0..15).map(|it| 100 + 7 * it).collect();
        assert_eq!(pace(&even), 7);
        let stairs: Vec<u64> = (0..200).map(|it| 800 * (it / 8)).collect();
        assert!((99..=101).contains(&pace(&stairs)), "{}", pace(&stairs));
        // Sessions of 20 steps, each of which leaves 40.
        let sessions: Vec<u64> = (0..400).map(|it| it % 20 * 100 + it / 20 * 40).collect();
        assert!((1..=3).contains(&pace(&sessions)), "{}", pace(&sessions));
    }
}
