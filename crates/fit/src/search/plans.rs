//! The search for a plan: candidates from the mildest to the strongest, each run on the phantom, until some fit; then as
//! little of each as is needed.

use std::mem;

use plimsoll_core::{
    plan::{Numbers, Plan, Remedy, remedies},
    prediction::StepPeaks,
    recording::Work,
    units::Bytes,
};

use super::{
    advice,
    ask::{Failed, Ran, Run, Took, Until},
    candidate::Candidate,
    dialogue::Search,
    evaluation,
    fewest_blocks::fewest_blocks,
    found::Found,
    free::{self, free},
    ladder::{are_same, is_free, rungs, settled, without},
    measure, nearest,
    program::Program,
    proof::{self, Seen},
    recipes::{self, Tries},
    remaining,
    rules::Rules,
    scouts, slack,
    tuning::{self, tuned},
    weakest::weakest,
};
use crate::cost::{Factor, factor};

/// The most parts that a batch is split into.
const MOST_PARTS: u64 = 64;
/// What is likely to need so many hundredths more than there is, by what runs like it took, is not run.
const DOUBT: u64 = 1;
/// So many plans that fit are enough to choose from.
const ENOUGH: usize = 3;
/// What goes through the host in each pass takes longer than all else: a plan with it is not the first beside one without.
const SLOWEST: [&str; 2] = [remedies::PARAMETER_OFFLOAD, remedies::OFFLOAD];
/// A step that takes so many hundredths of the most takes the most, where batches differ in size.
const NEARLY: u64 = 99;
/// So many plans of one rung that a second run refutes give way to the next stronger one.
const MOST_REFUTED: usize = 3;

/// The search for the cheapest plan that fits; or for why the script as it is does not run.
pub fn plans(rules: Rules) -> Search<Result<Found, String>> {
    Search::new(|line| async move { find(&mut Program::new(rules, line)).await })
}

async fn find(program: &mut Program) -> Result<Found, String> {
    if program.rules.speaks_of_compile {
        program.as_it_is_written().await;
        scouts::send(program).await;
    }
    let mut plain = program.as_it_is().await?;
    // Of what is compiled steps are the least.
    let is_compiled = program.known.compiles;
    let sizes_differ = program.known.sizes_differ;
    let first_steps = steps_to_the_peak(&plain.took, sizes_differ);
    // A small batch comes again after the worst one.
    let first_steps = first_steps.map(|it| it + u32::from(sizes_differ));
    program.pace.first_steps = first_steps.filter(|_| !is_compiled);
    let mut seen = Seen { steps: plain.took.steps_seen, ..Seen::default() };
    if plain.fits && !program.interrupted && program.known.growth.is_none() {
        // One that does not get through on the card itself needs a plan, too.
        let proven = proof::proves(program, &mut plain).await;
        plain.fits = proven.is_some();
        seen = proven.unwrap_or(seen);
        program.sees_what_it_needs(&mut plain).await;
        program.known.plain_needs = plain.needs;
        if !plain.fits && program.known.growth.is_none() && program.pace.until == Until::Validation
        {
            // What it takes with its validation; on the card itself it ran out, whatever it takes where there is room.
            plain = program.run_through(&Plan::default()).await.unwrap_or(plain);
            plain.fits = false;
            program.known.plain_needs = plain.needs;
        }
    } else if program.adapts()
        && !program.interrupted
        && program.known.growth.is_none()
        && let Some((on_card, what)) = proof::fits_by_itself(program, &plain).await
    {
        program.line.say(
            "on a real card, cudnn.benchmark skips algorithms whose workspaces do not fit"
                .to_owned(),
        );
        program.known.plain_needs = on_card.needs;
        (plain, seen) = (on_card, what);
    }
    let grows = program.known.growth.clone().map(|it| program.grows(it, &plain));
    plain.fits &= grows.is_none();
    let mut found = Found::as_it_is(plain, seen, grows);
    let has_evaluation = found.plain.took.evaluation.is_some();
    let may_be_large = program.known.sizes_differ || has_evaluation;
    if may_be_large && !found.plain.fits && found.grows.is_none() {
        found.too_large = evaluation::too_large(program, &mut found.plain).await;
        if found.too_large.is_some() {
            found.places = mem::take(&mut program.known.places);
        }
    }
    if found.grows.is_none() && found.too_large.is_none() {
        mend(program, &mut found).await;
    }
    if found.too_large.is_some() {
        // What its tensors need: it never comes to what would be kept for later.
        found.plain.needs = program.needs_at_least(&found.plain.took);
    }
    found.batches = mem::take(&mut program.known.batches);
    found.has_unseen_sizes = program.known.has_unseen_sizes;
    found.has_loss = program.known.has_loss;
    found.averages = program.known.averages;
    found.interrupted = program.interrupted;
    Ok(found)
}

