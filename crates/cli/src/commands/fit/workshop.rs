//! Makes the runs of `fit`: in a nursery, or as processes of their own. Which, and when, `plimsoll_fit::trials` says.

use std::{ffi::OsString, path::PathBuf, rc::Rc, time::SystemTime};

use anyhow::Context as _;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use plimsoll_core::{
    cards::Card,
    explanation,
    findings::Finding,
    prediction::{OtherEnd, Outcome, Prediction, Runs},
    recording::{PlanNotes, Reached, Recording},
    units::Bytes,
};
use plimsoll_fit::{
    search::{ByHand, Until},
    trials::{EARLY, Failure, Mark, Order, Purpose, Start, Trial, Values, Waited, Workshop},
};
use plimsoll_writes::Layers;

use crate::{
    cache::Cache,
    commands::lint::beside,
    contract::{self, Setting},
    engine::{
        diagnosis, host_memory,
        launch::{
            self, Begun, Device, End, Ended, Finished, Nursery, Ranks, ScriptCommand, ScriptOutput,
            Signals, Stop,
        },
        phantom_run::{self, Run, RunOutput, Runner, World},
        plan_settings::ALLOC_CONF,
    },
    options::{assumption::Assumption, cli::WorldArgs, ghost_weights::GhostWeights},
};

/// Where runs are made.
pub(super) struct Shop {
    /// What the user takes for granted.
    assumed: Vec<Assumption>,
    runner: Runner,
    nursery: Option<WaitingNursery>,
    signals: Rc<Signals>,
}

/// What is run, on which phantom.
#[derive(Clone, Debug)]
pub(super) struct What {
    pub(super) words: Vec<OsString>,
    pub(super) settings: Vec<Setting>,
    pub(super) card: Rc<Card>,
    /// At the other end of what the phantom decides by itself.
    pub(super) ends: Vec<OtherEnd>,
    /// Which ranks of a job.
    pub(super) ranks: Ranks,
}

impl PartialEq for What {
    fn eq(&self, other: &What) -> bool {
        let key = |what: &What| (what.card.phantom_conf(1), what.ends.clone(), what.ranks.clone());
        (&self.words, &self.settings) == (&other.words, &other.settings) && key(self) == key(other)
    }
}

/// A nursery, the command that it is for, and the world that it waits in.
struct WaitingNursery {
    nursery: Nursery,
    command: ScriptCommand,
    /// Where its children leave what they compile, and find what others did.
    compiled: [PathBuf; 2],
    _world: World,
}

/// A run in the nursery, and its world.
pub(super) struct Job {
    run: Begun,
    world: World,
}

/// What a run says.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) prediction: Prediction,
    /// What only an edit of the script would give back.
    pub(super) by_hand: Vec<ByHand>,
    /// Why it gave no answer, in one sentence.
    pub(super) failure: Option<String>,
    /// Somebody asked us to stop.
    pub(super) interrupted: Option<Signal>,
    /// How often the allocator was full, gave its free memory back and went on.
    pub(super) n_retries: u64,
    /// It was ended because it took more than can ever fit: what it says it took is less than it would have.
    pub(super) was_cut: bool,
    /// What the phantom decided by itself.
    pub(super) ends: Vec<OtherEnd>,
    /// It is one rank of a job, or one end of a race or of a router.
    pub(super) is_part: bool,
    /// What it took of the host; nothing of a run in the nursery.
    pub(super) of_host: Bytes,
    /// What was recorded of each process.
    pub(super) recordings: Vec<Recording>,
}

impl Read {
    /// What the last process that noted it says of the plan.
    pub(super) fn noted<'a, T>(&'a self, what: impl Fn(&'a PlanNotes) -> Option<T>) -> Option<T> {
        self.recordings.iter().rev().find_map(|it| what(&it.notes.plan))
    }

    /// Whether it used `torch.compile`.
    pub(super) fn compiles(&self) -> bool {
        self.recordings.iter().any(|it| it.notes.plan.compiles)
    }
}

impl Shop {
    /// Where runs are made, with the signals that it holds.
    pub(super) fn open(
        assumed: &[Assumption],
        args: &WorldArgs,
    ) -> anyhow::Result<(Shop, Rc<Signals>)> {
        let runner = Runner::new(Cache::open()?, args)?;
        let signals = Rc::new(Signals::hold().context("cannot hold signals")?);
        let assumed = assumed.to_vec();
        Ok((Shop { assumed, runner, nursery: None, signals: Rc::clone(&signals) }, signals))
    }

    /// Whether a nursery may be tried: each run has a layer of its own, and a nursery is for children that can change theirs.
    pub(super) fn may_nurse(&self) -> bool {
        self.runner.layers().is_none_or(Layers::can_be_changed)
    }

