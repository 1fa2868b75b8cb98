//! All settings of a folder: what the environment says, and for the rest its file.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::settings::{
    file,
    rows::{ROWS, Row},
    set::{Origin, Set},
    value::Value,
};

/// What the environment and the file of a folder say.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// The file, if there is one.
    pub(crate) file: Option<PathBuf>,
    made: Vec<Set>,
}

impl Settings {
    /// Those of the working folder.
    pub(crate) fn here() -> anyhow::Result<Settings> {
        let folder = env::current_dir().unwrap_or_default();
        Settings::of(&folder, |name| env::var(name).ok())
    }

    fn of(folder: &Path, environment: impl Fn(&str) -> Option<String>) -> anyhow::Result<Settings> {
        let mut res = Settings::default();
        for row in ROWS {
            let variable = row.variable();
            let Some(text) = environment(&variable).filter(|it| !it.is_empty()) else { continue };
            let value = Value::typed(row, &text, &variable)?;
            res.made.push(Set { row, value, origin: Origin::Environment(variable) });
        }
        if let Some((path, found)) = file::read(folder)? {
            let is_new = |it: &Set| res.of_row(it.row).is_none();
            let new: Vec<Set> = found.into_iter().filter(is_new).collect();
            res.made.extend(new);
            res.file = Some(path);
        }
        Ok(res)
    }

    /// What holds of a setting, unless its option is given.
    pub(crate) fn of_row(&self, row: &Row) -> Option<&Set> {
        self.made.iter().find(|it| it.row.key == row.key)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn settings(file: &str, text: &str, environment: &[(&str, &str)]) -> anyhow::Result<Settings> {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("src/train");
        fs::create_dir_all(&below).unwrap();
        fs::write(folder.path().join(file), text).unwrap();
        Settings::of(&below, |name| {
            environment.iter().find(|it| it.0 == name).map(|it| it.1.to_owned())
        })
    }

    fn shown(it: &Settings) -> Vec<String> {
        ROWS.iter()
            .filter_map(|row| it.of_row(row))
            .map(|found| {
                let origin = found.origin.shown();
                let origin = origin.rsplit_once('/').map_or(origin.as_str(), |it| it.1);
                format!("{} = {} ({origin})", found.row.key, found.value)
            })
            .collect()
    }

    #[track_caller]
    fn error(text: &str) -> String {
        let error = settings("plimsoll.toml", text, &[]).unwrap_err().to_string();
        let (file, rest) = error.split_once("plimsoll.toml").unwrap();
        assert!(!file.contains('\n'), "{error}");
        rest.to_owned()
    }

    #[test]
    fn the_environment_goes_before_the_file() {
        let text =
            "gpu = \"rtx4090\"\noffline = true\n\n[fit]\nforbid = [\"offload\", \"autocast\"]\n";
        let it = settings(
            "plimsoll.toml",
            text,
            &[("PLIMSOLL_GPU", "a100"), ("PLIMSOLL_FIT_BUDGET", "20GiB")],
        )
        .unwrap();
        assert_eq!(
            shown(&it),
            [
                "gpu = a100 (PLIMSOLL_GPU)",
                "offline = true (plimsoll.toml:2)",
                "fit.budget = 20GiB (PLIMSOLL_FIT_BUDGET)",
                "fit.forbid = offload, autocast (plimsoll.toml:5)",
            ]
        );
    }

    #[test]
    fn a_projects_pyproject_has_a_table() {
        let text = "[project]\nname = \"x\"\n\n[tool.plimsoll]\ngpu = \"t4\"\n[tool.plimsoll.predict]\nmax = \"12GiB\"\n";
        let it = settings("pyproject.toml", text, &[]).unwrap();
        assert!(it.file.as_ref().unwrap().ends_with("pyproject.toml"));
        assert_eq!(shown(&it).len(), 2, "{it:?}");
        // One without the table is another tool's.
        let it = settings("pyproject.toml", "[tool.ruff]\nline-length = 100\n", &[]).unwrap();
        assert!(it.file.is_none(), "{it:?}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, expected) in [
            ("gpu = \"rtx4090\"\ngup = 1", ":2:1: there is no setting `gup`; did you mean `gpu`?"),
            (
                "[fit]\nforbidden = []",
                ":2:1: there is no setting `fit.forbidden`; did you mean `fit.forbid`?",
            ),
            ("[fti]\nforbid = []", ":1:2: there is no table `fti`; did you mean `fit`?"),
            (
                "forbid = [\"offload\"]",
                ":1:1: there is no setting `forbid`; did you mean `fit.forbid`?",
            ),
            ("gpu = 4090", ":1:7: gpu is an integer; expected text, as in \"rtx4090\""),
            ("gpu = \"rtx4900\"", ":1:7: no card is called \"rtx4900\"; did you mean `rtx4090`?"),
            ("memory = \"much\"", ":1:10: "),
            ("offline = \"yes\"", ":1:11: offline is a string; expected true or false"),
            (
                "[fit]\nforbid = [\"offlaod\"]",
                ":2:10: there is no remedy \"offlaod\"; did you mean `offload`?",
            ),
            ("[fit]\nforbid = [1]", ":2:10: fit.forbid has an integer in it; expected text"),
            (
                "writes = \"keep=/x\"",
                ":1:10: writes is \"keep=/x\"; expected \"layer\" or \"through\"",
            ),
            (
                "writes = \"through\"",
                ":1:1: a project's file may not set writes = through, because a stranger may have written it (allowed: layer): remove it, and use --writes or PLIMSOLL_WRITES",
            ),
            ("gpu = \"rtx4090", ":1:"),
            ("fit = 3", ":1:7: fit is an integer; expected a table, as in [fit]"),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text}\n{error}\n{expected}");
        }
    }