/// Looks for what makes the script fit, if it does not; measures that, and says what is left where nothing does.
async fn mend(program: &mut Program, found: &mut Found) {
    let Found {
        plain,
        retries,
        plans,
        closest,
        left,
        advice,
        recipes,
        not_tried,
        places,
        seen,
        too_large,
        in_pieces,
        ..
    } = found;
    if !plain.fits {
        if let Some(it) = program.what_is_left_out() {
            program.line.say(it);
        }
        let proven;
        let on_card = proof::with_retries(program, plain);
        // What it needs where sizes differ is what it takes there.
        let (now, later) =
            if program.known.sizes_differ { (on_card, None) } else { (None, on_card) };
        let is_run_now = now.is_some();
        let mut through = gets_through(program, now).await;
        if is_run_now && through.is_none() && !program.interrupted {
            (plain.needs, *in_pieces) = (program.needs_at_least(&plain.took), true);
        }
        if let Some((0, ran, _)) = &through {
            let (took, needs) = (ran.took.clone(), program.needs(&ran.took));
            (plain.took, plain.needs, plain.fits) = (took, needs, true);
            plain.fits = proof::proves(program, plain).await.is_some();
        }
        if !plain.fits {
            let tries;
            (*plans, tries, proven) = proven_plans(program).await;
            (*recipes, *not_tried) = (tries.fit, tries.not_tried);
            *seen = proven.unwrap_or_else(|| mem::take(seen));
            through = match later {
                Some(_) => gets_through(program, later).await,
                None => through,
            };
        }
        if let Some((n, ran, on_card)) = through.filter(|it| 0 < it.0) {
            *retries = Some(n);
            if program.known.sizes_differ {
                plain.needs = program.needs(&ran.took);
            }
            if plans.is_empty() {
                *seen = on_card;
            }
        }
    }
    if let Some(free) = program.rules.measure_in {
        measure::measure(program, free, plain, plans, seen).await;
    }
    seen.trains_nothing = program.known.trains_nothing;
    *too_large = program.known.too_large.take();
    let nothing_fits = !plain.fits && plans.is_empty() && retries.is_none() && too_large.is_none();
    *closest = if nothing_fits { nearest::nearest(program).await } else { None };
    *left = closest.as_ref().map(|it| remaining::remaining(program, plain, it)).unwrap_or_default();
    if program.rules.advice || nothing_fits {
        *advice = advice::advice(program).await;
    }
    *places = mem::take(&mut program.known.places);
}

/// Whether the script as it is gets through on the card itself in this run, if it is made: how often PyTorch gave back what it kept for later, what
/// came of it, and what was seen.
async fn gets_through(program: &mut Program, run: Option<Run>) -> Option<(u64, Ran, Seen)> {
    let run = run?;
    let mut ran = program.trial(run.clone()).await;
    let failed = Failed::of(&ran);
    if failed.is_some() {
        ran = program.trial(Run { until: Until::Steady, ..run }).await;
    }
    let until_exit = program.rules.until_exit && failed.is_none();
    let on_card = proof::seen(&ran);
    let seen = Seen { until_exit, failed: failed.or(on_card.failed), is_proof: true, ..on_card };
    // One that was seen to grow here gets through for now only.
    (ran.fits() && ran.took.growth.is_none()).then_some((ran.n_retries, ran, seen))
}

