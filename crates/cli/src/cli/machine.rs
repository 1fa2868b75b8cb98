//! The grammar of the commands that look at this machine's GPUs as they are.

use std::time::Duration;

use clap::{Args, ValueEnum};

/// Seconds between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Duration);

#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub(crate) struct TopArgs {
    /// Print the page once, as text, and end. Without a terminal this is so, too.
    #[arg(long, conflicts_with = "json")]
    pub(crate) once: bool,

    /// Print the machine as it is now as JSON, and end.
    #[arg(long)]
    pub(crate) json: bool,

    /// Look again after so many seconds.
    #[arg(long, short = 'n', value_name = "SECONDS", default_value = "2", value_parser = interval)]
    pub(crate) interval: Interval,

    /// By what processes are sorted: gpu, pid, user, name, held, allocated, reserved, step, growth, or end (who
    /// runs out soonest).
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t, hide_possible_values = true)]
    pub(crate) sort: Sort,

    /// Only processes with this text in their name, user, command or id.
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

Processes under `plimsoll run` or with `import plimsoll` also show what is in
their memory, how it grows, and when the card is full.

Exit codes:
  0  shown
  2  there is neither a GPU nor a run that plimsoll watches

Environment:
  PLIMSOLL_RUNNING  the folder in which watched runs say how they are";

fn interval(given: &str) -> Result<Interval, String> {
    let seconds = given.parse::<f64>().ok().filter(|it| (0.1..=3600.0).contains(it));
    let seconds = seconds
        .ok_or_else(|| "expected seconds from 0.1 to 3600, as in `2` or `0.5`".to_owned())?;
    Ok(Interval(Duration::from_secs_f64(seconds)))
}
