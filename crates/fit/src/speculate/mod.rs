//! Which runs a search is likely to want next, so that no core waits: the search is gone through once more with all that it
//! was told, and from there on with guesses, by what was like that before. Whatever it asks for then is likely.
//!
//! Two guesses are made. *Going on*: a plan that was not run takes what the one most like it took, and once a plan fits, the
//! stronger ones do too. *At its end*: no other plan fits, so what was found is counted and proven. Nothing depends on any of
//! it: what was guessed wrong was run in vain.

#[cfg(test)]
mod cores;
#[cfg(test)]
mod tests;

use plimsoll_core::{
    plan::{
        Parameter, Plan, Remedy, find,
        remedies::{self, Role},
    },
    prediction::{Outcome, Peaks, Tuned},
    units::Bytes,
};

use crate::search::{Look, Next, Noted, On, Ran, Rules, Run, Search, Steps, Took};

/// So many runs with which the search would go on are said to be likely. What it asks for after these depends on too much.
const MOST: usize = 2;
/// So many guesses are made at most to come to the end of a search.
const FAR: usize = 300;
/// Where a batch goes through the model in two parts for the first time, so many hundredths are taken of what all of it took.
const HALVED: u64 = 65;

/// What a search was told, in order.
#[derive(Clone, Debug)]
enum Answer {
    Ran(Box<(Run, Ran)>),
    Replayed(Vec<Tuned>),
    Measured(Steps),
}

/// Looks ahead of one search.
pub struct Speculation<'a, T> {
    begin: &'a dyn Fn() -> Search<T>,
    rules: Rules,
    told: Vec<Answer>,
}

/// How a search is taken to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guess {
    /// As it went up to now.
    GoingOn,
    /// It finds no more plans.
    AtItsEnd,
}

