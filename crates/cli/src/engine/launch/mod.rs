//! Runs the user's command, on the phantom or for real: the environment, the process, its end. It knows neither what
//! the agent notes nor what memory is.

mod command;
mod descendants;
mod end;
mod nursery;
mod processes;
mod progress;
mod ranks;
mod room;
mod standstill;

use std::{
    ffi::{OsStr, OsString},
    fmt, fs, io,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::{
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::Pid,
};
use plimsoll_core::prediction::Host;
use plimsoll_writes::{Layer, Way};

pub(crate) use self::{
    command::{ScriptCommand, Variable, assignments, no_such_script, python},
    descendants::{end_all, signal_all},
    end::{End, Ended},
    nursery::{Begun, Finished, Nursery, Order},
    progress::Progress,
    ranks::{Ranks, has_launcher},
};
use self::{
    descendants::Spared,
    processes::Processes,
    room::Room,
    standstill::{Settled, Standstill},
};
pub(crate) use crate::contract::Setting;
pub(crate) use crate::signals::Signals;
use crate::{
    cache::{bundle::Bundle, session::Session},
    contract,
    gpu::nvidia_smi,
    options::ghost_weights::GhostWeights,
    output,
};

/// How often we look around when nothing happens.
const TICK: Duration = Duration::from_millis(250);
/// A request to stop within this time of the first one is the same one: `timeout` and closing
/// terminals send several.
const SAME_REQUEST: Duration = Duration::from_millis(300);
/// How long the script may take to stop after Ctrl-C (which it has got itself), and after SIGTERM.
const AFTER_INTERRUPT: Duration = Duration::from_secs(10);
const AFTER_TERMINATE: Duration = Duration::from_secs(4);
/// After Ctrl-C a server ends its engine's processes, each of which writes what it recorded: some 10 s on a free machine.
const AFTER_INTERRUPT_OF_A_SERVER: Duration = Duration::from_secs(45);
/// And after we have asked everything that it started.
const LAST_CALL: Duration = Duration::from_secs(2);

/// When the agent ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Once memory is steady.
    Steady,
    /// Some steps later, when a validation was seen: from steady memory on epochs end early.
    Validation,
    /// The same, and not after a look whether memory rises some steps later.
    OneValidation,
    /// The same after so many optimizer steps, whether memory is steady or not.
    ValidationAfter(u32),
    /// After so many optimizer steps.
    Steps(u32),
    /// Not at all: the script runs to its end.
    UntilExit,
}

impl fmt::Display for Stop {
    /// As the agent reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Steady => f.write_str("steady"),
            Stop::Validation => f.write_str("validation"),
            Stop::OneValidation => f.write_str("one-validation"),
            Stop::ValidationAfter(n) => write!(f, "one-validation:{n}"),
            Stop::Steps(n) => write!(f, "steps:{n}"),
            Stop::UntilExit => f.write_str("until-exit"),
        }
    }
}

/// Where the script's standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptOutput {
    /// Where ours goes.
    Inherited,
    /// To standard error, because our own output is for a machine.
    ToStderr,
    /// Nowhere, both of them: our own check of an environment.
    Nowhere,
    /// Into a file of the session, both of them: one of many runs.
    InSession,
}

/// A run that can begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) command: &'a ScriptCommand,
    pub(crate) bundle: &'a Bundle,
    pub(crate) session: &'a Session,
    /// What it writes goes into this; if there is none, into the user's files.
    pub(crate) layer: Option<&'a Layer>,
    pub(crate) stop: Stop,
    pub(crate) ranks: &'a Ranks,
    pub(crate) ghost_weights: GhostWeights,
    pub(crate) output: ScriptOutput,
    /// More for the script's environment.
    pub(crate) settings: &'a [Setting],
    pub(crate) device: Device,
    /// A nursery that waits meanwhile, and is not of this run.
    pub(crate) nursery: Option<Pid>,
}

/// What the script runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// Ours: it is ended when it has shown enough or somebody asks, with all that it started.
    Phantom,
    /// The machine's own. This is somebody's training: it ends when it ends, and goes on when we are killed.
    Real,
    /// The machine's own, for some steps that are measured: it is ended as a run of ours is.
    Measured,
}

