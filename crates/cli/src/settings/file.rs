//! The file of a project: `plimsoll.toml`, or `[tool.plimsoll]` in `pyproject.toml`, in the working folder or the nearest one above it
//! that has one.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use plimsoll_core::spelling;
use toml::de::{DeTable, DeValue};

use crate::{
    files::{bounded_file, reason::reason},
    settings::{
        rows::{Kind, ROWS, Row, Sayable},
        set::{Origin, Set, shown},
        value::{self, Value},
    },
};

const OWN: &str = "plimsoll.toml";
const OF_PROJECT: &str = "pyproject.toml";

/// Reads the nearest one, upwards from `folder`; none if there is none.
pub(super) fn read(folder: &Path) -> anyhow::Result<Option<(PathBuf, Vec<Set>)>> {
    for folder in folder.ancestors() {
        for name in [OWN, OF_PROJECT] {
            let path = folder.join(name);
            if !path.is_file() {
                continue;
            }
            let text =
                bounded_file::text(&path, bounded_file::WRITTEN_BY_HAND).map_err(|error| {
                    anyhow!("cannot read the settings in {}: {}", path.display(), reason(&error))
                })?;
            let file = File { path: &path, text: &text };
            if name == OWN {
                return Ok(Some((path.clone(), file.own()?)));
            }
            if let Some(found) = file.of_project()? {
                return Ok(Some((path.clone(), found)));
            }
        }
    }
    Ok(None)
}

/// Whether a project's file may say this. The error is a sentence without its place.
fn may_say(row: &Row, value: &Value) -> Result<(), String> {
    let all_that_it_may = match row.sayable {
        Sayable::Anything => return Ok(()),
        Sayable::Only(it) if value.to_string() == it => return Ok(()),
        Sayable::Only(it) => format!(" (allowed: {it})"),
        Sayable::Nothing => String::new(),
    };
    Err(format!(
        "a project's file may not set {} = {value}, because a stranger may have written it{all_that_it_may}: remove it, and use --{} or {}",
        row.key,
        row.option(),
        row.variable()
    ))
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn own(&self) -> anyhow::Result<Vec<Set>> {
        let table = DeTable::parse(self.text).map_err(|it| self.not_toml(&it))?;
        self.settings(table.get_ref())
    }

    /// None if it says nothing of us. What else is wrong with it is for other tools to say.
    fn of_project(&self) -> anyhow::Result<Option<Vec<Set>>> {
        let table = match DeTable::parse(self.text) {
            Ok(it) => it,
            Err(error) if self.text.contains("[tool.plimsoll") => {
                return Err(self.not_toml(&error));
            }
            Err(_) => return Ok(None),
        };
        let tool = table.get_ref().get("tool").and_then(|it| it.get_ref().as_table());
        match tool.and_then(|it| it.get("plimsoll")) {
            None => Ok(None),
            Some(it) => match it.get_ref() {
                DeValue::Table(ours) => self.settings(ours).map(Some),
                other => Err(self.wrong(
                    it.span(),
                    &format!("tool.plimsoll is {}; expected a table", value::kind_of(other)),
                )),
            },
        }
    }

    fn settings(&self, table: &DeTable<'_>) -> anyhow::Result<Vec<Set>> {
        let mut res = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let inside = format!("{name}.");
            let is_table = ROWS.iter().any(|it| it.key.starts_with(&inside));
            match value.get_ref() {
                DeValue::Table(inner) if is_table => {
                    for (key, value) in inner {
                        let whole = format!("{inside}{}", key.get_ref());
                        res.push(self.setting(
                            &whole,
                            key.span(),
                            value.span(),
                            value.get_ref(),
                        )?);
                    }
                }
                DeValue::Table(_) if !ROWS.iter().any(|it| it.key == name) => {
                    let tables = ROWS.iter().filter_map(|it| Some(it.key.split_once('.')?.0));
                    let meant = spelling::meant(name, tables);
                    let sentence = format!("there is no table `{name}`{meant}");
                    return Err(self.wrong(key.span(), &sentence));
                }
                other if is_table => {
                    let kind = value::kind_of(other);
                    let sentence = format!("{name} is {kind}; expected a table, as in [{name}]");
                    return Err(self.wrong(value.span(), &sentence));
                }
                other => res.push(self.setting(name, key.span(), value.span(), other)?),
            }
        }
        Ok(res)
    }

    fn setting(
        &self,
        key: &str,
        at: Range<usize>,
        value_at: Range<usize>,
        found: &DeValue<'_>,
    ) -> anyhow::Result<Set> {
        let Some(row) = ROWS.iter().find(|it| it.key == key) else {
            let all: Vec<&str> = ROWS.iter().map(|it| it.key).collect();
            let there_are = format!("there are {}", all.join(", "));
            let mut meant = spelling::meant_or(key, &all, &there_are);
            // In no table, or in another one.
            let last = key.rsplit_once('.').map_or(key, |it| it.1);
            if let Some(it) = ROWS.iter().find(|it| it.option() == last) {
                meant = spelling::did_you_mean(&[it.key.to_owned()]);
            }
            return Err(self.wrong(at, &format!("there is no setting `{key}`{meant}")));
        };
        let mut value = Value::written(row, found)
            .map_err(|sentence| self.wrong(value_at.clone(), &sentence))?;
        may_say(row, &value).map_err(|sentence| self.wrong(at.clone(), &sentence))?;
        if matches!(row.kind, Kind::Card | Kind::Cards) {
            value = self.beside(value);
        }
        let line = self.position(&at).0;
        Ok(Set { row, value, origin: Origin::File { path: self.path.to_owned(), line } })
    }

    /// A card's file is named as the file of the settings sees it.
    fn beside(&self, value: Value) -> Value {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let beside = |path: String| {
            if path.ends_with(".toml") { folder.join(&path).display().to_string() } else { path }
        };
        match value {
            Value::Text(it) => Value::Text(beside(it)),
            Value::List(it) => Value::List(it.into_iter().map(beside).collect()),
            Value::Flag(_) => value,
        }
    }

    fn not_toml(&self, error: &toml::de::Error) -> anyhow::Error {
        let end = self.text.len();
        self.wrong(error.span().unwrap_or(end..end), error.message())
    }

    fn wrong(&self, at: Range<usize>, sentence: &str) -> anyhow::Error {
        let (line, column) = self.position(&at);
        anyhow!("{}:{line}:{column}: {sentence}", shown(self.path).display())
    }

    /// The line and the column where it begins, from 1.
    fn position(&self, at: &Range<usize>) -> (usize, usize) {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.rsplit_once('\n').map_or(before, |it| it.1);
        (1 + before.matches('\n').count(), 1 + line.chars().count())
    }
}
