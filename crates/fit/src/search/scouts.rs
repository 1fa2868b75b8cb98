//! Scouts: runs of plans of a compiled script in which nothing is compiled. To compile takes half a minute, and these take seconds, and other memory: none
//! of them says what a plan needs. They say which plan is compiled first, beside the script itself, and which are not worth it.

use plimsoll_core::{
    plan::{Plan, Remedy, remedies},
    units::Bytes,
};

use super::{free, ladder::settled, program::Program};

/// Parts of a batch that are tried so.
const PARTS: [u64; 3] = [2, 4, 8];

/// While the script compiles as it is: runs what is usually tried first, until one would fit even with nothing compiled. That one begins, or the one that comes
/// nearest to it.
pub(super) async fn send(program: &mut Program) {
    let most = program.rules.most();
    if program.written_least().is_none_or(|it| it <= most) || 1 < program.rules.gpus {
        program.needs_no_scouts();
        return free::soon(program);
    }
    let free = free::together(program);
    let mut plans: Vec<Plan> = Vec::new();
    plans.extend(Some(free.clone()).filter(|it| !it.remedies.is_empty()));
    let gpus = program.rules.gpus;
    for id in [remedies::MICRO_BATCHES, remedies::CHECKPOINT] {
        let plan = Plan::of(vec![Remedy::plain(id)]);
        let parts = if id == remedies::MICRO_BATCHES { &PARTS[..] } else { &PARTS[..1] };
        let suits = program.may(id) && program.suits(id);
        plans.extend(parts.iter().filter(|_| suits).map(|it| settled(&plan, *it, gpus)));
    }
    let mut scouted: Vec<(Bytes, Plan)> = Vec::new();
    for plan in plans {
        let Some(needs) = program.scout(&plan).await else { continue };
        scouted.push((needs, plan));
        if needs <= most {
            break;
        }
    }
    let nearly_fits = |it: &&(Bytes, Plan)| it.0.0 / 5 * 4 <= most.0;
    let fitting = scouted.last().filter(|it| it.0 <= most);
    let likely =
        fitting.or(scouted.iter().find(nearly_fits)).or(scouted.iter().min_by_key(|it| it.0));
    match likely {
        Some((_, plan)) if *plan == free => program.run_through_soon(plan),
        Some((_, plan)) => program.soon(plan),
        None => free::soon(program),
    }
}

/// Whether it is not worth to compile `plan`; said so.
pub(super) async fn find_hopeless(program: &mut Program, plan: &Plan) -> bool {
    if program.written_least().is_none() || plan.remedies.is_empty() {
        return false;
    }
    let needs = program.scout(plan).await;
    let is_hopeless = program.seems_hopeless(plan);
    if let Some(needs) = needs.filter(|_| is_hopeless) {
        let said = format!(
            "{}: needs at least {needs} with nothing compiled, too much to compile it",
            plan.shown()
        );
        program.line.say(said);
    }
    is_hopeless
}

/// Nothing was found: what was left out for what scouts saw is tried after all. False if nothing was.
pub(super) fn find_nothing(program: &mut Program) -> bool {
    let had_scouts = program.written_least().is_some() && !program.interrupted;
    program.needs_no_scouts();
    had_scouts
}
