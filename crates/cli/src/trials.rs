//! Many runs of one script on one phantom: each with its own arguments and settings, each read as a prediction.
//! From the second run on they come out of a nursery where that is possible, and cost no imports.

use std::{ffi::OsString, io};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use plimsoll_core::{
    cards::Card,
    prediction::{self, Note, Outcome, Prediction, RunFacts},
    units::Bytes,
};

use crate::{
    cache::{Cache, bundle::Bundle, session::Session},
    commands::predict,
    diagnosis,
    launch::{
        self, Ended, Launch, Nursery, Order, ScriptCommand, ScriptOutput, Setting, Signals, Stop,
    },
};

/// Where trials are made.
pub(crate) struct Trials {
    card: Card,
    cache: Cache,
    bundle: Bundle,
    // In this order: the nursery ends before the signals are let go.
    nursery: Option<Kept>,
    signals: Signals,
    may_nurse: bool,
    pub(crate) n_runs: u64,
}

/// A nursery, the command that it is for, and its session.
struct Kept {
    nursery: Nursery,
    command: ScriptCommand,
    _session: Session,
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
}

impl Trial {
    /// Whether it ran at least one step, and never out of memory.
    pub(crate) fn fits(&self) -> bool {
        self.failure.is_none() && self.n_ooms == 0 && self.prediction.outcome == Outcome::Fits
    }
}

impl Trials {
    pub(crate) fn new(card: Card) -> anyhow::Result<Trials> {
        let cache = Cache::open()?;
        let bundle = Bundle::unpack(&cache)?;
        let signals = Signals::hold().context("cannot hold signals")?;
        Ok(Trials { card, cache, bundle, nursery: None, signals, may_nurse: true, n_runs: 0 })
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
        self.n_runs += 1;
        let session = Session::create(&self.cache)?;
        session.configure(&self.card.phantom_conf(1))?;
        if self.may_nurse && !self.nursery.as_ref().is_some_and(|it| serves(it, &command)) {
            self.nursery = self.start(&command)?;
            self.may_nurse = self.nursery.is_some();
        }
        if let Some(kept) = &mut self.nursery
            && serves(kept, &command)
        {
            let arguments = command.script_arguments().1;
            let order = Order { arguments, session: &session, stop, settings };
            if let Some(ended) = kept.nursery.run(order, &self.signals)? {
                return Ok(self.read(&command, &session, &ended));
            }
            // It died with the run, or cannot do it: the run is made again, by itself.
            self.nursery = None;
            self.may_nurse = false;
        }
        self.run_alone(&command, settings, stop)
    }

    /// Runs `command` as a process of its own.
    fn run_alone(
        &mut self,
        command: &ScriptCommand,
        settings: &[Setting],
        stop: Stop,
    ) -> anyhow::Result<Trial> {
        let session = Session::create(&self.cache)?;
        session.configure(&self.card.phantom_conf(1))?;
        let output = ScriptOutput::Nowhere;
        let launch =
            Launch { command, bundle: &self.bundle, session: &session, stop, output, settings };
        let ended = launch::run(launch, &self.signals, None)?;
        Ok(self.read(command, &session, &ended))
    }

    fn start(&self, command: &ScriptCommand) -> io::Result<Option<Kept>> {
        let Ok(session) = Session::create(&self.cache) else { return Ok(None) };
        if session.configure(&self.card.phantom_conf(1)).is_err() {
            return Ok(None);
        }
        let nursery = Nursery::start(command, &self.bundle, &session, &self.signals)?;
        Ok(nursery.map(|it| Kept { nursery: it, command: command.clone(), _session: session }))
    }

    fn read(&self, command: &ScriptCommand, session: &Session, ended: &Ended) -> Trial {
        let (recordings, _) = predict::read(&session.read());
        let facts = RunFacts { exit: predict::exit(ended), seconds: ended.seconds, max: None };
        let prediction = prediction::predict(&recordings, &self.card, facts);
        let ran = prediction.outcome != Outcome::OutOfMemory;
        let failure = diagnosis::diagnose(command, ended, &recordings).or_else(|| {
            let nothing = ran && prediction.steps_seen == 0;
            nothing.then(|| "it ended without a training step".to_owned())
        });
        let n_ooms = recordings.iter().map(|it| it.notes.ooms.len()).sum();
        Trial { prediction, failure, n_ooms, interrupted: ended.interrupted }
    }
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
    limit.map(|it| ("PLIMSOLL_LIMIT_RESERVED", it.0.to_string().into())).into_iter().collect()
}

/// What the reader of a trial has to know of it.
pub(crate) fn remarks(trial: &Trial) -> Vec<String> {
    let said = |it: &Note| match it {
        Note::Remark { text, .. } => Some(text.clone()),
        _ => None,
    };
    trial.prediction.notes.iter().filter_map(said).collect()
}
