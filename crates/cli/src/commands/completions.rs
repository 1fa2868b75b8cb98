//! `plimsoll completions`: what a shell reads to complete plimsoll's commands, options and files.

use clap::CommandFactory as _;

use crate::{
    exit::Exit,
    options::cli::{Cli, CompletionsArgs},
    output::Output,
};

pub(crate) fn run(args: &CompletionsArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "plimsoll", &mut text);
    out.bytes(&text)?;
    Ok(Exit::Fits)
}
