//! What plimsoll prints: the one way to standard output and standard error. Names in recordings, logs and scripts, and on the disk, may be a
//! stranger's, and a terminal obeys what it finds in them; so does who reads the log of a job, such as GitHub's runner. So nothing leaves
//! here but what can be seen, line ends and our own styles: the rest is written out, as in `\x1b`. `clippy.toml` has no other way allowed.

use std::{
    borrow::Cow,
    env,
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use anyhow::Context as _;
use clap::ValueEnum;
use plimsoll_core::{
    printable::{escape, is_printable, printable},
    views::text::{Style, Styles},
};

use crate::{
    exit,
    fold::{broken, folded},
};

/// Reports are laid out for terminals that have as many columns, or more.
const FEWEST_COLUMNS: usize = 76;

/// When to use colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether what is printed there is to be colored.
    pub(crate) fn is_on(self, is_terminal: bool) -> bool {
        let no_color = env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|it| it == "dumb");
        match self {
            Color::Auto => is_terminal && !no_color && !is_dumb,
            Color::Always => true,
            Color::Never => false,
        }
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: io::StdoutLock<'static>,
    styles: Styles,
    /// Nothing but blanks stands in the line that is being written.
    at_start: bool,
}

impl Output {
    #[expect(clippy::disallowed_methods, reason = "all others come here")]
    pub(crate) fn open(color: Color) -> Output {
        let stdout = io::stdout().lock();
        let is_on = color.is_on(stdout.is_terminal());
        let styles = if is_on { Styles::COLOR } else { Styles::default() };
        Output { stdout, styles, at_start: true }
    }

    /// How parts of a text are marked.
    pub(crate) fn styles(&self) -> Styles {
        self.styles
    }

    pub(crate) fn is_styled(&self) -> bool {
        !self.styles.bad.on.is_empty()
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.stdout.is_terminal()
    }

    /// How many columns a line may have: as many as the terminal has, within these; `usual`, if it is none.
    pub(crate) fn width(&self, (least, most): (u16, u16), usual: u16) -> usize {
        let found = terminal_size::terminal_size_of(&self.stdout).map_or(usual, |(it, _)| it.0);
        found.clamp(least, most).into()
    }

    /// Prints a report: on a terminal no more of it than one screen, unless `is_full`. See [`folded`].
    pub(crate) fn report(
        &mut self,
        report: &str,
        is_full: bool,
        stays: &[&str],
    ) -> anyhow::Result<()> {
        let Some((columns, rows)) = terminal_size::terminal_size_of(&self.stdout) else {
            return self.text(report);
        };
        let (columns, rows) = (usize::from(columns.0).max(1), usize::from(rows.0));
        let report = broken(report, columns.max(FEWEST_COLUMNS));
        match is_full {
            true => self.text(&report),
            false => self.text(&folded(&report, (columns, rows), stays)),
        }
    }

    /// Prints text for people.
    pub(crate) fn text(&mut self, text: &str) -> anyhow::Result<()> {
        let marks = marks(self.styles);
        let text = cleared(text, &marks, &mut self.at_start);
        self.bytes(text.as_bytes())
    }

    /// Prints JSON.
    pub(crate) fn json(&mut self, document: &str) -> anyhow::Result<()> {
        self.bytes(json(document).as_bytes())
    }

    /// Prints what a program reads byte for byte, and what has nobody's text but ours. A reader that goes away, as `head` does, is no error.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self.stdout.write_all(bytes).and_then(|()| self.stdout.flush()) {
            Err(error) if !exit::is_broken_pipe(&error) => {
                Err(error).context("cannot write to standard output")
            }
            _ => Ok(()),
        }
    }
}

/// Says a sentence to a person, on standard error. It is one line.
pub(crate) fn say(sentence: &str) {
    report(&format!("plimsoll: {}\n", printable(sentence)));
}

/// Prints text for people on standard error.
pub(crate) fn report(text: &str) {
    of_script(cleared(text, &[], &mut true).as_bytes());
}

/// Passes on to standard error what a program of the user's printed.
#[expect(clippy::disallowed_methods, reason = "all others come here")]
pub(crate) fn of_script(bytes: &[u8]) {
    // Nobody may be there to see it.
    let _ = io::stderr().write_all(bytes);
}

/// Whether a person sees what we say.
#[expect(clippy::disallowed_methods, reason = "it writes nothing")]
pub(crate) fn is_seen() -> bool {
    io::stderr().is_terminal()
}

/// Standard error, for a program that prints there.
#[expect(clippy::disallowed_methods, reason = "what is printed is the program's")]
pub(crate) fn standard_error() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}

