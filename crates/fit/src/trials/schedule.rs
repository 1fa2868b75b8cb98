//! The runs of a search, and when each is made.

use std::mem;

use crate::search::Until;

use super::{
    outcome::{EARLY, Trial},
    weights::{Check, Values, ValuesMatter, Weights},
};

/// So many runs are made at a time at most, however many cores there are.
const MOST_AT_ONCE: usize = 4;

/// One run that is wanted. `W` is what the executor makes it of: the command, its environment, the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order<W> {
    /// What is run.
    pub what: W,
    /// When it has shown enough.
    pub until: Until,
    /// What it is for.
    pub purpose: Purpose,
    /// It finds nothing of what runs before it compiled: compiling takes memory, too.
    pub compiles_anew: bool,
}

/// What a run is for. Of those that are likely to be asked for, the first of these begins first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The search goes on with it.
    Search,
    /// It shows at the end, as a process of its own would, that a plan holds. It takes long.
    Proof,
    /// It counts the work of a step, at the end.
    Count,
}

impl<W: Clone> Order<W> {
    /// The same for as few steps as two runs are compared by.
    fn first_steps(&self) -> Order<W> {
        let until = match self.until {
            Until::Steady | Until::Validation | Until::OneValidation => Until::Steps(EARLY),
            Until::ValidationAfter(steps) => Until::Steps(steps.min(EARLY)),
            until @ (Until::Steps(_) | Until::Exit) => until,
        };
        Order { until, ..self.clone() }
    }
}

/// What came of waiting for a run in the nursery.
#[derive(Debug)]
pub enum Waited<L, J> {
    /// It has ended; it left this.
    Ended {
        /// What is to be read.
        left: L,
        /// Other runs were under way meanwhile.
        had_company: bool,
        /// The machine ran out of memory.
        host_ran_out: bool,
        /// It goes on writing where it must not: the nursery has to end.
        still_writes: bool,
        /// Somebody asked us to stop.
        interrupted: bool,
    },
    /// Another run of the nursery has ended; this one goes on.
    Other(J),
    /// It was lost with another run. It says nothing.
    Lost,
    /// The nursery is no more.
    NurseryGone,
}

/// Makes runs. A nursery is a process that has done the script's imports, and forks a child for each run.
pub trait Workshop {
    /// What a run is made of.
    type What: Clone + PartialEq;
    /// A run under way in the nursery, and the files that it writes. They go when it is dropped.
    type Job;
    /// What a run left.
    type Output;
    /// What is read of that.
    type Read;
    /// Why a run cannot be made at all.
    type Error: From<ValuesMatter>;

    /// Starts a nursery for this program where there is none that serves it. Whether there is one now.
    fn has_nursery(&mut self, what: &Self::What) -> Result<bool, Self::Error>;
    /// Whether there is a nursery that serves this program.
    fn is_served(&self, what: &Self::What) -> bool;
    /// Begins a run in the nursery that serves it; none if the nursery is no more.
    fn begin(
        &mut self,
        order: &Order<Self::What>,
        values: Values,
    ) -> Result<Option<Self::Job>, Self::Error>;
    /// Waits for a run to end, with `or_others` for any. Runs of a nursery that was ended are lost.
    fn wait(
        &mut self,
        job: Self::Job,
        or_others: bool,
    ) -> Result<Waited<Self::Output, Self::Job>, Self::Error>;
    /// Whether it has ended, as far as is known without waiting.
    fn is_over(&mut self, job: &Self::Job) -> bool;
    /// Ends the nursery, and all runs in it.
    fn end_nursery(&mut self);
    /// How many runs are under way in the nursery.
    fn under_way(&mut self) -> usize;
    /// Whether the machine has memory for one run more, or for two where it is not known what one takes.
    fn has_memory(&self) -> bool;
    /// Whether the script seems to use `torch.compile`: a run that compiles and one that finds the result differ.
    fn seems_to_compile(&self) -> bool;
    /// Whether it has to be a process of its own: its settings are read while torch is imported.
    fn needs_process(&self, what: &Self::What) -> bool;
    /// Whether a run in the nursery is what it would be as a process of its own.
    fn is_as_a_process(&self, what: &Self::What) -> bool;
    /// Reads what a run left.
    fn read(
        &mut self,
        order: &Order<Self::What>,
        left: Self::Output,
    ) -> Result<Trial<Self::Read>, Self::Error>;
    /// Makes the run as a process of its own. What is below us and not the nursery ends with it.
    fn alone(
        &mut self,
        order: &Order<Self::What>,
        values: Values,
    ) -> Result<Trial<Self::Read>, Self::Error>;
    /// Has the run that is made next hear that somebody asked us to stop.
    fn pass_on_interrupt(&mut self, left: &Self::Output) -> Result<(), Self::Error>;
}

