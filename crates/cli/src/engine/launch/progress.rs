//! Signs of life while the script runs, for a person who waits at a terminal. The script writes to the
//! same terminal, so these are whole lines and few; the steps come from what the agent has noted so far.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use plimsoll_core::{recording::contract::ProcessFile, sources::agent};

use super::Watch;
use crate::{cache::session::Session, files::bounded_file, output::say};

const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Between two lines, when there is something new to say.
const NEWS_EVERY: Duration = Duration::from_secs(3);
/// Between two lines, when there is not.
const STILL_EVERY: Duration = Duration::from_secs(15);

/// What has been seen of the run, and when we last spoke.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    started: Instant,
    last_said: Option<(Instant, u32)>,
    steps: u32,
    /// For each notes file, how far it has been read. A line is counted when its end is seen.
    read_to: BTreeMap<PathBuf, u64>,
}

impl Progress {
    /// `what` is being done, as in "running `train.py` on a phantom NVIDIA H200".
    pub(crate) fn new(what: String) -> Progress {
        let started = Instant::now();
        Progress { what, started, last_said: None, steps: 0, read_to: BTreeMap::new() }
    }

    fn look(&mut self, session: &Session) {
        for (_, folder) in session.process_paths() {
            let path = folder.join(ProcessFile::Notes.name());
            let read_to = self.read_to.entry(path.clone()).or_default();
            let Ok(lines) = bounded_file::lines_since(&path, read_to) else { continue };
            self.steps = self.steps.max(agent::last_step(&lines).unwrap_or_default());
        }
    }
}

impl Watch for Progress {
    /// Looks, and says something if it is time.
    fn tick(&mut self, session: &Session) {
        let elapsed = self.started.elapsed();
        if elapsed < FIRST_AFTER {
            return;
        }
        self.look(session);
        let is_time = match self.last_said {
            None => true,
            Some((at, steps)) if steps != self.steps => NEWS_EVERY <= at.elapsed(),
            Some((at, _)) => STILL_EVERY <= at.elapsed(),
        };
        if !is_time {
            return;
        }
        let what = &self.what;
        let seconds = elapsed.as_secs();
        let steps = match self.steps {
            0 => "no step yet".to_owned(),
            1 => "1 step seen".to_owned(),
            n => format!("{n} steps seen"),
        };
        say(&format!("{what}: {seconds} s, {steps}"));
        self.last_said = Some((Instant::now(), self.steps));
    }
}
