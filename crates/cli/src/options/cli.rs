//! The grammar of the command line, and nothing else: what a command does is in its own file.

mod alarms;
mod before;
#[cfg(feature = "phantom")]
mod machine;
mod recordings;
mod world;

use std::{env, ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll_core::{plan::remedies::MOST_GPUS, units::Bytes};

pub(crate) use self::{
    alarms::{AlarmArgs, WatchArgs},
    before::{CheckArgs, LintArgs, LintFormat},
    recordings::{DiffArgs, ExplainArgs, ExportArgs, ExportTarget, ReplayArgs, ViewArgs},
    world::{WorldArgs, Writes},
};
#[cfg(feature = "phantom")]
pub(crate) use self::{
    before::{CheckFormat, Share},
    machine::{ExporterArgs, Sort, TopArgs},
    recordings::token,
};
use crate::{
    options::{
        assumption::Assumption,
        beside::{Beside, beside},
        constraint::Constraint,
        expectation::Expectation,
        factor_values::FactorValues,
        ghost_weights::GhostWeights,
        number::whole,
        size::size,
        worst_sequence::WorstSequence,
        worst_size::WorstSize,
    },
    output::Color,
};

/// Will it fit? GPU memory for PyTorch training, without a GPU.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, long_version = LONG_VERSION, max_term_width = 100, after_help = EXAMPLES)]
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

/// The version and the build's facts, for bug reports.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("BUILD_FACTS"));

const EXAMPLES: &str = "\
Examples:
  plimsoll predict --gpu rtx4090 -- python train.py --batch-size 16
  plimsoll fit --gpu rtx4090 -- python train.py
  plimsoll replay snapshot.pickle --capacity 24GiB --sweep
  plimsoll explain snapshot.pickle
  plimsoll explain < train.log
  plimsoll view snapshot.pickle
  plimsoll lint train.py
  plimsoll check
  plimsoll cards
  plimsoll verify -- python train.py
  plimsoll doctor

Exit codes: 0 it fits, 1 it does not, 2 unknown.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a training script on a phantom GPU: how much GPU memory it needs, for which lines, and which cards it fits.
    Predict(PredictArgs),
    /// Find the cheapest plan with which the script fits, or the largest batch. Each candidate runs on the phantom.
    Fit(FitArgs),
    /// Which layouts of a job on many GPUs fit: tensor, pipeline, context and data parallel, batch sizes. One run for each.
    Layouts(LayoutsArgs),
    /// Find memory mistakes in training scripts without running them; --confirm measures the cost of each.
    Lint(LintArgs),
    /// Test memory in CI: run scripts on a phantom GPU and compare their memory with saved numbers.
    Check(CheckArgs),
    /// Run a training script on the real GPU, with a plan and a recorder; explain an out-of-memory error.
    Run(RunArgs),
    /// Replay a recording through a model of PyTorch's allocator, with the recorded or with other settings.
    Replay(ReplayArgs),
    /// Explain what happened and what to change, from a snapshot, a recording, or a log with the error.
    Explain(ExplainArgs),
    /// Explain the words of the reports.
    Glossary(GlossaryArgs),
    /// Compare two recordings, steps, moments or ranks, by line of code.
    Diff(DiffArgs),
    /// Export a recording for other programs: a flame graph, Parquet tables, a Perfetto trace.
    Export(ExportArgs),
    /// Show recordings in the browser: which blocks were live when, where they were, and which grew.
    View(ViewArgs),
    /// Follow a watched run from another terminal, and forward its alarms.
    Watch(WatchArgs),
    /// Live view of this machine's GPU memory by process.
    #[cfg(feature = "phantom")]
    Top(TopArgs),
    /// Export the memory of this machine's GPUs to Prometheus and OpenTelemetry, until Ctrl-C.
    #[cfg(feature = "phantom")]
    Exporter(ExporterArgs),
    /// List the cards that the phantom can imitate.
    Cards(CardsArgs),
    /// On a machine with a GPU: run some steps on it and on its phantom, and compare their memory.
    Verify(VerifyArgs),
    /// On a machine with a GPU: measure the numbers that predictions need, and save them as a card for every command.
    Calibrate(CalibrateArgs),
    /// Print the folder of the agent, for the Python package.
    #[command(hide = true)]
    Agent,
    /// Check whether this environment can predict, and report what is missing.
    Doctor(DoctorArgs),
    /// Show the defaults of options from plimsoll.toml, pyproject.toml and the environment.
    Config(ConfigArgs),
    /// Print the script with which a shell completes plimsoll's commands, options and files.
    Completions(CompletionsArgs),
    /// Print the page for man(1) of plimsoll, or of one of its commands.
    Man(ManArgs),
}