type OrderOf<S> = Order<<S as Workshop>::What>;
type TrialOf<S> = Trial<<S as Workshop>::Read>;
type CheckOf<S> = Check<<S as Workshop>::Job, OrderOf<S>>;

/// A run that nobody waits for yet.
enum State<S: Workshop> {
    /// It is likely to be asked for.
    Wanted,
    /// It has begun.
    UnderWay(S::Job),
    /// It has ended.
    Over(Finished<S>),
}

/// What a run in the nursery left.
struct Finished<S: Workshop> {
    left: S::Output,
    had_company: bool,
    interrupted: bool,
}

/// Makes the runs of a search.
pub struct Trials<S: Workshop> {
    // In this order: the workshop's nursery ends, and then what runs have left goes.
    shop: S,
    /// In the order in which they were wanted.
    ahead: Vec<(OrderOf<S>, State<S>)>,
    weights: Weights<CheckOf<S>>,
    /// How many runs may be made at a time.
    at_once: usize,
    may_nurse: bool,
    n_runs: u64,
    interrupted: bool,
}

impl<S: Workshop> Trials<S> {
    /// On so many cores; `may_nurse`: a nursery may be tried.
    pub fn new(shop: S, cores: usize, may_nurse: bool) -> Trials<S> {
        Trials {
            shop,
            ahead: Vec::new(),
            weights: Weights::Unknown { unlike: 0 },
            at_once: cores.min(MOST_AT_ONCE),
            may_nurse,
            n_runs: 0,
            interrupted: false,
        }
    }

    /// Where its runs are made.
    pub fn workshop(&self) -> &S {
        &self.shop
    }

    /// How many runs were begun.
    pub fn n_runs(&self) -> u64 {
        self.n_runs
    }

    /// Whether a run may begin before it is asked for.
    pub fn run_ahead(&self) -> bool {
        1 < self.at_once
    }

    /// These runs are likely to be asked for after the next one, and may begin while that is made. What was likely before and has not begun
    /// is not any more.
    pub fn likely(&mut self, orders: impl IntoIterator<Item = OrderOf<S>>) {
        self.forget_wanted();
        if !self.run_ahead() {
            return;
        }
        for order in orders {
            let fits_in = match order.purpose {
                Purpose::Proof => self.shop.is_as_a_process(&order.what),
                Purpose::Search | Purpose::Count => !self.shop.needs_process(&order.what),
            };
            if fits_in && !self.ahead.iter().any(|(ahead, _)| *ahead == order) {
                self.ahead.push((order, State::Wanted));
            }
        }
    }

    /// Makes a run, or takes what came of it where it began before.
    ///
    /// # Errors
    ///
    /// The workshop's, or [`ValuesMatter`].
    pub fn run(&mut self, order: &OrderOf<S>) -> Result<TrialOf<S>, S::Error> {
        self.check_weights(false)?;
        if let Some(trial) = self.begun_before(order)? {
            return self.undisturbed(trial, order);
        }
        self.n_runs += 1;
        if self.shop.needs_process(&order.what) {
            return self.alone(order);
        }
        self.has_nursery(&order.what)?;
        if let Some(trial) = self.run_while_weights_are_unknown(order)? {
            return Ok(trial);
        }
        match self.run_in_nursery(order, self.weights.values())? {
            Some(trial) => self.undisturbed(trial, order),
            None => self.alone(order),
        }
    }

    /// Makes the run that shows that a plan holds: as a process of its own, or in the nursery where that is the same.
    ///
    /// # Errors
    ///
    /// The workshop's, or [`ValuesMatter`].
    pub fn prove(&mut self, order: &OrderOf<S>) -> Result<TrialOf<S>, S::Error> {
        self.check_weights(false)?;
        if !self.shop.is_as_a_process(&order.what) {
            return self.run_alone(order);
        }
        if let Some(trial) = self.begun_before(order)? {
            return self.undisturbed(trial, order);
        }
        self.n_runs += 1;
        match self.run_in_nursery(order, self.weights.values())? {
            Some(trial) => self.undisturbed(trial, order),
            None => self.alone(order),
        }
    }

