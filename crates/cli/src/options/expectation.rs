//! What a run is expected to take, as somebody says it: in a file that plimsoll wrote, or as a size.

use std::{path::Path, str::FromStr};

use plimsoll_core::{
    plan::{Plan, PlanError},
    units::Bytes,
};
use serde_json::Value;

use crate::{
    files::{bounded_file, reason::reason},
    options::size::size,
};

/// What PyTorch is expected to reserve at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    pub(crate) reserved: Bytes,
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(given: &str) -> Result<Expectation, String> {
        let path = Path::new(given);
        if !path.exists() && given.parse::<Bytes>().is_ok() {
            return Ok(Expectation { reserved: size(given)? });
        }
        let text = bounded_file::text(path, bounded_file::REPORT)
            .map_err(|error| {
                format!("cannot read {given} ({}); expected a size, as in `9GiB`, a plan, or the JSON of `plimsoll predict`", reason(&error))
            })?;
        let of_prediction =
            || serde_json::from_str::<Value>(&text).ok()?["peak_reserved_bytes"].as_u64();
        let of_plan = match Plan::parse(&text) {
            Ok(plan) => plan.predicted_reserved,
            Err(error @ PlanError::Wrong { .. }) => {
                return Err(format!("cannot read the plan {given}: {error}"));
            }
            Err(_) => None,
        };
        let reserved = of_prediction().map(Bytes).or(of_plan).ok_or_else(|| {
            format!(
                "{given} has no reserved memory; expected a size, as in `9GiB`, a plan, or the JSON of `plimsoll predict`"
            )
        })?;
        Ok(Expectation { reserved })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_plan_with_a_slip_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().parse::<Expectation>()
        };
        let plan = "version = 1\npredicted_reserved_bytes = 7\n";
        assert_eq!(read(plan).unwrap().reserved, Bytes(7));
        let error = read(&(plan.to_owned() + "[[remedy]]\nid = \"sdg\"\n")).unwrap_err();
        assert!(
            error.ends_with("line 4: there is no remedy \"sdg\"; did you mean `sgd`?"),
            "{error}"
        );
        assert!(read("anything").unwrap_err().contains("has no reserved memory"));
    }
}
