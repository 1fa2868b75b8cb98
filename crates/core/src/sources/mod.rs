//! Foreign bytes in, a [`Recording`] out. One file per format; everything that is odd about a format
//! stays in its file.
//!
//! Bad input is data: a snapshot that is cut off and notes with a torn last line are what a dying
//! process leaves. What could be read comes back beside typed [`Warning`]s.

pub mod agent;
pub mod chrome_trace;
pub mod log;
pub mod network;
pub mod oom_text;
pub mod phantom;
pub mod printed_text;
pub mod snapshot;

mod json_lines;
mod lines;
mod modes;
mod numbers;
mod pickle;
mod problem;

use crate::recording::{Recording, contract::ProcessFile};

pub use pickle::Damage;
pub use problem::{Problem, ReadError, Warning};

/// The files of one `process-<pid>` folder of a session.
#[derive(Clone, Copy, Debug)]
pub struct ProcessFiles<'a> {
    /// The process id in the folder's name.
    pub pid: u32,
    /// `agent.jsonl`; empty when there is none.
    pub notes: &'a [u8],
    /// `snapshot.pickle`.
    pub snapshot: Option<&'a [u8]>,
    /// `phantom.jsonl`.
    pub phantom_log: Option<&'a [u8]>,
}

/// A recording, and what was wrong with the bytes it came from.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// What could be read.
    pub recording: Recording,
    /// What could not, in the order it was met.
    pub warnings: Vec<Warning>,
}

/// Reads what one process left behind. Nothing that stands in the files makes this fail.
pub fn read_process(files: ProcessFiles<'_>) -> Reading {
    let mut warnings = Vec::new();
    let (notes, agents_phantom) = agent::read(files.notes, &mut warnings);
    let phantoms_own = files.phantom_log.and_then(|it| phantom::read(it, &mut warnings));
    let trace = files.snapshot.and_then(|bytes| match snapshot::read(bytes) {
        Ok((trace, found)) => {
            warnings.extend(found);
            Some(trace)
        }
        Err(error) => {
            let problem = Problem::NotASnapshot(error);
            warnings.push(Warning { file: ProcessFile::Snapshot, at: 0, problem });
            None
        }
    });
    // The agent asks the phantom at the end, so its line is newer than the phantom's own log.
    let phantom = agents_phantom.or(phantoms_own);
    let mut recording = Recording { pid: files.pid, trace, notes, phantom };
    recording.complete_trace();
    Reading { recording, warnings }
}
