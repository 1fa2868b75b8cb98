//! Many runs of one script on one phantom: each with its own arguments and settings, each read as a prediction.
//! From the second run on they come out of a nursery where that is possible, and cost no imports.

use std::{ffi::OsString, io, mem};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use plimsoll_core::{
    cards::Card,
    prediction::{self, OtherEnd, Outcome, Prediction},
    recording::Recording,
    units::Bytes,
};

use crate::{
    assumption::Assumption,
    cache::Cache,
    diagnosis,
    ghost_weights::GhostWeights,
    launch::{
        self, Device, Nursery, Order, Ranks, ScriptCommand, ScriptOutput, Setting, Signals, Stop,
    },
    phantom_run::{self, Left, Run, Runner, World},
};

/// The variable that holds the allocator's settings.
pub(crate) const ALLOC_CONF: &str = "PYTORCH_CUDA_ALLOC_CONF";
/// The variable that holds the limit of the allocator.
pub(crate) const LIMIT_RESERVED: &str = "PLIMSOLL_LIMIT_RESERVED";

/// The variable that holds how many bytes allocated are more than can ever fit: such a run is ended.
pub(crate) const GIVE_UP_ABOVE: &str = "PLIMSOLL_HOPELESS";
const HOPELESS: &str = "hopeless";

/// Steps by which two runs are compared.
const EARLY: u32 = 2;
/// So often a run without values on the host may differ from one with them before it is believed that it does.
const UNLIKE: u32 = 3;

/// Where trials are made.
pub(crate) struct Trials {
    card: Card,
    /// What the user takes for granted.
    assumed: Vec<Assumption>,
    /// What the phantom is told beside the card and that.
    more: &'static str,
    runner: Runner,
    // In this order: the nursery ends before the signals are let go.
    nursery: Option<Kept>,
    signals: Signals,
    may_nurse: bool,
    /// Weights on the host may be ghosts: tried once, they changed nothing. None before.
    may_ghost: Option<bool>,
    n_unlike: u32,
    pub(crate) n_runs: u64,
}

/// A nursery, the command that it is for, and the world that it waits in.
struct Kept {
    nursery: Nursery,
    command: ScriptCommand,
    _world: World,
}

/// Allocations so far, and bytes, by device.
type Early = (Vec<u64>, Vec<Bytes>);

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
    /// What was recorded of each process.
    pub(crate) recordings: Vec<Recording>,
    /// What the agent noted of the plan and of the work in a step; see [`Trial::noted`].
    notes: Vec<serde_json::Value>,
    /// Where memory was at each mark of the first steps, of each process.
    early: Vec<Vec<Early>>,
}

impl Trial {
    /// The agent's last line of this kind: `blocks`, `work`, `split`.
    pub(crate) fn noted(&self, kind: &str) -> Option<&serde_json::Value> {
        self.notes.iter().rev().find(|it| it["kind"] == kind)
    }

    /// What was done to the batches (`--worst-seq`), in one sentence.
    pub(crate) fn what_was_done(&self) -> Option<String> {
        let noted = self.noted("worst")?;
        let length = noted["length"].as_u64()?;
        let where_ = match noted["how"].as_str()? {
            "loader" => "the DataLoader gives",
            _ => "the model is called with",
        };
        let tensors: Vec<&str> =
            noted["tensors"].as_array()?.iter().filter_map(serde_json::Value::as_str).collect();
        Some(match tensors.as_slice() {
            [] => format!(
                "every batch that {where_} is at least {length} long already: none was made longer"
            ),
            all => format!("every batch that {where_} is made {length} long: {}", all.join(", ")),
        })
    }

    /// Whether both asked for the same memory, step by step. Two runs of the very same script may differ by
    /// the rest of a block that was not worth splitting; and one that is stopped after the last of these steps has
    /// not the marks that come before the next one.
    fn is_like(&self, other: &Trial) -> bool {
        let close = |a: &Bytes, b: &Bytes| a.0.abs_diff(b.0) <= a.0.max(1 << 30) / 1000;
        let same =
            |(a, b): (&Early, &Early)| a.0 == b.0 && a.1.iter().zip(&b.1).all(|(a, b)| close(a, b));
        let steps = |it: &Trial| it.prediction.steps_seen.min(EARLY);
        let mut processes = self.early.iter().zip(&other.early);
        self.early.len() == other.early.len()
            && steps(self) == steps(other)
            && processes.all(|(a, b)| a.is_empty() == b.is_empty() && a.iter().zip(b).all(same))
            && (&self.failure, self.n_ooms) == (&other.failure, other.n_ooms)
    }

