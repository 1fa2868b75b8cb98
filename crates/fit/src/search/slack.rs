//! Plans that are only too large by what PyTorch keeps for later: where the card is full it gives that back and goes on, which takes time. They are looked at
//! where batches differ in size and nothing else fits.

use super::{candidate::Candidate, program::Program, proof};

/// So many are run.
const MOST: usize = 3;

/// Those that get through, which `fits_once_more` is still to be asked of.
pub(super) async fn plans(program: &mut Program) -> Vec<Candidate> {
    if !program.known.sizes_differ || program.rules.gpus != 1 {
        return Vec::new();
    }
    let most = program.rules.most();
    let is_slack = |it: &&Candidate| {
        let is_new =
            !it.plan.remedies.is_empty() && !program.known.with_less_kept.contains(&it.plan);
        is_new && !it.fits && it.cut_after.is_none() && program.needs_at_least(&it.took) <= most
    };
    let mut near: Vec<Candidate> = program.tried().iter().filter(is_slack).cloned().collect();
    near.sort_by_key(|it| (it.plan.remedies.len(), program.needs_at_least(&it.took)));
    let mut res = Vec::new();
    for it in near.iter().take(MOST) {
        program.known.with_less_kept.push(it.plan.clone());
        if let Some(mut it) = program.with_less_kept(it).await
            && proof::fits_again(program, &mut it).await
        {
            res.push(it);
            break;
        }
    }
    res
}
