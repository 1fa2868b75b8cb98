//! The processes that run layouts side by side, and their end where somebody asks plimsoll to stop.

use std::{
    io::{self, Read},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{SigSet, Signal, kill},
    unistd::Pid,
};

use crate::engine::launch::{self, Signals};

/// How often we look whether all is done.
const TICK: Duration = Duration::from_millis(100);
/// How long a run may take to stop by itself: then it ends its script at once, and clears up;
const BY_ITSELF: Duration = Duration::from_millis(400);
/// and how long it may take for that.
const CLEARING_UP: Duration = Duration::from_millis(1500);

/// By these somebody asks us to stop.
const ENDS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Those that run now.
#[derive(Debug, Default)]
pub(super) struct Processes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: Vec<Pid>,
    is_stopped: bool,
}

/// What a process wrote until it ended.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

impl Processes {
    /// Runs `process` to its end, with this mask of signals; none if somebody asked us to stop before that.
    pub(super) fn run(&self, mut process: Command, mask: SigSet) -> io::Result<Option<Written>> {
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // It ends the script, and clears up.
        launch::release(&mut process, mask, Some(Signal::SIGTERM));
        let Some((mut child, pid)) = self.start(process)? else { return Ok(None) };
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr) = thread::scope(|scope| {
            let stderr = scope.spawn(|| all_of(stderr));
            (all_of(stdout), stderr.join().unwrap_or_default())
        });
        // Nobody else gets its number, and with it our signals, before it is off the list.
        let mut state = self.state();
        child.wait()?;
        state.running.retain(|it| *it != pid);
        Ok((!state.is_stopped).then_some(Written { stdout, stderr }))
    }

    fn start(&self, mut process: Command) -> io::Result<Option<(Child, Pid)>> {
        let mut state = self.state();
        if state.is_stopped {
            return Ok(None);
        }
        let child = process.spawn()?;
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        state.running.push(pid);
        Ok(Some((child, pid)))
    }

    /// Until `is_over`, ends all that run when somebody asks us to stop; what does not stop soon, and all when asked twice, is killed.
    pub(super) fn attend(&self, signals: &Signals, is_over: impl Fn() -> bool) -> io::Result<()> {
        let mut asked: Option<Instant> = None;
        let mut was_told_again = false;
        while !is_over() {
            let arrived = signals.next(TICK)?.filter(|it| ENDS.contains(&it.signal));
            let since = asked.map(|it| it.elapsed());
            match (arrived, since) {
                (Some(arrived), None) => {
                    asked = Some(Instant::now());
                    self.state().is_stopped = true;
                    // The terminal has sent it to all of us.
                    if !arrived.from_terminal {
                        self.tell(arrived.signal);
                    }
                }
                // `timeout` and closing terminals send several.
                (Some(_), Some(since)) if BY_ITSELF <= since => {
                    launch::signal_all(Signal::SIGKILL, Default::default());
                }
                (_, Some(since)) if CLEARING_UP <= since => {
                    launch::signal_all(Signal::SIGKILL, Default::default());
                }
                (_, Some(since)) if BY_ITSELF <= since && !was_told_again => {
                    was_told_again = true;
                    self.tell(Signal::SIGTERM);
                }
                _ => (),
            }
        }
        // Those of a run that was killed.
        if asked.is_some() {
            launch::end_all(false, Default::default());
        }
        Ok(())
    }

    fn tell(&self, signal: Signal) {
        for it in &self.state().running {
            // It may just have ended.
            let _ = kill(*it, signal);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that can be read.
fn all_of(pipe: Option<impl Read>) -> Vec<u8> {
    let mut res = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut res);
    }
    res
}
