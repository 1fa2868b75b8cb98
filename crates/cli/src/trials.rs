//! Many runs of one script on one phantom: each with its own arguments and settings, each read as a prediction.
//! From the second run on they come out of a nursery where that is possible, and cost no imports.

use std::{collections::VecDeque, error::Error, ffi::OsString, fmt, fs, io, mem, thread};

use anyhow::Context as _;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use plimsoll_core::{
    cards::Card,
    prediction::{self, OtherEnd, Outcome, Prediction, Reached},
    recording::{Recording, contract::NoteKind},
    units::Bytes,
};
use plimsoll_writes::Layers;

use crate::{
    assumption::Assumption,
    cache::Cache,
    cli::WorldArgs,
    contract::{self, Setting},
    diagnosis,
    ghost_weights::GhostWeights,
    launch::{
        self, Begun, Device, Finished, Nursery, Order, Ranks, ScriptCommand, ScriptOutput, Signals,
        Stop,
    },
    phantom_run::{self, Left, Run, Runner, World},
    plan_settings::ALLOC_CONF,
};

/// So many runs are made at a time at most, however many cores there are.
const MOST_AT_ONCE: usize = 4;
/// Steps by which two runs are compared.
const EARLY: u32 = 2;
/// A run that was likely to be asked for is no longer, once so many others were.
const STALE: u64 = 4;
/// So often a run without values on the host may differ from one with them before it is believed that it does.
const UNLIKE: u32 = 3;

/// Where trials are made.
pub(crate) struct Trials {
    /// What the user takes for granted.
    assumed: Vec<Assumption>,
    runner: Runner,
    // In this order: the nursery ends, and then what runs have left goes; the signals are let go last.
    nursery: Option<Kept>,
    /// Runs that were begun before anybody asked for them, and those that wait for a core.
    begun: Vec<(Wanted, Early)>,
    wanted: VecDeque<(Wanted, u64)>,
    /// How many runs may be made at a time.
    at_once: usize,
    may_nurse: bool,
    /// Weights on the host may be ghosts: tried once, they changed nothing, or that is believed and being checked. None before.
    may_ghost: Option<bool>,
    check: Option<Check>,
    n_unlike: u32,
    /// Runs that somebody asked for.
    n_asked: u64,
    /// Somebody asked us to stop.
    interrupted: bool,
    pub(crate) n_runs: u64,
    signals: Signals,
}

/// What a trial runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phantom<'a> {
    pub(crate) card: &'a Card,
    /// At the other end of what it decides by itself.
    pub(crate) end: Option<OtherEnd>,
}

impl Phantom<'_> {
    fn conf(&self, assumed: &[Assumption]) -> String {
        let assumed: String = assumed.iter().map(|it| it.conf_line()).collect();
        let end = self.end.map_or("", phantom_run::conf_line);
        self.card.phantom_conf(1) + &assumed + end
    }
}

/// A run that is likely to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    command: Vec<OsString>,
    settings: Vec<Setting>,
    stop: Stop,
    /// What the phantom is told.
    conf: String,
    caches: Caches,
    is_proof: bool,
}

/// When what is likely to be asked for is wanted; the first begins first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The search goes on with it.
    Now,
    /// At the end, and it takes long.
    Proof,
    /// At the end: it counts the work of a step.
    Count,
}

impl Wanted {
    fn due(&self) -> Due {
        match self.settings.iter().any(|it| it.0 == contract::METER) {
            _ if self.is_proof => Due::Proof,
            true => Due::Count,
            false => Due::Now,
        }
    }
}

/// Where a run in the nursery finds what was compiled, and leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caches {
    /// Where those before it did.
    Shared,
    /// In a folder of its own, as a process of its own: compiling takes memory, too.
    Own,
}

/// A run in the nursery, and its world.
struct UnderWay {
    run: Begun,
    world: World,
}

/// A run that was begun before anybody asked for it.
enum Early {
    UnderWay(UnderWay),
    Over(Ran),
}

/// What a run in the nursery left.
struct Ran {
    left: Left,
    /// Others were on their way meanwhile, and may have been in its way: by a port, by a lock.
    had_company: bool,
}

/// What is believed until a run with values has ended: that one without them was like it.
struct Check {
    with_values: UnderWay,
    wanted: Wanted,
    without: Start,
}

/// Weights have no values in these runs, and that was believed to change nothing; it does. What was seen so far says nothing.
#[derive(Debug)]
pub(crate) struct ValuesMatter;

