//! The file of goldens: what scripts took, as people read it and as `check` compares it.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context as _, bail};
use plimsoll_core::{
    printable::{is_printable, one_line},
    units::Bytes,
};
use toml::{Table, Value};

/// The version of the file.
const VERSION: i64 = 1;
/// By how much a number may change, unless the file says.
pub(super) const TOLERANCE: f64 = 0.005;

/// The file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Goldens {
    /// A share, as a number.
    pub(super) tolerance: f64,
    pub(super) scripts: BTreeMap<String, Golden>,
}

impl Default for Goldens {
    fn default() -> Goldens {
        Goldens { tolerance: TOLERANCE, scripts: BTreeMap::new() }
    }
}

/// One script.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Golden {
    pub(super) command: Vec<String>,
    pub(super) gpu: String,
    pub(super) steps: Option<u32>,
    /// What it took; none before it was measured.
    pub(super) took: Option<Took>,
}

/// What one run took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Took {
    pub(super) plimsoll: String,
    pub(super) torch: String,
    /// The card's id: of a file that describes one, what that says.
    pub(super) card: String,
    pub(super) outcome: String,
    /// `allocated`, `reserved`, `device`, `safe`: those that are known.
    pub(super) totals: BTreeMap<String, Bytes>,
    pub(super) categories: BTreeMap<String, Bytes>,
    pub(super) lines: Vec<Line>,
    /// Whose request made reserved memory largest; of a run, and not in the file.
    pub(super) reserved_at: Option<String>,
}

/// What one line held at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) bytes: Bytes,
    /// Relative to the folder of the goldens, if it is in it.
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) function: String,
    /// It started the backward pass that made them.
    pub(super) backward: bool,
    pub(super) category: String,
    /// What stands there.
    pub(super) text: String,
}

impl Goldens {
    pub(super) fn read(text: &str) -> anyhow::Result<Goldens> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            anyhow::anyhow!("it is not TOML: {}", error.message())
        })?;
        match table.get("version").and_then(Value::as_integer) {
            Some(VERSION) => {}
            Some(other) => {
                bail!("it has version {other}; this plimsoll reads version {VERSION}")
            }
            None => bail!("it has no `version = {VERSION}`"),
        }
        let tolerance = match table.get("tolerance") {
            None => TOLERANCE,
            Some(it) => {
                let text = it.as_str().context("`tolerance` is not a text like \"0.5%\"")?;
                let share: crate::options::cli::Share =
                    text.parse().map_err(|it| anyhow::anyhow!("`tolerance`: {it}"))?;
                share.0
            }
        };
        let mut scripts = BTreeMap::new();
        let empty = Table::new();
        let given = match table.get("scripts") {
            None => &empty,
            Some(it) => it.as_table().context("`scripts` is not a table")?,
        };
        for (name, it) in given {
            let it = it.as_table().with_context(|| format!("`scripts.{name}` is not a table"))?;
            check_name(name)?;
            let golden = golden(it).with_context(|| format!("`scripts.{name}`"))?;
            scripts.insert(name.clone(), golden);
        }
        Ok(Goldens { tolerance, scripts })
    }

    pub(super) fn written(&self) -> String {
        let mut res = String::from(
            "# The GPU memory that these scripts need. `plimsoll check` runs them on a phantom GPU and compares;\n\
             # `plimsoll check --update` writes the numbers anew. Sizes are in bytes; names and texts of lines are for people.\n",
        );
        let _ = writeln!(res, "version = {VERSION}\ntolerance = \"{}%\"", self.tolerance * 100.0);
        for (name, it) in &self.scripts {
            let is_bare = !name.is_empty()
                && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_' || it == '-');
            let key = if is_bare { name.clone() } else { quoted(name) };
            let words: Vec<String> = it.command.iter().map(|it| quoted(it)).collect();
            let _ = write!(
                res,
                "\n[scripts.{key}]\ncommand = [{}]\ngpu = {}\n",
                words.join(", "),
                quoted(&it.gpu)
            );
            if let Some(steps) = it.steps {
                let _ = writeln!(res, "steps = {steps}");
            }
            let Some(took) = &it.took else { continue };
            let _ = write!(
                res,
                "\n[scripts.{key}.took]\nplimsoll = {}\ntorch = {}\ncard = {}\noutcome = {}\n",
                quoted(&took.plimsoll),
                quoted(&took.torch),
                quoted(&took.card),
                quoted(&took.outcome),
            );
            for (what, bytes) in &took.totals {
                let _ = writeln!(res, "{what} = {} # {bytes}", bytes.0);
            }
            let _ = writeln!(res, "\n[scripts.{key}.took.categories]");
            for (what, bytes) in &took.categories {
                let _ = writeln!(res, "{} = {} # {bytes}", quoted(what), bytes.0);
            }
            for line in &took.lines {
                let backward = if line.backward { "backward = true\n" } else { "" };
                let _ = write!(
                    res,
                    "\n[[scripts.{key}.took.lines]]\nbytes = {} # {}\nat = {}\nfunction = {}\n{backward}category = {}\ntext = {}\n",
                    line.bytes.0,
                    line.bytes,
                    quoted(&format!("{}:{}", line.file, line.line)),
                    quoted(&line.function),
                    quoted(&line.category),
                    quoted(&line.text),
                );
            }
        }
        res
    }
}

