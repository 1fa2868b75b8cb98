//! The grammar of what watches runs: where alarms go, and `watch`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

/// Where alarms go, in addition to the terminal.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AlarmArgs {
    /// Also append each alarm to this file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) alarms: Option<PathBuf>,

    /// Run this shell command at each alarm, while training continues: it gets the alarm as JSON on standard
    /// input, and its parts in variables (PLIMSOLL_ALARM_CODE, PLIMSOLL_ALARM_TEXT, ...).
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_alarm: Option<OsString>,

    /// Send each alarm as JSON to this URL, by POST.
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
}

impl AlarmArgs {
    /// Whether they go anywhere.
    pub(crate) fn is_given(&self) -> bool {
        self.alarms.is_some() || self.on_alarm.is_some() || self.webhook.is_some()
    }
}

#[derive(Debug, Args)]
#[command(after_help = WATCH_EXAMPLES)]
pub(crate) struct WatchArgs {
    /// The process id, or the name of the run; of a distributed job, all ranks.
    #[arg(value_name = "PID|LABEL")]
    pub(crate) target: String,

    #[command(flatten)]
    pub(crate) to: AlarmArgs,

    /// Print only alarms, as JSON, one a line.
    #[arg(long)]
    pub(crate) json: bool,

    /// The folder into which a process that called `plimsoll.watch()` writes its reports.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) session: Option<PathBuf>,

    /// With --session: ignore alarms before this time, in seconds since 1970.
    #[arg(long, value_name = "SECONDS", hide = true, default_value_t = 0.0, value_parser = seconds)]
    pub(crate) since: f64,
}

fn seconds(given: &str) -> Result<f64, String> {
    let seconds = given.parse().ok().filter(|it: &f64| it.is_finite());
    seconds.ok_or_else(|| "expected seconds since 1970, as in `1764403200`".to_owned())
}

const WATCH_EXAMPLES: &str = "\
Examples:
  plimsoll watch train.py                  a run that was started with --watch
  plimsoll watch 4711 --webhook https://example.org/alarms
  plimsoll watch night --json | while read -r alarm; do ...; done

Exit codes:
  0  the run has ended without an alarm
  1  the run has ended, with an alarm
  2  no such run is watched";