#[derive(Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
pub(crate) struct ConfigArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const CONFIG_EXAMPLES: &str = "\
Examples:
  plimsoll config                       each setting, its value, its source
  PLIMSOLL_GPU=rtx4090 plimsoll config --json

plimsoll.toml, in the working folder or above it:
  gpu = \"rtx4090\"
  [fit]
  forbid = [\"offload\"]

In pyproject.toml, put the same below [tool.plimsoll].

Exit codes: 0 shown, 2 a setting is wrong (with file, line and column).";

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  plimsoll completions bash > \\
      ~/.local/share/bash-completion/completions/plimsoll
  plimsoll completions zsh > ~/.zfunc/_plimsoll
      with `fpath+=~/.zfunc` before compinit in ~/.zshrc
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish";

#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// The command, as in `predict`. Default: plimsoll itself.
    pub(crate) command: Option<String>,

    /// Write the pages of plimsoll and of all its commands into this folder instead.
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) all: Option<PathBuf>,
}

const MAN_EXAMPLES: &str = "\
Examples:
  plimsoll man predict | man -l -
  plimsoll man --all ~/.local/share/man/man1";

#[derive(Debug, Args)]
pub(crate) struct GlossaryArgs {
    /// The word, as in activations. Default: all words.
    #[arg(value_name = "WORD", num_args = 0..)]
    pub(crate) word: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub(crate) struct PredictArgs {
    /// The card to imitate: a name from `plimsoll cards`, or a file that describes one. Default: this
    /// machine's GPU; on a machine without a GPU, the largest card, and the report lists the cards that the
    /// script fits.
    #[arg(long, value_name = "CARD|FILE.toml")]
    pub(crate) gpu: Option<String>,

    /// Run the script on each of these cards and report which it fits: for scripts that ask for the size of
    /// the card. The report describes `--gpu`, or the first of these cards.
    #[arg(long, value_name = "CARD,CARD", value_delimiter = ',', conflicts_with = "memory")]
    pub(crate) cards: Vec<String>,

    /// The memory of the card, as in `20GiB`. Default: the memory that the card has.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<Bytes>,

    /// What other programs hold of the card while the script runs (a display, a browser), as in `1.2GiB`, which
    /// `nvidia-smi` shows as used memory; or `now`: what this machine's GPU has in use. Default: nothing.
    #[arg(long, value_name = "SIZE", value_parser = beside)]
    pub(crate) beside: Option<Beside>,

    /// The card is in a machine with Windows, or WSL: Windows keeps 5 % of it (derived), and when it is full the
    /// driver lends memory of the host. With this machine's own card under WSL that is the default.
    #[arg(long, visible_alias = "wsl")]
    pub(crate) windows: bool,

    /// The number of these cards in the machine. Default: 1, or as many as the ranks need, up to 8.
    #[arg(long, value_name = "N", value_parser = whole(1..=64_u32, 4))]
    pub(crate) gpus: Option<u32>,

    /// Run one rank of a job of N ranks; the phantom imitates the others. With a launcher in the command
    /// (`torchrun`, `accelerate launch`), one rank runs without this option, and N is the launcher's by
    /// default.
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX, 8))]
    pub(crate) world_size: Option<u32>,

    /// The rank that runs. Default: the first.
    #[arg(long, value_name = "R", value_parser = whole(0..=u32::MAX, 0))]
    pub(crate) rank: Option<u32>,

    /// Run every rank that the launcher starts on this machine, each in a process.
    #[arg(long, conflicts_with_all = ["world_size", "rank"])]
    pub(crate) all_ranks: bool,

    /// Give large tensors on the CPU no memory and no values, so that the script can build models larger than
    /// this machine: `auto` once the weights there are large, `on` from the start, `off` never.
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

    /// Check a plan of `plimsoll fit`, or your own: run the script with its changes, as `plimsoll run --plan` does.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,

    /// When to stop: `steady`: once memory is the same in two steps; `validation`: after an evaluation, too,
    /// or after a wait without one; `exit`: at the end of the script.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, hide_possible_values = true)]
    pub(crate) until: PredictUntil,

    /// Stop after N optimizer steps.
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX, 3), conflicts_with_all = ["until", "until_exit"])]
    pub(crate) steps: Option<u32>,

    /// Run the whole script: the same as `--until exit`.
    #[arg(long, conflicts_with = "until")]
    pub(crate) until_exit: bool,

    /// Print the script's traceback when memory runs out, or you interrupt it. By default the report names the line, and Python prints only
    /// the error.
    #[arg(long)]
    pub(crate) traceback: bool,

    /// Make every batch this long, or as long as the longest that the data loader shows, to predict the worst case; or `text`: only as
    /// long as its own longest text, to see what padding takes.
    #[arg(long, value_name = "N|longest|text")]
    pub(crate) worst_seq: Option<WorstSequence>,

    /// Enlarge every smaller image of a DataLoader, and its masks, to this height and width, to predict the worst
    /// case; or every image before an image processor of transformers, whose tokens follow. One number means both.
    #[arg(long, visible_alias = "worst-image", value_name = "HxW")]
    pub(crate) worst_size: Option<WorstSize>,

    /// Put the sample of the data set that is far larger than most into every batch of a DataLoader, to predict the
    /// worst case.
    #[arg(long)]
    pub(crate) worst_sample: bool,

    /// Assume a result that a phantom cannot compute: `nonzero=0.25`, `unique=0.1`, `overflow=1`, `objects=6`,
    /// `experts=worst`, or `train.py:14=280`, the number that this line reads. The report says which it needs;
    /// docs/predict.md has a table of them with their defaults.
    #[arg(long, value_name = "WHAT=HOW-MUCH")]
    pub(crate) assume: Vec<Assumption>,

    /// Exit with 1 when the script needs more than SIZE on its device, as in `22GiB`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max: Option<Bytes>,

    /// Print the resource request for a scheduler below the report: slurm, kubernetes, skypilot or ray.
    #[arg(long = "as", value_enum, value_name = "SCHEDULER", hide_possible_values = true)]
    pub(crate) request: Option<Scheduler>,

    #[command(flatten)]
    pub(crate) world: WorldArgs,

    /// Write the report as JSON. With `-`, the report goes to standard output, and the script's output goes
    /// to standard error.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,

    /// Save the recording as one zip file (docs/recording-format.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// Open the recording in the browser afterwards, as `plimsoll view` does; Ctrl-C ends the viewer.
    #[arg(long)]
    pub(crate) open: bool,

    /// Show all tables and notes of the report: modules, steps, every card.
    #[arg(long)]
    pub(crate) full: bool,

    /// End once it is known that the card is not enough, without looking how much would be.
    #[arg(long, hide = true)]
    pub(crate) verdict: bool,

    /// Print no report and no progress, only errors.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// The command as you would type it: `python train.py ...`, `torchrun ...`, `bash train.sh`, or
    /// just `train.py ...`.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = LAYOUTS_EXAMPLES)]
