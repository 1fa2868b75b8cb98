//! Runs of the values of a number in the command: which is the largest that fits, and whether it still does with a little
//! less memory.

use plimsoll_core::{
    plan::Plan,
    prediction::{OomPlace, OtherEnd, Peaks, ToCome, allowance_for_addresses},
    units::Bytes,
};

use super::{
    ask::{On, Ran, Run, Took, Until},
    dialogue::Line,
    rules::Rules,
};
use crate::search::largest::{Largest, Tried};

/// So many steps are run of a value that gets through only because the allocator gives free memory back.
const ON_THE_EDGE: u32 = 12;
/// So many values are tried from such a one downwards for one that has room.
const DOWNWARDS: usize = 6;
/// So many values are run for the largest one that is safe, where the largest one that fits is not.
const FOR_A_SAFE_ONE: usize = 4;

/// The number whose largest value is wanted, and where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its name in the command.
    pub name: String,
    /// The smallest value.
    pub lowest: u64,
    /// The largest.
    pub highest: u64,
    /// How far apart values are.
    pub step: u64,
}

/// One value that was run.
#[derive(Clone, Debug)]
pub struct ValueRun {
    /// The value.
    pub value: u64,
    /// What came of it.
    pub tried: Tried,
    /// What it took, as far as it came.
    pub peak: Option<Peaks>,
    /// The same with the allowance for what a phantom cannot know, of the limit.
    pub safe: Bytes,
    /// Where memory ran out, if it did.
    pub ran_out: Option<OomPlace>,
    /// How often the allocator was full, gave its free memory back and went on.
    pub retries: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What it took depends on numbers that nobody computed: which, in a sentence.
    pub depends: Option<String>,
    /// What the script comes to, and this run did not.
    pub to_come: Option<ToCome>,
    /// Ranks that may differ, or the other end of a race, did not run to an answer: which, in a sentence.
    pub unseen: Option<String>,
    /// What the phantom decided by itself.
    pub ends: Vec<OtherEnd>,
    /// It is one rank of a job, or one end of a race or of a router.
    pub is_part: bool,
}

/// What a value that would be the answer has to stand beside the run that found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// More steps: on the edge each leaves memory a little differently, and the next one may not get through.
    Longer,
    /// A run at the other end of what the phantom decided.
    End(OtherEnd),
    /// All that `predict` runs.
    AsPredicted,
}

/// Runs under a limit that is a little lower than asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithLess {
    /// How much lower.
    pub less: Bytes,
    /// The largest value from the answer downwards that gets through; none if no value that was tried does.
    pub holds: Option<u64>,
}

/// Runs values.
pub(super) struct Values {
    pub(super) rules: Rules,
    pub(super) line: Line,
    pub(super) range: Range,
    pub(super) interrupted: bool,
    /// How far a run goes: through a validation, until one fits and has none.
    until: Until,
    /// At which end of what the phantom decides the runs are.
    end: Option<OtherEnd>,
}

impl Values {
    pub(super) fn new(rules: Rules, line: Line, range: Range) -> Values {
        let until = if rules.until_exit { Until::Exit } else { Until::Validation };
        Values { rules, line, range, interrupted: false, until, end: None }
    }

    /// The search for the largest value.
    pub(super) fn search(&self) -> Largest {
        let Range { lowest, highest, step, .. } = self.range;
        Largest::new(lowest, highest, step, self.rules.most())
    }

