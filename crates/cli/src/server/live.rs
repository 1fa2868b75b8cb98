//! A run that is going on: reads what its agent has written so far, and adds nothing to it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use plimsoll_core::{
    recording::{
        MarkKind, Role,
        contract::{ProcessFile, process_of},
    },
    sources::{self, ProcessFiles},
    units::Bytes,
    views::live::{self, LivePoint, LiveRun},
};

use crate::files::bounded_file;

/// Runs that write for days are thinned out: a picture has fewer columns.
const MOST_POINTS: usize = 200_000;

/// The sessions of this machine, and what was read of the newest.
pub(crate) struct Live {
    sessions: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    session: Option<PathBuf>,
    read_to: BTreeMap<u32, u64>,
    run: LiveRun,
    /// By process, name and role: a gradient is called as its parameter.
    named: BTreeMap<(u32, String, Role), Bytes>,
}

impl Live {
    /// Of the sessions in this folder.
    pub(crate) fn of(sessions: PathBuf) -> Live {
        Live { sessions, seen: Mutex::default() }
    }

    /// What is known by now, as JSON, without the first `from` points.
    pub(crate) fn answer(&self, from: usize) -> String {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.newest();
        if newest.is_some() && newest != seen.session {
            *seen = Seen { session: newest, ..Seen::default() };
        }
        seen.look();
        live::run(&seen.run, from)
    }

    /// The session whose notes were written to last. One that is over is gone.
    fn newest(&self) -> Option<PathBuf> {
        let sessions = fs::read_dir(&self.sessions).ok()?.flatten().map(|it| it.path());
        let written = |path: &PathBuf| -> Option<SystemTime> {
            let notes = processes(path).into_iter().map(|(_, it)| it);
            notes.filter_map(|it| it.metadata().ok()?.modified().ok()).max()
        };
        let all = sessions.filter_map(|it| Some((written(&it)?, it)));
        all.max().map(|it| it.1)
    }
}

impl Seen {
    fn look(&mut self) {
        let Some(session) = &self.session else { return };
        let found = processes(session);
        self.run.is_over = found.is_empty() && !self.run.points.is_empty();
        for (pid, path) in found {
            let read_to = self.read_to.entry(pid).or_default();
            if let Ok(lines) = bounded_file::lines_since(&path, read_to)
                && !lines.is_empty()
            {
                self.take(pid, &lines);
            }
        }
        if MOST_POINTS < self.run.points.len() {
            self.run.thin();
        }
    }

    fn take(&mut self, pid: u32, lines: &[u8]) {
        let files = ProcessFiles { pid, notes: lines, snapshot: None, phantom_log: None };
        let notes = sources::read_process(files).recording.notes;
        if let Some(begin) = &notes.begin
            && self.run.command.is_empty()
        {
            self.run.command = begin.argv.join(" ");
        }
        let marks = notes.marks.iter().map(|mark| LivePoint {
            pid,
            seconds: mark.seconds,
            step: mark.step,
            phase: match mark.kind {
                MarkKind::Begin(phase) | MarkKind::End(phase) => Some(phase),
                MarkKind::StepEnd | MarkKind::TrainingBegin => None,
            },
            allocated: mark.allocated.iter().copied().sum(),
            reserved: mark.reserved.iter().copied().sum(),
        });
        self.run.points.extend(marks);
        for tensor in notes.tensors.iter().flat_map(|it| &it.entries) {
            self.named.insert((pid, tensor.name.clone(), tensor.role), tensor.size);
        }
        self.run.ooms.extend(notes.ooms.iter().map(|it| it.message.clone()));
        let sum = |role: Role| -> Bytes {
            self.named.iter().filter(|it| it.0.2 == role).map(|it| *it.1).sum()
        };
        self.run.named = [
            ("parameters", Role::Parameter),
            ("buffers", Role::Buffer),
            ("optimizer", Role::OptimizerState),
            ("gradients", Role::Gradient),
            ("inputs", Role::Input),
        ]
        .into_iter()
        .map(|(word, role)| (word, sum(role)))
        .collect();
    }
}

/// The processes of a session that have notes, and where.
fn processes(session: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(session).into_iter().flatten().flatten();
    let notes = |entry: &fs::DirEntry| {
        let pid = process_of(entry.file_name().to_str()?)?;
        let path = entry.path().join(ProcessFile::Notes.name());
        path.is_file().then_some((pid, path))
    };
    let mut res: Vec<(u32, PathBuf)> = entries.filter_map(|it| notes(&it)).collect();
    res.sort();
    res
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use super::*;

    #[test]
    fn a_run_is_followed_line_by_line_and_is_over_when_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let live = Live::of(folder.path().to_owned());
        assert!(live.answer(0).contains("\"points\":[]"), "nobody runs yet");
        let process = folder.path().join("abc/process-17");
        fs::create_dir_all(&process).unwrap();
        let mut notes = File::create(process.join("agent.jsonl")).unwrap();
        let mark = |step: u32, allocated: u64| {
            format!(
                "{{\"kind\":\"mark\",\"what\":\"step_end\",\"step\":{step},\"phase\":null,\"t\":1.5,\"allocs\":[1],\"frees\":[0],\"reserved\":[4096],\"allocated\":[{allocated}]}}\n"
            )
        };
        let first = mark(1, 512);
        notes.write_all(first.as_bytes()).unwrap();
        // A line that is being written waits.
        notes.write_all(&mark(2, 1024).as_bytes()[..20]).unwrap();
        assert!(live.answer(0).contains("[17,1.5,1,null,512,4096]"), "{}", live.answer(0));
        notes.write_all(&mark(2, 1024).as_bytes()[20..]).unwrap();
        let second = live.answer(1);
        assert!(second.contains("\"points\":[[17,1.5,2,null,1024,4096]]"), "{second}");
        fs::remove_dir_all(folder.path().join("abc")).unwrap();
        let last = live.answer(2);
        assert!(last.contains("\"over\":true") && last.contains("\"from\":2"), "{last}");
    }
}
