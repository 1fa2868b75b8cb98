//! What `plimsoll fit` proposes, for people and for programs.

use std::{collections::BTreeMap, fmt::Write};

use plimsoll_core::{
    codes::{FitCode, ProblemCode},
    explanation::origin_words,
    plan::{Numbers, Remedy, find, remedies},
    prediction::{Category, LineShare, purpose},
    recording::{Framework, Reached, SiteKind},
    units::{Bytes, grouped, times},
    views::{
        explain_wire,
        text::{self, Extent},
        wire,
    },
};
use serde_json::json;

use crate::{
    change::{Change, Places, change, patch_line},
    search::{
        Advice, ByHand, Candidate, Failed, Fate, Found, Grows, IfFound, Measured, NotTried,
        Remaining, Seen, TooLarge, Tried, WhyNot, WhySoFar,
    },
};

/// The version of the JSON.
const VERSION: u32 = 1;
/// A share of one in so many is not named.
const SMALL_SHARE: u64 = 50;
/// A line with less than one part in so many is not named,
const LARGE_SHARE: u64 = 10;
/// and of the others so many.
const MOST_LINES: usize = 4;

/// What is said beside what was found.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The card, as its driver calls it.
    pub card: String,
    /// What is limited: "on the device" or "reserved".
    pub what: &'static str,
    /// How much of it there is.
    pub limit: Bytes,
    /// How to run the best one.
    pub run_line: String,
    /// How to predict it.
    pub check_line: Option<String>,
    /// The file with the part of the change which is certain, as a shell takes it.
    pub diff_file: String,
    /// The command that lists the cards which are large enough for the script without changes.
    pub cards_line: String,
    /// How to predict the script that a person has changed.
    pub check_change: Option<String>,
    /// The plan's file, as a person would write its name.
    pub plan_file: String,
    /// Runs on the phantom.
    pub runs: u64,
    /// How long all of it took.
    pub seconds: f64,
    /// Whom the script reached outside of its own processes, in all runs.
    pub reached: Reached,
    /// The device that steps were measured on, as its driver calls it; none if nobody asked for that.
    pub measured_on: Option<String>,
}

/// What came of a search, with what a person would change for it.
#[derive(Clone, Debug)]
pub struct Proposal {
    found: Found,
    beside: Beside,
    /// What a person would change for the best plan instead.
    change: Change,
    /// What does the same in the switches of the script's own framework.
    recipes: Vec<Shown>,
}

/// A recipe that ran and fits.
#[derive(Clone, Debug)]
pub struct Shown {
    tried: Tried,
    /// Its lines, as in `train.py:31: TrainingArguments(bf16=True)`.
    lines: Vec<String>,
    /// For `patch`.
    diff: String,
}

impl Shown {
    /// Of one; names of files are relative to `folder`.
    pub fn of(tried: &Tried, places: &Places, folder: &str) -> Shown {
        let inside = |it: &str| Some(it.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
        let name = |it: &str| inside(it).unwrap_or_else(|| it.to_owned());
        let line = |it: &crate::change::Line| format!("{}:{}: {}", name(&it.file), it.line, it.has);
        let lines = tried.recipe.lines.iter().map(line).collect();
        Shown { lines, diff: tried.recipe.diff(places, folder), tried: tried.clone() }
    }
}

/// For people: what was not seen, above all.
fn shown(seen: &Seen) -> String {
    let steps = match seen {
        Seen { trains_nothing: true, steps: 1, .. } => "1 call of a model".to_owned(),
        Seen { trains_nothing: true, steps, .. } => format!("{steps} calls of a model"),
        Seen { steps: 1, .. } => "1 training step".to_owned(),
        Seen { steps, .. } => format!("{steps} training steps"),
    };
    match seen {
        // That was said first.
        Seen { failed: Some(Failed { was_hurried: false, .. }), .. } => format!("seen: {steps}"),
        Seen { trains_nothing: true, until_exit: false, .. } => {
            format!(
                "seen: {steps}; later calls were not run; --until-exit runs the script to its end"
            )
        }
        Seen { until_exit: true, .. } => format!("seen: {steps}, to the end of the script"),
        Seen { evaluation: true, .. } => format!(
            "seen: {steps} and an evaluation; later steps were not run; --until-exit runs the script to its end"
        ),
        Seen { .. } => format!(
            "seen: {steps} and no evaluation; later steps were not run; --until-exit runs the script to its end"
        ),
    }
}

/// The same with what was done to the batches, a line each.
fn seen(found: &Found) -> String {
    let unseen = (found.has_unseen_sizes && !found.seen.until_exit).then(|| {
        "! steps of the same batch take different memory, so the script chooses sizes by itself. This answer is for the sizes seen; later steps may need more"
            .to_owned()
    });
    let lines = [shown(&found.seen)].into_iter().chain(unseen);
    let lines = lines.chain(found.batches.iter().cloned());
    lines.collect::<Vec<_>>().join("\n")
}

/// What the search cost; whoever's script does something outside of its files wants to know how often it did.
pub(super) fn effort(runs: u64, seconds: f64) -> String {
    format!("plimsoll started your script {}, in {seconds:.1} s", times(runs))
}

/// Of what gets through because the allocator gave back what it kept so many times; nothing for others.
fn full(retries: u64) -> String {
    if retries == 0 {
        return String::new();
    }
    format!("  FULL {}: PyTorch gives memory back and goes on, which takes time", times(retries))
}

/// A run that got through because the allocator gave back what it kept, so many times.
pub(super) fn was_full(retries: u64) -> String {
    let times = times(retries);
    format!(
        "the card was full {times}, and the allocator gave its free memory back to the driver: the script runs, but slower"
    )
}

/// What an answer depends on and nobody computed, with how to give it: a line, or nothing.
pub(super) fn depends(sentence: Option<&str>) -> String {
    let line = |which| {
        format!(
            "! {which}; --assume gives them. `plimsoll predict` with the same command shows how\n"
        )
    };
    sentence.map_or_else(String::new, line)
}

/// That the script fails in a later step, and so nothing after that was seen: a line, or nothing.
fn failed(seen: &Seen) -> String {
    let Some(Failed { why, was_hurried }) = &seen.failed else { return String::new() };
    if *was_hurried {
        format!(
            "! {why}. plimsoll may have ended an epoch early before that, to reach later parts of the script; some loops fail then\n"
        )
    } else {
        format!("! {why}; later parts of the script were not run\n")
    }
}

/// What it comes to where masks of unknown values select everything: a line, or nothing.
fn if_found(it: &Proposal) -> String {
    let is = if it.found.plans.is_empty() { "it" } else { "the first plan" };
    match it.found.if_found() {
        None => String::new(),
        Some(IfFound::Needs(bytes)) => {
            format!(
                "! if boolean masks select everything, {is} takes {bytes} to be safe, and fits\n"
            )
        }
        Some(IfFound::RunsOut) => format!(
            "! if boolean masks select everything, {is} runs out of memory. Give the share that they select: --assume nonzero=0.25\n"
        ),
    }
}

impl Proposal {
    /// Of what was `found`; names of files are relative to `folder`.
    pub fn new(mut found: Found, beside: Beside, folder: &str) -> Proposal {
        let mut remedies = found.plans.iter().flat_map(|it| &it.plan.remedies);
        if remedies.any(|it| it.id == remedies::NO_GRAD_EVALUATION) {
            found.plain.took.by_hand.retain(|it| it.code != ProblemCode::UnusedGraph);
        }
        let best = found.plans.first();
        let change = best
            .map(|it| change(&it.plan, &found.places, found.averages, folder))
            .unwrap_or_default();
        let recipes = found.recipes.iter().map(|it| Shown::of(it, &found.places, folder)).collect();
        Proposal { found, beside, change, recipes }
    }

