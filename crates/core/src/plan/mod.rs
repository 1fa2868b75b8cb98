//! What to change so that a run fits: remedies, plans that combine them, and the search for the best one.
//! Nothing here says how much memory something takes; that is what a run on the phantom is for.

pub mod blocks;
mod change;
mod drift;
mod file;
pub mod largest;
pub mod search;
mod strange;
mod time;

pub use crate::recording::Work;
pub use change::{Change, Line, Places, Recipe, Sources, Switch, change};
pub use drift::{Drift, drift};
pub use file::PlanError;
pub use plimsoll_remedies as remedies;
pub use plimsoll_remedies::{CATALOGUE, Kind, Numbers, Offer, Op, Parameter, Point, Value, find};
pub use time::{Factor, factor, seconds};

use serde_json::json;

use crate::{recording::FirstStep, units::Bytes};

/// The version of a plan, in its file and for the agent.
pub const VERSION: i64 = 1;

/// One technique, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Which.
    pub id: &'static str,
    /// Its parameters, each once; its row says which it takes.
    pub parameters: Vec<Parameter>,
}

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

impl Remedy {
    /// One without parameters; `id` is in the catalogue.
    pub fn plain(id: &'static str) -> Remedy {
        Remedy { id, parameters: Vec::new() }
    }

    /// The same with one parameter more.
    #[must_use]
    pub fn with(mut self, parameter: Parameter) -> Remedy {
        self.parameters.push(parameter);
        self
    }

    /// In how many parts the batch goes through the model, if it says so.
    pub fn parts(&self) -> Option<u64> {
        self.parameters.iter().find_map(|it| match it {
            Parameter::Parts(n) => Some(*n),
            _ => None,
        })
    }

    /// The blocks that it is about, if not all.
    pub fn blocks(&self) -> Option<&[u64]> {
        self.parameters.iter().find_map(|it| match it {
            Parameter::Blocks(all) => Some(all.as_slice()),
            _ => None,
        })
    }

    /// How many devices it needs, if it says so.
    pub fn gpus(&self) -> Option<u64> {
        self.parameters.iter().find_map(|it| match it {
            Parameter::Gpus(n) => Some(*n),
            _ => None,
        })
    }

    /// At which point of the loop it acts, if it says so.
    pub fn after(&self) -> Option<Point> {
        self.parameters.iter().find_map(|it| match it {
            Parameter::After(point) => Some(*point),
            _ => None,
        })
    }

    /// What it adds to `PYTORCH_CUDA_ALLOC_CONF`.
    pub fn settings(&self) -> Option<&str> {
        self.parameters.iter().find_map(|it| match it {
            Parameter::Settings(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// What a person would write for it, in plain PyTorch.
    pub fn snippet(&self) -> String {
        match (self.id, self.settings()) {
            (remedies::ALLOCATOR, Some(it)) => format!("export PYTORCH_CUDA_ALLOC_CONF={it}"),
            _ => find(self.id).map_or_else(String::new, |it| it.snippet().to_owned()),
        }
    }

    /// In a few words, as in `micro-batches (4 parts)`.
    pub fn shown(&self) -> String {
        let detail = self.parameters.iter().map(|parameter| match (parameter, parameter.value()) {
            (_, Value::Number(n)) => format!("{n} {}", parameter.takes().name),
            (_, Value::Numbers(all)) => format!("{} {}", all.len(), parameter.takes().name),
            (Parameter::After(_), Value::Text(word)) => format!("after {word}"),
            (_, Value::Text(text)) => text,
        });
        let detail: Vec<String> = detail.collect();
        if detail.is_empty() {
            self.id.to_owned()
        } else {
            format!("{} ({})", self.id, detail.join(", "))
        }
    }
}

impl Plan {
    /// A plan that was not run yet.
    pub fn of(remedies: Vec<Remedy>) -> Plan {
        Plan { remedies, ..Plan::default() }
    }

    /// The remedies in a few words.
    pub fn shown(&self) -> String {
        let all: Vec<String> = self.remedies.iter().map(Remedy::shown).collect();
        if all.is_empty() { "the script as it is".to_owned() } else { all.join(" + ") }
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
            .map(|it| {
                let mut res = serde_json::Map::new();
                res.insert("id".to_owned(), json!(it.id));
                for parameter in &it.parameters {
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
