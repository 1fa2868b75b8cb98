//! What is said while the script runs: that its first step was not what the plan was made for, that memory ran out
//! and the script went on, and what was done again. Read from what the agent has written so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use plimsoll_core::{
    plan::{Drift, drift},
    prediction,
    recording::{
        Alarm, AlarmNote, CodeLine, FirstStep, OomNote, Redone, RedoneNote, RedoneWay,
        contract::{ProcessFile, process_folder},
    },
    sources::{self, ProcessFiles},
    views::alarm::{self as view, Whose},
};

use super::say::in_phase;
use crate::{alarms::Alarms, cache::session::Session, launch};

/// The most about each thing: a script that looks for its batch size runs out often.
const MOST_SAID: usize = 3;

/// Reads and says.
#[derive(Debug)]
pub(super) struct Watch {
    expected: Option<FirstStep>,
    /// What runs out is done again, and that is said instead of what was caught.
    survives: bool,
    /// For each notes file, how far it has been read.
    read_to: BTreeMap<PathBuf, u64>,
    /// Every sentence once: ranks are alike.
    said: BTreeSet<String>,
    n_caught: usize,
    n_redone: usize,
    /// Which rank a process is.
    ranks: BTreeMap<u32, Option<u32>>,
    /// What the run is called, and where alarms go.
    pub(super) alarms: Option<(String, Alarms)>,
    /// What the first steps said, worth keeping for a report.
    pub(super) drifts: Vec<Drift>,
}

impl Watch {
    pub(super) fn new(
        expected: Option<FirstStep>,
        survives: bool,
        alarms: Option<(String, Alarms)>,
    ) -> Watch {
        Watch {
            expected,
            survives,
            read_to: BTreeMap::new(),
            said: BTreeSet::new(),
            n_caught: 0,
            n_redone: 0,
            ranks: BTreeMap::new(),
            alarms,
            drifts: Vec::new(),
        }
    }

    fn look(&mut self, session: &Session, (pid, folder): (u32, &Path)) -> io::Result<()> {
        let path = folder.join(ProcessFile::Notes.name());
        let read_to = self.read_to.entry(path.clone()).or_default();
        let mut file = fs::File::open(&path)?;
        file.seek(SeekFrom::Start(*read_to))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let end = bytes.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1);
        *read_to += end as u64;
        // Most lines are marks and names; those are not worth parsing here.
        let is_ours = |it: &&[u8]| {
            it.starts_with(b"{\"kind\":\"begin\"")
                || it.starts_with(b"{\"kind\":\"first_step\"")
                || it.starts_with(b"{\"kind\":\"alarm\"")
                || it.starts_with(b"{\"kind\":\"oom\"")
                || it.starts_with(b"{\"kind\":\"redone\"")
        };
        let ours: Vec<u8> = bytes[..end]
            .split_inclusive(|it| *it == b'\n')
            .filter(is_ours)
            .flatten()
            .copied()
            .collect();
        let files = ProcessFiles { pid: 0, notes: &ours, snapshot: None, phantom_log: None };
        let notes = sources::read_process(files).recording.notes;
        if let Some(begin) = &notes.begin {
            self.ranks.insert(pid, begin.rank);
        }
        for alarm in &notes.alarms {
            self.alarm(session, pid, alarm);
        }
        for seen in &notes.first_steps {
            self.first_step(seen);
        }
        let caught = notes.ooms.iter().filter(|it| it.caught == Some(true));
        for oom in caught.take(if self.survives { 0 } else { usize::MAX }) {
            self.caught(oom);
        }
        for it in &notes.redone {
            self.redone(it);
        }
        Ok(())
    }

    fn first_step(&mut self, seen: &FirstStep) {
        let Some(expected) = &self.expected else { return };
        if let Some(it) = drift(expected, seen, expected.reserved, seen.reserved) {
            let sentence = it.sentence("the first step");
            self.drifts.push(it);
            self.say(sentence);
        }
    }

    fn caught(&mut self, oom: &OomNote) {
        self.n_caught += 1;
        if self.n_caught <= MOST_SAID {
            let at = oom.user_frame.as_ref();
            let at = at.map_or_else(String::new, |it| format!(" at {}:{}", it.file, it.line));
            self.say(format!(
                "memory ran out in step {}{at}, asked for {}; the script went on",
                oom.step + 1,
                oom.requested
            ));
        }
    }

    fn redone(&mut self, note: &RedoneNote) {
        let is_refused = matches!(note.how, Redone::Refused(_));
        self.n_redone += 1;
        // One that ends the run is always worth a sentence.
        if self.n_redone <= MOST_SAID || is_refused {
            self.say(sentence(note));
        }
    }

    /// Puts an alarm into words, says it and passes it on.
    fn alarm(&mut self, session: &Session, pid: u32, note: &AlarmNote) {
        let Some((label, alarms)) = &mut self.alarms else { return };
        let line = line_that_grows(session, pid, note);
        let rank = self.ranks.get(&pid).copied().flatten();
        let alarm = view::json(note, line.as_ref(), Whose { pid, rank, label });
        session.tell(&alarm.to_string());
        let mut sentences = alarms.pass_on(&alarm);
        sentences.insert(0, view::sentence(note, line.as_ref()));
        for it in sentences {
            if self.said.insert(it.clone()) {
                let _ = writeln!(io::stderr(), "plimsoll: {it}");
            }
        }
    }

    fn say(&mut self, sentence: String) {
        if self.said.len() < 4 * MOST_SAID && !self.said.contains(&sentence) {
            let _ = writeln!(io::stderr(), "plimsoll: {sentence}");
            self.said.insert(sentence);
        }
    }
}