    /// What was found.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// The part of the change in the script that is certain, for `patch`.
    pub fn diff(&self) -> &str {
        &self.change.diff
    }
}

/// Measured or estimated, for a table.
fn step_time(row: &Candidate) -> String {
    match (row.measured, row.time) {
        (Some(Measured { factor: Some(factor), .. }), _) => format!("{factor:.2}x measured"),
        (Some(it), _) => format!("{:.4} s", it.seconds),
        (None, Some(it)) => it.to_string(),
        (None, None) => "not counted".to_owned(),
    }
}

/// That an evaluation does not fit by itself, and what to change.
fn too_large(large: &TooLarge, it: &Proposal) -> String {
    let TooLarge { evaluation, with, needs } = large;
    let even = if with.remedies.is_empty() {
        String::new()
    } else {
        format!(" even with {}", with.shown())
    };
    let Beside { limit, what, .. } = &it.beside;
    let at =
        evaluation.at.as_ref().map_or_else(String::new, |at| format!(" at {}", origin_words(at)));
    let over = needs.saturating_sub(*limit);
    let switches = if it.found.places.sites.of(Framework::Transformers).is_some() {
        "in TrainingArguments a smaller per_device_eval_batch_size, eval_accumulation_steps, or Trainer(preprocess_logits_for_metrics=...) that keeps no logits"
    } else {
        "a smaller batch in the evaluation's DataLoader (if it has one sample, a part of that), and no outputs that stay on the GPU from batch to batch"
    };
    format!(
        "DOES NOT FIT: the evaluation{at} allocates {} by itself{even} and needs {needs} {what}, {over} too much. No remedy makes it small enough, so plimsoll tried no plan\n\
         change the evaluation: {switches}; then run fit again\n",
        evaluation.own
    )
}

/// For people. The short form shows the plans and the commands; the full one also the change of the script, line by line.
pub fn text(it: &Proposal, extent: Extent) -> String {
    report(it, extent) + &whom(&it.beside.reached)
}

/// A line about whom the script reached, if it reached somebody.
pub(super) fn whom(reached: &Reached) -> String {
    reached.sentence().map(|it| it + "\n").unwrap_or_default()
}

fn report(it: &Proposal, extent: Extent) -> String {
    let found = &it.found;
    match (&found.grows, &found.too_large, found.plans.first()) {
        _ if found.plain.fits => as_it_is(it),
        (Some(grows), _, _) => of_growth(it, grows),
        (None, Some(large), _) => {
            let effort = effort(it.beside.runs, it.beside.seconds);
            format!("{}{}\n{effort}\n", too_large(large, it), without_changes(it))
        }
        (None, None, Some(best)) => with_plans(it, best, extent),
        (None, None, None) => without_plan(it),
    }
}

/// The script fits without changes.
fn as_it_is(it: &Proposal) -> String {
    let mut res = String::new();
    let (Beside { card, what, limit, .. }, as_it_is) = (&it.beside, &it.found.plain);
    let spare = limit.saturating_sub(as_it_is.needs);
    let stopped = it.found.was_stopped_at_once();
    let _ = writeln!(
        res,
        "{} without changes{}: {} {}, of {limit} {what} ({card}): {spare} to spare\n\
         {}{}{}{}",
        fits(it),
        as_far_as(it),
        as_it_is.needs,
        to_be_safe(it),
        so_far(it).map(|it| it + "\n").unwrap_or_default(),
        if stopped { "" } else { "no plan is needed; --find-max finds the largest batch\n" },
        failed(&it.found.seen) + &depends(it.found.depends()) + &if_found(it),
        seen(&it.found),
    );
    if !stopped {
        let run = &it.beside.run_line;
        let _ = writeln!(res, "\nTo compare the first step on a GPU with this run:\n    {run}");
    }
    if let Some(sentence) = measured(it) {
        let _ = writeln!(res, "\n{sentence}");
    }
    edits(&mut res, &it.found.plain.took.by_hand);
    advice(&mut res, &it.found.advice, true);
    res
}

fn of_growth(it: &Proposal, Grows { growth, runs_out_at }: &Grows) -> String {
    let mut res = String::new();
    let Beside { card, what, limit, .. } = &it.beside;
    let at = growth.at.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
    let (pace, one) = (growth.pace(), growth.counted.one());
    let _ = writeln!(
        res,
        "GROWS {pace}{at}: runs out near {one} {} of {limit} {what} ({card})\n\
         no plan helps. {}\nseen: {}\n{}",
        grouped(*runs_out_at),
        to_change(it.found.plain.took.by_hand.first()),
        growth.seen_in_words(),
        effort(it.beside.runs, it.beside.seconds),
    );
    res
}

/// No plan was found; settings of the script's framework may be enough.
fn without_plan(it: &Proposal) -> String {
    let mut res = String::new();
    let limit = &it.beside.limit;
    let headline = match (it.recipes.first(), it.found.interrupted) {
        (Some(first), _) => format!(
            "FITS with settings of {} in your script: {} to be safe. plimsoll found no plan that leaves the script unchanged, so it wrote none",
            first.tried.recipe.framework, first.tried.needs
        ),
        (None, _) if it.found.retries.is_some() => {
            "FITS without changes, but only by giving memory back (slow); no plan that was tried avoids this".to_owned()
        }
        (None, true) => "INTERRUPTED before a plan that fits was found".to_owned(),
        (None, false) => {
            "DOES NOT FIT with any plan that was tried".to_owned()
        }
    };
    let _ = writeln!(res, "{headline}");
    let closest = it.found.closest.as_ref().filter(|_| it.recipes.is_empty());
    if let Some(row) = closest {
        let over = row.needs.saturating_sub(*limit);
        let plan = row.plan.shown();
        let _ = writeln!(res, "closest: {plan}: {} to be safe, {over} too much", row.needs);
        let _ = writeln!(
            res,
            "to list the cards that are large enough without changes:\n    {}",
            it.beside.cards_line
        );
    }
    res += &as_it_is_in_words(it);
    if it.found.retries.is_some() && it.recipes.is_empty() {
        let _ = writeln!(res, "{}", seen(&it.found));
    }
    if closest.is_some() {
        left(&mut res, &it.found.left);
        left_at(&mut res, &it.found.left, left_lines(&it.found));
    }
    recipes(&mut res, "The change", (*limit, true), &it.recipes);
    not_tried(&mut res, &it.found.not_tried);
    edits(&mut res, &it.found.plain.took.by_hand);
    advice(&mut res, &it.found.advice, !it.recipes.is_empty());
    let _ = writeln!(res, "{}", effort(it.beside.runs, it.beside.seconds));
    res
}

/// The plans that fit, of which `best` is the first.
fn with_plans(it: &Proposal, best: &Candidate, extent: Extent) -> String {
    let is_full = extent == Extent::Full;
    let mut res = String::new();
    let Beside { card, what, limit, .. } = &it.beside;
    let _ = writeln!(
        res,
        "{} with a plan{}: {} {}, of {limit} {what} ({card}): {} to spare",
        fits(it),
        as_far_as(it),
        best.needs,
        to_be_safe(it),
        limit.saturating_sub(best.needs)
    );
    res.extend(so_far(it).map(|it| it + "\n"));
    res += &as_it_is_in_words(it);
    let _ = writeln!(
        res,
        "the plan is saved; to train with it, without changing the script:\n    {}",
        it.beside.run_line
    );
    table(&mut res, &it.found.plans, *limit);
    res += &if_found(it);
    if let Some(sentence) = measured(it) {
        let _ = writeln!(res, "\n{sentence}");
    }
    let _ = writeln!(res, "\n{}", seen(&it.found));
    let mut is_first = true;
    let mut also = |res: &mut String, text: &str| {
        let gap = if std::mem::take(&mut is_first) { "\n" } else { "" };
        let _ = writeln!(res, "{gap}{text}");
    };
    if let Some(line) = &it.beside.check_line {
        also(
            &mut res,
            &format!(
                "To check the plan without a GPU, after you change it or the script:\n    {line}"
            ),
        );
    }
    let is_same = |it: &Candidate| it.numbers == Numbers::Same;
    if !is_same(best) && it.found.plans.iter().any(is_same) {
        also(
            &mut res,
            "To save the plan that leaves the numbers the same instead: fit with --keep-numerics",
        );
    }
    if !it.change.diff.is_empty() {
        let patch = patch_line(&it.change.diff, &it.beside.diff_file);
        let is_whole = it.change.by_hand.is_empty();
        let (and, check) = match it.beside.check_change.as_ref().filter(|_| is_whole) {
            Some(check) => (", and to check that", format!(" && {check}")),
            None => ("", String::new()),
        };
        also(&mut res, &format!("Or to change the script{and}:\n    {patch}{check}"));
        for line in it.change.diff.lines().filter(|_| is_full) {
            let _ = writeln!(res, "    {line}");
        }
        if !it.change.by_hand.is_empty() {
            let _ = writeln!(res, "{}", diff_alone(it));
        }
    }
    for (i, remedy) in by_hand(it, best).enumerate() {
        let Some(kind) = find(remedy.id) else { continue };
        if i == 0 {
            let also = if it.change.diff.is_empty() { "Or" } else { "And" };
            let _ = writeln!(res, "\n{also} by hand{}:", the_code_is_saved(it, extent));
        }
        let _ = writeln!(res, "  {}: {}", remedy.shown(), kind.what);
        if is_full {
            written_by_hand(remedy, &it.found).for_each(|line| {
                let _ = writeln!(res, "      {line}");
            });
        }
    }
    recipes(&mut res, "Or", (*limit, is_full), &it.recipes);
    not_tried(&mut res, &it.found.not_tried);
    edits(&mut res, &it.found.plain.took.by_hand);
    advice(&mut res, &it.found.advice, true);
    if it.found.interrupted {
        let _ = writeln!(res, "\nthe search was interrupted; a better plan may exist");
    }
    let effort = effort(it.beside.runs, it.beside.seconds);
    let _ = writeln!(res, "\n{effort}{}", how_exact_times_are(it));
    if it.recipes.iter().any(|it| !it.diff.is_empty()) && !is_full {
        let _ = writeln!(res, "--full shows the change in settings, line by line");
    }
    res
}

/// The plans, each in a row.
fn table(res: &mut String, plans: &[Candidate], limit: Bytes) {
    let _ = writeln!(
        res,
        "\n  {:>10}  {:>10}  {:>16}  {:<20} plan",
        "request", "spare", "step time", "numbers"
    );
    for row in plans {
        let spare = limit.saturating_sub(row.needs);
        let time = step_time(row);
        let (needs, spare) = (row.needs.to_string(), spare.to_string());
        let numbers = row.numbers.shown();
        let tight = if row.is_tight { "  TIGHT: little to spare for larger sizes" } else { "" };
        let _ = writeln!(
            res,
            "  {needs:>10}  {spare:>10}  {time:>16}  {numbers:<20} {}{tight}{}",
            row.plan.shown(),
            full(row.retries)
        );
    }
    let _ = writeln!(
        res,
        "  request: the size to request to be safe, as `plimsoll predict` of the plan gives it; spare: the rest of the card\n  numbers: \"same\" trains as without the plan; otherwise results differ in what is named, if the model has it"
    );
}

/// What stands behind the effort of a search.
fn how_exact_times_are(it: &Proposal) -> &'static str {
    let is_rough = |it: &Candidate| it.time.is_some_and(|it| it.high.is_infinite());
    if it.beside.measured_on.is_some() {
        ""
    } else if it.found.plans.iter().any(is_rough) {
        "; step times are rough, because the script is compiled: seven measured ones were 0.4 to 2.5 times the estimate (on a machine with the GPU, --measure measures them)"
    } else {
        "; step times are estimates, mostly within their range (on a machine with the GPU, --measure measures them)"
    }
}

