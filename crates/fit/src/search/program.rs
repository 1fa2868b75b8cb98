//! The script that a search is about: runs plans of it, each once, and remembers what they told.

use plimsoll_core::{
    plan::{Numbers, Parameter, Plan, Remedy, remedies},
    prediction::{Category, OtherEnd, Peaks, StepGrowth, Tuned},
    recording::{Averages, Work},
    units::{Bytes, times},
};

use super::{
    ask::{Failed, FewParts, Grows, Look, Noted, On, Ran, Replay, Run, TooLarge, Took, Until},
    candidate::{Candidate, IfFound},
    dialogue::Line,
    ladder,
    left_out::LeftOut,
    rules::Rules,
};
use crate::{change::Places, cost::blocks::Blocks};

/// A plan is not compiled that is likely to take more than so many hundredths of what there is.
const HOPELESS: u128 = 105;

/// One part in so many of what is reserved is much to keep for later.
const LARGE_SLACK: u64 = 4;

/// One part in so many of what there is stays free for sizes that no run came to: they may take a quarter more.
const ROOM_FOR_SIZES: u64 = 5;
/// And one in so many for batches that differ in size.
const ROOM_FOR_ORDERS: u64 = 32;
/// In the first steps of a run the optimizer's state comes, or small batches and the worst ones.
const MIXED: usize = 2;
const MIXED_IF_SIZES_DIFFER: usize = 12;

/// Of a batch in parts the first has no gradients yet, the second adds to them, and the last finds all that the others return.
const FEW_PARTS: u64 = 3;

/// The script, what it may be made of, and what is known of it.
pub(super) struct Program {
    pub(super) rules: Rules,
    pub(super) line: Line,
    pub(super) known: Known,
    pub(super) pace: Pace,
    tried: Vec<Candidate>,
    /// Somebody asked us to stop.
    pub(super) interrupted: bool,
}

/// What runs have told of it.
#[derive(Default)]
pub(super) struct Known {
    /// A run has looked at it.
    is_seen: bool,
    /// What it needs as it is.
    pub(super) plain_needs: Bytes,
    /// The blocks of the model, once it was seen to have any.
    pub(super) n_blocks: Option<u64>,
    /// What was measured of them with each plan.
    pub(super) measured: Vec<MeasuredBlocks>,
    /// The samples of a batch, once one was split.
    pub(super) n_samples: Option<u64>,
    /// What plans with these remedies need, whatever the number of parts, by two that differ in that alone.
    pub(super) stays_in_parts: Option<(Vec<Remedy>, Bytes)>,
    /// Its model returns its loss, as was seen when a batch was split.
    pub(super) has_loss: bool,
    /// What that averages over.
    pub(super) averages: Option<Averages>,
    /// How it grows with its steps as it is, if it was seen to.
    pub(super) growth: Option<StepGrowth>,
    /// What has nothing to do in it, or does not suit it.
    pub(super) left_out: LeftOut,
    /// How it fails as it is after its first steps, if that was asked: none if it does not.
    fails: Option<Option<Failed>>,
    /// A plan made it raise an exception that it does not raise as it is.
    pub(super) raised: bool,
    /// No dropout and no batch-norm: what could give other random numbers or statistics does not.
    exact: bool,
    /// It generates or evaluates, and trains nothing.
    pub(super) trains_nothing: bool,
    /// It wraps its model for several devices.
    is_distributed: bool,
    /// Its batches differ in size: PyTorch keeps memory of every size where there is room, and gives it back where there is none.
    pub(super) sizes_differ: bool,
    /// Much of what it reserves as it is is kept for later, and no change of the allocator is enough by itself.
    slack_is_large: bool,
    /// Its steps differ though its batches do not: the script chooses sizes by itself, and runs came to some of them.
    pub(super) has_unseen_sizes: bool,
    /// The most that such a program is given to reserve with a plan that leaves the allocator alone.
    limit_for_sizes: Option<Bytes>,
    /// What was done to the batches of its runs, in sentences.
    pub(super) batches: Vec<String>,
    /// An evaluation that does not fit by itself, if a proof came to one.
    pub(super) too_large: Option<TooLarge>,
    /// It uses `torch.compile`; see [`super::Noted`].
    pub(super) compiles: bool,
    /// The operations of a step of the script as it is, if they were counted.
    pub(super) plain_work: Option<Vec<Work>>,
    /// What it needs at least as it is, compiled and where nothing is compiled, if that was seen; see [`Program::needs_at_least`].
    plain_least: Bytes,
    written_least: Option<Bytes>,
    /// Plans that were run with nothing compiled; see [`super::scouts`].
    scouted: Vec<Scouted>,
    /// Where a person would change something.
    pub(super) places: Places,
    /// It takes more where there is more: algorithms are tried out, and those whose workspaces do not fit are left out. The
    /// most that it is given to reserve then, so that what a phantom cannot know stays free.
    adapts_to: Option<Bytes>,
    /// The same where its evaluation was seen to: cuDNN takes smaller workspaces where memory is short.
    pub(super) shrinks_to: Option<Bytes>,
    /// Plans that were run with no more kept for later than there is room for; see [`super::slack`].
    pub(super) with_less_kept: Vec<Plan>,
}