impl Device {
    /// Whether nothing of a run goes on without us.
    fn ends_with_us(self) -> bool {
        match self {
            Device::Phantom | Device::Measured => true,
            Device::Real => false,
        }
    }
}

/// Somebody who looks at what a run has left so far.
pub(crate) trait Watch {
    /// Now and then while the script runs, and once when it has ended.
    fn tick(&mut self, session: &Session);
}

/// Runs the command until it is over, and ends everything that it started.
pub(crate) fn run(
    launch: Launch<'_>,
    signals: &Signals,
    mut watch: Option<&mut dyn Watch>,
) -> anyhow::Result<Ended> {
    prctl::set_child_subreaper(true).context("cannot become the subreaper of the script")?;
    let started = Instant::now();
    let oom_kills = oom_kills();
    let each =
        launch.ranks.of_each().context("cannot find a free port for the processes to meet")?;
    let mut processes = Processes::default();
    for (number, own) in each.iter().enumerate() {
        match spawn(launch, number, own, signals) {
            Ok(pid) => processes.started(pid),
            Err(error) => {
                descendants::signal_all(Signal::SIGKILL, spared(launch));
                return Err(launch.command.cannot_start(&error));
            }
        }
    }
    let mut tick = || {
        if let Some(watch) = &mut watch {
            watch.tick(launch.session);
        }
    };
    let mut room = Room::of(launch.layer);
    let mut host = Host::default();
    let mut tick = || {
        tick();
        let now = descendants::memory(spared(launch));
        host.peak = host.peak.max(now.peak);
        host.shared = host.shared.max(now.shared);
    };
    let waited = wait(&mut processes, signals, launch, &mut room, &mut tick);
    let seconds = started.elapsed().as_secs_f64();
    if launch.device == Device::Real {
        tick();
    }
    // Whatever happened, nothing stays behind. Who has asked us to stop has waited long enough.
    let be_patient = waited.as_ref().is_ok_and(|it| it.interrupted.is_none());
    let n_left_running = if launch.device.ends_with_us() {
        descendants::end_all(be_patient, spared(launch))
    } else {
        0
    };
    let Over { end, interrupted, given_up } = waited.context("cannot wait for the script")?;
    Ok(Ended {
        end,
        seconds,
        interrupted,
        n_left_running,
        waited_in_vain: given_up == Some(Settled::Failed),
        host,
        host_ran_out: oom_kills < self::oom_kills(),
        wrote_too_much: room.wrote_too_much(),
    })
}

/// What is below us and not of this run.
fn spared(launch: Launch<'_>) -> Spared {
    Spared { helper: helper(launch.layer), nursery: launch.nursery }
}

/// A process beside the run that is ours.
fn helper(layer: Option<&Layer>) -> Option<Pid> {
    layer?.helper().and_then(|it| i32::try_from(it).ok()).map(Pid::from_raw)
}

/// Starts the command, as the process of this number; `own` is what only this one has in its environment.
fn spawn(launch: Launch<'_>, number: usize, own: &[Setting], signals: &Signals) -> io::Result<Pid> {
    let Launch {
        command,
        bundle,
        session,
        layer,
        stop,
        ranks,
        ghost_weights,
        output,
        settings,
        device,
        nursery: _,
    } = launch;
    let mut process = Command::new(&command.program);
    process.args(&command.arguments).envs(command.environment.iter().map(|it| (&it.0, &it.1)));
    match device {
        Device::Phantom => process
            .envs(environment(command, bundle, session.path(), layer, stop))
            .envs(ranks.environment())
            .env(contract::GHOST_WEIGHTS, ghost_weights.word()),
        Device::Real | Device::Measured => {
            process.envs(of_agent(command, bundle, session.path(), stop, "run"))
        }
    };
    process.envs(settings.iter().chain(own).map(|(name, value)| (name, value)));
    if 0 < number {
        // They say what the first one says.
        process.stdin(Stdio::null()).stdout(Stdio::null());
    }
    match output {
        ScriptOutput::Inherited => (),
        ScriptOutput::ToStderr => {
            process.stdout(Stdio::from(output::standard_error()?));
        }
        ScriptOutput::Nowhere => {
            process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        ScriptOutput::InSession => {
            let file = fs::OpenOptions::new().create(true).append(true).open(session.output())?;
            process.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        }
    }
    if let Some(layer) = layer {
        layer.attach(&mut process)?;
    }
    release(&mut process, signals.before(), device.ends_with_us().then_some(Signal::SIGKILL));
    let child = process.spawn()?;
    Ok(Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?))
}

