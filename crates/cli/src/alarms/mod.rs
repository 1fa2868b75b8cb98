//! Where alarms of a watched run go: a file, a command. What an alarm says is core's.

use std::{
    env,
    ffi::OsString,
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::Value;

use crate::{contract, reason::reason};

/// How long commands may go on once the run has ended.
const AT_THE_END: Duration = Duration::from_secs(10);
const A_MOMENT: Duration = Duration::from_millis(20);

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
}

impl AlarmArgs {
    /// Whether they go anywhere.
    pub(crate) fn is_given(&self) -> bool {
        self.alarms.is_some() || self.on_alarm.is_some()
    }
}

/// Passes alarms on.
#[derive(Debug)]
pub(crate) struct Alarms {
    file: Option<(PathBuf, File)>,
    command: Option<OsString>,
    running: Vec<Child>,
}

impl Alarms {
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(crate) fn open(args: &AlarmArgs) -> anyhow::Result<Alarms> {
        let open = |path: &PathBuf| match OpenOptions::new().append(true).create(true).open(path) {
            Ok(file) => Ok((path.clone(), file)),
            Err(error) => Err(anyhow::anyhow!(
                "cannot write alarms into {}: {}",
                path.display(),
                reason(&error)
            )),
        };
        let file = args.alarms.as_ref().map(open).transpose()?;
        Ok(Alarms { file, command: args.on_alarm.clone(), running: Vec::new() })
    }

    /// Passes one on. The sentences are what went wrong with that.
    pub(crate) fn pass_on(&mut self, alarm: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        let line = format!("{alarm}\n");
        if let Some((path, file)) = &mut self.file
            && let Err(error) = file.write_all(line.as_bytes())
        {
            wrong.push(format!(
                "cannot write an alarm into {}: {}",
                path.display(),
                reason(&error)
            ));
        }
        if let Some(command) = &self.command {
            match start(command, alarm, line) {
                Ok(child) => self.running.push(child),
                Err(error) => {
                    wrong.push(format!("cannot run the command of --on-alarm: {}", reason(&error)))
                }
            }
        }
        self.running.retain_mut(|it| matches!(it.try_wait(), Ok(None)));
        wrong
    }

    /// Waits a little for commands that are still running.
    pub(crate) fn finish(mut self) {
        let until = Instant::now() + AT_THE_END;
        while Instant::now() < until {
            self.running.retain_mut(|it| matches!(it.try_wait(), Ok(None)));
            if self.running.is_empty() {
                return;
            }
            thread::sleep(A_MOMENT);
        }
    }
}

fn start(command: &OsString, alarm: &Value, line: String) -> std::io::Result<Child> {
    let mut process = Command::new("sh");
    process.arg("-c").arg(command).stdin(Stdio::piped());
    // The library that stands in for a device or looks at writes is the script's.
    for (name, _) in env::vars_os().filter(|(name, _)| name == "LD_PRELOAD") {
        process.env_remove(name);
    }
    for (key, value) in alarm.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        process.env(format!("{}ALARM_{}", contract::OURS, key.to_uppercase()), value);
    }
    let mut child = process.spawn()?;
    // One that does not read is left to that: its pipe takes more than an alarm.
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(line.as_bytes());
    }
    Ok(child)
}

/// The name of a script's file, which a run is called by if nobody says another.
pub(crate) fn label(command: &[OsString]) -> String {
    let is_script = |it: &&OsString| Path::new(it).extension().is_some_and(|it| it == "py");
    let named = command.iter().find(is_script).or(command.first());
    let name = named.and_then(|it| Path::new(it).file_name());
    name.map_or_else(String::new, |it| it.to_string_lossy().into_owned())
}
