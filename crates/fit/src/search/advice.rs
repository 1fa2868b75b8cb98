//! What only a person can decide, with what it would take: each is run on the phantom as it would be written, and never
//! becomes part of a plan.

use plimsoll_core::{
    plan::{
        CATALOGUE, Plan, Remedy,
        remedies::{self, Role},
    },
    units::Bytes,
};

use super::{
    ask::{Half, Run, Until},
    program::Program,
};

/// What is tried, each with what goes with it.
fn all() -> impl Iterator<Item = Vec<&'static str>> {
    let advice = CATALOGUE.iter().filter(|it| it.role == Role::Advice);
    advice.map(|it| it.beside.into_iter().chain([it.id]).collect())
}

/// What this makes half of a batch; nothing if it is about the model.
fn half(id: &str) -> Option<Half> {
    match id {
        remedies::SHORTER_SEQUENCE => Some(Half::Length),
        remedies::SMALLER_BATCH => Some(Half::Samples),
        remedies::SMALLER_IMAGES => Some(Half::Size),
        _ => None,
    }
}

/// Another model or other data, as it ran on the phantom.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Remedies that are done by hand.
    pub ids: Vec<&'static str>,
    /// What of the limit the script would need with them, allowance included.
    pub needs: Bytes,
    /// Whether that is there.
    pub fits: bool,
}

/// What the script would need with each change that it bears.
pub(super) async fn advice(program: &mut Program) -> Vec<Advice> {
    let mut res = Vec::new();
    for ids in all() {
        if program.interrupted {
            break;
        }
        // What makes another model of it does so before it is trained.
        if program.known.trains_nothing && !ids.iter().any(|it| half(it).is_some()) {
            continue;
        }
        // Smaller batches are the data's matter, not a remedy in the process.
        let model = ids.iter().filter(|it| half(it).is_none());
        let plan = Plan::of(model.map(|it| Remedy::plain(it)).collect());
        let half = ids.iter().find_map(|it| half(it));
        let run = Run { half, ..program.roomy(&plan, Until::Steady) };
        let ran = program.trial(run).await;
        if program.interrupted || ran.failure.is_some() || ran.n_ooms != 0 {
            continue;
        }
        let needs = program.needs(&ran.took);
        // There was nothing to change, or it makes it worse.
        if program.known.plain_needs <= needs {
            continue;
        }
        program.line.say(format!("advice {}: needs {needs}", ids.join(" + ")));
        let fits = needs <= program.rules.most();
        res.push(Advice { ids, needs, fits });
    }
    res
}
