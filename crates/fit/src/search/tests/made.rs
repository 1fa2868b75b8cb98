//! A program that is made up, and the picture of a search in it.

use std::fmt::Write;

use plimsoll_core::{
    cards,
    plan::{Offer, Parameter, Remedy, find},
    prediction::{OtherEnd, Outcome, Peaks, StepPeaks, Tuned},
    units::Bytes,
};

use crate::search::{
    Best, Failed, FoundValue, Half, Look, Measure, Next, Noted, On, Ran, Range, Rules, Run, Said,
    Search, Seen, SoFar, Steps, Took, Until, WhyNot, largest_value, plans,
};

/// What is on the device beside what is reserved: 500 MiB.
const CONTEXT: Bytes = Bytes::mib(500);

/// What comes of what is asked.
type Answers<Asked, Answer> = dyn Fn(&Asked) -> Answer;

/// A program on a card.
pub(crate) struct Made {
    pub(crate) rules: Rules,
    /// What a run comes to where there is room.
    ran: Box<Answers<Run, Ran>>,
    tunings: Box<Answers<Run, Vec<Tuned>>>,
    steps: Box<Answers<Measure, Steps>>,
    /// Somebody stops this run; 0 is the first.
    interrupted: Option<usize>,
    /// The picture has what only a person can decide.
    with_advice: bool,
    /// And the sentences that repeat what a run came to.
    with_all_said: bool,
    /// And the best so far, where it changes.
    with_best: bool,
}

impl Made {
    /// One on an A100 with so many MiB for the process.
    pub(crate) fn new(mib: u64, ran: impl Fn(&Run) -> Ran + 'static) -> Made {
        let mut card = cards::find("a100-40g").unwrap().clone().with_total(Bytes::mib(mib));
        card.context = CONTEXT;
        let rules = Rules {
            card,
            limit_reserved: None,
            is_whole_card: true,
            gpus: 1,
            allow: Vec::new(),
            forbid: Vec::new(),
            keep_numerics: false,
            prefers_speed: false,
            may_edit: true,
            until_exit: false,
            advice: false,
            speaks_of_compile: false,
            measure_in: None,
        };
        Made {
            rules,
            ran: Box::new(ran),
            tunings: Box::new(|_| Vec::new()),
            steps: Box::new(|_| Steps::default()),
            interrupted: None,
            with_advice: false,
            with_all_said: false,
            with_best: false,
        }
    }

    /// The same where only these remedies may be used.
    pub(crate) fn allow(mut self, ids: &[&str]) -> Made {
        self.rules.allow = known(ids);
        self
    }

    pub(crate) fn forbid(mut self, ids: &[&str]) -> Made {
        self.rules.forbid = known(ids);
        self
    }

    pub(crate) fn rules(mut self, change: impl FnOnce(&mut Rules)) -> Made {
        change(&mut self.rules);
        self
    }

    pub(super) fn tunings(mut self, tunings: impl Fn(&Run) -> Vec<Tuned> + 'static) -> Made {
        self.tunings = Box::new(tunings);
        self
    }

    pub(super) fn steps(mut self, steps: impl Fn(&Measure) -> Steps + 'static) -> Made {
        self.steps = Box::new(steps);
        self
    }

    /// The picture has what only a person can decide, too; it is the same each time that nothing fits.
    pub(super) fn with_advice(mut self) -> Made {
        self.with_advice = true;
        self
    }

    /// The picture has every sentence that people are told.
    pub(super) fn with_all_said(mut self) -> Made {
        self.with_all_said = true;
        self
    }

    /// The picture has the best so far, where it changes.
    pub(super) fn with_best(mut self) -> Made {
        self.with_best = true;
        self
    }

    /// Somebody stops the run of this number, the first being 0.
    pub(super) fn stopped_at(mut self, n: usize) -> Made {
        self.interrupted = Some(n);
        self
    }

