//! Reads a plan.

use std::{fs, path::Path};

use anyhow::Context as _;
use plimsoll_core::plan::Plan;

use crate::cache;

pub(super) fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        anyhow::anyhow!("cannot read the plan {shown}: {}", cache::reason(&error))
    })?;
    Plan::parse(&text).with_context(|| format!("cannot read the plan {shown}"))
}
