//! `plimsoll`: will it fit, why did it not, what to change? This file ends the process; nothing else does.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "plimsoll runs on Linux x86-64 only: the phantom stands in for CUDA libraries that PyTorch loads \
     there. On another system, use a Linux x86-64 container"
);

mod assumption;
mod atomic_output;
mod cache;
mod cli;
mod commands;
mod contract;
mod devices;
mod diagnosis;
mod exit;
mod ghost_weights;
mod launch;
mod misplaced;
mod nvidia_smi;
mod open;
mod own_cards;
mod phantom_run;
mod plan_settings;
mod python;
mod ranks;
mod record;
mod recordings;
mod requested_file;
mod server;
mod settings;
mod shown_command;
mod ticker;
mod trials;
mod worst_sequence;

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

use crate::{
    cli::{Cli, Command},
    exit::Exit,
};

fn main() -> ExitCode {
    if let Some(exit) = nvidia_smi::answer() {
        return exit;
    }
    // A process of ours that keeps another one's writes apart.
    let mut words = env::args_os().skip(1);
    if words.next().is_some_and(|it| it == plimsoll_writes::TRACER) {
        return ExitCode::from(plimsoll_writes::trace(words));
    }
    own_cards::take_in();
    let mut out = io::stdout().lock();
    let result = settings::parse().and_then(|cli| run(&cli, &mut out));
    let flushed =
        out.flush().or_else(|error| if exit::is_broken_pipe(&error) { Ok(()) } else { Err(error) });
    match result.and_then(|exit| Ok(flushed.map(|()| exit)?)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            // The one place that writes an error; `{:#}` joins the causes with colons.
            let _ = writeln!(io::stderr(), "plimsoll: {error:#}");
            Exit::CouldNotTell.into()
        }
    }
}

fn run(cli: &Cli, out: &mut dyn io::Write) -> anyhow::Result<Exit> {
    match &cli.command {
        Command::Predict(args) => commands::predict::run(args, cli.color, out),
        Command::Fit(args) => commands::fit::run(args, out),
        Command::Run(args) => commands::run::run(args),
        Command::Replay(args) => commands::replay::run(args, cli.color, out),
        Command::Cards(args) => commands::cards::run(args, out),
        Command::Explain(args) if args.fix => commands::fix::run(args, cli.color, out),
        Command::Explain(args) => commands::explain::run(args, cli.color, out),
        Command::Glossary(args) => commands::glossary::run(args, cli.color, out),
        Command::Diff(args) => commands::diff::run(args, cli.color, out),
        Command::Export(args) => commands::export::run(args, out),
        Command::View(args) => commands::view::run(args, out),
        Command::Verify(args) => commands::verify::run(args, cli.color, out),
        Command::Calibrate(args) => commands::calibrate::run(args, out),
        Command::Agent => commands::agent::run(out),
        Command::Config(args) => commands::config::run(args, cli.color, out),
        Command::Doctor(args) => commands::doctor::run(args, cli.color, out),
        Command::Completions(args) => commands::completions::run(args, out),
        Command::Man(args) => commands::man::run(args, out),
    }
}