    /// The search for a plan.
    pub(super) fn plans(&self) -> String {
        let (mut res, found) = self.drive(plans(self.rules.clone()));
        match found {
            Err(why) => writeln!(res, "does not run: {why}").unwrap(),
            Ok(found) => {
                let plain = &found.plain;
                let fits = if plain.fits { "fits" } else { "does not fit" };
                writeln!(res, "as it is: {fits}, needs {}", plain.needs).unwrap();
                if let Some(n) = found.retries {
                    writeln!(res, "as it is it gets through: {n} retries").unwrap();
                }
                if found.in_pieces {
                    res += "its free memory is in pieces\n";
                }
                if found.has_unseen_sizes {
                    res += "it chooses sizes by itself\n";
                }
                if let Some(it) = &found.too_large {
                    let own = it.evaluation.own;
                    let with = it.with.shown();
                    writeln!(res, "its evaluation needs {}, {own} its own, with {with}", it.needs)
                        .unwrap();
                }
                if let Some(it) = found.plans.first().unwrap_or(plain).if_found {
                    writeln!(res, "if masks find everything: {it:?}").unwrap();
                }
                for it in &found.plans {
                    let roughly = |high: f64| if high.is_finite() { "" } else { "roughly " };
                    let time = it.time.map_or_else(String::new, |it| {
                        format!(", {}{:.2}x", roughly(it.high), it.estimate)
                    });
                    let factor = it.measured.and_then(|it| it.factor);
                    let factor =
                        factor.map_or_else(String::new, |it| format!(", measured {it:.2}x"));
                    let (plan, numbers) = (it.plan.shown(), it.numbers.shown());
                    let tight = if it.is_tight { ", tight" } else { "" };
                    let needs = it.needs;
                    writeln!(res, "plan: {plan}, needs {needs}, {numbers}{time}{factor}{tight}")
                        .unwrap();
                }
                if let Some(it) = &found.closest {
                    writeln!(res, "nearest: {}, needs {}", it.plan.shown(), it.needs).unwrap();
                }
                for it in found.advice.iter().filter(|_| self.with_advice) {
                    let fits = if it.fits { "fits" } else { "does not fit" };
                    writeln!(res, "advice: {}, {fits}", it.ids.join(" + ")).unwrap();
                }
                for it in &found.recipes {
                    let lines = it.recipe.lines.iter();
                    let mut all: Vec<String> =
                        lines.map(|it| format!("{}: {}", it.line, it.has)).collect();
                    all.extend(it.recipe.words.iter().cloned());
                    let (shown, of) = (all.join(" "), it.recipe.framework);
                    writeln!(res, "in {of}: {shown}, needs {}", it.needs).unwrap();
                }
                for it in &found.not_tried {
                    let all: Vec<String> = it.switches.iter().map(|it| it.shown()).collect();
                    let why = match &it.why {
                        WhyNot::Missing(name) => name,
                        WhyNot::Fails(why) => why.as_str(),
                    };
                    writeln!(res, "not tried: {}, {why}", all.join(", ")).unwrap();
                }
                if !found.plans.is_empty() || plain.fits {
                    let Seen { steps, evaluation, until_exit, failed, .. } = found.seen;
                    let evaluation = if evaluation { ", an evaluation" } else { "" };
                    let end = if until_exit { ", its end" } else { "" };
                    writeln!(res, "seen: {steps} steps{evaluation}{end}").unwrap();
                    if let Some(Failed { why, was_hurried }) = failed {
                        let hurried = if was_hurried { ", hurried" } else { "" };
                        writeln!(res, "then it fails{hurried}: {why}").unwrap();
                    }
                }
                if let Some(it) = &found.grows {
                    let (per_step, step) = (it.growth.per_step, it.runs_out_at);
                    writeln!(res, "grows {per_step} a step, runs out at {step}").unwrap();
                }
                if found.interrupted {
                    res += "interrupted\n";
                }
            }
        }
        res
    }

    /// How many runs it makes until a plan fits, and in all.
    pub(super) fn n_runs(&self) -> (Option<usize>, usize) {
        let (mut first, mut n_runs, mut so_far) = (None, 0, SoFar::default());
        let mut search = plans(self.rules.clone());
        loop {
            search = match search.next() {
                Next::Say(_, search) => search,
                Next::Run(run, waiting) => {
                    let ran = self.on_a_card(&run);
                    n_runs += 1;
                    so_far.takes_in(&self.rules, &run, &ran);
                    let has_plan = matches!(so_far.best(), Best::Plan(..));
                    first = first.or(has_plan.then_some(n_runs));
                    waiting.tell(ran)
                }
                Next::Replay(_, waiting) => waiting.tell(Vec::new()),
                Next::Measure(it, waiting) => waiting.tell((self.steps)(&it)),
                Next::Found(_) => return (first, n_runs),
            };
        }
    }

    /// The search for the largest value; with a row for each set of remedies if `sets`.
    pub(super) fn largest(&self, range: (u64, u64, u64), sets: bool) -> (String, FoundValue) {
        let (lowest, highest, step) = range;
        let range = Range { name: "batch".to_owned(), lowest, highest, step };
        self.drive(largest_value(self.rules.clone(), range, sets))
    }

