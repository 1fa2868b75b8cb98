//! What is there more and more of: blocks of one call stack that stay, some more in each step.
//!
//! A block stays when it is live at the moment that is looked at (the peak, and the end). Blocks of one
//! stack are a growth when they were made in at least three different steps, over at least half of the
//! run since the first of them, to its end; and when there were clearly fewer half way, which a buffer
//! of fixed length, a cache that is full or a value that is replaced does not show. Left out is what has
//! a name (parameters, gradients, states), what optimizers make, and what is made before training.
//!
//! Steps are the optimizer's; after the last one, and in programs without any, each forward pass counts.

mod bounded;
mod chains;
mod iterations;
mod kinds;
mod larger;
mod look;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    findings::{
        Case, Finding,
        accumulation::{
            bounded::drop_level,
            chains::chains,
            kinds::classify,
            larger::larger_each_time,
            look::{Group, LEAST, Look},
        },
        blocks,
        growth::{A_RUN, Growth, Kind},
        keepers::main_keeper,
    },
    prediction::timeline::Stage,
    recording::CodeLine,
    replay::{BlockId, BlockLife},
    trace::{EventId, StackId},
    units::Bytes,
};

/// One part in so many of the largest growth is not told.
const CRUMB: u64 = 512;

/// Everything that grows, at the peak and in the end; of the same thing the larger.
pub(super) fn growths(case: &Case<'_>) -> Vec<Growth> {
    let last = case.last();
    let mut res = Vec::new();
    let moments = BTreeSet::from([case.peak.event, case.peak_after_training.min(last), last]);
    let look = Look::new(case, &moments);
    for moment in moments {
        for growth in at(&look, moment) {
            let same = |it: &&mut Growth| it.kind == growth.kind && it.at == growth.at;
            match res.iter_mut().find(same) {
                Some(old) if old.bytes < growth.bytes => *old = growth,
                Some(_) => {}
                None => res.push(growth),
            }
        }
    }
    // What a graph holds is told once.
    let lines: Vec<Option<CodeLine>> =
        res.iter().filter(|it| it.kind.is_graph()).map(|it| it.at.clone()).collect();
    res.retain(|it| it.kind != Kind::Results || !lines.contains(&it.at));
    join_neighbours(case, &mut res);
    // Crumbs beside a large growth would only be read twice; what they are of is seen when that is mended.
    let most = res.iter().map(|it| it.bytes).max().unwrap_or_default();
    res.retain(|it| most.0 / CRUMB <= it.bytes.0);
    // Of one graph, the line is a matter of which block was largest.
    for kind in [Kind::Graph, Kind::GraphWithoutBackward, Kind::GraphAwaited] {
        let most = res.iter().filter(|it| it.kind == kind).map(|it| it.bytes).max();
        let mut seen = false;
        res.retain(|growth| {
            growth.kind != kind || Some(growth.bytes) == most && !std::mem::replace(&mut seen, true)
        });
    }
    res
}

/// What grows alike, step by step, is one thing if lines of one function made it, or one object holds it: a list of tuples,
/// keys and values.
fn join_neighbours(case: &Case<'_>, growths: &mut Vec<Growth>) {
    let mut res: Vec<(Growth, Option<(usize, usize)>)> = Vec::new();
    for it in growths.drain(..) {
        let keeper = main_keeper(case, &it.older);
        let alike = |(old, its_keeper): &&mut (Growth, Option<(usize, usize)>)| {
            let place =
                |it: &Growth| it.at.as_ref().map(|it| (it.file.clone(), it.function.clone()));
            old.kind == it.kind
                && old.seen_at == it.seen_at
                && (old.steps, old.larger_each_time) == (it.steps, it.larger_each_time)
                && (place(old) == place(&it) || keeper.is_some() && *its_keeper == keeper)
        };
        match res.iter_mut().find(alike) {
            Some((old, _)) => {
                if old.bytes < it.bytes {
                    old.at = it.at;
                }
                old.bytes += it.bytes;
                old.blocks += it.blocks;
                old.per_step += it.per_step;
                old.held += it.held;
                old.tensors += it.tensors;
                old.since = old.since.min(it.since);
                old.older.extend(it.older);
                old.counted.extend(it.counted);
            }
            None => res.push((it, keeper)),
        }
    }
    *growths = res.into_iter().map(|(it, _)| it).collect();
}

fn at(look: &Look<'_>, moment: EventId) -> Vec<Growth> {
    let Look { case, iterations, .. } = look;
    let mut groups = look.groups(moment);
    let (mut res, known) = larger_each_time(case, moment, &groups);
    res.extend(chains(look, moment, &groups, &known));
    res.retain(|it| !is_an_input(look, it, moment));
    groups.retain(|_, it| is_spread(it, look.now(it, moment)));
    // Where nothing counts as a step or a pass, only sizes can be compared.
    if groups.is_empty() || !iterations.is_known(case) {
        return res;
    }
    drop_level(look, moment, &mut groups);
    res.extend(classify(look, moment, groups));
    res
}

