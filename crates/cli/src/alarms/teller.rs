//! Puts alarms into words, says them, and passes them on.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use plimsoll_core::{
    plan::Drift,
    prediction,
    recording::{
        Alarm, AlarmNote, CodeLine, Notes,
        contract::{ProcessFile, process_folder},
    },
    sources::{self, ProcessFiles},
    views::alarm::{self as view, Found, Whose},
};

use serde_json::Value;

use crate::{alarms::Sinks, contract, files::bounded_file, gpu::machine::Looker, output::say};

/// Tells the alarms of one session.
#[derive(Debug)]
pub(crate) struct Teller {
    session: PathBuf,
    label: String,
    sinks: Sinks,
    /// Nothing goes to standard error: the process says it itself.
    is_quiet: bool,
    /// Alarms from before this time, in seconds since 1970, were told by somebody else.
    pub(crate) since: f64,
    /// Every sentence once: ranks are alike.
    said: BTreeSet<String>,
    ranks: BTreeMap<u32, Option<u32>>,
}

impl Teller {
    /// Of the session in this folder, whose run is called `label`.
    pub(crate) fn new(session: &Path, label: String, sinks: Sinks, is_quiet: bool) -> Teller {
        let session = session.to_owned();
        let (said, ranks) = (BTreeSet::new(), BTreeMap::new());
        Teller { session, label, sinks, is_quiet, since: 0.0, said, ranks }
    }

    /// Tells the alarms among what the process `pid` has written since the last time.
    pub(crate) fn tell(&mut self, pid: u32, notes: &Notes) {
        if let Some(begin) = &notes.begin {
            self.ranks.insert(pid, begin.rank);
        }
        let since = self.since;
        for note in notes.alarms.iter().filter(|it| since <= it.at) {
            let found = self.found(pid, note);
            let alarm = view::json(note, &found, self.whose(pid));
            let own = (!self.is_quiet).then(|| view::sentence(note, &found));
            self.pass_on(&alarm, own);
        }
    }

    /// Tells that the first step was not what its plan says. Who runs the script has said so already.
    pub(crate) fn first_step(&mut self, pid: u32, drift: &Drift) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let alarm =
            view::of_first_step(drift, now.map_or(0.0, |it| it.as_secs_f64()), self.whose(pid));
        self.pass_on(&alarm, None);
    }

    fn whose(&self, pid: u32) -> Whose<'_> {
        Whose { pid, rank: self.ranks.get(&pid).copied().flatten(), label: &self.label }
    }

    fn pass_on(&mut self, alarm: &Value, own: Option<String>) {
        self.tell_the_agent(&alarm.to_string());
        for it in own.into_iter().chain(self.sinks.pass_on(alarm)) {
            if self.said.insert(it.clone()) {
                say(&it);
            }
        }
    }

    /// Waits a little until all is passed on.
    pub(crate) fn finish(self) {
        for it in self.sinks.finish() {
            say(&it);
        }
    }

    fn found(&self, pid: u32, note: &AlarmNote) -> Found {
        let neighbour = match &note.what {
            Alarm::Neighbour { uuid: Some(uuid), .. } => Looker::default().neighbour(uuid, pid),
            _ => None,
        };
        Found { line: self.line_that_grows(pid, note), neighbour }
    }

    /// The line that keeps what grows, from the recording that the agent left of the last steps, which is read once.
    fn line_that_grows(&self, pid: u32, note: &AlarmNote) -> Option<CodeLine> {
        let Alarm::Growth { look: Some(look), .. } = &note.what else { return None };
        if look.is_empty() || !look.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
            return None;
        }
        let folder = self.session.join(look);
        let of_process = folder.join(process_folder(pid));
        let read = |process: ProcessFile| {
            bounded_file::bytes(&of_process.join(process.name()), bounded_file::RECORDING).ok()
        };
        let (notes, snapshot) = (read(ProcessFile::Notes), read(ProcessFile::Snapshot));
        let _ = fs::remove_dir_all(&folder);
        let (notes, snapshot) = (notes?, snapshot.as_deref());
        let files = ProcessFiles { pid, notes: &notes, snapshot, phantom_log: None };
        prediction::line_that_grows(&sources::read_process(files).recording, note.device)
    }

    /// Lets the agent know what was said, for its status file. It can do without.
    fn tell_the_agent(&self, line: &str) {
        let path = self.session.join(contract::TOLD);
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut it| it.write_all(format!("{line}\n").as_bytes()));
    }
}

/// The name of a script's file, which a run is called by if nobody says another.
pub(crate) fn label(command: &[OsString]) -> String {
    let is_script = |it: &&OsString| Path::new(it).extension().is_some_and(|it| it == "py");
    let named = command.iter().find(is_script).or(command.first());
    let name = named.and_then(|it| Path::new(it).file_name());
    name.map_or_else(String::new, |it| it.to_string_lossy().into_owned())
}