/// The blocks of a model with a plan that checkpoints them.
#[derive(Clone)]
pub(super) struct MeasuredBlocks {
    pub(super) plan: Plan,
    /// What each keeps and costs, if they can be told apart.
    pub(super) blocks: Option<Blocks>,
    /// What the plan needs if none is checkpointed.
    pub(super) without: Option<Bytes>,
}

/// A plan that was run with nothing compiled.
struct Scouted {
    plan: Plan,
    /// What it needs at least so; none where it did not get through.
    least: Option<Bytes>,
    /// The operations of a step.
    work: Vec<Work>,
}

/// When a run of a candidate ends before it has shown all.
#[derive(Clone, Copy)]
enum GiveUp {
    /// Never.
    Never,
    /// Where it has allocated more than can ever fit.
    AtOnce(Bytes),
    /// The same, once so many first steps have shown what it takes.
    After(u32, Bytes),
}

/// How far a run goes.
pub(super) struct Pace {
    /// When a run has shown enough: later once what comes later was seen to take more than the first steps.
    pub(super) until: Until,
    /// And that was a validation.
    pub(super) validates: bool,
    /// So many steps show what the script takes as it is: candidates are tried with as many, and the plans that are
    /// found run on. None once later steps were seen to take more.
    pub(super) first_steps: Option<u32>,
}

impl Pace {
    /// Whether the run of a candidate went on long enough to show what training takes.
    pub(super) fn shows_training(&self, it: &Candidate) -> bool {
        let shows = |steps| self.first_steps.is_some_and(|first| first <= steps);
        it.cut_after.is_none_or(|steps| self.validates && shows(steps))
    }
}

impl Program {
    pub(super) fn new(rules: Rules, line: Line) -> Program {
        let pace = Pace { until: Until::Steady, validates: false, first_steps: None };
        let known = Known::default();
        Program { rules, line, known, pace, tried: Vec::new(), interrupted: false }
    }

    /// The script as it is, and what it says of itself; why it does not run, if it does not.
    pub(super) async fn as_it_is(&mut self) -> Result<Candidate, String> {
        let plan = Plan::default();
        let look = if self.known.is_seen { None } else { Some(Look::Sites) };
        let mut ran = self.trial(Run { look, ..self.roomy(&plan, Until::Steady) }).await;
        if !self.known.is_seen {
            self.known.sees(&mut ran.noted);
        }
        if ran.noted.sizes_differ {
            let limit = self.rules.most().saturating_sub(self.beside(&ran.took));
            (self.known.sizes_differ, self.known.limit_for_sizes) = (true, Some(limit));
        }
        for it in &ran.noted.batches {
            self.line.say(it.clone());
        }
        self.known.batches.clone_from(&ran.noted.batches);
        if ran.ends.contains(&OtherEnd::Workspaces) {
            let Took { safe, peak, .. } = &ran.took;
            let (most, limit) = (self.rules.most(), self.rules.limit_reserved);
            let beside = if limit.is_some() { peak.device } else { peak.reserved };
            self.known.adapts_to = Some(most.saturating_sub(safe.saturating_sub(beside)));
        }
        let mut plain = self.candidate(plan, &ran);
        plain.tunings = self.tunings(&plain.plan, &ran, plain.needs).await;
        let Peaks { allocated, reserved, .. } = plain.took.peak;
        self.known.slack_is_large = !plain.fits
            && plain.tunings.is_empty()
            && reserved.0 / LARGE_SLACK <= reserved.saturating_sub(allocated).0;
        self.known.plain_needs = plain.needs;
        self.known.plain_least = self.needs_at_least(&plain.took);
        if let Some(why) = ran.failure {
            return Err(why);
        }
        if ran.n_ooms == 0 && !self.interrupted {
            self.tried.push(plain.clone());
        }
        let least = self.needs_at_least(&plain.took);
        // Where it fits, what comes later is still to be run.
        self.line.say(if plain.fits {
            format!("without changes: at least {} to be safe", plain.needs)
        } else if self.known.sizes_differ {
            format!("without changes: at least {least} to be safe")
        } else {
            format!("without changes: {} to be safe", plain.needs)
        });
        Ok(plain)
    }