    /// Runs what `search` wants until it knows, with the remedies of `plan`; `with`: what people are told of these.
    pub(super) async fn largest(
        &mut self,
        mut search: Largest,
        plan: &Plan,
        with: &str,
    ) -> (Largest, Vec<ValueRun>) {
        let mut runs: Vec<ValueRun> = Vec::new();
        let mut proven: Vec<(u64, Proof)> = Vec::new();
        loop {
            // Only what would be the answer is run more than once.
            let answer = search.found().filter(|_| search.next().is_none());
            let answer = runs.iter().position(|it| Some(it.value) == answer);
            let proof = answer.and_then(|at| Some((at, self.lacks(&runs[at], &proven)?)));
            let (value, run) = match (proof, search.next()) {
                (Some((at, proof)), _) => (runs[at].value, self.proof(proof, runs[at].value, plan)),
                (None, Some(value)) => (value, self.run(value, plan, self.until)),
                (None, None) => break,
            };
            let ran = self.through_a_validation(run).await;
            if ran.interrupted {
                break;
            }
            let tried = self.tried(&ran);
            let seconds = ran.seconds;
            let (name, said) = (&self.range.name, said(&tried, self.rules.what()));
            let how = proof.map_or("", |it| it.1.in_words());
            self.line.say(format!("{with}{name}={value}{how}: {said} ({seconds:.1} s)"));
            let is_unbearable =
                !with.is_empty() && runs.is_empty() && matches!(tried, Tried::Fails(_));
            let run = self.value_run(value, tried.clone(), ran);
            if let Some((at, proof)) = proof {
                proven.push((value, proof));
                let first = &mut runs[at];
                first.seconds += seconds;
                if proof == Proof::AsPredicted {
                    // What lies between two ends may change no peak.
                    first.safe = first.safe.max(run.safe);
                    first.unseen.clone_from(&run.unseen);
                }
                // What cannot run at the other end says nothing about memory.
                if proof == Proof::Longer || is_more(&tried, &first.tried) {
                    let (seconds, ends, is_part) =
                        (first.seconds, first.ends.clone(), first.is_part);
                    *first = ValueRun { seconds, ends, is_part, ..run };
                    if let (Proof::End(end), Tried::TooMuch) = (proof, &tried) {
                        // From here on that is the end that counts.
                        self.end = Some(end);
                    }
                    search.correct(value, tried);
                }
                continue;
            }
            if matches!(tried, Tried::Fits(_)) {
                search.held(value, self.held(run.peak.unwrap_or_default()));
            }
            runs.push(run);
            search.tell(value, tried);
            if is_unbearable {
                break;
            }
        }
        (search, runs)
    }

    fn value_run(&self, value: u64, tried: Tried, ran: Ran) -> ValueRun {
        ValueRun {
            value,
            tried,
            peak: (ran.took.peak != Peaks::default()).then_some(ran.took.peak),
            safe: self.safe(&ran.took),
            ran_out: ran.took.oom,
            retries: ran.n_retries,
            seconds: ran.seconds,
            depends: ran.took.depends,
            to_come: ran.took.to_come,
            unseen: ran.took.unseen,
            ends: ran.ends,
            is_part: ran.is_part,
        }
    }

    /// Runs values below `found`, which fits and is not safe, until the largest safe one is known or is close; `step`: how far values are apart.
    pub(super) async fn largest_safe(&mut self, runs: &mut Vec<ValueRun>, found: u64, step: u64) {
        let limit = self.rules.most();
        for _ in 0..FOR_A_SAFE_ONE {
            let fits = |it: &&ValueRun| it.value <= found && matches!(it.tried, Tried::Fits(_));
            let is_safe = |it: &ValueRun| it.safe <= limit;
            let safe = runs.iter().filter(fits).filter(|it| is_safe(it)).max_by_key(|it| it.value);
            let below = safe.map_or(0, |it| it.value);
            let not_safe = runs.iter().filter(|it| below < it.value && it.value <= found);
            let not_safe = not_safe.filter(|it| !is_safe(it)).min_by_key(|it| it.value);
            let Some(above) = not_safe else { return };
            // The values to run lie so many steps below one that was run.
            let lowest = safe.map_or(self.range.lowest, |it| it.value + step);
            let most_down = above.value.saturating_sub(lowest) / step;
            if most_down == 0 {
                return;
            }
            let down = match safe {
                // As if what is needed rose evenly between the two.
                Some(safe) => {
                    let too_much = u128::from((above.safe - limit).0);
                    let steps = u128::from((above.value - safe.value) / step);
                    let down = (too_much * steps).div_ceil(u128::from((above.safe - safe.safe).0));
                    u64::try_from(down).unwrap_or(most_down)
                }
                None => most_down.div_ceil(2),
            };
            let value = above.value - down.clamp(1, most_down) * step;
            if runs.iter().any(|it| it.value == value) {
                return;
            }
            let mut run = self.run(value, &Plan::default(), self.until);
            if runs.iter().any(|it| it.is_part) {
                (run.on, run.as_predicted) = (On::CardAlone, true);
            }
            let ran = self.trial(run).await;
            if ran.interrupted {
                return;
            }
            let tried = self.tried(&ran);
            let (name, said) = (&self.range.name, said(&tried, self.rules.what()));
            self.line.say(format!("{name}={value}: {said} ({:.1} s)", ran.seconds));
            runs.push(self.value_run(value, tried, ran));
        }
    }