pub(crate) struct LayoutsArgs {
    /// The card to imitate, as in `plimsoll predict`. Default: that of this machine.
    #[arg(long, value_name = "CARD|FILE.toml")]
    pub(crate) gpu: Option<String>,

    /// How many of these cards the job has, on machines of 8.
    #[arg(long, value_name = "N", value_parser = whole(1..=4096_u32, 64))]
    pub(crate) gpus: u32,

    /// Leave out layouts for which this is false: a comparison of names, numbers and their products, as in
    /// `tp<=8`, `tp*pp==16` or `ac==full`. All of them have to hold.
    #[arg(long = "where", value_name = "COMPARISON")]
    pub(crate) constraints: Vec<Constraint>,

    /// The values of a name in the command, as in `ac=none,full`. Default: for tp, pp, cp, sp, dp, fsdp,
    /// dp_shard, dp_replicate, ep and etp the divisors of the number of GPUs; for mbs, bs, batch, batch_size
    /// and micro_batch_size 1, 2, 4 and 8.
    #[arg(long, value_name = "NAME=A,B")]
    pub(crate) values: Vec<FactorValues>,

    /// Refuse to try more layouts than this.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = whole(1..=usize::MAX, 500))]
    pub(crate) at_most: usize,

    /// How many layouts run at a time. Default: as many as this machine has cores, and 2 GiB of free memory
    /// for each.
    #[arg(long, short, value_name = "N", value_parser = whole(1..=usize::MAX, 4))]
    pub(crate) jobs: Option<usize>,