    /// Looks at the script in a run in which nothing is compiled, while it compiles as it is. Where that run does not get through nothing
    /// is known of it yet.
    pub(super) async fn as_it_is_written(&mut self) {
        let run = self.roomy(&Plan::default(), Until::Steady);
        let mut ran = self.trial(Run { look: Some(Look::SitesAndWork), ..run }).await;
        if ran.fits() {
            let work = std::mem::take(&mut ran.noted.work);
            self.known.plain_work = Some(work).filter(|it| !it.is_empty());
            self.known.sees(&mut ran.noted);
            self.known.written_least = Some(self.needs_at_least(&ran.took));
        }
    }

    /// A run with one metered step, in which nothing is compiled.
    pub(super) fn metered(&self, plan: &Plan) -> Run {
        Run { look: Some(Look::Work), ..self.roomy(plan, Until::Steps(2)) }
    }

    /// What the script needs at least as it is where nothing is compiled; nothing where nothing is anyway, or that is not wanted.
    pub(super) fn written_least(&self) -> Option<Bytes> {
        self.known.written_least.filter(|_| self.known.compiles)
    }

    /// What `plan` needs at least where nothing is compiled; nothing if it does not get through.
    pub(super) async fn scout(&mut self, plan: &Plan) -> Option<Bytes> {
        if let Some(it) = self.known.scouted.iter().find(|it| it.plan == *plan) {
            return it.least;
        }
        let mut ran = self.trial(self.metered(plan)).await;
        let least = Some(self.needs_at_least(&ran.took)).filter(|_| ran.fits());
        let work = std::mem::take(&mut ran.noted.work);
        if !self.interrupted {
            self.known.scouted.push(Scouted { plan: plan.clone(), least, work });
        }
        least
    }

    /// The operations of a step with `plan`, if they were counted in such a run.
    pub(super) fn scouted_work(&self, plan: &Plan) -> Option<Vec<Work>> {
        let it = self.known.scouted.iter().find(|it| it.plan == *plan)?;
        Some(it.work.clone()).filter(|it| !it.is_empty())
    }

    /// Whether that run took so much that to compile the plan is in vain.
    pub(super) fn seems_hopeless(&self, plan: &Plan) -> bool {
        self.likely_least(plan).is_some_and(|it| self.is_far_too_much(it))
    }

    /// Whether nothing that is likely to need so much is compiled.
    pub(super) fn is_far_too_much(&self, likely: Bytes) -> bool {
        u128::from(self.rules.most().0) * HOPELESS < 100 * u128::from(likely.0)
    }

    /// What a plan is likely to need at least compiled, if it was run with nothing compiled, to choose what is run: what compiling saves it is taken to save as
    /// of the script as it is, and of the smallest plan of which both is known.
    pub(super) fn likely_least(&self, plan: &Plan) -> Option<Bytes> {
        let least = |plan: &Plan| {
            let it = self.known.scouted.iter().find(|it| it.plan == *plan)?;
            it.least.map(|it| i128::from(it.0))
        };
        let (scouted, written) = (least(plan)?, i128::from(self.written_least()?.0));
        let whole = |it: &&Candidate| it.cut_after.is_none() && it.plan != *plan;
        let both =
            |it: &Candidate| Some((least(&it.plan)?, i128::from(self.needs_at_least(&it.took).0)));
        let smallest = self.tried.iter().filter(whole).filter_map(both).min().unwrap_or((0, 0));
        let plain = i128::from(self.known.plain_least.0);
        // By how much it goes beyond the smallest one, in parts of what the script as it is does.
        let (beyond, of) = (scouted - smallest.0, (written - smallest.0).max(1));
        u64::try_from(smallest.1 + beyond * (plain - smallest.1) / of).ok().map(Bytes)
    }

    /// From now on every plan is compiled that could be tried.
    pub(super) fn needs_no_scouts(&mut self) {
        self.known.written_least = None;
    }

    /// Runs `plan`; nothing if the script does not bear it, or it is too large by what is known already.
    pub(super) async fn run(&mut self, plan: &Plan) -> Option<Candidate> {
        if self.is_too_large(plan) {
            return None;
        }
        self.run_up_to(plan, GiveUp::AtOnce(self.rules.most_allocated())).await
    }