/// Plans that fit, the best first; that one is proven on the card itself, under the very limit, unless somebody asked us
/// to stop. And what does the same in the script's own framework.
async fn proven_plans(program: &mut Program) -> (Vec<Candidate>, Tries, Option<Seen>) {
    let mut n_searches = 0;
    loop {
        n_searches += 1;
        let sees_validation = program.pace.until == Until::Validation;
        let mut found = fitting_plans(program).await;
        if found.is_empty() && scouts::find_nothing(program) {
            found = fitting_plans(program).await;
        }
        if found.is_empty() {
            found = slack::plans(program).await;
        }
        if !all_fit_once_more(program, &mut found).await {
            continue;
        }
        estimate_time(program, &mut found).await;
        mark_tight(program, &mut found);
        let prefers_speed = program.rules.prefers_speed;
        found.sort_by_key(|it| it.rank(prefers_speed));
        // Before the proof: a run of its own ends what makes runs cheap.
        let recipes = recipes::recipes(program, &found).await;
        let n_left_out = program.known.left_out.len();
        let had_plans = !found.is_empty();
        while let (false, [best, ..]) = (program.interrupted, found.as_mut_slice()) {
            let saw = program.pace.until == Until::Validation;
            if let Some(seen) = proof::proves(program, best).await {
                // It may have taken more than before.
                let was_tight = best.is_tight;
                best.is_tight = program.is_tight(best);
                let is_tight_now = !was_tight && best.is_tight;
                if is_tight_now && found.iter().any(|it| !it.is_tight) {
                    found.sort_by_key(|it| it.rank(prefers_speed));
                    continue;
                }
                return (found, recipes, Some(seen));
            }
            let refuted = found.remove(0);
            // By a validation that nobody had seen before, or by what only the card itself shows: more blocks may be enough.
            if program.pace.until == Until::Validation {
                let more = with_more_blocks(program, &refuted, !saw).await;
                let mut more: Vec<_> = more.into_iter().collect();
                estimate_time(program, &mut more).await;
                mark_tight(program, &mut more);
                found.extend(more);
                found.sort_by_key(|it| it.rank(prefers_speed));
            }
        }
        if n_left_out < program.known.left_out.len() && found.is_empty() && !program.interrupted {
            program
                .line
                .say("searching again without the remedies that made a later step fail".to_owned());
            continue;
        }
        let is_refuted = had_plans && program.known.sizes_differ && n_searches < MOST_REFUTED;
        if is_refuted
            && !program.interrupted
            && sees_validation == (program.pace.until == Until::Validation)
        {
            program
                .line
                .say("batches in other orders need more: searching for a stronger plan".to_owned());
            continue;
        }
        if sees_validation || program.interrupted || program.pace.until != Until::Validation {
            return (found, recipes, None);
        }
        let why = if program.pace.validates {
            "an evaluation needs more than training does: searching again, with an evaluation in each run"
        } else {
            "later steps need more than the first ones: searching again, with later steps in each run"
        };
        program.line.say(why.to_owned());
        if program.pace.validates {
            program.known.too_large = evaluation::too_large_after_all(program).await;
            if program.known.too_large.is_some() {
                return (Vec::new(), Tries::default(), None);
            }
        }
    }
}

fn mark_tight(program: &Program, found: &mut [Candidate]) {
    for it in found {
        it.is_tight = program.is_tight(it);
    }
}

