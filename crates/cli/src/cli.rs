//! The grammar of the command line, and nothing else: what a command does is in its own file.

use std::{env, ffi::OsString, io::IsTerminal, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll_core::{explanation::At, replay::TorchVersion, units::Bytes};

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
  plimsoll fit --gpu rtx4090 -- python train.py
  plimsoll replay snapshot.pickle --capacity 24GiB --sweep
  plimsoll explain snapshot.pickle
  plimsoll explain < train.log
  plimsoll view snapshot.pickle
  plimsoll cards
  plimsoll doctor

Exit codes: 0 it fits, 1 it does not, 2 could not tell.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a training script on a phantom GPU: what memory it takes, where it goes, which cards carry it.
    Predict(PredictArgs),
    /// Make it fit: the cheapest plan that does, or the largest batch; every candidate is run on the phantom.
    Fit(FitArgs),
    /// Run a training script for real, with a plan applied and a recorder on; explain an out-of-memory error.
    Run(RunArgs),
    /// Replay a recording through a model of PyTorch's allocator: as it was, or under other settings.
    Replay(ReplayArgs),
    /// What happened and what to change: from a memory snapshot, a recording, or a log with the error.
    Explain(ExplainArgs),
    /// What differs between two recordings, steps, moments or ranks, by line of code.
    Diff(DiffArgs),
    /// A recording in a form that other programs open: a flame graph, Parquet tables, a Perfetto trace.
    Export(ExportArgs),
    /// Look at recordings in the browser: what was live when, where it lay, what grew.
    View(ViewArgs),
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

    /// How many of these cards the machine has: 1, or as many as the ranks need, up to 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) gpus: Option<u32>,

    /// Run one rank of a job of N; the others are imagined. Launchers in the command (`torchrun`,
    /// `accelerate launch`) start one rank by themselves, and N is theirs if it is not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) world_size: Option<u32>,

    /// The rank that runs: the first, if it is not given.
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,

    /// Let launchers start every rank of this machine as a process.
    #[arg(long, conflicts_with_all = ["world_size", "rank"])]
    pub(crate) all_ranks: bool,

    /// Give large tensors on the host no memory and no values, so that models larger than this machine can be
    /// built on it: `auto` once weights there become many, `on` from the start, `off` never.
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        hide_possible_values = true
    )]
    pub(crate) ghost_weights: GhostWeights,

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

    /// Open the recording in the browser afterwards, as `plimsoll view` does; Ctrl-C ends it.
    #[arg(long)]
    pub(crate) open: bool,

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
  plimsoll predict --gpu a100-80g -- torchrun --nproc-per-node 8 train.py
  plimsoll predict --gpu h100-80g --world-size 64 -- python fsdp.py --model 70b
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
#[command(after_help = FIT_EXAMPLES)]
pub(crate) struct FitArgs {
    /// The card to fit: a name from `plimsoll cards`, or a file that describes one.
    #[arg(long, value_name = "CARD|FILE.toml")]
    pub(crate) gpu: Option<String>,

    /// The card's memory, instead of what it has, as in `20GiB`.
    #[arg(long, value_name = "SIZE", conflicts_with = "budget")]
    pub(crate) memory: Option<Bytes>,

    /// The most that the process may take on its device, CUDA context included.
    #[arg(long, value_name = "SIZE")]
    pub(crate) budget: Option<Bytes>,

    /// The most that PyTorch's allocator may reserve, as `set_per_process_memory_fraction` limits it.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_reserved: Option<Bytes>,

    /// Find the largest value that fits for `{NAME}` in the command.
    #[arg(long, value_name = "NAME=LOW..HIGH[:STEP]")]
    pub(crate) find_max: Option<String>,

    /// What stands for another `{NAME}` in the command.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// Only these remedies may be used.
    #[arg(long, value_name = "REMEDY,...", value_delimiter = ',')]
    pub(crate) allow: Vec<String>,

    /// These remedies may not be used.
    #[arg(long, value_name = "REMEDY,...", value_delimiter = ',')]
    pub(crate) forbid: Vec<String>,

    /// No remedy that changes the numbers by more than rounding.
    #[arg(long)]
    pub(crate) keep_numerics: bool,

    /// Where the plan goes.
    #[arg(long, value_name = "FILE", default_value = "plan.toml")]
    pub(crate) plan: PathBuf,

    /// Write the result as JSON; with `-` to standard output.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,

    /// No progress and no report for people.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// The command as you would type it, with `{NAME}` where a value is to stand.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const FIT_EXAMPLES: &str = "\
Examples:
  plimsoll fit --gpu rtx4090 -- python train.py
  plimsoll fit --budget 20GiB --keep-numerics -- python train.py
  plimsoll fit --gpu a100-40g --forbid autocast,offload -- python train.py
  plimsoll fit --find-max batch=1..2048 --gpu rtx4090 -- python train.py --batch-size {batch}
  plimsoll fit --find-max seq=128..8192:128 --set batch=4 --gpu h200 -- python t.py -b {batch} -s {seq}

Exit codes:
  0  it fits, with the plan or the value that was found
  1  nothing that was tried fits
  2  could not tell: the script failed, it was interrupted before anything was found, bad arguments";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The plan to apply, as `plimsoll fit` writes it.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,

    /// Keep the recording, as one zip file. Without it one is kept only when memory runs out.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// How many of the last allocations and frees the recorder remembers.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub(crate) events: u64,

    /// Go on without a GPU.
    #[arg(long)]
    pub(crate) no_gpu: bool,

    /// The command as you would type it.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  plimsoll run --plan plan.toml -- python train.py
  plimsoll run --record run.zip -- torchrun --nproc-per-node 2 train.py

The exit code is the script's; 128 and the number of a signal that ended it; 2 if it could not be started.";

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

