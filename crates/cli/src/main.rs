//! `plimsoll`: will it fit, why did it not, what to change? This file ends the process; nothing else does.

#![cfg_attr(
    not(feature = "phantom"),
    expect(
        dead_code,
        reason = "the grammar has the commands that run scripts, too, and says where they run"
    )
)]

#[cfg(all(feature = "phantom", not(all(target_os = "linux", target_arch = "x86_64"))))]
compile_error!(
    "scripts run on Linux x86-64 only: the phantom stands in for CUDA libraries that PyTorch loads there. Elsewhere build what reads \
     recordings, with --no-default-features, or use a Linux x86-64 container"
);

#[cfg(feature = "phantom")]
mod alarms;
#[cfg(feature = "phantom")]
mod cache;
mod commands;
mod contract;
#[cfg(feature = "phantom")]
mod engine;
mod exit;
mod files;
mod fold;
mod gpu;
mod options;
mod output;
mod server;
mod settings;
#[cfg(feature = "phantom")]
mod shell;
mod signals;
mod ticker;

use std::process::ExitCode;

use crate::{
    exit::Exit,
    options::cli::{Cli, Command},
    output::{Output, say},
};

fn main() -> ExitCode {
    #[cfg(feature = "phantom")]
    {
        if let Some(exit) = gpu::nvidia_smi::answer() {
            return exit;
        }
        // A process of ours that keeps another one's writes apart.
        let mut words = std::env::args_os().skip(1);
        if words.next().is_some_and(|it| it == plimsoll_writes::TRACER) {
            return ExitCode::from(plimsoll_writes::trace(words));
        }
    }
    gpu::own_cards::take_in();
    match settings::parse().and_then(|cli| run(&cli, &mut Output::open(cli.color))) {
        Ok(exit) => exit.into(),
        Err(error) => {
            // The one place that writes an error; `{:#}` joins the causes with colons.
            say(&format!("{error:#}"));
            Exit::CouldNotTell.into()
        }
    }
}

fn run(cli: &Cli, out: &mut Output) -> anyhow::Result<Exit> {
    match &cli.command {
        Command::Lint(args) => commands::lint::run(args, out),
        Command::Replay(args) => commands::replay::run(args, out),
        Command::Cards(args) => commands::cards::run(args, out),
        Command::Explain(args) if !args.fix => commands::explain::run(args, out),
        Command::Glossary(args) => commands::glossary::run(args, out),
        Command::Diff(args) => commands::diff::run(args, out),
        Command::Export(args) => commands::export::run(args, out),
        Command::View(args) => commands::view::run(args, out),
        Command::Config(args) => commands::config::run(args, out),
        Command::Completions(args) => commands::completions::run(args, out),
        Command::Man(args) => commands::man::run(args, out),
        _ => run_scripts(cli, out),
    }
}

/// The commands that run scripts, or ask about what runs them.
#[cfg(feature = "phantom")]
fn run_scripts(cli: &Cli, out: &mut Output) -> anyhow::Result<Exit> {
    match &cli.command {
        Command::Predict(args) => commands::predict::run(args, out),
        Command::Layouts(args) => commands::layouts::run(args, out),
        Command::Fit(args) => commands::fit::run(args, out),
        Command::Check(args) => commands::check::run(args, out),
        Command::Run(args) => commands::run::run(args, out),
        Command::Explain(args) => commands::fix::run(args, out),
        Command::Verify(args) => commands::verify::run(args, out),
        Command::Calibrate(args) => commands::calibrate::run(args, out),
        Command::Top(args) => commands::top::run(args, out),
        Command::Exporter(args) => commands::exporter::run(args, out),
        Command::Watch(args) => commands::watch::run(args, out),
        Command::Agent => commands::agent::run(out),
        Command::Doctor(args) => commands::doctor::run(args, out),
        other => unreachable!("{other:?} runs no script"),
    }
}

#[cfg(not(feature = "phantom"))]
fn run_scripts(_: &Cli, _: &mut Output) -> anyhow::Result<Exit> {
    anyhow::bail!(
        "this build of plimsoll reads recordings, snapshots and logs only; to run scripts, use the build for Linux on x86-64, for example in a container (docker run --platform linux/amd64)"
    )
}
