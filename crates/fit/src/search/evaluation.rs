//! What an evaluation takes by itself: remedies are for training, and most do not reach it.

use plimsoll_core::{
    plan::{Plan, Remedy, remedies},
    prediction::EvaluationPeak,
    units::Bytes,
};

use super::{
    ask::{Run, Until},
    candidate::Candidate,
    ladder,
    program::Program,
};

/// An evaluation that does not fit by itself, whatever training takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// What it allocates itself, and where.
    pub evaluation: EvaluationPeak,
    /// What a device must have for that alone, with what the process has beside and the allowance.
    pub needs: Bytes,
}

/// The evaluation of the script as it is, if it has one that does not fit even if training took nothing. If it only does not fit beside what
/// training keeps, from now on each run has one. `plain` takes what the hungrier of both takes.
pub(super) async fn too_large(program: &mut Program, plain: &mut Candidate) -> Option<TooLarge> {
    let run = program.roomy(&Plan::default(), Until::OneValidation);
    let ran = program.trial(run).await;
    let evaluation = ran.took.evaluation.clone().filter(|_| ran.fits())?;
    let beside = program.beside(&ran.took);
    program.takes_in(plain, ran);
    program.known.plain_needs = plain.needs;
    let most = program.rules.most();
    if evaluation.allocated + beside <= most {
        return None;
    }
    (program.pace.until, program.pace.validates) = (Until::Validation, true);
    program.line.say(format!(
        "the evaluation needs {} with what training keeps meanwhile: from now on each run includes it",
        evaluation.allocated + beside
    ));
    let needs = evaluation.own + beside;
    (most < needs && !is_reached(program, most.saturating_sub(beside)).await)
        .then_some(TooLarge { evaluation, needs })
}

/// Whether remedies make the evaluation take no more than this by itself.
async fn is_reached(program: &mut Program, most: Bytes) -> bool {
    let autocast = ladder::for_card(&program.rules.card, remedies::AUTOCAST);
    let reach = [
        remedies::NO_GRAD_EVALUATION,
        remedies::ATTENTION,
        remedies::CHUNKED_LOSS,
        remedies::INPLACE_ACTIVATIONS,
        autocast,
    ];
    let suit = reach.into_iter().filter(|it| program.may(it) && program.suits(it));
    let plan = Plan::of(suit.map(Remedy::plain).collect());
    if plan.remedies.is_empty() {
        return false;
    }
    let run = program.roomy(&plan, Until::OneValidation);
    let ran = program.trial(Run { look: None, ..run }).await;
    // What does not run so says nothing.
    let own = ran.took.evaluation.as_ref().map(|it| it.own).filter(|_| ran.fits());
    own.is_none_or(|own| own <= most)
}
