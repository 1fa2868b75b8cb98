//! Scouts: runs of plans of a compiled script in which nothing is compiled. To compile takes half a minute, and these take seconds, and other memory: none
//! of them says what a plan needs. They say which plan is compiled first, beside the script itself, and which are not worth it.

use plimsoll_core::plan::{Plan, Remedy, remedies};

use super::{free, ladder::settled, program::Program};

/// Parts of a batch that are tried so.
const PARTS: [u64; 3] = [2, 4, 8];

/// While the script compiles as it is: runs what is usually tried first, until one would fit even with nothing compiled.
pub(super) async fn send(program: &mut Program) {
    let most = program.rules.most();
    if program.written_least().is_none_or(|it| it <= most) || 1 < program.rules.gpus {
        program.needs_no_scouts();
        return;
    }
    let mut plans: Vec<Plan> = Vec::new();
    plans.extend(Some(free::together(program)).filter(|it| !it.remedies.is_empty()));
    let gpus = program.rules.gpus;
    for id in [remedies::MICRO_BATCHES, remedies::CHECKPOINT] {
        let plan = Plan::of(vec![Remedy::plain(id)]);
        let parts = if id == remedies::MICRO_BATCHES { &PARTS[..] } else { &PARTS[..1] };
        let suits = program.may(id) && program.suits(id);
        plans.extend(parts.iter().filter(|_| suits).map(|it| settled(&plan, *it, gpus)));
    }
    for plan in plans {
        if program.scout(&plan).await.is_some_and(|needs| needs <= most) {
            break;
        }
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
            "{}: needs at least {needs} before anything is compiled, too much to compile it",
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