impl fmt::Display for ValuesMatter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values of weights on the host change what the script asks for")
    }
}

impl Error for ValuesMatter {}

/// A nursery, the command that it is for, and the world that it waits in.
struct Kept {
    nursery: Nursery,
    command: ScriptCommand,
    _world: World,
}

/// Allocations so far, and bytes, by device.
type Mark = (Vec<u64>, Vec<Bytes>);

/// What two runs are compared by.
struct Start {
    steps: u32,
    /// Where memory was at each mark of the first steps, of each process.
    marks: Vec<Vec<Mark>>,
    failure: Option<String>,
    n_ooms: usize,
}

/// One run and what it says.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) prediction: Prediction,
    /// Why it gave no answer, in one sentence.
    pub(crate) failure: Option<String>,
    /// Out-of-memory errors, those that the script caught included.
    pub(crate) n_ooms: usize,
    /// Somebody asked us to stop.
    pub(crate) interrupted: Option<Signal>,
    /// How often the allocator was full, gave its free memory back and went on.
    pub(crate) n_retries: u64,
    /// It was ended because it took more than can ever fit: what it says it took is less than it would have.
    pub(crate) was_cut: bool,
    /// What the phantom decided by itself.
    pub(crate) ends: Vec<OtherEnd>,
    /// Other runs were on their way meanwhile.
    had_company: bool,
    /// What was recorded of each process.
    pub(crate) recordings: Vec<Recording>,
    /// What the agent noted of the plan and of the work in a step; see [`Trial::noted`].
    pub(crate) notes: Vec<serde_json::Value>,
    /// Where memory was at each mark of the first steps, of each process.
    early: Vec<Vec<Mark>>,
}

impl Trial {
    /// The agent's last line of this kind: `blocks`, `work`, `split`.
    pub(crate) fn noted(&self, kind: NoteKind) -> Option<&serde_json::Value> {
        self.notes.iter().rev().find(|it| it["kind"] == kind.word())
    }

    /// Whether it used `torch.compile`.
    pub(crate) fn compiles(&self) -> bool {
        let mut remarks = self.recordings.iter().flat_map(|it| &it.notes.remarks);
        remarks.any(|it| it.code == "torch-compile")
    }

    /// Whether others may have been in its way: it failed, not for memory, and they were there.
    fn may_be_disturbed(&self) -> bool {
        let failed = self.failure.is_some() && self.n_ooms == 0 && self.interrupted.is_none();
        failed && self.had_company
    }

    fn start(&self) -> Start {
        Start {
            steps: self.prediction.seen.steps.min(EARLY),
            marks: self.early.clone(),
            failure: self.failure.clone(),
            n_ooms: self.n_ooms,
        }
    }
}

impl Start {
    /// Whether both asked for the same memory, step by step. Two runs of the very same script may differ by
    /// the rest of a block that was not worth splitting; and one that is stopped after the last of these steps has
    /// not the marks that come before the next one.
    fn is_like(&self, other: &Start) -> bool {
        let close = |a: &Bytes, b: &Bytes| a.0.abs_diff(b.0) <= a.0.max(1 << 30) / 1000;
        let same =
            |(a, b): (&Mark, &Mark)| a.0 == b.0 && a.1.iter().zip(&b.1).all(|(a, b)| close(a, b));
        let mut processes = self.marks.iter().zip(&other.marks);
        self.marks.len() == other.marks.len()
            && self.steps == other.steps
            && processes.all(|(a, b)| a.is_empty() == b.is_empty() && a.iter().zip(b).all(same))
            && (&self.failure, self.n_ooms) == (&other.failure, other.n_ooms)
    }
}

impl Trials {
    pub(crate) fn new(assumed: &[Assumption], args: &WorldArgs) -> anyhow::Result<Trials> {
        let runner = Runner::new(Cache::open()?, args)?;
        let signals = Signals::hold().context("cannot hold signals")?;
        // Each run has a layer of its own; a nursery is for children that can change theirs.
        let may_nurse = runner.layers().is_none_or(Layers::can_be_changed);
        let (may_ghost, check, n_unlike, n_runs) = (None, None, 0, 0);
        let nursery = None;
        let at_once = thread::available_parallelism().map_or(1, usize::from).min(MOST_AT_ONCE);
        Ok(Trials {
            assumed: assumed.to_vec(),
            runner,
            nursery,
            signals,
            begun: Vec::new(),
            wanted: VecDeque::new(),
            at_once,
            may_nurse,
            may_ghost,
            check,
            n_unlike,
            n_asked: 0,
            interrupted: false,
            n_runs,
        })
    }