/// A path as it may stand in a text for people.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Text for people as a file has it.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    cleared(text, &[], &mut true)
}

/// A JSON document that says the same, in characters that can be seen.
pub(crate) fn json(document: &str) -> Cow<'_, str> {
    let is_clear = |it: char| is_printable(it) || it == '\n' || it == '\t';
    if document.chars().all(is_clear) && !document.contains("##") {
        return Cow::Borrowed(document);
    }
    let mut res = String::with_capacity(document.len() + 64);
    for (at, it) in document.char_indices() {
        if is_clear(it) && !commands_azure(&document[at..]) {
            res.push(it);
        } else {
            for unit in it.encode_utf16(&mut [0; 2]) {
                let _ = write!(res, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(res)
}

/// What stands before and after a marked part.
fn marks(styles: Styles) -> Vec<&'static str> {
    let Styles { good, bad, warn, heading, faint } = styles;
    let all = [good, bad, warn, heading, faint];
    all.iter().flat_map(|Style { on, off }| [*on, *off]).filter(|it| !it.is_empty()).collect()
}

/// `text` with nothing that a terminal or a reader of logs would obey, but for `marks`.
fn cleared<'a>(text: &'a str, marks: &[&str], at_start: &mut bool) -> Cow<'a, str> {
    let is_clear = |it: char| is_printable(it) || it == '\n' || it == '\t';
    if text.chars().all(is_clear) && !text.contains("::") && !text.contains("##") {
        *at_start = text.rsplit('\n').next().is_none_or(|it| it.trim().is_empty());
        return Cow::Borrowed(text);
    }
    let mut res = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(it) = rest.chars().next() {
        let mark = marks.iter().find(|it| rest.starts_with(**it));
        if let Some(mark) = mark {
            res.push_str(mark);
            rest = &rest[mark.len()..];
            continue;
        }
        // GitHub takes a line of these for a command, wherever it comes from, and Azure one that has its own anywhere.
        let commands = *at_start && rest.starts_with("::") || commands_azure(rest);
        if is_clear(it) && !commands {
            res.push(it);
            *at_start = it == '\n' || *at_start && it.is_whitespace();
        } else {
            escape(it, &mut res);
            *at_start = false;
        }
        rest = &rest[it.len_utf8()..];
    }
    Cow::Owned(res)
}

/// Whether `text` begins as a command to a runner of Azure or, once, GitHub: `##[error]`, `##vso[task.setvariable]`.
fn commands_azure(text: &str) -> bool {
    let word = text
        .strip_prefix("##")
        .map(|it| it.trim_start_matches(|it: char| it.is_ascii_alphabetic()));
    word.is_some_and(|it| it.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_marks_pass() {
        let marked = |text: &str| cleared(text, &marks(Styles::COLOR), &mut true).into_owned();
        assert_eq!(
            marked("\x1b[1;32mFITS\x1b[0m \x1b[4mit\n"),
            "\x1b[1;32mFITS\x1b[0m \\x1b[4mit\n"
        );
        assert_eq!(text("\x1b[1;32mFITS\x1b[0m"), r"\x1b[1;32mFITS\x1b[0m");
        assert!(
            matches!(text("größe\tdes 🎉\n  a::b # c\n"), Cow::Owned(it) if it == "größe\tdes 🎉\n  a::b # c\n")
        );
        assert!(matches!(text("größe\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn no_line_is_a_command_of_a_workflow() {
        for (given, expected) in [
            ("::error::x\n \u{a0}::x\na ::b", "\\x3a:error::x\n \u{a0}\\x3a:x\na ::b"),
            ("a ##[error]x ##vso[task.x] ## [", "a \\x23#[error]x \\x23#vso[task.x] ## ["),
            ("###[x", "#\\x23#[x"),
        ] {
            assert_eq!(text(given), expected);
        }
        let mut at_start = true;
        let parts =
            ["  ", "::a\n", "b", "::c"].map(|it| cleared(it, &[], &mut at_start).into_owned());
        assert_eq!(parts.concat(), "  \\x3a:a\nb::c");
        assert_eq!(cleared("::a", &marks(Styles::COLOR), &mut true), r"\x3a:a");
    }

    #[test]
    fn json_says_the_same() {
        let said = "\u{9b}\u{7f}\u{202e}##[error]\u{e0041}é\u{200b}";
        let document = serde_json::Value::from(said).to_string();
        let printed = json(&document);
        assert_eq!(printed, r#""\u009b\u007f\u202e\u0023#[error]\udb40\udc41é\u200b""#);
        assert_eq!(serde_json::from_str::<String>(&printed).unwrap(), said);
    }
}
