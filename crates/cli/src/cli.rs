//! The grammar of the command line, and nothing else: what a command does is in its own file.

use std::{env, ffi::OsString, io::IsTerminal, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll_core::{replay::TorchVersion, units::Bytes};

use crate::assumption::Assumption;

/// Will it fit? GPU memory for PyTorch training, without a GPU.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// When to use colors: auto, always or never.
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        global = true,
        hide_possible_values = true
    )]
    pub(crate) color: Color,
}

const EXAMPLES: &str = "\
Examples:
  plimsoll predict --gpu rtx4090 -- python train.py --batch-size 16
  plimsoll replay snapshot.pickle --capacity 24GiB --sweep
  plimsoll explain snapshot.pickle
  plimsoll explain < train.log
  plimsoll cards
  plimsoll doctor

Exit codes: 0 it fits, 1 it does not, 2 could not tell.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a training script on a phantom GPU: what memory it takes, where it goes, which cards carry it.
    Predict(PredictArgs),
    /// Replay a recording through a model of PyTorch's allocator: as it was, or under other settings.
    Replay(ReplayArgs),
    /// What happened and what to change: from a memory snapshot, a recording, or a log with the error.
    Explain(ExplainArgs),
    /// What differs between two recordings at their peaks, by line of code.
    Diff(DiffArgs),
    /// List the cards that can be imitated.
    Cards(CardsArgs),
    /// Check whether this environment is able to predict, and say what is missing.
    Doctor(DoctorArgs),
}

#[derive(Debug, Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub(crate) struct PredictArgs {
    /// The card to imitate: a name from `plimsoll cards`, or a file that describes one. Without it the
    /// script runs on the largest card, and the report says which cards carry it.
    #[arg(long, value_name = "CARD|FILE.toml")]
    pub(crate) gpu: Option<String>,

    /// The card's memory, instead of what it has, as in `20GiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,

    /// How many of these cards the machine has.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) gpus: u32,

    /// Stop after N optimizer steps, instead of when memory is steady.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "until_exit")]
    pub(crate) steps: Option<u32>,

    /// Run the whole script.
    #[arg(long)]
    pub(crate) until_exit: bool,

    /// What an operation finds in values that no kernel computes, as in `nonzero=0.1`: the share of
    /// elements that boolean masks, `nonzero` and `masked_select` keep. Nothing, unless given.
    #[arg(long, value_name = "OP=SHARE")]
    pub(crate) assume: Vec<Assumption>,

    /// Exit with 1 when the job needs more than SIZE on its device, as in `22GiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) max: Option<Bytes>,

    /// Write the report as JSON. With `-` it goes to standard output, and what the script prints goes
    /// to standard error.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,

    /// Keep the recording, as one zip file (docs/recording-format.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// No report for people and no progress; errors only.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// The command as you would type it: `python train.py ...`, `torchrun ...`, `bash train.sh`, or
    /// just `train.py ...`.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const PREDICT_EXAMPLES: &str = "\
Examples:
  plimsoll predict train.py                      on which cards does it fit?
  plimsoll predict --gpu rtx4090 -- python train.py --batch-size 16
  plimsoll predict --gpu h200 --memory 20GiB --steps 10 -- python -m my.training
  plimsoll predict --gpu a100-80g --gpus 8 -- torchrun --nproc-per-node 8 train.py
  plimsoll predict --assume nonzero=0.25 -- python train_mixture.py
  plimsoll predict --max 22GiB --quiet --json report.json -- bash train.sh

Exit codes:
  0  it fits
  1  it does not fit, or it takes more than --max
  2  could not tell: the script failed, there is no torch, it was interrupted, bad arguments

Environment:
  PLIMSOLL_PYTHON  the Python that runs a script given without one
  PLIMSOLL_CACHE   the folder for plimsoll's own files, instead of ~/.cache/plimsoll";

