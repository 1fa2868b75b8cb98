//! A Python that has done the script's imports and waits: it forks one child for each run, so that a run costs
//! what the script does and not what its imports take. The other half is `agent/plimsoll_agent/nursery.py`.
//!
//! It lives in a layer of its own. Each child goes into another one before it does anything: then it sees the files as they
//! are, and not what the imports or another child wrote.
//!
//! It serves commands that start a Python interpreter with a script or a module. Anything else (launchers,
//! shells), and a program whose imports already use the GPU, is run as a process of its own each time.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    io::{self, IoSlice, Read as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        prctl,
        signal::{Signal, kill},
        socket::{ControlMessage, MsgFlags, sendmsg},
    },
    unistd::Pid,
};
use plimsoll_writes::Layer;
use serde_json::{Value, json};

use super::{
    End, Ended, ScriptCommand, Signals, Stop, TICK, Variable,
    descendants::{self, Spared},
    end_of, environment, helper, oom_kills,
    room::Room,
    standstill::{Settled, Standstill},
};
use crate::{
    cache::{bundle::Bundle, session::Session},
    contract::{self, Setting},
    engine::python,
};

/// How often we look for an answer.
const PAUSE: Duration = Duration::from_millis(5);
/// Processes that Inductor starts to compile kernels in. Each child would start its own, which import torch, for a few kernels.
const COMPILE_THREADS: &str = "TORCHINDUCTOR_COMPILE_THREADS";
const SERVE: &str = "from plimsoll_agent.nursery import serve; serve()";

/// A nursery that is ready.
#[derive(Debug)]
pub(crate) struct Nursery {
    process: Child,
    orders: UnixStream,
    answers: ChildStdout,
    unread: Vec<u8>,
    n_orders: u64,
    /// Runs that ended before anybody waited for them.
    ended: BTreeMap<u64, Value>,
    /// Runs that are on their way.
    under_way: BTreeSet<u64>,
    /// Runs that were ended with another one that stood still: they say nothing.
    lost: BTreeSet<u64>,
    /// The most memory of the host that a run took.
    most_memory: u64,
    /// The program's imports are the first thing that it does: what is forked is as a process of its own would be.
    imports_first: bool,
    /// The program seems to use `torch.compile`.
    speaks_of_compile: bool,
    /// Who helps with its layer.
    spared: Spared,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    /// The script's arguments.
    pub(crate) arguments: &'a [OsString],
    /// What stands before the command.
    pub(crate) environment: &'a [Variable],
    pub(crate) session: &'a Session,
    /// What it writes goes into this.
    pub(crate) layer: Option<&'a Layer>,
    pub(crate) stop: Stop,
    pub(crate) settings: &'a [Setting],
}

/// A run that is on its way.
#[derive(Debug)]
pub(crate) struct Begun {
    number: u64,
    /// Others were on their way when it began.
    had_company: bool,
    started: Instant,
    oom_kills: Option<u64>,
}

/// Which run ended.
pub(crate) enum Finished {
    /// The one that was waited for.
    This(Ended),
    /// Another one.
    Other,
}

/// What came of waiting.
enum Waited {
    Answer(Value),
    /// There was an answer about another run.
    Other,
    Gone,
    Asked(Signal),
    /// The run had no business but to end, and stood still; it was ended.
    GivenUp(Settled),
    /// It wrote more than it may.
    NoRoom,
}

