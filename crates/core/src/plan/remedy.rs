//! One technique of a plan, with its parameters.

use plimsoll_remedies::{self as remedies, Parameter, Point, Value, find};

/// One technique, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Which.
    pub id: &'static str,
    /// Its parameters, each once; its row says which it takes.
    pub parameters: Vec<Parameter>,
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
        self.parameters.iter().find_map(|parameter| match parameter {
            Parameter::Parts(n) => Some(*n),
            _ => None,
        })
    }

    /// The blocks that it is about, if not all.
    pub fn blocks(&self) -> Option<&[u64]> {
        self.parameters.iter().find_map(|parameter| match parameter {
            Parameter::Blocks(all) => Some(all.as_slice()),
            _ => None,
        })
    }

    /// How many devices it needs, if it says so.
    pub fn gpus(&self) -> Option<u64> {
        self.parameters.iter().find_map(|parameter| match parameter {
            Parameter::Gpus(n) => Some(*n),
            _ => None,
        })
    }

    /// At which point of the loop it acts, if it says so.
    pub fn after(&self) -> Option<Point> {
        self.parameters.iter().find_map(|parameter| match parameter {
            Parameter::After(point) => Some(*point),
            _ => None,
        })
    }

    /// What it adds to `PYTORCH_CUDA_ALLOC_CONF`.
    pub fn settings(&self) -> Option<&str> {
        self.parameters.iter().find_map(|parameter| match parameter {
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
            (_, Value::Number(n)) => counted(n, parameter.takes().name),
            (_, Value::Numbers(all)) => counted(all.len() as u64, parameter.takes().name),
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

/// `1 block`, `2 blocks`.
fn counted(n: u64, plural: &str) -> String {
    let name = if n == 1 { plural.strip_suffix('s').unwrap_or(plural) } else { plural };
    format!("{n} {name}")
}
