//! Changes of the allocator alone: a replay of a run's recording says which would have made it fit, and a run proves it.

use plimsoll_core::{
    plan::{Parameter, Plan, Remedy, remedies},
    prediction::{Tuned, Tuning},
};

use super::{candidate::Candidate, ladder, program::Program};

/// So many of the settings that a replay is content with are run.
const MOST_SETTINGS: usize = 2;

/// What every plan of a program begins with whose batches differ in size, or of which much is kept for later; nothing for others.
pub(super) fn first(program: &Program) -> Vec<Remedy> {
    let uses = program.may(remedies::ALLOCATOR) && program.suits(remedies::ALLOCATOR);
    let wants = program.wants_allocator() && uses;
    let settings = Tuning::Settings(ladder::EXPANDABLE.to_owned());
    wants.then(|| remedy(&settings)).into_iter().collect()
}

/// `it` if it fits; else the same with the first change of the allocator that makes it fit.
pub(super) async fn tuned(program: &mut Program, it: Candidate) -> Option<Candidate> {
    if it.fits {
        return Some(it);
    }
    let (settings, emptied): (Vec<&Tuned>, Vec<&Tuned>) =
        it.tunings.iter().partition(|it| matches!(it.tuning, Tuning::Settings(_)));
    let tried = settings.into_iter().take(MOST_SETTINGS).chain(emptied.into_iter().take(1));
    for tuned in tried {
        let remedy = remedy(&tuned.tuning);
        if !program.may(remedy.id) || program.interrupted {
            continue;
        }
        let mut remedies = it.plan.remedies.clone();
        remedies.retain(|it| it.id != remedy.id);
        remedies.push(remedy);
        if let Some(it) = program.run(&Plan::of(remedies)).await.filter(|it| it.fits) {
            return Some(it);
        }
    }
    None
}

fn remedy(tuning: &Tuning) -> Remedy {
    match tuning {
        Tuning::Settings(text) => {
            Remedy::plain(remedies::ALLOCATOR).with(Parameter::Settings(text.clone()))
        }
        Tuning::EmptyCache(after) => {
            Remedy::plain(remedies::EMPTY_CACHE).with(Parameter::After(*after))
        }
    }
}