    /// Every run of the search, and what it finds.
    fn drive<T>(&self, mut search: Search<T>) -> (String, T) {
        let (mut res, mut n_runs) = (String::new(), 0);
        let mut last: Option<Run> = None;
        let mut so_far = SoFar::default();
        loop {
            assert!(n_runs < 500, "{res}");
            search = match search.next() {
                Next::Say(said, search) => {
                    let (Said::Plain(sentence) | Said::Computed(sentence)) = &said;
                    // What only repeats the line above is left out.
                    let is_shown = self.with_advice || !sentence.starts_with("advice ");
                    if is_shown && (self.with_all_said || !sentence.ends_with(" s)")) {
                        writeln!(res, "\" {sentence}").unwrap();
                    }
                    search
                }
                Next::Run(run, waiting) => {
                    let is_stopped = self.interrupted == Some(n_runs);
                    let ran = if is_stopped { interrupted() } else { self.on_a_card(&run) };
                    if self.with_advice || !is_advice(&run) {
                        writeln!(res, "{} -> {}", asked(&run), came_to(&ran)).unwrap();
                    }
                    n_runs += 1;
                    let before = so_far.best();
                    so_far.takes_in(&self.rules, &run, &ran);
                    if self.with_best && before != so_far.best() {
                        writeln!(res, "  best so far: {:?}", so_far.best()).unwrap();
                    }
                    last = Some(run);
                    waiting.tell(ran)
                }
                Next::Replay(it, waiting) => {
                    let card = it.card.map_or_else(String::new, |it| format!(" on {it}"));
                    let found = last.as_ref().map(|it| (self.tunings)(it)).unwrap_or_default();
                    writeln!(res, "  replayed below {}{card} -> {}", it.limit, found.len())
                        .unwrap();
                    waiting.tell(found)
                }
                Next::Measure(it, waiting) => {
                    let is_stopped = self.interrupted == Some(n_runs);
                    let steps = if is_stopped {
                        Steps { interrupted: true, ..Steps::default() }
                    } else {
                        (self.steps)(&it)
                    };
                    n_runs += 1;
                    writeln!(res, "{}, {} steps on the device", it.plan.shown(), it.steps).unwrap();
                    waiting.tell(steps)
                }
                Next::Found(found) => return (res, found),
            };
        }
    }

    /// What a card makes of it: it ends where there is no more, or where it was said that more can never fit.
    pub(crate) fn on_a_card(&self, run: &Run) -> Ran {
        let mut ran = (self.ran)(run);
        if ran.failure.is_some() || ran.n_ooms != 0 {
            return ran;
        }
        let Peaks { allocated, reserved, device } = ran.took.peak;
        let is_beyond = run.limit_reserved.is_some_and(|it| it < reserved)
            || run.on != On::Roomy && self.rules.card.usable() < device;
        if is_beyond {
            return Ran { took: Took::default(), outcome: Outcome::OutOfMemory, n_ooms: 1, ..ran };
        }
        if let Some(most) = run.give_up_above.filter(|it| *it < allocated) {
            if 0 < run.give_up_after {
                ran.took.steps_seen = run.give_up_after;
                return Ran {
                    was_cut: true,
                    outcome: Outcome::ScriptFailed,
                    evaluates: false,
                    ..ran
                };
            }
            // After the first backward: the optimizer has no state yet.
            let until_then = Bytes(allocated.0 / 10 * 9).max(most + Bytes::mib(1));
            let held = ran.took.held;
            ran.took = Took { steps_seen: 0, held, ..took(until_then.0 >> 20) };
            ran.was_cut = true;
            ran.outcome = Outcome::ScriptFailed;
        }
        ran
    }
}

/// A run that allocates and reserves so many MiB at most, from its second step on.
pub(crate) fn takes(mib: u64) -> Ran {
    Ran {
        took: took(mib),
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
        noted: Noted::default(),
        seconds: 1.0,
    }
}

fn took(mib: u64) -> Took {
    reserves(mib, mib)
}

/// What a run took that allocates so many MiB, and reserves more.
pub(super) fn reserves(allocated: u64, reserved: u64) -> Took {
    let (allocated, reserved) = (Bytes::mib(allocated), Bytes::mib(reserved));
    let device = reserved + CONTEXT;
    let step = |step: u32, less: Bytes| StepPeaks {
        step,
        allocated: allocated.saturating_sub(less),
        reserved: reserved.saturating_sub(less),
        allocated_after: Bytes::ZERO,
        unfinished: false,
    };
    Took {
        to_come: None,
        unseen: None,
        depends: None,
        by_hand: Vec::new(),
        peak: Peaks { allocated, reserved, device },
        safe: device,
        steps_seen: 3,
        steps: vec![step(1, Bytes::mib(1)), step(2, Bytes::ZERO), step(3, Bytes::ZERO)],
        began_again: false,
        first_step: None,
        growth: None,
        held: Vec::new(),
        lines: Vec::new(),
        oom: None,
        evaluation: None,
    }
}

