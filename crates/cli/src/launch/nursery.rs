//! A Python that has done the script's imports and waits: it forks one child for each run, so that a run costs
//! what the script does and not what its imports take. The other half is `agent/plimsoll_agent/nursery.py`.
//!
//! It serves commands that start a Python interpreter with a script or a module. Anything else (launchers,
//! shells), and a program whose imports already use the GPU, is run as a process of its own each time.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        prctl,
        signal::{Signal, kill},
    },
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{
    End, Ended, ScriptCommand, Signals, Stop, TICK, descendants, environment, oom_kills,
    standstill::Standstill,
};
use crate::{
    cache::{bundle::Bundle, session::Session},
    contract::{self, Setting},
};

/// How often we look for an answer.
const PAUSE: Duration = Duration::from_millis(5);
const SERVE: &str = "from plimsoll_agent.nursery import serve; serve()";

/// A nursery that is ready.
#[derive(Debug)]
pub(crate) struct Nursery {
    process: Child,
    orders: ChildStdin,
    answers: ChildStdout,
    unread: Vec<u8>,
    n_orders: u64,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    /// The script's arguments.
    pub(crate) arguments: &'a [OsString],
    pub(crate) session: &'a Session,
    pub(crate) stop: Stop,
    pub(crate) settings: &'a [Setting],
}

/// What came of waiting.
enum Waited {
    Answer(Value),
    Gone,
    Asked(Signal),
    /// The run had shown enough, and stood still; it was ended.
    GivenUp,
}

