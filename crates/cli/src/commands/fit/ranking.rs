//! Candidates that were run, and which of them is better: less added time, then less change to the numbers, then
//! fewer remedies.

use plimsoll_core::{
    cards::Card,
    plan::{self, Factor, Numbers, Plan, Work},
    prediction::{OtherEnd, Prediction, Tuned},
    units::Bytes,
    views::plan::{Measured, Row},
};
use serde_json::Value;

use crate::trials::Trial;

/// Differences in time below this share are none: the estimate is not finer.
const TIME_CLASS: f64 = 0.05;

/// A plan that was run.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) plan: Plan,
    pub(super) prediction: Prediction,
    /// What of the limit it needs, with the allowance for what a phantom cannot know.
    pub(super) needs: Bytes,
    pub(super) fits: bool,
    pub(super) numbers: Numbers,
    pub(super) time: Option<Factor>,
    /// What its steps took on the machine's own device, if somebody asked for that.
    pub(super) measured: Option<Measured>,
    /// How much slower than the script as it is, by that.
    pub(super) slower: Option<f64>,
    /// Its run was ended early, since it took more than can fit; how many steps it had made then. What it needs is more.
    pub(super) cut_after: Option<u32>,
    /// Changes of the allocator under which it would fit, by a replay, if it does not.
    pub(super) tunings: Vec<Tuned>,
    /// What a phantom decided by itself in its run.
    pub(super) ends: Vec<OtherEnd>,
}

impl Candidate {
    /// The smaller, the better.
    pub(super) fn rank(&self) -> (u32, Numbers, usize, Bytes) {
        let factor = self.slower.or(self.time.map(|it| it.estimate)).unwrap_or(1.0);
        let added = (factor - 1.0).max(0.0);
        let class = (0..1000_u32).find(|it| added < (f64::from(*it) + 0.5) * TIME_CLASS);
        (class.unwrap_or(1000), self.numbers, self.plan.remedies.len(), self.needs)
    }

    /// What the table shows of it.
    pub(super) fn row(&self) -> Row {
        Row {
            plan: self.plan.clone(),
            peak: self.prediction.peak,
            needs: self.needs,
            numbers: self.numbers,
            time: self.time,
            measured: self.measured,
        }
    }
}

/// What a metered step did.
pub(super) fn work(trial: &Trial) -> Vec<Work> {
    trial.noted("work").map(|it| operations(&it["ops"])).unwrap_or_default()
}

/// Counted operations, as the agent writes them.
pub(super) fn operations(ops: &Value) -> Vec<Work> {
    let read = |it: &Value| {
        let number = |key: &str| it[key].as_f64();
        Some(Work {
            op: it["op"].as_str()?.to_owned(),
            dtype: it["dtype"].as_str()?.to_owned(),
            count: number("count")?,
            flops: number("flops")?,
            bytes: number("bytes")?,
        })
    };
    ops.as_array().into_iter().flatten().filter_map(read).collect()
}

/// How much longer a step takes.
pub(super) fn time(plain: &[Work], changed: &[Work], card: &Card) -> Option<Factor> {
    plan::factor(plain, changed, card)
}