    /// Start each run through this command, which may run it on another machine and print what it prints, as
    /// in `srun -n1`. Its words are separated by spaces.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) runner: Option<String>,

    /// Assume a result that a phantom cannot compute, as in `plimsoll predict`.
    #[arg(long, value_name = "WHAT=HOW-MUCH")]
    pub(crate) assume: Vec<Assumption>,

    /// Print the resource request of the first layout in the order for a scheduler: slurm, kubernetes,
    /// skypilot or ray.
    #[arg(long = "as", value_enum, value_name = "SCHEDULER", hide_possible_values = true)]
    pub(crate) request: Option<Scheduler>,

    /// Write all layouts as JSON; `-` is standard output.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,

    /// Print no table and no progress, only errors.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// The command, with names in braces where layouts differ. `{gpus}`, `{nodes}` and `{gpus_per_node}`
    /// have the same value in all.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const LAYOUTS_EXAMPLES: &str = "\
Examples:
  plimsoll layouts --gpu h100-80g --gpus 8 -- python t.py --tp {tp} --bs {bs}
  plimsoll layouts --gpu h100-80g --gpus 64 --where 'tp<=8' \\
      --values ac=none,full -- \\
      torchrun --nnodes {nodes} --nproc-per-node {gpus_per_node} \\
      train.py --tp {tp} --pp {pp} --dp {dp} --mbs {mbs} --ac {ac}

Exit codes: 0 a layout fits, 1 none does, 2 unknown.";

/// Who runs jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    Slurm,
    Kubernetes,
    Skypilot,
    Ray,
}

impl From<Scheduler> for plimsoll_core::views::schedulers::Scheduler {
    fn from(it: Scheduler) -> Self {
        match it {
            Scheduler::Slurm => Self::Slurm,
            Scheduler::Kubernetes => Self::Kubernetes,
            Scheduler::Skypilot => Self::Skypilot,
            Scheduler::Ray => Self::Ray,
        }
    }
}

/// When a run of `predict` ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PredictUntil {
    /// Memory is steady.
    Steady,
    /// Memory is steady and an evaluation ran.
    #[default]
    Validation,
    /// The script ends.
    Exit,
}

const PREDICT_EXAMPLES: &str = "\
Examples:
  plimsoll predict train.py                      on which cards does it fit?
  plimsoll predict --gpu rtx4090 -- python train.py --batch-size 16
  plimsoll predict --gpu h200 --memory 20GiB --steps 10 -- python -m my.training
  plimsoll predict --gpu a100-80g -- torchrun --nproc-per-node 8 train.py
  plimsoll predict --gpu h100-80g --world-size 64 -- python fsdp.py --model 70b
  plimsoll predict --gpu rtx4090 --worst-seq 2048 -- python train.py
  plimsoll predict --gpu rtx4090 --worst-size 800x1333 -- python detect.py
  plimsoll predict --gpu rtx4090 --plan plan.toml -- python train.py
  plimsoll predict --assume nonzero=0.25 -- python train_mixture.py
  plimsoll predict --gpu a100-80g/3g.40gb --as kubernetes -- python train.py
  plimsoll predict --max 22GiB --quiet --json report.json -- bash train.sh

Exit codes:
  0  it fits
  1  it does not fit, its memory grows until it does not, or it needs more
     than --max
  2  unknown: the script failed or never trained, there is no torch,
     it was interrupted, bad arguments

Environment:
  PLIMSOLL_PYTHON  the Python that runs a script given without one
  PLIMSOLL_CACHE   the folder for plimsoll's files, instead of ~/.cache/plimsoll";

#[derive(Debug, Args)]
#[command(after_help = FIT_EXAMPLES)]
pub(crate) struct FitArgs {
    /// The card to fit: a name from `plimsoll cards`, or a file that describes one.
    #[arg(long, value_name = "CARD|FILE.toml")]
    pub(crate) gpu: Option<String>,

