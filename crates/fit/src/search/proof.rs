//! Runs of what is proposed that are only there to refute it: again, at its limit, on the card itself.

use plimsoll_core::prediction::{EvaluationPeak, OtherEnd, Peaks, ToCome};

use super::{
    ask::{Failed, FewParts, Look, On, Ran, Run, Until},
    candidate::{Candidate, OnceMore},
    program::{Program, few_parts},
};

/// So often a plan that is proposed is run again: not every run of a script frees its memory in the same order.
const REPEATS: u32 = 2;
/// Of so many devices each is looked at, of more the first ones.
const MOST_RANKS: u32 = 8;
/// So many batches go through the model with all their parts where a plan is proven: a small one, the two worst, and both again. Those after
/// them are there to come to an evaluation.
const WITH_ALL_PARTS: u32 = 5;

/// The script as it is on the card itself, where it took too much with room: it may take no more than there is.
pub(super) async fn fits_by_itself(
    program: &mut Program,
    with_room: &Candidate,
) -> Option<(Candidate, Seen)> {
    let mut it = Candidate::not_run(with_room.plan.clone(), with_room.numbers);
    let (until, validates) = (program.pace.until, program.pace.validates);
    if with_room.compiled_anew {
        // What does not fit with all that is compiled does not fit without, and is known at once.
        let mut compiled = Candidate { compiled_anew: true, ..it.clone() };
        if proves(program, &mut compiled).await.is_none() || program.interrupted {
            (program.pace.until, program.pace.validates) = (until, validates);
            return None;
        }
    }
    // A run that somebody stopped has shown nothing.
    let seen = proves(program, &mut it).await.filter(|_| !program.interrupted);
    if seen.is_none() {
        (program.pace.until, program.pace.validates) = (until, validates);
    }
    Some((it, seen?))
}

/// The run that shows whether the script as it is, which keeps too much for later where there is room, gets through on the card itself:
/// there PyTorch gives that back when memory is full, and goes on. None if what it has allocated is too much.
pub(super) fn with_retries(program: &Program, with_room: &Candidate) -> Option<Run> {
    let Peaks { allocated, reserved, .. } = with_room.took.peak;
    let most = program.rules.most();
    // What it has beside, and what a phantom cannot know, stays free.
    let beside = with_room.needs.saturating_sub(reserved);
    let may = !with_room.fits && !program.adapts() && allocated + beside <= most;
    let until = if program.rules.until_exit { Until::Exit } else { Until::Validation };
    let limit_reserved = Some(most.saturating_sub(beside));
    may.then(|| Run { limit_reserved, ..Run::of(&with_room.plan, until, On::Card) })
}

/// How much of a script a run went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Training steps.
    pub steps: u32,
    /// The model was called in evaluation mode or without gradients.
    pub evaluation: bool,
    /// It ran to its end.
    pub until_exit: bool,
    /// Its steps are calls of a model that trains nothing.
    pub trains_nothing: bool,
    /// Why nothing later than these steps was seen, if a run that went on failed.
    pub failed: Option<Failed>,
    /// What the script comes to, and these steps did not.
    pub to_come: Option<ToCome>,
    /// It was the last run of a proof: on the card itself, a process of its own.
    pub is_proof: bool,
}

/// Runs a plan again, with no more to reserve than it may; it takes what the hungriest run took. The last of these runs also
/// counts the work of a step; nothing but the end waits for it, see [`fits_once_more`].
pub(super) async fn fits_again(program: &mut Program, it: &mut Candidate) -> bool {
    let Peaks { device, reserved, .. } = it.took.peak;
    let beside = device.saturating_sub(reserved);
    let rules = &program.rules;
    let limit = program.limit_of(it).unwrap_or(rules.most().saturating_sub(beside));
    // Of several devices the first has the largest share of most things, and each of some.
    let gpus = it.plan.gpus().unwrap_or(1);
    let of_rank = |rank: u32| {
        let run = program.roomy(&it.plan, program.until_again());
        let with_room = Run { rank: Some(rank % gpus), ..run };
        let few_parts = few_parts(&it.plan);
        let run = Run { limit_reserved: Some(limit), few_parts, ..with_room.clone() };
        (rank % gpus, run, with_room)
    };
    // What two runs differ by is less than that, and the proof meets the worst batches in other orders, too.
    let leaves_room = program.known.sizes_differ && program.leaves_room_for_orders(it);
    let repeats = if leaves_room { 1 } else { REPEATS };
    let mut all: Vec<_> = (1..=repeats.max(gpus.min(MOST_RANKS))).map(of_rank).collect();
    let last = if gpus == 1 { all.pop() } else { None };
    // What is compiled is counted as it was written, which takes other memory: in a run of its own.
    let look = if program.known.compiles { None } else { Some(Look::Work) };
    let last = last.map(|(_, run, _)| Run { look, ..run });
    let mut before = it.took.peak;
    for (rank, run, with_room) in all {
        let ran = program.trial(run).await;
        before = ran.took.peak;
        if program.interrupted {
            return it.fits;
        }
        if !program.takes_in_again(it, ran) {
            if rank != 0 {
                program.refuted(it, with_room);
            }
            return false;
        }
    }
    program.remember(it);
    it.once_more = last.filter(|_| it.fits).map(|run| OnceMore { run, before });
    it.fits
}