fn fits(it: &Proposal) -> &'static str {
    if it.found.so_far().is_some() { "FITS SO FAR" } else { "FITS" }
}

/// Why it fits so far only.
fn so_far(it: &Proposal) -> Option<String> {
    it.found.so_far().map(why_so_far)
}

/// In a sentence.
pub(super) fn why_so_far(why: WhySoFar<'_>) -> String {
    match why {
        WhySoFar::ToCome(it) => text::to_come(it),
        WhySoFar::Unseen(it) => format!("! {it}"),
        WhySoFar::Unproven => "the search was interrupted before plimsoll ran this on the card itself, to an evaluation if the script has one".to_owned(),
    }
}

/// How much of the script an answer is about.
fn as_far_as(it: &Proposal) -> &'static str {
    match (it.found.runs_out_if_found(), it.found.fails_by_itself()) {
        (true, _) => " if boolean masks select nothing",
        (false, true) => " until it fails",
        (false, false) => "",
    }
}

/// What the size of an answer is good for: no size is safe for what was not run.
fn to_be_safe(it: &Proposal) -> &'static str {
    if it.found.so_far().is_none() && as_far_as(it).is_empty() {
        "to be safe"
    } else {
        "for what was run"
    }
}

/// The first line names the card where there is a plan.
fn without_changes(it: &Proposal) -> String {
    let Beside { card, what, limit, .. } = &it.beside;
    let needs = it.found.plain.needs;
    let of = format!(", of {limit} {what} ({card})");
    let of = if it.found.plans.is_empty() { of } else { String::new() };
    format!("without changes: {needs} to be safe{of}")
}

/// What to do about a script that grows. `by_hand`: what was found to stay.
fn to_change(by_hand: Option<&ByHand>) -> String {
    by_hand.map_or_else(
        || "Change the script so that it frees this memory, then run fit again; `plimsoll predict` with the same command shows what grows".to_owned(),
        |it| format!("Change the script, then run fit again: {}\n  {}", it.what, it.change),
    )
}