/// Whether nearly all that passes make has become larger with it: then it is their input, in batches that come by length, and
/// nothing is joined. Beside what is joined there is the part that comes new, as large as ever.
fn is_an_input(look: &Look<'_>, growth: &Growth, moment: EventId) -> bool {
    let Look { case, iterations, .. } = look;
    let (first, last) = (iterations.at(growth.since) + 1, iterations.at(moment).saturating_sub(1));
    if last <= first {
        return false;
    }
    // One step may be a short one by chance.
    let some = (last - first) / 8;
    let mut sizes: BTreeMap<StackId, (Bytes, Bytes)> = BTreeMap::new();
    let mut timeline = case.run.timeline.in_order();
    for life in case.run.replay.blocks.iter().filter(|it| it.alloc <= moment) {
        let of_pass = matches!(
            timeline.stage(life.alloc),
            Stage::Forward | Stage::Loss | Stage::Evaluation | Stage::Between | Stage::Setup
        );
        let step = iterations.at(life.alloc);
        let is_early = (first..=first + some).contains(&step);
        if !of_pass || !is_early && !(last - some..=last).contains(&step) {
            continue;
        }
        let stack = case.run.stacks.alike(case.run.device.events.stack(life.alloc.index()));
        let (then, now) = sizes.entry(stack).or_default();
        *(if is_early { then } else { now }) += life.requested;
    }
    sizes.retain(|stack, (then, now)| {
        *then != Bytes::ZERO && *now != Bytes::ZERO && case.line_outside(*stack) != growth.at
    });
    let all: Bytes = sizes.values().map(|(_, now)| *now).sum();
    // At a quarter of the pace at least: those that are compared are not the first and the last of all.
    let before = growth.held.saturating_sub(growth.bytes);
    let pace = u128::from(before.0) * 3 + u128::from(growth.held.0);
    let is_larger = |then: Bytes, now: Bytes| {
        u128::from(then.0) * pace <= 4 * u128::from(now.0) * u128::from(before.0)
    };
    let larger = sizes.values().filter(|(then, now)| is_larger(*then, *now));
    let larger: Bytes = larger.map(|(_, now)| *now).sum();
    all != Bytes::ZERO && all.0 / 50 * 49 <= larger.0
}

/// Made in enough steps, over enough of the run, to its end.
fn is_spread(group: &Group, now: u32) -> bool {
    let steps: BTreeSet<u32> = group.kept.iter().map(|(step, _)| *step).collect();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return false };
    let run = now - first;
    LEAST <= steps.len() && run <= (last - first) * 2 && now - last <= (run / 3).max(1)
}

impl Growth {
    /// Whether the program gives all of it back itself: a list that is emptied at the end of an epoch or an evaluation. Of one that the end of
    /// the run has cut, whether it did so in the evaluation before.
    pub(crate) fn is_given_back(&self, case: &Case<'_>) -> bool {
        let over = case.evidence.over();
        let was_given_back = |it: &BlockId| case.life(*it).free.is_some_and(|free| free < over);
        case.run.oom.is_none()
            && (self.older.iter().all(was_given_back) || self.was_given_back_before(case))
    }

    fn was_given_back_before(&self, case: &Case<'_>) -> bool {
        let made = |it: &BlockId| case.life(*it).alloc;
        let Some(first) = self.older.iter().map(made).min() else { return false };
        let timeline = &case.run.timeline;
        let is_of_one =
            |it: &BlockId| timeline.steps_before(made(it)) == timeline.steps_before(first);
        let evaluates = |it: &BlockId| case.stage(*it) == Stage::Evaluation;
        if !self.older.iter().all(|it| is_of_one(it) && evaluates(it)) {
            return false;
        }
        let stacks: BTreeSet<StackId> = self.older.iter().map(|it| case.stack(*it)).collect();
        let blocks = (0..).map(BlockId).zip(&case.run.replay.blocks);
        let before: Vec<&BlockLife> = blocks
            .take_while(|(_, life)| life.alloc < first)
            .filter(|(it, _)| evaluates(it) && !is_of_one(it) && stacks.contains(&case.stack(*it)))
            .map(|(_, life)| life)
            .collect();
        2 <= before.len() && before.iter().all(|it| it.free.is_some_and(|free| free <= first))
    }

    /// What all growths have to say.
    pub(crate) fn tell(&self, case: &Case<'_>, finding: &mut Finding) {
        finding.show(self.counted.clone());
        finding.blocks.clone_from(&self.older);
        finding.per_step = self.per_step;
        finding.at.clone_from(&self.at);
        finding.step = case.step(self.since).or(Some(1).filter(|_| self.steps != 0));
        let counted: Bytes = self.counted.iter().map(|it| case.life(*it).size).sum();
        if !self.larger_each_time {
            finding.evidence.push(format!(
                "{} from {} of {} {} are still live: {} a {}, {} in all",
                blocks(self.counted.len()),
                self.steps,
                self.of,
                self.steps_are.several(),
                self.per_step,
                self.steps_are.one(),
                counted
            ));
        }
        if !self.larger_each_time && self.per_step < Bytes::mib(1) {
            // Each tenth step, perhaps.
            let is_rare = self.steps * 2 < self.of;
            let often = if is_rare { A_RUN * self.steps / self.of } else { A_RUN };
            finding.evidence.push(format!(
                "that is {} in {A_RUN} {}",
                Bytes(self.per_step.0.saturating_mul(often)),
                self.steps_are.several()
            ));
        }
        let at_peak = self.seen_at == case.peak.event;
        let share = self.bytes.share_of(case.peak.bytes) * 100.0;
        let when = if at_peak { "at the peak" } else { "at the end" };
        let share = if share < 0.5 { "<1".to_owned() } else { format!("{share:.0}") };
        finding.evidence.push(format!("{share} % of the peak, measured {when}"));
    }
}