    /// Whether it ran at least one step, and never out of memory.
    pub(crate) fn fits(&self) -> bool {
        self.failure.is_none() && self.n_ooms == 0 && self.prediction.outcome == Outcome::Fits
    }
}

impl Trials {
    pub(crate) fn new(card: Card, assumed: &[Assumption]) -> anyhow::Result<Trials> {
        let runner = Runner::new(Cache::open()?)?;
        let signals = Signals::hold().context("cannot hold signals")?;
        let (may_nurse, may_ghost, n_unlike, n_runs) = (true, None, 0, 0);
        let nursery = None;
        Ok(Trials {
            card,
            assumed: assumed.to_vec(),
            more: "",
            runner,
            nursery,
            signals,
            may_nurse,
            may_ghost,
            n_unlike,
            n_runs,
        })
    }

    /// What every run has: the card.
    pub(crate) fn card(&self) -> &Card {
        &self.card
    }

    /// Runs `words` with `settings` in their environment.
    pub(crate) fn run(
        &mut self,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
    ) -> anyhow::Result<Trial> {
        let command = ScriptCommand::resolve(words)?;
        let script = command.is_python().then(|| command.python_words().1).flatten();
        if let Some(script) = script.filter(|it| !it.exists()) {
            anyhow::bail!("{}", launch::no_such_script(script));
        }
        self.n_runs += 1;
        let needs_own_process = settings.iter().any(|(name, value)| {
            // Which allocator it is, is decided while torch is imported; the rest can be told later.
            *name == ALLOC_CONF && value.to_string_lossy().contains("backend")
        });
        if needs_own_process {
            return self.run_alone(&command, settings, stop);
        }
        if self.may_nurse && !self.nursery.as_ref().is_some_and(|it| serves(it, &command)) {
            self.nursery = self.start(&command)?;
            self.may_nurse = self.nursery.is_some();
        }
        let ghosts = self.may_ghost == Some(true);
        if let Some(trial) = self.run_in_nursery(&command, settings, stop, ghosts)? {
            if self.may_ghost.is_none() && trial.interrupted.is_none() {
                let before = self.n_unlike;
                // They are compared by their first steps.
                let few = if matches!(stop, Stop::Steady) { Stop::Steps(EARLY) } else { stop };
                let again = self.run_in_nursery(&command, settings, few, true)?;
                // Runs of some scripts differ by themselves, now and then.
                self.n_unlike += u32::from(!again.is_some_and(|it| it.is_like(&trial)));
                self.may_ghost = match self.n_unlike {
                    0..UNLIKE if self.n_unlike == before => Some(true),
                    0..UNLIKE => None,
                    _ => Some(false),
                };
            }
            return Ok(trial);
        }
        self.run_alone(&command, settings, stop)
    }

    /// Runs it in the nursery; nothing if there is none for it. With `ghosts`, large tensors on the host have no
    /// values: filling weights with random numbers is most of what a short run of most scripts does.
    fn run_in_nursery(
        &mut self,
        command: &ScriptCommand,
        settings: &[Setting],
        stop: Stop,
        ghosts: bool,
    ) -> anyhow::Result<Option<Trial>> {
        let conf = self.conf();
        let Some(kept) = self.nursery.as_mut().filter(|it| serves(it, command)) else {
            return Ok(None);
        };
        let world = self.runner.world(&conf)?;
        let arguments = command.script_arguments().1;
        let when = if ghosts { GhostWeights::On } else { GhostWeights::Auto };
        let mut settings = settings.to_vec();
        settings.push(("PLIMSOLL_GHOST_WEIGHTS", when.word().into()));
        let order = Order { arguments, session: &world.session, stop, settings: &settings };
        if let Some(ended) = kept.nursery.run(order, &self.signals)? {
            let left = self.runner.left(world, ended)?;
            return Ok(Some(self.read(command, left)));
        }
        // It died with the run, or cannot do it: the run is made again, by itself.
        self.nursery = None;
        self.may_nurse = false;
        Ok(None)
    }

    /// Runs `words` once on another card, as a process of its own; the phantom is told `more`.
    pub(crate) fn run_on(
        &mut self,
        card: &Card,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
        more: &'static str,
    ) -> anyhow::Result<Trial> {
        self.n_runs += 1;
        let command = ScriptCommand::resolve(words)?;
        self.with(card, more, |it| it.run_alone(&command, settings, stop))
    }

