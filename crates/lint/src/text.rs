//! A file's text: where its lines begin, which of its comments silence a rule, and a notebook's cells as one text.

use std::collections::BTreeSet;

use serde_json::Value;

/// What a comment begins with that silences rules.
const MARK: &str = "plimsoll:";

/// A place in a file, as editors count: from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Where the lines of a text begin.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(text: &'a str) -> Lines<'a> {
        let ends = text.bytes().enumerate().filter(|(_, it)| *it == b'\n');
        Lines { text, starts: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect() }
    }

    /// The number of the line, from 0, in which the byte `at` stands.
    pub(crate) fn index(&self, at: usize) -> usize {
        self.starts.partition_point(|it| *it <= at).saturating_sub(1)
    }

    /// Where the line begins in which the byte `at` stands.
    pub(crate) fn start(&self, at: usize) -> usize {
        self.starts[self.index(at)]
    }

    pub(crate) fn place(&self, at: usize) -> Place {
        let before = self.text.get(self.start(at)..at).unwrap_or_default();
        Place { line: self.index(at) + 1, column: before.chars().count() + 1 }
    }

    /// The line `number`, from 1.
    pub(crate) fn line(&self, number: usize) -> &'a str {
        let start = self.starts.get(number.saturating_sub(1)).copied().unwrap_or(self.text.len());
        self.text[start..].lines().next().unwrap_or_default()
    }
}

/// What the comments of a file silence.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Codes that are not said of this file; `*` is all of them.
    file: BTreeSet<String>,
    /// By line, from 0.
    lines: Vec<(usize, BTreeSet<String>)>,
}

impl Silence {
    /// `comments`: where each begins and ends.
    pub(crate) fn of(text: &str, lines: &Lines<'_>, comments: &[(usize, usize)]) -> Silence {
        let mut res = Silence::default();
        for (start, end) in comments {
            let Some((_, said)) = text[*start..*end].split_once(MARK) else { continue };
            let said = said.trim();
            if let Some(rest) = said.strip_prefix("ignore-file") {
                res.file.extend(codes(rest));
            } else if let Some(rest) = said.strip_prefix("ignore") {
                res.lines.push((lines.index(*start), codes(rest)));
            }
        }
        res
    }

    /// Whether the rule is silenced on any of the lines from `first` to `last`, from 0.
    pub(crate) fn has(&self, rule: [&str; 2], first: usize, last: usize) -> bool {
        let names = |set: &BTreeSet<String>| {
            set.contains("*") || rule.iter().any(|it| set.contains(&it.to_ascii_lowercase()))
        };
        names(&self.file)
            || self.lines.iter().any(|(at, set)| (first..=last).contains(at) && names(set))
    }
}

/// `[PLM101, kept-loss]`; without brackets, all.
fn codes(rest: &str) -> BTreeSet<String> {
    let inside = rest.trim_start().strip_prefix('[').and_then(|it| it.split(']').next());
    match inside {
        Some(inside) => inside.split(',').map(|it| it.trim().to_ascii_lowercase()).collect(),
        None => BTreeSet::from(["*".to_owned()]),
    }
}

/// The code of a notebook as one text, and for each of its lines the cell and the line in it, from 1.
pub(crate) struct Notebook {
    pub(crate) text: String,
    pub(crate) cells: Vec<(usize, usize)>,
}

impl Notebook {
    /// Cells of other languages (`%%bash`) are left out.
    pub(crate) fn of(json: &str) -> Result<Notebook, String> {
        let whole: Value =
            serde_json::from_str(json).map_err(|it| format!("it is no notebook: {it}"))?;
        let cells = whole["cells"].as_array().ok_or("it is no notebook: it has no cells")?;
        let mut res = Notebook { text: String::new(), cells: Vec::new() };
        for (number, cell) in (1..).zip(cells) {
            if cell["cell_type"] != "code" {
                continue;
            }
            let source = match &cell["source"] {
                Value::String(it) => it.clone(),
                Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
                _ => String::new(),
            };
            let first = source.trim_start().lines().next().unwrap_or_default();
            if first.starts_with("%%")
                && !["%%time", "%%capture"].iter().any(|it| first.starts_with(it))
            {
                continue;
            }
            for (line, text) in (1..).zip(source.lines()) {
                let is_magic = text.starts_with("%%");
                res.text += if is_magic { "" } else { text };
                res.text.push('\n');
                res.cells.push((number, line));
            }
        }
        Ok(res)
    }
}