/// A plan that checkpoints some blocks and does not fit through a validation, with as many as that takes if a run shows it (`is_seen_in_runs`), else with
/// all; none if it has all, or that is not enough.
async fn with_more_blocks(
    program: &mut Program,
    refuted: &Candidate,
    is_seen_in_runs: bool,
) -> Option<Candidate> {
    let n_blocks = program.known.n_blocks?;
    let some = |it: &Remedy| it.id == remedies::CHECKPOINT && !it.parameters.is_empty();
    if program.interrupted || !refuted.plan.remedies.iter().any(some) {
        return None;
    }
    let with_all =
        |it: &Remedy| if some(it) { Remedy::plain(remedies::CHECKPOINT) } else { it.clone() };
    let all = Plan::of(refuted.plan.remedies.iter().map(with_all).collect());
    let it = program.run_through(&all).await.filter(|it| it.fits)?;
    let mut it = if is_seen_in_runs { fewest_blocks(program, it, n_blocks).await } else { it };
    let fits =
        proof::fits_again(program, &mut it).await && proof::fits_once_more(program, &mut it).await;
    fits.then_some(it)
}

/// Plans that fit, from the mildest on; each as small as it can be.
async fn fitting_plans(program: &mut Program) -> Vec<Candidate> {
    // Free, and the numbers stay: nothing else is looked for where that is enough.
    let allocator = tuning::first(program);
    if !allocator.is_empty()
        && let Some(it) = program.run(&Plan::of(allocator)).await
        && let Some(mut it) = tuned(program, it).await
        && proof::fits_again(program, &mut it).await
        && !program.is_tight(&it)
    {
        return vec![it];
    }
    let mut free = free(program).await;
    let mut found = from_the_mildest(program, &free).await;
    if found.is_empty() && program.known.raised && !free.is_empty() {
        // Where too much was taken, it was ended before it came to what raises.
        let run_through = free::that_run(program, &free).await;
        if run_through != free && !program.interrupted {
            free = run_through;
            program.known.left_out.acquit();
            found = from_the_mildest(program, &free).await;
        }
    }
    // And what is free, where it was left out.
    let all_free = free::together(program);
    let was_left_out = free.is_empty() && program.written_least().is_some();
    if was_left_out && !found.is_empty() && !program.seems_hopeless(&all_free) {
        let it = strong_enough(program, &all_free).await;
        let is_new = |candidate: &Candidate| {
            !candidate.plan.remedies.is_empty()
                && !found.iter().any(|other| other.plan == candidate.plan)
        };
        if let Some(mut it) = it.filter(is_new)
            && proof::fits_again(program, &mut it).await
        {
            found.push(it);
        }
    }
    found
}

/// Plans that fit, each with what is free.
async fn from_the_mildest(program: &mut Program, free: &[Remedy]) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    let Rules { card, gpus, .. } = &program.rules;
    let mut done: Vec<Vec<&'static str>> = Vec::new();
    let rungs = rungs(card, *gpus, |it| program.suits(it), |it| program.may(it));
    let with_free = |stronger: &[&'static str]| {
        let stronger = stronger.iter().map(|id| Remedy::plain(id));
        Plan::of(free.iter().cloned().chain(stronger).collect())
    };
    for rung in &rungs {
        // Without what refused meanwhile.
        let stronger = without(rung, |it| program.suits(it));
        let with_room = || found.iter().filter(|it| !program.is_tight(it));
        let is_last = ENOUGH <= found.len() || stronger.iter().any(|it| SLOWEST.contains(it));
        let is_enough = with_room().next().is_some() && is_last
            || with_room().any(|it| it.numbers == Numbers::Same) && 2 <= found.len();
        if program.interrupted || is_enough {
            break;
        }
        if done.iter().any(|it| are_same(it, &stronger)) {
            continue;
        }
        done.push(stronger.clone());
        // What was already enough alone needs no company.
        let is_enough_alone = |candidate: &Candidate| {
            let mut strong =
                candidate.plan.remedies.iter().filter(|it| !is_free(it.id) && !free.contains(it));
            strong.all(|it| stronger.contains(&it.id))
        };
        if with_room().any(is_enough_alone) {
            continue;
        }
        let plan = with_free(&stronger);
        let mut n_refuted = 0;
        while let Some(it) = strong_enough(program, &plan).await {
            let mut it = weakest(program, it).await;
            // Two rungs may end at the same one, without what neither needs.
            let is_new = !found.iter().any(|other| other.plan == it.plan);
            if is_new && proof::fits_again(program, &mut it).await {
                found.push(it);
            } else if is_new && !program.interrupted && n_refuted < MOST_REFUTED {
                // By the same steps, if these have the worst batches.
                if program.known.sizes_differ || !has_later_steps_from_now_on(program) {
                    program.refuted_again(&it);
                }
                n_refuted += 1;
                continue;
            }
            break;
        }
    }
    found
}

