//! `plimsoll lint`: memory mistakes in training scripts, by reading them; and what each costs, by running them.

mod confirm;
mod cost;
mod files;
mod shown;

use std::io::Write;

use anyhow::Context as _;
use plimsoll_lint::{RULES, Selection, rule};

use crate::{
    cli::{Color, LintArgs, LintFormat},
    exit::Exit,
};

pub(crate) fn run(args: &LintArgs, color: Color, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let Some(code) = &args.explain {
        let rule = rule(code).with_context(|| {
            format!("there is no rule {code:?}; `plimsoll lint --list` shows all of them")
        })?;
        super::write(out, rule.page)?;
        return Ok(Exit::Fits);
    }
    if args.list {
        let lines = RULES.iter().map(|it| {
            let off = if it.on { "" } else { "  (only with --select)" };
            format!("{}  {:<26} {}{off}\n", it.code, it.name, it.title)
        });
        super::write(out, &lines.collect::<String>())?;
        return Ok(Exit::Fits);
    }
    let selection = Selection { select: args.select.clone(), ignore: args.ignore.clone() };
    if let Some(word) = selection.unknown() {
        anyhow::bail!("there is no rule {word:?}; `plimsoll lint --list` shows all of them");
    }
    let mut paths = args.paths.clone();
    if paths.is_empty() {
        paths.extend(confirm::script(&args.command));
    }
    if paths.is_empty() {
        anyhow::bail!(
            "no file was named: `plimsoll lint train.py`, or a folder, or `-` for standard input"
        );
    }
    let linted = files::read(&paths, &selection)?;
    let costs = match args.confirm {
        true => confirm::costs(args, &linted)?,
        false => Vec::new(),
    };
    let text = match args.format {
        LintFormat::Text => shown::text(&linted, &costs, color),
        LintFormat::Json => shown::json(&linted, &costs),
        LintFormat::Sarif => shown::sarif(&linted, &costs),
        LintFormat::Github => shown::github(&linted, &costs),
    };
    super::write(out, &text)?;
    Ok(if linted.iter().any(|it| it.error.is_some()) {
        Exit::CouldNotTell
    } else if linted.iter().all(|it| it.found.is_empty()) {
        Exit::Fits
    } else {
        Exit::DoesNotFit
    })
}
