//! What an evaluation takes by itself: remedies are for training, and most do not reach it.

use plimsoll_core::{
    plan::{Parameter, Plan, Remedy, remedies},
    prediction::EvaluationPeak,
};

use super::{
    ask::{On, Ran, Run, TooLarge, Took, Until},
    candidate::Candidate,
    ladder,
    program::Program,
};

/// The evaluation of the script as it is, if it has one that does not fit even if training took nothing. If it only does not fit beside what
/// training keeps, from now on each run has one. `plain` takes what the hungrier of both takes.
pub(super) async fn too_large(program: &mut Program, plain: &mut Candidate) -> Option<TooLarge> {
    let took = match &plain.took.evaluation {
        Some(_) => plain.took.clone(),
        None => {
            let ran = run_with_one(program).await?;
            let took = ran.took.clone();
            program.takes_in(plain, ran);
            program.remember(plain);
            program.known.plain_needs = plain.needs;
            took
        }
    };
    let evaluation = took.evaluation.clone()?;
    let needs = evaluation.allocated + program.beside(&took);
    if needs <= program.rules.most() {
        return None;
    }
    if !program.pace.validates {
        (program.pace.until, program.pace.validates) = (Until::Validation, true);
        program.line.say(format!(
            "the evaluation needs {needs} with what training keeps meanwhile: from now on each run includes it"
        ));
    }
    beyond_reach(program, &took).await
}

/// The same of one that a proof came to, of a plan that fitted without it.
pub(super) async fn too_large_after_all(program: &mut Program) -> Option<TooLarge> {
    let ran = run_with_one(program).await?;
    beyond_reach(program, &ran.took).await
}

async fn run_with_one(program: &mut Program) -> Option<Ran> {
    let run = program.roomy(&Plan::default(), program.until_one_validation());
    Some(program.trial(run).await).filter(Ran::fits)
}

/// The evaluation of a run, if it does not fit by itself, nor with all remedies that may reach it: by what it allocates where there is room, and on the
/// card itself, where libraries make do with smaller workspaces and pieces of memory grow.
async fn beyond_reach(program: &mut Program, took: &Took) -> Option<TooLarge> {
    let found = by_what_it_allocates(program, took).await?;
    let mut remedies = found.with.remedies.clone();
    if program.may(remedies::ALLOCATOR) {
        let settings = Parameter::Settings(ladder::EXPANDABLE.to_owned());
        remedies.push(Remedy::plain(remedies::ALLOCATOR).with(settings));
    }
    let run = Run::of(&Plan::of(remedies), Until::OneValidation, On::Card);
    let run = Run { limit_reserved: program.limit_of_proof(), ..run };
    let gets_through = program.trial(run).await.fits();
    if gets_through {
        // So do the candidates, which would not get through where there is more than the card has.
        let beside = program.beside(took);
        program.known.shrinks_to = Some(program.rules.most().saturating_sub(beside));
    }
    (!gets_through).then_some(found)
}

async fn by_what_it_allocates(program: &mut Program, took: &Took) -> Option<TooLarge> {
    let evaluation = took.evaluation.clone()?;
    let (most, beside) = (program.rules.most(), program.beside(took));
    let too_large = |evaluation: EvaluationPeak, with: Plan| {
        let needs = evaluation.own + beside;
        (most < needs).then_some(TooLarge { evaluation, with, needs })
    };
    let as_it_is = too_large(evaluation, Plan::default())?;
    let autocast = ladder::for_card(&program.rules.card, remedies::AUTOCAST);
    let reach = [
        remedies::NO_GRAD_EVALUATION,
        remedies::ATTENTION,
        remedies::CHUNKED_LOSS,
        remedies::INPLACE_ACTIVATIONS,
        autocast,
    ];
    loop {
        let suit = reach.into_iter().filter(|it| program.may(it) && program.suits(it));
        let plan = Plan::of(suit.map(Remedy::plain).collect());
        if plan.remedies.is_empty() {
            return Some(as_it_is);
        }
        let run = program.roomy(&plan, program.until_one_validation());
        let ran = program.trial(run).await;
        if ran.fits() {
            let reached = ran.took.evaluation?;
            let is_reached = reached.own < as_it_is.evaluation.own;
            return if is_reached { too_large(reached, plan) } else { Some(as_it_is) };
        }
        // What does not suit this script is left out; what fails for another reason says nothing.
        let before = program.known.left_out.len();
        program.known.left_out.learns(&plan, &ran);
        if program.known.left_out.len() == before || program.interrupted {
            return None;
        }
    }
}