/// The last of the runs of [`fits_again`], which also counts the work of a step, and is made again without if it took anything
/// else than the one before (see [`are_like`]). False if it refutes the plan.
pub(super) async fn fits_once_more(program: &mut Program, it: &mut Candidate) -> bool {
    let Some(OnceMore { run, before }) = it.once_more.take() else { return it.fits };
    let counts = run.look.is_some();
    let uncounted = Run { look: None, ..run.clone() };
    let mut ran = program.trial(run).await;
    if program.interrupted {
        return it.fits;
    }
    it.work = (counts && ran.fits()).then(|| std::mem::take(&mut ran.noted.work));
    // No two runs that go through a few parts of each batch reserve the same.
    let is_like = match few_parts(&it.plan) {
        Some(_) => program.needs(&ran.took) <= it.needs,
        None => are_like(before, ran.took.peak),
    };
    if counts && !is_like && is_enough_as_counted(program, it, &ran) {
        return it.fits;
    }
    if counts && (!ran.fits() || !is_like) {
        ran = program.trial(uncounted.clone()).await;
    }
    if program.interrupted || program.takes_in_again(it, ran) {
        return it.fits;
    }
    let with_room = program.roomy(&it.plan, program.pace.until);
    program.refuted(it, Run { rank: uncounted.rank, ..with_room });
    false
}

/// Whether a run fits with all that counting takes beside, of a plan that leaves room for what two runs differ by, or for all of that. Where batches
/// differ in size the proof goes through the worst ones again, and is not counted.
fn is_enough_as_counted(program: &Program, it: &Candidate, ran: &Ran) -> bool {
    let (needs, most) = (program.needs(&ran.took), program.rules.most());
    let more = needs.saturating_sub(it.needs);
    let has_room = program.leaves_room_for_orders(it) || needs + more <= most;
    program.known.sizes_differ
        && ran.fits()
        && ran.n_retries <= it.retries
        && needs <= most
        && has_room
}

/// Whether being counted changed nothing: what is reserved is the same, and what is allocated but for what a script keeps of each
/// step, of which there are not always as many.
fn are_like(one: Peaks, other: Peaks) -> bool {
    let (a, b) = (one.allocated.0, other.allocated.0);
    (one.reserved, one.device) == (other.reserved, other.device) && a.abs_diff(b) <= a / 1000
}

