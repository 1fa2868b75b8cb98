//! What one process left behind: its [`Trace`], the agent's notes and the phantom's own account.
//! Pure data; the formats they come in are `sources`' to know, what follows from them `prediction`'s.

mod notes;
mod phantom;

pub use notes::{
    Begin, CodeLine, DeviceStats, End, EndReason, Exception, Mark, MarkKind, NamedTensor, Notes,
    OomNote, Phase, Place, ReadNote, Remark, Role, Tensors, Unsupported,
};
pub use phantom::{Approximated, NotImitated, PhantomDevice, PhantomReport};

use crate::trace::Trace;

/// What one process left behind.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The process id it had.
    pub pid: u32,
    /// What it asked of its allocators; none if it never used one, or died before writing.
    pub trace: Option<Trace>,
    /// What the agent saw.
    pub notes: Notes,
    /// What the phantom says of itself; none on a real GPU.
    pub phantom: Option<PhantomReport>,
}
