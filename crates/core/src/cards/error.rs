//! What can be wrong with a card's name or description.

use crate::{spelling::did_you_mean_or, units::Bytes};

/// A card that could not be found or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// No card has this name.
    #[error(
        "no card is called {given:?}{}{}{}",
        size(.given),
        .instead.as_ref().map_or_else(String::new, |it| format!("; the nearest is `{it}`")),
        did_you_mean_or(.near, &format!(
            "`plimsoll cards{}` lists them",
            .family.as_ref().map_or_else(String::new, |it| format!(" {it}"))
        ))
    )]
    NoSuchCard {
        /// What was given.
        given: String,
        /// The nearest names that exist, nearest first.
        near: Vec<String>,
        /// The options of a command that take the nearest card of its generation in its place.
        instead: Option<String>,
        /// The word with which `plimsoll cards` lists cards whose names begin in the same way.
        family: Option<String>,
    },
    /// A device that is no card of NVIDIA's with a memory of its own.
    #[error("{given:?} cannot be imitated: {why}")]
    NotImitated {
        /// What was given.
        given: String,
        /// Why.
        why: &'static str,
    },
    /// A card cannot be cut like this.
    #[error(
        "{card} has no slice {given:?};{} a share of a card is written as in `{card}/0.5`",
        it_has(.has)
    )]
    NoSuchProfile {
        /// The card.
        card: String,
        /// What was given.
        given: String,
        /// The slices that there are.
        has: Vec<String>,
    },
    /// No chip has this name.
    #[error("`chip`: found {given:?}; expected one of {}", .known.join(", "))]
    NoSuchChip {
        /// What was given.
        given: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The text is not TOML, or a value has the wrong type.
    #[error("not a card file: {0}")]
    Toml(String),
    /// A key that cards do not have.
    #[error("line {line}: a card has no key {key:?}{}", did_you_mean_or(.near, &format!("it has {}", KEYS.join(", "))))]
    UnknownKey {
        /// What was given.
        key: String,
        /// The nearest keys that exist.
        near: Vec<String>,
        /// The line it stands on, from 1.
        line: usize,
    },
    /// A key that has no default is missing.
    #[error(
        "the card lacks `{key}`; give it, or start from a card of the catalogue with `like = \"rtx4090\"`"
    )]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A value that no card can have.
    #[error("`{key}`: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What was found and what was expected.
        why: String,
    },
}

/// The keys of a card file, in the order of the manual.
pub(super) const KEYS: [&str; 35] = [
    "format",
    "id",
    "aliases",
    "usual",
    "like",
    "name",
    "chip",
    "compute_capability",
    "total",
    "total_known",
    "kept",
    "hidden",
    "context",
    "context_known",
    "blas",
    "dnn",
    "sm_count",
    "clusters",
    "gpcs",
    "max_threads_per_sm",
    "max_blocks_per_sm",
    "shared_per_block_optin",
    "shared_per_sm",
    "registers_per_sm",
    "l2",
    "clock_mhz",
    "memory_clock_mhz",
    "memory_bus_bits",
    "link_per_second",
    "between_per_second",
    "host_step_us",
    "nccl",
    "cudnn_known",
    "source",
    "memory",
];

fn it_has(slices: &[String]) -> String {
    if slices.is_empty() { String::new() } else { format!(" it has `{}`;", slices.join("`, `")) }
}

/// Where to give a size, if that is one.
fn size(given: &str) -> String {
    let has_unit = given.ends_with(|it: char| it.is_ascii_alphabetic());
    if has_unit && given.parse::<Bytes>().is_ok() {
        format!("; for a size: `--memory {given}`")
    } else {
        String::new()
    }
}
