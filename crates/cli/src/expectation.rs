//! What a run is expected to take, as somebody says it: in a file that plimsoll wrote, or as a size.

use std::{path::Path, str::FromStr};

use plimsoll_core::{plan::Plan, units::Bytes};
use serde_json::Value;

use crate::{bounded_file, reason::reason};

/// What PyTorch is expected to reserve at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    pub(crate) reserved: Bytes,
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(given: &str) -> Result<Expectation, String> {
        let path = Path::new(given);
        if !path.exists()
            && let Ok(reserved) = given.parse()
        {
            return Ok(Expectation { reserved });
        }
        let text = bounded_file::text(path, bounded_file::REPORT)
            .map_err(|error| format!("cannot read {given}: {}", reason(&error)))?;
        let of_prediction =
            || serde_json::from_str::<Value>(&text).ok()?["peak_reserved_bytes"].as_u64();
        let of_plan = || Plan::parse(&text).ok()?.predicted_reserved;
        let reserved = of_prediction().map(Bytes).or_else(of_plan).ok_or_else(|| {
            format!("{given} says nothing of what is reserved; expected a plan or the JSON of `plimsoll predict`")
        })?;
        Ok(Expectation { reserved })
    }
}
