//! A run that was asked to stop and of which nothing moves any more: somebody waits for what will not come, such as the main
//! program for the result of a training that was ended in one of its children.

use std::time::{Duration, Instant};

use super::descendants::{self, Work};
use crate::cache::session::Session;

/// So long nothing moves.
const LONG: Duration = Duration::from_millis(2500);
/// Ticks of the kernel's clock (1/100 s) within that time that are no work: waiting in a loop takes some.
const LITTLE: u64 = 5;

/// Looks at a run now and then.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    since: Option<(Instant, Work)>,
}

impl Standstill {
    /// Whether it has come.
    pub(super) fn is_here(&mut self, session: &Session) -> bool {
        if !session.was_asked_to_stop() {
            return false;
        }
        let recorded = session.process_paths().into_iter();
        let recorded = recorded.filter_map(|(pid, _)| i32::try_from(pid).ok()).collect();
        self.is_here_after(descendants::work(&recorded), Instant::now())
    }

    fn is_here_after(&mut self, seen: Work, now: Instant) -> bool {
        match &self.since {
            Some((since, before))
                if !seen.goes_on
                    && before.pids == seen.pids
                    && seen.worked <= before.worked + LITTLE =>
            {
                LONG <= now.duration_since(*since)
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
        assert!(!it.is_here_after(seen(40, false), at(0)));
        assert!(!it.is_here_after(seen(44, false), at(20)), "not long enough");
        assert!(
            !it.is_here_after(seen(44, true), at(26)),
            "the machine is busy, not the run at its end"
        );
        assert!(!it.is_here_after(seen(44, false), at(50)), "it worked a moment ago");
        assert!(!it.is_here_after(seen(60, false), at(52)), "it works");
        assert!(!it.is_here_after(seen(60, false), at(76)));
        assert!(it.is_here_after(seen(61, false), at(77)));
    }
}