    /// What `run`, which would be the answer, has not shown yet. What masks may find is another question: no value is refuted by it.
    fn lacks(&self, run: &ValueRun, proven: &[(u64, Proof)]) -> Option<Proof> {
        let longer = (run.retries != 0).then_some(Proof::Longer);
        let all_found = self.end == Some(OtherEnd::Found);
        let is_other = |it: &&OtherEnd| **it != OtherEnd::Found && self.end != Some(**it);
        let ends = run.ends.iter().filter(is_other).filter(|_| !all_found);
        let as_predicted = (run.is_part && !all_found).then_some(Proof::AsPredicted);
        let all = longer.into_iter().chain(ends.map(|it| Proof::End(*it))).chain(as_predicted);
        all.into_iter().find(|it| !proven.contains(&(run.value, *it)))
    }

    fn proof(&self, proof: Proof, value: u64, plan: &Plan) -> Run {
        match proof {
            Proof::Longer => self.run(value, plan, Until::Steps(ON_THE_EDGE)),
            Proof::End(end) => Run { end: Some(end), ..self.run(value, plan, self.until) },
            Proof::AsPredicted => {
                let run = self.run(value, plan, self.until);
                Run { on: On::CardAlone, as_predicted: true, ..run }
            }
        }
    }

    /// Makes a run, and learns of the first one that fits whether there is a validation to go through.
    async fn through_a_validation(&mut self, run: Run) -> Ran {
        let until = run.until;
        let ran = self.trial(run.clone()).await;
        if until != Until::Validation || ran.interrupted || self.until != until {
            return ran;
        }
        if ran.is_strange() {
            // Not every loop bears an epoch that ends early.
            let again = self.trial(Run { until: Until::Steady, ..run }).await;
            if !again.is_strange() {
                self.until = Until::Steady;
            }
            return again;
        }
        if ran.fits() && !ran.evaluates {
            self.until = Until::Steady;
        }
        ran
    }

    /// The largest value up to `found` that fits if masks of unknown values select everything, and the runs of the
    /// search; nothing if that fails for another reason than memory, or somebody stopped it.
    pub(super) async fn if_everything_is_found(
        &mut self,
        search: &Largest,
        found: u64,
    ) -> Option<(Option<u64>, Vec<ValueRun>)> {
        let end = self.end.replace(OtherEnd::Found);
        let search = search.afresh_up_to(found);
        let (search, runs) =
            self.largest(search, &Plan::default(), "if masks select everything, ").await;
        self.end = end;
        let ran = runs.iter().any(|it| !matches!(it.tried, Tried::Fails(_)));
        (ran && !self.interrupted).then(|| (search.found(), runs))
    }

    /// Whether `run`, which got through only because memory was given back, gets through with a little less memory,
    /// and if not, which smaller value does. None if somebody asked us to stop.
    pub(super) async fn with_less(&mut self, run: &ValueRun, step: u64) -> Option<WithLess> {
        let (less, limit) = a_little_less(&self.rules, run.peak.unwrap_or_default());
        let step = usize::try_from(step).unwrap_or(1);
        let below = (self.range.lowest..=run.value).rev().step_by(step).take(DOWNWARDS);
        for value in below {
            let run = self.run(value, &Plan::default(), Until::Steps(ON_THE_EDGE));
            let ran = self.trial(Run { limit_reserved: Some(limit), ..run }).await;
            if ran.interrupted {
                return None;
            }
            if ran.fits() {
                return Some(WithLess { less, holds: Some(value) });
            }
        }
        Some(WithLess { less, holds: None })
    }

