//! How the process ends. The numbers are part of the interface: scripts test for them.

use std::{io, process::ExitCode};

/// Every way in which `plimsoll` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It fits; or there was nothing to decide and all went well. 0.
    Fits,
    /// It does not fit the card, grows until it does not, or not under `--max`; or there was nothing to explain. 1.
    DoesNotFit,
    /// Could not tell: wrong arguments, the script failed, no torch, unsupported, interrupted. 2.
    CouldNotTell,
    /// What the script ended with, where it ran for real.
    OfScript(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Fits => 0,
            Exit::DoesNotFit => 1,
            Exit::CouldNotTell => 2,
            Exit::OfScript(code) => code,
        })
    }
}

/// Whether the reader of our output went away, as `plimsoll cards | head` does.
pub(crate) fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_these_numbers() {
        let page = include_str!("../../../docs/exit-codes.md");
        for (exit, words) in [
            (Exit::Fits, "| 0 | it fits"),
            (Exit::DoesNotFit, "| 1 | it does not fit"),
            (Exit::CouldNotTell, "| 2 | unknown"),
        ] {
            let number = &words[2..3];
            assert_eq!(ExitCode::from(exit), ExitCode::from(number.parse::<u8>().unwrap()));
            assert!(page.contains(words), "{words}");
        }
    }
}
