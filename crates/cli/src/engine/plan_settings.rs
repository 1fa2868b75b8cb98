//! A plan, as its file has it, and as the environment of a run has it: for the agent, and for PyTorch's allocator.

use std::{env, ffi::OsString, path::Path};

use anyhow::Context as _;
use plimsoll_core::plan::Plan;

use crate::{
    cache,
    contract::{self, Setting},
    engine::launch,
    files::bounded_file,
};

/// The variable that holds the allocator's settings.
pub(crate) const ALLOC_CONF: &str = "PYTORCH_CUDA_ALLOC_CONF";
/// The name of the same variable since torch 2.9, which goes before the older one there.
const NEWER_ALLOC_CONF: &str = "PYTORCH_ALLOC_CONF";

/// The plan in this file.
pub(crate) fn read(path: &Path) -> anyhow::Result<Plan> {
    let shown = path.display();
    let text = bounded_file::text(path, bounded_file::WRITTEN_BY_HAND).map_err(|error| {
        anyhow::anyhow!("cannot read the plan {shown}: {}", cache::reason(&error))
    })?;
    Plan::parse(&text).with_context(|| format!("cannot read the plan {shown}"))
}

/// What the environment of the command `words` has more for `plan`.
pub(crate) fn settings(plan: &Plan, words: &[OsString]) -> Vec<Setting> {
    let before = launch::assignments(words).0;
    let own = |name: &str| {
        let before = before.iter().rev().find(|it| it.0 == name).map(|it| it.1.clone());
        let own = before.or_else(|| env::var_os(name))?.into_string().ok()?;
        Some(own).filter(|it| !it.is_empty())
    };
    settings_with(plan, own(ALLOC_CONF), own(NEWER_ALLOC_CONF))
}

/// What the user set stays, except where the plan says otherwise: of two values the later one holds.
fn settings_with(plan: &Plan, own: Option<String>, newer: Option<String>) -> Vec<Setting> {
    let mut res = Vec::new();
    if !plan.remedies.is_empty() {
        res.push((contract::PLAN, plan.for_agent().into()));
    }
    let Some(conf) = plan.alloc_conf() else { return res };
    let with = |own: Option<&String>| own.map_or(conf.to_owned(), |own| format!("{own},{conf}"));
    res.push((ALLOC_CONF, with(newer.as_ref().or(own.as_ref())).into()));
    if newer.is_some() {
        res.push((NEWER_ALLOC_CONF, with(newer.as_ref()).into()));
    }
    res
}

#[cfg(test)]
mod tests {
    use plimsoll_core::plan::{Parameter, Remedy};

    use super::*;

    fn conf(own: Option<&str>, newer: Option<&str>) -> Vec<String> {
        let settings = Parameter::Settings("expandable_segments:True".to_owned());
        let plan = Plan::of(vec![Remedy::plain("allocator").with(settings)]);
        let all = settings_with(&plan, own.map(str::to_owned), newer.map(str::to_owned));
        let shown = |(name, value): &Setting| format!("{name}={}", value.to_string_lossy());
        all.iter().skip(1).map(shown).collect()
    }

    #[test]
    fn what_the_user_set_stays_under_either_name() {
        assert_eq!(conf(None, None), ["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"]);
        assert_eq!(
            conf(Some("max_split_size_mb:64"), None),
            ["PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"]
        );
        assert_eq!(
            conf(Some("max_split_size_mb:64"), Some("roundup_power2_divisions:4")),
            [
                "PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:4,expandable_segments:True",
                "PYTORCH_ALLOC_CONF=roundup_power2_divisions:4,expandable_segments:True"
            ]
        );
    }
}