    /// The memory of the card, as in `20GiB`. Default: the memory that the card has.
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "budget")]
    pub(crate) memory: Option<Bytes>,

    /// What other programs hold of the card while the script runs (a display, a browser), as in `1.2GiB`, which
    /// `nvidia-smi` shows as used memory; or `now`: what this machine's GPU has in use. Default: nothing.
    #[arg(long, value_name = "SIZE", value_parser = beside, conflicts_with = "budget")]
    pub(crate) beside: Option<Beside>,

    /// The card is in a machine with Windows, or WSL: Windows keeps 5 % of it (derived). A plan that needs memory of
    /// the host is none. With this machine's own card under WSL that is the default.
    #[arg(long, visible_alias = "wsl", conflicts_with = "budget")]
    pub(crate) windows: bool,

    /// The most GPU memory that the process may need, CUDA context included.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) budget: Option<Bytes>,

    /// The most that PyTorch's allocator may reserve, as `set_per_process_memory_fraction` limits it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) limit_reserved: Option<Bytes>,

    /// The number of such devices: a plan may run a script of one process on all of them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=MOST_GPUS, 2), conflicts_with = "find_max")]
    pub(crate) gpus: u32,

    /// Find the largest value that fits: of `{NAME}` in the command, of the number with this name in the
    /// script, or of the number at `train.py:14`.
    #[arg(long, value_name = "NAME=LOW..HIGH[:STEP]")]
    pub(crate) find_max: Option<String>,

    /// With --find-max: print a table of the largest value with each set of remedies, its memory and its step
    /// time. --allow, --forbid and --keep-numerics choose the remedies.
    #[arg(long, requires = "find_max")]
    pub(crate) by_remedies: bool,

    /// Of a serving engine (vLLM, SGLang): how many users it is to hold at once. Alone: find their largest context.
    #[arg(long, value_name = "N", value_parser = whole(1..=u64::MAX, 16), conflicts_with_all = ["find_max", "measure", "until_exit", "budget", "limit_reserved"])]
    pub(crate) users: Option<u64>,

    /// Of a serving engine (vLLM, SGLang): how many tokens each user has. Alone: find how many users it holds. With --users: find the
    /// flags that are enough for both, and without --gpu the smallest card.
    #[arg(long, value_name = "TOKENS", value_parser = whole(1..=u64::MAX, 8192), conflicts_with_all = ["find_max", "measure", "until_exit", "budget", "limit_reserved"])]
    pub(crate) context: Option<u64>,

    /// The value of another `{NAME}` in the command.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// Make every batch this long, or as long as the longest that the data loader shows, to predict the worst case; or `text`: only as
    /// long as its own longest text, to see what padding takes.
    #[arg(long, value_name = "N|longest|text")]
    pub(crate) worst_seq: Option<WorstSequence>,

    /// Enlarge every smaller image of a DataLoader, and its masks, to this height and width, to predict the worst
    /// case; or every image before an image processor of transformers, whose tokens follow. One number means both.
    #[arg(long, visible_alias = "worst-image", value_name = "HxW")]
    pub(crate) worst_size: Option<WorstSize>,

    /// Before proposing a plan, run the script with it to its end, not only until memory is steady: later
    /// parts, for example an evaluation, are then known to fit, too.
    #[arg(long, conflicts_with = "find_max")]
    pub(crate) until_exit: bool,

    /// Assume a result that a phantom cannot compute, as in `predict --assume`: `nonzero=0.1`, `unique=0.1`,
    /// `overflow=1`, `train.py:14=280`.
    #[arg(long, value_name = "WHAT=HOW-MUCH")]
    pub(crate) assume: Vec<Assumption>,

    /// Use only these remedies. With --users or --context: the flags of the engine that the search may set
    /// (max-num-seqs, gpu-memory-utilization, kv-cache-dtype, enforce-eager).
    #[arg(long, value_name = "REMEDY,...", value_delimiter = ',')]
    pub(crate) allow: Vec<String>,

    /// Do not use these remedies.
    #[arg(long, value_name = "REMEDY,...", value_delimiter = ',')]
    pub(crate) forbid: Vec<String>,

    /// Use no remedy that changes the numbers by more than rounding.
    #[arg(long)]
    pub(crate) keep_numerics: bool,

    /// The plan to prefer among those that add no time: the one that changes the numbers least, or the fastest.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, conflicts_with = "find_max")]
    pub(crate) prefer: Preferred,

    /// Also report the memory with half the sequence, adapters or half the blocks; without this option only
    /// when nothing fits.
    #[arg(long)]
    pub(crate) advice: bool,

    /// Measure step times of the proposed plans and of the unchanged script on this machine's GPU: some steps
    /// of each, twice. The measured times decide which plan is first.
    #[arg(long, conflicts_with = "find_max")]
    pub(crate) measure: bool,

    #[command(flatten)]
    pub(crate) world: WorldArgs,

    /// The file to write the plan to.
    #[arg(long, value_name = "FILE", default_value = "plan.toml")]
    pub(crate) plan: PathBuf,

    /// Replace a plan and its diff even if they belong to another script or were edited.
    #[arg(long)]
    pub(crate) force: bool,

    /// Write the result as JSON; with `-`, to standard output.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,

    /// Show each change of the script, line by line: the diff, and what a person would write by hand.
    #[arg(long)]
    pub(crate) full: bool,

    /// Print no progress and no report.
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// The command as you would type it, with `{NAME}` in place of a value.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const FIT_EXAMPLES: &str = "\
Examples:
  plimsoll fit --gpu rtx4090 -- python train.py
  plimsoll fit --budget 20GiB --keep-numerics -- python train.py
  plimsoll fit --gpu rtx4090 --worst-seq 2048 -- python train.py
  plimsoll fit --gpu a100-40g --forbid autocast,offload -- python train.py
  plimsoll fit --gpu rtx4090 --until-exit -- python train.py --epochs 1
  plimsoll fit --gpu rtx4090 --gpus 2 -- python train.py     on two devices
  plimsoll fit --gpu rtx4090 --measure -- python train.py    on such a machine
  plimsoll fit --find-max batch=1..2048 --gpu t4 -- python train.py -b {batch}
  plimsoll fit --find-max batch=1..2048 --by-remedies --gpu rtx4090 -- \\
      python train.py -b {batch}
  plimsoll fit --find-max seq=128..8192:128 --set batch=4 --gpu h200 -- \\
      python train.py -b {batch} -s {seq}
  plimsoll fit --users 8 --gpu h100-80g -- vllm serve MODEL

