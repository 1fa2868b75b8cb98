//! What came of a run, as far as other runs are compared with it.

use plimsoll_core::units::Bytes;

/// Steps by which two runs are compared.
pub const EARLY: u32 = 2;

/// Why a run gave no answer. Two runs fail alike if these are equal, whatever the sentences for people say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Somebody asked us to stop.
    Interrupted,
    /// The script raised.
    Raised {
        /// The class of the exception.
        class: String,
        /// The file and line of the user's where it was raised, if that is known.
        at: Option<(String, u32)>,
    },
    /// The command ended with this exit code.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// The machine ran out of memory.
    HostMemory,
    /// It wrote more than it may.
    Disk,
    /// It ended without a training step.
    NoStep,
    /// Anything else, such as a Python without torch.
    NoRun,
}

/// Allocations so far, and allocated bytes, by device.
pub type Mark = (Vec<u64>, Vec<Bytes>);

/// The first steps of a run, which another run is compared by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Optimizer steps that were seen, two at most.
    pub steps: u32,
    /// Where memory was at each mark of these steps, of each process.
    pub marks: Vec<Vec<Mark>>,
}

/// One run and what it says.
#[derive(Clone, Debug)]
pub struct Trial<T> {
    /// Why it gave no answer.
    pub failure: Option<Failure>,
    /// Out-of-memory errors, those that the script caught included.
    pub n_ooms: usize,
    /// It used `torch.compile`.
    pub compiles: bool,
    /// Its first steps.
    pub start: Start,
    /// Other runs were under way meanwhile.
    pub had_company: bool,
    /// What the executor read of it.
    pub read: T,
}

impl<T> Trial<T> {
    /// Whether somebody asked us to stop while it ran.
    pub fn was_interrupted(&self) -> bool {
        self.failure == Some(Failure::Interrupted)
    }

    /// Whether other runs may have been in its way: it failed, not for memory, and they were there.
    pub(super) fn may_be_disturbed(&self) -> bool {
        let failed = self.failure.is_some() && !self.was_interrupted();
        failed && self.n_ooms == 0 && self.had_company
    }

    /// What is compared of it.
    pub(super) fn compared(&self) -> Compared {
        Compared { start: self.start.clone(), failure: self.failure.clone(), n_ooms: self.n_ooms }
    }
}

/// What two runs are compared by.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    start: Start,
    pub(super) failure: Option<Failure>,
    n_ooms: usize,
}

impl Compared {
    /// Whether both asked for the same memory, step by step. Two runs of the very same script may differ by the rest of a block that was not
    /// worth splitting; and one that is stopped after the last of these steps has not the marks that come before the next one.
    pub(super) fn is_like(&self, other: &Compared) -> bool {
        let close = |a: &Bytes, b: &Bytes| a.0.abs_diff(b.0) <= a.0.max(1 << 30) / 1000;
        let same =
            |(a, b): (&Mark, &Mark)| a.0 == b.0 && a.1.iter().zip(&b.1).all(|(a, b)| close(a, b));
        let (ours, theirs) = (&self.start, &other.start);
        let mut processes = ours.marks.iter().zip(&theirs.marks);
        ours.marks.len() == theirs.marks.len()
            && ours.steps == theirs.steps
            && processes.all(|(a, b)| a.is_empty() == b.is_empty() && a.iter().zip(b).all(same))
            && (&self.failure, self.n_ooms) == (&other.failure, other.n_ooms)
    }
}
