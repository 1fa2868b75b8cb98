//! What many lines of `agent.jsonl` have.

use serde::{Deserialize, Deserializer};

use crate::{
    recording::{CodeLine, Place},
    sources::json_lines::one_line,
};

/// The bytes of a sentence that are kept.
pub(super) const MOST_SENTENCE: usize = 4000;

/// As much of a sentence as is shown.
pub(super) fn clipped(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST_SENTENCE));
    one_line(text)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlaceKeys {
    #[serde(deserialize_with = "or_default")]
    allocs: Vec<u64>,
    #[serde(deserialize_with = "or_default")]
    frees: Vec<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CodeText {
    #[serde(deserialize_with = "or_default")]
    file: String,
    #[serde(deserialize_with = "or_default")]
    line: u32,
    #[serde(deserialize_with = "or_default")]
    function: String,
    text: Option<String>,
}

/// `null` is what Python writes for what it does not know.
pub(super) fn or_default<'a, T: Default + Deserialize<'a>, D: Deserializer<'a>>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl From<PlaceKeys> for Place {
    fn from(it: PlaceKeys) -> Place {
        Place { allocs: it.allocs, frees: it.frees }
    }
}

impl From<CodeText> for CodeLine {
    fn from(it: CodeText) -> CodeLine {
        let CodeText { file, line, function, text } = it;
        // A tab is a blank of any width.
        let text = text.unwrap_or_default().trim().replace('\t', " ");
        let [file, function, text] = [file, function, text].map(one_line);
        CodeLine { file, line, function, text }
    }
}
