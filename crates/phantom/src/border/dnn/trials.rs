//! `torch.backends.cudnn.benchmark`: the program times the algorithms that cuDNN offers for a convolution, and keeps the
//! fastest. Which one that is nobody can know without the card, and their workspaces differ. In the first run
//! none takes longer than another, so the first stays, which is cuDNN's own choice. If workspaces differed, the job is
//! run once more, and the one with the largest is the fastest (`tried = largest`): no choice takes more for a convolution.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What was executed, and timed.
#[derive(Debug)]
struct Trials {
    last: Option<Run>,
    /// The workspace of the first that was timed for this convolution.
    first: Option<u64>,
    /// Whether another one had another.
    differs: bool,
    /// Convolutions of which that is so.
    count: u64,
}

#[derive(Debug)]
struct Run {
    plan: usize,
    workspace: u64,
    is_timed: bool,
}

static TRIALS: Mutex<Trials> = Mutex::new(Trials::new());

impl Trials {
    const fn new() -> Trials {
        Trials { last: None, first: None, differs: false, count: 0 }
    }

    /// A plan is executed. One that follows another which was not timed belongs to the next convolution.
    fn executed(&mut self, plan: usize, workspace: u64) {
        if self.last.as_ref().is_some_and(|it| !it.is_timed && it.plan != plan) {
            self.first = None;
            self.differs = false;
        }
        self.last = Some(Run { plan, workspace, is_timed: false });
    }

    /// The program asks how long something took.
    fn timed(&mut self) {
        let Some(run) = self.last.as_mut().filter(|it| !it.is_timed) else { return };
        run.is_timed = true;
        let first = *self.first.get_or_insert(run.workspace);
        if first != run.workspace && !std::mem::replace(&mut self.differs, true) {
            self.count += 1;
        }
    }
}

/// A plan with a workspace of so many bytes is executed.
pub(super) fn executed(plan: usize, workspace: u64) {
    TRIALS.lock().unwrap_or_else(PoisonError::into_inner).executed(plan, workspace);
}

/// The program asks how long something took.
pub fn timed() {
    TRIALS.lock().unwrap_or_else(PoisonError::into_inner).timed();
}

/// For how many convolutions the program timed algorithms whose workspaces differ.
pub fn count() -> u64 {
    TRIALS.lock().unwrap_or_else(PoisonError::into_inner).count
}

/// How long such a plan takes where the largest is to be the fastest: the less, the more it has. Far above the
/// microsecond that nothing falls short of, and told apart by a float.
pub(super) fn time_of(workspace: u64) -> Duration {
    const SLOWEST: u64 = 1 << 50;
    Duration::from_nanos(SLOWEST / (workspace + 512))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_timed_for_one_convolution_is_compared() {
        let mut trials = Trials::new();
        let mut try_out = |plans: &[(usize, u64)]| {
            for &(plan, workspace) in plans {
                trials.executed(plan, workspace);
                for _ in 0..3 {
                    trials.executed(plan, workspace);
                    trials.timed();
                }
            }
            trials.executed(plans[0].0, plans[0].1);
            trials.count
        };
        assert_eq!(try_out(&[(1, 0), (2, 512), (3, 4096)]), 1);
        assert_eq!(try_out(&[(4, 64), (5, 64)]), 1, "all the same");
        assert_eq!(try_out(&[(6, 0), (7, 64)]), 2);
    }

    #[test]
    fn a_step_that_is_timed_tries_nothing() {
        let mut trials = Trials::new();
        for _ in 0..3 {
            for (plan, workspace) in [(1, 0), (2, 4096), (3, 64)] {
                trials.executed(plan, workspace);
            }
            trials.timed();
        }
        assert_eq!(trials.count, 0);
    }

    #[test]
    fn more_is_faster() {
        let sizes = [0, 512, 1 << 20, (1 << 20) + 512, 1 << 30, 64 << 30];
        assert!(sizes.windows(2).all(|it| time_of(it[1]) < time_of(it[0])));
        assert!(Duration::from_micros(2) < time_of(64 << 30));
    }
}