impl Nursery {
    /// Starts one for `command`; nothing if the command is not of the kind, or its imports do not allow it.
    /// `session` is the nursery's own, and says what the phantom is.
    pub(crate) fn start(
        command: &ScriptCommand,
        bundle: &Bundle,
        session: &Session,
        signals: &Signals,
    ) -> io::Result<Option<Nursery>> {
        let Some((options, program)) = python_program(command) else { return Ok(None) };
        prctl::set_child_subreaper(true)?;
        let mut process = Command::new(&command.program);
        process
            .args(options)
            .args(["-c", SERVE])
            .envs(environment(bundle, session.path(), Stop::Steady))
            .env(contract::MODE, "nursery")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mask = signals.before();
        // SAFETY: between fork and exec only two system calls are made, on values that were made before.
        unsafe {
            process.pre_exec(move || {
                mask.thread_set_mask()?;
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                Ok(())
            });
        }
        let mut process = process.spawn()?;
        let (Some(mut orders), Some(answers)) = (process.stdin.take(), process.stdout.take())
        else {
            return Ok(None);
        };
        fcntl(&answers, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        if writeln!(orders, "{program}").is_err() {
            let _ = process.kill();
            return Ok(None);
        }
        let mut nursery = Nursery { process, orders, answers, unread: Vec::new(), n_orders: 0 };
        // Imports that take minutes would take them in every run, too.
        match nursery.wait(signals, None)? {
            Waited::Answer(it) if it["ready"] == true => Ok(Some(nursery)),
            Waited::Asked(signal) => {
                // Whoever runs the script without a nursery now has to hear of it.
                kill(Pid::this(), signal)?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Runs the script once. Nothing if the nursery is no more: then the run is to be made some other way.
    pub(crate) fn run(&mut self, order: Order<'_>, signals: &Signals) -> io::Result<Option<Ended>> {
        self.n_orders += 1;
        let started = Instant::now();
        let before = oom_kills();
        let text = |it: &OsStr| it.to_str().map(str::to_owned);
        let Some(arguments) = order.arguments.iter().map(|it| text(it)).collect::<Option<Vec<_>>>()
        else {
            return Ok(None);
        };
        let mut variables = vec![(contract::STOP, order.stop.to_string())];
        for (name, value) in order.settings {
            let Some(value) = text(value) else { return Ok(None) };
            variables.push((name, value));
        }
        variables.push((contract::MODE, "predict".to_owned()));
        let line = json!({
            "id": self.n_orders,
            "session": text(order.session.path().as_os_str()),
            "arguments": arguments,
            "environment": variables.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "log": text(order.session.output().as_os_str()),
        });
        if writeln!(self.orders, "{line}").is_err() {
            return Ok(None);
        }
        let (end, interrupted) = match self.wait(signals, Some(order.session))? {
            Waited::Gone => return Ok(None),
            Waited::Asked(signal) => (End::Signal(signal as i32), Some(signal)),
            Waited::GivenUp => (End::Code(0), None),
            Waited::Answer(answer) => {
                let number = |key: &str| i32::try_from(answer[key].as_i64()?).ok();
                let signal = number("signal").map(End::Signal);
                (signal.or(number("code").map(End::Code)).unwrap_or(End::Code(1)), None)
            }
        };
        Ok(Some(Ended {
            end,
            seconds: started.elapsed().as_secs_f64(),
            interrupted,
            n_left_running: 0,
            host_ran_out: before < oom_kills(),
        }))
    }

    /// Waits for an answer, and ends what stands still in the run of `session`.
    fn wait(&mut self, signals: &Signals, session: Option<&Session>) -> io::Result<Waited> {
        let mut standstill = Standstill::default();
        let mut looked = Instant::now();
        let mut given_up = false;
        loop {
            if let Some(end) = self.unread.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(match serde_json::from_slice(&line) {
                    Ok(_) if given_up => Waited::GivenUp,
                    Ok(answer) => Waited::Answer(answer),
                    Err(_) => Waited::Gone,
                });
            }
            if let Some(session) = session.filter(|_| TICK <= looked.elapsed()) {
                looked = Instant::now();
                if standstill.is_here(session) {
                    given_up = true;
                    self.end_the_run();
                }
            }
            let mut some = [0; 4096];
            match self.answers.read(&mut some) {
                Ok(0) => return Ok(Waited::Gone),
                Ok(n) => self.unread.extend_from_slice(&some[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match signals.next(PAUSE)? {
                        Some(it) if it.signal != Signal::SIGCHLD => {
                            return Ok(Waited::Asked(it.signal));
                        }
                        _ => (),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Nursery {
    /// Ends all that the run has started; the nursery itself goes on.
    fn end_the_run(&self) {
        let own = i32::try_from(self.process.id()).ok().map(Pid::from_raw);
        for pid in descendants::running() {
            if Some(pid) != own {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // With its input at an end it ends its children and itself; whoever stays is ended.
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.process.wait();
        let _ = descendants::end_all(false);
    }
}

/// Python's own options, and what it runs, as the nursery wants to be told.
pub(crate) fn python_program(command: &ScriptCommand) -> Option<(Vec<&OsStr>, Value)> {
    if !command.is_python() {
        return None;
    }
    let (mut options, script) = command.python_words();
    if let Some(script) = script {
        let path = std::path::absolute(script).ok()?;
        let program = json!({ "script": path.to_str()?, "name": script.to_str()? });
        return Some((options, program));
    }
    let module = match options.pop()?.to_str()? {
        "-m" => command.script_arguments().0?.to_str()?,
        joined => joined.strip_prefix("-m")?,
    };
    Some((options, json!({ "module": module })))
}

impl ScriptCommand {
    /// The word after `-m`, if there is one, and the arguments of the script or module.
    pub(crate) fn script_arguments(&self) -> (Option<&Path>, &[OsString]) {
        let (options, script) = self.python_words();
        let n_values = options
            .iter()
            .filter(|it| matches!(it.to_str(), Some("-W" | "-X" | "--check-hash-based-pycs")))
            .count();
        let after = options.len() + n_values;
        let has_word = script.is_some() || options.last().is_some_and(|it| *it == "-m");
        let word = self.arguments.get(after).filter(|_| has_word).map(Path::new);
        let rest = self.arguments.get(after + usize::from(has_word)..).unwrap_or_default();
        (word, rest)
    }
}
