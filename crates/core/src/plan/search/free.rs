//! Remedies that cost no time and next to nothing in the numbers: all that suit a program are used from the start, and
//! those go again that are not needed.

use super::{ladder, program::Program};
use crate::plan::{Plan, Remedy, remedies};

/// Those of them that this program bears. All at once, since most programs bear them; one by one only where that does
/// not run.
pub(super) async fn free(program: &mut Program) -> Vec<Remedy> {
    let update = if uses(program, remedies::FUSED) { remedies::FUSED } else { remedies::FOREACH };
    let all = [
        update,
        remedies::SET_TO_NONE,
        remedies::CHUNKED_LOSS,
        remedies::ATTENTION,
        remedies::INPLACE_ACTIVATIONS,
        remedies::BUCKET_VIEW,
    ];
    // What these overwrite would often have been freed anyway, and some models then take more.
    let mut saves_in_place = false;
    if uses(program, remedies::INPLACE_ACTIVATIONS) {
        let alone = Plan::of(vec![Remedy::plain(remedies::INPLACE_ACTIVATIONS)]);
        // Mostly it saves nothing.
        let others = all.into_iter().filter(|it| *it != remedies::INPLACE_ACTIVATIONS);
        let others = others.filter(|it| uses(program, it)).map(Remedy::plain).collect();
        program.soon(&Plan::of(others));
        let alone = program.run_through(&alone).await;
        saves_in_place = alone.is_some_and(|it| it.needs < program.known.plain_needs);
    }
    let suit = |program: &Program, all: &[&'static str]| -> Vec<&'static str> {
        let saves = |it: &str| it != remedies::INPLACE_ACTIVATIONS || saves_in_place;
        all.iter().filter(|it| uses(program, it) && saves(it)).copied().collect()
    };
    let together: Vec<Remedy> = suit(program, &all).into_iter().map(Remedy::plain).collect();
    if 1 < together.len() && program.run(&Plan::of(together.clone())).await.is_some() {
        return together;
    }
    let mut res: Vec<Remedy> = Vec::new();
    for id in suit(program, &ladder::free()) {
        let other_form = id == remedies::FOREACH && res.iter().any(|it| it.id == remedies::FUSED);
        if other_form || program.interrupted {
            continue;
        }
        let plan = Plan::of(vec![Remedy::plain(id)]);
        if program.run(&plan).await.is_some() {
            res.extend(plan.remedies);
        }
    }
    res
}

/// Whether it may be used, and has something to do.
fn uses(program: &Program, id: &str) -> bool {
    program.may(id) && program.suits(id)
}
