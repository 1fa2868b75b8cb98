//! What came nearest, for when nothing fits.

use super::{candidate::Candidate, program::Program};

/// So many of those that came near are run to see what they need.
const MOST_RUN_THROUGH: usize = 3;

/// The candidate that needs least, of those whose runs went on long enough to tell.
pub(super) async fn nearest(program: &mut Program) -> Option<Candidate> {
    for _ in 0..MOST_RUN_THROUGH {
        let nearest = program.tried().iter().min_by_key(|it| it.needs);
        let Some(it) = nearest.filter(|it| it.cut_after.is_some() && !program.interrupted) else {
            break;
        };
        // How much more it needs than was seen is not known yet.
        let plan = it.plan.clone();
        program.run_through(&plan).await;
    }
    let is_known = program.tried().iter().filter(|it| it.cut_after.is_none());
    is_known.min_by_key(|it| it.needs).cloned()
}
