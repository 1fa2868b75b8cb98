//! A line of code that asked for memory.

use std::fmt;

use crate::{
    prediction::device_run::DeviceRun,
    recording::{is_agents_code, is_users_code},
    scene::position::count,
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
    /// Whose code it is.
    pub code: Code,
    /// Autograd's threads asked, in the backward pass that this line called.
    pub is_backward: bool,
}

/// Whose code a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The user's own.
    Users,
    /// A library's, or Python's.
    Library,
    /// Our recorder's, which nobody needs to see.
    Recorder,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_backward {
            f.write_str("backward of ")?;
        }
        let name = self.file.rsplit(['/', '\\']).next().unwrap_or_default();
        match self.line {
            _ if name.is_empty() || name == "??" => write!(f, "{}", self.function),
            0 => write!(f, "{name} in {}", self.function),
            line => write!(f, "{name}:{line} in {}", self.function),
        }
    }
}

/// The user's own line of `stack`; where there is none, the innermost that is not our recorder's.
pub(super) fn line_of(run: &DeviceRun<'_>, stack: StackId) -> Option<FrameId> {
    let others =
        || run.trace.stacks.frame_ids(stack).find(|it| code_of(run, *it) != Code::Recorder);
    run.stacks.user_frame(stack).or_else(others)
}

/// The same of every stack, by its id.
pub(super) fn lines(run: &DeviceRun<'_>) -> Vec<Option<FrameId>> {
    let table = &run.trace.stacks;
    // Callers come before their callees.
    let mut others: Vec<Option<FrameId>> = Vec::with_capacity(table.n_nodes());
    for node in 0..table.n_nodes() {
        let id = StackId(count(node));
        let own = table.frame_ids(id).next().filter(|it| code_of(run, *it) != Code::Recorder);
        others.push(own.or_else(|| others.get(table.caller(id).index()).copied().flatten()));
    }
    let stacks = (0..).map(StackId).zip(others);
    stacks.map(|(stack, other)| run.stacks.user_frame(stack).or(other)).collect()
}

pub(super) fn code_of(run: &DeviceRun<'_>, frame: FrameId) -> Code {
    let frame = run.trace.stacks.frame_of(frame);
    let file = run.trace.text(frame.file).replace('\\', "/");
    if is_agents_code(&file) {
        Code::Recorder
    } else if is_users_code(&file, frame.line) {
        Code::Users
    } else {
        Code::Library
    }
}

pub(super) fn name_of(run: &DeviceRun<'_>, id: FrameId) -> Line {
    let frame = run.trace.stacks.frame_of(id);
    Line {
        file: run.trace.text(frame.file).to_owned(),
        line: frame.line,
        function: run.trace.text(frame.function).to_owned(),
        code: code_of(run, id),
        is_backward: false,
    }
}