    /// Runs for so many steps on the machine's own device, or on so many of them, and has the steps measured.
    pub(super) fn measure(
        &mut self,
        what: &What,
        steps: u32,
        devices: Option<u32>,
    ) -> anyhow::Result<Read> {
        let settings: Vec<Setting> =
            what.settings.iter().cloned().chain(MEASURED.map(own)).collect();
        let ranks = devices.map_or(Ranks::All, |world| Ranks::Several { world });
        let stop = Stop::Steps(steps);
        let what = What { settings, ..what.clone() };
        let left = self.launch(&what, stop, ranks, Device::Measured, GhostWeights::Auto)?;
        Ok(self.read_left(&what, left)?.read)
    }

    /// Whom the script reached outside of its own processes, in all its runs so far.
    pub(super) fn reached(&self) -> Reached {
        self.runner.reached()
    }

    fn conf(&self, what: &What) -> String {
        let assumed: String = self.assumed.iter().map(|it| it.conf_line()).collect();
        let ends: String = what.ends.iter().copied().map(phantom_run::conf_line).collect();
        what.card.phantom_conf(1) + &assumed + &ends
    }

    fn launch(
        &self,
        what: &What,
        stop: Stop,
        ranks: Ranks,
        device: Device,
        ghost_weights: GhostWeights,
    ) -> anyhow::Result<RunOutput> {
        let command = ScriptCommand::resolve(&what.words)?;
        let run = Run {
            command: &command,
            conf: &self.conf(what),
            stop,
            ranks: &ranks,
            ghost_weights,
            output: ScriptOutput::InSession,
            settings: &what.settings,
            device,
        };
        // A run of its own ends all that is below us but a nursery that waits.
        let nursery = self.nursery.as_ref().and_then(|kept| kept.nursery.pid());
        self.runner.run_beside(nursery, run, &self.signals, None)
    }

    fn read_left(&self, what: &What, left: RunOutput) -> anyhow::Result<Trial<Read>> {
        let command = ScriptCommand::resolve(&what.words)?;
        let RunOutput { ended, folders, last_words, .. } = left;
        let (recordings, _) = phantom_run::read(&folders);
        let ended = &diagnosis::without_a_late_signal(ended, &recordings);
        let facts = phantom_run::facts(ended, None);
        let runs = Runs::of(&recordings, &what.card);
        let prediction = runs.predict(facts);
        let by_hand = by_hand(what, &runs, prediction.outcome == Outcome::OutOfMemory);
        drop(runs);
        let mut ends = phantom_run::left_open(&recordings, &self.assumed);
        let has_others = ends.iter().any(|it| matches!(it, OtherEnd::Late | OtherEnd::Routed));
        let is_part = has_others || phantom_run::world_of(&recordings).is_some();
        if is_part {
            ends.retain(|it| *it == OtherEnd::Found); // The others are of what `predict` runs.
        }
        let ran = prediction.outcome != Outcome::OutOfMemory;
        let raised =
            |it: &Recording| it.notes.end.as_ref().is_some_and(|it| it.exception.is_some());
        let says_why = || recordings.iter().any(raised) || ended.interrupted.is_some();
        let failure = diagnosis::diagnose(&command, ended, &recordings).map(|why| {
            let words = last_words.filter(|_| !says_why());
            words.map_or_else(|| why.clone(), |it| format!("{why}; its last words: {it}"))
        });
        let was_cut = recordings.iter().any(|it| it.notes.plan.hopeless);
        let has_no_step = ran && prediction.seen.steps == 0 && !was_cut;
        let kind = match &failure {
            Some(_) => Some(failure_of(ended, &recordings)),
            None => has_no_step.then_some(Failure::NoStep),
        };
        let nothing = || "it ended without a training step".to_owned();
        let failure = failure.or_else(|| has_no_step.then(nothing));
        let n_ooms = recordings.iter().map(|it| it.notes.ooms.len()).sum();
        let n_retries = recordings.iter().flat_map(|it| &it.notes.stats).map(|it| it.retries).sum();
        let early = |recording: &Recording| -> Vec<Mark> {
            let marks = recording.notes.marks.iter().filter(|it| it.step <= EARLY);
            marks.map(|it| (it.place.allocs.clone(), it.allocated.clone())).collect()
        };
        let marks = recordings.iter().map(early).collect();
        let start = Start { steps: prediction.seen.steps.min(EARLY), marks };
        let interrupted = ended.interrupted;
        let read = Read {
            prediction,
            by_hand,
            ends,
            is_part,
            of_host: ended.host.peak,
            recordings,
            failure,
            interrupted,
            n_retries,
            was_cut,
        };
        let compiles = read.compiles();
        Ok(Trial { failure: kind, n_ooms, compiles, start, had_company: false, read })
    }
}

