//! The value of a setting: as the environment has it in text, as a file has it in TOML, and as an option takes it.

use std::fmt;

use anyhow::bail;
use clap::CommandFactory as _;
use plimsoll_core::{
    cards,
    plan::{CATALOGUE, find},
    printable::is_printable,
    spelling,
};
use toml::de::DeValue;

use crate::{
    options::cli::Cli,
    settings::rows::{Kind, Row},
};

/// What a setting is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    List(Vec<String>),
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::List(texts) => f.write_str(&texts.join(", ")),
            Value::Flag(is_on) => write!(f, "{is_on}"),
        }
    }
}

impl Value {
    /// What somebody typed into the variable `name`; lists have commas.
    pub(super) fn typed(row: &Row, text: &str, name: &str) -> anyhow::Result<Value> {
        let value = match row.kind {
            Kind::Flag => match text.to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" => Value::Flag(true),
                "0" | "false" | "no" | "off" => Value::Flag(false),
                _ => bail!("{name} is {text:?}; expected true or false"),
            },
            Kind::List | Kind::Cards | Kind::Remedies => {
                let parts = text.split(',').map(str::trim).filter(|it| !it.is_empty());
                Value::List(parts.map(str::to_owned).collect())
            }
            Kind::Text | Kind::Length | Kind::Card | Kind::Writes => Value::Text(text.to_owned()),
        };
        match value.check(row) {
            Ok(()) => Ok(value),
            Err(why) => bail!("{name}: {why}"),
        }
    }

    /// What stands in a file. The error is a sentence without its place.
    pub(super) fn written(row: &Row, found: &DeValue<'_>) -> Result<Value, String> {
        let key = row.key;
        let value = match (row.kind, found) {
            (Kind::Flag, DeValue::Boolean(it)) => Value::Flag(*it),
            (Kind::Flag, other) => {
                return Err(format!("{key} is {}; expected true or false", kind_of(other)));
            }
            (Kind::List | Kind::Cards | Kind::Remedies, DeValue::Array(items)) => {
                let mut texts = Vec::new();
                for it in items {
                    let it = it.get_ref();
                    let text = it
                        .as_str()
                        .ok_or_else(|| format!("{key} has {} in it; expected text", kind_of(it)))?;
                    texts.push(text.to_owned());
                }
                Value::List(texts)
            }
            (Kind::List | Kind::Cards | Kind::Remedies, DeValue::String(it)) => {
                Value::List(vec![it.to_string()])
            }
            (Kind::List | Kind::Cards | Kind::Remedies, other) => {
                let kind = kind_of(other);
                return Err(format!("{key} is {kind}; expected a list of texts, as in [\"...\"]"));
            }
            (_, DeValue::String(it)) => Value::Text(it.to_string()),
            (Kind::Length, DeValue::Integer(it)) => Value::Text(it.to_string()),
            (kind, other) => {
                let example = match kind {
                    Kind::Card => "rtx4090",
                    Kind::Writes => "layer",
                    Kind::Length => "512",
                    _ => "20GiB",
                };
                let found = kind_of(other);
                return Err(format!("{key} is {found}; expected text, as in \"{example}\""));
            }
        };
        value.check(row)?;
        Ok(value)
    }

    /// As an option takes it.
    pub(super) fn words(&self) -> Vec<String> {
        match self {
            Value::Text(text) => vec![text.clone()],
            Value::List(texts) => texts.clone(),
            Value::Flag(is_on) => vec![is_on.to_string()],
        }
    }

    /// As JSON.
    pub(crate) fn wire(&self) -> serde_json::Value {
        match self {
            Value::Text(text) => text.as_str().into(),
            Value::List(texts) => texts.as_slice().into(),
            Value::Flag(is_on) => (*is_on).into(),
        }
    }

    /// Whether its option would take it, so that whoever wrote it learns where it stands.
    fn check(&self, row: &Row) -> Result<(), String> {
        for word in self.words() {
            // It is said in every run, and a file may be a stranger's.
            if !word.chars().all(is_printable) {
                return Err(format!("{} is {word:?}; expected visible characters", row.key));
            }
            match row.kind {
                // A file that describes one is read when it is needed.
                Kind::Card | Kind::Cards if !word.ends_with(".toml") => {
                    cards::resolve(&word).map_err(|it| it.to_string())?;
                }
                Kind::Remedies if find(&word).is_none() => {
                    let meant = spelling::meant(&word, CATALOGUE.iter().map(|it| it.id));
                    return Err(format!("there is no remedy {word:?}{meant}"));
                }
                // To keep what was written is of one run: `fit` has many.
                Kind::Writes if !matches!(word.as_str(), "layer" | "through") => {
                    return Err(format!(
                        "{} is {word:?}; expected \"layer\" or \"through\"",
                        row.key
                    ));
                }
                Kind::Text | Kind::Length | Kind::List => refused(row, &word)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// What the grammar says against `word` as a value of the row's option.
fn refused(row: &Row, word: &str) -> Result<(), String> {
    let whole = Cli::command();
    let command = row.commands.first().and_then(|it| whole.find_subcommand(it));
    let Some(command) = command else { return Ok(()) };
    let mut words = vec![format!("--{}={word}", row.option())];
    words.extend(command.get_positionals().next().map(|_| "train.py".to_owned()));
    match command.clone().no_binary_name(true).try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Err(why.map_or_else(|| first.to_owned(), |it| format!("{} is {word:?}: {it}", row.key)))
        }
    }
}

/// What is written there, in words.
pub(super) fn kind_of(it: &DeValue<'_>) -> &'static str {
    match it {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
