//! `plimsoll completions`: what a shell reads to complete plimsoll's commands, options and files.

use std::io::Write;

use clap::CommandFactory as _;

use crate::{
    cli::{Cli, CompletionsArgs},
    exit::Exit,
};

pub(crate) fn run(args: &CompletionsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "plimsoll", &mut text);
    super::write(out, &String::from_utf8(text)?)?;
    Ok(Exit::Fits)
}