    /// Open the recordings in the browser afterwards, as `plimsoll view` does; Ctrl-C ends it.
    #[arg(long, requires = "files")]
    pub(crate) open: bool,
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
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArgs {
    /// One or two of: a snapshot, a recording, a folder of ranks; `-` is standard input. After an `@` what of
    /// it, with commas: a moment (peak, oom, end, event:N, step:N, after:N), rank:N, device:N. Without a
    /// moment, the peak.
    #[arg(value_name = "FILE[@WHAT]", required = true, num_args = 1..=2)]
    pub(crate) inputs: Vec<OsString>,

    /// Compare two steps of one recording at their peaks.
    #[arg(long, value_name = "A..B", value_parser = two_steps)]
    pub(crate) steps: Option<(u32, u32)>,

    /// Write the differences as JSON; with `-` to standard output, instead of the table.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  plimsoll diff before.pickle after.pickle       what one has more than the other at its peak, by line
  plimsoll diff run.zip --steps 3..4             what grew from one step to the next
  plimsoll diff run.zip@after:2 run.zip@after:9  what is kept and should not be
  plimsoll diff predicted.zip real.pickle        a prediction against the real thing
  plimsoll diff ranks/                           how the ranks of a job differ
  plimsoll diff ranks/@rank:0 ranks/@rank:3
  plimsoll diff a.pickle@device:0 a.pickle@device:1,end

Exit codes:
  0  compared, whether they differ or not
  2  could not be read, or there is no such moment";

fn two_steps(given: &str) -> Result<(u32, u32), String> {
    let steps = given.split_once("..").and_then(|(a, b)| {
        Some((a.trim().parse().ok()?, b.trim_start_matches('=').trim().parse().ok()?))
    });
    steps
        .filter(|(a, b)| 0 < *a && 0 < *b)
        .ok_or_else(|| "expected two steps, counted from 1, as in `3..4`".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct ExportArgs {
    /// A memory snapshot, plain or packed, or a recording of `plimsoll predict --record`. `-` is standard
    /// input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// What to make of it; several with commas.
    #[arg(long, value_enum, value_name = "TARGET", required = true, value_delimiter = ',')]
    pub(crate) to: Vec<ExportTarget>,

    /// Where to write it, `-` for standard output. Without it, a name made from FILE's in the current
    /// folder; standard output when FILE is standard input.
    #[arg(long, short, value_name = "OUT|-")]
    pub(crate) output: Option<PathBuf>,

    /// The moment that a flame graph shows: peak, oom, end, event:N, step:N (its peak), after:N (what a
    /// step keeps).
    #[arg(long, value_name = "MOMENT", default_value = "peak")]
    pub(crate) at: At,

    /// The device; without it all of them, or for a flame graph the one with the highest peak.
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,

    /// The rank, where a recording has several processes.
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,

    /// Replace what is there.
    #[arg(long)]
    pub(crate) force: bool,
}

/// What a recording can be exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportTarget {
    /// an SVG: who holds the bytes at a moment, by call stack
    Flamegraph,
    /// one page to look at in a browser, without a server: what `plimsoll view` shows, with less detail
    Html,
    /// a folder of Parquet files for DuckDB, pandas, Spark: events, blocks, stacks, segments
    Parquet,
    /// a trace for ui.perfetto.dev: memory over time with steps and phases
    Perfetto,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  plimsoll export snapshot.pickle --to flamegraph            snapshot.flamegraph.svg, at the peak
  plimsoll export run.zip --to flamegraph --at step:3 -o step3.svg
  plimsoll export snapshot.pickle --to html                  snapshot.html, a page to send
  plimsoll export snapshot.pickle --to parquet               the folder snapshot.parquet
  plimsoll export run.zip --to perfetto,flamegraph           open run.perfetto.json in ui.perfetto.dev
  xz -dc snapshot.pickle.xz | plimsoll export - --to flamegraph > peak.svg

Columns and queries: docs/export.md

Exit codes:
  0  written
  2  could not be read or written";

#[derive(Debug, Args)]
#[command(after_help = VIEW_EXAMPLES)]
pub(crate) struct ViewArgs {
    /// Snapshots and recordings, compressed or not, or folders of them; several are shown beside each
    /// other, as ranks. `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// The port on 127.0.0.1 to listen on; 0 is any that is free.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,

    /// Print the address and start no browser.
    #[arg(long)]
    pub(crate) no_open: bool,

    /// Write the page as one file that opens without a server, with less detail; with `-` to standard
    /// output.
    #[arg(long, value_name = "PATH|-", conflicts_with_all = ["port", "no_open"])]
    pub(crate) html: Option<PathBuf>,
}

const VIEW_EXAMPLES: &str = "\
Examples:
  plimsoll view snapshot.pickle                  open it in the browser; Ctrl-C ends it
  plimsoll view rank*.pickle.xz                  ranks beside each other
  plimsoll view run.zip --no-open --port 8000    print the address only
  plimsoll view snapshot.pickle --html peak.html one file to send to somebody

The page is served to this machine only, at an address that nobody can guess; nothing leaves it.
On a machine without display, forward the port: ssh -N -L 8000:127.0.0.1:8000 machine

Exit codes:
  0  Ctrl-C ended it, or the file was written
  2  it could not be read, or there is no memory in it";

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

/// When large tensors on the host are ghosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GhostWeights {
    /// Once the weights there become many for this machine.
    #[default]
    Auto,
    On,
    Off,
}

impl GhostWeights {
    /// As the agent reads it in `PLIMSOLL_GHOST_WEIGHTS`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            GhostWeights::Auto => "auto",
            GhostWeights::On => "on",
            GhostWeights::Off => "off",
        }
    }
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
