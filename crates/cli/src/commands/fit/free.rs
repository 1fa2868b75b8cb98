//! Remedies that cost no time and next to nothing in the numbers: all that suit a program are used from the start, and
//! those go again that are not needed.

use plimsoll_core::plan::{Plan, Remedy};

use super::plans::Search;

/// They cost no time worth telling.
const FREE: [&str; 7] = [
    "fused",
    "foreach",
    "set-to-none",
    "chunked-loss",
    "inplace-activations",
    "attention",
    "bucket-view",
];
/// Remedies that only some programs have a use for; the agent says which.
const OF_SOME: [&str; 4] = ["optimizer-8bit", "channels-last", "inplace-activations", "attention"];

impl Search<'_> {
    /// Those of them that this program bears. All at once, since
    /// most programs bear them; one by one only where that does not run.
    pub(super) fn free(&mut self) -> anyhow::Result<Vec<Remedy>> {
        let update = if self.may("fused") { "fused" } else { "foreach" };
        let other = if update == "fused" { "foreach" } else { "fused" };
        let all = FREE.into_iter().filter(|it| *it != other);
        let all = all.filter(|it| self.may(it) && self.suits(it));
        let together: Vec<Remedy> = all.map(Remedy::plain).collect();
        if 1 < together.len() && self.run(&Plan::of(together.clone()))?.is_some() {
            return Ok(together);
        }
        let mut res: Vec<Remedy> = Vec::new();
        for id in FREE {
            let other_form = id == "foreach" && res.iter().any(|it| it.id == "fused");
            if !self.may(id) || !self.suits(id) || other_form || self.interrupted {
                continue;
            }
            let plan = Plan::of(vec![Remedy::plain(id)]);
            if self.run(&plan)?.is_some() {
                res.extend(plan.remedies);
            }
        }
        Ok(res)
    }

    /// Whether the program has a use for it.
    pub(super) fn suits(&self, id: &str) -> bool {
        match id {
            "bucket-view" => self.sites.has("distributed"),
            id => !OF_SOME.contains(&id) || self.suited.iter().any(|it| it == id),
        }
    }
}

/// Whether it costs no time worth telling.
pub(super) fn is_free(id: &str) -> bool {
    FREE.contains(&id)
}
