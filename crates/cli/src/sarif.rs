//! SARIF 2.1.0: what code hosts read and show beside the lines.

use std::path::Path;

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
        .map(|it| {
            let locations = it.file.as_ref().map(|file| {
                json!([{ "physicalLocation": {
                    "artifactLocation": { "uri": uri(file) },
                    "region": {
                        "startLine": it.region[0], "startColumn": it.region[1],
                        "endLine": it.region[2], "endColumn": it.region[3],
                    },
                } }])
            });
            json!({
                "ruleId": it.rule,
                "level": it.level,
                "message": { "text": it.message },
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
    text.trim_start_matches("./").replace('%', "%25").replace(' ', "%20")
}
