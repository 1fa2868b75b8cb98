//! What only a person can decide, with what it would take: each is run on the phantom as it would be written, and never
//! becomes part of a plan.

use super::{
    ask::{Run, Until},
    program::Program,
};
use crate::{
    plan::{
        CATALOGUE, Plan, Remedy,
        remedies::{self, Role},
    },
    units::Bytes,
};

/// What is tried, each with what goes with it.
fn all() -> impl Iterator<Item = Vec<&'static str>> {
    let advice = CATALOGUE.iter().filter(|it| it.role == Role::Advice);
    advice.map(|it| it.beside.into_iter().chain([it.id]).collect())
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
        // Shorter batches are the data's matter, not a remedy in the process.
        let model = ids.iter().filter(|it| **it != remedies::SHORTER_SEQUENCE);
        let plan = Plan::of(model.map(|it| Remedy::plain(it)).collect());
        let half_as_long = ids.contains(&remedies::SHORTER_SEQUENCE);
        let run = Run { half_as_long, ..program.roomy(&plan, Until::Steady) };
        let ran = program.trial(run).await;
        if program.interrupted || ran.failure.is_some() || ran.n_ooms != 0 {
            continue;
        }
        let needs = program.needs(&ran.took);
        program.line.say(format!("advice {}: needs {needs}", ids.join(" + ")));
        let fits = needs <= program.rules.most();
        res.push(Advice { ids, needs, fits });
    }
    res
}
