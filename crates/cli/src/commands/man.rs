//! `plimsoll man`: the pages for man(1), made from the grammar.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use plimsoll_core::spelling;

use crate::{
    exit::Exit,
    options::cli::{Cli, ManArgs},
    output::{self, Output},
};

pub(crate) fn run(args: &ManArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let mut whole = Cli::command();
    whole.build();
    if let Some(folder) = &args.all {
        out.text(&write_all(&whole, folder)?)?;
        return Ok(Exit::Fits);
    }
    let Some(name) = &args.command else {
        out.bytes(&page(&whole)?)?;
        return Ok(Exit::Fits);
    };
    let Some(command) = shown(&whole).find(|it| it.get_name() == name) else {
        let known: Vec<&str> = shown(&whole).map(Command::get_name).collect();
        let rest = format!("it has {}", known.join(", "));
        bail!("plimsoll has no command {name}{}", spelling::meant_or(name, &known, &rest));
    };
    out.bytes(&page(command)?)?;
    Ok(Exit::Fits)
}

/// The commands that help names.
fn shown(whole: &Command) -> impl Iterator<Item = &Command> {
    whole.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

fn page(command: &Command) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    Ok(text)
}

/// Writes all pages; says where they are.
fn write_all(whole: &Command, folder: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot write pages into {}", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    let mut said = String::new();
    for command in std::iter::once(whole).chain(shown(whole)) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let path = folder.join(format!("{name}.1"));
        fs::write(&path, page(command)?).with_context(cannot)?;
        said += &format!("{}\n", output::shown(&path));
    }
    Ok(said)
}
