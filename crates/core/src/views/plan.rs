//! What `plimsoll fit` proposes, for people and for programs.

use std::fmt::Write;

use serde_json::json;

use crate::{
    plan::{Change, Factor, Numbers, Plan, Remedy, find},
    prediction::Peaks,
    units::Bytes,
};

/// The version of the JSON.
const VERSION: u32 = 1;

/// What came of a search.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The card, as its driver calls it.
    pub card: String,
    /// What is limited: "on the device" or "reserved".
    pub what: &'static str,
    /// How much of it there is.
    pub limit: Bytes,
    /// The script without any remedy.
    pub as_it_is: Row,
    /// It fits without any.
    pub fits_as_it_is: bool,
    /// Plans that fit, the best first.
    pub plans: Vec<Row>,
    /// What only a person can decide, with what it would take.
    pub advice: Vec<Advice>,
    /// What came nearest.
    pub closest: Option<Row>,
    /// How to run the best one.
    pub run_line: String,
    /// What a person would change for it instead.
    pub change: Change,
    /// The command that makes the part of that change which is certain.
    pub patch_line: String,
    /// Runs on the phantom.
    pub runs: u64,
    /// How long all of it took.
    pub seconds: f64,
    /// Somebody stopped the search before its end.
    pub interrupted: bool,
    /// What the last run of what is proposed went through.
    pub seen: Seen,
}

/// How much of a script a run went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Training steps.
    pub steps: u32,
    /// The model was called in evaluation mode or without gradients.
    pub evaluation: bool,
    /// It ran to its end.
    pub until_exit: bool,
}

impl Seen {
    /// For people: what was not seen, above all.
    fn shown(self) -> String {
        let steps = match self.steps {
            1 => "1 training step".to_owned(),
            n => format!("{n} training steps"),
        };
        match self {
            Seen { until_exit: true, .. } => format!("seen to its end: {steps}"),
            Seen { evaluation: true, .. } => format!(
                "seen: {steps} and an evaluation; what comes later is not, --until-exit runs the script to its end"
            ),
            Seen { .. } => format!(
                "seen: {steps} and no evaluation; a validation or larger batches that come later are not, --until-exit \
                 runs the script to its end"
            ),
        }
    }
}

/// One plan that was run.
#[derive(Clone, Debug)]
pub struct Row {
    /// The plan.
    pub plan: Plan,
    /// What it took.
    pub peak: Peaks,
    /// What of the limit it needs, allowance included.
    pub needs: Bytes,
    /// What it does to the numbers.
    pub numbers: Numbers,
    /// What it costs in time; none if that was not counted.
    pub time: Option<Factor>,
}

/// Another model or other data, as it ran on the phantom.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Remedies that are done by hand.
    pub ids: Vec<&'static str>,
    /// What of the limit the script would need with them, allowance included.
    pub needs: Bytes,
    /// Whether that is there.
    pub fits: bool,
}

/// For people.
pub fn text(it: &Proposal) -> String {
    let mut res = String::new();
    let Proposal { card, what, limit, as_it_is, .. } = it;
    if it.fits_as_it_is {
        let spare = limit.saturating_sub(as_it_is.needs);
        let _ = writeln!(
            res,
            "FITS as it is: needs {} of {limit} {what} ({card}), {spare} to spare\n\
             no plan is needed; for the largest batch, see --find-max\n{}\n\n\
             To have its first step on the GPU compared with this run:\n    {}",
            as_it_is.needs,
            it.seen.shown(),
            it.run_line,
        );
        advice(&mut res, &it.advice);
        return res;
    }
    let _ = writeln!(res, "as it is: needs {} of {limit} {what} ({card})", as_it_is.needs);
    let Some(best) = it.plans.first() else {
        let _ = writeln!(
            res,
            "{}",
            if it.interrupted {
                "INTERRUPTED before anything that fits was found"
            } else {
                "DOES NOT FIT with any combination of remedies that was tried"
            }
        );
        if let Some(row) = &it.closest {
            let _ = writeln!(res, "nearest: {} needs {}", row.plan.shown(), row.needs);
        }
        advice(&mut res, &it.advice);
        let _ = writeln!(res, "{} runs, {:.1} s", it.runs, it.seconds);
        return res;
    };
    let _ = writeln!(
        res,
        "\n  {:>10}  {:>10}  {:>16}  {:<20} plan",
        "needs", "spare", "step time", "numbers"
    );
    for row in &it.plans {
        let spare = limit.saturating_sub(row.needs);
        let time = row.time.map_or_else(
            || "not counted".to_owned(),
            |it| format!("{:.2}x ({:.2}-{:.2})", it.estimate, it.low, it.high),
        );
        let (needs, spare) = (row.needs.to_string(), spare.to_string());
        let numbers = row.numbers.shown();
        let _ = writeln!(
            res,
            "  {needs:>10}  {spare:>10}  {time:>16}  {numbers:<20} {}",
            row.plan.shown()
        );
    }
    let _ = writeln!(res, "\n{}", it.seen.shown());
    let _ = writeln!(res, "\nThe first one, without touching the script:\n    {}", it.run_line);
    if !it.change.diff.is_empty() {
        let _ = writeln!(res, "\nOr in the script ({}):", it.patch_line);
        for line in it.change.diff.lines() {
            let _ = writeln!(res, "    {line}");
        }
    }
    let by_hand = |remedy: &&Remedy| it.change.by_hand.contains(&remedy.id);
    for (i, remedy) in best.plan.remedies.iter().filter(by_hand).enumerate() {
        let Some(kind) = find(remedy.id) else { continue };
        if i == 0 {
            let also = if it.change.diff.is_empty() { "Or" } else { "And" };
            let _ = writeln!(res, "\n{also} by hand:");
        }
        let _ = writeln!(res, "  {}: {}", remedy.shown(), kind.what);
        for line in remedy.snippet().lines() {
            let _ = writeln!(res, "      {line}");
        }
    }
    advice(&mut res, &it.advice);
    if it.interrupted {
        let _ = writeln!(res, "\nthe search was interrupted; a better plan may exist");
    }
    let _ = writeln!(
        res,
        "\n{} runs, {:.1} s; step times are estimates, mostly within their range (`plimsoll run --measure` measures)",
        it.runs, it.seconds
    );
    res
}