    /// Whether `plan` takes too much by what was run: a run with less of it, and no less that is free, held too much beside what the rest of it may take away.
    fn is_too_large(&self, plan: &Plan) -> bool {
        let makes_do_with_less = self.adapts() || self.known.shrinks_to.is_some();
        if makes_do_with_less || self.known.compiles || plan.remedies.is_empty() {
            return false;
        }
        let is_too_much = |it: &Candidate, taken_away: Bytes| {
            let allocated = it.took.peak.allocated.saturating_sub(taken_away);
            let least = self.needs_at_least(&it.took).saturating_sub(taken_away);
            it.cut_after.is_some() && self.rules.most_allocated() < allocated
                || self.rules.most() < least
        };
        self.tried.iter().filter(|it| !it.fits && it.plan != *plan).any(|it| {
            let rest = plan.remedies.iter().filter(|remedy| !it.plan.remedies.contains(remedy));
            let mut more = it.plan.remedies.iter().filter(|it| !plan.remedies.contains(it));
            let reached: Option<Vec<_>> = rest.map(|it| reached_by(it.id)).collect();
            let Some(reached) = reached.map(|it| it.concat()) else { return false };
            let held = it.took.held.iter().filter(|it| reached.contains(&it.category));
            let is_known = reached.is_empty() || !it.took.held.is_empty();
            is_known
                && more.all(|it| ladder::is_free(it.id))
                && is_too_much(it, held.map(|it| it.bytes).sum())
        })
    }

    /// The same, and what it takes is seen even if that is far too much.
    pub(super) async fn run_through(&mut self, plan: &Plan) -> Option<Candidate> {
        self.tried.retain(|it| it.plan != *plan || it.cut_after.is_none());
        self.run_up_to(plan, GiveUp::Never).await
    }

    /// The same, but the evaluation of a plan whose training steps take too much is not waited for.
    pub(super) async fn run_through_training(&mut self, plan: &Plan) -> Option<Candidate> {
        let first_steps = self.pace.first_steps.filter(|_| self.pace.validates && !self.adapts());
        let Some(steps) = first_steps else { return self.run_through(plan).await };
        self.tried.retain(|it| it.plan != *plan || self.pace.shows_training(it));
        self.run_up_to(plan, GiveUp::After(steps, self.rules.most_allocated())).await
    }

    /// Whether a run of `plan` may end where it took too much. How much more parts save is seen only in a run that goes on.
    pub(super) fn may_be_cut(&self, plan: &Plan) -> bool {
        self.adapts() || !is_in_parts(plan)
    }

    /// The run of a candidate; and what it may reserve, where it makes do with less.
    fn of_candidate(&self, plan: &Plan, give_up: GiveUp) -> (Run, Option<Bytes>) {
        let roomy = self.roomy(plan, self.until_of_candidates());
        let leaves_allocator = plan.alloc_conf().is_none();
        let for_sizes = self.known.limit_for_sizes.filter(|_| leaves_allocator);
        let limit = self.known.adapts_to.or(self.known.shrinks_to).or(for_sizes);
        let limit = limit.filter(|_| matches!(give_up, GiveUp::AtOnce(_)));
        let run = match (give_up, limit) {
            (GiveUp::AtOnce(_), Some(_)) => Run { limit_reserved: limit, ..roomy },
            (GiveUp::AtOnce(most), None) => Run { give_up_above: Some(most), ..roomy },
            (GiveUp::After(steps, most), _) => {
                Run { give_up_above: Some(most), give_up_after: steps, ..roomy }
            }
            (GiveUp::Never, _) => roomy,
        };
        (Run { few_parts: few_parts(plan), ..run }, limit)
    }

    /// How far a run goes that shows an evaluation: where batches differ in size memory is never steady, and the worst ones come first.
    pub(super) fn until_one_validation(&self) -> Until {
        let first_steps = self.pace.first_steps.filter(|_| self.known.sizes_differ);
        first_steps.map_or(Until::OneValidation, Until::ValidationAfter)
    }

    /// How far the run of a candidate goes.
    fn until_of_candidates(&self) -> Until {
        match (self.pace.until, self.pace.first_steps) {
            (Until::Steady, Some(n)) => Until::Steps(n),
            // The worst batches come first in any case; how others go with them is seen at the end.
            (Until::Validation, _) if self.known.sizes_differ => self.until_one_validation(),
            (until, _) => until,
        }
    }

    /// How far a run goes that is there to refute a plan: where batches differ in size no further than the one before, which went through the
    /// worst ones. How others go with them is seen at the end.
    pub(super) fn until_again(&self) -> Until {
        if self.known.sizes_differ { self.until_of_candidates() } else { self.pace.until }
    }

