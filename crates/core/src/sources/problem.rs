//! What can be wrong with the bytes of a recording.

use std::fmt;

use crate::{recording::contract::ProcessFile, sources::Damage};

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
        "not a memory snapshot: it begins with {start:?}; expected a file of `torch.cuda.memory._dump_snapshot` or `plimsoll predict --record`"
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

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { file, at, problem } = self;
        let unit = if *file == ProcessFile::Snapshot { "byte" } else { "line" };
        write!(f, "{file}, {unit} {at}: ")?;
        match problem {
            Problem::Damaged(damage) => write!(f, "{damage}; plimsoll read the part before"),
            Problem::Malformed(what) => write!(f, "left out {what}"),
            Problem::BadLine(why) => write!(f, "skipped a line: {why}"),
            Problem::TornLine => f.write_str("skipped the last line, which is incomplete"),
            Problem::NotASnapshot(error) => error.fmt(f),
            Problem::NewerFormat { found, newest } => write!(
                f,
                "format {found} is newer than this program, which reads up to {newest}; update it"
            ),
        }
    }
}
