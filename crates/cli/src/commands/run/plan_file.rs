//! Reads a plan.

use std::path::Path;

use anyhow::Context as _;
use plimsoll_core::plan::Plan;

use crate::{cache, files::bounded_file};

pub(super) fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let shown = path.display();
    let text = bounded_file::text(path, bounded_file::WRITTEN_BY_HAND).map_err(|error| {
        anyhow::anyhow!("cannot read the plan {shown}: {}", cache::reason(&error))
    })?;
    Plan::parse(&text).with_context(|| format!("cannot read the plan {shown}"))
}
