//! The settings that there are: the one list of them.

use crate::contract;

/// One setting.
#[derive(Debug)]
pub(crate) struct Row {
    /// As the file has it; before a point stands the table.
    pub(crate) key: &'static str,
    pub(super) kind: Kind,
    /// The commands that take it, each as an option of the key's last part.
    pub(super) commands: &'static [&'static str],
    /// Options that, given, are said in its place.
    pub(super) unless: &'static [&'static str],
    pub(super) sayable: Sayable,
    pub(crate) about: &'static str,
}

/// What a project's file may say of it. The file comes with the project, which may be a stranger's: nothing in it may weaken what
/// keeps the user's files and network out of a script's reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sayable {
    /// All that an option can: it is about the answer, and harms nobody.
    Anything,
    /// Only this, which keeps a script from more.
    Only(&'static str),
    /// Nothing: it is for an option or the environment.
    Nothing,
}
use Sayable::{Anything, Nothing, Only};

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// Text, or a number without quotes.
    Length,
    /// A card's name, or a file that describes one.
    Card,
    Cards,
    Remedies,
    List,
    Flag,
    /// `layer` or `through`.
    Writes,
}

const RUNS: &[&str] = &["predict", "fit", "verify"];
const TRIES: &[&str] = &["predict", "fit"];

/// Every setting, in the order of the manual.
pub(crate) const ROWS: &[Row] = &[
    row("gpu", Kind::Card, TRIES, &["cards"], Anything, "the card to imitate or to fit"),
    row("memory", Kind::Text, TRIES, &["budget", "cards"], Anything, "the card's memory"),
    row("beside", Kind::Text, TRIES, &["budget"], Anything, "what other programs hold of the card"),
    row("windows", Kind::Flag, TRIES, &["budget"], Anything, "the machine has Windows, or WSL"),
    row("assume", Kind::List, TRIES, &[], Anything, "as in predict --assume"),
    row("worst-seq", Kind::Length, TRIES, &[], Anything, "sequence length of every batch"),
    row("worst-size", Kind::Length, TRIES, &[], Anything, "size of every image"),
    row("writes", Kind::Writes, RUNS, &[], Only("layer"), "where a script's writes go"),
    row("writes-max", Kind::Text, RUNS, &[], Nothing, "the most disk space for them"),
    row("offline", Kind::Flag, RUNS, &[], Only("true"), "no network for the script"),
    row(
        "predict.cards",
        Kind::Cards,
        &["predict"],
        &["gpu", "memory"],
        Anything,
        "run on each of these",
    ),
    row("predict.max", Kind::Text, &["predict"], &[], Anything, "exit with 1 above this size"),
    row(
        "fit.budget",
        Kind::Text,
        &["fit"],
        &["memory"],
        Anything,
        "the most GPU memory of the process",
    ),
    row(
        "fit.limit-reserved",
        Kind::Text,
        &["fit"],
        &[],
        Anything,
        "the most memory that PyTorch may reserve",
    ),
    row("fit.allow", Kind::Remedies, &["fit"], &[], Anything, "only these remedies"),
    row("fit.forbid", Kind::Remedies, &["fit"], &[], Anything, "never these remedies"),
    row(
        "fit.keep-numerics",
        Kind::Flag,
        &["fit"],
        &[],
        Anything,
        "no remedy that changes the numbers",
    ),
    row("fit.prefer", Kind::Text, &["fit"], &["find-max"], Anything, "`numbers` or `speed`"),
    row("top.interval", Kind::Text, &["top"], &[], Anything, "seconds between two updates"),
    row("run.watch", Kind::Flag, &["run"], &[], Anything, "runs are watched"),
    row("lint.ignore", Kind::List, &["lint"], &[], Anything, "rules to ignore"),
];

const fn row(
    key: &'static str,
    kind: Kind,
    commands: &'static [&'static str],
    unless: &'static [&'static str],
    sayable: Sayable,
    about: &'static str,
) -> Row {
    Row { key, kind, commands, unless, sayable, about }
}

/// What only the environment says, because it is of a machine and not of a project: a name, and what it is.
pub(crate) const OF_MACHINE: [(&str, &str); 3] = [
    (contract::PYTHON, "the Python of a script given without one"),
    (contract::CACHE, "the folder for plimsoll's files"),
    (contract::CARDS, "the folder of your own cards"),
];

impl Row {
    /// Its variable of the environment.
    pub(crate) fn variable(&self) -> String {
        contract::OURS.to_owned() + &self.key.to_uppercase().replace(['.', '-'], "_")
    }

    /// The option, without its dashes.
    pub(super) fn option(&self) -> &'static str {
        self.key.rsplit_once('.').map_or(self.key, |it| it.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_every_setting() {
        let page = include_str!("../../../../docs/config.md");
        let lines = page.lines().filter_map(|it| it.strip_prefix("| `"));
        let told: Vec<(&str, &str)> = lines
            .filter_map(|it| it.split_once("` | `"))
            .filter_map(|(key, rest)| Some((key, rest.split_once('`')?.0)))
            .collect();
        let variables: Vec<String> = ROWS.iter().map(Row::variable).collect();
        let expected: Vec<(&str, &str)> =
            ROWS.iter().map(|it| it.key).zip(variables.iter().map(String::as_str)).collect();
        assert_eq!(told, expected);
        for (variable, _) in OF_MACHINE {
            assert!(page.contains(variable), "{variable}");
        }
    }
}
