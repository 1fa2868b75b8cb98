//! Text in columns: lines that end between words, and what does not fit cut off.

use std::fmt::{self, Formatter, Write as _};

/// `text` in lines of `width` columns; the first begins at column `start`, the others at `indent`.
pub(super) fn wrapped(
    f: &mut Formatter<'_>,
    text: &str,
    width: usize,
    start: usize,
    indent: usize,
) -> fmt::Result {
    let mut column = start;
    let mut at_start = true;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if !at_start && width < column + 1 + len {
            write!(f, "\n{:indent$}", "")?;
            column = indent;
            at_start = true;
        }
        if !at_start {
            f.write_char(' ')?;
            column += 1;
        }
        f.write_str(word)?;
        column += len;
        at_start = false;
    }
    writeln!(f)
}

/// `text` cut at its end to `room` columns.
pub(super) fn clipped(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words() {
        let text = fmt::from_fn(|f| wrapped(f, "one two  three\nfour", 9, 0, 2)).to_string();
        assert_eq!(text, "one two\n  three\n  four\n");
        assert_eq!((clipped("größer", 6), clipped("größer", 4)), ("größer".into(), "grö…".into()));
    }
}