/// An edit that gives more back than the plan that needs least, in a sentence.
fn more_than_any_plan(it: &Proposal) -> Option<String> {
    let plain = &it.found.plain;
    let least = it.found.plans.iter().chain(&it.found.closest).map(|it| it.needs).min();
    let gives = least.map_or(Bytes::ZERO, |it| plain.needs.saturating_sub(it));
    let edit = plain.took.by_hand.iter().max_by_key(|it| it.bytes).filter(|it| gives < it.bytes)?;
    let (bytes, seen, what) = (edit.bytes, seen_at(edit), &edit.what);
    Some(format!("an edit of the script gives more back than any plan, {bytes} {seen}: {what}"))
}

/// What the script needs without changes, and what casts doubt on that: some lines.
fn as_it_is_in_words(it: &Proposal) -> String {
    let mut res = without_changes(it) + "\n";
    if let Some(edit) = more_than_any_plan(it) {
        res += &(edit + "\n");
    }
    if it.found.in_pieces {
        res += "it runs out of memory all the same: batches differ in size, and the free memory is in pieces that are too small\n";
    }
    if let Some(n) = it.found.retries {
        let _ = writeln!(res, "on a real card, {}", was_full(n));
    }
    res + &failed(&it.found.seen) + &depends(it.found.depends())
}

/// The remedies of a plan that the diff leaves out.
fn by_hand<'a>(it: &'a Proposal, row: &'a Candidate) -> impl Iterator<Item = &'a Remedy> {
    row.plan.remedies.iter().filter(|remedy| it.change.by_hand.contains(&remedy.id))
}

/// Where the code is that the short report leaves out.
fn the_code_is_saved(it: &Proposal, extent: Extent) -> String {
    match extent {
        Extent::Full => String::new(),
        Extent::Short => format!(" (the code is in {})", it.beside.plan_file),
    }
}

/// The lines that a person would write for it.
fn written_by_hand(remedy: &Remedy, found: &Found) -> impl Iterator<Item = String> {
    let snippet = snippet(remedy, found);
    let parts = remedy.parts().filter(|_| snippet.contains("chunk(parts)"));
    let lines: Vec<String> = snippet.lines().map(str::to_owned).collect();
    let forward_and_backward = parts.and_then(|_| lines_to_replace(found));
    forward_and_backward.into_iter().chain(parts.map(|n| format!("parts = {n}"))).chain(lines)
}

/// Where the parts of a batch go in the script, and what goes with them.
fn lines_to_replace(found: &Found) -> Option<String> {
    let site = found.places.sites.only(SiteKind::Backward)?;
    let ((first, _), last) = (site.forward?, site.statement.end.0);
    let name = site.file.rsplit('/').next()?;
    Some(format!(
        "# in place of lines {first} to {last} of {name}, in its own names; its `with` lines go around the call of the model; the other lines of the step stay"
    ))
}

/// What a person would write for it in a script of this kind.
fn snippet(remedy: &Remedy, found: &Found) -> String {
    let is_parts = remedy.id == remedies::MICRO_BATCHES;
    let Some(kind) = find(remedy.id).filter(|_| is_parts) else { return remedy.snippet() };
    let has_optimizer = found.places.sites.has(SiteKind::Optimizer);
    let frameworks = [Framework::Transformers, Framework::Lightning];
    match () {
        () if found.seen.trains_nothing => kind.snippets().nth(2).unwrap_or_default().to_owned(),
        // Lightning and transformers accumulate by a setting of theirs.
        () if frameworks.iter().any(|it| found.places.sites.of(*it).is_some()) => {
            "the training loop is the framework's: set its gradient accumulation to as many parts, and divide the batch by them; `plimsoll predict` of that checks it"
                .to_owned()
        }
        // The parts of gradients without an optimizer are the script's own matter: none may keep its graph.
        () if !has_optimizer && !found.places.sites.all.is_empty() => {
            "call backward() or autograd.grad() for each part of the batch, before the next part"
                .to_owned()
        }
        () if found.has_loss => kind.snippets().nth(1).unwrap_or_default().to_owned(),
        () => remedy.snippet(),
    }
}

/// That the diff is not the whole plan. The search takes out of a plan what it does not need, unless it was interrupted.
fn diff_alone(it: &Proposal) -> String {
    let alone = if it.found.interrupted { "is only a part of the plan" } else { "does not fit" };
    format!("This diff alone {alone}; it also takes, by hand: {}", it.change.by_hand.join(", "))
}

/// What was measured, and where, in a sentence.
fn measured(it: &Proposal) -> Option<String> {
    let device = it.beside.measured_on.as_ref()?;
    let on = if *device == it.beside.card {
        String::new()
    } else {
        format!(", not on {}", it.beside.card)
    };
    let plain = match it.found.plain.measured {
        Some(Measured { seconds, low, high, .. }) => format!(
            "without changes, a step takes {seconds:.4} s (80 % take {low:.4} to {high:.4} s)"
        ),
        None if it.found.plans.iter().any(|it| it.measured.is_some()) => {
            "the script without changes was not measured: it needs more than is free there"
                .to_owned()
        }
        None => return Some(format!("Nothing could be measured on {device}.")),
    };
    Some(format!("Measured on {device}{on}; {plain}."))
}

fn recipes(res: &mut String, also: &str, (limit, is_full): (Bytes, bool), all: &[Shown]) {
    let Some(first) = all.first() else { return };
    let of = first.tried.recipe.framework;
    let _ = writeln!(
        res,
        "\n{also} in settings of {of}. Each of these was run without a GPU and fits; plimsoll did not estimate their step times (request, spare, numbers):"
    );
    for it in all {
        let words = &it.tried.recipe.words;
        let words = (!words.is_empty()).then(|| format!("in the command: {}", words.join(" ")));
        let lines: Vec<String> = it.lines.iter().cloned().chain(words).collect();
        let (needs, numbers) = (it.tried.needs.to_string(), it.tried.recipe.numbers.shown());
        let spare = limit.saturating_sub(it.tried.needs).to_string();
        let _ = writeln!(
            res,
            "  {needs:>10}  {spare:>10}  {numbers:<20} {}{}",
            lines.join(&format!("\n{:46}", "")),
            full(it.tried.retries)
        );
    }
    for line in first.diff.lines().filter(|_| is_full) {
        let _ = writeln!(res, "    {line}");
    }
}

/// Settings that may be enough and could not be tried, for people.
fn not_tried(res: &mut String, all: &[NotTried]) {
    for NotTried { switches, why } in all {
        let what = switches.iter().map(|it| it.shown()).collect::<Vec<_>>().join(", ");
        let why = match why {
            WhyNot::Missing(name) => format!(
                "not tried, because {name} is not installed here (pip install {name}, then run fit again)"
            ),
            WhyNot::Fails(why) => format!("not tried with other settings: {why}"),
        };
        let _ = writeln!(res, "{what}: {why}");
    }
}

/// When and where that was seen.
fn seen_at(it: &ByHand) -> String {
    let at = it.at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
    format!("{}{at}", if it.ran_out { "when memory ran out" } else { "at the peak" })
}

/// What only an edit of the script removes, for people.
fn edits(res: &mut String, all: &[ByHand]) {
    for (i, it) in all.iter().enumerate() {
        if i == 0 {
            let _ =
                writeln!(res, "\nChanges by hand that no remedy makes; run fit again after one:");
        }
        let _ = writeln!(res, "  {:>10}  {}: {}", it.bytes.to_string(), seen_at(it), it.what);
        let _ = writeln!(res, "              {}", it.change);
    }
}

