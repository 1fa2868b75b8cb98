//! Files of one JSON object a line, as the agent and the phantom write them.

use std::borrow::Cow;

use serde::Deserialize;

use crate::{
    printable,
    recording::contract::ProcessFile,
    sources::{Problem, Warning},
};

/// Hands every line of `bytes` that is a `T` to `take`; what is none becomes a warning.
pub(super) fn for_each_line<T: for<'a> Deserialize<'a>>(
    bytes: &[u8],
    file: ProcessFile,
    warnings: &mut Vec<Warning>,
    mut take: impl FnMut(T) -> Result<(), Problem>,
) {
    let mut lines = bytes.split_inclusive(|it| *it == b'\n').zip(1..).peekable();
    while let Some((line, at)) = lines.next() {
        let is_torn = lines.peek().is_none() && line.last() != Some(&b'\n');
        if line.trim_ascii().is_empty() {
            continue;
        }
        let problem = match serde_json::from_slice(line) {
            Ok(line) => take(line).err(),
            Err(_) if is_torn => Some(Problem::TornLine),
            Err(error) => Some(Problem::BadLine(one_line(error.to_string()))),
        };
        warnings.extend(problem.map(|problem| Warning { file, at, problem }));
    }
}

/// A name, or a sentence: none can pass for a line of a report.
pub(super) fn one_line(text: String) -> String {
    match printable::one_line(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    }
}