impl Nursery {
    /// Starts one for `command`; nothing if the command is not of the kind, or its imports do not allow it.
    /// `session` is the nursery's own, and says what the phantom is; and so is `layer`.
    pub(crate) fn start(
        command: &ScriptCommand,
        bundle: &Bundle,
        session: &Session,
        layer: Option<&Layer>,
        signals: &Signals,
    ) -> io::Result<Option<Nursery>> {
        let Some((options, program)) = python_program(command) else { return Ok(None) };
        prctl::set_child_subreaper(true)?;
        let (orders, theirs) = UnixStream::pair()?;
        let mut prepared = Command::new(&command.program);
        prepared
            .args(options)
            .arg("-c")
            .arg(python::ours(SERVE))
            .envs(command.environment.iter().map(|it| (&it.0, &it.1)))
            .envs(environment(command, bundle, session.path(), layer, Stop::Steady))
            .env(contract::MODE, "nursery")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if command.variable(COMPILE_THREADS).is_none() {
            prepared.env(COMPILE_THREADS, "1");
        }
        if let Some(layer) = layer {
            layer.usher(&mut prepared)?;
        }
        let mask = signals.before();
        // SAFETY: between fork and exec only two system calls are made, on values that were made before.
        unsafe {
            prepared.pre_exec(move || {
                mask.thread_set_mask()?;
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                Ok(())
            });
        }
        let mut process = prepared.spawn()?;
        // What it has is not ours to keep open: it would not see that we are gone.
        drop(prepared);
        let Some(answers) = process.stdout.take() else { return Ok(None) };
        fcntl(&answers, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        if send(&orders, &program, None).is_err() {
            let _ = process.kill();
            return Ok(None);
        }
        let spared = Spared { helper: helper(layer), nursery: None };
        let (unread, n_orders) = (Vec::new(), 0);
        let (ended, under_way, lost) = Default::default();
        let mut nursery = Nursery {
            process,
            orders,
            answers,
            unread,
            n_orders,
            ended,
            under_way,
            lost,
            most_memory: 0,
            imports_first: false,
            speaks_of_compile: false,
            spared,
        };
        // Imports that take minutes would take them in every run, too.
        match nursery.wait(signals, &mut Room::of(layer), 0, None, false)? {
            Waited::Answer(it) if it["ready"] == true => {
                nursery.imports_first = it["imports_first"] == true;
                nursery.speaks_of_compile = it["speaks_of_compile"] == true;
                Ok(Some(nursery))
            }
            Waited::Asked(signal) => {
                // Whoever runs the script without a nursery now has to hear of it.
                kill(Pid::this(), signal)?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Begins one run of the script. Nothing if the nursery is no more: then the run is to be made some other way.
    pub(crate) fn begin(&mut self, order: Order<'_>) -> Option<Begun> {
        self.n_orders += 1;
        let started = Instant::now();
        let oom_kills = oom_kills();
        let text = |it: &OsStr| it.to_str().map(str::to_owned);
        let arguments = order.arguments.iter().map(|it| text(it)).collect::<Option<Vec<_>>>()?;
        let mut variables = Vec::new();
        // What the nursery was started with in part: ours stands before the user's there.
        let joined = ["LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PYTHONPATH"];
        for (name, value) in order.environment {
            let (name, value) = (name.to_str()?, text(value)?);
            if !joined.contains(&name) {
                variables.push((name, value));
            }
        }
        variables.push((contract::STOP, order.stop.to_string()));
        for (name, value) in order.settings {
            variables.push((*name, text(value)?));
        }
        variables.push((contract::MODE, "predict".to_owned()));
        let line = json!({
            "id": self.n_orders,
            "session": text(order.session.path().as_os_str()),
            "arguments": arguments,
            "environment": variables.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "log": text(order.session.output().as_os_str()),
        });
        send(&self.orders, &line, order.layer).ok()?;
        let had_company = 0 < self.n_under_way();
        self.under_way.insert(self.n_orders);
        Some(Begun { number: self.n_orders, had_company, started, oom_kills })
    }

    /// How many runs are on their way that have not ended, as far as we have heard.
    pub(crate) fn n_under_way(&mut self) -> usize {
        while let Ok(true) = self.reads() {}
        while let Some(answer) = self.next_answer() {
            self.takes_note(answer);
        }
        self.under_way.len()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().map(Pid::from_raw)
    }

    /// Whether other runs were on their way while this one was; asked when it has ended.
    pub(crate) fn had_company(&self, run: &Begun) -> bool {
        run.had_company || run.number < self.n_orders
    }

    /// Whether this run has ended, as far as we have heard.
    pub(crate) fn is_over(&mut self, run: &Begun) -> bool {
        self.n_under_way();
        !self.under_way.contains(&run.number)
    }

    /// Whether it was ended with another one that stood still.
    pub(crate) fn has_lost(&self, run: &Begun) -> bool {
        self.lost.contains(&run.number)
    }

    /// Whether a run in it is as one that is a process of its own: there was nothing that the program could have done before its
    /// imports, and they left the environment as it was.
    pub(crate) fn is_as_a_process(&self) -> bool {
        self.imports_first
    }

    /// Whether it looks as if a model was compiled: a run that compiles and one that finds the result differ.
    pub(crate) fn seems_to_compile(&self) -> bool {
        self.speaks_of_compile
    }

    /// The most memory of the host that a run took, in bytes; none before one ended.
    pub(crate) fn most_memory(&self) -> Option<u64> {
        Some(self.most_memory).filter(|it| *it != 0)
    }

    /// Waits for a run to end, or with `or_others` for any. Nothing if the nursery is no more.
    pub(crate) fn finish(
        &mut self,
        run: &Begun,
        session: &Session,
        layer: Option<&Layer>,
        signals: &Signals,
        or_others: bool,
    ) -> io::Result<Option<Finished>> {
        let mut room = Room::of(layer);
        let waited = self.wait(signals, &mut room, run.number, Some(session), or_others)?;
        let waited_in_vain = matches!(waited, Waited::GivenUp(Settled::Failed));
        let (end, interrupted) = match waited {
            Waited::Gone => return Ok(None),
            Waited::Other => return Ok(Some(Finished::Other)),
            // The caller drops us, and with us the child that goes on writing.
            Waited::NoRoom => (End::Signal(Signal::SIGKILL as i32), None),
            Waited::Asked(signal) => (End::Signal(signal as i32), Some(signal)),
            Waited::GivenUp(settled) => (end_of(settled), None),
            Waited::Answer(answer) => {
                let number = |key: &str| i32::try_from(answer[key].as_i64()?).ok();
                let signal = number("signal").map(End::Signal);
                (signal.or(number("code").map(End::Code)).unwrap_or(End::Code(1)), None)
            }
        };
        Ok(Some(Finished::This(Ended {
            host: Default::default(),
            end,
            seconds: run.started.elapsed().as_secs_f64(),
            interrupted,
            n_left_running: 0,
            waited_in_vain,
            wrote_too_much: room.wrote_too_much(),
            host_ran_out: run.oom_kills < oom_kills(),
        })))
    }

    /// Waits for the answer about this run, or that it is ready, with `or_others` about any, and ends what stands still in the run
    /// of `session`.
    fn wait(
        &mut self,
        signals: &Signals,
        room: &mut Room<'_>,
        number: u64,
        session: Option<&Session>,
        or_others: bool,
    ) -> io::Result<Waited> {
        let mut standstill = Standstill::default();
        let mut looked = Instant::now();
        let mut given_up = None;
        loop {
            if room.is_used_up() {
                return Ok(Waited::NoRoom);
            }
            let mut other_ended = false;
            while let Some(answer) = self.next_answer() {
                self.takes_note(answer);
                other_ended = true;
            }
            if let Some(answer) = self.ended.remove(&number) {
                return Ok(given_up.map_or(Waited::Answer(answer), Waited::GivenUp));
            }
            if other_ended && or_others && given_up.is_none() {
                return Ok(Waited::Other);
            }
            if let Some(session) = session.filter(|_| TICK <= looked.elapsed()) {
                looked = Instant::now();
                if let Some(settled) = standstill.is_here(session) {
                    given_up = Some(settled);
                    self.lost.extend(self.under_way.iter().filter(|it| **it != number));
                    self.end_the_run();
                }
            }
            match self.reads() {
                Ok(true) => (),
                Ok(false) => return Ok(Waited::Gone),
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

    /// Reads some of what the nursery says; false at its end.
    fn reads(&mut self) -> io::Result<bool> {
        let mut some = [0; 4096];
        let n = self.answers.read(&mut some)?;
        self.unread.extend_from_slice(&some[..n]);
        Ok(n != 0)
    }

    /// A whole line of it; one that cannot be read is an answer without a number.
    fn next_answer(&mut self) -> Option<Value> {
        let end = self.unread.iter().position(|it| *it == b'\n')?;
        let line: Vec<u8> = self.unread.drain(..=end).collect();
        Some(serde_json::from_slice(&line).unwrap_or_default())
    }

    fn takes_note(&mut self, answer: Value) {
        let number = answer["id"].as_u64().unwrap_or(0);
        self.under_way.remove(&number);
        self.most_memory = self.most_memory.max(answer["memory"].as_u64().unwrap_or(0));
        self.ended.insert(number, answer);
    }
}

impl Nursery {
    /// Ends all that the run has started; the nursery itself goes on.
    fn end_the_run(&self) {
        let own = i32::try_from(self.process.id()).ok().map(Pid::from_raw);
        for pid in descendants::running(self.spared) {
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
        let _ = descendants::end_all(false, self.spared);
    }
}

/// Sends a line, and with it the mounts of a layer.
fn send(orders: &UnixStream, line: &Value, layer: Option<&Layer>) -> io::Result<()> {
    let line = format!("{line}\n");
    let mounts = layer.and_then(Layer::mounts).map(|it| [it.as_raw_fd()]);
    let given: Vec<ControlMessage<'_>> =
        mounts.iter().map(|it| ControlMessage::ScmRights(it)).collect();
    // Who is gone does not read: an error, and no signal.
    let how = MsgFlags::MSG_NOSIGNAL;
    let mut sent =
        sendmsg::<()>(orders.as_raw_fd(), &[IoSlice::new(line.as_bytes())], &given, how, None)?;
    while sent < line.len() {
        let rest = [IoSlice::new(&line.as_bytes()[sent..])];
        sent += sendmsg::<()>(orders.as_raw_fd(), &rest, &[], how, None)?;
    }
    Ok(())
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