/// Changes that only a person can decide on, where they are enough. One that is not is no way out, and is named only where nothing is.
fn advice(res: &mut String, all: &[Advice], is_way_out_known: bool) {
    let enough: Vec<&Advice> = all.iter().filter(|it| it.fits).collect();
    if !enough.is_empty() {
        let _ = writeln!(
            res,
            "\nChanges to the training itself, which only you can decide on (each was run without a GPU and fits):"
        );
    } else if let Some(least) = all.iter().min_by_key(|it| it.needs).filter(|_| !is_way_out_known) {
        let _ = writeln!(
            res,
            "\nChanges to the training itself were run, each without a plan. None fits; the smallest is {}: {} to be safe",
            least.ids.join(" + "),
            least.needs
        );
    }
    for it in enough {
        let what = it.ids.iter().filter_map(|id| find(id)).map(|it| it.what);
        let what = what.collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            res,
            "  {:>10}  {what} (docs/remedies/{}.md)",
            it.needs.to_string(),
            it.ids[0]
        );
    }
}

/// What is left where nothing fits, and what was tried against it, for people.
fn left(res: &mut String, all: &[Remaining]) {
    let outside = [Category::Context, Category::Other];
    let inside = || all.iter().filter(|it| !outside.contains(&it.category));
    let sum: u64 = inside().map(|it| it.bytes.0).sum();
    let large: Vec<&Remaining> =
        inside().filter(|it| sum / SMALL_SHARE <= it.bytes.0 && it.bytes.0 != 0).collect();
    if large.is_empty() {
        return;
    }
    let _ = writeln!(
        res,
        "Memory of the closest plan at its peak, and the remedies for it. --allow tries one that was not tried:\n  {:>10}  \
         {:>10}  category",
        "closest", "unchanged"
    );
    for it in large {
        let with = |fate| {
            let ids = it.remedies.iter().filter(|it| it.1 == fate).map(|it| it.0);
            ids.collect::<Vec<_>>().join(", ")
        };
        let fates = [
            ("has ", with(Fate::InIt)),
            ("tried: ", with(Fate::Tried)),
            ("does not apply: ", with(Fate::Unsuited)),
            ("not tried: ", with(Fate::NotTried)),
        ];
        let fates: Vec<String> = fates
            .iter()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(word, ids)| format!("{word}{ids}"))
            .collect();
        let said = if fates.is_empty() { "no remedy".to_owned() } else { fates.join("; ") };
        let (bytes, as_it_is) = (it.bytes.to_string(), it.as_it_is.to_string());
        let _ = writeln!(res, "  {bytes:>10}  {as_it_is:>10}  {:<16} {said}", it.category.name());
    }
}

/// The lines that hold most of what came nearest, the largest first.
fn left_lines(found: &Found) -> &[LineShare] {
    found.closest.as_ref().map_or(&[], |it| &it.took.lines)
}

/// Which lines hold that, for people: those that matter.
fn left_at(res: &mut String, left: &[Remaining], lines: &[LineShare]) {
    let sum: u64 = left.iter().map(|it| it.bytes.0).sum();
    let large = lines.iter().filter(|it| it.bytes.0 != 0 && sum / LARGE_SHARE <= it.bytes.0);
    let large: Vec<&LineShare> = large.take(MOST_LINES).collect();
    if large.is_empty() {
        return;
    }
    let _ = writeln!(res, "By line of your code, in the closest plan:");
    for it in large {
        let (bytes, of) = (it.bytes.to_string(), purpose(it.category, it.is_mixed));
        let _ = writeln!(res, "  {bytes:>10}  {} ({of})", origin_words(&it.at));
    }
}

/// The lines at the head of the plan's file.
pub fn file_head(it: &Proposal, row: &Candidate) -> Vec<String> {
    let time = match (row.measured.and_then(|it| it.factor), row.time) {
        (Some(factor), _) => format!(", {factor:.2} times the step time (measured)"),
        (None, Some(it)) => format!(
            ", about {:.2} times the step time (estimated; {})",
            it.estimate,
            it.range_in_words()
        ),
        (None, None) => String::new(),
    };
    let without = if it.found.plain.fits {
        "The script fits without changes; only its first step is compared.".to_owned()
    } else {
        format!(
            "Without the plan the script would need {} of the device to be safe.",
            it.found.plain.needs
        )
    };
    let mut res = vec![
        format!(
            "Made by `plimsoll fit` for {} with {} {}.",
            it.beside.card, it.beside.limit, it.beside.what
        ),
        format!(
            "On the phantom, with it, PyTorch allocated {} and reserved {}; the process needed {} of the device{time}.",
            row.took.peak.allocated, row.took.peak.reserved, row.took.peak.device
        ),
    ];
    res.extend(it.found.if_found().map(|all| match all {
        IfFound::Needs(bytes) => format!(
            "That is with boolean masks that select nothing; if they select everything, it needs {bytes}."
        ),
        IfFound::RunsOut => {
            "That is with boolean masks that select nothing; if they select everything, it runs out of memory."
                .to_owned()
        }
    }));
    res.push(without);
    res.push(format!("    {}", it.beside.run_line));
    for remedy in by_hand(it, row) {
        let beside = if it.change.diff.is_empty() { "" } else { ", beside the diff" };
        res.push(String::new());
        res.push(format!("By hand instead of {}{beside}:", remedy.shown()));
        res.extend(written_by_hand(remedy, &it.found).map(|line| format!("    {line}")));
    }
    res
}

