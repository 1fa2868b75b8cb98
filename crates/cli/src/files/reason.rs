//! Why the operating system refused something, in its words.

use std::io;

/// The operating system's words without "(os error 30)".
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_lowercase(),
        None => error.to_string(),
    }
}
