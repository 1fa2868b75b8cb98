//! Why the operating system refused something, in its words.

use std::{io, path::Path};

/// The operating system's words without "(os error 30)".
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_lowercase(),
        None => error.to_string(),
    }
}

/// What to add where `path` does not exist and is written as on Windows.
pub(crate) fn of_windows(path: &Path) -> &'static str {
    let text = path.as_os_str().as_encoded_bytes();
    let has_drive = matches!(text, [drive, b':', b'/', ..] if drive.is_ascii_alphabetic());
    let is_windows = has_drive || text.contains(&b'\\');
    if is_windows && !path.exists() { " (WSL has the drive C: as /mnt/c)" } else { "" }
}