    async fn run_up_to(&mut self, plan: &Plan, give_up: GiveUp) -> Option<Candidate> {
        if let Some(it) = self.tried.iter().find(|it| it.plan == *plan) {
            return Some(it.clone());
        }
        if self.interrupted {
            return None;
        }
        let (run, limit) = self.of_candidate(plan, give_up);
        let mut ran = self.trial(run).await;
        if limit.is_some() && ran.n_ooms != 0 {
            (ran.was_cut, ran.n_ooms, ran.failure) = (true, 0, None);
        }
        self.known.takes_in(plan, &ran);
        let mut it = self.candidate(plan.clone(), &ran);
        it.tunings = self.tunings(plan, &ran, it.needs).await;
        it.cut_after = ran.was_cut.then_some(ran.took.steps_seen);
        it.retries = ran.n_retries;
        let said = match &ran.failure {
            Some(why) => why.clone(),
            None if it.fits && it.retries != 0 => {
                format!("fits, {} to be safe; the card was full {}", it.needs, times(it.retries))
            }
            None if it.fits => format!("fits, {} to be safe", it.needs),
            None if self.pace.shows_training(&it) && ran.was_cut => {
                format!("at least {} to be safe, too much", it.needs)
            }
            None if ran.was_cut => format!("needs more than {}", self.rules.most()),
            None => format!("{} to be safe, too much", it.needs),
        };
        self.line.say(format!("{}: {said} ({:.1} s)", plan.shown(), ran.seconds));
        let runs = ran.failure.is_none() && ran.n_ooms == 0;
        let keeps = !self.rules.keep_numerics || it.numbers == Numbers::Same;
        if !runs || !keeps || self.interrupted {
            return None;
        }
        self.tried.push(it.clone());
        Some(it)
    }

    /// Runs `it`, which is only too large by what it keeps for later, where there is no more than the card has: PyTorch gives that back when memory is full.
    /// Nothing if that is not enough.
    pub(super) async fn with_less_kept(&mut self, it: &Candidate) -> Option<Candidate> {
        let limit = self.reserved_at_most(it);
        let roomy = self.roomy(&it.plan, self.until_of_candidates());
        let run = Run { limit_reserved: Some(limit), few_parts: few_parts(&it.plan), ..roomy };
        let ran = self.trial(run).await;
        let retries = ran.n_retries;
        let on_less = Candidate { retries, ..self.candidate(it.plan.clone(), &ran) };
        let found = Some(on_less).filter(|it| ran.fits() && it.fits && !self.interrupted)?;
        let (needs, full) = (found.needs, times(retries));
        self.line.say(format!(
            "{}: fits, {needs} to be safe; the card was full {full} ({:.1} s)",
            it.plan.shown(),
            ran.seconds
        ));
        self.tried.retain(|old| old.plan != found.plan);
        self.tried.push(found.clone());
        Some(found)
    }

    /// Whether settings of the allocator come before all else: free, and the numbers stay. What is compiled is compiled again for them.
    pub(super) fn wants_allocator(&self) -> bool {
        self.known.sizes_differ || self.known.slack_is_large && !self.known.compiles
    }

    /// Whether it may fit where it took too much with room.
    pub(super) fn adapts(&self) -> bool {
        self.known.adapts_to.is_some()
    }

    /// The most that it may reserve where it is proven.
    pub(super) fn limit_of_proof(&self) -> Option<Bytes> {
        self.known.adapts_to.or(self.rules.limit_reserved)
    }

    /// The same of `it`: what gave memory back to fit may have no more where it is run again, so that what a phantom cannot know stays free.
    pub(super) fn limit_of(&self, it: &Candidate) -> Option<Bytes> {
        self.limit_of_proof().or_else(|| (it.retries != 0).then(|| self.reserved_at_most(it)))
    }

    /// What `it` may reserve so that what it takes beside, and what a phantom cannot know, is free: that is more where more is reserved.
    pub(super) fn reserved_at_most(&self, it: &Candidate) -> Bytes {
        let Peaks { reserved, device, .. } = it.took.peak;
        let all = self.rules.most().saturating_sub(self.beside(&it.took));
        let spare = u128::from(all.saturating_sub(reserved).0) * u128::from(reserved.0);
        let doubt = it.took.safe.saturating_sub(device);
        let spare = spare / u128::from((reserved + doubt).0.max(1));
        all.min(reserved + Bytes(u64::try_from(spare).unwrap_or(u64::MAX)))
    }