    #[test]
    fn a_projects_file_changes_nothing_that_keeps_the_users_files_safe() {
        use crate::settings::rows::{Kind, Sayable};
        for row in ROWS {
            // Values that its option takes.
            let samples: &[&str] = match (row.kind, row.key) {
                (Kind::Writes, _) => &["\"layer\"", "\"through\""],
                (Kind::Flag, _) => &["true", "false"],
                (Kind::Card | Kind::Cards, _) => &["\"t4\""],
                (Kind::Remedies, _) => &["\"offload\""],
                (Kind::Length, "worst-size") => &["\"800x1333\""],
                (Kind::Length, _) => &["512"],
                (Kind::List, "assume") => &["\"overflow=1\""],
                (Kind::List, _) => &["[\"PLM101\"]"],
                (Kind::Text, "fit.prefer") => &["\"speed\""],
                (Kind::Text, "top.interval") => &["\"2\""],
                (Kind::Text, _) => &["\"20GiB\""],
            };
            for it in samples {
                let written = match row.key.split_once('.') {
                    Some((table, key)) => format!("[{table}]\n{key} = {it}\n"),
                    None => format!("{} = {it}\n", row.key),
                };
                let in_project = match row.key.split_once('.') {
                    Some((table, key)) => format!("[tool.plimsoll.{table}]\n{key} = {it}\n"),
                    None => format!("[tool.plimsoll]\n{written}"),
                };
                let may = match row.sayable {
                    Sayable::Anything => true,
                    Sayable::Only(only) => it.trim_matches('"') == only,
                    Sayable::Nothing => false,
                };
                for (file, text) in [("plimsoll.toml", &written), ("pyproject.toml", &in_project)] {
                    match settings(file, text, &[]) {
                        Ok(all) => assert!(may && all.of_row(row).is_some(), "{text}"),
                        Err(error) => {
                            let said = format!("{} or {}", row.option(), row.variable());
                            assert!(!may && error.to_string().contains(&said), "{text}: {error}");
                        }
                    }
                }
            }
        }
        // Who types it, or sets it for themselves, may say it all.
        let own = [("PLIMSOLL_WRITES", "through"), ("PLIMSOLL_WRITES_MAX", "9GiB")];
        let it = settings("other.toml", "", &own).unwrap();
        assert_eq!(shown(&it).len(), 2, "{it:?}");
    }

    #[test]
    fn a_variable_that_is_wrong_is_named() {
        for (name, value, expected) in [
            ("PLIMSOLL_OFFLINE", "maybe", "PLIMSOLL_OFFLINE is \"maybe\"; expected true or false"),
            ("PLIMSOLL_GPU", "rtx4900", "PLIMSOLL_GPU: no card is called \"rtx4900\""),
            (
                "PLIMSOLL_FIT_FORBID",
                "offload,fsued",
                "PLIMSOLL_FIT_FORBID: there is no remedy \"fsued\"; did you mean `fused`?",
            ),
        ] {
            let error = settings("other.toml", "", &[(name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
