//! What the readers of tables share: a row without what stands before its frame, and levels that begin at a line.

use crate::{printed::Levels, sources::lines::Line};

/// `line` from where a table's frame begins, if only a time stands before.
pub(super) fn framed<'a>(line: &'a Line<'_>) -> Option<&'a str> {
    let text: &str = &line.text;
    let at = text.find(['|', '+'])?;
    let before = text[..at].trim();
    let is_time = before.chars().all(|it| it.is_ascii_digit() || "-:.TZ/ ,[]".contains(it));
    is_time.then(|| text[at..].trim_end())
}

pub(super) fn at_line(line: &Line<'_>) -> Levels {
    Levels { line: line.number, ..Levels::default() }
}