#[derive(Debug, Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// A memory snapshot (`torch.cuda.memory._dump_snapshot`), plain or packed with xz, zstd or gzip, or a
    /// recording of `plimsoll predict --record`. `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Replay on a card with this much memory, as in `24GiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<Bytes>,

    /// How much of --capacity is not PyTorch's allocator's: CUDA context, NCCL, other processes.
    #[arg(long, value_name = "SIZE", default_value = "0", requires = "capacity")]
    pub(crate) outside: Bytes,

    /// Replay after `torch.cuda.set_per_process_memory_fraction(SHARE)`.
    #[arg(long, value_name = "SHARE", requires = "capacity", value_parser = share)]
    pub(crate) fraction: Option<f64>,

    /// Replay with this PYTORCH_CUDA_ALLOC_CONF, instead of the recorded one.
    #[arg(long, value_name = "TEXT")]
    pub(crate) alloc_conf: Option<String>,

    /// Replay with the rules of this version of torch, as in `2.13`.
    #[arg(long, value_name = "VERSION")]
    pub(crate) torch: Option<TorchVersion>,

    /// Try the useful allocator settings, and rank them.
    #[arg(long)]
    pub(crate) sweep: bool,

    /// The device to replay; without it, the one on which most happened.
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,

    /// Write the result as JSON; with `-` to standard output.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  plimsoll replay snapshot.pickle                check the recording against the model
  plimsoll replay snapshot.pickle --capacity 24GiB --outside 600MiB
  plimsoll replay run.zip --alloc-conf expandable_segments:True
  plimsoll replay snapshot.pickle.xz --capacity 24GiB --sweep

Exit codes:
  0  it fits
  1  it runs out of memory
  2  the file could not be read, or a setting could not";

fn share(given: &str) -> Result<f64, String> {
    let share = given.parse::<f64>().ok().filter(|it| 0.0 < *it && *it <= 1.0);
    share.ok_or_else(|| "expected a number above 0 and at most 1, as in `0.9`".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// Snapshots, recordings, logs or profiler traces, compressed or not, or folders of them; several
    /// are compared as ranks. Without any, or as `-`, standard input.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Write what was found as JSON; with `-` to standard output, instead of the report.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,

    /// Print the manual page of a kind of finding, such as leak/graph-retained.
    #[arg(long, value_name = "CODE", conflicts_with_all = ["files", "list"])]
    pub(crate) code: Option<String>,

    /// List the kinds of findings.
    #[arg(long, conflicts_with = "files")]
    pub(crate) list: bool,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  plimsoll explain snapshot.pickle               torch.cuda.memory._dump_snapshot(...)
  plimsoll explain train.log                     find every out-of-memory error in a log
  python train.py 2>&1 | plimsoll explain
  plimsoll explain run.zip                       what `plimsoll predict --record run.zip` kept
  plimsoll explain rank*.pickle.xz               ranks beside each other
  plimsoll explain --code leak/graph-retained    what a finding means

Exit codes:
  0  explained
  1  read, but nothing about memory is in it
  2  could not be read";

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 they differ, 1 they do not, 2 could not be read.")]
pub(crate) struct DiffArgs {
    /// The recording or snapshot to compare with.
    #[arg(value_name = "A")]
    pub(crate) before: PathBuf,

    /// The recording or snapshot that is compared.
    #[arg(value_name = "B")]
    pub(crate) after: PathBuf,

    /// Write the differences as JSON; with `-` to standard output, instead of the table.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CardsArgs {
    /// Show one card, with where its numbers come from.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 able to predict, 2 not.")]
pub(crate) struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// When to use colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether standard output is to be colored.
    pub(crate) fn is_on(self) -> bool {
        let no_color = env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|it| it == "dumb");
        match self {
            Color::Auto => std::io::stdout().is_terminal() && !no_color && !is_dumb,
            Color::Always => true,
            Color::Never => false,
        }
    }
}