Exit codes:
  0  it fits, with the plan or the value in the report
  1  nothing that was tried fits
  2  unknown: the script failed, bad arguments,
     it was interrupted before anything was found";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The plan to apply, as `plimsoll fit` writes it; with --fit, the file to write the plan to.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,

    /// Make a plan first, for the memory that is free on the device now. A script that fits runs without changes.
    #[arg(long)]
    pub(crate) fit: bool,

    /// The card that --fit imitates, if the catalogue does not have the device.
    #[arg(long, value_name = "CARD|FILE.toml", requires = "fit")]
    pub(crate) gpu: Option<String>,

    /// --fit makes every batch this long, or as long as the longest that the data loader shows.
    #[arg(long, value_name = "N|longest", requires = "fit")]
    pub(crate) worst_seq: Option<WorstSequence>,

    /// --fit enlarges every smaller image to this height and width, as `fit --worst-size` does.
    #[arg(long, value_name = "HxW", requires = "fit")]
    pub(crate) worst_size: Option<WorstSize>,

    /// Assume a result during --fit, as in `predict --assume`.
    #[arg(long, value_name = "WHAT=HOW-MUCH", requires = "fit")]
    pub(crate) assume: Vec<Assumption>,

    /// --fit may replace any file at the path of --plan.
    #[arg(long, requires = "fit")]
    pub(crate) force: bool,

    /// --fit runs the script to its end on the phantom before it proposes a plan.
    #[arg(long, requires = "fit")]
    pub(crate) until_exit: bool,

    /// Where the script's writes go during --fit: `layer`: into a private layer that plimsoll deletes;
    /// `through`: into your files.
    #[arg(long, value_name = "layer|through", requires = "fit")]
    pub(crate) writes: Option<Writes>,

    /// The most disk space for that layer. Default: 20 % of the free space.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "fit")]
    pub(crate) writes_max: Option<Bytes>,

    /// Give the script no network during --fit.
    #[arg(long, requires = "fit")]
    pub(crate) offline: bool,

    /// --fit uses only these remedies.
    #[arg(long, value_name = "REMEDY,...", value_delimiter = ',', requires = "fit")]
    pub(crate) allow: Vec<String>,

    /// --fit does not use these remedies.
    #[arg(long, value_name = "REMEDY,...", value_delimiter = ',', requires = "fit")]
    pub(crate) forbid: Vec<String>,

    /// --fit uses no remedy that changes the numbers by more than rounding.
    #[arg(long, requires = "fit")]
    pub(crate) keep_numerics: bool,

    /// When memory runs out, repeat that part of the step with less memory and continue; only where the
    /// numbers stay the same.
    #[arg(long)]
    pub(crate) survive: bool,

    /// Measure step times on the device, and report them at the end.
    #[arg(long)]
    pub(crate) measure: bool,

    /// Watch the run and warn once of each: memory that grows (with the step in which it runs out), more
    /// reserved memory than planned, other processes that use the free memory, fragmentation.
    #[arg(long)]
    pub(crate) watch: bool,

    /// The name of the run in `plimsoll watch` and in alarms. Default: the script's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Option<String>,

    /// The most memory that PyTorch should reserve: a plan, the JSON of `plimsoll predict`, or a size.
    /// Default: the plan of --plan.
    #[arg(long, value_name = "FILE|SIZE")]
    pub(crate) expect: Option<Expectation>,

    #[command(flatten)]
    pub(crate) to: AlarmArgs,

    /// Write the result of the run as JSON: peaks, step times, how it ended.
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,

    /// Save the recording as one zip file; with several ranks, one file each, as in `run-rank3.zip`. Without
    /// this option, plimsoll saves a recording only when memory runs out.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// How many of the last allocations and frees the recorder stores.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = whole(0..=u64::MAX, 200_000))]
    pub(crate) events: u64,

    /// The steps to record with stacks: all, none, or a sample that costs less than 1 % of a step.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = WithStacks::Sampled)]
    pub(crate) stacks: WithStacks,

    /// Run the script even without a GPU.
    #[arg(long)]
    pub(crate) no_gpu: bool,

    /// The command as you would type it.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Which steps of a run are recorded with stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WithStacks {
    /// Every step.
    All,
    /// Every step if that is free; otherwise a sample of the steps.
    Sampled,
    /// No step: sizes and order only.
    None,
}

