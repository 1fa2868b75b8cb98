//! The grammar of the commands that take a recording, whoever made it.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};
use plimsoll_core::{explanation::At, replay::TorchVersion, units::Bytes};

use crate::options::{number::whole, size::size};

#[derive(Debug, Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// A memory snapshot (`torch.cuda.memory._dump_snapshot`), plain or packed with xz, zstd or gzip, or a
    /// recording of `plimsoll predict --record`, or a folder of ranks. `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The rank to replay, where FILE has several. Default: the one with the most requests.
    #[arg(long, value_name = "N", value_parser = whole(0..=u32::MAX, 0))]
    pub(crate) rank: Option<u32>,

    /// Replay on a card with this memory, as in `24GiB`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) capacity: Option<Bytes>,

    /// The part of --capacity outside PyTorch's allocator: CUDA context, NCCL, other processes.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "0", requires = "capacity")]
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

    /// The device to replay. Default: the device with the most events.
    #[arg(long, value_name = "N", value_parser = whole(0..=usize::MAX, 0))]
    pub(crate) device: Option<usize>,

    /// Write the result as JSON; with `-`, to standard output.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  plimsoll replay snapshot.pickle            compare it with the model
  plimsoll replay snapshot.pickle --capacity 24GiB --outside 600MiB
  plimsoll replay run.zip --alloc-conf expandable_segments:True
  plimsoll replay snapshot.pickle.xz --capacity 24GiB --sweep
  plimsoll replay ranks/ --rank 3 --capacity 80GiB

Exit codes:
  0  it fits
  1  it runs out of memory
  2  the file or a setting could not be read";

