//! Makes the runs that a search asks for, tells it what came of them, and says to people how it goes.

use std::{
    ffi::OsString,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use plimsoll_core::{
    cards::Card,
    prediction::{self, Inquiry, Observed, OtherEnd, Outcome},
    recording::{Reached, Recording},
    units::Bytes,
};
use plimsoll_fit::{
    search::{
        Best, ByHand, Half, Look, Measure, Next, On, Ran, Rewritten, Rules, Run, Said, Search,
        SoFar, Steps,
    },
    speculate::Speculation,
    trials::{Order, Purpose, Trial, Trials, ValuesMatter},
};
use serde_json::{Value, json};

use super::{
    in_file::InFile,
    readings,
    workshop::{self, Read, Shop, What},
};
use crate::{
    contract::{self, Setting},
    engine::{
        host_memory,
        launch::{Ranks, Signals},
        phantom_run::{self, Completing},
        plan_settings,
    },
    options::{cli::FitArgs, worst_batches},
    output::say,
};

/// More than any card: what a run takes is to be seen, not where it ends.
const ROOMY: Bytes = Bytes::gib(512);
/// The rank that runs of a job, where not all do.
const FIRST: Ranks = Ranks::OfLauncher { rank: 0 };
/// After so long a search says what is best so far, and how long the rest may take.
const LONG: Duration = Duration::from_secs(30);
/// Of 65 searches that tried plans for batches of every length, a tenth made fewer runs and a tenth more (bench/results/lengths.md).
const FEW_RUNS: u64 = 23;
const MANY_RUNS: u64 = 42;
/// Of 30 searches 25 took between half as long and twice as long again as to their first plan (the same).
const TO_THE_END: [f64; 2] = [1.5, 3.0];
/// What is left is this at least: the last run of a plan.
const LEAST_SECONDS: f64 = 2.0;

/// Makes runs.
pub(super) struct Driver<'a> {
    args: &'a FitArgs,
    trials: Trials<Shop>,
    card: Rc<Card>,
    roomy: Rc<Card>,
    /// The command, with a value in its place.
    words: &'a dyn Fn(Option<u64>) -> Vec<OsString>,
    /// Where the value stands if not in the command.
    in_file: Option<&'a InFile>,
    began: Instant,
    so_far: SoFar,
    /// The best that people were told of.
    told: Option<Best>,
    /// After so many seconds a plan was seen to fit.
    first_plan_after: Option<f64>,
    /// What an edit of the script would give back, where it ran out of memory on the card.
    edits: Option<Vec<ByHand>>,
    /// What the last run recorded.
    recordings: Vec<Recording>,
    /// The last run that was a process of its own, if it is a part of what `predict` runs.
    part: Option<(Run, Trial<Read>)>,
    /// Let go when all else is gone: a signal that waits could end us before what runs have left is removed.
    _signals: Rc<Signals>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        args: &'a FitArgs,
        card: &Card,
        words: &'a dyn Fn(Option<u64>) -> Vec<OsString>,
    ) -> anyhow::Result<Driver<'a>> {
        let (shop, signals) = Shop::open(&args.assume, &args.world)?;
        let may_nurse = shop.may_nurse();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Ok(Driver {
            args,
            trials: Trials::new(shop, cores, may_nurse),
            card: Rc::new(card.clone()),
            roomy: Rc::new(card.clone().with_total(ROOMY)),
            words,
            in_file: None,
            began: Instant::now(),
            so_far: SoFar::default(),
            told: None,
            first_plan_after: None,
            edits: None,
            recordings: Vec::new(),
            part: None,
            _signals: signals,
        })
    }

    /// The same with the value in a file of the script's.
    pub(super) fn in_file(self, place: Option<&'a InFile>) -> Driver<'a> {
        Driver { in_file: place, ..self }
    }

    /// Whether the script speaks of `torch.compile`.
    pub(super) fn speaks_of_compile(&mut self) -> anyhow::Result<bool> {
        let words = (self.words)(None);
        workshop::existing(&words)?;
        let card = Rc::clone(&self.roomy);
        let compiles = self.trials.seems_to_compile(&What {
            words,
            settings: Vec::new(),
            card,
            ends: Vec::new(),
            ranks: FIRST,
        })?;
        if compiles {
            let why = "the script mentions torch.compile: what it compiles is compiled anew for each plan, so the search may take minutes";
            self.say(&Said::Plain(why.to_owned()), Instant::now());
        }
        Ok(compiles)
    }

    /// Does what a search by these rules wants until it has found something.
    pub(super) fn drive<T>(
        &mut self,
        rules: &Rules,
        begin: impl Fn() -> Search<T>,
    ) -> anyhow::Result<T> {
        loop {
            match self.go_through(rules, &begin) {
                Err(error) if error.is::<ValuesMatter>() => {
                    let why = format!("{error}: searching again, with values");
                    self.say(&Said::Plain(why), Instant::now());
                }
                result => return result,
            }
        }
    }

    fn go_through<T>(&mut self, rules: &Rules, begin: &dyn Fn() -> Search<T>) -> anyhow::Result<T> {
        let mut ahead = Speculation::new(begin, rules.clone());
        let mut search = begin();
        let mut told = Instant::now();
        loop {
            search = match search.next() {
                Next::Say(said, search) => {
                    self.say(&said, told);
                    search
                }
                Next::Run(it, waiting) => {
                    let likely =
                        if self.trials.run_ahead() { ahead.likely(&it) } else { Vec::new() };
                    // A plan for several devices is proven by processes.
                    let may_begin = |it: &&Run| {
                        !it.as_predicted && (it.on != On::CardAlone || it.plan.gpus().is_none())
                    };
                    let orders: Vec<_> =
                        likely.iter().filter(may_begin).map(|it| self.order(it)).collect();
                    self.trials.likely(orders);
                    let ran = self.run(&it)?;
                    let ran = self.with_edits(rules, &it, ran)?;
                    told = Instant::now();
                    self.tell_best_so_far(rules, &it, &ran);
                    ahead.ran(it, ran.clone());
                    waiting.tell(ran)
                }
                Next::Replay(it, waiting) => {
                    let tuned = prediction::tunings(&self.recordings, it.limit, it.card);
                    ahead.replayed(tuned.clone());
                    waiting.tell(tuned)
                }
                Next::Measure(it, waiting) => {
                    let steps = self.measure(&it)?;
                    ahead.measured(steps.clone());
                    waiting.tell(steps)
                }
                Next::Found(found) => {
                    self.trials.be_certain()?;
                    return Ok(found);
                }
            };
        }
    }

    /// Whom the script reached in them.
    pub(super) fn reached(&self) -> Reached {
        self.trials.workshop().reached()
    }

    /// How many runs on a phantom that took.
    pub(super) fn n_runs(&self) -> u64 {
        self.trials.n_runs()
    }

    /// What the schedule is asked for.
    fn order(&self, run: &Run) -> Order<What> {
        let mut words = (self.words)(run.value);
        words.extend(run.words.iter().map(OsString::from));
        let card = Rc::clone(if run.on == On::Roomy { &self.roomy } else { &self.card });
        let purpose = match run.on {
            On::CardAlone => Purpose::Proof,
            _ if matches!(run.look, Some(Look::Work | Look::SitesAndWork)) => Purpose::Count,
            _ => Purpose::Search,
        };
        Order {
            what: What {
                words,
                settings: self.settings(run),
                card,
                ends: run.end.into_iter().collect(),
                ranks: FIRST,
            },
            until: run.until,
            purpose,
            compiles_anew: run.on == On::CardAlone && !run.may_find_compiled,
        }
    }

    fn run(&mut self, run: &Run) -> anyhow::Result<Ran> {
        let began = Instant::now();
        let order = self.order(run);
        workshop::existing(&order.what.words)?;
        let trial = match run.on {
            _ if run.as_predicted => self.as_predicted(run, &order)?,
            On::Roomy | On::Card => self.trials.run(&order)?,
            // A plan for several devices is proven by processes.
            On::CardAlone if run.plan.gpus().is_some() => self.trials.run_alone(&order)?,
            On::CardAlone => self.trials.prove(&order)?,
        };
        let is_part = run.on == On::CardAlone && trial.read.is_part;
        self.part = is_part.then(|| (run.clone(), trial.clone()));
        let (ran, recordings) = readings::ran(trial, began.elapsed().as_secs_f64());
        self.recordings = recordings;
        Ok(ran)
    }

    /// What came of the script as it is, with what `explain` would have a person change where that runs out of memory.
    fn with_edits(&mut self, rules: &Rules, run: &Run, mut ran: Ran) -> anyhow::Result<Ran> {
        let may_run_out = ran.fits()
            && ran.took.growth.is_none()
            && !ran.noted.compiles
            && rules.most_allocated() < ran.took.peak.allocated;
        let Some(on_card) = run.on_the_card(rules.limit_reserved).filter(|_| may_run_out) else {
            return Ok(ran);
        };
        let edits = match &self.edits {
            Some(it) => it,
            None => {
                let Read { by_hand, interrupted, .. } =
                    self.trials.run(&self.order(&on_card))?.read;
                ran.interrupted |= interrupted.is_some();
                self.edits.insert(by_hand)
            }
        };
        ran.took.knows_why_it_ran_out(edits);
        Ok(ran)
    }

    /// What `predict` answers for the same: it fits where that verdict is sure.
    fn as_predicted(&mut self, run: &Run, order: &Order<What>) -> anyhow::Result<Trial<Read>> {
        let alone = Run { as_predicted: false, ..run.clone() };
        let mut trial = match self.part.take() {
            Some((before, trial)) if before == alone => trial,
            _ if run.plan.gpus().is_some() => self.trials.run_alone(order)?,
            _ => self.trials.prove(order)?,
        };
        let Read { prediction, recordings, of_host, interrupted, failure, .. } = &mut trial.read;
        if interrupted.is_some() || failure.is_some() || prediction.outcome != Outcome::Fits {
            return Ok(trial);
        }
        let (What { words, card, ranks, .. }, assumed) = (&order.what, &self.args.assume);
        let whole = Completing { command: words, ranks, card, assumed };
        let mut ends = phantom_run::left_open(recordings, assumed);
        // What masks find refutes no plan.
        ends.retain(|it| *it != OtherEnd::Found);
        // Of a script that plimsoll spreads, ranks are run one by one.
        let is_alone = run.plan.gpus().is_some();
        let of_one = if *of_host == Bytes::ZERO { host_memory::OF_A_RUN } else { *of_host };
        let job = if is_alone { None } else { whole.job(recordings, of_one) };
        let (verdict_is_enough, on_one_card) = (true, true);
        let observed =
            Observed { ends, job, verdict_is_enough, on_one_card, ..Observed::default() };
        let mut inquiry = Inquiry::new(prediction.clone(), observed);
        let trials = &mut self.trials;
        let mut stopped_by = None;
        let mut one_more = |_: &Card, ends: &[OtherEnd], ranks: &Ranks| {
            let what = What { ends: ends.to_vec(), ranks: ranks.clone(), ..order.what.clone() };
            let order = Order { what, ..order.clone() };
            let one = if *ranks == FIRST && !is_alone {
                trials.prove(&order)
            } else {
                trials.run_alone(&order)
            };
            let Trial { read, .. } = one?;
            stopped_by = read.interrupted;
            Ok(read.interrupted.is_none().then_some((read.prediction, read.recordings)))
        };
        let completed = whole.complete(&mut inquiry, recordings, &mut one_more);
        *interrupted = stopped_by;
        if stopped_by.is_none() {
            completed?;
        }
        *prediction = inquiry.prediction(None);
        Ok(trial)
    }

    fn measure(&mut self, it: &Measure) -> anyhow::Result<Steps> {
        let (words, devices) = ((self.words)(None), it.plan.gpus());
        let mut settings = plan_settings::settings(&it.plan, &words);
        settings.extend(self.batches());
        let what =
            What { words, settings, card: Rc::clone(&self.roomy), ends: Vec::new(), ranks: FIRST };
        let read: Read = self.trials.meanwhile(|shop| shop.measure(&what, it.steps, devices))?;
        Ok(readings::steps(&read))
    }

    /// The worst batches: those that the user names, or else those that the data shows.
    fn batches(&self) -> Vec<Setting> {
        let named = worst_batches::named(self.args.worst_seq, self.args.worst_size);
        if named.is_empty() { vec![worst_batches::of_the_data()] } else { named }
    }

    /// What the environment of a run has more; of two values of one variable the later one holds.
    fn settings(&self, run: &Run) -> Vec<Setting> {
        let mut res = plan_settings::settings(&run.plan, &(self.words)(run.value));
        res.extend(self.batches());
        let place = self.in_file.zip(run.value);
        res.extend(place.map(|(place, value)| place.setting(value)));
        let edit = |it: &Rewritten| json!({ "file": it.file, "size": it.size, "start": it.start, "was": it.was, "is": it.is });
        let edits: Value = run.files.iter().map(edit).collect();
        res.extend((!run.files.is_empty()).then(|| (contract::EDITS, edits.to_string().into())));
        res.extend(run.half.map(|which| match which {
            Half::Length => (contract::BATCH_LENGTH, "half".into()),
            Half::Samples => (contract::HALF, "samples".into()),
            Half::Size => (contract::HALF, "size".into()),
        }));
        let bytes = |it: Bytes| OsString::from(it.0.to_string());
        res.extend(run.limit_reserved.map(|it| (contract::LIMIT_RESERVED, bytes(it))));
        res.extend(
            run.give_up_above
                .map(|it| (contract::HOPELESS, format!("{}:{}", it.0, run.give_up_after).into())),
        );
        res.extend(
            run.few_parts
                .map(|it| (contract::FEW_PARTS, format!("{}:{}", it.parts, it.after).into())),
        );
        res.extend(run.rank.map(|it| (contract::RANK, it.to_string().into())));
        let looked = match run.look {
            Some(Look::Sites) => [contract::SITES].as_slice(),
            Some(Look::Work) => &[contract::METER],
            Some(Look::SitesAndWork) => &[contract::SITES, contract::METER],
            None => &[],
        };
        res.extend(looked.iter().map(|name| (*name, OsString::from("1"))));
        res
    }

    /// Once a search takes long: that nothing fits so far, and the first plan that does; and how long the rest may take.
    fn tell_best_so_far(&mut self, rules: &Rules, run: &Run, ran: &Ran) {
        self.so_far.takes_in(rules, run, ran);
        let elapsed = self.began.elapsed();
        let best = self.so_far.best();
        if matches!(best, Best::Plan(..)) {
            self.first_plan_after.get_or_insert(elapsed.as_secs_f64());
        }
        let is_told = |told: &Best| *told == best || matches!(told, Best::Plan(..));
        if run.value.is_some() || elapsed < LONG || self.told.as_ref().is_some_and(is_told) {
            return;
        }
        let (n_runs, seconds) = (self.trials.n_runs().max(1), elapsed.as_secs_f64());
        let (said, [least, most]) = match &best {
            // The next runs decide whether there is a search at all.
            Best::AsItIs => return,
            Best::Plan(plan, needs) => {
                let of = rules.most();
                let said = format!(
                    "the first plan that fits: {plan} ({needs} to be safe, of {of}); Ctrl-C ends the search with it. The rest (faster plans, and the best one run to an evaluation) may"
                );
                let first = self.first_plan_after.unwrap_or(seconds);
                (said, TO_THE_END.map(|it| (it * first - seconds).max(LEAST_SECONDS)))
            }
            Best::Nothing => {
                let said =
                    "no plan fits so far; Ctrl-C ends the search with the closest. The rest may"
                        .to_owned();
                let rest =
                    |runs: u64| seconds / n_runs as f64 * runs.saturating_sub(n_runs).max(2) as f64;
                (said, [rest(FEW_RUNS), rest(MANY_RUNS)])
            }
        };
        self.told = Some(best);
        let sentence = format!(
            "after {seconds:.0} s and {n_runs} runs, {said} take {least:.0} to {most:.0} s"
        );
        self.say(&Said::Plain(sentence), Instant::now());
    }

    /// Progress, for people; `since`: when a run was over last.
    fn say(&self, said: &Said, since: Instant) {
        if self.args.quiet {
            return;
        }
        match said {
            Said::Plain(sentence) => say(sentence),
            Said::Computed(sentence) => {
                let took = since.elapsed().as_secs_f64() * 1e3;
                say(&format!("{sentence}; solved in {took:.1} ms"));
            }
        }
    }
}