    /// Makes the run as a process of its own.
    ///
    /// # Errors
    ///
    /// The workshop's, or [`ValuesMatter`].
    pub fn run_alone(&mut self, order: &OrderOf<S>) -> Result<TrialOf<S>, S::Error> {
        self.n_runs += 1;
        self.alone(order)
    }

    /// Has the workshop do something else while no run is under way.
    ///
    /// # Errors
    ///
    /// The workshop's, or [`ValuesMatter`].
    pub fn meanwhile<T>(
        &mut self,
        does: impl FnOnce(&mut S) -> Result<T, S::Error>,
    ) -> Result<T, S::Error> {
        self.check_weights(true)?;
        self.let_all_end()?;
        does(&mut self.shop)
    }

    /// Whether the script seems to use `torch.compile`; false, too, where there is no nursery that could read it.
    ///
    /// # Errors
    ///
    /// The workshop's.
    pub fn seems_to_compile(&mut self, what: &S::What) -> Result<bool, S::Error> {
        self.has_nursery(what)?;
        Ok(self.shop.seems_to_compile())
    }

    /// Waits until it is known that what was seen so far holds.
    ///
    /// # Errors
    ///
    /// The workshop's, or [`ValuesMatter`].
    pub fn be_certain(&mut self) -> Result<(), S::Error> {
        if self.interrupted { Ok(()) } else { self.check_weights(true) }
    }

    fn has_nursery(&mut self, what: &S::What) -> Result<(), S::Error> {
        if self.may_nurse && !self.shop.is_served(what) {
            self.may_nurse = self.shop.has_nursery(what)?;
        }
        Ok(())
    }

    fn alone(&mut self, order: &OrderOf<S>) -> Result<TrialOf<S>, S::Error> {
        self.check_weights(true)?;
        self.let_all_end()?;
        let trial = self.shop.alone(order, self.weights.values())?;
        self.interrupted |= trial.was_interrupted();
        Ok(trial)
    }

    /// The run, while it is not known whether weights need values: another one beside it, or after it, shows that. None where they are known by
    /// now, or where the run says too little to go on with.
    fn run_while_weights_are_unknown(
        &mut self,
        order: &OrderOf<S>,
    ) -> Result<Option<TrialOf<S>>, S::Error> {
        if !self.weights.is_unknown() {
            return Ok(None);
        }
        let few = order.first_steps();
        let has_cores = 1 < self.at_once && !self.shop.seems_to_compile();
        if self.weights.is_untried() && has_cores {
            if let Some(trial) = self.run_believing(order, &few)? {
                return Ok(Some(trial));
            }
            if !self.weights.is_unknown() {
                return Ok(None);
            }
        }
        let mut beside = match has_cores && 1 < self.at_once {
            true => self.shop_begins(&few, Values::None)?,
            false => None,
        };
        let Some(trial) = self.run_in_nursery(order, self.weights.values())? else {
            return Ok(None);
        };
        if self.weights.is_unknown() && trial.compiles {
            // The second one finds what the first one has compiled, and differs for that alone.
            self.weights.need_values();
            if let Some(job) = beside.take() {
                self.finish(&few, job)?;
            }
        }
        if self.weights.is_unknown() && !trial.was_interrupted() {
            self.n_runs += 1;
            let again = match beside.take() {
                Some(job) => self.finish(&few, job)?,
                None => self.run_in_nursery(&few, Values::None)?,
            };
            let is_like = again.is_some_and(|it| it.compared().is_like(&trial.compared()));
            self.weights.were_compared(is_like);
        }
        // After an interruption it still runs, and its files stay until the nursery has ended it.
        self.ahead.extend(beside.map(|job| (few, State::UnderWay(job))));
        self.undisturbed(trial, order).map(Some)
    }