/// Every report has the name of a script.
pub(super) fn check_name(name: &str) -> anyhow::Result<()> {
    if !name.chars().all(is_printable) {
        bail!("the name of a script is {name:?}; expected visible characters");
    }
    Ok(())
}

fn golden(it: &Table) -> anyhow::Result<Golden> {
    let words = it
        .get("command")
        .and_then(Value::as_array)
        .context("it has no `command = [\"python\", \"train.py\"]`")?;
    let command: Option<Vec<String>> =
        words.iter().map(|it| it.as_str().map(str::to_owned)).collect();
    let command =
        command.filter(|it| !it.is_empty()).context("`command` is not a list of strings")?;
    let gpu = it.get("gpu").and_then(Value::as_str).context("it has no `gpu = \"rtx4090\"`")?;
    let steps = match it.get("steps") {
        None => None,
        Some(it) => Some(
            it.as_integer()
                .and_then(|it| u32::try_from(it).ok())
                .filter(|it| *it != 0)
                .context("`steps` is not a whole number of 1 or more")?,
        ),
    };
    let took = it.get("took").and_then(Value::as_table).map(took).transpose()?;
    Ok(Golden { command, gpu: gpu.to_owned(), steps, took })
}

fn bytes(value: &Value) -> Option<Bytes> {
    value.as_integer().and_then(|it| u64::try_from(it).ok()).map(Bytes)
}

fn took(it: &Table) -> anyhow::Result<Took> {
    let text = |name: &str| word(it.get(name));
    let mut res = Took {
        plimsoll: text("plimsoll"),
        torch: text("torch"),
        card: text("card"),
        outcome: text("outcome"),
        ..Took::default()
    };
    for (name, value) in it {
        if let Some(bytes) = bytes(value) {
            res.totals.insert(one_line(name).into_owned(), bytes);
        }
    }
    for (name, value) in it.get("categories").and_then(Value::as_table).into_iter().flatten() {
        let bytes = bytes(value)
            .with_context(|| format!("`took.categories.{name}` is not a number of bytes"))?;
        res.categories.insert(one_line(name).into_owned(), bytes);
    }
    for value in it.get("lines").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| word(value.get(name));
        let at = text("at");
        let (file, line) = at.rsplit_once(':').context("a line has no `at = \"file:line\"`")?;
        res.lines.push(Line {
            bytes: value.get("bytes").and_then(bytes).context("a line has no `bytes`")?,
            file: file.to_owned(),
            line: line.parse().context("a line has no `at = \"file:line\"`")?,
            function: text("function"),
            backward: value.get("backward").and_then(Value::as_bool).unwrap_or(false),
            category: text("category"),
            text: text("text"),
        });
    }
    Ok(res)
}

/// A name, on one line as those of a run are.
fn word(value: Option<&Value>) -> String {
    one_line(value.and_then(Value::as_str).unwrap_or_default()).into_owned()
}

/// A text of TOML, which is written as one of JSON. TOML has one character less.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let line = Line {
            bytes: Bytes(10 << 20),
            file: "a b/train.py".to_owned(),
            line: 12,
            function: "main".to_owned(),
            backward: true,
            category: "gradients".to_owned(),
            text: "loss(\"x\\\"\").backward()".to_owned(),
        };
        let took = Took {
            plimsoll: "0.1.0".to_owned(),
            torch: "2.11.0+cu130".to_owned(),
            card: "t4".to_owned(),
            outcome: "fits".to_owned(),
            totals: [("allocated".to_owned(), Bytes(123)), ("safe".to_owned(), Bytes(456))].into(),
            categories: [("CUDA context".to_owned(), Bytes(99))].into(),
            lines: vec![line.clone(), Line { backward: false, ..line }],
            reserved_at: None,
        };
        let script = Golden {
            command: vec![
                "python".to_owned(),
                "train.py".to_owned(),
                "--name=\"a 'b'\x1b\x7f\n\"".to_owned(),
            ],
            gpu: "t4".to_owned(),
            steps: Some(3),
            took: Some(took),
        };
        let unmeasured = Golden { took: None, steps: None, ..script.clone() };
        let scripts = [("small model".to_owned(), script), ("b".to_owned(), unmeasured)].into();
        let goldens = Goldens { tolerance: 0.02, scripts };
        assert_eq!(Goldens::read(&goldens.written()).unwrap(), goldens);
    }

    #[test]
    fn what_is_wrong_in_the_file_is_said() {
        let said = |text: &str| format!("{:#}", Goldens::read(text).unwrap_err());
        assert_eq!(said("version = 7"), "it has version 7; this plimsoll reads version 1");
        assert_eq!(said(""), "it has no `version = 1`");
        assert!(said("version = ").starts_with("it is not TOML: "));
        let script = |more: &str| said(&format!("version = 1\n[scripts.a]\n{more}"));
        assert_eq!(
            script("gpu = \"t4\""),
            "`scripts.a`: it has no `command = [\"python\", \"train.py\"]`"
        );
        assert_eq!(
            script("command = []\ngpu = \"t4\""),
            "`scripts.a`: `command` is not a list of strings"
        );
        assert_eq!(script("command = [\"a\"]"), "`scripts.a`: it has no `gpu = \"rtx4090\"`");
        assert_eq!(
            said("version = 1\ntolerance = \"much\""),
            "`tolerance`: expected a share from 0 to 1, as in `0.5%` or `0.005`"
        );
    }
}