/// What only an edit of the script would give back: asked of the script as it is. What `lint` finds at its lines stands beside it.
fn by_hand(what: &What, runs: &Runs<'_>, ran_out: bool) -> Vec<ByHand> {
    if what.settings.iter().any(|it| it.0 == contract::PLAN) {
        return Vec::new();
    }
    let mut found = explanation::edits_of(runs);
    beside::tell(&mut found, SystemTime::now());
    let lint =
        |it: &Finding| it.evidence.iter().find(|it| it.starts_with(beside::BY_LINT)).cloned();
    let by_hand = |it: Finding| {
        let change =
            lint(&it).map_or_else(|| it.remedy.clone(), |lint| format!("{}. {lint}", it.remedy));
        ByHand { code: it.code, what: it.title, bytes: it.bytes, ran_out, at: it.at, change }
    };
    found.into_iter().map(by_hand).collect()
}

impl Workshop for Shop {
    type What = What;
    type Job = Job;
    type Output = RunOutput;
    type Read = Read;
    type Error = anyhow::Error;

    fn has_nursery(&mut self, what: &What) -> anyhow::Result<bool> {
        let command = existing(&what.words)?;
        let Ok(world) = self.runner.world(&self.conf(what), &[]) else { return Ok(false) };
        let compiled = world.session.share_what_is_compiled()?;
        let (bundle, layer) = (self.runner.bundle(), world.layer.as_ref());
        let nursery = Nursery::start(&command, bundle, &world.session, layer, &self.signals)?;
        // Its children's workers may import what it has compiled just now.
        if let Some(layer) = layer {
            bundle.keep_bytecode(layer);
        }
        self.nursery =
            nursery.map(|nursery| WaitingNursery { nursery, command, compiled, _world: world });
        Ok(self.nursery.is_some())
    }

    fn is_served(&self, what: &What) -> bool {
        let command = ScriptCommand::resolve(&what.words);
        let (Some(kept), Ok(command)) = (&self.nursery, command) else { return false };
        // Its arguments may differ.
        let program = |command: &ScriptCommand| {
            let (word, rest) = command.script_arguments();
            let n_before = command.arguments.len() - rest.len();
            let before = command.arguments[..n_before].to_vec();
            (command.program.clone(), before, word.map(std::path::Path::to_owned))
        };
        program(&kept.command) == program(&command)
    }

    fn begin(&mut self, order: &Order<What>, values: Values) -> anyhow::Result<Option<Job>> {
        let conf = self.conf(&order.what);
        let Some(kept) = &mut self.nursery else { return Ok(None) };
        let world = self.runner.world(&conf, &kept.compiled)?;
        let command = ScriptCommand::resolve(&order.what.words)?;
        let stop = stop(order);
        let mut settings = order.what.settings.clone();
        settings.push((contract::GHOST_WEIGHTS, ghost_weights(values).word().into()));
        settings.extend(unhurried(stop));
        if order.compiles_anew {
            settings.extend(launch::caches(world.session.path()));
        }
        // What other runs are checked by, and what proves something, takes nothing from them.
        if order.purpose == Purpose::Proof || values == Values::StandIns {
            settings.push((contract::OWN_BATCHES, "1".into()));
        }
        let run = kept.nursery.begin(launch::Order {
            arguments: command.script_arguments().1,
            environment: &command.environment,
            session: &world.session,
            layer: world.layer.as_ref(),
            stop,
            settings: &settings,
        });
        Ok(run.map(|run| Job { run, world }))
    }

    fn wait(&mut self, job: Job, or_others: bool) -> anyhow::Result<Waited<RunOutput, Job>> {
        let Some(WaitingNursery { nursery, .. }) = &mut self.nursery else {
            return Ok(Waited::Lost);
        };
        if nursery.has_lost(&job.run) {
            return Ok(Waited::Lost);
        }
        let World { session, layer } = &job.world;
        let finished =
            nursery.finish(&job.run, session, layer.as_ref(), &self.signals, or_others)?;
        let ended = match finished {
            None => return Ok(Waited::NurseryGone),
            Some(Finished::Other) => return Ok(Waited::Other(job)),
            Some(Finished::This(ended)) => ended,
        };
        let still_writes = ended.wrote_too_much.is_some();
        if still_writes {
            self.nursery = None;
        }
        let had_company =
            self.nursery.as_ref().is_some_and(|kept| kept.nursery.had_company(&job.run));
        Ok(Waited::Ended {
            had_company,
            host_ran_out: ended.host_ran_out,
            still_writes,
            interrupted: ended.interrupted.is_some(),
            left: self.runner.output(job.world, ended)?,
        })
    }

