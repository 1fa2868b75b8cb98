//! Where alarms go beside the terminal: a file, a command, an address.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;
use ureq::Agent;

use crate::{alarms::client, contract, files::reason::reason, options::cli::AlarmArgs, output};

/// How long commands and addresses may take once the run has ended.
const AT_THE_END: Duration = Duration::from_secs(10);
/// Of one try to reach an address.
const PATIENCE: Duration = Duration::from_secs(4);
const A_MOMENT: Duration = Duration::from_millis(20);

/// Passes alarms on.
#[derive(Debug, Default)]
pub(crate) struct Sinks {
    file: Option<(PathBuf, File)>,
    command: Option<OsString>,
    address: Option<(String, Agent)>,
    running: Vec<Child>,
    sending: Vec<JoinHandle<Option<String>>>,
}

impl Sinks {
    /// # Errors
    ///
    /// When the file cannot be written, or the address is none.
    pub(crate) fn open(args: &AlarmArgs) -> anyhow::Result<Sinks> {
        let open = |path: &PathBuf| match OpenOptions::new().append(true).create(true).open(path) {
            Ok(file) => Ok((path.clone(), file)),
            Err(error) => Err(anyhow::anyhow!(
                "cannot write alarms into {}: {}",
                path.display(),
                reason(&error)
            )),
        };
        let file = args.alarms.as_ref().map(open).transpose()?;
        let agent =
            |url: &String| Ok::<_, anyhow::Error>((url.clone(), client::of(url, PATIENCE)?));
        let address = args.webhook.as_ref().map(agent).transpose()?;
        Ok(Sinks { file, command: args.on_alarm.clone(), address, ..Sinks::default() })
    }

    /// Passes one on, and waits for nothing. The sentences are what went wrong with that, or with one before.
    pub(crate) fn pass_on(&mut self, alarm: &Value) -> Vec<String> {
        let mut wrong = self.look();
        let line = output::json(&format!("{alarm}\n")).into_owned();
        if let Some((path, file)) = &mut self.file
            && let Err(error) = file.write_all(line.as_bytes())
        {
            wrong.push(format!(
                "cannot write an alarm into {}: {}",
                path.display(),
                reason(&error)
            ));
        }
        if let Some((url, agent)) = self.address.clone() {
            let body = line.clone();
            self.sending.push(thread::spawn(move || send(&agent, &url, &body)));
        }
        if let Some(command) = &self.command {
            match start(command, alarm, &line) {
                Ok(child) => self.running.push(child),
                Err(error) => {
                    wrong.push(format!("cannot run the command of --on-alarm: {}", reason(&error)))
                }
            }
        }
        wrong
    }

    /// Waits a little for what is still under way. The sentences are what went wrong.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        let until = Instant::now() + AT_THE_END;
        while Instant::now() < until {
            wrong.extend(self.look());
            if self.running.is_empty() && self.sending.is_empty() {
                break;
            }
            thread::sleep(A_MOMENT);
        }
        let given_up = [
            (self.sending.is_empty(), "the address of --webhook did not accept an alarm"),
            (self.running.is_empty(), "the command of --on-alarm did not end"),
        ];
        let late = given_up.iter().filter(|it| !it.0);
        wrong.extend(late.map(|it| format!("{} within 10 s of the run's end", it.1)));
        wrong
    }

    /// Lets go of what has ended.
    fn look(&mut self) -> Vec<String> {
        self.running.retain_mut(|it| matches!(it.try_wait(), Ok(None)));
        let (done, sending) = self.sending.drain(..).partition(JoinHandle::is_finished);
        self.sending = sending;
        let done: Vec<JoinHandle<Option<String>>> = done;
        done.into_iter().filter_map(|it| it.join().ok().flatten()).collect()
    }
}

/// What went wrong, if it did twice.
fn send(agent: &Agent, url: &str, body: &str) -> Option<String> {
    let post = || agent.post(url).content_type("application/json").send(body).map(drop);
    let error = post().or_else(|_| post()).err()?;
    Some(format!("cannot send an alarm to {}: {}", client::host(url), client::said(&error)))
}

fn start(command: &OsStr, alarm: &Value, line: &str) -> io::Result<Child> {
    let mut process = Command::new("sh");
    process.arg("-c").arg(command).stdin(Stdio::piped());
    // A library that stands in for a device is the script's.
    process.env_remove("LD_PRELOAD");
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