    /// A run on a card with room, under what the plan's own settings of the allocator want.
    pub(super) fn roomy(&self, plan: &Plan, until: Until) -> Run {
        // Garbage is collected only below a limit.
        let collects = plan.alloc_conf().is_some_and(|it| it.contains("garbage_collection"));
        let limit_reserved = collects.then_some(Bytes(self.rules.most().0 / 100 * 99));
        Run { limit_reserved, ..Run::of(plan, until, On::Roomy) }
    }

    /// Makes one run; none after somebody asked us to stop.
    pub(super) async fn trial(&mut self, run: Run) -> Ran {
        if self.interrupted {
            return Ran::not_made();
        }
        let as_it_is = run.plan.remedies.is_empty() && run.files.is_empty() && run.words.is_empty();
        let has_room = as_it_is && run.half.is_none() && run.on == On::Roomy;
        let mut ran = self.line.run(run).await;
        self.interrupted |= ran.interrupted;
        let mixed = if ran.noted.sizes_differ { MIXED_IF_SIZES_DIFFER } else { MIXED };
        let may_be_larger = has_room && !ran.noted.sizes_are_drawn;
        self.known.has_unseen_sizes |= may_be_larger && ran.took.varies_after(mixed);
        if ran.noted.sizes_differ {
            ran.took.first_step = None; // The first batch of a real run is another one.
        }
        if as_it_is && ran.took.growth.is_some() {
            self.known.growth.clone_from(&ran.took.growth);
        }
        ran
    }

    /// When `growth` runs out of what there is.
    pub(super) fn grows(&self, growth: StepGrowth, plain: &Candidate) -> Grows {
        let Peaks { device, reserved, .. } = plain.took.peak;
        let beside = device.saturating_sub(reserved);
        let room = self.rules.limit_reserved.unwrap_or(self.rules.most().saturating_sub(beside));
        Grows { runs_out_at: growth.runs_out_with(room), growth }
    }

    /// Takes in one more run of a candidate; false if it did not get through.
    pub(super) fn takes_in(&self, it: &mut Candidate, ran: Ran) -> bool {
        if !ran.fits() {
            return false;
        }
        let needs = self.needs(&ran.took);
        if it.needs < needs {
            let fits = self.has_room(&ran.took);
            (it.took, it.needs, it.fits) = (ran.took, needs, fits);
        }
        it.fits
    }

    /// The same of a run that went as far as the one before: what it needs more shows how much runs differ, unless it takes what there is.
    pub(super) fn takes_in_again(&self, it: &mut Candidate, ran: Ran) -> bool {
        if ran.fits() && !self.adapts() && self.known.shrinks_to.is_none() {
            it.spread = it.spread.max(self.needs(&ran.took).saturating_sub(it.needs));
        }
        self.takes_in(it, ran)
    }

    /// `it` was run again and does not fit: no other plan is to become it.
    pub(super) fn refuted_again(&mut self, it: &Candidate) {
        let is_it = |old: &&mut Candidate| old.plan == it.plan;
        if let Some(old) = self.tried.iter_mut().find(is_it) {
            *old = Candidate { fits: false, ..it.clone() };
        }
    }

    /// What this run says, in which masks found everything; nothing if it failed for another reason than memory.
    pub(super) fn if_found(&self, ran: &Ran) -> Option<IfFound> {
        if ran.is_strange() {
            return None;
        }
        let needs = Some(self.needs(&ran.took)).filter(|it| ran.fits() && *it <= self.rules.most());
        Some(needs.map_or(IfFound::RunsOut, IfFound::Needs))
    }

    /// The card ended `it`, and `with_room` is the same run with room.
    pub(super) fn refuted(&mut self, it: &mut Candidate, with_room: Run) {
        (it.fits, it.refuted) = (false, Some(with_room));
        self.remember(it);
    }

    /// What a candidate needs that was refuted, by that run with room.
    pub(super) async fn sees_what_it_needs(&mut self, it: &mut Candidate) {
        let Some(with_room) = it.refuted.take() else { return };
        let ran = self.trial(with_room).await;
        self.takes_in(it, ran);
        it.fits = false;
        self.remember(it);
    }

    /// `it` in the place of what was known of its plan.
    pub(super) fn remember(&mut self, it: &Candidate) {
        if let Some(old) = self.tried.iter_mut().find(|old| old.plan == it.plan)
            && old.needs <= it.needs
        {
            *old = it.clone();
        }
    }

