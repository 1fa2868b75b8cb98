//! A line of code that asked for memory.

use std::fmt;

use crate::{
    prediction::device_run::DeviceRun,
    trace::{FrameId, StackId},
};

/// A line of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 when unknown.
    pub line: u32,
    /// The function.
    pub function: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.rsplit(['/', '\\']).next().unwrap_or_default();
        match self.line {
            _ if name.is_empty() || name == "??" => write!(f, "{}", self.function),
            0 => write!(f, "{name} in {}", self.function),
            line => write!(f, "{name}:{line} in {}", self.function),
        }
    }
}

/// The user's own line of `stack`; where there is none, the innermost.
pub(super) fn line_of(run: &DeviceRun<'_>, stack: StackId) -> Option<FrameId> {
    run.stacks.user_frame(stack).or_else(|| run.trace.stacks.frame_ids(stack).next())
}

pub(super) fn name_of(run: &DeviceRun<'_>, frame: FrameId) -> Line {
    let frame = run.trace.stacks.frame_of(frame);
    Line {
        file: run.trace.text(frame.file).to_owned(),
        line: frame.line,
        function: run.trace.text(frame.function).to_owned(),
    }
}
