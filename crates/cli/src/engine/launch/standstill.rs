//! A run that was asked to stop, or whose answer is known because something of it failed, and of which nothing moves any more:
//! somebody waits for what will not come, such as the main program for the result of a training that ended in one of its children.

use std::time::{Duration, Instant};

use super::descendants::{self, Work};
use crate::cache::session::Session;

/// Why a run has no business but to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It has shown enough, and was asked to stop.
    ShownEnough,
    /// Something of it ended with an error.
    Failed,
}

impl Settled {
    fn of(session: &Session) -> Option<Settled> {
        if session.was_asked_to_stop() {
            return Some(Settled::ShownEnough);
        }
        session.has_failed().then_some(Settled::Failed)
    }

    /// So long nothing moves. Whoever lives with an error may wait a moment before trying again.
    const fn long(self) -> Duration {
        match self {
            Settled::ShownEnough => Duration::from_millis(2500),
            Settled::Failed => Duration::from_secs(10),
        }
    }

    /// Ticks of the kernel's clock (1/100 s) within that time that are no work: waiting in a loop takes some.
    const fn little(self) -> u64 {
        match self {
            Settled::ShownEnough => 5,
            Settled::Failed => 20,
        }
    }
}

/// Looks at a run now and then.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    since: Option<(Instant, Work)>,
}

impl Standstill {
    /// Whether it has come, and of which run.
    pub(super) fn is_here(&mut self, session: &Session) -> Option<Settled> {
        let settled = Settled::of(session)?;
        let recorded = session.process_paths().into_iter();
        let recorded = recorded.filter_map(|(pid, _)| i32::try_from(pid).ok()).collect();
        self.is_here_after(settled, descendants::work(&recorded), Instant::now()).then_some(settled)
    }

    fn is_here_after(&mut self, settled: Settled, seen: Work, now: Instant) -> bool {
        match &self.since {
            Some((since, before))
                if !seen.goes_on
                    && before.pids == seen.pids
                    && seen.worked <= before.worked + settled.little() =>
            {
                settled.long() <= now.duration_since(*since)
            }
            _ => {
                self.since = Some((now, seen));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn seen(worked: u64, goes_on: bool) -> Work {
        Work { pids: BTreeSet::from([7, 8]), worked, goes_on }
    }

    #[test]
    fn it_has_come_when_nobody_worked_or_waited_for_a_processor_all_the_time() {
        let began = Instant::now();
        let at = |tenths: u64| began + Duration::from_millis(100 * tenths);
        let mut it = Standstill::default();
        let mut is_here = |seen, at| it.is_here_after(Settled::ShownEnough, seen, at);
        assert!(!is_here(seen(40, false), at(0)));
        assert!(!is_here(seen(44, false), at(20)), "not long enough");
        assert!(!is_here(seen(44, true), at(26)), "the machine is busy, not the run at its end");
        assert!(!is_here(seen(44, false), at(50)), "it worked a moment ago");
        assert!(!is_here(seen(60, false), at(52)), "it works");
        assert!(!is_here(seen(60, false), at(76)));
        assert!(is_here(seen(61, false), at(77)));
    }

    #[test]
    fn a_run_that_failed_may_pause_before_it_tries_again() {
        let began = Instant::now();
        let mut it = Standstill::default();
        let mut is_here = |worked, seconds| {
            let at = began + Duration::from_secs(seconds);
            it.is_here_after(Settled::Failed, seen(worked, false), at)
        };
        assert!(!is_here(40, 0));
        assert!(!is_here(50, 9), "it may look now and then");
        assert!(is_here(60, 10));
        assert!(!is_here(70, 11), "it tries again");
        assert!(!is_here(70, 20));
        assert!(is_here(70, 21));
    }
}
