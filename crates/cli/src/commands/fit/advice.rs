//! What only a person can decide, with what it would take: each is run on the phantom as it would be written, and never
//! becomes part of a plan.

use plimsoll_core::{
    plan::{Plan, Remedy},
    views::plan::Advice,
};

use super::plans::Search;
use crate::launch::{Setting, Stop};

impl Search<'_> {
    /// What the script would need with each change that it bears.
    pub(super) fn advice(&mut self) -> anyhow::Result<Vec<Advice>> {
        let all: [&[&'static str]; 6] = [
            &["shorter-sequence"],
            &["lora"],
            &["lora", "quantization"],
            &["smaller-model"],
            &["depthwise"],
            &["pruning"],
        ];
        let mut res = Vec::new();
        for ids in all {
            if self.interrupted {
                break;
            }
            // Shorter batches are the data's matter, not a remedy in the process.
            let (data, model): (Vec<&str>, Vec<&'static str>) =
                ids.iter().copied().partition(|it| *it == "shorter-sequence");
            let remedies = model.into_iter().map(Remedy::plain);
            let half: Setting = ("PLIMSOLL_WORST_SEQ", "half".into());
            let more: Vec<Setting> = data.iter().map(|_| half.clone()).collect();
            let trial = self.trial(&Plan::of(remedies.collect()), Stop::Steady, &more)?;
            if self.interrupted || trial.failure.is_some() || trial.n_ooms != 0 {
                continue;
            }
            let needs = self.needs(&trial.prediction);
            self.say(&format!("advice {}: needs {needs}", ids.join(" + ")));
            res.push(Advice { ids: ids.to_vec(), needs, fits: needs <= self.most });
        }
        Ok(res)
    }
}