impl WithStacks {
    /// The word, as it is typed and as the agent knows it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            WithStacks::All => "all",
            WithStacks::Sampled => "sampled",
            WithStacks::None => "none",
        }
    }
}

const RUN_EXAMPLES: &str = "\
Examples:
  plimsoll run --plan plan.toml -- python train.py
  plimsoll run --fit -- python train.py        for the memory that is free now
  plimsoll run --watch --on-alarm ./tell.sh -- python train.py
  plimsoll run --measure --json run.json -- python train.py
  plimsoll run --record run.zip -- torchrun --nproc-per-node 2 train.py
  torchrun --nproc-per-node 2 --no-python \\
      plimsoll run --record run.zip -- python train.py

Exit codes:
  the script's own; 128 and the number of a signal that ended it
  1  with --fit, when no plan fits the free memory
  2  it was not started: no GPU, a plan that cannot be read, no such command

Environment:
  PLIMSOLL_PYTHON  the Python that runs a script given without one
  PLIMSOLL_CACHE   the folder for plimsoll's files, instead of ~/.cache/plimsoll";

#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// The card that the phantom imitates, if the catalogue does not have the device.
    #[arg(long, value_name = "CARD|FILE.toml")]
    pub(crate) gpu: Option<String>,

    /// The number of training steps that both run.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(1..=u32::MAX, 3))]
    pub(crate) steps: u32,

    #[command(flatten)]
    pub(crate) world: WorldArgs,

    /// Write one file for a bug report: sizes and order of requests, versions, the card. No data, no code, no names.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Add the file and the line of the first difference to --report.
    #[arg(long, requires = "report")]
    pub(crate) with_lines: bool,

    /// Write the answer as JSON; with `-`, to standard output.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,

    /// The command as you would type it.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  plimsoll verify -- python train.py
  plimsoll verify --steps 10 --report verify.json -- python train.py -b 8

