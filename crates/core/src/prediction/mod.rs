//! What a run on the phantom says about the real thing: how much memory, for what, where in the
//! code, on which cards. Everything that a view shows is computed here; no word of it is printed
//! here.

mod answer;
mod between;
pub(crate) mod categories;
pub(crate) mod device_run;
mod evaluation;
mod facts;
mod growth;
mod inquiry;
mod note;
mod notes;
pub(crate) mod origins;
mod other_end;
mod phases;
mod reached;
mod safe;
mod seen;
mod serving;
mod smallest;
pub(crate) mod stacks;
pub(crate) mod steps;
pub(crate) mod timeline;
mod tuning;
mod verdict;
mod writes;

pub use answer::{
    CardFit, Carries, Category, CategoryShare, Doubt, EvaluationPeak, Host, LineShare, ModuleShare,
    Moment, OomPlace, Origin, Outcome, Peaks, PhasePeak, Predicted, Prediction, Rank, RunPhase,
    RunsAhead, SmallestRun, StepGrowth, StepPeaks, ToCome, Verdict, purpose,
};
use between::LITTLE;
pub use between::{BetweenEnds, between_ends, may_fit};
pub use facts::{RunFacts, ScriptExit};
pub use growth::line_that_grows;
pub(crate) use growth::rises_in_each_part;
pub use inquiry::{Inquiry, Interrupted, Job, Observed, Wanted};
pub use note::{Note, RanksSeen};
pub use other_end::{OtherEnd, found_nothing};
pub use safe::{Unknowns, allowance_for_addresses, safe_bytes};
pub use seen::{Counted, Covers, Seen};
pub use serving::{Elsewhere, Serving, Users, hundredths, share_of};
pub use tuning::{Tuned, Tuning, tunings};
pub use writes::{Writes, WrittenFile};

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    cards::Card,
    prediction::{categories::Evidence, device_run::DeviceRun, origins::Live},
    recording::Recording,
    trace::EventId,
    units::Bytes,
};

/// The devices that a run used, worked out once: for a prediction, and for what explains it.
pub struct Runs<'a> {
    recordings: &'a [Recording],
    /// The one that took most first.
    pub(crate) runs: Vec<DeviceRun<'a>>,
    card: Card,
}

/// Reads the recordings of one run on `card` as a prediction.
pub fn predict(recordings: &[Recording], card: &Card, facts: RunFacts) -> Prediction {
    Runs::of(recordings, card).predict(facts)
}

