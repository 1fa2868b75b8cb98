//! The processes that run layouts side by side, and their end where somebody asks plimsoll to stop.

use std::{
    io::{self, Read},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{SigSet, Signal, kill},
    unistd::Pid,
};

use crate::engine::launch::{self, Signals};

/// How often we look whether all is done.
const TICK: Duration = Duration::from_millis(100);

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

    /// Until `is_over`, ends all that run when somebody asks us to stop.
    pub(super) fn attend(&self, signals: &Signals, is_over: impl Fn() -> bool) -> io::Result<()> {
        while !is_over() {
            let Some(arrived) = signals.next(TICK)? else { continue };
            match arrived.signal {
                Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM => {
                    let mut state = self.state();
                    state.is_stopped = true;
                    // The terminal has sent it to all of us.
                    if !arrived.from_terminal {
                        for it in &state.running {
                            let _ = kill(*it, arrived.signal);
                        }
                    }
                }
                _ => (),
            }
        }
        Ok(())
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
