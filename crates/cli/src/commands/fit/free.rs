//! Remedies that cost no time and next to nothing in the numbers: all that suit a program are used from the start, and
//! those go again that are not needed.

use plimsoll_core::plan::{Plan, Remedy};

use super::plans::Search;

/// They cost no time worth telling.
const FREE: [&str; 7] =
    ["fused", "foreach", "set-to-none", "chunked-loss", IN_PLACE, "attention", "bucket-view"];
const IN_PLACE: &str = "inplace-activations";

impl Search<'_> {
    /// Those of them that this program bears. All at once, since most programs bear them; one by one only where that
    /// does not run.
    pub(super) fn free(&mut self) -> anyhow::Result<Vec<Remedy>> {
        let fuses = self.may("fused") && self.suits("fused");
        let update = if fuses { "fused" } else { "foreach" };
        // What these overwrite would often have been freed anyway, and some models then take more.
        let mut saves_in_place = false;
        if self.may(IN_PLACE) && self.suits(IN_PLACE) {
            let alone = self.run_through(&Plan::of(vec![Remedy::plain(IN_PLACE)]))?;
            saves_in_place = alone.is_some_and(|it| it.needs < self.plain_needs);
        }
        let all = [update, "set-to-none", "chunked-loss", "attention", IN_PLACE, "bucket-view"];
        let together = self.those_that_suit(&all, saves_in_place);
        let together: Vec<Remedy> = together.into_iter().map(Remedy::plain).collect();
        if 1 < together.len() && self.run(&Plan::of(together.clone()))?.is_some() {
            return Ok(together);
        }
        let mut res: Vec<Remedy> = Vec::new();
        for id in self.those_that_suit(&FREE, saves_in_place) {
            let other_form = id == "foreach" && res.iter().any(|it| it.id == "fused");
            if other_form || self.interrupted {
                continue;
            }
            let plan = Plan::of(vec![Remedy::plain(id)]);
            if self.run(&plan)?.is_some() {
                res.extend(plan.remedies);
            }
        }
        Ok(res)
    }

    fn those_that_suit(&self, all: &[&'static str], saves_in_place: bool) -> Vec<&'static str> {
        let saves = |it: &str| it != IN_PLACE || saves_in_place;
        let suits = |it: &&&str| self.may(it) && self.suits(it) && saves(it);
        all.iter().filter(suits).copied().collect()
    }

    /// Whether the program has a use for it.
    pub(super) fn suits(&self, id: &str) -> bool {
        match id {
            "bucket-view" => self.sites.has("distributed") && !self.left_out.has(id),
            id => !self.left_out.has(id),
        }
    }
}

/// Whether it costs no time worth telling.
pub(super) fn is_free(id: &str) -> bool {
    FREE.contains(&id)
}
