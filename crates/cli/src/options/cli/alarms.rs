//! The grammar of what watches runs: where alarms go, and `watch`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

/// Where alarms go, beside the terminal.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AlarmArgs {
    /// Write each alarm into this file too, one JSON object a line, behind what is there.
    #[arg(long, value_name = "FILE")]
    pub(crate) alarms: Option<PathBuf>,

    /// Run this command of the shell at each alarm, beside the training: the alarm is JSON on its standard input, and its
    /// parts are variables (PLIMSOLL_ALARM_CODE, PLIMSOLL_ALARM_TEXT, ...).
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_alarm: Option<OsString>,

    /// Send each alarm as JSON to this address, by POST.
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
    /// The process, or what the run is called. Of a distributed job that is called so, all ranks.
    #[arg(value_name = "PID|LABEL")]
    pub(crate) target: String,

    #[command(flatten)]
    pub(crate) to: AlarmArgs,

    /// Print alarms as JSON, one a line, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,

    /// The folder in which a process that asked for a watch itself (`plimsoll.watch()`) says what it sees.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) session: Option<PathBuf>,

    /// With --session: alarms from before are told already. Seconds since 1970.
    #[arg(long, value_name = "SECONDS", hide = true, default_value_t = 0.0)]
    pub(crate) since: f64,
}

const WATCH_EXAMPLES: &str = "\
Examples:
  plimsoll watch train.py                  a run that was started with --watch
  plimsoll watch 4711 --webhook https://example.org/alarms
  plimsoll watch night --json | while read -r alarm; do ...; done

Exit codes:
  0  the run has ended, and there was no alarm
  1  it has ended, and there was one
  2  no such run is watched";