impl<'a> Runs<'a> {
    /// Those of the recordings of one run on `card`.
    pub fn of(recordings: &'a [Recording], card: &Card) -> Runs<'a> {
        let mut runs: Vec<DeviceRun<'_>> = recordings.iter().flat_map(DeviceRun::all).collect();
        runs.sort_by_key(|it| {
            let held = it.rank(recordings, card).peak.device;
            (Reverse(held), it.recording.pid, it.index)
        });
        Runs { recordings, runs, card: card.clone() }
    }

    /// What they say about the real thing.
    pub fn predict(&self, facts: RunFacts) -> Prediction {
        let judged = self.judge(&facts);
        let still_to_come = judged.still_to_come;
        let unused = self.of_no_device(facts, judged);
        Prediction::of(match self.runs.first() {
            Some(run) => self.of_devices(run, still_to_come, unused),
            None => unused,
        })
    }

    /// How the run ended, and what grows in it.
    fn judge(&self, facts: &RunFacts) -> Judged {
        let Runs { recordings, runs, card } = self;
        let growths =
            || runs.iter().filter_map(|it| growth::of(it, card, it.beside(recordings, card)));
        let seen_by_first =
            runs.first().map(|it| verdict::seen(recordings, it)).unwrap_or_default();
        let matters = |it: &StepGrowth| it.matters(seen_by_first);
        let mut growth = growths().find(matters);
        let oom = verdict::oom(recordings, runs);
        let outcome =
            verdict::outcome(recordings, runs, (growth.as_ref(), oom.as_ref()), card, facts);
        let oom = oom.filter(|_| matches!(outcome, Outcome::OutOfMemory | Outcome::Grows));
        if let Some((it, oom)) = growth.as_mut().zip(oom.as_ref()) {
            let step = oom.step.max(it.seen + 1);
            (it.runs_out_at, it.has_run_out) = (u64::from(step), true);
        }
        let is_slow = |it: &StepGrowth| !matters(it) && it.per_step != Bytes::ZERO;
        let slow = growths().find(is_slow).filter(|_| outcome == Outcome::Fits);
        let in_all = slow.as_ref().and_then(|it| it.in_all(seen_by_first));
        let still_to_come = slow.as_ref().zip(in_all).map(|(it, all)| it.still_to_come(all));
        let is_placed = |it: &DeviceRun<'_>| between::depends_on_addresses(it, recordings, card);
        Judged {
            outcome,
            oom,
            growth: growth.filter(|_| outcome == Outcome::Grows),
            grows_slowly: slow.map(|growth| Note::GrowsSlowly {
                at_a_time: growth.at_a_time(),
                every: growth.every,
                counted: growth.counted,
                at: growth.at,
                of: in_all.zip(still_to_come),
            }),
            still_to_come: still_to_come.unwrap_or_default(),
            is_in_doubt: outcome == Outcome::Fits && runs.iter().any(is_placed),
        }
    }

    /// All that is known without looking at what a device held: the whole prediction of a script that used none.
    fn of_no_device(&self, facts: RunFacts, judged: Judged) -> Predicted {
        let Runs { recordings, runs, card } = self;
        let mut notes = notes::notes(recordings, runs, card, &facts, judged.outcome);
        notes.extend(judged.grows_slowly);
        let ends = || recordings.iter().filter_map(|it| it.notes.end.as_ref());
        let nothing = Peaks { device: card.context, ..Peaks::default() };
        Predicted {
            card: card.clone(),
            outcome: judged.outcome,
            max: facts.max,
            peak: nothing,
            beside: Bytes::ZERO,
            growth: judged.growth,
            first_step: None,
            first_step_facts: None,
            reserved_at: None,
            steady_state: None,
            others: Vec::new(),
            early: None,
            runs_out_at: None,
            doubt: judged.is_in_doubt.then_some(Doubt::Addresses),
            context: card.context,
            other: Bytes::ZERO,
            with_allowance: nothing.device,
            seen: Seen {
                steps: ends().map(|it| it.steps).max().unwrap_or(0),
                whole: true,
                ..Seen::default()
            },
            awaited: None,
            cut_loop: None,
            after_loops: None,
            stage: None,
            ahead: None,
            steady: false,
            phases: Vec::new(),
            deciding_phase: None,
            categories: vec![CategoryShare {
                category: Category::Context,
                bytes: card.context,
                blocks: 0,
            }],
            peak_moment: None,
            evaluation: None,
            shown_moment: None,
            shown: nothing.device,
            top_lines: Vec::new(),
            lines: Vec::new(),
            top_modules: Vec::new(),
            steps: Vec::new(),
            oom: judged.oom,
            cards: Vec::new(),
            smallest: None,
            larger: None,
            ranks: runs.iter().map(|it| it.rank(recordings, card)).collect(),
            lacked: recordings.iter().map(Recording::lacked).max().unwrap_or_default(),
            world: recordings.iter().filter_map(|it| it.notes.begin.as_ref()?.world_size).max(),
            serving: Serving::of(
                recordings,
                card,
                runs.first().map_or(Bytes::ZERO, |it| it.peaks(card).device),
            ),
            notes,
            writes: None,
            reached: None,
            host: None,
            exception: ends().find_map(|it| it.exception.clone()),
            exit: facts.exit,
            seconds: facts.seconds,
        }
    }

    /// With what the devices held: `run` is the one that took most, and `still_to_come` what grows after the steps that were seen.
    fn of_devices(
        &self,
        run: &DeviceRun<'_>,
        still_to_come: Bytes,
        unused: Predicted,
    ) -> Predicted {
        let Runs { recordings, runs, card } = self;
        let (oom, growth) = (&unused.oom, &unused.growth);
        let peak = run.peaks(card);
        let context = run.context(card);
        let other = run.other(card);
        let evidence = run.evidence();
        let unknowns = Unknowns::of(run, card, evidence.largest_scratch());
        // What other processes hold of the device meanwhile.
        let beside = run.beside(recordings, card);
        let alone = safe_bytes(peak, &unknowns);
        let allowance = alone.saturating_sub(peak.device);
        let with_allowance = alone + beside + still_to_come;
        let with_card = |highest: steps::Highest| Peaks {
            allocated: highest.allocated,
            reserved: highest.reserved,
            device: highest.reserved + other + context,
        };
        let curve = steps::curve(run.device, &run.replay, &run.timeline, run.oom);
        let seen = verdict::seen(recordings, run);
        let end = run.recording.notes.end.clone().unwrap_or_default();
        let has_peak = peak.allocated != Bytes::ZERO;
        let peak_event = run.replay.peak_allocated.event;
        // Of a run that died the moment counts in which it did, on the device that was full.
        let died = |it: &&DeviceRun<'_>| oom.is_some() && it.oom.is_some();
        let shown_run = runs.iter().find(died).unwrap_or(run);
        let died_at = shown_run.oom.filter(|_| oom.is_some());
        let shown = if std::ptr::eq(shown_run, run) {
            Shown::of(run, &evidence, card, died_at)
        } else {
            Shown::of(shown_run, &shown_run.evidence(), card, died_at)
        };
        // What a script took that asked how large the card is says nothing of another.
        let cards = match notes::asked_size(recordings) {
            Some(_) => Vec::new(),
            None => verdict::cards(
                card,
                (peak, evidence.allocated_without_scratch(), allowance),
                other + beside + still_to_come,
                (unused.outcome, oom.as_ref(), growth.as_ref()),
                &run.recording.notes.architectures,
                run.own_limit(),
            ),
        };
        let (phases, deciding_phase) = phases::peaks(shown_run, other + context);
        let doubts = notes::about_categories(&shown.categories, shown.peaks);
        Predicted {
            peak,
            beside,
            first_step: curve.first.map(with_card),
            first_step_facts: run.recording.largest_first_step().cloned(),
            reserved_at: has_peak.then(|| run.line_at(run.replay.peak_reserved.event)).flatten(),
            steady_state: curve.later.map(with_card),
            context,
            other,
            with_allowance,
            seen,
            awaited: end.awaited,
            cut_loop: end.cut_loop.filter(|it| {
                let unknown = with_allowance.saturating_sub(peak.device + beside);
                it.may_exceed(peak.allocated + unknown)
            }),
            stage: end.stage.filter(|_| !seen.ended),
            after_loops: end.after_loops.filter(|_| !seen.ended),
            ahead: runs_ahead(run),
            steady: end.steady,
            phases,
            deciding_phase,
            evaluation: evaluation::largest(run),
            peak_moment: has_peak.then(|| run.moment(peak_event)),
            shown_moment: died_at
                .map(|it| match oom {
                    // The same that the verdict says.
                    Some(oom) => Moment { step: oom.step, phase: oom.phase },
                    None => shown_run.moment(it),
                })
                .or_else(|| has_peak.then(|| run.moment(peak_event))),
            shown: shown.peaks.device,
            categories: shown.categories,
            top_lines: shown.lines.iter().take(origins::SHOWN).cloned().collect(),
            lines: shown.lines,
            top_modules: shown.modules,
            steps: curve.steps,
            cards,
            notes: unused.notes.iter().cloned().chain(doubts).collect(),
            ..unused
        }
    }
}

/// How a run ended, and what grows in it.
struct Judged {
    outcome: Outcome,
    /// Where memory ran out, if that is the outcome.
    oom: Option<OomPlace>,
    /// What grows so much that it is the outcome.
    growth: Option<StepGrowth>,
    /// Of a run that fits: what grows a little.
    grows_slowly: Option<Note>,
    /// How much more that will be at the end of all steps.
    still_to_come: Bytes,
    /// Whether it fits with some addresses of its segments only.
    is_in_doubt: bool,
}

/// What another thread or task fills without a limit, the largest of several.
fn runs_ahead(run: &DeviceRun<'_>) -> Option<RunsAhead> {
    /// Of less, even many are little.
    const LEAST: Bytes = Bytes::kib(16);
    let looks = run.recording.notes.keepers.iter().filter(|it| it.device == run.index);
    let found = looks.flat_map(|it| &it.entries).filter_map(|it| {
        let held = it.unlimited.filter(|it| LEAST <= it.each)?;
        let at = it.inner.clone().or_else(|| it.at.clone())?;
        let name = it.name.split('[').next().unwrap_or_default().to_owned();
        Some(RunsAhead { name, at, held })
    });
    found.max_by_key(|it| u128::from(it.held.each.0) * u128::from(it.held.entries.max(1)))
}

/// One moment, broken down.
struct Shown {
    peaks: Peaks,
    categories: Vec<CategoryShare>,
    lines: Vec<LineShare>,
    modules: Vec<ModuleShare>,
}

impl Shown {
    /// The one at which memory ran out, or the peak.
    fn of(
        run: &DeviceRun<'_>,
        evidence: &Evidence<'_>,
        card: &Card,
        died_at: Option<EventId>,
    ) -> Shown {
        let event = died_at.unwrap_or(run.replay.peak_allocated.event);
        let live = run.live_after(event, evidence);
        let (context, other) = (run.context(card), run.other(card));
        let peaks = died_at.map_or_else(
            || run.peaks(card),
            |event| {
                let at = steps::curve(run.device, &run.replay, &run.timeline, Some(event)).at;
                let device = at.reserved + other + context;
                // What was there before a recording that began late has no blocks of its own.
                let allocated = live.iter().map(|it| it.size).sum::<Bytes>().min(at.allocated);
                Peaks { allocated, reserved: at.reserved, device }
            },
        );
        let parts = (&run.replay, &run.timeline, &run.stacks);
        Shown {
            peaks,
            categories: categories_of(&live, peaks, other, context),
            lines: origins::by_line(run.trace, run.device, parts, &live),
            modules: origins::by_module(run.trace, run.device, &run.replay, evidence, &live),
        }
    }
}

/// Every byte of the process, once.
fn categories_of(live: &[Live], peak: Peaks, other: Bytes, context: Bytes) -> Vec<CategoryShare> {
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
