//! Remedies that cost no time and next to nothing in the numbers: all that suit a program are used from the start, and
//! those go again that are not needed.

use plimsoll_core::plan::{Plan, Remedy, remedies};

use super::{candidate::Candidate, ladder, program::Program, tuning};

/// So many hundredths of what a compiled script takes have to be saved by what is free.
const WORTH: u64 = 2;

/// Those of them that this program bears. All at once, since most programs bear them; one by one only where that does
/// not run.
pub(super) async fn free(program: &mut Program) -> Vec<Remedy> {
    if program.seems_hopeless(&together(program)) {
        // Not enough alone; and in company each plan would have to be compiled with it and without.
        return Vec::new();
    }
    let first = tuning::first(program);
    let all = usual(program);
    // What these overwrite would often have been freed anyway, and some models then take more.
    let mut saves_in_place = false;
    if uses(program, remedies::INPLACE_ACTIVATIONS) {
        let alone = Plan::of(vec![Remedy::plain(remedies::INPLACE_ACTIVATIONS)]);
        let alone = program.run_through(&alone).await;
        saves_in_place = alone.is_some_and(|it| it.needs < program.known.plain_needs);
    }
    let suit = |program: &Program, all: &[&'static str]| -> Vec<&'static str> {
        let saves = |it: &str| it != remedies::INPLACE_ACTIVATIONS || saves_in_place;
        all.iter().filter(|it| uses(program, it) && saves(it)).copied().collect()
    };
    let together = suit(program, &all).into_iter().map(Remedy::plain);
    let together: Vec<Remedy> = first.iter().cloned().chain(together).collect();
    if 1 < together.len()
        && let Some(it) = tried(program, &Plan::of(together.clone())).await
    {
        return if is_worth_it(program, &it) { together } else { Vec::new() };
    }
    let mut res = first.clone();
    for id in suit(program, &ladder::free()) {
        let other_form = id == remedies::FOREACH && res.iter().any(|it| it.id == remedies::FUSED);
        if other_form || program.interrupted {
            continue;
        }
        let plan = Plan::of(first.iter().cloned().chain([Remedy::plain(id)]).collect());
        if tried(program, &plan).await.is_some_and(|it| is_worth_it(program, &it)) {
            res.push(Remedy::plain(id));
        }
    }
    res
}

/// Those of `free` with which the program runs to its end, however much it takes then: all, or those that it bears one by one.
pub(super) async fn that_run(program: &mut Program, free: &[Remedy]) -> Vec<Remedy> {
    if program.run_through(&Plan::of(free.to_vec())).await.is_some() || program.interrupted {
        return free.to_vec();
    }
    let mut res = Vec::new();
    for it in free.iter().filter(|_| 1 < free.len()) {
        if program.run_through(&Plan::of(vec![it.clone()])).await.is_some() {
            res.push(it.clone());
        }
    }
    res
}

/// Those that most programs bear together.
fn usual(program: &Program) -> [&'static str; 6] {
    let update = if uses(program, remedies::FUSED) { remedies::FUSED } else { remedies::FOREACH };
    [
        update,
        remedies::SET_TO_NONE,
        remedies::CHUNKED_LOSS,
        remedies::ATTENTION,
        remedies::INPLACE_ACTIVATIONS,
        remedies::BUCKET_VIEW,
    ]
}

/// All that suits it.
pub(super) fn together(program: &Program) -> Plan {
    let suit = usual(program).into_iter().filter(|it| uses(program, it));
    Plan::of(suit.map(Remedy::plain).collect())
}

/// Runs it. Of what is compiled it is seen what it saves: what is compiled takes longer than its steps.
async fn tried(program: &mut Program, plan: &Plan) -> Option<Candidate> {
    if program.known.compiles {
        return program.run_through(plan).await;
    }
    program.run(plan).await
}

/// Whether it is used from the start. A compiler often does the same by itself, and each plan with it would be compiled again without.
fn is_worth_it(program: &Program, it: &Candidate) -> bool {
    let saved = program.known.plain_needs.saturating_sub(it.needs);
    !program.known.compiles || WORTH * program.known.plain_needs.0 <= 100 * saved.0
}

/// Whether it may be used, and has something to do.
fn uses(program: &Program, id: &str) -> bool {
    // A compiler overwrites by itself what it may.
    let is_compilers = program.known.compiles && id == remedies::INPLACE_ACTIVATIONS;
    !is_compilers && program.may(id) && program.suits(id)
}