impl<'a, T> Speculation<'a, T> {
    /// Of the search that `begin` makes for these rules.
    pub fn new(begin: &'a dyn Fn() -> Search<T>, rules: Rules) -> Speculation<'a, T> {
        Speculation { begin, rules, told: Vec::new() }
    }

    /// The search was told what came of a run.
    pub fn ran(&mut self, run: Run, ran: Ran) {
        self.told.push(Answer::Ran(Box::new((run, ran))));
    }

    /// It was told what would have let the last run through.
    pub fn replayed(&mut self, tuned: Vec<Tuned>) {
        self.told.push(Answer::Replayed(tuned));
    }

    /// It was told how long steps take.
    pub fn measured(&mut self, steps: Steps) {
        self.told.push(Answer::Measured(steps));
    }

    /// The runs that it is likely to want after `run`, which it wants now; those that it goes on with first. None of a search for a
    /// value: what comes of one says which is next.
    pub fn likely(&self, run: &Run) -> Vec<Run> {
        if run.value.is_some() {
            return Vec::new();
        }
        let mut res = self.after(run, Guess::GoingOn);
        if self.runs().any(|(it, ran)| is_strong(&it.plan) && self.fits(it, ran)) {
            let more = self.after(run, Guess::AtItsEnd);
            res.extend(more.into_iter().filter(|it| !res.contains(it)).collect::<Vec<_>>());
        }
        res
    }

    fn runs(&self) -> impl Iterator<Item = (&Run, &Ran)> {
        self.told.iter().filter_map(|it| match it {
            Answer::Ran(it) => Some((&it.0, &it.1)),
            Answer::Replayed(_) | Answer::Measured(_) => None,
        })
    }

    fn after(&self, now: &Run, guess: Guess) -> Vec<Run> {
        let Some(mut search) = self.again() else { return Vec::new() };
        let mut guessed: Vec<(Run, Ran)> = Vec::new();
        let mut res: Vec<Run> = Vec::new();
        let mut may_guess = true;
        for _ in 0..FAR {
            search = match search.next() {
                Next::Say(_, search) => search,
                Next::Replay(_, waiting) => waiting.tell(Vec::new()),
                Next::Measure(..) | Next::Found(_) => break,
                Next::Run(run, waiting) => {
                    if guessed.is_empty() {
                        if run != *now {
                            break;
                        }
                    } else if self.is_likely(&run, guess, &res) {
                        res.push(run.clone());
                    }
                    let is_enough = guess == Guess::GoingOn && MOST <= res.len();
                    if is_enough || !may_guess {
                        break;
                    }
                    may_guess = !is_blind(&run);
                    let Some(ran) = self.guess(&run, guess, &guessed) else { break };
                    guessed.push((run, ran.clone()));
                    waiting.tell(ran)
                }
            };
        }
        res
    }

    /// The search as it is now.
    fn again(&self) -> Option<Search<T>> {
        let mut search = (self.begin)();
        for told in &self.told {
            search = loop {
                search = match (search.next(), told) {
                    (Next::Say(_, search), _) => search,
                    (Next::Run(_, waiting), Answer::Ran(it)) => break waiting.tell(it.1.clone()),
                    (Next::Replay(_, waiting), Answer::Replayed(it)) => {
                        break waiting.tell(it.clone());
                    }
                    (Next::Measure(_, waiting), Answer::Measured(it)) => {
                        break waiting.tell(it.clone());
                    }
                    _ => return None,
                };
            };
        }
        Some(search)
    }

    /// Whether the search may want a run that it asks for after guesses.
    fn is_likely(&self, run: &Run, guess: Guess, before: &[Run]) -> bool {
        let was_run = self.runs().any(|(it, _)| it.plan == run.plan);
        match guess {
            Guess::GoingOn => was_run || run.on == On::Roomy,
            Guess::AtItsEnd => {
                let is_recipe = |it: &Run| !it.files.is_empty() || !it.words.is_empty();
                let is_second = is_recipe(run) && before.iter().any(is_recipe);
                was_run && !is_second && (run.on != On::Roomy || counts(run))
            }
        }
    }

    /// What may come of a run; none if nothing that was run says anything of it.
    fn guess(&self, run: &Run, guess: Guess, guessed: &[(Run, Ran)]) -> Option<Ran> {
        if is_blind(run) {
            return Some(blank());
        }
        if !run.files.is_empty() || !run.words.is_empty() {
            return Some(Ran { n_ooms: 1, outcome: Outcome::OutOfMemory, ..blank() });
        }
        let runs = || self.runs().chain(guessed.iter().map(|(run, ran)| (run, ran)));
        let compiles = self.runs().any(|(_, ran)| ran.noted.compiles);
        // What is compiled takes other memory than the same as it is written, and nothing better may be known.
        let is_written = |it: &Run| compiles && counts(it) != counts(run);
        let has_like = runs().any(|(it, ran)| !is_written(it) && tells(ran));
        let is_like = |it: &Run| {
            let is_edited = !it.files.is_empty() || !it.words.is_empty();
            !is_edited && it.half == run.half && !(has_like && is_written(it))
        };
        let of_plan = |plan: &Plan| {
            let same = || runs().filter(|(it, _)| is_like(it) && it.plan == *plan);
            same().filter(|(_, ran)| tells(ran)).last().or_else(|| same().last())
        };
        if let Some((of, ran)) = of_plan(&run.plan) {
            return Some(self.again_as(run, of, ran));
        }
        let most = self.rules.most();
        let all = || runs().filter(|(it, ran)| is_like(it) && (tells(ran) || ran.was_cut));
        let distance = |it: &Plan| distance(&it.remedies, &run.plan.remedies);
        let (of, nearest) = all().min_by_key(|(it, _)| distance(&it.plan))?;
        let base = nearest.clone();
        let too_much = |ran: &Ran| ran.was_cut || most < self.needs(&ran.took);
        // What was too much with more is too much without.
        let more = all().find(|(it, ran)| is_part(&run.plan, &it.plan) && too_much(ran));
        if let Some((of, ran)) = more {
            return Some(self.again_as(run, of, ran));
        }
        if guess == Guess::AtItsEnd {
            let took =
                resized(&base.took, base.took.peak.allocated.max(most), most + Bytes::mib(1));
            return Some(self.of(run, Ran { took, ..base }));
        }
        if let Some(took) = self.in_parts(&run.plan, &of_plan) {
            return Some(self.of(run, Ran { was_cut: false, took, ..base }));
        }
        let checkpoint = |it: &Plan| it.remedies.iter().any(|it| it.id == remedies::CHECKPOINT);
        if run.plan.remedies.iter().any(|it| it.blocks().is_some()) && checkpoint(&of.plan) {
            // The blocks that are chosen are as few as fit.
            let needs = self.needs(&base.took);
            let took =
                resized(&base.took, base.took.peak.allocated + most.saturating_sub(needs), most);
            return Some(self.of(run, Ran { was_cut: false, took, ..base }));
        }
        // Once one is enough, stronger ones mostly are too.
        if is_strong(&run.plan)
            && let Some((_, ran)) =
                all().filter(|(it, ran)| is_strong(&it.plan) && self.fits(it, ran)).last()
        {
            let (took, was_cut) = (ran.took.clone(), false);
            return Some(self.of(run, Ran { took, was_cut, ..base }));
        }
        Some(self.again_as(run, of, nearest))
    }

    /// What a plan takes that splits its batches into parts, by what it took in fewer, or at once.
    fn in_parts<'b>(
        &self,
        plan: &Plan,
        of_plan: &dyn Fn(&Plan) -> Option<(&'b Run, &'b Ran)>,
    ) -> Option<Took> {
        let parts = plan.remedies.iter().find_map(Remedy::parts)?;
        let took = |parts: u64| {
            let remedies = plan.remedies.iter().filter_map(|it| match it.parts() {
                Some(_) if parts == 1 => None,
                Some(_) => Some(Remedy::plain(it.id).with(Parameter::Parts(parts))),
                None => Some(it.clone()),
            });
            let (_, ran) = of_plan(&Plan::of(remedies.collect()))?;
            (!ran.was_cut && tells(ran)).then_some(&ran.took)
        };
        let whole = took(1).or_else(|| of_plan(&Plan::default()).map(|(_, ran)| &ran.took))?;
        let allocated = whole.peak.allocated.0;
        let halved = match took(parts / 2).filter(|_| 2 < parts) {
            // Twice as many save half as much again.
            Some(before) => {
                let before = before.peak.allocated.0;
                before.saturating_sub(allocated.saturating_sub(before) / (parts - 2))
            }
            None => allocated / 100 * HALVED * 2 / parts.max(2),
        };
        let saved = Bytes(allocated.saturating_sub(halved));
        Some(resized(whole, Bytes(halved), self.needs(whole).saturating_sub(saved)))
    }

