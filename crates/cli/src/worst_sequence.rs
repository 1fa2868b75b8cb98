//! `--worst-seq`: the sequence length of the worst batch, by which a run is judged.

use std::{fmt, str::FromStr};

use crate::{
    contract::{self, Setting},
    trials::Trial,
};

/// How long every batch is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorstSequence {
    /// So many entries.
    Of(u32),
    /// As long as the longest that the data loader shows.
    Longest,
}

impl WorstSequence {
    /// As the agent reads it.
    pub(crate) fn setting(self) -> Setting {
        (contract::WORST_SEQ, self.to_string().into())
    }
}

impl fmt::Display for WorstSequence {
    /// As the user writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorstSequence::Of(length) => length.fmt(f),
            WorstSequence::Longest => f.write_str("longest"),
        }
    }
}

/// What was done to the batches of this run, in one sentence.
pub(crate) fn what_was_done(trial: &Trial) -> Option<String> {
    let noted = trial.noted("worst")?;
    let length = noted["length"].as_u64()?;
    let where_ = match noted["how"].as_str()? {
        "loader" => "the DataLoader gives",
        _ => "the model is called with",
    };
    let tensors: Vec<&str> =
        noted["tensors"].as_array()?.iter().filter_map(serde_json::Value::as_str).collect();
    Some(match tensors.as_slice() {
        [] => format!(
            "every batch that {where_} is at least {length} long already: none was made longer"
        ),
        all => format!("every batch that {where_} is made {length} long: {}", all.join(", ")),
    })
}

impl FromStr for WorstSequence {
    type Err = String;

    fn from_str(given: &str) -> Result<WorstSequence, String> {
        match (given, given.replace('_', "").parse()) {
            ("longest", _) => Ok(WorstSequence::Longest),
            (_, Ok(length @ 1..)) => Ok(WorstSequence::Of(length)),
            _ => Err("expected a length, as in `2048`, or `longest`".to_owned()),
        }
    }
}
