//! What a rule found, before it is a diagnosis.

use ruff_text_size::TextRange;

/// A change of the text that takes the mistake away: so that both can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mend {
    /// Other text for this.
    Replace(TextRange, String),
    /// A line before the statement that begins there.
    Before(TextRange, String),
    /// A line after the statement.
    After(TextRange, String),
}

/// A mistake.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) code: &'static str,
    pub(crate) at: TextRange,
    /// The statement around it: if that ran, the mistake did.
    pub(crate) statement: TextRange,
    pub(crate) message: String,
    pub(crate) mend: Vec<Mend>,
}

/// What a text looks like around something.
pub(crate) fn wrapped(before: &str, text: &str, after: &str) -> String {
    format!("{before}{text}{after}")
}