/// Lets `process` have the signals of `mask`, as they were before we held them; and this one if we are killed so that we cannot end it.
pub(crate) fn release(process: &mut Command, mask: SigSet, without_us: Option<Signal>) {
    // SAFETY: between fork and exec only two system calls are made, on values that were made before.
    unsafe {
        process.pre_exec(move || {
            mask.thread_set_mask()?;
            without_us.map_or(Ok(()), prctl::set_pdeathsig)?;
            Ok(())
        });
    }
}

/// What the script's environment has more than ours.
fn environment(
    command: &ScriptCommand,
    bundle: &Bundle,
    session: &Path,
    layer: Option<&Layer>,
    stop: Stop,
) -> Vec<Setting> {
    let before = |variable, first: &OsStr| before(command, variable, first);
    let mut res = of_agent(command, bundle, session, stop, "predict");
    res.push(("LD_PRELOAD", before("LD_PRELOAD", &preloaded(bundle))));
    res.push(("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", bundle.lib().as_os_str())));
    if let Some(folder) = nvidia_smi::put_into(session) {
        res.push(("PATH", before("PATH", folder.as_os_str())));
    }
    res.extend(of_tracing(command, bundle, layer));
    if layer.is_some_and(Layer::is_offline) {
        // Else the hub would be asked, again and again, before what is here is taken.
        res.extend(["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"].map(|it| (it, "1".into())));
    }
    // A layer would take it, and go.
    res.push((contract::BYTECODE, bundle.bytecode().into()));
    // Since 9.26 cuDNN has a compiler of its own inside; told so, it opens the one that we have an answer for.
    res.push(("CUDNN_NVRTC_RUNTIME_LINKING", "1".into()));
    res.extend(caches(session));
    res
}

/// Where it keeps what it compiles. What is compiled and tuned for a phantom must not be found by a real run, nor the other
/// way.
pub(crate) fn caches(session: &Path) -> [Setting; 2] {
    [
        ("TORCHINDUCTOR_CACHE_DIR", session.join(contract::INDUCTOR).into()),
        cache_of_kernels(session),
    ]
}

/// The part of it that holds Triton's kernels.
pub(crate) fn cache_of_kernels(session: &Path) -> Setting {
    ("TRITON_CACHE_DIR", session.join(contract::TRITON).into())
}

/// Under tracing one library more, if nobody else steps between the script and libc: it would not be asked.
fn of_tracing(command: &ScriptCommand, bundle: &Bundle, layer: Option<&Layer>) -> Option<Setting> {
    let is_traced = layer.is_some_and(|it| it.way() == Way::Traced);
    let has_own = command.variable("LD_PRELOAD").is_some_and(|it| !it.is_empty());
    let mut preloaded = preloaded(bundle);
    preloaded.push(":");
    preloaded.push(bundle.looks());
    (is_traced && !has_own).then_some(("LD_PRELOAD", preloaded))
}

/// What is loaded into every process of the script.
fn preloaded(bundle: &Bundle) -> OsString {
    let mut res = bundle.phantom().into_os_string();
    res.push(":");
    res.push(bundle.holes());
    res
}

/// The part of it that brings the agent in.
fn of_agent(
    command: &ScriptCommand,
    bundle: &Bundle,
    session: &Path,
    stop: Stop,
    mode: &str,
) -> Vec<Setting> {
    vec![
        ("PYTHONPATH", before(command, "PYTHONPATH", bundle.agent().as_os_str())),
        (contract::SESSION, session.as_os_str().to_owned()),
        (contract::MODE, mode.into()),
        (contract::STOP, stop.to_string().into()),
    ]
}

/// `first`, then what the variable holds already. An empty value must not become an empty entry, which
/// would mean the current folder.
fn before(command: &ScriptCommand, variable: &str, first: &OsStr) -> OsString {
    let mut res = first.to_owned();
    if let Some(rest) = command.variable(variable).filter(|it| !it.is_empty()) {
        res.push(":");
        res.push(rest);
    }
    res
}

/// Somebody asked us to stop.
struct Asked {
    signal: Signal,
    at: Instant,
    /// The script has got the signal too, or need not.
    passed_on: bool,
    /// What everything below us was sent last, and when.
    last_call: Option<Instant>,
}

