//! The grammar of the commands that look at this machine's GPUs as they are.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use crate::options::{cli::recordings::token, number::whole};

/// Seconds between two updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Duration);

#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub(crate) struct TopArgs {
    /// Print the page once, as text, and end; also the default without a terminal.
    #[arg(long, conflicts_with = "json")]
    pub(crate) once: bool,

    /// Print the present state of the whole machine as JSON, and end.
    #[arg(long, conflicts_with_all = ["sort", "filter"])]
    pub(crate) json: bool,

    /// Update after so many seconds.
    #[arg(long, short = 'n', value_name = "SECONDS", default_value = "2", value_parser = interval)]
    pub(crate) interval: Interval,

    /// By what processes are sorted: gpu, pid, user, name, held, allocated, reserved, step, growth, or end (who
    /// runs out soonest).
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t, hide_possible_values = true)]
    pub(crate) sort: Sort,

    /// Show only processes with this text in their name, user, command or id.
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
}

/// By what the lines are sorted; sizes begin with the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// by GPU, then by process
    #[default]
    Gpu,
    Pid,
    User,
    Name,
    Held,
    Allocated,
    Reserved,
    Step,
    Growth,
    /// those first that run out soonest
    End,
}

const TOP_EXAMPLES: &str = "\
Examples:
  plimsoll top                         the page; ? shows the keys, q ends it
  plimsoll top --once --sort end       who runs out of memory first?
  plimsoll top --json | jq '.processes[] | {pid, user, name}'
  watch -n 10 plimsoll top --once --filter train.py

Processes under `plimsoll run`, or that call plimsoll.watch(), also show
what is in their memory, how it grows, and when the card is full.

Exit codes:
  0  shown
  2  there is neither a GPU nor a plimsoll run

Environment:
  PLIMSOLL_RUNNING  the folder in which runs write their state";

fn address(given: &str) -> Result<SocketAddr, String> {
    let expected =
        "expected an address and a port, as in `127.0.0.1:9519`, `0.0.0.0:9519` or `[::]:9519`";
    given.parse().map_err(|_| expected.to_owned())
}

fn interval(given: &str) -> Result<Interval, String> {
    let seconds = given.parse::<f64>().ok().filter(|it| (0.1..=3600.0).contains(it));
    let seconds = seconds
        .ok_or_else(|| "expected seconds from 0.1 to 3600, as in `2` or `0.5`".to_owned())?;
    Ok(Interval(Duration::from_secs_f64(seconds)))
}

#[derive(Debug, Args)]
#[command(after_help = EXPORTER_EXAMPLES)]
pub(crate) struct ExporterArgs {
    /// The address to listen on. Addresses other than 127.0.0.1 and [::1] need a token.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9519", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// The secret that requests must send: `Authorization: Bearer TOKEN`. Other users of this machine see it
    /// in the list of processes; --token-file hides it from them.
    #[arg(long, value_name = "TOKEN", value_parser = token, conflicts_with = "token_file")]
    pub(crate) token: Option<String>,

    /// The file that contains the secret, on one line.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// The most series to export. Beyond that, the processes with the least memory have none.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = whole(0..=usize::MAX, 5000))]
    pub(crate) max_series: usize,
}

const EXPORTER_EXAMPLES: &str = "\
Examples:
  plimsoll exporter                       http://127.0.0.1:9519/metrics
  plimsoll exporter --listen 0.0.0.0:9519 --token-file /etc/plimsoll/token
  curl -s http://127.0.0.1:9519/metrics | grep to_end_seconds

As root it sees the runs of all users, otherwise those of its own user.

Exit codes:
  0  ended by Ctrl-C or a signal
  2  it could not listen there, or a file of the options cannot be read

Environment:
  PLIMSOLL_RUNNING  the folder in which runs write their state";