    /// The same without a process of its own where there is a nursery.
    pub(crate) fn run_again_on(
        &mut self,
        card: &Card,
        words: &[OsString],
        settings: &[Setting],
        stop: Stop,
        more: &'static str,
    ) -> anyhow::Result<Trial> {
        self.with(card, more, |it| it.run(words, settings, stop))
    }

    /// What `run` gives on another card, whose phantom is told `more`.
    fn with<T>(
        &mut self,
        card: &Card,
        more: &'static str,
        run: impl FnOnce(&mut Trials) -> T,
    ) -> T {
        let usual = mem::replace(&mut self.card, card.clone());
        self.more = more;
        let res = run(self);
        (self.card, self.more) = (usual, "");
        res
    }

    /// Runs `words` for so many steps on the machine's own device, or on so many of them, and has the steps measured.
    pub(crate) fn measure(
        &mut self,
        words: &[OsString],
        settings: &[Setting],
        steps: u32,
        devices: Option<u32>,
    ) -> anyhow::Result<Trial> {
        let settings: Vec<Setting> = settings.iter().cloned().chain(MEASURED.map(own)).collect();
        let ranks = devices.map_or(Ranks::All, |world| Ranks::Several { world });
        let command = ScriptCommand::resolve(words)?;
        self.launch(&command, &settings, Stop::Steps(steps), ranks, Device::Measured)
    }

    fn conf(&self) -> String {
        let assumed: String = self.assumed.iter().map(|it| it.conf_line()).collect();
        self.card.phantom_conf(1) + &assumed + self.more
    }

    /// Runs `command` as a process of its own.
    fn run_alone(
        &mut self,
        command: &ScriptCommand,
        settings: &[Setting],
        stop: Stop,
    ) -> anyhow::Result<Trial> {
        let ranks = Ranks::OfLauncher { rank: 0 };
        self.launch(command, settings, stop, ranks, Device::Phantom)
    }

    fn launch(
        &mut self,
        command: &ScriptCommand,
        settings: &[Setting],
        stop: Stop,
        ranks: Ranks,
        device: Device,
    ) -> anyhow::Result<Trial> {
        let conf = self.conf();
        let run = Run {
            command,
            conf: &conf,
            stop,
            ranks,
            ghost_weights: GhostWeights::Auto,
            output: ScriptOutput::InSession,
            settings,
            device,
        };
        // A run of its own ends all that is below us, and a nursery would be gone without a word: the next run
        // would take it for one that cannot be used, and so would every run after that.
        self.nursery = None;
        let left = self.runner.run(run, &self.signals, None)?;
        Ok(self.read(command, left))
    }

    fn start(&self, command: &ScriptCommand) -> io::Result<Option<Kept>> {
        let Ok(world) = self.runner.world(&self.conf()) else { return Ok(None) };
        let nursery = Nursery::start(command, self.runner.bundle(), &world.session, &self.signals)?;
        Ok(nursery.map(|it| Kept { nursery: it, command: command.clone(), _world: world }))
    }

    fn read(&self, command: &ScriptCommand, left: Left) -> Trial {
        let Left { ended, folders, last_words } = left;
        let (recordings, _) = phantom_run::read(&folders);
        let ended = &diagnosis::without_a_late_crash(ended, &recordings);
        let facts = phantom_run::facts(ended, None);
        let prediction = prediction::predict(&recordings, &self.card, facts);
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
        let was_cut = notes.iter().any(|it| it["kind"] == HOPELESS);
        let failure = failure.or_else(|| {
            let nothing = ran && prediction.steps_seen == 0 && !was_cut;
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
    [("PLIMSOLL_MEASURE", "1"), ("PLIMSOLL_STACKS", "none"), ("PLIMSOLL_EVENTS", "1000")];

fn own((name, value): (&'static str, &str)) -> Setting {
    (name, value.into())
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

/// The limit of the allocator, as the agent reads it.
pub(crate) fn limit_reserved(limit: Option<Bytes>) -> Vec<Setting> {
    limit.map(|it| (LIMIT_RESERVED, it.0.to_string().into())).into_iter().collect()
}

/// Whether a line of the agent's notes is about a plan: most are long and about something else.
fn is_ours(line: &[u8]) -> bool {
    ["blocks", "block-memory", "block-work", "work", "split", "exact", "worst", "sites", HOPELESS]
        .iter()
        .any(|it| line.starts_with(format!("{{\"kind\":\"{it}\"").as_bytes()))
}
