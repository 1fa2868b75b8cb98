//! The search for a plan: candidates from the mildest to the strongest, each run on the phantom, until some fit;
//! then as little of each as is needed.

use std::{
    ffi::OsString,
    io::{self, Write},
    path::Path,
    time::Instant,
};

use plimsoll_core::{
    cards::Card,
    plan::{self, Change, Numbers, Plan, Remedy, Sites, Sources},
    prediction::{Prediction, StepPeaks},
    units::Bytes,
    views::plan::{self as view, Proposal, Seen},
};

use super::{
    Template,
    free::is_free,
    is_allowed, ladder,
    left_out::LeftOut,
    limit, measure,
    ranking::{self, Candidate},
    template,
};
use crate::{
    cli::FitArgs,
    exit::Exit,
    launch::{Setting, Stop},
    requested_file::RequestedFile,
    trials::{GIVE_UP_ABOVE, Trial, Trials},
};

/// More than any card: what a run takes is to be seen, not where it ends.
const ROOMY: Bytes = Bytes::gib(512);
/// The most parts that a batch is split into.
const MOST_PARTS: u64 = 64;
/// So many plans that fit are enough to choose from.
const ENOUGH: usize = 3;

pub(super) fn run(
    args: &FitArgs,
    template: &Template,
    card: Card,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let device = args.measure.then(measure::device).transpose()?;
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let json_on_stdout = json.as_ref().is_some_and(RequestedFile::is_stdout);
    let (what, most) = limit(args, &card);
    let words = template.words();
    let started = Instant::now();
    let trials = Trials::new(card.clone().with_total(ROOMY), &args.assume)?;
    let mut search = Search {
        args,
        words: &words,
        trials,
        most,
        exact: false,
        n_blocks: None,
        n_samples: None,
        tried: Vec::new(),
        sites: Sites::default(),
        left_out: LeftOut::default(),
        plain_needs: Bytes::ZERO,
        stop: Stop::Steady,
        validates: false,
        first_steps: None,
        interrupted: false,
    };
    let (mut plain, failure) = search.plain()?;
    if let Some(why) = failure {
        anyhow::bail!("{why}");
    }
    let mut seen = Seen { steps: plain.prediction.steps_seen, ..Seen::default() };
    if plain.fits && !search.interrupted {
        // One that does not get through on the card itself needs a plan, too.
        let proven = search.proves(&card, &mut plain)?;
        plain.fits = proven.is_some();
        seen = proven.unwrap_or(seen);
        if !plain.fits && matches!(search.stop, Stop::Validation) {
            // What it takes with its validation; on the card itself it ran out before.
            plain = search.run_through(&Plan::default())?.unwrap_or(plain);
            search.plain_needs = plain.needs;
        }
    }
    let mut found = Vec::new();
    if !plain.fits {
        if let Some(it) = search.what_is_left_out() {
            search.say(&it);
        }
        let proven;
        (found, proven) = search.proven_plans(&card)?;
        seen = proven.unwrap_or(seen);
    }
    if let Some(device) = &device {
        search.measure(device, &card, &mut plain, &mut found, &mut seen)?;
    }
    let nothing_fits = !plain.fits && found.is_empty();
    let closest = if nothing_fits { search.nearest()? } else { None };
    let is_wanted = args.advice || nothing_fits;
    let advice = if is_wanted { search.advice()? } else { Vec::new() };
    let change = found.first().map(|it| search.change(&it.plan)).unwrap_or_default();
    let patch = args.plan.with_extension("diff");
    let proposal = Proposal {
        patch_line: format!("patch -p0 < {}", patch.display()),
        change,
        card: card.name.clone(),
        what,
        limit: most,
        as_it_is: plain.row(),
        fits_as_it_is: plain.fits,
        plans: found.iter().map(Candidate::row).collect(),
        advice,
        closest: closest.as_ref().map(Candidate::row),
        run_line: template::run_line(&args.plan, &words),
        runs: search.trials.n_runs,
        seconds: started.elapsed().as_secs_f64(),
        interrupted: search.interrupted,
        seen,
        measured_on: device.map(|it| it.name),
    };
    // A script that fits has a plan, too: without remedies, and with the first step to compare the real one with.
    if let Some(best) = found.first().or(Some(&plain).filter(|it| it.fits)) {
        let head = view::file_head(&proposal, &best.row());
        let predicted_reserved = Some(best.prediction.peak.reserved);
        // The first batch of the real run is another one than the worst.
        let first_step = best.prediction.first_step_facts.clone();
        let first_step = first_step.filter(|_| args.worst_seq.is_none());
        let kept = Plan { predicted_reserved, first_step, ..best.plan.clone() };
        write_file(&args.plan, &kept.file(&head))?;
        // One that is left from another plan would be taken for this one's.
        if !proposal.change.diff.is_empty() || patch.exists() {
            write_file(&patch, &proposal.change.diff)?;
        }
    }
    if let Some(sink) = json {
        sink.write(view::json(&proposal).as_bytes(), out)?;
    }
    if !args.quiet && !json_on_stdout {
        crate::commands::write(out, &view::text(&proposal))?;
    }
    Ok(match (plain.fits || !found.is_empty(), search.interrupted) {
        (true, _) => Exit::Fits,
        (false, false) => Exit::DoesNotFit,
        (false, true) => Exit::CouldNotTell,
    })
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).map_err(|error| {
        anyhow::anyhow!("cannot write {}: {}", path.display(), crate::cache::reason(&error))
    })
}

