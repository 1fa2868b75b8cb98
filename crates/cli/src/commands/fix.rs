//! `plimsoll explain --fix`: explains, then looks for what makes the command fit, on the card that was explained.

use std::ffi::OsString;

use clap::Parser as _;

use crate::{
    commands::{explain, fit},
    exit::Exit,
    files::open,
    options::cli::{Cli, Command, ExplainArgs},
    output::Output,
    shell,
};

pub(crate) fn run(args: &ExplainArgs, out: &mut Output) -> anyhow::Result<Exit> {
    if args.command.is_empty() {
        let words = ["plimsoll", "explain"].map(OsString::from).into_iter();
        let words = words.chain(args.files.iter().map(|file| file.clone().into_os_string()));
        let words: Vec<OsString> = words.collect();
        anyhow::bail!(
            "--fix needs the command that trains, after `--`: {} --fix -- python train.py",
            shell::shown(&words)
        );
    }
    // Without anything to explain, the card is this machine's, or `fit` says that it does not know one.
    let has_input = !args.files.is_empty() || open::has_standard_input();
    let room = if has_input { explain::told(args, out)?.1 } else { None };
    let room = room.unwrap_or_default();
    let shown = shell::shown(&args.command);
    let blank = if room.is_empty() { "" } else { " " };
    out.text(&format!("\n$ plimsoll fit{blank}{room} -- {shown}\n"))?;
    let words = ["plimsoll", "fit"].map(OsString::from).into_iter();
    let words = words.chain(room.split_whitespace().map(OsString::from));
    let words = words.chain([OsString::from("--")]).chain(args.command.iter().cloned());
    match Cli::try_parse_from(words)?.command {
        Command::Fit(args) => fit::run(&args, out),
        _ => {
            anyhow::bail!("plimsoll cannot parse its own `fit` command; this is a bug in plimsoll")
        }
    }
}
