//! What came nearest, for when nothing fits.

use super::{candidate::Candidate, program::Program};

/// So many of those that came near are run to see what they need.
const MOST_RUN_THROUGH: usize = 3;

/// The candidate that needs least, of those whose runs went on long enough to tell.
pub(super) async fn nearest(program: &mut Program) -> Option<Candidate> {
    for _ in 0..MOST_RUN_THROUGH {
        let nearest = does_not_fit(program).min_by_key(|it| it.needs).cloned();
        let Some(mut it) = nearest.filter(|it| !is_known(it) && !program.interrupted) else {
            break;
        };
        // How much more it needs than was seen is not known yet.
        if it.refuted.is_some() {
            program.sees_what_it_needs(&mut it).await;
        } else {
            program.run_through(&it.plan).await;
        }
    }
    does_not_fit(program).filter(|it| is_known(it)).min_by_key(|it| it.needs).cloned()
}

fn is_known(it: &Candidate) -> bool {
    it.cut_after.is_none() && it.refuted.is_none()
}

/// One that needs no more than there is and ran out on the card all the same is left out: what it needs there, nobody saw.
fn does_not_fit(program: &Program) -> impl Iterator<Item = &Candidate> {
    let most = program.rules.most();
    program.tried().iter().filter(move |it| !is_known(it) || most < it.needs)
}