Both runs write into a private layer: none of your checkpoints change.

Exit codes:
  0  within 1 %: allocated, reserved, and GPU memory of the process
  1  further off
  2  unknown: no GPU, an unknown card, the script failed";

#[derive(Debug, Args)]
#[command(after_help = CALIBRATE_EXAMPLES)]
pub(crate) struct CalibrateArgs {
    /// The file to write the card to. Default: a file in the folder of your own cards.
    #[arg(long, short, value_name = "FILE.toml")]
    pub(crate) output: Option<PathBuf>,

    /// The name of the card, if the catalogue does not have it.
    #[arg(long, value_name = "NAME")]
    pub(crate) id: Option<String>,

    /// Also save every measured number, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) raw: Option<PathBuf>,
}

const CALIBRATE_EXAMPLES: &str = "\
Examples:
  plimsoll calibrate                     under two minutes; every command
                                         knows the card from then on
  plimsoll calibrate -o my-card.toml     to share it, or for --gpu my-card.toml

Exit codes: 0 measured, 2 not.

Environment:
  PLIMSOLL_CARDS   the folder of your cards, not ~/.config/plimsoll/cards
  PLIMSOLL_PYTHON  the Python whose PyTorch is measured";

#[derive(Debug, Args)]
pub(crate) struct CardsArgs {
    /// Show one card, and where its numbers come from.
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

/// Which of two plans that add no time comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preferred {
    /// The one that changes the numbers less.
    #[default]
    Numbers,
    /// The faster one.
    Speed,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Terminals are 80 columns wide, and a line of an example that is wrapped is no example.
    #[test]
    fn help_fits_80_columns() {
        let mut whole = Cli::command();
        whole.build();
        let mut too_long = Vec::new();
        for command in std::iter::once(&whole).chain(whole.get_subcommands()) {
            let mut narrow = command.clone().term_width(80);
            let help = narrow.render_long_help().to_string();
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().chain(examples.lines()) {
                if 80 < line.chars().count() {
                    too_long.push(format!("{}: {line}", command.get_name()));
                }
            }
        }
        assert!(too_long.is_empty(), "{}", too_long.join("\n"));
    }

    /// What strangers chose is tried on each command (`tests/cli/strangers.rs`).
    #[test]
    fn the_commands_that_are_tried_with_names_of_strangers_are_all() {
        let test = include_str!("../../tests/cli/strangers.rs");
        let (_, rest) = test.split_once("const COMMANDS: ").unwrap();
        let (_, rest) = rest.split_once("] = [").unwrap();
        let (list, _) = rest.split_once("];").unwrap();
        let mut tried: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        let mut whole = Cli::command();
        whole.build();
        let mut all: Vec<&str> = whole.get_subcommands().map(clap::Command::get_name).collect();
        tried.sort_unstable();
        all.sort_unstable();
        assert_eq!(tried, all);
    }

    /// Each command's row of the table has the codes that its help has, and no others.
    #[test]
    fn the_table_of_exit_codes_is_that_of_the_help() {
        let page = include_str!("../../../../docs/exit-codes.md");
        let mut whole = Cli::command();
        whole.build();
        for command in whole.get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let Some((_, codes)) = help.split_once("Exit codes:") else { continue };
            let codes = codes.split("\n\n").next().unwrap_or_default();
            let starts_with_code = |it: &&str| it.starts_with(|it: char| it.is_ascii_digit());
            let of_help: Vec<&str> = codes
                .split(['\n', ','])
                .map(str::trim)
                .filter(starts_with_code)
                .map(|it| &it[..1])
                .filter(|it| "012".contains(*it))
                .collect();
            let row = page.lines().find(|it| it.starts_with(&format!("| `{name}` |")));
            let row: Vec<&str> =
                row.unwrap_or_else(|| panic!("{name} is not in the table")).split('|').collect();
            let of_page: Vec<&str> = ["0", "1", "2"]
                .into_iter()
                .zip(&row[2..])
                .filter(|(_, it)| !it.trim().is_empty())
                .map(|it| it.0)
                .collect();
            let of_script = help.contains("the script's own");
            assert!(of_script || of_help == of_page, "{name}: {of_help:?} {of_page:?}");
            assert_eq!(of_script, row[2].contains("the script's"), "{name}");
        }
    }
}
