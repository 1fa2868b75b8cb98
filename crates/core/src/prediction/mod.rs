//! What a run on the phantom says about the real thing: how much memory, for what, where in the
//! code, on which cards. Everything that a view shows is computed here; no word of it is printed
//! here.

mod answer;
pub(crate) mod categories;
pub(crate) mod device_run;
mod facts;
mod note;
mod notes;
pub(crate) mod origins;
mod other_end;
mod safe;
pub(crate) mod stacks;
pub(crate) mod steps;
pub(crate) mod timeline;
mod tuning;
mod verdict;

pub use answer::{
    CardFit, Carries, Category, CategoryShare, LineShare, ModuleShare, Moment, OomPlace, Origin,
    Outcome, Peaks, Prediction, Rank, StepPeaks, Verdict,
};
pub use facts::{RunFacts, ScriptExit};
pub use note::Note;
pub use other_end::{OtherEnd, found_nothing};
pub use safe::{Unknowns, allowance_for_addresses, safe_bytes};
pub use tuning::{Tuned, Tuning, tunings};

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    cards::Card,
    prediction::{device_run::DeviceRun, origins::Live},
    recording::Recording,
    units::Bytes,
};

/// Reads the recordings of one run on `card` as a prediction.
pub fn predict(recordings: &[Recording], card: &Card, facts: RunFacts) -> Prediction {
    let mut runs: Vec<DeviceRun<'_>> = recordings.iter().flat_map(DeviceRun::all).collect();
    runs.sort_by_key(|it| (Reverse(it.peaks(card).device), it.recording.pid, it.index));
    let outcome = verdict::outcome(recordings, &runs, card, &facts);
    let oom = verdict::oom(recordings, &runs).filter(|_| outcome == Outcome::OutOfMemory);
    let ranks = runs.iter().map(|it| it.rank(card)).collect();
    let mut notes = notes::notes(recordings, &runs, card, &facts, outcome);
    let exception = recordings.iter().find_map(|it| it.notes.end.as_ref()?.exception.clone());
    let end = |it: &Recording| it.notes.end.clone().unwrap_or_default();
    let Some(run) = runs.first() else {
        let nothing = Peaks { device: card.context, ..Peaks::default() };
        return Prediction {
            card: card.clone(),
            outcome,
            max: facts.max,
            peak: nothing,
            first_step: None,
            first_step_facts: None,
            steady_state: None,
            others: Vec::new(),
            context: card.context,
            other: Bytes::ZERO,
            safe: nothing.device,
            steps_seen: recordings.iter().map(|it| end(it).steps).max().unwrap_or(0),
            steady: false,
            categories: vec![CategoryShare {
                category: Category::Context,
                bytes: card.context,
                blocks: 0,
            }],
            peak_moment: None,
            top_lines: Vec::new(),
            top_modules: Vec::new(),
            steps: Vec::new(),
            oom,
            cards: Vec::new(),
            ranks,
            notes,
            exception,
            exit: facts.exit,
            seconds: facts.seconds,
        };
    };
    let peak = run.peaks(card);
    let context = run.context(card);
    let other = run.other();
    let evidence = run.evidence();
    let live = run.live_at_peak(&evidence);
    let categories = categories_at_peak(&live, peak, other, context);
    let unknowns = Unknowns::of(run, card, evidence.largest_scratch());
    let beside = run.beside(recordings, card);
    let safe = safe_bytes(peak, &unknowns) + beside;
    let lines =
        origins::by_line(run.trace, run.device, (&run.replay, &run.timeline, &run.stacks), &live);
    let with_card = |it: steps::Highest| Peaks {
        allocated: it.allocated,
        reserved: it.reserved,
        device: it.reserved + other + context,
    };
    let curve = steps::curve(run.device, &run.replay, &run.timeline, run.oom);
    let has_peak = peak.allocated != Bytes::ZERO;
    let peak_event = run.replay.peak_allocated.event;
    notes.extend(notes::about_categories(&categories, peak));
    Prediction {
        card: card.clone(),
        outcome,
        max: facts.max,
        peak,
        first_step: curve.first.map(with_card),
        first_step_facts: run.recording.largest_first_step().cloned(),
        steady_state: curve.later.map(with_card),
        others: Vec::new(),
        context,
        other,
        safe,
        steps_seen: run.steps_seen(),
        steady: end(run.recording).steady,
        categories,
        peak_moment: has_peak.then(|| run.moment(peak_event)),
        top_lines: lines,
        top_modules: origins::by_module(run.trace, run.device, &run.replay, &evidence, &live),
        steps: curve.steps,
        cards: verdict::cards(
            card,
            (peak, evidence.allocated_without_scratch()),
            other + beside,
            (outcome, oom.as_ref()),
            &run.recording.notes.architectures,
        ),
        oom,
        ranks,
        notes,
        exception,
        exit: facts.exit,
        seconds: facts.seconds,
    }
}

/// Every byte of the process, once.
fn categories_at_peak(
    live: &[Live],
    peak: Peaks,
    other: Bytes,
    context: Bytes,
) -> Vec<CategoryShare> {
    let mut sums: BTreeMap<Category, (Bytes, u64)> = BTreeMap::new();
    for it in live {
        let (bytes, blocks) = sums.entry(it.category).or_default();
        *bytes += it.size;
        *blocks += 1;
    }
    for (category, bytes) in [
        (Category::Slack, peak.reserved.saturating_sub(peak.allocated)),
        (Category::Other, other),
        (Category::Context, context),
    ] {
        sums.insert(category, (bytes, 0));
    }
    let mut res: Vec<CategoryShare> = sums
        .into_iter()
        .map(|(category, (bytes, blocks))| CategoryShare { category, bytes, blocks })
        .filter(|it| it.bytes != Bytes::ZERO)
        .collect();
    // The program's own first, then what no line of it can change.
    let is_own = |it: &CategoryShare| it.category < Category::Slack;
    res.sort_by_key(|it| (!is_own(it), Reverse(it.bytes), it.category));
    res
}

impl Prediction {
    /// Takes in what the same script did at the other end: whatever took more decides.
    pub fn cover(&mut self, end: OtherEnd, other: &Prediction) {
        match other.outcome {
            Outcome::ScriptFailed => return,
            Outcome::OutOfMemory => {
                self.outcome = Outcome::OutOfMemory;
                self.oom.clone_from(&other.oom);
            }
            Outcome::Fits => {}
        }
        self.others.push((end, other.peak));
        self.safe = self.safe.max(other.safe);
        let (this, other) = (self.peak.device, other.peak.device);
        if this != other {
            self.notes.push(Note::OtherEnd { end, this, other });
        }
    }
}