    /// A run of this value, under the limit that there is.
    pub(super) fn run(&self, value: u64, plan: &Plan, until: Until) -> Run {
        let limit_reserved = self.rules.limit_reserved;
        let end = self.end;
        Run { value: Some(value), limit_reserved, end, ..Run::of(plan, until, On::Card) }
    }

    /// Makes one run; none after somebody asked us to stop.
    pub(super) async fn trial(&mut self, run: Run) -> Ran {
        if self.interrupted {
            return Ran::not_made();
        }
        let ran = self.line.run(run).await;
        self.interrupted |= ran.interrupted;
        ran
    }

    /// What of the limit a real run needs to be safe.
    fn safe(&self, took: &Took) -> Bytes {
        let beside = took.peak.device.saturating_sub(took.peak.reserved);
        match self.rules.limit_reserved {
            Some(_) => took.safe.saturating_sub(beside),
            None => took.safe,
        }
    }

    /// What of the limit could not have been given back.
    fn held(&self, peak: Peaks) -> Bytes {
        let Peaks { allocated, reserved, device } = peak;
        match self.rules.limit_reserved {
            Some(_) => allocated,
            None => allocated + device.saturating_sub(reserved),
        }
    }

    fn tried(&self, ran: &Ran) -> Tried {
        if ran.fits() {
            let Peaks { reserved, device, .. } = ran.took.peak;
            return Tried::Fits(if self.rules.limit_reserved.is_some() {
                reserved
            } else {
                device
            });
        }
        if let Some(it) = &ran.took.growth {
            let at = it.at.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
            let when = it.counted.when(it.every);
            return Tried::Fails(format!("{} more stay allocated {when}{at}", it.at_a_time()));
        }
        match &ran.failure {
            Some(why) if ran.n_ooms == 0 => Tried::Fails(why.clone()),
            _ => Tried::TooMuch,
        }
    }
}

/// How much less memory a value has to get through with to have room, and what may be reserved then: what can be given
/// back depends on where the driver put each segment, and no phantom knows that of every process.
fn a_little_less(rules: &Rules, peak: Peaks) -> (Bytes, Bytes) {
    let limited = rules.limit_reserved.is_some();
    let others = if limited { Bytes::ZERO } else { peak.device.saturating_sub(peak.reserved) };
    let most = rules.most().saturating_sub(others);
    let less = allowance_for_addresses(most);
    (less, most.saturating_sub(less))
}

/// Whether `new` is worse than `old`.
fn is_more(new: &Tried, old: &Tried) -> bool {
    match (new, old) {
        (Tried::Fits(new), Tried::Fits(old)) => old < new,
        (Tried::TooMuch, Tried::Fits(_)) => true,
        _ => false,
    }
}

impl Proof {
    fn in_words(self) -> &'static str {
        match self {
            Proof::Longer => ", for more steps",
            Proof::AsPredicted => ", with other ranks and orders",
            Proof::End(OtherEnd::Late) => ", if the GPU finishes its work late",
            Proof::End(OtherEnd::Overflow) => ", if the first step is skipped",
            Proof::End(OtherEnd::Workspaces) => ", with the largest workspaces",
            Proof::End(OtherEnd::Found) => ", if masks select everything",
            Proof::End(OtherEnd::Routed) => ", if a router chooses one expert",
        }
    }
}

fn said(tried: &Tried, what: &str) -> String {
    match tried {
        Tried::Fits(Bytes(0)) => "fits".to_owned(),
        Tried::Fits(peak) => format!("fits, {peak} {what}"),
        Tried::TooMuch => "runs out of memory".to_owned(),
        Tried::Fails(why) => format!("does not run: {why}"),
    }
}
