//! `plimsoll lint`: memory mistakes in training scripts, by reading them; and what each costs, by running them.

pub(super) mod beside;
#[cfg(feature = "phantom")]
mod confirm;
mod cost;
mod files;
mod shown;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use plimsoll_lint::{RULES, Selection, rule};

use crate::{
    exit::Exit,
    options::cli::{LintArgs, LintFormat},
    output::Output,
};

pub(crate) fn run(args: &LintArgs, out: &mut Output) -> anyhow::Result<Exit> {
    if let Some(code) = &args.explain {
        let rule = rule(code).with_context(|| {
            format!("there is no rule {code:?}; `plimsoll lint --list` shows all of them")
        })?;
        out.text(rule.page)?;
        return Ok(Exit::Fits);
    }
    if args.list {
        let lines = RULES.iter().map(|rule| {
            let off = if rule.on { "" } else { "  (only with --select)" };
            format!("{}  {:<26} {}{off}\n", rule.code, rule.name, rule.title)
        });
        out.text(&lines.collect::<String>())?;
        return Ok(Exit::Fits);
    }
    let selection = Selection { select: args.select.clone(), ignore: args.ignore.clone() };
    if let Some(word) = selection.unknown() {
        anyhow::bail!("there is no rule {word:?}; `plimsoll lint --list` shows all of them");
    }
    let mut paths = args.paths.clone();
    if paths.is_empty() {
        paths.extend(script(&args.command));
    }
    if paths.is_empty() {
        anyhow::bail!(
            "no file was named; name a file, a folder, or `-` for standard input: plimsoll lint train.py"
        );
    }
    let linted = files::read(&paths, &selection, args.confirm)?;
    let costs = match args.confirm {
        #[cfg(feature = "phantom")]
        true => confirm::costs(args, &linted)?,
        #[cfg(not(feature = "phantom"))]
        true => anyhow::bail!(
            "--confirm runs the script, and this build of plimsoll cannot: that needs Linux on x86-64"
        ),
        false => Vec::new(),
    };
    match args.format {
        LintFormat::Text => {
            out.report(&shown::text(&linted, &costs, out.styles()), args.full, &[])?;
        }
        LintFormat::Json => out.json(&shown::json(&linted, &costs))?,
        LintFormat::Sarif => out.json(&shown::sarif(&linted, &costs))?,
        LintFormat::Github => out.bytes(shown::github(&linted, &costs).as_bytes())?,
    }
    Ok(if linted.iter().any(|it| it.error.is_some()) {
        Exit::CouldNotTell
    } else if linted.iter().all(|it| it.found.is_empty()) {
        Exit::Fits
    } else {
        Exit::DoesNotFit
    })
}

/// The script in a command: the first word that is a Python file.
fn script(command: &[OsString]) -> Option<PathBuf> {
    let is_script = |word: &&OsString| {
        let path = Path::new(word.as_os_str());
        path.extension().is_some_and(|it| it == "py") && path.is_file()
    };
    command.iter().find(is_script).map(PathBuf::from)
}
