//! A number that stands in a file of the script's, whose largest value is wanted: found by its place, `train.py:14`, or by
//! the name that the script gives it, `batch_size`.

use std::{
    ffi::{OsStr, OsString},
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use plimsoll_lint::{WholeNumber, whole_numbers};
use serde_json::json;

use crate::{
    contract::{self, Setting},
    files::bounded_file,
    options::cli::{FitArgs, Writes},
};

/// Where it stands.
pub(super) struct InFile {
    file: PathBuf,
    /// How long the file is.
    size: usize,
    number: WholeNumber,
}

impl InFile {
    /// The one number that `name` means.
    pub(super) fn find(name: &str, args: &FitArgs) -> anyhow::Result<InFile> {
        if matches!(args.world.writes, Writes::Through) {
            bail!(
                "--find-max {name} tries numbers in a file of yours, and --writes through would change it: leave --writes through out"
            );
        }
        match of_place(name) {
            Some((file, line, column)) => at(Path::new(file), line, column),
            None => named(name, args),
        }
    }

    /// The same with another value, as the agent reads it.
    pub(super) fn setting(&self, value: u64) -> Setting {
        let WholeNumber { start, text, .. } = &self.number;
        let size = self.size;
        let it =
            json!([{ "file": self.file, "size": size, "start": start, "was": text, "is": value }]);
        (contract::EDITS, it.to_string().into())
    }
}

impl fmt::Display for InFile {
    /// What is changed in each run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WholeNumber { at, text, name, .. } = &self.number;
        let name = name.as_ref().map_or_else(String::new, |it| format!("{it} = "));
        let (file, line) = (self.file.display(), at.line);
        write!(f, "{name}{text} at {file}:{line} gets other values, in each run's own copy")
    }
}

/// `train.py:14` or `train.py:14:20`, apart.
fn of_place(name: &str) -> Option<(&str, usize, Option<usize>)> {
    let (before, last) = name.rsplit_once(':')?;
    let last = last.parse().ok()?;
    match before.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?))) {
        Some((file, line)) => Some((file, line, Some(last))),
        None => Some((before, last, None)),
    }
}

/// The number on a line, at this column if there are several.
fn at(file: &Path, line: usize, column: Option<usize>) -> anyhow::Result<InFile> {
    let (all, size) = read(file)?;
    let mut here: Vec<_> = all.into_iter().filter(|it| it.at.line == line).collect();
    here.retain(|it| column.is_none_or(|column| it.at.column == column));
    let shown = file.display();
    match here.len() {
        1 => Ok(InFile { file: fs::canonicalize(file)?, size, number: here.remove(0) }),
        0 => bail!("{shown}:{line} has no whole number there; give the line of one"),
        _ => {
            let each: Vec<String> = here
                .iter()
                .map(|it| format!("{shown}:{line}:{} ({})", it.at.column, it.text))
                .collect();
            bail!("{shown}:{line} has several numbers; write one of {}", each.join(", "))
        }
    }
}

/// The number that the script of the command gives this name.
fn named(name: &str, args: &FitArgs) -> anyhow::Result<InFile> {
    let is_script = |it: &&Path| it.extension() == Some(OsStr::new("py")) && it.is_file();
    let script = args.command.iter().map(Path::new).find(is_script);
    let (all, size) = script.map(read).transpose()?.unwrap_or_default();
    let mut here: Vec<_> = all.into_iter().filter(|it| it.name.as_deref() == Some(name)).collect();
    match (here.len(), script) {
        (1, Some(file)) => {
            Ok(InFile { file: fs::canonicalize(file)?, size, number: here.remove(0) })
        }
        (0, _) | (_, None) if place(&args.command).is_some() => {
            let there = place(&args.command).unwrap_or_default();
            bail!("the command has no {{{name}}}; it has {{{there}}}: --find-max {there}=1..64")
        }
        (0, _) | (_, None) => bail!(
            "the command has no {{{name}}}, and no line of the script gives a whole number that name; write {{{name}}} where the \
             value is to stand, as in `--batch-size {{{name}}}`, or say the line, as in `--find-max train.py:14=1..64`"
        ),
        (_, Some(file)) => {
            let each: Vec<String> =
                here.iter().map(|it| format!("{}:{}", file.display(), it.at.line)).collect();
            bail!("{name} is given a number in several places; write one of {}", each.join(", "))
        }
    }
}

/// The first place for a value in a command: `batch` in `--batch-size {batch}`.
fn place(command: &[OsString]) -> Option<String> {
    let is_name = |it: &str| {
        it.starts_with(|it: char| it.is_ascii_alphabetic())
            && it.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    let of_word = |word: &OsString| {
        let text = word.to_str()?;
        let (_, rest) = text.split_once('{')?;
        rest.split_once('}').map(|it| it.0).filter(|it| is_name(it)).map(str::to_owned)
    };
    command.iter().find_map(of_word)
}

/// The numbers of a file, and how long it is.
fn read(file: &Path) -> anyhow::Result<(Vec<WholeNumber>, usize)> {
    let text = bounded_file::text(file, bounded_file::SOURCE).with_context(|| {
        format!("cannot read {}, where a number is to be tried", file.display())
    })?;
    Ok((whole_numbers(&text), text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_names() {
        assert_eq!(of_place("train.py:14"), Some(("train.py", 14, None)));
        assert_eq!(of_place("a/train.py:14:20"), Some(("a/train.py", 14, Some(20))));
        assert_eq!((of_place("batch"), of_place("batch:x")), (None, None));
    }

    #[test]
    fn the_place_that_a_command_has() {
        let place =
            |line: &str| super::place(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(place("python t.py --batch-size {batch}").as_deref(), Some("batch"));
        assert_eq!(place("python t.py --lr=0.1 --n={n_rows}").as_deref(), Some("n_rows"));
        assert_eq!(place("python t.py {\"a\":1} {} {1}"), None);
    }
}