    /// What comes of `run` where the same, or much the same, came to this.
    fn again_as(&self, run: &Run, of: &Run, ran: &Ran) -> Ran {
        let is_same = of.plan == run.plan;
        let work = if is_same && counts(run) { ran.noted.work.clone() } else { Vec::new() };
        let noted = Noted {
            compiles: ran.noted.compiles,
            compiled_anew: ran.noted.compiled_anew && is_same,
            work,
            ..Noted::default()
        };
        if is_same && ran.failure.is_some() && ran.n_ooms == 0 {
            return Ran { noted, ..ran.clone() };
        }
        self.of(run, Ran { noted, ..ran.clone() })
    }

    /// The same on the card of this run, and below its limits.
    fn of(&self, run: &Run, ran: Ran) -> Ran {
        let Peaks { allocated, reserved, device } = ran.took.peak;
        let (failure, n_ooms, interrupted) = (None, 0, false);
        let ran =
            Ran { failure, n_ooms, interrupted, failed_later: None, outcome: Outcome::Fits, ..ran };
        let is_beyond = run.limit_reserved.is_some_and(|it| it < reserved)
            || run.on != On::Roomy && self.rules.card.usable() < device;
        if is_beyond {
            return Ran { outcome: Outcome::OutOfMemory, n_ooms: 1, was_cut: false, ..ran };
        }
        let was_cut = run.give_up_above.is_some_and(|it| ran.was_cut || it < allocated);
        Ran { was_cut, outcome: if was_cut { Outcome::ScriptFailed } else { Outcome::Fits }, ..ran }
    }