/// Runs the plan on the card itself, as a process of its own, and at the other end of what a phantom decides by itself.
/// What was seen; none if it does not fit after all.
pub(super) async fn proves(program: &mut Program, it: &mut Candidate) -> Option<Seen> {
    let mut until = if program.rules.until_exit { Until::Exit } else { Until::Validation };
    // Where batches differ in size a plan is one that gets through where there is no more: PyTorch gives back what it keeps of other sizes.
    let gives_back = program.known.sizes_differ && !it.plan.remedies.is_empty();
    let with_less = gives_back.then(|| program.reserved_at_most(it));
    let limit_reserved = program.limit_of(it).or(with_less);
    let plan = it.plan.clone();
    let may_find_compiled = it.compiled_anew;
    let run = |until: Until, on: On| {
        let may_find_compiled = may_find_compiled && on == On::CardAlone;
        let few_parts = few_parts(&plan).filter(|_| until != Until::Exit);
        let few_parts = few_parts.map(|it| FewParts { after: WITH_ALL_PARTS, ..it });
        Run { limit_reserved, may_find_compiled, few_parts, ..Run::of(&plan, until, on) }
    };
    // A run of its own ends what makes runs cheap: what can come out of that comes before.
    let mut early = Vec::new();
    for end in it.ends.clone() {
        let ran = program.trial(Run { end: Some(end), ..run(until, On::Card) }).await;
        if program.interrupted {
            return stopped(it);
        }
        early.extend((!ran.is_strange()).then_some((end, ran)));
    }
    let mut ran = program.trial(run(until, On::CardAlone)).await;
    let mut failed = None;
    if let Some(with_plan) = Failed::of(&ran) {
        failed = program.fails_as_it_is(&plan, with_plan, until).await;
        if failed.is_none() && !program.interrupted {
            program.does_not_bear(&plan, &ran);
            return None;
        }
        if program.interrupted {
            return stopped(it);
        }
        // Its first steps are what there is to see.
        until = Until::Steady;
        early.clear();
        ran = program.trial(run(until, On::CardAlone)).await;
    }
    let seen = seen(&ran);
    let seen = Seen { until_exit: until == Until::Exit, failed: failed.or(seen.failed), ..seen };
    let (ends, is_part) = (ran.ends.clone(), ran.is_part);
    it.retries = it.retries.max(ran.n_retries);
    if program.interrupted {
        return stopped(it);
    }
    // Where the worst batches came first this run shows how much two differ.
    let had_worst = program.known.sizes_differ && !plan.remedies.is_empty();
    let is_evaluations = is_too_much_for_evaluation(program, &ran);
    let fits = if had_worst { program.takes_in_again(it, ran) } else { program.takes_in(it, ran) };
    if !fits {
        if had_worst && !is_evaluations {
            // No run that goes as far shows what other orders take: a stronger plan has to.
            program.refuted_again(it);
        } else if until == Until::Validation {
            // What was tried without a validation, or before a larger batch, says nothing.
            program.pace.until = until;
            program.pace.validates = seen.evaluation;
            program.forget();
        }
        return None;
    }
    for end in ends {
        let ran = match early.iter().position(|it| it.0 == end) {
            Some(at) => early.swap_remove(at).1,
            None => program.trial(Run { end: Some(end), ..run(until, On::CardAlone) }).await,
        };
        // What masks find is between nothing and everything, and nobody knows where: no plan is refuted by it.
        if end == OtherEnd::Found {
            it.if_found = program.if_found(&ran).filter(|_| !program.interrupted);
        } else if !program.interrupted && !program.takes_in(it, ran) {
            let with_room = Run { end: Some(end), ..program.roomy(&plan, until) };
            program.refuted(it, with_room);
            return None;
        }
    }
    if is_part && !program.interrupted {
        let whole = |run: Run| Run { as_predicted: true, ..run };
        let ran = program.trial(whole(run(until, On::CardAlone))).await;
        let unseen = ran.took.unseen.clone();
        if !program.interrupted && !program.takes_in(it, ran) {
            program.refuted(it, whole(program.roomy(&plan, until)));
            return None;
        }
        it.took.unseen = unseen;
    }
    Some(Seen { is_proof: true, ..seen })
}

/// What is known where somebody stopped the proof: what runs before it showed.
fn stopped(it: &Candidate) -> Option<Seen> {
    it.fits.then(|| Seen { steps: it.took.steps_seen, ..Seen::default() })
}

/// Whether it was the evaluation of this run that took too much.
fn is_too_much_for_evaluation(program: &Program, ran: &Ran) -> bool {
    let beside = program.beside(&ran.took);
    let is_too_much = |it: &EvaluationPeak| program.rules.most() < it.allocated + beside;
    ran.evaluates && (ran.n_ooms != 0 || ran.took.evaluation.as_ref().is_some_and(is_too_much))
}

/// What went by in a run.
pub(super) fn seen(ran: &Ran) -> Seen {
    let late = |why: &String| Failed { why: why.clone(), was_hurried: true };
    let failed = ran.failed_later.as_ref().map(late);
    Seen {
        steps: ran.took.steps_seen,
        evaluation: ran.evaluates,
        failed,
        to_come: ran.took.to_come.clone(),
        ..Seen::default()
    }
}