    /// Whom the script reached outside of its own processes.
    pub(crate) fn reached(&self) -> Reached {
        self.runner.reached()
    }

    /// This run is likely to be asked for: it may begin while another one is made.
    pub(crate) fn soon(
        &mut self,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
        phantom: Phantom<'_>,
    ) {
        if !needs_own_process(settings) && 1 < self.at_once {
            let wanted = self.wanted(words, settings, stop, phantom);
            self.want(wanted);
        }
    }

    fn wanted(
        &self,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
        phantom: Phantom<'_>,
    ) -> Wanted {
        let conf = phantom.conf(&self.assumed);
        let (command, settings) = (words.to_vec(), settings.to_vec());
        Wanted { command, settings, stop, conf, caches: Caches::Shared, is_proof: false }
    }

    fn want(&mut self, run: Wanted) {
        self.wanted.retain(|it| it.0 != run);
        if !self.begun.iter().any(|it| it.0 == run) {
            self.wanted.push_back((run, self.n_asked));
        }
    }

    /// Begins what is wanted, as long as there are cores and memory for more than the run that somebody waits for, which has begun.
    fn begin_what_is_wanted(&mut self) -> anyhow::Result<()> {
        let asked = self.n_asked;
        self.wanted.retain(|it| asked < it.1 + STALE || it.0.due() != Due::Now);
        while !self.wanted.is_empty() {
            let Some(Kept { nursery, .. }) = &mut self.nursery else { return Ok(()) };
            // What is compiled is not checked for whether weights need values.
            if self.may_ghost.is_none() && !nursery.seems_to_compile() {
                return Ok(());
            }
            // Two at once begin before it is known what one takes, too, where weights are checked.
            let needs = nursery.most_memory().map_or(0, |it| it.saturating_mul(2));
            let has_room = free_memory().is_some_and(|free| needs < free);
            // The run that somebody waits for is one of them.
            if self.at_once <= nursery.n_under_way() || !has_room {
                return Ok(());
            }
            let first = (0..self.wanted.len()).min_by_key(|at| self.wanted[*at].0.due());
            let Some((it, _)) = first.and_then(|at| self.wanted.remove(at)) else { return Ok(()) };
            let command = ScriptCommand::resolve(&it.command)?;
            let begun = self.begin(&command, &it, self.weights())?;
            let Some(begun) = begun else { return Ok(()) };
            self.n_runs += 1;
            self.begun.push((it, Early::UnderWay(begun)));
        }
        Ok(())
    }