    fn fits(&self, run: &Run, ran: &Ran) -> bool {
        run.files.is_empty()
            && run.words.is_empty()
            && tells(ran)
            && self.needs(&ran.took) <= self.rules.most()
    }

    /// What of the limit a run needs, allowance included.
    fn needs(&self, took: &Took) -> Bytes {
        let beside = took.peak.device.saturating_sub(took.peak.reserved);
        match self.rules.limit_reserved {
            Some(_) => took.safe.saturating_sub(beside),
            None => took.safe,
        }
    }
}

/// What is asked for next does not depend on what comes of it, and what comes after that does.
fn is_blind(run: &Run) -> bool {
    let is_first = |it: &Remedy| {
        it.parameters.contains(&Parameter::Measure) && it.blocks().is_some_and(<[u64]>::is_empty)
    };
    run.look == Some(Look::SitesAndWork) || run.plan.remedies.iter().any(is_first)
}

fn counts(run: &Run) -> bool {
    matches!(run.look, Some(Look::Work | Look::SitesAndWork))
}

/// Whether it says what its plan takes.
fn tells(ran: &Ran) -> bool {
    ran.fits() && !ran.was_cut
}

/// Whether it does more than what costs no time.
fn is_strong(plan: &Plan) -> bool {
    plan.remedies.iter().any(|it| !is_free(it.id))
}

fn is_free(id: &str) -> bool {
    find(id).is_some_and(|it| it.role == Role::Free)
}

/// Whether `whole` has all remedies of `part`, and more.
fn is_part(part: &Plan, whole: &Plan) -> bool {
    part.remedies.len() < whole.remedies.len()
        && part.remedies.iter().all(|it| whole.remedies.contains(it))
}

/// How far two plans are from each other: what is free counts little.
fn distance(one: &[Remedy], other: &[Remedy]) -> u32 {
    let alone = |these: &[Remedy], those: &[Remedy]| -> u32 {
        let rest = these.iter().filter(|it| !those.contains(it));
        rest.map(|it| match () {
            () if is_free(it.id) => 1,
            () if those.iter().any(|other| other.id == it.id) => 5,
            () => 20,
        })
        .sum()
    };
    alone(one, other) + alone(other, one)
}

/// The same with so much allocated, and so much that is needed.
fn resized(took: &Took, allocated: Bytes, needs: Bytes) -> Took {
    let Peaks { reserved, device, .. } = took.peak;
    let (beside, doubt) = (device.saturating_sub(reserved), took.safe.saturating_sub(device));
    // Whatever is limited: with what is beside, or without.
    let reserved = needs.saturating_sub(beside + doubt).max(allocated);
    let device = reserved + beside;
    Took { peak: Peaks { allocated, reserved, device }, safe: device + doubt, ..took.clone() }
}

/// It fits, and nothing else is known of it.
fn blank() -> Ran {
    Ran {
        took: Took::default(),
        outcome: Outcome::Fits,
        failure: None,
        refused: Vec::new(),
        n_ooms: 0,
        interrupted: false,
        was_cut: false,
        n_retries: 0,
        ends: Vec::new(),
        is_part: false,
        evaluates: false,
        failed_later: None,
        noted: Noted { compiles: true, ..Noted::default() },
        seconds: 0.0,
    }
}