    /// The first run, without values, and beside it the first steps of one with values like those that the script draws. What comes of the other
    /// one is looked at when it has ended. None if the run says too little to go on with.
    fn run_believing(
        &mut self,
        order: &OrderOf<S>,
        few: &OrderOf<S>,
    ) -> Result<Option<TrialOf<S>>, S::Error> {
        let Some(with_values) = self.shop_begins(few, Values::StandIns)? else { return Ok(None) };
        self.n_runs += 1;
        let Some(job) = self.shop_begins(order, Values::None)? else { return Ok(None) };
        let Some(trial) = self.finish(order, job)? else { return Ok(None) };
        if trial.was_interrupted() {
            // It still runs, and its files stay until the nursery has ended it.
            self.ahead.push((few.clone(), State::UnderWay(with_values)));
            return Ok(Some(trial));
        }
        if trial.compiles {
            // The second one finds what the first one has compiled, and differs for that alone.
            self.weights.need_values();
            self.finish(few, with_values)?;
            self.n_runs += 1;
            let order = Order { compiles_anew: true, ..order.clone() };
            return self.run_in_nursery(&order, Values::Auto);
        }
        if trial.may_be_disturbed() {
            let other = self.finish(few, with_values)?;
            if other.is_some_and(|it| it.failure == trial.failure) {
                self.weights.need_none();
                return Ok(Some(trial));
            }
            self.one_at_a_time();
            return Ok(None);
        }
        let is_clear = trial.failure.is_none() && trial.n_ooms == 0;
        let without = trial.compared();
        self.weights.believe(Check { with_values, order: few.clone(), without });
        Ok((is_clear || self.check_weights(true).is_ok()).then_some(trial))
    }

    /// Whether what is believed of weights without values holds, as far as that is known by now; with `waits`, it is known.
    fn check_weights(&mut self, waits: bool) -> Result<(), S::Error> {
        let Some(check) = self.weights.take_check() else { return Ok(()) };
        if !waits && !self.shop.is_over(&check.with_values) {
            self.weights.believe(check);
            return Ok(());
        }
        let Check { with_values, order, without } = check;
        let mut trial = self.finish(&order, with_values)?;
        if trial.as_ref().is_some_and(Trial::may_be_disturbed) && without.failure.is_none() {
            self.let_all_end()?;
            self.one_at_a_time();
            self.n_runs += 1;
            trial = self.run_in_nursery(&order, Values::Auto)?;
        }
        let holds = trial
            .is_some_and(|trial| trial.was_interrupted() || trial.compared().is_like(&without));
        if holds {
            return Ok(());
        }
        self.weights.were_wrong();
        self.forget_wanted();
        if !self.ahead.is_empty() {
            // They still run, without values.
            self.end_nursery();
        }
        Err(ValuesMatter.into())
    }

    /// `trial`, or where other runs may have been in its way, what comes of the same alone. If that is another answer, runs are made one at a
    /// time from here on: of some scripts two need the same port.
    fn undisturbed(
        &mut self,
        trial: TrialOf<S>,
        order: &OrderOf<S>,
    ) -> Result<TrialOf<S>, S::Error> {
        if !trial.may_be_disturbed() {
            return Ok(trial);
        }
        self.let_all_end()?;
        self.n_runs += 1;
        let again = self.run_in_nursery(order, self.weights.values())?;
        let Some(again) = again.filter(|again| again.failure != trial.failure) else {
            return Ok(trial);
        };
        self.one_at_a_time();
        Ok(again)
    }

    fn one_at_a_time(&mut self) {
        self.at_once = 1;
        self.forget_wanted();
    }

    fn forget_wanted(&mut self) {
        self.ahead.retain(|(_, state)| !matches!(state, State::Wanted));
    }

    /// Waits for all runs that nobody has asked for yet.
    fn let_all_end(&mut self) -> Result<(), S::Error> {
        self.forget_wanted();
        for (order, state) in mem::take(&mut self.ahead) {
            let over = match state {
                State::UnderWay(job) => self.wait(job)?,
                State::Over(left) => Some(left),
                State::Wanted => None,
            };
            if let Some(over) = over.as_ref().filter(|over| over.interrupted) {
                self.shop.pass_on_interrupt(&over.left)?;
            }
            self.ahead.extend(over.map(|over| (order, State::Over(over))));
        }
        Ok(())
    }