    fn is_over(&mut self, job: &Job) -> bool {
        self.nursery.as_mut().is_none_or(|kept| kept.nursery.is_over(&job.run))
    }

    fn end_nursery(&mut self) {
        self.nursery = None;
    }

    fn under_way(&mut self) -> usize {
        self.nursery.as_mut().map_or(0, |kept| kept.nursery.n_under_way())
    }

    fn has_memory(&self) -> bool {
        let most = self.nursery.as_ref().and_then(|kept| kept.nursery.most_memory());
        let needs = most.map_or(0, |bytes| bytes.saturating_mul(2));
        host_memory::free().is_some_and(|free| needs < free)
    }

    fn seems_to_compile(&self) -> bool {
        self.nursery.as_ref().is_some_and(|kept| kept.nursery.seems_to_compile())
    }

    fn needs_process(&self, what: &What) -> bool {
        names(&what.settings, "backend")
    }

    /// What decides which allocator there is, or is the one of the host's pinned memory, is read while torch is imported, and proven by a process
    /// that imports it; the rest is said to the device's before it does anything.
    fn is_as_a_process(&self, what: &What) -> bool {
        let is_as_one = self.nursery.as_ref().is_some_and(|kept| kept.nursery.is_as_a_process());
        let reads_while_imported =
            names(&what.settings, "backend") || names(&what.settings, "pinned");
        is_as_one && !reads_while_imported && self.is_served(what)
    }

    fn read(&mut self, order: &Order<What>, left: RunOutput) -> anyhow::Result<Trial<Read>> {
        self.read_left(&order.what, left)
    }

    fn alone(&mut self, order: &Order<What>, values: Values) -> anyhow::Result<Trial<Read>> {
        let stop = stop(order);
        let settings = [&order.what.settings[..], &unhurried(stop)].concat();
        let what = What { settings, ..order.what.clone() };
        let ranks = what.ranks.clone();
        let left = self.launch(&what, stop, ranks, Device::Phantom, ghost_weights(values))?;
        self.read_left(&what, left)
    }

    fn pass_on_interrupt(&mut self, left: &RunOutput) -> anyhow::Result<()> {
        match left.ended.interrupted {
            Some(signal) => Ok(kill(Pid::this(), signal)?),
            None => Ok(()),
        }
    }
}

/// Why a run gave no answer, as another run's failure is compared with it.
fn failure_of(ended: &Ended, recordings: &[Recording]) -> Failure {
    if ended.interrupted.is_some() {
        return Failure::Interrupted;
    }
    if ended.wrote_too_much.is_some() {
        return Failure::Disk;
    }
    if ended.host_ran_out {
        return Failure::HostMemory;
    }
    let ends = recordings.iter().filter_map(|recording| recording.notes.end.as_ref());
    if let Some(raised) = ends.filter_map(|end| end.exception.as_ref()).next() {
        let at = raised.user_frame.as_ref().map(|frame| (frame.file.clone(), frame.line));
        return Failure::Raised { class: raised.class.clone(), at };
    }
    match ended.end {
        End::Signal(signal) => Failure::Killed(signal),
        End::Code(0) => Failure::NoRun,
        End::Code(code) => Failure::Exited(code),
    }
}

fn stop(order: &Order<What>) -> Stop {
    match order.until {
        Until::Steady => Stop::Steady,
        Until::Validation => Stop::Validation,
        Until::OneValidation => Stop::OneValidation,
        Until::ValidationAfter(n) => Stop::ValidationAfter(n),
        Until::Steps(n) => Stop::Steps(n),
        Until::Exit => Stop::UntilExit,
    }
}

fn ghost_weights(values: Values) -> GhostWeights {
    match values {
        Values::Auto => GhostWeights::Auto,
        Values::StandIns => GhostWeights::StandIns,
        Values::None => GhostWeights::On,
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
pub(super) fn existing(words: &[OsString]) -> anyhow::Result<ScriptCommand> {
    let command = ScriptCommand::resolve(words)?;
    let script = command.is_python().then(|| command.python_words().1).flatten();
    if let Some(script) = script.filter(|it| !it.exists()) {
        anyhow::bail!("{}", launch::no_such_script(script));
    }
    Ok(command)
}

/// Whether a setting of the allocator says this.
fn names(settings: &[Setting], what: &str) -> bool {
    let mut of_allocator = settings.iter().filter(|(name, _)| *name == ALLOC_CONF);
    of_allocator.any(|(_, value)| value.to_string_lossy().contains(what))
}
