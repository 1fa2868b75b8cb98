//! What the processes of a session have written since the last look, of the kinds that matter while they run.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use plimsoll_core::{
    recording::{
        Notes,
        contract::{NoteKind, ProcessFile},
    },
    sources::{self, ProcessFiles, agent},
};

use crate::{cache::session, files::bounded_file};

/// Most lines are marks and names; those are not worth parsing while a script runs.
const OURS: [NoteKind; 6] = [
    NoteKind::Begin,
    NoteKind::FirstStep,
    NoteKind::Alarm,
    NoteKind::Oom,
    NoteKind::Redone,
    NoteKind::End,
];

/// How far the notes of each process have been read.
#[derive(Debug, Default)]
pub(crate) struct News {
    read_to: BTreeMap<PathBuf, u64>,
}

impl News {
    /// What each process of the session `folder` has written since the last time. A file that is not there yet will be.
    pub(crate) fn of(&mut self, folder: &Path) -> Vec<(u32, Notes)> {
        let processes = session::process_paths(folder).into_iter();
        processes.filter_map(|(pid, path)| Some((pid, self.read(&path).ok()?))).collect()
    }

    fn read(&mut self, folder: &Path) -> io::Result<Notes> {
        let path = folder.join(ProcessFile::Notes.name());
        let lines =
            bounded_file::lines_since(&path, self.read_to.entry(path.clone()).or_default())?;
        let ours = agent::only(&lines, &OURS);
        let files = ProcessFiles { pid: 0, notes: &ours, snapshot: None, phantom_log: None };
        Ok(sources::read_process(files).recording.notes)
    }
}