pub(super) struct Search<'a> {
    pub(super) args: &'a FitArgs,
    pub(super) words: &'a [OsString],
    pub(super) trials: Trials,
    pub(super) most: Bytes,
    /// No dropout and no batch-norm: what could give other random numbers or statistics does not.
    exact: bool,
    /// The blocks of the model, once it was seen to have any.
    n_blocks: Option<u64>,
    n_samples: Option<u64>,
    pub(super) tried: Vec<Candidate>,
    /// Where in the script a person would change something.
    pub(super) sites: Sites,
    /// What has nothing to do in this program, or does not suit it.
    pub(super) left_out: LeftOut,
    /// What the script needs as it is.
    pub(super) plain_needs: Bytes,
    /// When a run has shown enough: later once what comes later was seen to take more than the first steps.
    pub(super) stop: Stop,
    /// And that was a validation.
    pub(super) validates: bool,
    /// So many steps show what the script takes as it is: candidates are tried with as many, and the plans that are
    /// found run on. None once later steps were seen to take more.
    first_steps: Option<u32>,
    pub(super) interrupted: bool,
}

impl Search<'_> {
    /// The script as it is.
    fn plain(&mut self) -> anyhow::Result<(Candidate, Option<String>)> {
        let sites = [("PLIMSOLL_SITES", OsString::from("1"))];
        let trial = self.trial(&Plan::default(), Stop::Steady, &sites)?;
        let noted = trial.noted("sites");
        self.sites = noted.and_then(Sites::read).unwrap_or_default();
        self.left_out = LeftOut::seen(&trial);
        if let Some(it) = trial.what_was_done() {
            self.say(&it);
        }
        let failure = trial.failure.clone();
        let mut plain = self.candidate(Plan::default(), &trial);
        plain.tunings = self.tunings(&plain.plan, &trial, plain.needs);
        if failure.is_none() && trial.n_ooms == 0 && !self.interrupted {
            self.tried.push(plain.clone());
        }
        self.plain_needs = plain.needs;
        if failure.is_none() {
            self.say(&format!("the script as it is: needs {}", plain.needs));
        }
        self.first_steps = steps_to_the_peak(&plain.prediction);
        Ok((plain, failure))
    }

    /// Plans that fit, the best first; that one is proven on the card itself, under the very limit, unless somebody
    /// asked us to stop.
    fn proven_plans(&mut self, card: &Card) -> anyhow::Result<(Vec<Candidate>, Option<Seen>)> {
        loop {
            let sees_validation = matches!(self.stop, Stop::Validation);
            let mut found = self.plans()?;
            self.estimate_time(card, &mut found)?;
            found.sort_by_key(Candidate::rank);
            while let (false, Some(best)) = (self.interrupted, found.first_mut()) {
                if let Some(seen) = self.proves(card, best)? {
                    return Ok((found, Some(seen)));
                }
                found.remove(0);
            }
            if sees_validation || self.interrupted || !matches!(self.stop, Stop::Validation) {
                return Ok((found, None));
            }
            self.say(if self.validates {
                "a validation takes more than training does; once more, with one in each run"
            } else {
                "what comes later takes more than the first steps; once more, with later ones in each run"
            });
        }
    }

    /// Plans that fit, from the mildest on; each as small as it can be.
    fn plans(&mut self) -> anyhow::Result<Vec<Candidate>> {
        let mut found: Vec<Candidate> = Vec::new();
        let free = self.free()?;
        let gpus = self.args.gpus;
        let card = self.trials.card();
        for stronger in ladder::rungs(card, gpus, |it| self.suits(it), |it| self.may(it)) {
            let is_enough = ENOUGH <= found.len()
                || !found.is_empty() && stronger.contains(&"offload")
                || found.iter().any(|it| it.numbers == Numbers::Same) && 2 <= found.len();
            if self.interrupted || is_enough {
                break;
            }
            // One that refused meanwhile.
            if !stronger.iter().all(|it| self.suits(it)) {
                continue;
            }
            // What was already enough alone needs no company.
            let done = |it: &Candidate| {
                it.plan
                    .remedies
                    .iter()
                    .filter(|it| !is_free(it.id))
                    .all(|it| stronger.contains(&it.id))
            };
            if found.iter().any(done) {
                continue;
            }
            let mut remedies = free.clone();
            remedies.extend(stronger.iter().map(|id| Remedy::plain(id)));
            let plan = Plan::of(remedies);
            while let Some(it) = self.strong_enough(&plan)? {
                let mut it = self.weakest(it)?;
                // Two rungs may end at the same one, without what neither needs.
                let is_new = !found.iter().any(|other| other.plan == it.plan);
                if is_new && self.fits_again(&mut it)? {
                    found.push(it);
                } else if is_new && !self.interrupted && self.first_steps.take().is_some() {
                    self.say(
                        "a later step takes more than the first ones; from now on all are run",
                    );
                    self.tried.retain(|it| !it.fits);
                    continue;
                }
                break;
            }
        }
        Ok(found)
    }

    /// `plan` with as many parts as it takes to fit; none if no number of them is enough.
    fn strong_enough(&mut self, plan: &Plan) -> anyhow::Result<Option<Candidate>> {
        if !plan.remedies.iter().any(|it| it.id == "micro-batches") {
            let Some(it) = self.run(&ladder::settled(plan, 1, self.args.gpus))? else {
                return Ok(None);
            };
            return self.tuned(it);
        }
        let (mut parts, mut before): (u64, Option<(Bytes, Option<bool>)>) = (2, None);
        while parts <= MOST_PARTS.min(self.n_samples.unwrap_or(MOST_PARTS)) && !self.interrupted {
            let Some(it) = self.run(&ladder::settled(plan, parts, self.args.gpus))? else {
                return Ok(None);
            };
            // Runs that were ended before their first step was over, or after, are of one kind each.
            let (needs, kind) = (it.needs, it.cut_after.map(|it| it == 0));
            if let Some(it) = self.tuned(it)? {
                return Ok(Some(it));
            }
            // More parts no longer help: what is left is not the batch's.
            if before.is_some_and(|(it, other)| kind == other && it.0 / 100 * 98 < needs.0) {
                return Ok(None);
            }
            before = Some((needs, kind));
            parts *= 2;
        }
        Ok(None)
    }

    /// The same without what it does not need, and with as few blocks checkpointed as it needs.
    fn weakest(&mut self, mut it: Candidate) -> anyhow::Result<Candidate> {
        // Most often the free ones were not needed at all.
        let strong: Vec<_> =
            it.plan.remedies.iter().filter(|it| !is_free(it.id)).cloned().collect();
        if !strong.is_empty()
            && strong.len() < it.plan.remedies.len()
            && let Some(less) = self.run(&Plan::of(strong))?.filter(|it| it.fits)
        {
            it = less;
        }
        for remedy in it.plan.remedies.clone() {
            let rest: Vec<_> =
                it.plan.remedies.iter().filter(|it| **it != remedy).cloned().collect();
            if rest.is_empty() || self.interrupted {
                continue;
            }
            if let Some(less) = self.run(&Plan::of(rest))?.filter(|it| it.fits) {
                it = less;
            }
        }
        match self.n_blocks {
            Some(n) if it.plan.remedies.iter().any(|it| it.id == "checkpoint") => {
                self.fewest_blocks(it, n)
            }
            _ => Ok(it),
        }
    }

    pub(super) fn may(&self, id: &str) -> bool {
        // Where a validation takes more than training does, it is the first thing to think of.
        let is_for_it = id == "no-grad-evaluation" && self.validates;
        let args = self.args;
        is_allowed(args, id)
            || is_for_it && args.allow.is_empty() && !args.forbid.iter().any(|it| it == id)
    }

    /// Runs `plan`; nothing if the script does not bear it.
    pub(super) fn run(&mut self, plan: &Plan) -> anyhow::Result<Option<Candidate>> {
        let beside = self.args.limit_reserved.map_or(self.trials.card().context, |_| Bytes::ZERO);
        let most = self.most.saturating_sub(beside);
        self.run_with(plan, &[(GIVE_UP_ABOVE, most.0.to_string().into())])
    }

    /// The same, and what it takes is seen even if that is far too much.
    pub(super) fn run_through(&mut self, plan: &Plan) -> anyhow::Result<Option<Candidate>> {
        self.tried.retain(|it| it.plan != *plan || it.cut_after.is_none());
        self.run_with(plan, &[])
    }

    fn run_with(&mut self, plan: &Plan, more: &[Setting]) -> anyhow::Result<Option<Candidate>> {
        if let Some(it) = self.tried.iter().find(|it| it.plan == *plan) {
            return Ok(Some(it.clone()));
        }
        let began = Instant::now();
        let stop = match (self.stop, self.first_steps) {
            (Stop::Steady, Some(n)) => Stop::Steps(n),
            (stop, _) => stop,
        };
        let trial = self.trial(plan, stop, more)?;
        if let Some(n) = trial.noted("blocks").and_then(|it| it["names"].as_array()) {
            self.n_blocks = u64::try_from(n.len()).ok().filter(|it| 1 < *it);
        }
        if let Some(split) = trial.noted("split") {
            self.exact = split["exact"] == true;
            self.n_samples = split["samples"].as_u64();
        }
        if let Some(it) = trial.noted("exact") {
            self.exact = it["exact"] == true;
        }
        let ran = trial.failure.is_none() && trial.n_ooms == 0;
        let failure = trial.failure.clone();
        let mut it = self.candidate(plan.clone(), &trial);
        it.tunings = self.tunings(plan, &trial, it.needs);
        it.cut_after = trial.was_cut.then_some(trial.prediction.steps_seen);
        self.learns(plan, &trial);
        let said = match failure {
            Some(why) => why,
            None if it.fits => format!("fits, needs {}", it.needs),
            None if trial.was_cut => format!("needs more than {}", self.most),
            None => format!("needs {}", it.needs),
        };
        let seconds = began.elapsed().as_secs_f64();
        self.say(&format!("{}: {said} ({seconds:.1} s)", plan.shown()));
        let keeps = !self.args.keep_numerics || it.numbers == Numbers::Same;
        if !ran || !keeps || self.interrupted {
            return Ok(None);
        }
        self.tried.push(it.clone());
        Ok(Some(it))
    }

    /// Progress, for people.
    pub(super) fn say(&self, sentence: &str) {
        if !self.args.quiet {
            let _ = writeln!(io::stderr(), "plimsoll: {sentence}");
        }
    }

    pub(super) fn trial(
        &mut self,
        plan: &Plan,
        stop: Stop,
        more: &[Setting],
    ) -> anyhow::Result<Trial> {
        let mut settings = self.settings(plan);
        settings.extend(self.limit_of_allocator(plan));
        settings.extend(more.iter().cloned());
        let trial = self.trials.run(self.words, &settings, stop)?;
        self.interrupted |= trial.interrupted.is_some();
        Ok(trial)
    }

    fn candidate(&self, plan: Plan, trial: &Trial) -> Candidate {
        let (prediction, ends) = (trial.prediction.clone(), trial.ends.clone());
        let needs = self.needs(&prediction);
        let numbers = match plan.numbers() {
            Numbers::Statistics if self.exact => Numbers::Same,
            other => other,
        };
        let fits = needs <= self.most;
        let (time, measured, slower, cut_after, tunings) = (None, None, None, None, Vec::new());
        Candidate {
            fits,
            plan,
            prediction,
            needs,
            numbers,
            time,
            measured,
            slower,
            cut_after,
            tunings,
            ends,
        }
    }

    /// What it needs of what is limited, with the allowance for what a phantom cannot know.
    pub(super) fn needs(&self, prediction: &Prediction) -> Bytes {
        let beside = prediction.peak.device.saturating_sub(prediction.peak.reserved);
        match self.args.limit_reserved {
            Some(_) => prediction.safe.saturating_sub(beside),
            None => prediction.safe,
        }
    }

    /// One metered step each.
    fn estimate_time(&mut self, card: &Card, found: &mut [Candidate]) -> anyhow::Result<()> {
        let meter = [("PLIMSOLL_METER", OsString::from("1"))];
        if found.is_empty() || self.interrupted {
            return Ok(());
        }
        let plain = ranking::work(&self.trial(&Plan::default(), Stop::Steps(2), &meter)?);
        for it in found {
            if self.interrupted {
                break;
            }
            let changed = ranking::work(&self.trial(&it.plan, Stop::Steps(2), &meter)?);
            it.time = ranking::time(&plain, &changed, card);
        }
        Ok(())
    }

    /// What a person would change in the script for `plan`.
    fn change(&self, plan: &Plan) -> Change {
        let read = |it: &str| Some((it.to_owned(), std::fs::read_to_string(it).ok()?));
        let sources: Sources = self.sites.files().filter_map(read).collect();
        let folder = std::env::current_dir().unwrap_or_default();
        plan::change(plan, &self.sites, &sources, &folder.to_string_lossy())
    }
}

/// After how many steps a run had taken the most; two at least: from the second on the optimizer's state is there.
fn steps_to_the_peak(it: &Prediction) -> Option<u32> {
    let highest = |of: fn(&StepPeaks) -> Bytes| {
        let most = it.steps.iter().map(of).max()?;
        it.steps.iter().find(|it| of(it) == most).map(|it| it.step)
    };
    Some(highest(|it| it.allocated)?.max(highest(|it| it.reserved)?).max(2))
}
