//! What a script may keep instead of a tensor with its graph, as code.

use ruff_text_size::TextRange;

use crate::{
    reading::{
        story::Story,
        value::{Kind, Value},
    },
    rules::found::{Mend, wrapped},
};

/// The same expression without its graph, on the host; a list or a dictionary has no such methods.
pub(super) fn detached(story: &Story<'_, '_>, at: TextRange, value: &Value) -> Vec<Mend> {
    if is_many(value) { Vec::new() } else { wrapped(story, at, "(", ").detach().cpu()") }
}

/// A list or a dictionary: it has no methods of a tensor.
pub(super) fn is_many(value: &Value) -> bool {
    matches!(value.kind, Kind::List | Kind::Dict)
}

/// `text` with a method behind it, as code that runs; of long or broken text, the method alone.
pub(super) fn with(text: &str, method: &str) -> String {
    let is_name =
        text.chars().all(|it| it.is_alphanumeric() || "_.[]()\"'".contains(it)) && text.len() < 40;
    match text {
        _ if is_name => format!("`{text}.{method}`"),
        _ if text.len() < 60 && !text.contains('\n') && !text.ends_with([']', '}']) => {
            format!("`({text}).{method}`")
        }
        _ => format!("`.{method}` of it"),
    }
}

pub(super) fn number_of(text: &str, value: &Value) -> String {
    if is_many(value) {
        return "values that are `.detach()`ed first, or numbers (`.item()`)".to_owned();
    }
    with(text, if value.is_scalar { "item()" } else { "detach()" })
}
