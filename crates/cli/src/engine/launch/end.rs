//! How a run ended.

use nix::sys::signal::Signal;
use plimsoll_core::{prediction::Host, units::Bytes};

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
}

/// What is known of a run that is over.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) seconds: f64,
    /// The signal by which somebody asked us to stop.
    pub(crate) interrupted: Option<Signal>,
    /// Processes that the command left running, and that we ended.
    pub(crate) n_left_running: usize,
    /// It had failed, and nothing of it moved any more; then we ended it.
    pub(crate) waited_in_vain: bool,
    /// It wrote more than this, which is what it might write, and was ended.
    pub(crate) wrote_too_much: Option<Bytes>,
    /// What all processes of it took of the host at most; nothing where nobody looked.
    pub(crate) host: Host,
    /// The kernel killed somebody for memory while the script ran.
    pub(crate) host_ran_out: bool,
}