    /// What came of a run that was begun before it was asked for; nothing if it was not, or was lost.
    fn begun_before(
        &mut self,
        wanted: &Wanted,
        command: &ScriptCommand,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<Option<Trial>> {
        self.n_asked += 1;
        if let Some(at) = self.begun.iter().position(|it| it.0 == *wanted) {
            let (_, run) = self.begun.remove(at);
            return match run {
                Early::UnderWay(run) => {
                    self.begin_what_is_wanted()?;
                    self.finish(run, command, phantom)
                }
                Early::Over(ran) => Ok(Some(self.read_of(command, ran, phantom))),
            };
        }
        if let Some(at) = self.wanted.iter().position(|it| it.0 == *wanted) {
            self.wanted.remove(at);
        }
        Ok(None)
    }

    /// Runs `words` with `settings` in their environment.
    pub(crate) fn run(
        &mut self,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<Trial> {
        let command = there_is(words)?;
        self.checks(false, &command, phantom)?;
        let wanted = self.wanted(words, settings, stop, phantom);
        if let Some(trial) = self.begun_before(&wanted, &command, phantom)? {
            return self.undisturbed(trial, &wanted, &command, phantom);
        }
        self.n_runs += 1;
        if needs_own_process(settings) {
            return self.alone(&command, settings, stop, phantom);
        }
        self.has_nursery_for(&command, phantom)?;
        // They are compared by their first steps.
        let is_long = matches!(stop, Stop::Steady | Stop::Validation | Stop::OneValidation);
        let few = if is_long { Stop::Steps(EARLY) } else { stop };
        let few = Wanted { stop: few, ..wanted.clone() };
        let seems_to_compile = self.seems_to_compile();
        let is_first = self.may_ghost.is_none() && self.n_unlike == 0;
        if is_first && 1 < self.at_once && !seems_to_compile {
            let trial = self.run_believing(&command, &wanted, &few, phantom)?;
            if let Some(trial) = trial {
                return Ok(trial);
            }
        }
        let mut beside = match self.may_ghost {
            None if 1 < self.at_once && !seems_to_compile => {
                self.begin(&command, &few, GhostWeights::On)?
            }
            _ => None,
        };
        if let Some(trial) = self.run_in_nursery(&command, &wanted, phantom, self.weights())? {
            if self.may_ghost.is_none() && trial.compiles() {
                // The second one finds what the first one has compiled, and differs for that alone.
                self.may_ghost = Some(false);
                if let Some(run) = beside.take() {
                    self.finish(run, &command, phantom)?;
                }
            }
            if self.may_ghost.is_none() && trial.interrupted.is_none() {
                let before = self.n_unlike;
                self.n_runs += 1;
                let again = match beside.take() {
                    Some(run) => self.finish(run, &command, phantom)?,
                    None => self.run_in_nursery(&command, &few, phantom, GhostWeights::On)?,
                };
                // Runs of some scripts differ by themselves, now and then.
                self.n_unlike +=
                    u32::from(!again.is_some_and(|it| it.start().is_like(&trial.start())));
                self.may_ghost = match self.n_unlike {
                    0..UNLIKE if self.n_unlike == before => Some(true),
                    0..UNLIKE => None,
                    _ => Some(false),
                };
            }
            // After an interruption it still runs, and its world stays until the nursery has ended it.
            self.begun.extend(beside.map(|it| (wanted.clone(), Early::UnderWay(it))));
            return self.undisturbed(trial, &wanted, &command, phantom);
        }
        self.alone(&command, settings, stop, phantom)
    }

    /// `trial`, or where other runs may have been in its way, what comes of the same with none beside it. If that is another
    /// answer, runs are made one at a time from here on: of some scripts two need the same port.
    fn undisturbed(
        &mut self,
        trial: Trial,
        wanted: &Wanted,
        command: &ScriptCommand,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<Trial> {
        if !trial.may_be_disturbed() {
            return Ok(trial);
        }
        self.lets_all_end()?;
        self.n_runs += 1;
        let again = self.run_in_nursery(command, wanted, phantom, self.weights())?;
        let Some(again) = again else { return Ok(trial) };
        if again.failure == trial.failure {
            return Ok(trial);
        }
        self.one_at_a_time();
        Ok(again)
    }

    fn one_at_a_time(&mut self) {
        self.at_once = 1;
        self.wanted.clear();
    }

    /// Waits for all runs that nobody has asked for yet.
    fn lets_all_end(&mut self) -> anyhow::Result<()> {
        self.wanted.clear();
        for (wanted, early) in mem::take(&mut self.begun) {
            let over = match early {
                Early::UnderWay(run) => self.ends(run)?,
                Early::Over(ran) => Some(ran),
            };
            if let Some(signal) = over.as_ref().and_then(|it| it.left.ended.interrupted) {
                // The run that follows has to hear of it.
                kill(Pid::this(), signal)?;
            }
            self.begun.extend(over.map(|it| (wanted, Early::Over(it))));
        }
        Ok(())
    }

    /// The first run, without values, and beside it the first steps of one with values like those that the script draws. What comes of
    /// the other one is looked at when it has ended. Nothing if the run says too little to go on with.
    fn run_believing(
        &mut self,
        command: &ScriptCommand,
        wanted: &Wanted,
        few: &Wanted,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<Option<Trial>> {
        let Some(with_values) = self.begin(command, few, GhostWeights::StandIns)? else {
            return Ok(None);
        };
        self.n_runs += 1;
        let Some(run) = self.begin(command, wanted, GhostWeights::On)? else { return Ok(None) };
        let Some(trial) = self.finish(run, command, phantom)? else { return Ok(None) };
        if trial.interrupted.is_some() {
            // It still runs, and its world stays until the nursery has ended it.
            self.begun.push((few.clone(), Early::UnderWay(with_values)));
            return Ok(Some(trial));
        }
        if trial.compiles() {
            // The second one finds what the first one has compiled, and differs for that alone.
            self.may_ghost = Some(false);
            self.finish(with_values, command, phantom)?;
            self.n_runs += 1;
            let wanted = Wanted { caches: Caches::Own, ..wanted.clone() };
            return self.run_in_nursery(command, &wanted, phantom, GhostWeights::Auto);
        }
        if trial.may_be_disturbed() {
            let other = self.finish(with_values, command, phantom)?;
            if other.is_some_and(|it| it.failure == trial.failure) {
                self.may_ghost = Some(true);
                return Ok(Some(trial));
            }
            self.one_at_a_time();
            return Ok(None);
        }
        let is_clear = trial.failure.is_none() && trial.n_ooms == 0;
        let check = Check { with_values, wanted: few.clone(), without: trial.start() };
        self.check = Some(check);
        self.may_ghost = Some(true);
        if is_clear {
            return Ok(Some(trial));
        }
        Ok(self.checks(true, command, phantom).is_ok().then_some(trial))
    }

    /// Whether what is believed of weights without values holds, as far as that is known by now; with `waits`, it is known.
    ///
    /// # Errors
    ///
    /// [`ValuesMatter`].
    fn checks(
        &mut self,
        waits: bool,
        command: &ScriptCommand,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<()> {
        let Some(check) = self.check.take() else { return Ok(()) };
        let nursery = self.nursery.as_mut();
        let is_over = nursery.is_none_or(|it| it.nursery.is_over(&check.with_values.run));
        if !is_over && !waits {
            self.check = Some(check);
            return Ok(());
        }
        let Check { with_values, wanted, without } = check;
        let mut trial = self.finish(with_values, command, phantom)?;
        if trial.as_ref().is_some_and(Trial::may_be_disturbed) && without.failure.is_none() {
            self.lets_all_end()?;
            self.one_at_a_time();
            self.n_runs += 1;
            trial = self.run_in_nursery(command, &wanted, phantom, GhostWeights::Auto)?;
        }
        if trial.as_ref().is_some_and(|it| it.interrupted.is_some()) {
            return Ok(());
        }
        if trial.is_some_and(|it| it.start().is_like(&without)) {
            return Ok(());
        }
        (self.may_ghost, self.n_unlike) = (None, self.n_unlike + 1);
        self.wanted.clear();
        if !self.begun.is_empty() {
            // They still run.
            self.end_nursery();
        }
        Err(ValuesMatter.into())
    }

    /// Waits until it is known that what was seen so far holds.
    ///
    /// # Errors
    ///
    /// [`ValuesMatter`].
    pub(crate) fn is_certain(&mut self, phantom: Phantom<'_>) -> anyhow::Result<()> {
        let command = self.nursery.as_ref().map(|it| it.command.clone());
        match command.filter(|_| !self.interrupted) {
            Some(command) => self.checks(true, &command, phantom),
            None => Ok(()),
        }
    }

    /// Whether weights have values in the runs of this search: filling them with random numbers is most of what a short run of most
    /// scripts does.
    fn weights(&self) -> GhostWeights {
        if self.may_ghost == Some(true) { GhostWeights::On } else { GhostWeights::Auto }
    }

    /// Runs it in the nursery; nothing if there is none for it.
    fn run_in_nursery(
        &mut self,
        command: &ScriptCommand,
        wanted: &Wanted,
        phantom: Phantom<'_>,
        weights: GhostWeights,
    ) -> anyhow::Result<Option<Trial>> {
        let Some(run) = self.begin(command, wanted, weights)? else { return Ok(None) };
        self.begin_what_is_wanted()?;
        self.finish(run, command, phantom)
    }

    /// Begins it in the nursery.
    fn begin(
        &mut self,
        command: &ScriptCommand,
        wanted: &Wanted,
        weights: GhostWeights,
    ) -> anyhow::Result<Option<UnderWay>> {
        let Some(kept) = self.nursery.as_mut().filter(|it| serves(it, command)) else {
            return Ok(None);
        };
        let world = self.runner.world(&wanted.conf)?;
        let arguments = command.script_arguments().1;
        let mut settings = wanted.settings.clone();
        settings.push((contract::GHOST_WEIGHTS, weights.word().into()));
        settings.extend(unhurried(wanted.stop));
        if wanted.caches == Caches::Own {
            settings.extend(launch::caches(world.session.path()));
        }
        // What other runs are checked by, and what proves something, takes nothing from them.
        if wanted.is_proof || weights == GhostWeights::StandIns {
            settings.push((contract::OWN_BATCHES, "1".into()));
        }
        let layer = world.layer.as_ref();
        let environment = &command.environment;
        let (session, settings) = (&world.session, &settings);
        let stop = wanted.stop;
        let order = Order { arguments, environment, session, layer, stop, settings };
        let Some(run) = kept.nursery.begin(order) else {
            self.no_nursery_any_more();
            return Ok(None);
        };
        Ok(Some(UnderWay { run, world }))
    }

    /// Waits for it to end. Nothing if it has to be made again.
    fn finish(
        &mut self,
        run: UnderWay,
        command: &ScriptCommand,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<Option<Trial>> {
        Ok(self.ends(run)?.map(|ran| self.read_of(command, ran, phantom)))
    }

    fn read_of(&self, command: &ScriptCommand, ran: Ran, phantom: Phantom<'_>) -> Trial {
        let Ran { left, had_company } = ran;
        Trial { had_company, ..self.read(command, left, phantom) }
    }

    /// The same, and what it says is not read yet. Where other runs end meanwhile, what is wanted takes their cores.
    fn ends(&mut self, UnderWay { run, world }: UnderWay) -> anyhow::Result<Option<Ran>> {
        let layer = world.layer.as_ref();
        let ended = loop {
            let Some(kept) = self.nursery.as_mut() else { return Ok(None) };
            if kept.nursery.has_lost(&run) {
                return Ok(None);
            }
            let or_others = !self.wanted.is_empty();
            let session = &world.session;
            match kept.nursery.finish(&run, session, layer, &self.signals, or_others)? {
                Some(Finished::This(ended)) => break ended,
                Some(Finished::Other) => self.begin_what_is_wanted()?,
                None => {
                    self.no_nursery_any_more();
                    return Ok(None);
                }
            }
        };
        if ended.wrote_too_much.is_some() {
            self.end_nursery();
        }
        if ended.host_ran_out && 1 < self.at_once {
            // Two at a time were too many.
            self.at_once = 1;
            self.end_nursery();
            return Ok(None);
        }
        self.interrupted |= ended.interrupted.is_some();
        let had_company = self.nursery.as_ref().is_some_and(|it| it.nursery.had_company(&run));
        let left = self.runner.left(world, ended)?;
        Ok(Some(Ran { left, had_company }))
    }

    /// It died with a run, or cannot do it: that run is made again, by itself.
    fn no_nursery_any_more(&mut self) {
        self.end_nursery();
        self.may_nurse = false;
    }

    /// And all runs in it.
    fn end_nursery(&mut self) {
        self.nursery = None;
        self.begun.clear();
        self.wanted.clear();
        if self.check.take().is_some() {
            self.may_ghost = None;
        }
    }

    /// Runs `words` once as a process of its own.
    pub(crate) fn run_alone(
        &mut self,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<Trial> {
        self.n_runs += 1;
        let command = ScriptCommand::resolve(words)?;
        self.alone(&command, settings, stop, phantom)
    }

    /// Runs `words` once as a process of its own, or in the nursery where that is the same; what it would compile it may find
    /// in `caches`.
    pub(crate) fn prove(
        &mut self,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
        phantom: Phantom<'_>,
        caches: Caches,
    ) -> anyhow::Result<Trial> {
        let command = ScriptCommand::resolve(words)?;
        self.checks(false, &command, phantom)?;
        if !self.is_as_alone(&command, settings) {
            return self.run_alone(words, settings, stop, phantom);
        }
        let wanted = self.wanted(words, settings, stop, phantom);
        let wanted = Wanted { caches, is_proof: true, ..wanted };
        // Proofs that were likely before, and not now, are not: plans were found that are better.
        let asked = self.n_asked;
        self.wanted.retain(|it| !it.0.is_proof || it.1 == asked);
        if let Some(trial) = self.begun_before(&wanted, &command, phantom)? {
            return self.undisturbed(trial, &wanted, &command, phantom);
        }
        self.n_runs += 1;
        match self.run_in_nursery(&command, &wanted, phantom, self.weights())? {
            Some(trial) => self.undisturbed(trial, &wanted, &command, phantom),
            None => self.alone(&command, settings, stop, phantom),
        }
    }

    /// Whether such a run in the nursery is what it would be as a process of its own. What decides which allocator there is, or is
    /// the one of the host's pinned memory, is read while torch is imported, and proven by a process that imports it; the rest is
    /// told to the device's before it does anything.
    fn is_as_alone(&self, command: &ScriptCommand, settings: &[Setting]) -> bool {
        let serves = |it: &&Kept| serves(it, command) && it.nursery.is_as_a_process();
        self.nursery.as_ref().is_some_and(|it| serves(&it)) && !reads_while_imported(settings)
    }

    /// The run of a proof is likely to be asked for; it may begin beside others where it need not be a process of its own.
    pub(crate) fn proof_soon(
        &mut self,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
        phantom: Phantom<'_>,
        caches: Caches,
    ) -> anyhow::Result<()> {
        if 1 < self.at_once && self.is_as_alone(&ScriptCommand::resolve(words)?, settings) {
            let wanted = self.wanted(words, settings, stop, phantom);
            self.want(Wanted { caches, is_proof: true, ..wanted });
        }
        Ok(())
    }

    /// Runs `words` for so many steps on the machine's own device, or on so many of them, and has the steps measured.
    pub(crate) fn measure(
        &mut self,
        words: &[OsString],
        settings: &[Setting],
        steps: u32,
        devices: Option<u32>,
        card: &Card,
    ) -> anyhow::Result<Trial> {
        let settings: Vec<Setting> = settings.iter().cloned().chain(MEASURED.map(own)).collect();
        let ranks = devices.map_or(Ranks::All, |world| Ranks::Several { world });
        let command = ScriptCommand::resolve(words)?;
        let phantom = Phantom { card, end: None };
        self.launch(&command, &settings, Stop::Steps(steps), ranks, Device::Measured, phantom)
    }

    /// Runs `command` as a process of its own.
    fn alone(
        &mut self,
        command: &ScriptCommand,
        settings: &[Setting],
        stop: Stop,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<Trial> {
        let ranks = Ranks::OfLauncher { rank: 0 };
        let settings = [settings, &unhurried(stop)].concat();
        self.launch(command, &settings, stop, ranks, Device::Phantom, phantom)
    }

    fn launch(
        &mut self,
        command: &ScriptCommand,
        settings: &[Setting],
        stop: Stop,
        ranks: Ranks,
        device: Device,
        phantom: Phantom<'_>,
    ) -> anyhow::Result<Trial> {
        self.checks(true, command, phantom)?;
        let conf = phantom.conf(&self.assumed);
        let run = Run {
            command,
            conf: &conf,
            stop,
            ranks,
            ghost_weights: if self.may_ghost == Some(true) && device == Device::Phantom {
                GhostWeights::On
            } else {
                GhostWeights::Auto
            },
            output: ScriptOutput::InSession,
            settings,
            device,
        };
        // A run of its own ends all that is below us but a nursery that waits.
        self.lets_all_end()?;
        let nursery = self.nursery.as_ref().and_then(|it| it.nursery.pid());
        let left = self.runner.run_beside(nursery, run, &self.signals, None)?;
        self.interrupted |= left.ended.interrupted.is_some();
        Ok(self.read(command, left, phantom))
    }

    /// Whether the script speaks of `torch.compile`; false, too, where there is no nursery to read it.
    pub(crate) fn speaks_of_compile(
        &mut self,
        words: &[OsString],
        phantom: Phantom<'_>,
    ) -> anyhow::Result<bool> {
        self.has_nursery_for(&there_is(words)?, phantom)?;
        Ok(self.seems_to_compile())
    }

    fn seems_to_compile(&self) -> bool {
        self.nursery.as_ref().is_some_and(|it| it.nursery.seems_to_compile())
    }

    /// Starts a nursery where there is none for this program and there may be one.
    fn has_nursery_for(&mut self, command: &ScriptCommand, phantom: Phantom<'_>) -> io::Result<()> {
        if self.may_nurse && !self.nursery.as_ref().is_some_and(|it| serves(it, command)) {
            self.nursery = self.start(command, phantom)?;
            self.may_nurse = self.nursery.is_some();
        }
        Ok(())
    }

    fn start(&self, command: &ScriptCommand, phantom: Phantom<'_>) -> io::Result<Option<Kept>> {
        let Ok(world) = self.runner.world(&phantom.conf(&self.assumed)) else { return Ok(None) };
        let (bundle, layer) = (self.runner.bundle(), world.layer.as_ref());
        let nursery = Nursery::start(command, bundle, &world.session, layer, &self.signals)?;
        Ok(nursery.map(|it| Kept { nursery: it, command: command.clone(), _world: world }))
    }

    fn read(&self, command: &ScriptCommand, left: Left, phantom: Phantom<'_>) -> Trial {
        let Left { ended, folders, last_words, .. } = left;
        let (recordings, _) = phantom_run::read(&folders);
        let ended = &diagnosis::without_a_late_signal(ended, &recordings);
        let facts = phantom_run::facts(ended, None);
        let prediction = prediction::predict(&recordings, phantom.card, facts);
        let ends = phantom_run::left_open(&recordings, &self.assumed);
        let ran = prediction.outcome != Outcome::OutOfMemory;
        let raised =
            |it: &Recording| it.notes.end.as_ref().is_some_and(|it| it.exception.is_some());
        let says_why = || recordings.iter().any(raised) || ended.interrupted.is_some();
        let failure = diagnosis::diagnose(command, ended, &recordings).map(|why| {
            let words = last_words.filter(|_| !says_why());
            words.map_or_else(|| why.clone(), |it| format!("{why}; its last words: {it}"))
        });
        let lines = folders.iter().flat_map(|it| it.notes.split(|it| *it == b'\n'));
        let notes = lines.filter(|it| is_ours(it)).filter_map(|it| serde_json::from_slice(it).ok());
        let notes: Vec<serde_json::Value> = notes.collect();
        let was_cut = notes.iter().any(|it| it["kind"] == NoteKind::Hopeless.word());
        let failure = failure.or_else(|| {
            let nothing = ran && prediction.seen.steps == 0 && !was_cut;
            nothing.then(|| "it ended without a training step".to_owned())
        });
        let n_ooms = recordings.iter().map(|it| it.notes.ooms.len()).sum();
        let n_retries = recordings.iter().flat_map(|it| &it.notes.stats).map(|it| it.retries).sum();
        let early = |it: &Recording| {
            let marks = it.notes.marks.iter().filter(|it| it.step <= EARLY);
            marks.map(|it| (it.place.allocs.clone(), it.allocated.clone())).collect()
        };
        let early = recordings.iter().map(early).collect();
        Trial {
            prediction,
            ends,
            recordings,
            failure,
            had_company: false,
            n_ooms,
            interrupted: ended.interrupted,
            n_retries,
            was_cut,
            notes,
            early,
        }
    }
}

/// What a run has in its environment whose steps are measured: a recorder that costs as little as it can.
const MEASURED: [(&str, &str); 3] =
    [(contract::MEASURE, "1"), (contract::STACKS, "none"), (contract::EVENTS, "1000")];

/// What a run that ends before its script does has in its environment: what its workers make ahead is thrown away.
fn unhurried(stop: Stop) -> Vec<Setting> {
    if stop == Stop::UntilExit { Vec::new() } else { vec![(contract::UNHURRIED, "1".into())] }
}

fn own((name, value): (&'static str, &str)) -> Setting {
    (name, value.into())
}

/// The command, with a script that exists.
fn there_is(words: &[OsString]) -> anyhow::Result<ScriptCommand> {
    let command = ScriptCommand::resolve(words)?;
    let script = command.is_python().then(|| command.python_words().1).flatten();
    if let Some(script) = script.filter(|it| !it.exists()) {
        anyhow::bail!("{}", launch::no_such_script(script));
    }
    Ok(command)
}

/// Which allocator it is, is decided while torch is imported; the rest can be told later.
fn needs_own_process(settings: &[Setting]) -> bool {
    settings
        .iter()
        .any(|(name, value)| *name == ALLOC_CONF && value.to_string_lossy().contains("backend"))
}

/// Likewise, or it is read for the host's pinned memory.
fn reads_while_imported(settings: &[Setting]) -> bool {
    let is_for_host =
        |it: &Setting| it.0 == ALLOC_CONF && it.1.to_string_lossy().contains("pinned");
    needs_own_process(settings) || settings.iter().any(is_for_host)
}

/// What the host has free, in bytes.
fn free_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether the nursery was made for this program: its arguments may differ.
fn serves(kept: &Kept, command: &ScriptCommand) -> bool {
    let program = |it: &ScriptCommand| {
        let (word, rest) = it.script_arguments();
        let n_before = it.arguments.len() - rest.len();
        (it.program.clone(), it.arguments[..n_before].to_vec(), word.map(std::path::Path::to_owned))
    };
    program(&kept.command) == program(command)
}

/// What the agent notes of plans.
const OF_PLANS: [NoteKind; 10] = [
    NoteKind::Refused,
    NoteKind::Blocks,
    NoteKind::BlockMemory,
    NoteKind::BlockWork,
    NoteKind::Work,
    NoteKind::Split,
    NoteKind::Exact,
    NoteKind::Sites,
    NoteKind::Compiled,
    NoteKind::Hopeless,
];

/// Whether a line of the agent's notes is about a plan: most are long and about something else.
fn is_ours(line: &[u8]) -> bool {
    OF_PLANS.iter().any(|it| line.starts_with(format!("{{\"kind\":\"{}\"", it.word()).as_bytes()))
}
