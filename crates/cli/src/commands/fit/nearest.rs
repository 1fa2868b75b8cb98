//! What came nearest, for when nothing fits.

use super::{plans::Search, ranking::Candidate};

/// So many of those that came near are run to see what they need.
const MOST_RUN_THROUGH: usize = 3;

impl Search<'_> {
    /// The candidate that needs least, of those whose runs went on long enough to tell.
    pub(super) fn nearest(&mut self) -> anyhow::Result<Option<Candidate>> {
        for _ in 0..MOST_RUN_THROUGH {
            let nearest = self.tried.iter().min_by_key(|it| it.needs);
            let Some(it) = nearest.filter(|it| it.cut_after.is_some() && !self.interrupted) else {
                break;
            };
            // How much more it needs than was seen is not known yet.
            let plan = it.plan.clone();
            self.run_through(&plan)?;
        }
        let is_known = self.tried.iter().filter(|it| it.cut_after.is_none());
        Ok(is_known.min_by_key(|it| it.needs).cloned())
    }
}