fn advice(res: &mut String, all: &[Advice]) {
    for (i, it) in all.iter().enumerate() {
        if i == 0 {
            let _ =
                writeln!(res, "\nAnother training, which only you can choose; run on the phantom:");
        }
        let what = it.ids.iter().filter_map(|id| find(id)).map(|it| it.what);
        let what = what.collect::<Vec<_>>().join(", ");
        let fits = if it.fits { ", fits" } else { "" };
        let _ = writeln!(
            res,
            "  {:>10}  {what}{fits} (docs/remedies/{}.md)",
            it.needs.to_string(),
            it.ids[0]
        );
    }
}

/// The lines at the head of the plan's file.
pub fn file_head(it: &Proposal, row: &Row) -> Vec<String> {
    let time = row.time.map_or_else(String::new, |it| {
        format!(
            ", about {:.2} times the step time (estimated; {:.2} to {:.2})",
            it.estimate, it.low, it.high
        )
    });
    let without = if it.fits_as_it_is {
        "The script fits as it is: nothing is changed, and its first step is compared.".to_owned()
    } else {
        format!("Without it the script takes {} of the device.", it.as_it_is.peak.device)
    };
    vec![
        format!("Made by `plimsoll fit` for {} with {} {}.", it.card, it.limit, it.what),
        format!(
            "On the phantom it allocated {}, reserved {} and took {} of the device{time}.",
            row.peak.allocated, row.peak.reserved, row.peak.device
        ),
        without,
        format!("    {}", it.run_line),
    ]
}

/// For programs: one JSON object.
pub fn json(it: &Proposal) -> String {
    let row = |row: &Row| {
        let remedies: serde_json::Value = serde_json::Value::from(
            row.plan.remedies.iter().map(|it| it.shown()).collect::<Vec<_>>(),
        );
        json!({
            "remedies": remedies,
            "peak_allocated_bytes": row.peak.allocated.0,
            "peak_reserved_bytes": row.peak.reserved.0,
            "peak_device_bytes": row.peak.device.0,
            "needs_bytes": row.needs.0,
            "spare_bytes": it.limit.saturating_sub(row.needs).0,
            "numbers": row.numbers.shown(),
            "time_factor": row.time.map(|it| it.estimate),
            "time_factor_range": row.time.map(|it| [it.low, it.high]),
        })
    };
    let outcome = match (it.fits_as_it_is, it.plans.is_empty(), it.interrupted) {
        (true, ..) => "fits",
        (false, false, _) => "fits_with_plan",
        (false, true, true) => "interrupted",
        (false, true, false) => "does_not_fit",
    };
    let res = json!({
        "version": VERSION,
        "outcome": outcome,
        "gpu": it.card,
        "limit": { "what": if it.what == "reserved" { "reserved" } else { "device" }, "bytes": it.limit.0 },
        "as_it_is": row(&it.as_it_is),
        "plans": it.plans.iter().map(row).collect::<Vec<_>>(),
        "advice": it.advice.iter().map(|it| json!({ "remedies": it.ids, "needs_bytes": it.needs.0, "fits": it.fits })).collect::<Vec<_>>(),
        "closest": it.closest.as_ref().map(row),
        "run": it.run_line,
        "change": { "diff": it.change.diff, "by_hand": it.change.by_hand },
        "runs": it.runs,
        "seconds": it.seconds,
        "interrupted": it.interrupted,
        "seen": { "steps": it.seen.steps, "evaluation": it.seen.evaluation, "until_exit": it.seen.until_exit },
    });
    format!("{res:#}\n")
}
