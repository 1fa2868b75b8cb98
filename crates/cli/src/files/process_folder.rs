//! What one process of a run left, whether its session or a recording has it.

use plimsoll_core::sources::ProcessFiles;

/// What one process left in its session folder, as bytes.
#[derive(Debug)]
pub(crate) struct ProcessFolder {
    pub(crate) pid: u32,
    /// `agent.jsonl`; empty when the agent was not in this process.
    pub(crate) notes: Vec<u8>,
    /// `snapshot.pickle`.
    pub(crate) snapshot: Option<Vec<u8>>,
    /// `phantom.jsonl`.
    pub(crate) phantom_log: Option<Vec<u8>>,
}

impl ProcessFolder {
    /// As the sources read it.
    pub(crate) fn files(&self) -> ProcessFiles<'_> {
        ProcessFiles {
            pid: self.pid,
            notes: &self.notes,
            snapshot: self.snapshot.as_deref(),
            phantom_log: self.phantom_log.as_deref(),
        }
    }
}
