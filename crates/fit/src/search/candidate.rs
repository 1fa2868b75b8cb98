//! A plan that was run, and which of two is better: less added time, then less change to the numbers, then the faster one,
//! then fewer remedies.

use plimsoll_core::{
    plan::{Numbers, Plan},
    prediction::{OtherEnd, Peaks, Tuned},
    recording::Work,
    units::Bytes,
};

use super::ask::{Run, Took};
use crate::cost::Factor;

/// Differences in time below this share are none: the estimate is not finer.
const TIME_CLASS: f64 = 0.05;

/// A plan that was run.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The plan.
    pub plan: Plan,
    /// What its hungriest run took.
    pub took: Took,
    /// What of the limit it needs, with the allowance for what a phantom cannot know.
    pub needs: Bytes,
    /// Whether that is there.
    pub fits: bool,
    /// It leaves little for sizes that no run came to, of a script that chooses them by itself; or less than two runs of it differ by.
    pub is_tight: bool,
    /// How much more of the limit it needed when it was run again, as far.
    pub(super) spread: Bytes,
    /// How often PyTorch gave its cache back in its first run and went on.
    pub retries: u64,
    /// What it does to the numbers.
    pub numbers: Numbers,
    /// How much longer a step takes, by an estimate; none if that was not counted.
    pub time: Option<Factor>,
    /// What its steps took on the machine's own device, if somebody asked for that.
    pub measured: Option<Measured>,
    /// How much slower than the script as it is, by that.
    pub(super) slower: Option<f64>,
    /// Its run was ended early, since it took more than can fit; how many steps it had made then. What it needs is more.
    pub(super) cut_after: Option<u32>,
    /// The card ended it in a run like this one, which has room: that would tell what it needs.
    pub(super) refuted: Option<Run>,
    /// Its first run compiled all that it uses: what that takes was seen.
    pub(super) compiled_anew: bool,
    /// Changes of the allocator under which it would fit, by a replay, if it does not.
    pub(super) tunings: Vec<Tuned>,
    /// What a phantom decided by itself in its run.
    pub(super) ends: Vec<OtherEnd>,
    /// What it needs where masks of unknown values select everything, if they were taken to find nothing.
    pub if_found: Option<IfFound>,
    /// The operations of a step, if they were counted.
    pub(super) work: Option<Vec<Work>>,
    /// The last of the runs that are only there to refute it, if it is not over yet.
    pub(super) once_more: Option<OnceMore>,
}

/// A run of a plan that is only there to refute it, and counts the work of a step where that takes no other memory.
#[derive(Clone, Debug)]
pub(super) struct OnceMore {
    /// The run.
    pub(super) run: Run,
    /// What the one before it took: one that took anything else was disturbed by being counted, and is made again.
    pub(super) before: Peaks,
}

/// What a plan needs where masks of unknown values select everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfFound {
    /// So much of the limit, allowance included.
    Needs(Bytes),
    /// More than there is.
    RunsOut,
}

/// Steps on a real device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Of a step, the middle one.
    pub seconds: f64,
    /// A tenth of the steps took less,
    pub low: f64,
    /// and a tenth more.
    pub high: f64,
    /// How much longer than a step of the script as it is; none if that was not measured.
    pub factor: Option<f64>,
}

/// The class of an amount of time; all that is less than nothing is nothing.
fn class(time: f64) -> u32 {
    (0..1000).find(|it| time < (f64::from(*it) + 0.5) * TIME_CLASS).unwrap_or(1000)
}

impl Candidate {
    /// One of which nothing is known yet.
    pub(crate) fn not_run(plan: Plan, numbers: Numbers) -> Candidate {
        Candidate {
            plan,
            took: Took::default(),
            needs: Bytes::ZERO,
            fits: true,
            is_tight: false,
            spread: Bytes::ZERO,
            retries: 0,
            numbers,
            time: None,
            measured: None,
            slower: None,
            cut_after: None,
            refuted: None,
            compiled_anew: false,
            tunings: Vec::new(),
            ends: Vec::new(),
            if_found: None,
            work: None,
            once_more: None,
        }
    }

    /// The smaller, the better: what has room for sizes that were not seen comes first, then what never has to give memory back. Of plans that add no time what they do to the numbers counts first; with `prefers_speed` how
    /// fast they are.
    pub(super) fn rank(
        &self,
        prefers_speed: bool,
    ) -> (bool, bool, u32, Numbers, u32, usize, Bytes) {
        let factor = self.slower.or(self.time.map(|it| it.estimate)).unwrap_or(1.0);
        let (added, whole) = (class(factor - 1.0), class(factor));
        let first = if prefers_speed { whole } else { added };
        let is_slow = self.retries != 0;
        let n = self.plan.remedies.len();
        (self.is_tight, is_slow, first, self.numbers, whole, n, self.needs)
    }
}
