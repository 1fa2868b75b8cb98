//! Foreign bytes in, a [`Recording`] out. One file per format; everything that is odd about a format
//! stays in its file.
//!
//! Bad input is data: a snapshot that is cut off and notes with a torn last line are what a dying
//! process leaves. What could be read comes back beside typed [`Warning`]s.

pub mod agent;
pub mod chrome_trace;
pub mod oom_text;
pub mod phantom;
pub mod snapshot;

mod modes;
mod pickle;

use std::fmt;

use crate::recording::{Recording, contract::ProcessFile};

pub use pickle::Damage;

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

/// Something in the input that the recording had to leave out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Which file.
    pub file: ProcessFile,
    /// Where in it: a byte offset in a snapshot, a 1-based line elsewhere.
    pub at: u64,
    /// What it was.
    pub problem: Problem,
}

impl Warning {
    /// Whether the file ends here for us: it is cut off or damaged, and what follows was not read.
    pub fn is_damage(&self) -> bool {
        matches!(self.problem, Problem::Damaged(_) | Problem::TornLine)
    }
}

/// Why something was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The pickle is cut off or broken from here on; what came before was read.
    Damaged(Damage),
    /// An item of a known list that lacks what it needs, or came where none is expected.
    Malformed(&'static str),
    /// A line that is not a JSON object of the kind it says it is.
    BadLine(String),
    /// The last line has no end: the process died while it wrote.
    TornLine,
    /// The bytes are no snapshot at all.
    NotASnapshot(ReadError),
    /// A newer agent wrote this than we know.
    NewerFormat {
        /// The version in the file.
        found: u64,
        /// The newest that we read.
        newest: u64,
    },
}

/// The bytes are not a memory snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is nothing.
    #[error("the file is empty; expected a memory snapshot")]
    Empty,
    /// It does not begin like a pickle.
    #[error(
        "not a memory snapshot: it begins with {start:?}; expected a pickle written by `torch.cuda.memory._dump_snapshot`"
    )]
    NotAPickle {
        /// How it begins.
        start: String,
    },
    /// It breaks before it says anything.
    #[error("unreadable at byte {at}, before anything of a memory snapshot: {damage}")]
    Unreadable {
        /// Why.
        damage: Damage,
        /// Where.
        at: u64,
    },
    /// It wants to run code.
    #[error(
        "refused: this pickle contains the opcode {opcode}{} at byte {offset}, which runs code; a memory snapshot never does. Do not load it with Python either",
        .import.as_ref().map(|it| format!(" ({it})")).unwrap_or_default()
    )]
    RunsCode {
        /// The opcode's name.
        opcode: &'static str,
        /// Where.
        offset: u64,
        /// What it would import, when it says so.
        import: Option<String>,
    },
    /// A pickle of something else.
    #[error("a pickle, but not a memory snapshot: it has neither `device_traces` nor `segments`")]
    SomethingElse,
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
    recording.fill_in_stacks();
    Reading { recording, warnings }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { file, at, problem } = self;
        let unit = if *file == ProcessFile::Snapshot { "byte" } else { "line" };
        write!(f, "{file}, {unit} {at}: ")?;
        match problem {
            Problem::Damaged(damage) => write!(f, "{damage}; what came before was read"),
            Problem::Malformed(what) => write!(f, "left out {what}"),
            Problem::BadLine(why) => write!(f, "left out a line: {why}"),
            Problem::TornLine => f.write_str("the last line is torn; left out"),
            Problem::NotASnapshot(error) => error.fmt(f),
            Problem::NewerFormat { found, newest } => write!(
                f,
                "format {found} is newer than this program, which reads up to {newest}; update it"
            ),
        }
    }
}
