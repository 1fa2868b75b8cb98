//! What a rule found, before it is a diagnosis.

use ruff_text_size::TextRange;

use crate::reading::story::Story;

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

/// The same expression with something around it. One that goes over many lines stays: nobody reads what it became.
pub(crate) fn wrapped(
    story: &Story<'_, '_>,
    at: TextRange,
    before: &str,
    after: &str,
) -> Vec<Mend> {
    let text = story.file.piece(at);
    text.map(|it| Mend::Replace(at, format!("{before}{it}{after}"))).into_iter().collect()
}

/// The beginning of a text, as a message has it.
pub(crate) fn clipped(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().nth(40).is_none() {
        line.to_owned()
    } else {
        line.chars().take(37).collect::<String>() + "..."
    }
}
