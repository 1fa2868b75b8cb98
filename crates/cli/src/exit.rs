//! How the process ends. The numbers are part of the interface: scripts test for them.

use std::{io, process::ExitCode};

/// Every way in which `plimsoll` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It fits; or there was nothing to decide and all went well.
    Fits = 0,
    /// It does not fit the card, or not under `--max`; or there was nothing to explain.
    DoesNotFit = 1,
    /// Could not tell: wrong arguments, the script failed, no torch, unsupported, interrupted.
    CouldNotTell = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Whether the reader of our output went away, as `plimsoll cards | head` does.
pub(crate) fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