    /// What came of a run that began before it was asked for; none if it did not, or was lost.
    fn begun_before(&mut self, order: &OrderOf<S>) -> Result<Option<TrialOf<S>>, S::Error> {
        let Some(at) = self.ahead.iter().position(|(ahead, _)| ahead == order) else {
            return Ok(None);
        };
        match self.ahead.remove(at).1 {
            State::Wanted => Ok(None),
            State::UnderWay(job) => {
                self.begin_what_is_wanted()?;
                self.finish(order, job)
            }
            State::Over(left) => self.read(order, left).map(Some),
        }
    }

    /// Begins what is wanted, as long as there are cores and memory beside the run that somebody waits for, which has begun.
    fn begin_what_is_wanted(&mut self) -> Result<(), S::Error> {
        // What is compiled is not checked for whether weights need values.
        while !self.weights.is_unknown() || self.shop.seems_to_compile() {
            let wanted = self.ahead.iter().enumerate();
            let wanted = wanted.filter(|(_, (_, state))| matches!(state, State::Wanted));
            let Some(at) = wanted.min_by_key(|(_, (order, _))| order.purpose).map(|it| it.0) else {
                break;
            };
            let is_served = self.shop.is_served(&self.ahead[at].0.what);
            if !is_served || self.at_once <= self.shop.under_way() || !self.shop.has_memory() {
                break;
            }
            let (order, _) = self.ahead.remove(at);
            let Some(job) = self.shop_begins(&order, self.weights.values())? else { break };
            self.n_runs += 1;
            self.ahead.push((order, State::UnderWay(job)));
        }
        Ok(())
    }

    /// Runs it in the nursery; none if there is none for it.
    fn run_in_nursery(
        &mut self,
        order: &OrderOf<S>,
        values: Values,
    ) -> Result<Option<TrialOf<S>>, S::Error> {
        let Some(job) = self.shop_begins(order, values)? else { return Ok(None) };
        self.begin_what_is_wanted()?;
        self.finish(order, job)
    }

    fn shop_begins(
        &mut self,
        order: &OrderOf<S>,
        values: Values,
    ) -> Result<Option<S::Job>, S::Error> {
        if !self.shop.is_served(&order.what) {
            return Ok(None);
        }
        let job = self.shop.begin(order, values)?;
        if job.is_none() {
            self.no_nursery_any_more();
        }
        Ok(job)
    }

    /// Waits for it to end. None if it has to be made again.
    fn finish(&mut self, order: &OrderOf<S>, job: S::Job) -> Result<Option<TrialOf<S>>, S::Error> {
        match self.wait(job)? {
            Some(left) => self.read(order, left).map(Some),
            None => Ok(None),
        }
    }

    fn read(&mut self, order: &OrderOf<S>, left: Finished<S>) -> Result<TrialOf<S>, S::Error> {
        let Finished { left, had_company, .. } = left;
        Ok(Trial { had_company, ..self.shop.read(order, left)? })
    }

    /// Waits for it to end; what it left is not read yet. Where other runs end meanwhile, what is wanted takes their cores.
    fn wait(&mut self, mut job: S::Job) -> Result<Option<Finished<S>>, S::Error> {
        loop {
            let or_others = self.ahead.iter().any(|(_, state)| matches!(state, State::Wanted));
            match self.shop.wait(job, or_others)? {
                Waited::Other(same) => {
                    job = same;
                    self.begin_what_is_wanted()?;
                }
                Waited::Lost => return Ok(None),
                Waited::NurseryGone => {
                    self.no_nursery_any_more();
                    return Ok(None);
                }
                Waited::Ended { left, had_company, host_ran_out, still_writes, interrupted } => {
                    if still_writes {
                        self.end_nursery();
                    }
                    if host_ran_out && 1 < self.at_once {
                        // Two at a time were too many.
                        self.at_once = 1;
                        self.end_nursery();
                        return Ok(None);
                    }
                    self.interrupted |= interrupted;
                    return Ok(Some(Finished { left, had_company, interrupted }));
                }
            }
        }
    }

    /// It died with a run, or cannot do it: that run is made again, by itself.
    fn no_nursery_any_more(&mut self) {
        self.end_nursery();
        self.may_nurse = false;
    }

    /// And all runs in it.
    fn end_nursery(&mut self) {
        self.shop.end_nursery();
        self.ahead.clear();
        self.weights.forget_check();
    }
}