    /// What it needs of what is limited, with the allowance for what a phantom cannot know. Where batches differ in size and not even what is
    /// allocated fits, that is what it needs: what is kept for later beside it says nothing of a card that has no room for it.
    pub(super) fn needs(&self, took: &Took) -> Bytes {
        let least = self.needs_at_least(took);
        let is_beyond = self.known.sizes_differ && self.rules.most() < least;
        if is_beyond { least } else { self.with_cache(took) }
    }

    /// Whether there is room for all that it took, and the allowance.
    fn has_room(&self, took: &Took) -> bool {
        self.with_cache(took) <= self.rules.most()
    }

    /// What a plan leaves free for sizes that no run came to.
    pub(super) fn room_for_sizes(&self) -> Bytes {
        let room = Bytes(self.rules.most().0 / ROOM_FOR_SIZES);
        if self.known.has_unseen_sizes { room } else { Bytes::ZERO }
    }

    /// What a plan leaves free for lengths and orders of batches that no run came to, where that costs little time.
    pub(super) fn room_for_orders(&self) -> Bytes {
        let room = Bytes(self.rules.most().0 / ROOM_FOR_ORDERS);
        if self.known.sizes_differ { room } else { Bytes::ZERO }
    }

    /// Whether it leaves most of that.
    pub(super) fn leaves_room_for_orders(&self, it: &Candidate) -> bool {
        it.needs + Bytes(self.room_for_orders().0 / 2) <= self.rules.most()
    }

    /// Whether a plan that fits leaves less.
    pub(super) fn is_tight(&self, it: &Candidate) -> bool {
        self.rules.most().saturating_sub(it.needs) < self.room_for_sizes().max(it.spread)
    }

    /// What it needs with all that the allocator keeps for later.
    fn with_cache(&self, took: &Took) -> Bytes {
        let beside = took.peak.device.saturating_sub(took.peak.reserved);
        match self.rules.limit_reserved {
            Some(_) => took.safe.saturating_sub(beside),
            None => took.safe,
        }
    }

    /// What it takes beside what PyTorch reserves, the allowance included.
    pub(super) fn beside(&self, took: &Took) -> Bytes {
        self.with_cache(took).saturating_sub(took.peak.reserved)
    }

    /// The same with an allocator that keeps nothing for later: some setting of it may come near to that.
    pub(super) fn needs_at_least(&self, took: &Took) -> Bytes {
        let Peaks { allocated, reserved, .. } = took.peak;
        self.with_cache(took).saturating_sub(reserved.saturating_sub(allocated))
    }

    /// Every plan that was run and that the script bears.
    pub(super) fn tried(&self) -> &[Candidate] {
        &self.tried
    }

    /// What was tried up to now says nothing.
    pub(super) fn forget(&mut self) {
        self.tried.clear();
    }

    /// What fitted up to now may not.
    pub(super) fn forget_what_fits(&mut self) {
        self.tried.retain(|it| !it.fits);
    }

    /// Whether a plan may use this remedy.
    pub(super) fn may(&self, id: &str) -> bool {
        // Where a validation takes more than training does, or nothing is trained, it is the first thing to think of.
        let is_evaluation = self.pace.validates || self.known.trains_nothing;
        let is_for_it = id == remedies::NO_GRAD_EVALUATION && is_evaluation;
        self.rules.allow(id) || is_for_it && self.rules.allow.is_empty() && !self.rules.forbids(id)
    }

    /// Whether it has a use for this remedy.
    pub(super) fn suits(&self, id: &str) -> bool {
        let has_place = id != remedies::BUCKET_VIEW || self.known.is_distributed;
        has_place && !self.known.left_out.has(id)
    }

    /// For people: what they may have expected in a plan.
    pub(super) fn what_is_left_out(&self) -> Option<String> {
        let suits_card = |id: &str| {
            let is_autocast = [remedies::AUTOCAST, remedies::AUTOCAST_FP16].contains(&id);
            !is_autocast || id == ladder::for_card(&self.rules.card, remedies::AUTOCAST)
        };
        self.known.left_out.shown(|id| self.may(id) && suits_card(id))
    }

    fn candidate(&self, plan: Plan, ran: &Ran) -> Candidate {
        let needs = self.needs(&ran.took);
        let numbers = self.known.numbers(plan.numbers());
        Candidate {
            fits: self.has_room(&ran.took) && !ran.was_cut,
            took: ran.took.clone(),
            needs,
            ends: ran.ends.clone(),
            compiled_anew: ran.noted.compiled_anew,
            ..Candidate::not_run(plan, numbers)
        }
    }

