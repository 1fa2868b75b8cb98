//! Steps of different sizes: the largest input makes the peak.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    findings::{Case, Finding, Rule, Weight},
    prediction::{StepPeaks, stacks::Signs, timeline::Stage},
    trace::{EventId, StackId},
    units::Bytes,
};

pub(super) const RULE: Rule = Rule { code: ProblemCode::DynamicShapes, find };

/// Steps that say something about the others.
const LEAST: usize = 4;

fn find(case: &Case<'_>) -> Vec<Finding> {
    if let Some(failed) = failed(case) {
        return vec![failed];
    }
    let curve = case.curve();
    if curve.steps.len() < LEAST || case.growth.iter().any(|it| Bytes::mib(1) < it.bytes) {
        return Vec::new();
    }
    let before = case.window.bytes_before;
    let Some((largest, own)) = own_of_steps(&curve.steps).max_by_key(|(it, _)| it.allocated) else {
        return Vec::new();
    };
    let mut sizes: Vec<Bytes> = own_of_steps(&curve.steps).map(|(_, own)| own).collect();
    sizes.sort_unstable();
    let more = own.saturating_sub(sizes[sizes.len() / 2]);
    if !case.matters(more, 8, Bytes::mib(16)) {
        return Vec::new();
    }
    let most = largest.allocated + before;
    let usual = most.saturating_sub(more);
    let (stacks, varied) = varying_stacks(case);
    if stacks < 4 || varied * 2 < stacks {
        return Vec::new();
    }
    let title = format!(
        "inputs differ in size, and the largest makes the peak: step {} needs {most}, a usual step {usual}",
        largest.step
    );
    let mut res = RULE.finding(Weight::Chance, more, title);
    res.step = Some(largest.step);
    res.count = curve.steps.len() as u64;
    res.evidence.push(format!(
        "{varied} of {stacks} call sites of the forward pass requested different sizes in different steps"
    ));
    res.remedy = REMEDY.to_owned();
    vec![res]
}

/// Each step but the first, which has no optimizer state yet, with what it took beside what was there when it began: results and caches that stay
/// make later steps larger, and no input.
fn own_of_steps(steps: &[StepPeaks]) -> impl Iterator<Item = (&StepPeaks, Bytes)> {
    steps.windows(2).map(|it| (&it[1], it[1].allocated.saturating_sub(it[0].allocated_after)))
}

const REMEDY: &str = "sort batches by length or bound tokens per batch instead of sequences; truncate or bucket the longest; run the largest batch first, so that it fails at once";

