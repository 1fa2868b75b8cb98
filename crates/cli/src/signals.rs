//! Signals as values that the waiting loop reads, so that nothing runs inside a handler.

use std::{io, time::Duration};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal};

/// One signal that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) signal: Signal,
    /// Sent by the terminal (Ctrl-C), so the script has got it too; otherwise somebody sent it to us.
    pub(crate) from_terminal: bool,
}

/// While this lives, the signals that end programs, and the one that says that a child ended, wait to be
/// read here. Afterwards they do again what they did before.
#[derive(Debug)]
pub(crate) struct Signals {
    queue: Queue,
    before: SigSet,
}

impl Signals {
    /// Made before the script starts, so that no signal can fall between.
    pub(crate) fn hold() -> io::Result<Signals> {
        // SAFETY: the default action is not a function of ours, so nothing can run in a handler. It
        // matters where our parent ignores SIGCHLD: the kernel would then throw exit codes away.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        let mut held = SigSet::empty();
        for it in [
            Signal::SIGCHLD,
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGTERM,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ] {
            held.add(it);
        }
        let before = held.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Signals { queue: Queue::of(held)?, before })
    }

    /// The mask that the script is to have: the one that we were started with.
    pub(crate) fn before(&self) -> SigSet {
        self.before
    }

    /// The next signal, or nothing when `timeout` passes without one.
    pub(crate) fn next(&self, timeout: Duration) -> io::Result<Option<Arrived>> {
        self.queue.next(timeout)
    }
}

#[cfg(target_os = "linux")]
use self::file::Queue;
#[cfg(not(target_os = "linux"))]
use self::thread::Queue;

/// Where the kernel gives signals out as a file.
#[cfg(target_os = "linux")]
mod file {
    use std::{io, os::fd::AsFd as _, time::Duration};

    use nix::{
        errno::Errno,
        libc,
        poll::{PollFd, PollFlags, PollTimeout, poll},
        sys::{
            signal::{SigSet, Signal},
            signalfd::{SfdFlags, SignalFd},
        },
    };

    use super::Arrived;

    #[derive(Debug)]
    pub(super) struct Queue(SignalFd);

    impl Queue {
        pub(super) fn of(held: SigSet) -> io::Result<Queue> {
            let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
            Ok(Queue(SignalFd::with_flags(&held, flags)?))
        }

        pub(super) fn next(&self, timeout: Duration) -> io::Result<Option<Arrived>> {
            let millis = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(millis)) {
                Ok(_) | Err(Errno::EINTR) => (),
                Err(error) => return Err(error.into()),
            }
            let Some(info) = self.0.read_signal()? else { return Ok(None) };
            let number = i32::try_from(info.ssi_signo).unwrap_or_default();
            let Ok(signal) = Signal::try_from(number) else { return Ok(None) };
            Ok(Some(Arrived { signal, from_terminal: info.ssi_code == libc::SI_KERNEL }))
        }
    }
}

/// Elsewhere a thread waits for them. It lives as long as the program, which ends when the first one has come.
#[cfg(not(target_os = "linux"))]
mod thread {
    use std::{
        io,
        sync::mpsc::{Receiver, channel},
        time::Duration,
    };

    use nix::sys::signal::{SigSet, Signal};

    use super::Arrived;

    #[derive(Debug)]
    pub(super) struct Queue(Receiver<Signal>);

    impl Queue {
        pub(super) fn of(held: SigSet) -> io::Result<Queue> {
            let (arrived, queue) = channel();
            std::thread::Builder::new().spawn(move || {
                while let Ok(signal) = held.wait() {
                    if arrived.send(signal).is_err() {
                        return;
                    }
                }
            })?;
            Ok(Queue(queue))
        }

        #[expect(clippy::unnecessary_wraps, reason = "the other queue can fail")]
        pub(super) fn next(&self, timeout: Duration) -> io::Result<Option<Arrived>> {
            let signal = self.0.recv_timeout(timeout).ok();
            Ok(signal.map(|signal| Arrived { signal, from_terminal: false }))
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // One request may come twice (`timeout` tells us and our group): what still waits would end us before we have said anything.
        while let Ok(Some(_)) = self.queue.next(Duration::ZERO) {}
        let _ = self.before.thread_set_mask();
    }
}

/// Does `work`, and lets no thread that it starts receive signals: one that a library keeps (NVML does) would take a
/// signal that the waiting loop is to read, and end the process.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let res = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_a_library_gets_no_signals() {
        let gets =
            |it: SigSet| [Signal::SIGINT, Signal::SIGTERM].map(|signal| !it.contains(signal));
        let mask = || SigSet::thread_get_mask().unwrap();
        let before = mask();
        let theirs = without_signals(|| std::thread::spawn(mask));
        assert_eq!(gets(theirs.join().unwrap()), [false, false]);
        assert_eq!(gets(mask()), gets(before));
    }
}