fn share(given: &str) -> Result<f64, String> {
    let share = given.parse::<f64>().ok().filter(|it| 0.0 < *it && *it <= 1.0);
    share.ok_or_else(|| "expected a number above 0 and at most 1, as in `0.9`".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// Snapshots, recordings, logs or profiler traces, compressed or not, or folders of them; several are
    /// compared as ranks. Default, and `-`: standard input.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Write the findings as JSON; with `-`, to standard output, instead of the report.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,

    /// Print all of the report, also where it is longer than the terminal.
    #[arg(long)]
    pub(crate) full: bool,

    /// Print the manual page of a kind of finding, such as leak/graph-retained.
    #[arg(long, value_name = "CODE", conflicts_with_all = ["files", "list"])]
    pub(crate) code: Option<String>,

    /// List the kinds of findings.
    #[arg(long, conflicts_with = "files")]
    pub(crate) list: bool,

    /// Open the recordings in the browser afterwards, as `plimsoll view` does; Ctrl-C ends the viewer.
    #[arg(long, requires = "files")]
    pub(crate) open: bool,

    /// Then run `plimsoll fit` with the command after `--`, for the card and the memory that the log or the
    /// recording names.
    /// You give the command: plimsoll never runs a command from a log.
    #[arg(long, conflicts_with_all = ["open", "code", "list"])]
    pub(crate) fix: bool,

    /// With --fix: the command as you would type it.
    #[arg(last = true, value_name = "COMMAND", requires = "fix")]
    pub(crate) command: Vec<OsString>,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  plimsoll explain snapshot.pickle     torch.cuda.memory._dump_snapshot(...)
  plimsoll explain train.log           find every out-of-memory error in a log
  python train.py 2>&1 | plimsoll explain
  plimsoll explain train.log --fix -- python train.py     and make it fit
  plimsoll explain run.zip             what `predict --record` wrote
  plimsoll explain rank*.pickle.xz     ranks beside each other
  plimsoll explain --code leak/graph-retained             what a finding means

Exit codes:
  0  explained
  1  read, but it has nothing about memory
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

    /// Write the differences as JSON; with `-`, to standard output, instead of the table.
    #[arg(long, value_name = "PATH|-")]
    pub(crate) json: Option<PathBuf>,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  plimsoll diff before.pickle after.pickle       what grew at the peak, by line
  plimsoll diff run.zip --steps 3..4             from one step to the next
  plimsoll diff run.zip@after:2 run.zip@after:9  what stays allocated
  plimsoll diff predicted.zip real.pickle        a prediction and the real run
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

    /// The targets, separated by commas.
    #[arg(long, value_enum, value_name = "TARGET", required = true, value_delimiter = ',')]
    pub(crate) to: Vec<ExportTarget>,

    /// Where to write; `-` is standard output. Default: a name made from FILE's, in the working folder;
    /// standard output if FILE is standard input.
    #[arg(long, short, value_name = "OUT|-")]
    pub(crate) output: Option<PathBuf>,

    /// The moment that a flame graph shows: peak, oom, end, event:N, step:N (its peak), after:N (what a
    /// step keeps).
    #[arg(long, value_name = "MOMENT", default_value = "peak")]
    pub(crate) at: At,

    /// The device. Default: all devices, or for a flame graph the device with the highest peak.
    #[arg(long, value_name = "N", value_parser = whole(0..=usize::MAX, 0))]
    pub(crate) device: Option<usize>,

    /// The rank, where a recording has several processes.
    #[arg(long, value_name = "N", value_parser = whole(0..=u32::MAX, 0))]
    pub(crate) rank: Option<u32>,

    /// Replace existing files.
    #[arg(long)]
    pub(crate) force: bool,
}

/// What a recording can be exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportTarget {
    /// an SVG: memory at a moment, by call stack
    Flamegraph,
    /// one page for a browser, without a server: the content of `plimsoll view`, with less detail
    Html,
    /// a folder of Parquet files for DuckDB, pandas, Spark: events, blocks, stacks, segments
    Parquet,
    /// a trace for ui.perfetto.dev: memory over time with steps and phases
    Perfetto,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  plimsoll export snapshot.pickle --to flamegraph      the peak, as an SVG
  plimsoll export run.zip --to flamegraph --at step:3 -o step3.svg
  plimsoll export snapshot.pickle --to html            a page to send
  plimsoll export snapshot.pickle --to parquet         a folder of tables
  plimsoll export run.zip --to perfetto,flamegraph     for ui.perfetto.dev
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
    #[cfg_attr(feature = "phantom", arg(value_name = "FILE", required_unless_present = "live"))]
    #[cfg_attr(not(feature = "phantom"), arg(value_name = "FILE", required = true))]
    pub(crate) files: Vec<PathBuf>,

    /// Follow a run of `plimsoll run` or `predict` in another terminal.
    #[cfg(feature = "phantom")]
    #[arg(long, conflicts_with_all = ["files", "html"])]
    pub(crate) live: bool,

    /// The port on 127.0.0.1 to listen on; 0 is any free port.
    #[arg(long, value_name = "PORT", default_value_t = 0, value_parser = port)]
    pub(crate) port: u16,

    /// The secret in the address, instead of a new one: together with --port the same address
    /// works tomorrow.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub(crate) token: Option<String>,

    /// Print the address and start no browser.
    #[arg(long)]
    pub(crate) no_open: bool,

    /// Write the page as one file that opens without a server, with the whole recording; with `-`, to
    /// standard output.
    #[arg(long, value_name = "PATH|-", conflicts_with_all = ["port", "token", "no_open"])]
    pub(crate) html: Option<PathBuf>,

    /// With --html: replace an existing file.
    #[arg(long, requires = "html")]
    pub(crate) force: bool,
}

fn port(given: &str) -> Result<u16, String> {
    given.parse().map_err(|_| "expected a port from 0 to 65535, as in `8000`".to_owned())
}

/// Shorter ones can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// A secret for an address, long enough that nobody can try all.
pub(crate) fn token(given: &str) -> Result<String, String> {
    let is_plain = given.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it));
    if SHORTEST_TOKEN <= given.len() && given.len() <= 200 && is_plain {
        return Ok(given.to_owned());
    }
    Err(format!(
        "expected at least {SHORTEST_TOKEN} letters, digits, `-` or `_`, as `openssl rand -hex 16` makes them"
    ))
}

const VIEW_EXAMPLES: &str = "\
Examples:
  plimsoll view snapshot.pickle                  in the browser; Ctrl-C ends it
  plimsoll view rank*.pickle.xz                  ranks beside each other
  plimsoll view run.zip --no-open --port 8000    print the address only
  plimsoll view run.zip --port 8000 --token $SECRET   the same address tomorrow
  plimsoll view snapshot.pickle --html peak.html one file to share
  plimsoll view --live                           follow a running script

Only this machine can open the page, at an address with a secret; nothing
leaves the machine. On a machine without a display, forward the port:
  ssh -N -L 8000:127.0.0.1:8000 machine

Exit codes:
  0  Ctrl-C ended it, or the file was written
  2  it could not be read, or not to its end (what was read is shown),
     or there is no memory in it";
