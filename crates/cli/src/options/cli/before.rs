//! The grammar of what is asked before anything runs for real: `lint` and `check`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};

use crate::options::{cli::WorldArgs, number::whole};

#[derive(Debug, Args)]
#[command(after_help = LINT_EXAMPLES)]
pub(crate) struct LintArgs {
    /// Python files, notebooks, or folders; `-` is standard input.
    #[arg(value_name = "FILE|FOLDER|-")]
    pub(crate) paths: Vec<PathBuf>,

    /// Use only these rules: codes, prefixes of codes, names, or ALL. Default: the rules that are on.
    #[arg(long, value_name = "CODE,...", value_delimiter = ',')]
    pub(crate) select: Vec<String>,

    /// Not these rules.
    #[arg(long, value_name = "CODE,...", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,

    /// The format of the findings: text, json, sarif or github.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, hide_possible_values = true)]
    pub(crate) format: LintFormat,

    /// Print all findings, also where they are longer than the terminal.
    #[arg(long)]
    pub(crate) full: bool,

    /// Explain a rule: why, how to fix it, when to leave it as it is.
    #[arg(long, value_name = "CODE", conflicts_with_all = ["paths", "list"])]
    pub(crate) explain: Option<String>,

    /// List all rules.
    #[arg(long)]
    pub(crate) list: bool,

    /// Run the command after `--` on a phantom, with and without each mistake, and report the cost of each.
    #[arg(long, requires = "command")]
    pub(crate) confirm: bool,

    /// With --confirm: the card to imitate. Default: this machine's GPU, or the largest card.
    #[arg(long, value_name = "CARD|FILE.toml", requires = "confirm")]
    pub(crate) gpu: Option<String>,

    /// With --confirm: stop each run after N optimizer steps.
    #[arg(long, value_name = "N", requires = "confirm", value_parser = whole(1..=u32::MAX, 4))]
    pub(crate) steps: Option<u32>,

    #[command(flatten)]
    pub(crate) world: WorldArgs,

    /// With --confirm: the command as you would type it. If no file is named, lint reads its script.
    #[arg(last = true, value_name = "COMMAND", requires = "confirm")]
    pub(crate) command: Vec<OsString>,
}

/// The format of the findings of `lint`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintFormat {
    #[default]
    Text,
    Json,
    Sarif,
    Github,
}

const LINT_EXAMPLES: &str = "\
Examples:
  plimsoll lint train.py
  plimsoll lint src train.ipynb --select ALL --ignore PLM4
  plimsoll lint --explain kept-loss
  plimsoll lint --confirm -- python train.py     the cost of each
  plimsoll lint . --format sarif > lint.sarif
  cat train.py | plimsoll lint -

A comment silences a line, `# plimsoll: ignore[PLM101]`, or a file,
`# plimsoll: ignore-file[PLM404]`.

Exit codes:
  0  no findings
  1  findings
  2  a file could not be read, or is no Python; with --confirm, the script
     could not be run";

#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Check only these scripts, by name.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// The file of goldens.
    #[arg(long, value_name = "FILE.toml", default_value = "plimsoll-check.toml")]
    pub(crate) goldens: PathBuf,

    /// Print all of the report, also where it is longer than the terminal.
    #[arg(long)]
    pub(crate) full: bool,

    /// Write the new numbers into the file, instead of comparing.
    #[arg(long)]
    pub(crate) update: bool,

    /// Add a script to the file, with the command after `--`, and measure it.
    #[arg(long, value_name = "NAME", requires = "command", conflicts_with = "names")]
    pub(crate) add: Option<String>,

    /// With --add: the card to imitate.
    #[arg(long, value_name = "CARD|FILE.toml", requires = "add")]
    pub(crate) gpu: Option<String>,

    /// With --add: stop after N optimizer steps.
    #[arg(long, value_name = "N", requires = "add", value_parser = whole(1..=u32::MAX, 4))]
    pub(crate) steps: Option<u32>,

    /// The change that is allowed, as in `0.5%`. Default: the tolerance in the file.
    #[arg(long, value_name = "SHARE")]
    pub(crate) tolerance: Option<Share>,

    /// The format of the answer: text, json, markdown, junit or sarif.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, hide_possible_values = true)]
    pub(crate) format: CheckFormat,

    /// Also write the answer to a file, in the format of its extension: .json, .md, .xml (JUnit) or .sarif.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Vec<PathBuf>,

    /// Print no report and no progress, only errors.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) world: WorldArgs,

    /// With --add: the command as you would type it.
    #[arg(last = true, value_name = "COMMAND", requires = "add")]
    pub(crate) command: Vec<OsString>,
}

/// The format of the answer of `check`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    #[default]
    Text,
    Json,
    Markdown,
    Junit,
    Sarif,
}

impl CheckFormat {
    pub(crate) fn is_json(self) -> bool {
        matches!(self, CheckFormat::Json | CheckFormat::Sarif)
    }
}

/// A part of a number: `0.5%` or `0.005`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl std::str::FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let (number, of) = match text.strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, 1.0),
        };
        match number.trim().parse::<f64>() {
            Ok(it) if (0.0..=of).contains(&it) => Ok(Share(it / of)),
            _ => Err("expected a share from 0 to 1, as in `0.5%` or `0.005`".to_owned()),
        }
    }
}

const CHECK_EXAMPLES: &str = "\
Examples:
  plimsoll check --add train --gpu rtx4090 --steps 4 -- python train.py
  plimsoll check                        run all, compare, name lines
  plimsoll check train --tolerance 2%
  plimsoll check --update               accept the new numbers
  plimsoll check --format markdown      a comment for a pull request
  plimsoll check -o report.xml -o report.sarif

Exit codes:
  0  all unchanged, or updated
  1  a script needs more or less memory than the file says
  2  unknown: a script failed, or was measured with another torch or
     plimsoll; the file cannot be read";
