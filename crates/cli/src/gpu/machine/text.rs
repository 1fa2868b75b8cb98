//! Texts that somebody else wrote, made fit for a terminal and for labels.

use plimsoll_core::printable::printable;

/// `text` as it may be shown, and at most `most` characters of it.
pub(super) fn plain(text: &str, most: usize) -> String {
    // A longer one is not written out to be cut.
    let text: String = text.chars().take(most + 1).collect();
    let text = printable(&text);
    if text.chars().count() <= most {
        return text.into_owned();
    }
    text.chars().take(most.saturating_sub(1)).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_it_obeys() {
        assert_eq!(plain("a\x1b[31mb\n\u{202e}c", 30), r"a\x1b[31mb\n\u{202e}c");
        assert_eq!(plain("train.py", 8), "train.py");
        assert_eq!(plain("training.py", 8), "trainin…");
    }
}