/// What was left for the end of each plan; false if that refuted one: then plans have to be looked for again.
async fn all_fit_once_more(program: &mut Program, found: &mut [Candidate]) -> bool {
    for it in found {
        if !proof::fits_once_more(program, it).await {
            if !program.known.sizes_differ {
                has_later_steps_from_now_on(program);
            }
            return false;
        }
    }
    true
}

/// The first steps were not enough to tell what a plan takes: from now on runs have later ones, too. False if they had.
fn has_later_steps_from_now_on(program: &mut Program) -> bool {
    let had_few = program.pace.first_steps.take().is_some();
    if had_few {
        program.line.say(
            "a later step needs more than the first ones: from now on each run includes it"
                .to_owned(),
        );
        program.forget_what_fits();
    }
    had_few
}

/// `plan` with as many parts as it takes to fit; none if no number of them is enough.
async fn strong_enough(program: &mut Program, plan: &Plan) -> Option<Candidate> {
    let gpus = program.rules.gpus;
    if !plan.remedies.iter().any(|it| it.id == remedies::MICRO_BATCHES) {
        let plan = settled(plan, 1, gpus);
        if scouts::find_hopeless(program, &plan).await {
            return None;
        }
        let it = program.run(&plan).await?;
        return tuned(program, it).await;
    }
    let mut parts = 2;
    let mut before: Option<InParts> = None;
    let mut left_out: Vec<Plan> = Vec::new();
    while parts <= most_parts(program) && !program.interrupted {
        let in_parts = settled(plan, parts, gpus);
        if scouts::find_hopeless(program, &in_parts).await {
            // Twice as many save half as much again.
            let likely = program.likely_least(&in_parts).unwrap_or_default();
            let left = |before: Bytes| (likely + likely).saturating_sub(before);
            let before = left_out.last().and_then(|it| program.likely_least(it));
            if before.is_some_and(|it| program.is_far_too_much(left(it))) {
                return None;
            }
            left_out.push(in_parts);
            parts *= 2;
            continue;
        }
        let run = if program.may_be_cut(&in_parts) {
            program.run(&in_parts).await
        } else {
            program.run_through_training(&in_parts).await
        };
        let it = run?;
        let (allocated, of_training) = (it.took.peak.allocated, it.cut_after.is_some());
        let is_cut = !program.pace.shows_training(&it);
        let (took, least) = (it.took.clone(), program.needs_at_least(&it.took));
        if let Some(mut it) = tuned(program, it).await {
            // By what this one takes it may be seen that fewer parts are enough.
            while let Some(fewer) = left_out.pop().filter(|it| !program.seems_hopeless(it)) {
                let Some(fewer) = program.run_through(&fewer).await.filter(|it| it.fits) else {
                    break;
                };
                it = fewer;
            }
            return Some(it);
        }
        // An evaluation may take more than the training of fewer parts.
        let alike = before.filter(|it| !is_cut && it.of_training == of_training);
        if let Some(InParts { parts: fewer, allocated: more, .. }) = alike {
            // Of what a batch takes each of so many parts takes its share; the rest stays with any number of them.
            let saved = more.saturating_sub(allocated);
            let share = Bytes(saved.0 * fewer / (parts - fewer));
            let no_longer_helps = more.0 / 100 * 98 < allocated.0;
            if no_longer_helps || program.rules.most() < allocated.saturating_sub(share) {
                return None;
            }
            program.known.stays_in_parts = Some((others(plan), least.saturating_sub(share)));
        }
        before = Some(InParts { parts, allocated, of_training }).filter(|_| !is_cut);
        parts = if is_cut { 2 * parts } else { enough_parts(program, &in_parts, &took, parts) };
    }
    None
}