/// The step in which memory ran out had a larger input than those before: its forward pass asked for more at most of its
/// places, and that is at least what was missing.
fn failed(case: &Case<'_>) -> Option<Finding> {
    let (run, event) = (case.run, case.run.oom?);
    let timeline = &run.timeline;
    let began = *timeline.step_ends.iter().rev().find(|it| **it <= event)?;
    // What is loaded for the step, and what its forward pass makes of it.
    let is_pass = |event: EventId| {
        matches!(
            timeline.stage(event),
            Stage::Forward | Stage::Loss | Stage::Between | Stage::AfterBackward
        )
    };
    let mut places: BTreeMap<StackId, Place> = BTreeMap::new();
    for life in run.replay.blocks.iter().filter(|it| it.alloc <= event && is_pass(it.alloc)) {
        let stack = run.device.events.stack(life.alloc.index());
        if stack == StackId::EMPTY {
            continue;
        }
        let place = places.entry(stack).or_default();
        if began <= life.alloc {
            place.now.get_or_insert(life.requested);
        } else {
            let step = timeline.steps_before(life.alloc) + 1;
            if place.last != step {
                place.last = step;
                place.largest = place.largest.max(life.requested);
                if place.before.len() < 64 {
                    place.before.push(life.requested);
                }
            }
        }
    }
    // The request that failed is one of them.
    let asked = run.device.events.get(event.index());
    if let Some(place) = places.get_mut(&asked.stack) {
        place.now.get_or_insert(asked.size);
    }
    let known: Vec<(Bytes, Bytes)> = places.values().filter_map(Place::both).collect();
    let sum = |it: &mut dyn Iterator<Item = &(Bytes, Bytes)>| -> Bytes { it.map(|it| it.1).sum() };
    let larger = sum(&mut known.iter().filter(|it| is_larger(it)));
    if known.len() < 2 || larger.0 < sum(&mut known.iter()).0 / 2 {
        return None;
    }
    if joins(case, began) && places.values().filter(|it| it.is_larger()).all(Place::is_next) {
        return None;
    }
    // What is live of this step, and how much of it a usual input would not have taken.
    let mut more = Bytes::ZERO;
    let mut own = Bytes::ZERO;
    for it in case.live_after(event) {
        let life = case.life(it.block);
        let stack = run.device.events.stack(life.alloc.index());
        if began <= life.alloc {
            own += life.size;
            if let Some((usual, now)) = places.get(&stack).and_then(Place::both) {
                let without =
                    u128::from(life.size.0) * u128::from(usual.0) / u128::from(now.0.max(1));
                let without = Bytes(u64::try_from(without).unwrap_or(u64::MAX));
                more += life.size.saturating_sub(without);
            }
        }
    }
    let mut sorted: Vec<_> = known.iter().filter(|it| is_larger(it)).copied().collect();
    sorted.sort_unstable_by_key(|(usual, now)| now.0 * 100 / usual.0.max(1));
    let (usual, now) = sorted[sorted.len() / 2];
    // Beside next to nothing, a factor is only a large number.
    let typical = match now.share_of(usual) {
        100.0.. => "more than 100".to_owned(),
        it => format!("{it:.1}"),
    };
    let step = timeline.steps_before(event) + 1;
    let title = format!(
        "the input of step {step} is larger than those before: most of its requests are {typical} times as large"
    );
    let mut res = RULE.finding(Weight::Chance, more.max(Bytes(own.0 / 2)), title);
    res.step = Some(step);
    res.count = u64::from(step);
    res.at = case
        .live_after(event)
        .iter()
        .filter(|it| began <= case.life(it.block).alloc && !case.signs(it.block).has(Signs::MODULE))
        .filter(|live| {
            places
                .get(&case.stack(live.block))
                .and_then(Place::both)
                .is_some_and(|it| is_larger(&it))
        })
        .min_by_key(|it| case.life(it.block).alloc)
        .and_then(|it| case.line(it.block));
    res.evidence.push(format!(
        "{} of {} call sites of the step requested more than in the steps before",
        sorted.len(),
        known.len()
    ));
    res.remedy = REMEDY.to_owned();
    Some(res)
}

/// Something is made longer in each step by joining: then so is what each step makes of it, and its input is as ever.
fn joins(case: &Case<'_>, began: EventId) -> bool {
    case.growth.iter().any(|it| it.larger_each_time && it.since < began)
}

fn is_larger((usual, now): &(Bytes, Bytes)) -> bool {
    usual.0 / 10 * 11 < now.0
}

/// What one place of the forward pass asked for, the first time in each step.
#[derive(Default)]
struct Place {
    last: u32,
    before: Vec<Bytes>,
    /// Of all steps before.
    largest: Bytes,
    now: Option<Bytes>,
}

impl Place {
    /// What is usual, and what was asked for now.
    fn both(&self) -> Option<(Bytes, Bytes)> {
        Some((self.usual()?, self.now?))
    }

    fn is_larger(&self) -> bool {
        self.both().as_ref().is_some_and(is_larger)
    }

    /// A little more than ever before, as in each step.
    fn is_next(&self) -> bool {
        self.now.is_some_and(|it| it.0 <= self.largest.0 / 4 * 5)
    }

    fn usual(&self) -> Option<Bytes> {
        let mut sorted = self.before.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// Places in the forward pass that are asked from in several steps, and how many of them vary in size.
fn varying_stacks(case: &Case<'_>) -> (usize, usize) {
    let run = case.run;
    // The first request of each step at each place.
    let mut sizes: BTreeMap<StackId, (u32, Vec<Bytes>)> = BTreeMap::new();
    let mut timeline = run.timeline.in_order();
    for life in &run.replay.blocks {
        if timeline.stage(life.alloc) != Stage::Forward {
            continue;
        }
        let stack = run.device.events.stack(life.alloc.index());
        if stack == StackId::EMPTY {
            continue;
        }
        let step = timeline.steps_before(life.alloc) + 1;
        let (last, sizes) = sizes.entry(stack).or_default();
        if *last != step && sizes.len() < 64 {
            *last = step;
            sizes.push(life.requested);
        }
    }
    let several = sizes.values().filter(|(_, it)| LEAST <= it.len());
    let varied = several.clone().filter(|(_, it)| it.iter().any(|size| *size != it[0])).count();
    (several.count(), varied)
}
