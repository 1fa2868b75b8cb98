//! Memory mistakes in PyTorch training scripts, found by reading them.
//!
//! Text in, diagnoses out: no I/O, and no number. What a mistake costs, a run says. `text` knows lines, comments and
//! notebooks; `reading` makes a story of the syntax: what happens, in which loop, with gradients on or off, to values that
//! may hang on a graph; `rules` look for mistakes in that story. `numbers` says where whole numbers stand, for who wants another
//! one there.

mod bounds;
mod numbers;
mod reading;
mod rules;
mod text;

use std::{fmt, thread};

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::{Ranged as _, TextRange};

use crate::{
    bounds::TooMuch,
    reading::{file::File, story::Story},
    rules::found::Mend,
    text::{Lines, Notebook, Silence},
};
pub use crate::{
    numbers::{WholeNumber, whole_numbers},
    rules::{RULES, Rule, Weight, rule},
    text::Place,
};

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Which.
    pub rule: &'static Rule,
    /// Where it begins; in a notebook, in its cell.
    pub start: Place,
    /// Where it ends.
    pub end: Place,
    /// The notebook's cell, from 1.
    pub cell: Option<usize>,
    /// What was found, and what to do.
    pub message: String,
    /// The text of the first line.
    pub line: String,
    probe: Probe,
    mend: Vec<Change>,
}

/// Where a call can be put that runs if a mistake does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Probe {
    at: usize,
    /// If it needs a line of its own: what that begins with.
    indent: Option<String>,
}

/// A change of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    from: usize,
    to: usize,
    text: String,
}

/// Which rules are looked for.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only these, by code, by the beginning of a code, by name, or `ALL`; without any, those that are on.
    pub select: Vec<String>,
    /// But not these.
    pub ignore: Vec<String>,
}

impl Selection {
    /// Whether it has this rule.
    pub fn has(&self, rule: &Rule) -> bool {
        let named = |words: &[String]| {
            words.iter().any(|word| {
                word.eq_ignore_ascii_case("ALL")
                    || rule.name.eq_ignore_ascii_case(word)
                    || rule.code.starts_with(&word.to_ascii_uppercase())
            })
        };
        let selected = if self.select.is_empty() { rule.on } else { named(&self.select) };
        selected && !named(&self.ignore)
    }

    /// A word that names no rule.
    pub fn unknown(&self) -> Option<&str> {
        let known = |word: &str| {
            word.eq_ignore_ascii_case("ALL")
                || RULES.iter().any(|rule| {
                    rule.name.eq_ignore_ascii_case(word)
                        || !word.is_empty() && rule.code.starts_with(&word.to_ascii_uppercase())
                })
        };
        self.select.iter().chain(&self.ignore).map(String::as_str).find(|it| !known(it))
    }
}

/// A file that was left out: it is no Python, or more than anybody writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Where, if it is for one place.
    pub at: Option<Place>,
    /// Why.
    pub message: String,
}

impl LeftOut {
    fn whole(message: String) -> LeftOut {
        LeftOut { at: None, message }
    }
}

/// `line:column: why`
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{}:{}:", at.line, at.column)?;
        }
        write!(f, " {}", self.message)
    }
}

/// The mistakes in a file: what costs most first, and then in the order of the text.
pub fn lint(text: &str, selection: &Selection) -> Result<Vec<Diagnosis>, LeftOut> {
    of_text(text, Mode::Module, selection)
}

/// The mistakes in a notebook.
pub fn lint_notebook(json: &str, selection: &Selection) -> Result<Vec<Diagnosis>, LeftOut> {
    let notebook = Notebook::of(json).map_err(LeftOut::whole)?;
    let found = of_text(&notebook.text, Mode::Ipython, selection)?;
    let place = |place: &Place| {
        let found = notebook.cells.get(place.line.saturating_sub(1));
        found.map_or((1, place.line), |(cell, line)| (*cell as usize, *line as usize))
    };
    Ok(found
        .into_iter()
        .map(|diagnosis| {
            let ((cell, first), (_, last)) = (place(&diagnosis.start), place(&diagnosis.end));
            Diagnosis {
                start: Place { line: first, ..diagnosis.start },
                end: Place { line: last, ..diagnosis.end },
                cell: Some(cell),
                ..diagnosis
            }
        })
        .collect())
}

/// In a thread of its own, whose stack is known to be large enough for what [`bounds::check`] lets through.
fn of_text(text: &str, mode: Mode, selection: &Selection) -> Result<Vec<Diagnosis>, LeftOut> {
    bounds::check(text, mode).map_err(|it| LeftOut::whole(it.to_string()))?;
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(bounds::STACK);
        let thread = thread.spawn_scoped(scope, || read(text, mode, selection));
        let thread = thread.map_err(|why| {
            LeftOut::whole(format!("plimsoll cannot start a thread to read it: {why}"))
        })?;
        thread.join().unwrap_or_else(|_| {
            let message = "plimsoll failed while it read this file; that is a bug in plimsoll: please report it with the file";
            Err(LeftOut::whole(message.to_owned()))
        })
    })
}