/// The line that keeps what grows, from the recording that the agent left of the last steps, which is read once.
fn line_that_grows(session: &Session, pid: u32, note: &AlarmNote) -> Option<CodeLine> {
    let Alarm::Growth { look: Some(look), .. } = &note.what else { return None };
    let folder = session.look(look)?;
    let read = |it: ProcessFile| fs::read(folder.join(process_folder(pid)).join(it.name())).ok();
    let (notes, snapshot) = (read(ProcessFile::Notes)?, read(ProcessFile::Snapshot));
    let _ = fs::remove_dir_all(&folder);
    let snapshot = snapshot.as_deref();
    let files = ProcessFiles { pid, notes: &notes, snapshot, phantom_log: None };
    prediction::line_that_grows(&sources::read_process(files).recording, note.device)
}

/// What ran out, and what became of it.
fn sentence(note: &RedoneNote) -> String {
    let at = note.user_frame.as_ref();
    let at = at.map_or_else(String::new, |it| format!(" at {}:{}", it.file, it.line));
    let asked = match note.asked.as_str() {
        "" => String::new(),
        size => format!(" (asked for {size})"),
    };
    let where_ = format!("step {}{}{at}", note.step + 1, in_phase(note.phase));
    let (way, seconds) = match &note.how {
        Redone::Refused(why) => {
            return format!("memory ran out in {where_}{asked}, and it was not done again: {why}");
        }
        Redone::As(way, seconds) => (*way, *seconds),
    };
    let how = match way {
        RedoneWay::Again => "as it was, once unused memory had gone back to the device".to_owned(),
        RedoneWay::OnHost => "with what backward needs on the host; the numbers are the same".to_owned(),
        RedoneWay::Parts(n) => {
            format!("in {n} parts of the batch; the numbers are the same up to rounding")
        }
        RedoneWay::InChunks => {
            "with the loss some rows at a time, and what backward needs on the host; the numbers are the same up to rounding".to_owned()
        }
        RedoneWay::WithRoom => {
            "after the model had let go of what backward needs, which is computed again there; the numbers are the same"
                .to_owned()
        }
    };
    format!("memory ran out in {where_}{asked}; done again in {seconds:.1} s, {how}")
}

impl launch::Watch for Watch {
    fn tick(&mut self, session: &Session) {
        for (pid, folder) in session.process_paths() {
            // A file that is not there yet will be.
            let _ = self.look(session, (pid, &folder));
        }
    }
}
