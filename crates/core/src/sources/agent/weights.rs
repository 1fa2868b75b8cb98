//! What the agent noted of a model's weights.

use serde::Deserialize;

use super::lines::{clipped, or_default};
use crate::{
    recording::{Skip, Unfrozen, WeightsNote, WideWeights},
    sources::json_lines::one_line,
    units::Bytes,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WeightsLine {
    #[serde(deserialize_with = "or_default")]
    model: String,
    #[serde(deserialize_with = "or_default")]
    packed: u64,
    #[serde(deserialize_with = "or_default")]
    packed_modules: u64,
    #[serde(deserialize_with = "or_default")]
    wide: Vec<WideLine>,
    #[serde(deserialize_with = "or_default")]
    adapters: u64,
    #[serde(deserialize_with = "or_default")]
    uncalled: u64,
    #[serde(deserialize_with = "or_default")]
    unfrozen: UnfrozenLine,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WideLine {
    #[serde(rename = "where", deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    class: String,
    #[serde(deserialize_with = "or_default")]
    bits: u32,
    #[serde(deserialize_with = "or_default")]
    table: bool,
    #[serde(deserialize_with = "or_default")]
    tensors: u64,
    #[serde(deserialize_with = "or_default")]
    bytes: u64,
    #[serde(deserialize_with = "or_default")]
    skip: Option<SkipLine>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SkipLine {
    #[serde(deserialize_with = "or_default")]
    list: String,
    #[serde(deserialize_with = "or_default")]
    by: String,
    #[serde(deserialize_with = "or_default")]
    entries: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UnfrozenLine {
    #[serde(deserialize_with = "or_default")]
    tensors: u64,
    #[serde(deserialize_with = "or_default")]
    bytes: u64,
    first: Option<String>,
}

impl From<WeightsLine> for WeightsNote {
    fn from(it: WeightsLine) -> WeightsNote {
        let name = |it: String| clipped(one_line(it));
        let wide = |wide: WideLine| WideWeights {
            name: name(wide.name),
            class: name(wide.class),
            bits: wide.bits,
            is_table: wide.table,
            tensors: wide.tensors,
            bytes: Bytes(wide.bytes),
            skip: wide.skip.map(|skip| Skip {
                list: name(skip.list),
                is_of_checkpoint: skip.by == "checkpoint",
                entries: skip.entries.into_iter().map(name).collect(),
            }),
        };
        WeightsNote {
            model: name(it.model),
            packed: Bytes(it.packed),
            packed_modules: it.packed_modules,
            wide: it.wide.into_iter().map(wide).collect(),
            adapters: Bytes(it.adapters),
            uncalled: Bytes(it.uncalled),
            unfrozen: Unfrozen {
                tensors: it.unfrozen.tensors,
                bytes: Bytes(it.unfrozen.bytes),
                first: it.unfrozen.first.map(name),
            },
        }
    }
}