/// What came of waiting for a script.
struct Over {
    end: End,
    /// The signal by which somebody asked us to stop.
    interrupted: Option<Signal>,
    /// It stood still and was ended; why it had no business but to end.
    given_up: Option<Settled>,
}

/// How a run ended that stood still: nobody asked its processes.
fn end_of(settled: Settled) -> End {
    match settled {
        Settled::ShownEnough => End::Code(0),
        Settled::Failed => End::Code(1),
    }
}

/// Waits until the script is over. Ctrl-C reaches the script by itself, since it is in our process group;
/// other requests are passed on. A second request, or patience running out, ends everything. So does a standstill once the
/// answer is known: of a run that has shown enough this is an end like any other.
fn wait(
    processes: &mut Processes,
    signals: &Signals,
    launch: Launch<'_>,
    room: &mut Room<'_>,
    tick: &mut dyn FnMut(),
) -> io::Result<Over> {
    let device = launch.device;
    let mut asked: Option<Asked> = None;
    let mut standstill = Standstill::default();
    let mut given_up: Option<(Settled, Instant)> = None;
    loop {
        if let Some(end) = processes.reap()? {
            let given_up = given_up.map(|it| it.0);
            return Ok(Over {
                end: given_up.map_or(end, end_of),
                interrupted: asked.map(|it| it.signal),
                given_up,
            });
        }
        match signals.next(TICK)? {
            None => (),
            Some(it) if it.signal == Signal::SIGCHLD => (),
            // No request to stop: job schedulers and scripts have agreed on what it means.
            Some(it) if matches!(it.signal, Signal::SIGUSR1 | Signal::SIGUSR2) => {
                processes.signal(it.signal);
            }
            Some(it) => match &asked {
                None => {
                    let at = Instant::now();
                    let passed_on = it.from_terminal;
                    asked = Some(Asked { signal: it.signal, at, passed_on, last_call: None });
                }
                Some(first) if first.at.elapsed() < SAME_REQUEST => (),
                Some(_) if device == Device::Real => processes.signal(it.signal),
                Some(_) => descendants::signal_all(Signal::SIGKILL, spared(launch)),
            },
        }
        match &mut asked {
            Some(asked) => pursue(asked, processes, launch),
            None => tick(),
        }
        match given_up {
            None if asked.is_none() => {
                if let Some(settled) = standstill.is_here(launch.session) {
                    descendants::signal_all(Signal::SIGTERM, spared(launch));
                    given_up = Some((settled, Instant::now()));
                }
            }
            Some((_, at)) if LAST_CALL <= at.elapsed() => {
                descendants::signal_all(Signal::SIGKILL, spared(launch));
            }
            _ => (),
        }
        if room.is_used_up() {
            descendants::signal_all(Signal::SIGKILL, spared(launch));
        }
    }
}

/// What a request to stop still needs.
fn pursue(asked: &mut Asked, processes: &Processes, launch: Launch<'_>) {
    let (device, spared) = (launch.device, spared(launch));
    // `timeout` sends SIGINT to us and to our whole group: then the script has it, and a second one
    // would disturb its cleaning up. SIGTERM twice does no harm.
    let is_time = asked.signal != Signal::SIGINT || SAME_REQUEST <= asked.at.elapsed();
    if !asked.passed_on && is_time {
        processes.signal(asked.signal);
        asked.passed_on = true;
    }
    if device == Device::Real {
        return; // Saving a checkpoint takes as long as it takes.
    }
    let patience = match asked.signal {
        Signal::SIGINT if launch.session.serves() => AFTER_INTERRUPT_OF_A_SERVER,
        Signal::SIGINT => AFTER_INTERRUPT,
        _ => AFTER_TERMINATE,
    };
    match asked.last_call {
        None if patience <= asked.at.elapsed() => {
            descendants::signal_all(Signal::SIGTERM, spared);
            asked.last_call = Some(Instant::now());
        }
        Some(at) if LAST_CALL <= at.elapsed() => descendants::signal_all(Signal::SIGKILL, spared),
        _ => (),
    }
}

/// How often the kernel has killed a process because the host ran out of memory.
fn oom_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|it| it.strip_prefix("oom_kill "))?.trim().parse().ok()
}
