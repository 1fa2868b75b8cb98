//! SARIF 2.1.0: what code hosts read and show beside the lines.

use std::{fmt::Write as _, path::Path};

use plimsoll_core::printable::printable;
use serde_json::{Value, json};

/// One result.
pub(crate) struct Result {
    pub(crate) rule: String,
    pub(crate) level: &'static str,
    pub(crate) message: String,
    /// The file; none if there is no line to show it beside.
    pub(crate) file: Option<String>,
    /// First line, first column, last line, last column, from 1.
    pub(crate) region: [usize; 4],
}

/// A rule: its id, its name, a sentence, a page in Markdown.
pub(crate) type Rule<'a> = (&'a str, &'a str, &'a str, &'a str);

/// One run, as a document.
pub(crate) fn document(rules: &[Rule<'_>], results: &[Result]) -> String {
    let rules: Vec<Value> = rules
        .iter()
        .map(|(id, name, title, page)| {
            json!({
                "id": id,
                "name": name,
                "shortDescription": { "text": title },
                "help": { "text": page, "markdown": page },
            })
        })
        .collect();
    let results: Vec<Value> = results
        .iter()
        .map(|annotation| {
            let locations = annotation.file.as_ref().map(|file| {
                json!([{ "physicalLocation": {
                    "artifactLocation": { "uri": uri(file) },
                    "region": {
                        "startLine": annotation.region[0], "startColumn": annotation.region[1],
                        "endLine": annotation.region[2], "endColumn": annotation.region[3],
                    },
                } }])
            });
            json!({
                "ruleId": annotation.rule,
                "level": annotation.level,
                "message": { "text": message(&annotation.message) },
                "locations": locations.unwrap_or_else(|| json!([])),
            })
        })
        .collect();
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "plimsoll",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            } },
            "results": results,
        }],
    });
    format!("{document:#}\n")
}

/// Relative to where we are: a host knows no other folder.
fn uri(file: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let path = Path::new(file);
    let path = path.strip_prefix(&here).unwrap_or(path);
    let text = path.to_string_lossy();
    let mut res = String::new();
    for byte in text.trim_start_matches("./").bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                res.push(byte.into());
            }
            other => {
                // A text is written to without errors.
                let _ = write!(res, "%{other:02X}");
            }
        }
    }
    res
}

/// A message as text: brackets before a parenthesis would be a link.
fn message(text: &str) -> String {
    printable(text).replace("](", "] (")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_path_and_no_link() {
        assert_eq!(uri("./src/train.py"), "src/train.py");
        assert_eq!(uri("a b/é%\n#x?.py"), "a%20b/%C3%A9%25%0A%23x%3F.py");
        assert_eq!(message("[a](http://b)\n"), r"[a] (http://b)\n");
    }
}