    /// How the script fails as it is in a run that goes so far, if it does; with this plan it fails so.
    pub(super) async fn fails_as_it_is(
        &mut self,
        plan: &Plan,
        with_plan: Failed,
        until: Until,
    ) -> Option<Failed> {
        if plan.remedies.is_empty() {
            return Some(with_plan);
        }
        if self.known.fails.is_none() {
            let ran = self.trial(self.roomy(&Plan::default(), until)).await;
            self.known.fails = Some(Failed::of(&ran)).filter(|_| !self.interrupted);
        }
        self.known.fails.clone().flatten()
    }

    /// A later step fails with this plan, and not without it.
    pub(super) fn does_not_bear(&mut self, plan: &Plan, ran: &Ran) {
        let why = ran.failure.clone().unwrap_or_default();
        self.line.say(format!(
            "{}: a later step fails with it, but not without it: {why}",
            plan.shown()
        ));
        self.known.takes_in(plan, ran);
        self.tried.retain(|it| it.plan != *plan);
    }

    /// What of the allocator would have made this run fit, by a replay; nothing where no replay can: what is not
    /// allocated is all that an allocator can save.
    async fn tunings(&self, plan: &Plan, ran: &Ran, needs: Bytes) -> Vec<Tuned> {
        let reserved = ran.took.peak.reserved;
        let most = self.rules.most();
        let of_allocator = [remedies::ALLOCATOR, remedies::EMPTY_CACHE];
        let is_changed = plan.remedies.iter().any(|it| of_allocator.contains(&it.id));
        // Other settings may do more than those that each plan begins with.
        let is_changed = is_changed && plan.alloc_conf() != Some(ladder::EXPANDABLE);
        let least = self.needs_at_least(&ran.took);
        let may = of_allocator.iter().any(|it| self.may(it));
        if is_changed || !may || needs <= most || most < least || ran.n_ooms != 0 {
            return Vec::new();
        }
        let beside = needs.saturating_sub(reserved);
        let card = self.rules.is_whole_card.then_some(most);
        self.line.replay(Replay { limit: most.saturating_sub(beside), card }).await
    }
}

/// What of the tensors that a run held at its peak a remedy may make smaller, if that is not all of them.
fn reached_by(id: &str) -> Option<&'static [Category]> {
    match id {
        remedies::ALLOCATOR | remedies::EMPTY_CACHE => Some(&[]),
        remedies::OPTIMIZER_OFFLOAD
        | remedies::OPTIMIZER_8BIT
        | remedies::OPTIMIZER_IN_BACKWARD => {
            Some(&[Category::OptimizerState, Category::Gradients, Category::Temporaries])
        }
        _ => None,
    }
}

/// Whether `plan` splits batches.
fn is_in_parts(plan: &Plan) -> bool {
    plan.remedies.iter().any(|it| it.id == remedies::MICRO_BATCHES)
}

/// How many parts of a batch show what all take, if `plan` has more. Processes gather weights for each part.
pub(super) fn few_parts(plan: &Plan) -> Option<FewParts> {
    let of = |it: &Parameter| matches!(it, Parameter::Parts(n) if FEW_PARTS < *n);
    let has_more = plan.remedies.iter().flat_map(|it| &it.parameters).any(of);
    (has_more && plan.gpus().is_none()).then_some(FewParts { parts: FEW_PARTS, after: 0 })
}

impl Known {
    /// Takes in what a run that looked at the script noted of it.
    fn sees(&mut self, noted: &mut Noted) {
        self.is_seen = true;
        self.places = noted.places.take().unwrap_or_default();
        self.left_out = LeftOut::seen(noted);
        self.is_distributed = noted.is_distributed;
        self.trains_nothing = noted.trains_nothing;
        self.compiles = noted.compiles;
    }

    /// What is done to the numbers of this program by what may do that to those of others.
    pub(super) fn numbers(&self, of: Numbers) -> Numbers {
        match of {
            Numbers::Statistics if self.exact => Numbers::Same,
            other => other,
        }
    }

    fn takes_in(&mut self, plan: &Plan, ran: &Ran) {
        let noted = &ran.noted;
        if let Some(n) = noted.n_blocks {
            self.n_blocks = Some(n).filter(|it| 1 < *it);
        }
        if let Some(split) = noted.split {
            (self.exact, self.n_samples, self.has_loss) =
                (split.exact, split.samples, split.has_loss);
            self.averages = split.averages;
        }
        if let Some(exact) = noted.exact {
            self.exact = exact;
        }
        self.raised |= ran.failure.is_some() && ran.refused.is_empty() && !ran.interrupted;
        self.left_out.learns(plan, ran);
    }
}
