//! The processes that a command was started as, one or one for each device, and how they ended together.

use std::{
    io,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::end::End;

/// How long the others may go on when one has failed, which they wait for in vain: first to say what they have to
/// say, then to stop.
const TO_FAIL_TOO: Duration = Duration::from_secs(5);
const TO_STOP: Duration = Duration::from_secs(10);

/// How gloo ends a process whose peer has closed its connection, at times before the peer itself is over.
const ABORTED: End = End::Signal(Signal::SIGABRT as i32);

/// Whether the script chose it: an exception of Python's is 1.
fn has_own_code(end: End) -> bool {
    matches!(end, End::Code(code) if 1 < code)
}

/// Those that run, and how the others ended.
#[derive(Debug, Default)]
pub(super) struct Processes {
    running: Vec<Pid>,
    /// Of the first that failed; else of the last. Of one that failed by an abort, the first that has an exit code of its own.
    end: Option<End>,
    failed: Option<Instant>,
    last_sent: Option<Signal>,
}

impl Processes {
    pub(super) fn started(&mut self, pid: Pid) {
        self.running.push(pid);
    }

    pub(super) fn signal(&self, signal: Signal) {
        for it in &self.running {
            let _ = kill(*it, signal);
        }
    }

    /// Takes note of every child that ended: of these, and of orphans that became ours. How it ended, once it is over.
    pub(super) fn reap(&mut self) -> io::Result<Option<End>> {
        while !self.running.is_empty() {
            let (pid, end) = match waitpid(None, Some(WaitPidFlag::WNOHANG))? {
                WaitStatus::Exited(pid, code) => (pid, End::Code(code)),
                WaitStatus::Signaled(pid, signal, _) => (pid, End::Signal(signal as i32)),
                WaitStatus::StillAlive => break,
                _ => continue,
            };
            let before = self.running.len();
            self.running.retain(|it| *it != pid);
            if self.running.len() < before {
                self.ended(end);
            }
        }
        if self.running.is_empty() {
            return Ok(self.end);
        }
        self.end_who_waits_in_vain();
        Ok(None)
    }

    fn ended(&mut self, end: End) {
        if self.failed.is_none() {
            self.end = Some(end);
            self.failed = (end != End::Code(0)).then(Instant::now);
        } else if self.end == Some(ABORTED) && has_own_code(end) {
            self.end = Some(end);
        }
    }

    fn end_who_waits_in_vain(&mut self) {
        let Some(failed) = self.failed else { return };
        let wanted = match failed.elapsed() {
            it if it < TO_FAIL_TOO => return,
            it if it < TO_FAIL_TOO + TO_STOP => Signal::SIGTERM,
            _ => Signal::SIGKILL,
        };
        if self.last_sent != Some(wanted) {
            self.signal(wanted);
            self.last_sent = Some(wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_fails_says_how_it_ended() {
        let mut it = Processes::default();
        for end in [End::Code(0), End::Code(7), End::Signal(15), End::Code(0)] {
            it.ended(end);
        }
        assert_eq!(it.end, Some(End::Code(7)));
        let ended = |ends: &[End]| {
            let mut it = Processes::default();
            ends.iter().for_each(|end| it.ended(*end));
            it.end
        };
        assert_eq!(
            ended(&[ABORTED, End::Code(7), End::Code(3)]),
            Some(End::Code(7)),
            "its peer left"
        );
        assert_eq!(ended(&[ABORTED, End::Code(1)]), Some(ABORTED), "and its peer raised, perhaps");
        assert_eq!(ended(&[End::Code(7), ABORTED]), Some(End::Code(7)));
        let mut it = Processes::default();
        it.ended(End::Code(0));
        assert_eq!((it.end, it.failed), (Some(End::Code(0)), None));
    }
}