fn read(text: &str, mode: Mode, selection: &Selection) -> Result<Vec<Diagnosis>, LeftOut> {
    let lines = Lines::of(text);
    let parsed = parse_unchecked(text, ParseOptions::from(mode));
    if let Some(error) = parsed.errors().first() {
        let at = lines.place(error.location.start().to_usize());
        return Err(LeftOut {
            at: Some(at),
            message: format!("this is not Python: {}", error.error),
        });
    }
    let comments: Vec<(usize, usize)> = parsed
        .tokens()
        .iter()
        .filter(|it| it.kind() == TokenKind::Comment)
        .map(|it| bytes(it.range()))
        .collect();
    let Some(parsed) = parsed.try_into_module() else { return Ok(Vec::new()) };
    let silence = Silence::of(text, &lines, &comments);
    let file = File::of(text, parsed.suite());
    let story = Story::of(&file);
    let mut res: Vec<Diagnosis> = Vec::new();
    let found = rules::find(&story);
    if file.steps.are_over() {
        return Err(LeftOut::whole(TooMuch::Steps.to_string()));
    }
    for found in found {
        let Some(rule) = rules::rule(found.code).filter(|it| selection.has(it)) else { continue };
        let (start, end) = bytes(found.at);
        let (statement, statement_end) = bytes(found.statement);
        let last = lines.index(end).max(lines.index(statement_end).min(lines.index(start) + 20));
        let first = lines.index(start).min(lines.index(statement));
        let first = if lines.index(start) - first > 20 { lines.index(start) } else { first };
        if silence.has([rule.code, rule.name], first, last) {
            continue;
        }
        let place = lines.place(start);
        res.push(Diagnosis {
            rule,
            start: place,
            end: lines.place(end),
            cell: None,
            message: found.message,
            line: lines.line(place.line).to_owned(),
            probe: probe(text, &lines, statement),
            mend: changes(text, &lines, &found.mend),
        });
    }
    let place = |it: &Diagnosis| (it.rule.weight, it.start, it.rule.code);
    res.sort_by_key(place);
    res.dedup_by(|a, b| a.start == b.start && a.rule == b.rule);
    Ok(res)
}

/// Where a line can be put that runs if the statement at `at` does: at its beginning, or before it, if it has a body.
fn probe(text: &str, lines: &Lines<'_>, at: usize) -> Probe {
    const WITH_BODY: [&str; 10] =
        ["for", "while", "if", "with", "def", "class", "try", "async", "match", "@"];
    let before = text[lines.start(at)..at].trim();
    let is_start = before.is_empty() || before.ends_with([':', ';']);
    let blank = text[lines.start(at)..].find(|it: char| it != ' ' && it != '\t').unwrap_or(0);
    let at = if is_start { at } else { lines.start(at) + blank };
    let has_body = WITH_BODY.iter().any(|keyword| {
        let rest = text[at..].strip_prefix(keyword);
        rest.is_some_and(|rest| !rest.starts_with(|it: char| it.is_alphanumeric() || it == '_'))
    });
    Probe { at, indent: has_body.then(|| text[lines.start(at)..at].to_owned()) }
}

fn bytes(range: TextRange) -> (usize, usize) {
    (range.start().to_usize(), range.end().to_usize())
}

fn changes(text: &str, lines: &Lines<'_>, mend: &[Mend]) -> Vec<Change> {
    let indent = |at: usize| {
        let start = lines.start(at);
        let blank = text[start..].find(|it: char| it != ' ' && it != '\t').unwrap_or(0);
        text[start..start + blank].to_owned()
    };
    mend.iter()
        .map(|mend| match mend {
            Mend::Replace(range, with) => {
                let (from, to) = bytes(*range);
                Change { from, to, text: with.clone() }
            }
            Mend::Before(range, line) => {
                let (at, _) = bytes(*range);
                let start = lines.start(at);
                Change { from: start, to: start, text: format!("{}{line}\n", indent(at)) }
            }
            Mend::After(range, line) => {
                let (at, end) = bytes(*range);
                Change { from: end, to: end, text: format!("\n{}{line}", indent(at)) }
            }
        })
        .collect()
}

impl Diagnosis {
    /// The text without this mistake: to be run beside the other, not to be kept.
    pub fn mended(&self, text: &str) -> Option<String> {
        let mut changes = self.mend.clone();
        changes.sort_by_key(|it| std::cmp::Reverse((it.from, it.to)));
        let mut res = text.to_owned();
        for it in &changes {
            res.get(it.from..it.to)?;
            res.replace_range(it.from..it.to, &it.text);
        }
        (!changes.is_empty()).then_some(res)
    }
}

/// The text with a call before each of these diagnoses that says, by its number, that it is reached: on the same line where
/// that can be, so that few lines move.
pub fn probed(text: &str, diagnoses: &[Diagnosis], call: impl Fn(usize) -> String) -> String {
    let mut places: Vec<(&Probe, usize)> =
        diagnoses.iter().enumerate().map(|(n, it)| (&it.probe, n)).collect();
    places.sort_unstable();
    let mut res = text.to_owned();
    for (probe, n) in places.into_iter().rev() {
        let text = match &probe.indent {
            Some(indent) => format!("{}\n{indent}", call(n)),
            None => format!("{}; ", call(n)),
        };
        if res.is_char_boundary(probe.at) {
            res.insert_str(probe.at, &text);
        }
    }
    res
}
