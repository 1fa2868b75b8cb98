//! A plan: remedies that are applied together, in words and for the agent.

use plimsoll_remedies::{self as remedies, Numbers, Value, find};
use serde_json::json;

use super::remedy::Remedy;
use crate::{recording::FirstStep, units::Bytes};

/// The version of a plan, in its file and for the agent.
pub const VERSION: i64 = 1;

/// An ordered set of remedies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they are told to a person.
    pub remedies: Vec<Remedy>,
    /// What its run on the phantom reserved at most, if it was run.
    pub predicted_reserved: Option<Bytes>,
    /// What the first step of that run took, and what that depends on.
    pub first_step: Option<FirstStep>,
}

impl Plan {
    /// A plan that was not run yet.
    pub fn of(remedies: Vec<Remedy>) -> Plan {
        Plan { remedies, ..Plan::default() }
    }

    /// The remedies in a few words.
    pub fn shown(&self) -> String {
        let all: Vec<String> = self.remedies.iter().map(Remedy::shown).collect();
        if all.is_empty() { "the unchanged script".to_owned() } else { all.join(" + ") }
    }

    /// What it changes in the numbers: the strongest of its remedies.
    pub fn numbers(&self) -> Numbers {
        let of = |it: &Remedy| find(it.id).map_or(Numbers::Same, |it| it.numbers);
        self.remedies.iter().map(of).max().unwrap_or(Numbers::Same)
    }

    /// What the agent reads (`PLIMSOLL_PLAN`).
    pub fn for_agent(&self) -> String {
        let remedies: Vec<serde_json::Value> = self
            .remedies
            .iter()
            .map(|change| {
                let mut res = serde_json::Map::new();
                res.insert("id".to_owned(), json!(change.id));
                for parameter in &change.parameters {
                    let value = match parameter.value() {
                        Value::Number(n) => json!(n),
                        Value::Numbers(all) => json!(all),
                        Value::Text(text) => json!(text),
                    };
                    res.insert(parameter.takes().name.to_owned(), value);
                }
                serde_json::Value::Object(res)
            })
            .collect();
        json!({ "version": VERSION, "remedies": remedies }).to_string()
    }

    /// How many processes run the script, a device each; none for the one that the command starts.
    pub fn gpus(&self) -> Option<u32> {
        let is_shared =
            |it: &&Remedy| find(it.id).is_some_and(|it| it.devices == remedies::Devices::Shares);
        let several = self.remedies.iter().filter(is_shared);
        several.filter_map(|it| u32::try_from(it.gpus()?).ok()).find(|it| 1 < *it)
    }

    /// What PyTorch's allocator is told (`PYTORCH_CUDA_ALLOC_CONF`), if the plan says so.
    pub fn alloc_conf(&self) -> Option<&str> {
        self.remedies.iter().find(|it| it.id == remedies::ALLOCATOR)?.settings()
    }
}
