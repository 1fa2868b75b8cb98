//! `--worst-seq`: the sequence length of the worst batch, by which a run is judged.

use std::{fmt, str::FromStr};

use crate::contract::{self, Setting};

/// How long every batch is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorstSequence {
    /// So many entries.
    Of(u32),
    /// As long as the longest that the data loader shows.
    Longest,
    /// As long as its own longest text: what is padding in all texts of a batch is cut off.
    Text,
}

impl WorstSequence {
    /// As the agent reads it.
    pub(crate) fn setting(self) -> Setting {
        (contract::BATCH_LENGTH, self.to_string().into())
    }
}

impl fmt::Display for WorstSequence {
    /// As the user writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorstSequence::Of(length) => length.fmt(f),
            WorstSequence::Longest => f.write_str("longest"),
            WorstSequence::Text => f.write_str("text"),
        }
    }
}

impl FromStr for WorstSequence {
    type Err = String;

    fn from_str(given: &str) -> Result<WorstSequence, String> {
        match (given, given.replace('_', "").parse()) {
            ("longest", _) => Ok(WorstSequence::Longest),
            ("text", _) => Ok(WorstSequence::Text),
            (_, Ok(length @ 1..)) => Ok(WorstSequence::Of(length)),
            _ => Err("expected a length, as in `2048`, `longest` or `text`".to_owned()),
        }
    }
}
