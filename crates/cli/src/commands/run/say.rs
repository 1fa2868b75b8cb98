//! Sentences for a person, on standard error: what the script writes goes where it always went.

use std::io::{self, Write as _};

pub(super) fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "plimsoll: {sentence}");
}
