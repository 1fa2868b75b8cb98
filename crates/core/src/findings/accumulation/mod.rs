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
mod iterations;
mod kinds;
mod larger;
mod look;

use std::collections::BTreeSet;

use crate::{
    findings::{
        Case, Finding,
        accumulation::{
            bounded::drop_level,
            kinds::{A_RUN, classify},
            larger::larger_each_time,
            look::{Group, LEAST, Look},
        },
        growth::{Growth, Kind},
    },
    recording::CodeLine,
    trace::EventId,
    units::Bytes,
};

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
    let is_graph = |it: &Growth| matches!(it.kind, Kind::Graph | Kind::GraphWithoutBackward);
    let lines: Vec<Option<CodeLine>> =
        res.iter().filter(|it| is_graph(it)).map(|it| it.at.clone()).collect();
    res.retain(|it| it.kind != Kind::Results || !lines.contains(&it.at));
    join_neighbours(&mut res);
    // Of one graph, the line is a matter of which block was largest.
    for kind in [Kind::Graph, Kind::GraphWithoutBackward] {
        let most = res.iter().filter(|it| it.kind == kind).map(|it| it.bytes).max();
        let mut seen = false;
        res.retain(|it| {
            it.kind != kind || Some(it.bytes) == most && !std::mem::replace(&mut seen, true)
        });
    }
    res
}

/// Lines of one function that grow alike, step by step, are one thing: a list of tuples, keys and values.
fn join_neighbours(growths: &mut Vec<Growth>) {
    let mut res: Vec<Growth> = Vec::new();
    for it in growths.drain(..) {
        let alike = |old: &&mut Growth| {
            let place =
                |it: &Growth| it.at.as_ref().map(|it| (it.file.clone(), it.function.clone()));
            old.kind == it.kind
                && old.seen_at == it.seen_at
                && (old.steps, old.larger_each_time) == (it.steps, it.larger_each_time)
                && place(old) == place(&it)
        };
        match res.iter_mut().find(alike) {
            Some(old) => {
                if old.bytes < it.bytes {
                    old.at = it.at;
                }
                old.bytes += it.bytes;
                old.blocks += it.blocks;
                old.per_step += it.per_step;
                old.held += it.held;
                old.since = old.since.min(it.since);
                old.older.extend(it.older);
            }
            None => res.push(it),
        }
    }
    *growths = res;
}

fn at(look: &Look<'_>, moment: EventId) -> Vec<Growth> {
    let Look { case, iterations, .. } = look;
    let mut groups = look.groups(moment);
    let mut res: Vec<Growth> = larger_each_time(case, moment, &groups);
    groups.retain(|_, it| is_spread(it, iterations.at(moment)));
    // Where nothing counts as a step or a pass, only sizes can be compared.
    if groups.is_empty() || !iterations.is_known(case) {
        return res;
    }
    drop_level(look, moment, &mut groups);
    res.extend(classify(look, moment, groups));
    res
}

/// Made in enough steps, over enough of the run, to its end.
fn is_spread(group: &Group, now: u32) -> bool {
    let steps: BTreeSet<u32> = group.kept.iter().map(|(step, _)| *step).collect();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return false };
    let run = now - first;
    LEAST <= steps.len() && run <= (last - first) * 2 && now - last <= (run / 3).max(1)
}

impl Growth {
    /// What all growths have to say.
    pub(crate) fn tell(&self, case: &Case<'_>, finding: &mut Finding) {
        finding.count = self.blocks;
        finding.blocks.clone_from(&self.older);
        finding.at.clone_from(&self.at);
        finding.step = case.step(self.since).or(Some(1).filter(|_| self.steps != 0));
        let what = if case.run.timeline.step_ends.len() < LEAST { "passes" } else { "steps" };
        if !self.larger_each_time {
            finding.evidence.push(format!(
                "{} blocks from {} of {} {what} are live, {} a step; {} altogether",
                self.blocks, self.steps, self.of, self.per_step, self.held
            ));
        }
        if !self.larger_each_time && self.per_step < Bytes::mib(1) {
            finding.evidence.push(format!(
                "that is {} in {A_RUN} steps",
                Bytes(self.per_step.0.saturating_mul(A_RUN))
            ));
        }
        let at_peak = self.seen_at == case.peak.event;
        let share = self.bytes.share_of(case.peak.bytes) * 100.0;
        let when = if at_peak { "at the peak" } else { "at the end" };
        finding.evidence.push(format!("{share:.0} % of the peak, seen {when}"));
    }
}