/// For programs: one JSON object.
pub fn json(it: &Proposal) -> String {
    let row = |row: &Candidate| {
        let remedies: serde_json::Value = serde_json::Value::from(
            row.plan.remedies.iter().map(|it| it.shown()).collect::<Vec<_>>(),
        );
        json!({
            "remedies": remedies,
            "peak_allocated_bytes": row.took.peak.allocated.0,
            "peak_reserved_bytes": row.took.peak.reserved.0,
            "peak_device_bytes": row.took.peak.device.0,
            "at_peak_bytes": row.took.held.iter().map(|it| (it.category.name(), it.bytes.0)).collect::<BTreeMap<_, _>>(),
            "needs_bytes": row.needs.0,
            "spare_bytes": it.beside.limit.saturating_sub(row.needs).0,
            "numbers": row.numbers.shown(),
            "time_factor": row.time.map(|it| it.estimate),
            "time_factor_range": row.time.map(|it| [it.low, it.high]),
            "measured": row.measured.map(|measured| json!({
                "step_seconds": measured.seconds,
                "step_seconds_range": [measured.low, measured.high],
                "time_factor": measured.factor,
            })),
        })
    };
    let outcome = match (it.found.plain.fits, it.found.plans.is_empty(), it.found.interrupted) {
        (false, true, _) if !it.recipes.is_empty() => FitCode::FitsWithRecipe,
        _ if it.found.grows.is_some() => FitCode::Grows,
        _ if it.found.runs_out_if_found() => FitCode::Depends,
        _ if it.found.fails_by_itself() => FitCode::ScriptFailed,
        _ if it.found.so_far().is_some() => FitCode::FitsSoFar,
        (true, ..) => FitCode::Fits,
        (false, true, _) if it.found.retries.is_some() => FitCode::Fits,
        (false, false, _) => FitCode::FitsWithPlan,
        (false, true, true) => FitCode::Interrupted,
        (false, true, false) => FitCode::DoesNotFit,
    };
    let res = json!({
        "version": VERSION,
        "outcome": outcome.word(),
        "gpu": it.beside.card,
        "limit": { "what": if it.beside.what == "reserved" { "reserved" } else { "device" }, "bytes": it.beside.limit.0 },
        "as_it_is": row(&it.found.plain),
        "as_it_is_retries": it.found.retries,
        "depends_on": it.found.depends(),
        "if_everything_is_found": it.found.if_found().map(|all| match all {
            IfFound::Needs(bytes) => json!({ "fits": true, "needs_bytes": bytes.0 }),
            IfFound::RunsOut => json!({ "fits": false, "needs_bytes": null }),
        }),
        "plans": it.found.plans.iter().map(row).collect::<Vec<_>>(),
        "advice": it.found.advice.iter().map(|it| json!({ "remedies": it.ids, "needs_bytes": it.needs.0, "fits": it.fits })).collect::<Vec<_>>(),
        "by_hand": it.found.plain.took.by_hand.iter().map(|edit| json!({
            "what": edit.what,
            "bytes": edit.bytes.0,
            "ran_out": edit.ran_out,
            "at": explain_wire::line(edit.at.as_ref()),
            "change": edit.change,
        })).collect::<Vec<_>>(),
        "recipes": it.recipes.iter().map(|recipe| json!({
            "framework": recipe.tried.recipe.framework,
            "lines": recipe.lines,
            "arguments": recipe.tried.recipe.words,
            "diff": recipe.diff,
            "needs_bytes": recipe.tried.needs.0,
            "numbers": recipe.tried.recipe.numbers.shown(),
            "retries": recipe.tried.retries,
        })).collect::<Vec<_>>(),
        "recipes_not_tried": it.found.not_tried.iter().map(|it| {
            let (missing, failure) = match &it.why {
                WhyNot::Missing(name) => (Some(*name), None),
                WhyNot::Fails(why) => (None, Some(why.as_str())),
            };
            let settings: Vec<String> = it.switches.iter().map(|it| it.shown()).collect();
            json!({ "settings": settings, "missing": missing, "failure": failure })
        }).collect::<Vec<_>>(),
        "growth_bytes_per_step": it.found.grows.as_ref().map(|it| it.growth.per_step.0),
        "growth_at": it.found.grows.as_ref().map(|it| explain_wire::line(it.growth.at.as_ref())),
        "runs_out_at_step": it.found.grows.as_ref().map(|it| it.runs_out_at),
        "closest": it.found.closest.as_ref().map(row),
        "evaluation_alone": it.found.too_large.as_ref().map(|large| json!({
            "allocated_bytes": large.evaluation.own.0,
            "needs_bytes": large.needs.0,
            "with": large.with.remedies.iter().map(Remedy::shown).collect::<Vec<_>>(),
            "at": large.evaluation.at.as_ref().map(origin_words),
        })),
        "left": it.found.left.iter().map(|rest| {
            let with = |fate| rest.remedies.iter().filter(|it| it.1 == fate).map(|it| it.0).collect::<Vec<_>>();
            json!({
                "category": rest.category.name(),
                "bytes": rest.bytes.0,
                "as_it_is_bytes": rest.as_it_is.0,
                "in_it": with(Fate::InIt),
                "tried": with(Fate::Tried),
                "unsuited": with(Fate::Unsuited),
                "not_tried": with(Fate::NotTried),
            })
        }).collect::<Vec<_>>(),
        "left_at": left_lines(&it.found).iter().map(wire::LineWire::from).collect::<Vec<_>>(),
        "run": it.beside.run_line,
        "change": { "diff": it.change.diff, "by_hand": it.change.by_hand },
        "runs": it.beside.runs,
        "seconds": it.beside.seconds,
        "connections": wire::connections(&it.beside.reached),
        "interrupted": it.found.interrupted,
        "so_far": so_far(it),
        "measured_on": it.beside.measured_on,
        "seen": { "steps": it.found.seen.steps, "evaluation": it.found.seen.evaluation, "until_exit": it.found.seen.until_exit,
            "failed": it.found.seen.failed.as_ref().map(|it| json!({ "why": it.why, "epochs_cut": it.was_hurried })),
        },
    });
    format!("{res:#}\n")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_core::{
        plan::Plan,
        prediction::{Origin, ToCome},
        recording::{CodeLine, Switches},
    };

    use super::*;
    use crate::{change::Recipe, cost::Factor};

    fn row(plan: Plan, measured: Option<Measured>) -> Candidate {
        let mut it = Candidate::not_run(plan, Numbers::Same);
        it.time = Some(Factor { estimate: 1.4, low: 1.1, high: 1.8 });
        (it.needs, it.measured) = (Bytes::gib(20), measured);
        it
    }

    fn proposal(as_it_is: Option<Measured>, of_plan: Option<Measured>) -> Proposal {
        let mut plain = row(Plan::default(), as_it_is);
        plain.fits = false;
        let mut found = Found::as_it_is(plain, Seen::default(), None);
        found.plans = vec![row(Plan::of(vec![Remedy::plain("checkpoint")]), of_plan)];
        let beside = Beside {
            card: "NVIDIA L4".to_owned(),
            what: "on the device",
            limit: Bytes::gib(22),
            run_line: "plimsoll run --plan plan.toml -- python train.py".to_owned(),
            check_line: Some(
                "plimsoll predict --gpu t4 --plan plan.toml -- python train.py".to_owned(),
            ),
            diff_file: String::new(),
            check_change: Some("plimsoll predict --gpu t4 -- python train.py".to_owned()),
            cards_line: "plimsoll predict -- python train.py".to_owned(),
            plan_file: "plan.toml".to_owned(),
            runs: 9,
            seconds: 20.0,
            reached: Reached::default(),
            measured_on: of_plan.map(|_| "NVIDIA H200".to_owned()),
        };
        Proposal::new(found, beside, "/me")
    }

    #[test]
    fn parts_of_a_loop_that_is_a_frameworks_are_its_setting() {
        let mut found = proposal(None, None).found;
        let of = |found: &Found| snippet(&Remedy::plain("micro-batches"), found);
        assert!(!of(&found).contains("the framework's"));
        found.places.sites.switches.push(Switches {
            framework: Framework::Transformers,
            name: "TrainingArguments".to_owned(),
            values: BTreeMap::new(),
            rest: String::new(),
            site: None,
            from_words: false,
        });
        assert!(of(&found).starts_with("the training loop is the framework's: set its gradient"));
    }

    #[test]
    fn what_was_measured_takes_the_place_of_the_estimate() {
        let step = |seconds: f64, factor| Measured {
            seconds,
            low: seconds * 0.9,
            high: seconds * 1.1,
            factor,
        };
        let estimated = text(&proposal(None, None), Extent::Full);
        assert!(estimated.contains("1.40x (1.10-1.80)"), "{estimated}");
        assert!(estimated.contains("step times are estimates"), "{estimated}");

        let measured = proposal(Some(step(0.1, Some(1.0))), Some(step(0.13, Some(1.3))));
        let shown = text(&measured, Extent::Full);
        assert!(shown.contains("1.30x measured"), "{shown}");
        assert!(
            shown.contains(
                "Measured on NVIDIA H200, not on NVIDIA L4; without changes, a step takes 0.1000 s (80 % take \
                 0.0900 to 0.1100 s)."
            ),
            "{shown}"
        );
        assert!(!shown.contains("estimates"), "{shown}");
        let head = file_head(&measured, &measured.found.plans[0]).join("\n");
        assert!(head.contains(", 1.30 times the step time (measured)"), "{head}");

        // The script as it is did not fit there.
        let shown = text(&proposal(None, Some(step(0.13, None))), Extent::Full);
        assert!(shown.contains("0.1300 s"), "{shown}");
        assert!(shown.contains("it needs more than is free there"), "{shown}");
    }

    #[test]
    fn a_script_that_chooses_sizes_by_itself_may_need_more_later() {
        let mut it = proposal(None, None);
        it.found.has_unseen_sizes = true;
        it.found.plans[0].is_tight = true;
        let shown = text(&it, Extent::Full);
        assert!(shown.contains("checkpoint  TIGHT: little to spare for larger sizes"), "{shown}");
        it.found.plans[0].retries = 7;
        let shown_full = text(&it, Extent::Full);
        let sentence =
            "sizes  FULL 7 times: PyTorch gives memory back and goes on, which takes time\n";
        assert!(shown_full.contains(sentence), "{shown_full}");
        let sentence = "This answer is for the sizes seen; later steps may need more\n";
        assert!(shown.contains(sentence), "{shown}");
        // To the end of the script there are no others.
        it.found.seen.until_exit = true;
        assert!(!text(&it, Extent::Full).contains("the sizes seen"), "{}", text(&it, Extent::Full));
    }

    #[test]
    fn an_edit_that_gives_back_more_than_the_plan_stands_above_it() {
        let mut it = proposal(None, None);
        it.found.plain.needs = Bytes::gib(26);
        it.found.plain.took.by_hand.push(ByHand {
            code: ProblemCode::ResultsKept,
            ran_out: false,
            what: "`outputs` stores results of each step".to_owned(),
            bytes: Bytes::gib(7),
            at: None,
            change: "store `.cpu()`".to_owned(),
        });
        let head = text(&it, Extent::Full).lines().take(4).collect::<Vec<_>>().join("\n");
        let edit = "an edit of the script gives more back than any plan, 7.00 GiB at the peak: `outputs` stores results of each step";
        assert!(head.contains(edit), "{head}");
        // The plan gives 6 GiB.
        it.found.plain.took.by_hand[0].bytes = Bytes::gib(5);
        assert!(!text(&it, Extent::Full).contains("more back than any plan"));

        assert!(
            to_change(it.found.plain.took.by_hand.first())
                .ends_with("of each step\n  store `.cpu()`")
        );
    }

    #[test]
    fn a_script_that_fits_by_its_first_steps_alone_has_no_plan() {
        let mut it = proposal(None, None);
        it.found.plans.clear();
        it.found.plain.fits = true;
        assert!(text(&it, Extent::Full).contains("no plan is needed"));
        it.found.interrupted = true;
        let shown = text(&it, Extent::Full);
        assert!(shown.starts_with("FITS SO FAR without changes"), "{shown}");
        assert!(!shown.contains("no plan is needed") && !shown.contains("plan.toml"), "{shown}");
    }

    #[test]
    fn a_diff_that_is_not_the_whole_plan_says_so() {
        let mut it = proposal(None, None);
        it.change.diff = "--- train.py\n+++ train.py\n".to_owned();
        it.change.by_hand.clear();
        assert!(!text(&it, Extent::Full).contains("This diff"), "{}", text(&it, Extent::Full));
        it.change.by_hand.push("checkpoint");
        let shown = text(&it, Extent::Full);
        let lines = "    +++ train.py\nThis diff alone does not fit; it also takes, by hand: checkpoint\n\nAnd by hand:";
        assert!(shown.contains(lines), "{shown}");
        // The short report leads to the code, which the plan's file has: nobody searches twice for it.
        let shown = text(&it, Extent::Short);
        assert!(
            shown.contains("\nAnd by hand (the code is in plan.toml):\n  checkpoint"),
            "{shown}"
        );
        let head = file_head(&it, &it.found.plans[0]).join("\n");
        assert!(head.contains("\nBy hand instead of checkpoint, beside the diff:\n    "), "{head}");
        it.found.interrupted = true;
        assert!(
            text(&it, Extent::Full)
                .contains("This diff alone is only a part of the plan; it also takes")
        );
    }

    #[test]
    fn what_was_not_run_to_its_end_fits_so_far() {
        let first =
            |it: &Proposal| text(it, Extent::Full).lines().take(2).collect::<Vec<_>>().join("\n");
        let outcome = |it: &Proposal| json(it).contains(r#""outcome": "fits_so_far""#);
        let mut it = proposal(None, None);
        let line = CodeLine { file: "/s/train.py".to_owned(), line: 30, ..CodeLine::default() };
        it.found.seen.to_come = Some(ToCome::Evaluation(line));
        expect![[r#"
            FITS SO FAR with a plan: 20.00 GiB for what was run, of 22.00 GiB on the device (NVIDIA L4): 2.00 GiB to spare
            the script's evaluation (train.py:30) was not reached and may need more: give it a smaller interval, or --until-exit"#]]
        .assert_eq(&first(&it));
        assert!(outcome(&it));
        (it.found.seen.to_come, it.found.interrupted) = (None, true);
        expect![[r#"
            FITS SO FAR with a plan: 20.00 GiB for what was run, of 22.00 GiB on the device (NVIDIA L4): 2.00 GiB to spare
            the search was interrupted before plimsoll ran this on the card itself, to an evaluation if the script has one"#]]
        .assert_eq(&first(&it));
        assert!(outcome(&it));
        it.found.seen.is_proof = true;
        assert!(first(&it).starts_with("FITS with a plan: ") && !outcome(&it));
        // As the script is, likewise.
        it.found.plain.fits = true;
        (it.found.interrupted, it.found.seen.is_proof) = (true, false);
        assert!(first(&it).starts_with("FITS SO FAR without changes: ") && outcome(&it));
    }

    #[test]
    fn that_the_script_fails_later_is_said_first() {
        let failed =
            |was_hurried| Failed { why: "the script raised KeyError".to_owned(), was_hurried };
        let mut it = proposal(None, None);
        it.found.seen = Seen { steps: 3, failed: Some(failed(false)), ..Seen::default() };
        expect![[r#"
            FITS with a plan until it fails: 20.00 GiB for what was run, of 22.00 GiB on the device (NVIDIA L4): 2.00 GiB to spare
            without changes: 20.00 GiB to be safe
            ! the script raised KeyError; later parts of the script were not run"#]]
        .assert_eq(text(&it, Extent::Full).lines().take(3).collect::<Vec<_>>().join("\n").as_str());
        assert!(
            it.found.fails_by_itself()
                && text(&it, Extent::Full).contains("\nseen: 3 training steps\n")
        );
        it.found.seen.failed = Some(failed(true));
        expect!["! the script raised KeyError. plimsoll may have ended an epoch early before that, to reach later parts of the script; some loops fail then"].assert_eq(text(&it, Extent::Full).lines().nth(2).unwrap_or_default());
        assert!(!it.found.fails_by_itself());
    }

    fn held(
        category: Category,
        left: u64,
        as_it_is: u64,
        remedies: Vec<(&'static str, Fate)>,
    ) -> Remaining {
        let (bytes, as_it_is) = (Bytes::mib(left), Bytes::mib(as_it_is));
        Remaining { category, bytes, as_it_is, remedies }
    }

    fn line(file: &str, line: u32) -> Origin {
        let (file, function, text) = (file.to_owned(), "<module>".to_owned(), String::new());
        Origin::Line(CodeLine { file, line, function, text })
    }

    fn share(at: Origin, mib: u64, category: Category) -> LineShare {
        LineShare { at, bytes: Bytes::mib(mib), blocks: 1, category, is_mixed: false }
    }

    #[test]
    fn where_nothing_fits_what_is_left_and_what_was_tried_are_said() {
        let offload = ("parameter-offload", Fate::Tried);
        let mut nearest = row(Plan::of(vec![Remedy::plain("checkpoint")]), None);
        nearest.needs = Bytes::gib(24);
        nearest.took.lines = vec![
            share(line("/me/train.py", 14), 15_000, Category::Parameters),
            share(Origin::Backward, 5_000, Category::Activations),
            share(Origin::NoStack, 600, Category::Inputs),
        ];
        let mut it = proposal(None, None);
        it.found.plans.clear();
        it.found.closest = Some(nearest);
        it.found.left = vec![
            held(
                Category::Parameters,
                15_000,
                15_000,
                vec![offload, ("pure-bf16", Fate::NotTried)],
            ),
            held(
                Category::Activations,
                8_000,
                30_000,
                vec![("checkpoint", Fate::InIt), ("attention", Fate::Unsuited)],
            ),
            held(Category::Inputs, 600, 600, Vec::new()),
            held(Category::Gradients, 1, 1, Vec::new()),
        ];
        expect![[r#"
            DOES NOT FIT with any plan that was tried
            closest: checkpoint: 24.00 GiB to be safe, 2.00 GiB too much
            to list the cards that are large enough without changes:
                plimsoll predict -- python train.py
            without changes: 20.00 GiB to be safe, of 22.00 GiB on the device (NVIDIA L4)
            Memory of the closest plan at its peak, and the remedies for it. --allow tries one that was not tried:
                 closest   unchanged  category
               14.65 GiB   14.65 GiB  parameters       tried: parameter-offload; not tried: pure-bf16
                7.81 GiB   29.30 GiB  activations      has checkpoint; does not apply: attention
               600.0 MiB   600.0 MiB  inputs           no remedy
            By line of your code, in the closest plan:
               14.65 GiB  train.py:14 (parameters)
                4.88 GiB  backward (activations)
            plimsoll started your script 9 times, in 20.0 s
        "#]]
        .assert_eq(&text(&it, Extent::Full));
        let json: serde_json::Value = serde_json::from_str(&json(&it)).unwrap();
        assert_eq!(json["outcome"], "does_not_fit");
        assert_eq!(json["left"][0]["not_tried"], json!(["pure-bf16"]));
        assert_eq!(json["left_at"][0]["line"], 14);
    }

    #[test]
    fn what_gets_through_by_giving_memory_back_fits_and_that_is_said() {
        let with = |plans| {
            let mut it = proposal(None, None);
            (it.found.retries, it.found.plans) = (Some(14), plans);
            it
        };
        let lines = |it: &Proposal| {
            let text = text(it, Extent::Full);
            let outcome = json(it).lines().find(|it| it.contains("outcome")).map(str::to_owned);
            text.lines().take(3).collect::<Vec<_>>().join("\n")
                + "\n"
                + &outcome.unwrap_or_default()
        };
        let found = proposal(None, None).found.plans;
        expect![[r#"
            FITS with a plan: 20.00 GiB to be safe, of 22.00 GiB on the device (NVIDIA L4): 2.00 GiB to spare
            without changes: 20.00 GiB to be safe
            on a real card, the card was full 14 times, and the allocator gave its free memory back to the driver: the script runs, but slower
              "outcome": "fits_with_plan","#]].assert_eq(&lines(&with(found)));
        expect![[r#"
            FITS without changes, but only by giving memory back (slow); no plan that was tried avoids this
            without changes: 20.00 GiB to be safe, of 22.00 GiB on the device (NVIDIA L4)
            on a real card, the card was full 14 times, and the allocator gave its free memory back to the driver: the script runs, but slower
              "outcome": "fits","#]].assert_eq(&lines(&with(Vec::new())));
    }

    #[test]
    fn a_change_to_the_training_that_is_not_enough_is_no_way_out() {
        let advice = |ids: &[&'static str], gib: u64| Advice {
            ids: ids.to_vec(),
            needs: Bytes::gib(gib),
            fits: gib <= 22,
        };
        let shown = |all: Vec<Advice>| {
            let mut it = proposal(None, None);
            it.found.plans.clear();
            it.found.advice = all;
            let text = text(&it, Extent::Full);
            let lines = text.lines().skip_while(|it| !it.starts_with("Changes to the training"));
            lines
                .take_while(|it| !it.starts_with("plimsoll started"))
                .collect::<Vec<_>>()
                .join("\n")
        };
        expect![[r#"
            Changes to the training itself, which only you can decide on (each was run without a GPU and fits):
                9.00 GiB  the model is frozen and low-rank adapters are trained, frozen linear layers are stored as 8-bit integers (docs/remedies/lora.md)"#]]
            .assert_eq(&shown(vec![advice(&["lora"], 24), advice(&["lora", "quantization"], 9)]));
        expect!["Changes to the training itself were run, each without a plan. None fits; the smallest is lora + quantization: 23.00 GiB to be safe"]
            .assert_eq(&shown(vec![advice(&["lora"], 24), advice(&["lora", "quantization"], 23)]));
        assert_eq!(shown(Vec::new()), "");
    }

    #[test]
    fn a_switch_that_fits_is_an_answer() {
        let line = crate::change::Line {
            file: "/me/train.py".to_owned(),
            line: 7,
            has: "TrainingArguments(bf16=True)".to_owned(),
        };
        let mut recipe = Recipe::default();
        (recipe.framework, recipe.lines) = ("transformers", vec![line]);
        let tried = Tried { recipe, needs: Bytes::gib(9), retries: 0 };
        let shown = Shown::of(&tried, &Places::default(), "/me");
        let mut it = proposal(None, None);
        it.found.plans.clear();
        it.recipes = vec![shown];
        expect![[r#"
            FITS with settings of transformers in your script: 9.00 GiB to be safe. plimsoll found no plan that leaves the script unchanged, so it wrote none
            without changes: 20.00 GiB to be safe, of 22.00 GiB on the device (NVIDIA L4)

            The change in settings of transformers. Each of these was run without a GPU and fits; plimsoll did not estimate their step times (request, spare, numbers):
                9.00 GiB   13.00 GiB  same                 train.py:7: TrainingArguments(bf16=True)
            plimsoll started your script 9 times, in 20.0 s
        "#]]
        .assert_eq(&text(&it, Extent::Full));
        let json: serde_json::Value = serde_json::from_str(&json(&it)).unwrap();
        assert_eq!(json["outcome"], "fits_with_recipe");
    }
}
