//! `plimsoll config`: what options are when they are not given, and who says so.

use std::{env, fmt::Write as _};

use plimsoll_core::{
    printable::printable,
    views::text::{Style, Styles},
};
use serde_json::json;

use crate::{
    exit::Exit,
    options::cli::ConfigArgs,
    output::{self, Output},
    settings::{OF_MACHINE, Origin, ROWS, Settings},
};

pub(crate) fn run(args: &ConfigArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let settings = Settings::here()?;
    match args.json {
        true => out.json(&wire(&settings))?,
        false => out.text(&show(&settings, out.styles()))?,
    }
    Ok(Exit::Fits)
}

fn show(settings: &Settings, styles: Styles) -> String {
    let Style { on, off } = styles.heading;
    let mut res = match &settings.file {
        Some(path) => format!("settings of {}\n\n", output::shown(path)),
        None => "no plimsoll.toml here or above, and no [tool.plimsoll] in a pyproject.toml\n\n"
            .to_owned(),
    };
    for row in ROWS {
        let _ = match settings.of_row(row) {
            Some(it) => {
                let value = it.value.to_string();
                writeln!(res, "  {on}{:18} {value:16}{off} {}", row.key, it.origin.shown())
            }
            None => writeln!(res, "  {:18} {:16} {}", row.key, "-", row.about),
        };
    }
    res += "\nfor this machine, by the environment only\n\n";
    for (name, about) in OF_MACHINE {
        let _ = match of_machine(name) {
            Some(value) => writeln!(res, "  {on}{name:18} {}{off}", printable(&value)),
            None => writeln!(res, "  {name:18} {:16} {about}", "-"),
        };
    }
    res += "\nAn option overrides the environment, and the environment overrides the file: docs/config.md\n";
    res
}

fn of_machine(name: &str) -> Option<String> {
    env::var(name).ok().filter(|it| !it.is_empty())
}

fn wire(settings: &Settings) -> String {
    let rows = ROWS.iter().map(|row| {
        let set = settings.of_row(row);
        let (from, line) = match set.map(|it| &it.origin) {
            None => (None, None),
            Some(Origin::Environment(_)) => (Some("environment"), None),
            Some(Origin::File { line, .. }) => (Some("file"), Some(line)),
        };
        json!({
            "name": row.key,
            "value": set.map(|it| it.value.wire()),
            "from": from,
            "line": line,
            "variable": row.variable(),
            "about": row.about,
        })
    });
    let machine = OF_MACHINE.map(
        |(name, about)| json!({ "variable": name, "value": of_machine(name), "about": about }),
    );
    let document = json!({
        "version": 1,
        "file": settings.file.as_ref().map(|it| it.display().to_string()),
        "settings": rows.collect::<Vec<_>>(),
        "machine": machine,
    });
    format!("{document:#}\n")
}