/// The same in evaluation, too.
pub(super) fn evaluates(mib: u64) -> Ran {
    Ran { evaluates: true, ..takes(mib) }
}

/// One that ends with an exception.
pub(super) fn fails(why: &str) -> Ran {
    Ran {
        took: Took::default(),
        outcome: Outcome::ScriptFailed,
        failure: Some(why.to_owned()),
        ..takes(0)
    }
}

/// One in which this remedy says that it does not suit the program.
pub(super) fn refuses(id: &str) -> Ran {
    Ran { refused: vec![id.to_owned()], ..fails(&format!("{id} refuses")) }
}

pub(super) fn out_of_memory() -> Ran {
    Ran { outcome: Outcome::OutOfMemory, n_ooms: 1, ..takes(0) }
}

fn interrupted() -> Ran {
    Ran { interrupted: true, ..fails("interrupted") }
}

impl Run {
    /// Whether its plan has this remedy.
    pub(crate) fn has(&self, id: &str) -> bool {
        assert!(find(id).is_some(), "{id}");
        self.plan.remedies.iter().any(|it| it.id == id)
    }

    /// Whether what each block keeps is written down.
    pub(crate) fn is_measured(&self) -> bool {
        self.plan.remedies.iter().any(|it| it.parameters.contains(&Parameter::Measure))
    }

    /// This remedy of its plan.
    pub(crate) fn remedy(&self, id: &str) -> Option<&Remedy> {
        self.plan.remedies.iter().find(|it| it.id == id)
    }
}

fn known(ids: &[&str]) -> Vec<String> {
    assert!(ids.iter().all(|it| find(it).is_some()), "{ids:?}");
    ids.iter().map(|it| (*it).to_owned()).collect()
}

/// Whether it is run for what only a person can decide.
fn is_advice(run: &Run) -> bool {
    let by_hand = |id: &str| find(id).is_some_and(|it| it.offer == Offer::ByHand);
    run.half.is_some() || run.plan.remedies.iter().any(|it| by_hand(it.id))
}

/// In words.
pub(crate) fn asked(run: &Run) -> String {
    let Run { value, plan, until, on, end, limit_reserved, rank, look, half, words, .. } = run;
    let value = value.map_or_else(String::new, |it| format!("batch={it}, "));
    let until = match until {
        Until::Steady => "steady".to_owned(),
        Until::Validation => "a validation".to_owned(),
        Until::OneValidation => "one validation".to_owned(),
        Until::ValidationAfter(n) => format!("one validation after {n} steps"),
        Until::Steps(n) => format!("{n} steps"),
        Until::Exit => "the end".to_owned(),
    };
    let mut res = format!("{value}{}, {until}", plan.shown());
    match on {
        On::Roomy => (),
        On::Card => res += ", on the card",
        On::CardAlone => res += ", alone on the card",
    }
    if run.as_predicted {
        res += ", as predicted";
    }
    if run.may_find_compiled {
        res += ", with what is compiled";
    }
    match end {
        None => (),
        Some(OtherEnd::Late) => res += ", late",
        Some(OtherEnd::Overflow) => res += ", overflowing",
        Some(OtherEnd::Workspaces) => res += ", largest workspaces",
        Some(OtherEnd::Found) => res += ", everything found",
        Some(OtherEnd::Routed) => res += ", one expert",
    }
    if let Some(limit) = limit_reserved {
        write!(res, ", reserves up to {limit}").unwrap();
    }
    if 0 < run.give_up_after {
        write!(res, ", {} steps at least", run.give_up_after).unwrap();
    }
    if let Some(rank) = rank.filter(|it| *it != 0) {
        write!(res, ", rank {rank}").unwrap();
    }
    match look {
        None => (),
        Some(Look::Sites) => res += ", sites",
        Some(Look::Work) => res += ", work",
        Some(Look::SitesAndWork) => res += ", sites, work",
    }
    match half {
        None => (),
        Some(Half::Length) => res += ", half as long",
        Some(Half::Samples) => res += ", half as many",
        Some(Half::Size) => res += ", half as high and wide",
    }
    for it in &run.files {
        write!(res, ", {:?} instead of {:?}", it.is, it.was).unwrap();
    }
    if !words.is_empty() {
        write!(res, ", with {}", words.join(" ")).unwrap();
    }
    res
}

pub(crate) fn came_to(ran: &Ran) -> String {
    match &ran.failure {
        Some(why) => why.clone(),
        None if ran.n_ooms != 0 => "out of memory".to_owned(),
        None if ran.was_cut => "cut".to_owned(),
        None => ran.took.safe.to_string(),
    }
}