/// What a plan took that splits batches.
#[derive(Clone, Copy)]
struct InParts {
    parts: u64,
    allocated: Bytes,
    /// Its evaluation was not waited for.
    of_training: bool,
}

/// What decides what a plan takes beside the batch's share.
fn others(plan: &Plan) -> Vec<Remedy> {
    let of_batch = [remedies::MICRO_BATCHES, remedies::CHECKPOINT];
    plan.remedies.iter().filter(|it| !of_batch.contains(&it.id)).cloned().collect()
}

/// The fewest parts, at least twice as many as these, that may be enough, or as many as there can be: of what is not the batch's twice as many take half.
fn enough_parts(program: &Program, plan: &Plan, took: &Took, parts: u64) -> u64 {
    let (least, most) = (program.needs_at_least(took), program.rules.most());
    let lives_between_steps = took.steps.iter().map(|it| it.allocated_after).max();
    let stays = match &program.known.stays_in_parts {
        Some((of, stays)) if *of == others(plan) => (*stays).min(least),
        _ => {
            let beside = least.saturating_sub(took.peak.allocated);
            lives_between_steps.unwrap_or_default() + beside
        }
    };
    let share = least.saturating_sub(stays);
    let mut times = 2;
    while most + Bytes(most.0 / 100 * DOUBT) < stays + Bytes(share.0 / times)
        && 2 * parts * times <= most_parts(program)
    {
        times *= 2;
    }
    parts * times
}

fn most_parts(program: &Program) -> u64 {
    MOST_PARTS.min(program.known.n_samples.unwrap_or(MOST_PARTS))
}

/// By one metered step each.
async fn estimate_time(program: &mut Program, found: &mut [Candidate]) {
    if found.is_empty() || program.interrupted {
        return;
    }
    for it in found.iter_mut().filter(|it| it.work.is_none()) {
        it.work = program.scouted_work(&it.plan);
    }
    let plain = match &program.known.plain_work {
        Some(work) => work.clone(),
        None => {
            let work = counted(program, &Plan::default()).await;
            program.known.plain_work = Some(work.clone()).filter(|it| !it.is_empty());
            work
        }
    };
    for it in found {
        let already = it.work.take();
        if program.interrupted {
            break;
        }
        let changed = match already {
            Some(work) => work,
            None => counted(program, &it.plan).await,
        };
        let time = factor(&plain, &changed, &program.rules.card);
        it.time = if program.known.compiles { time.map(Factor::of_compiled) } else { time };
    }
}

/// The operations of a step with `plan`; none where the run does not get through, which is said.
async fn counted(program: &mut Program, plan: &Plan) -> Vec<Work> {
    let ran = program.trial(program.metered(plan)).await;
    if let Some(why) = ran.failure.as_ref().filter(|_| !program.interrupted) {
        program.line.say(format!("{}: the step time could not be estimated: {why}", plan.shown()));
    }
    ran.noted.work
}

/// After how many steps a run had taken the most, or nearly; two at least: from the second on the optimizer's state is there. Where sizes differ
/// what is kept for later is no need, and may grow for longer; and the same batch takes a little more where larger free blocks serve it.
fn steps_to_the_peak(it: &Took, sizes_differ: bool) -> Option<u32> {
    let first_with = |of: fn(&StepPeaks) -> Bytes, enough: fn(Bytes) -> Bytes| {
        let most = it.steps.iter().map(of).max()?;
        it.steps.iter().find(|it| enough(most) <= of(it)).map(|it| it.step)
    };
    if sizes_differ {
        let nearly = |most: Bytes| Bytes(most.0 / 100 * NEARLY);
        return Some(first_with(|it| it.allocated, nearly)?.max(2));
    }
    let allocated = first_with(|it| it.allocated, |most| most)?;
    let reserved = first_with(|it| it.reserved, |most| most)?;
    Some(allocated.max(reserved).max(2))
}
