//! A run that was asked to stop and of which nothing moves any more: somebody waits for what will not come, such as the main
//! program for the result of a training that was ended in one of its children.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use nix::unistd::Pid;

use super::descendants;
use crate::cache::session::Session;

/// So long nothing moves.
const LONG: Duration = Duration::from_millis(2500);
/// Ticks of the kernel's clock (1/100 s) within that time that are no work: waiting in a loop takes some.
const LITTLE: u64 = 5;

/// Looks at a run now and then.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    since: Option<(Instant, BTreeSet<Pid>, u64)>,
}

impl Standstill {
    /// Whether it has come.
    pub(super) fn is_here(&mut self, session: &Session) -> bool {
        if !session.was_asked_to_stop() {
            return false;
        }
        let (pids, worked) = descendants::work();
        match &self.since {
            Some((since, before, at)) if *before == pids && worked <= at + LITTLE => {
                LONG <= since.elapsed()
            }
            _ => {
                self.since = Some((Instant::now(), pids, worked));
                false
            }
        }
    }
}
