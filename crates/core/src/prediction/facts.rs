//! What is known of a run beside its recordings.

use std::fmt;

use crate::units::Bytes;

/// What the CLI knows about a run and the recordings do not.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// How the script ended.
    pub exit: ScriptExit,
    /// How long it ran on the phantom, in seconds.
    pub seconds: f64,
    /// The most that it may take (`--max`).
    pub max: Option<Bytes>,
    /// It had failed, and we ended it because nothing of it moved any more.
    pub waited_in_vain: bool,
}

/// How the user's script ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptExit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for ScriptExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptExit::Code(code) => write!(f, "exited with code {code}"),
            ScriptExit::Signal(signal) => write!(f, "was ended by signal {signal}"),
        }
    }
}
