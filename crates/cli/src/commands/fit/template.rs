//! A command with places for values: `python train.py --batch-size {batch}`.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use anyhow::{Context as _, bail};
use plimsoll_fit::search::Range;

use crate::shell;

/// The command and the values that are given for some of its places.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    words: Vec<OsString>,
    given: BTreeMap<String, String>,
}

impl Template {
    pub(crate) fn new(words: &[OsString], given: &[String]) -> anyhow::Result<Template> {
        let mut values = BTreeMap::new();
        for it in given {
            let (name, value) = it.split_once('=').with_context(|| {
                format!("cannot read --set {it}: expected a name and a value, as in `seq=512`")
            })?;
            values.insert(name.to_owned(), value.to_owned());
        }
        let res = Template { words: words.to_vec(), given: values };
        match res.given.keys().find(|it| !res.has(it)) {
            Some(name) => bail!(
                "--set gives a value for {name}, but the command has no {{{name}}}; write it where the value is to stand"
            ),
            None => Ok(res),
        }
    }

    /// Whether the command has a place of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        let place = format!("{{{name}}}");
        self.words.iter().any(|it| it.to_string_lossy().contains(&place))
    }

    /// The command without any value but the given ones.
    pub(crate) fn words(&self) -> Vec<OsString> {
        self.filled(&self.given)
    }

    /// The command with `value` in the place `name`.
    pub(crate) fn with(&self, name: &str, value: u64) -> Vec<OsString> {
        let mut values = self.given.clone();
        values.insert(name.to_owned(), value.to_string());
        self.filled(&values)
    }

    fn filled(&self, values: &BTreeMap<String, String>) -> Vec<OsString> {
        let fill = |word: &OsString| {
            // A word that is no text has no place in it.
            let Some(text) = word.to_str() else { return word.clone() };
            let filled = values.iter().fold(text.to_owned(), |acc, (name, value)| {
                acc.replace(&format!("{{{name}}}"), value)
            });
            filled.into()
        };
        self.words.iter().map(fill).collect()
    }
}

/// The place whose largest value is wanted, and where to look, as in `seq=128..8192:128`.
pub(super) fn range(given: &str) -> anyhow::Result<Range> {
    let error = || {
        format!(
            "cannot read --find-max {given}: expected a name and a range, as in `batch=1..2048` or `seq=128..8192:128`"
        )
    };
    let (name, range) = given.split_once('=').with_context(error)?;
    let (range, step) = range.split_once(':').unwrap_or((range, "1"));
    let (lowest, highest) = range.split_once("..").with_context(error)?;
    let number = |it: &str| it.trim().replace('_', "").parse::<u64>().ok().with_context(error);
    let res = Range {
        name: name.trim().to_owned(),
        lowest: number(lowest)?,
        highest: number(highest.trim_start_matches('='))?,
        step: number(step)?,
    };
    if res.name.is_empty() || res.step == 0 {
        bail!(error());
    }
    let Range { name, lowest, highest, .. } = &res;
    if highest < lowest {
        bail!(
            "cannot read --find-max {given}: {lowest} is more than {highest}; write the smaller number first: {name}={highest}..{lowest}"
        );
    }
    Ok(res)
}

/// The command that trains with the plan at `plan`, as somebody would type it.
pub(super) fn run_line(plan: &Path, words: &[OsString]) -> String {
    let plan = shell::shown(&[plan.into()]);
    format!("plimsoll run --plan {plan} -- {}", shell::shown(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(it: &[&str]) -> Vec<OsString> {
        it.iter().map(OsString::from).collect()
    }

    #[test]
    fn fills_every_place_and_leaves_other_braces() {
        let command = words(&["python", "t.py", "-b={batch}", "{seq}", "{\"a\": {batch}}", "{x}"]);
        let template = Template::new(&command, &["seq=512".to_owned()]).unwrap();
        let expected = words(&["python", "t.py", "-b=8", "512", "{\"a\": 8}", "{x}"]);
        assert_eq!(template.with("batch", 8), expected);
        assert!(template.has("x") && !template.has("lr"));
        assert!(Template::new(&command, &["lr=1".to_owned()]).is_err());
    }

    #[test]
    fn reads_ranges() {
        let read = |it: &str| range(it).map(|it| (it.lowest, it.highest, it.step)).ok();
        assert_eq!(read("batch=1..2048"), Some((1, 2048, 1)));
        assert_eq!(read("seq=128..8_192:128"), Some((128, 8192, 128)));
        assert_eq!(read("n=1..=9"), Some((1, 9, 1)));
        for wrong in ["batch", "batch=8", "=1..2", "b=9..1", "b=1..9:0", "b=-1..2", "b=a..b"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let error = range("batch=64..1").unwrap_err().to_string();
        assert!(
            error.contains("64 is more than 1; write the smaller number first: batch=1..64"),
            "{error}"
        );
    }
}
