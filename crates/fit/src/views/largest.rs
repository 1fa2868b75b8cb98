//! What `plimsoll fit --find-max` found, for people and for programs.

use std::fmt::Write;

use plimsoll_core::{
    prediction::OomPlace,
    recording::{Phase, Reached},
    units::Bytes,
    views::wire,
};
use serde_json::{Value, json};

use crate::{
    search::{FoundValue, ValueRun, WithRemedies, largest::Tried},
    views::plan::{self, effort, was_full},
};

/// The version of the JSON.
const VERSION: u32 = 1;

/// The largest value that fits.
#[derive(Clone, Debug)]
pub struct FindMax {
    /// The name of the place in the command.
    pub name: String,
    /// The card, as its driver calls it.
    pub card: String,
    /// What is limited: "on the device" or "reserved".
    pub what: &'static str,
    /// How much of it there is.
    pub limit: Bytes,
    /// What came of the search.
    pub result: FoundValue,
    /// The command that looks for a plan with this value, as somebody would type it.
    pub plan_line: Option<String>,
    /// The command that predicts the script with the value that was found.
    pub check_line: Option<String>,
    /// How long all of it took.
    pub seconds: f64,
    /// Whom the script reached outside of its own processes, in all runs.
    pub reached: Reached,
}

/// What the answer depends on and nobody computed; of the value that fits, else of any.
fn depends_on(found: &FoundValue) -> Option<&str> {
    found.answer().or(found.runs.last())?.depends.as_deref()
}

/// What is true of the answer and easily overlooked.
fn remarks(found: &FoundValue) -> Vec<String> {
    let mut res = Vec::new();
    if found.interrupted {
        res.push("the search was interrupted; a larger value may fit".to_owned());
    } else if found.rest_interrupted {
        res.push(
            "interrupted after the answer was found: the rest of this report is incomplete"
                .to_owned(),
        );
    }
    if !found.out_of_order.is_empty() {
        let values: Vec<String> = found.out_of_order.iter().map(u64::to_string).collect();
        res.push(format!(
            "larger values do not always need more memory: {} ran out although {} fits",
            values.join(", "),
            found.found.unwrap_or_default(),
        ));
    }
    if let Some(run) = found.answer()
        && run.retries != 0
    {
        let easy =
            found.runs.iter().filter(|it| it.retries == 0 && matches!(it.tried, Tried::Fits(_)));
        let easy = easy.map(|it| it.value).max();
        res.push(format!(
            "at {} {}{}",
            run.value,
            was_full(run.retries),
            easy.map_or_else(String::new, |it| format!("; {it} fits without that")),
        ));
    }
    if let (Some(value), Some(it)) = (found.found, found.with_less)
        && it.holds != found.found
    {
        let instead = it.holds.map_or_else(String::new, |it| format!("; {it} fits even then"));
        res.push(format!(
            "{value} only just fits: with {} less memory it runs out{instead}. How much memory PyTorch can give back depends on where the driver places each segment",
            it.less
        ));
    }
    if let Some(step) = found.multiples_of {
        res.push(format!("only multiples of {step} run, so plimsoll tried no other values"));
    }
    if let Some((value, Tried::Fails(why))) = &found.above {
        res.push(format!("{value} fails for a reason other than memory: {why}"));
    }
    if let Some(ValueRun { value, tried: Tried::Fails(why), .. }) = found.runs.last()
        && found.found.is_none()
    {
        res.push(format!("{value} does not run: {why}"));
    }
    res
}

/// For people.
pub fn text(it: &FindMax) -> String {
    let mut res = String::new();
    let FindMax { name, card, what, limit, .. } = it;
    let depends = it.result.depends();
    let condition = if depends { " if boolean masks select nothing" } else { "" };
    let fits = format!("fits {limit} {what} ({card}){condition}");
    let so_far = it.result.so_far().map(plan::why_so_far);
    if depends {
        res += "IT DEPENDS: ";
    } else if so_far.is_some() {
        res += "FITS SO FAR: ";
    }
    let _ = match (it.result.found, &it.result.above) {
        (None, _) => {
            writeln!(
                res,
                "DOES NOT FIT with any value of {name} that was tried: {limit} {what} ({card})"
            )
        }
        (Some(found), _) if it.result.is_end => {
            writeln!(
                res,
                "{name}={found} {fits}; it is the end of the range, so larger values were not tried"
            )
        }
        (Some(found), None) => writeln!(res, "{name}={found} {fits}"),
        (Some(found), Some((above, _))) => {
            writeln!(res, "{name}={found} is the largest that {fits}; {above} does not")
        }
    };
    res.extend(so_far.map(|it| it + "\n"));
    if let Some(all) = &it.result.if_found {
        let _ = match all.found {
            _ if !depends => writeln!(res, "if they select everything, it fits, too"),
            Some(all) => {
                writeln!(res, "if they select everything, {name}={all} is the largest that fits")
            }
            None => {
                writeln!(res, "if they select everything, no value of {name} that was tried fits")
            }
        };
    }
    if let Some(run) = it.result.answer()
        && let Tried::Fits(peak) = run.tried
    {
        let spare = limit.saturating_sub(peak);
        let _ = writeln!(res, "it needs {peak} {what}, {spare} to spare");
        if *limit < run.safe {
            let roomy = it.result.runs.iter().filter(|it| matches!(it.tried, Tried::Fits(_)));
            let roomy = roomy.filter(|it| it.safe <= *limit).map(|it| it.value).max();
            let with_room = match roomy {
                None => format!("no value of {name} that was run is safe"),
                Some(it) => format!("{name}={it} is the largest that was run and is safe"),
            };
            let _ = writeln!(
                res,
                "TIGHT: request {} {what} to be safe, {} more than there is; {with_room}",
                run.safe,
                run.safe.saturating_sub(*limit),
            );
            if let (None, Some(smallest)) = (roomy, it.result.runs.iter().map(|it| it.value).min())
            {
                find_changes(&mut res, it, smallest);
            }
        }
    }
    if let Some(line) = &it.check_line {
        let _ = writeln!(res, "to check it without a GPU:\n    {line}");
    }
    ran_out(&mut res, it);
    res += &plan::depends(depends_on(&it.result));
    for remark in remarks(&it.result) {
        let _ = writeln!(res, "  - {remark}");
    }
    let n_runs: usize = it.result.by_remedies.iter().skip(1).map(|it| it.n_runs).sum();
    table(&mut res, it);
    let n_if_found = it.result.if_found.as_ref().map_or(0, |it| it.runs.len());
    let n_runs = it.result.runs.len() + n_if_found + n_runs;
    let _ = writeln!(res, "{}", effort(n_runs as u64, it.seconds));
    res + &plan::whom(&it.reached)
}

/// Where nothing fits: where the smallest value that was run ran out, by how much at least, and what to do next.
fn ran_out(res: &mut String, it: &FindMax) {
    let runs = it.result.runs.iter().filter(|_| it.result.found.is_none());
    let Some(run) = runs.filter(|it| it.tried == Tried::TooMuch).min_by_key(|it| it.value) else {
        return;
    };
    if let Some(OomPlace { phase, requested, allocated, at, .. }) = &run.ran_out {
        let phase = if *phase == Some(Phase::Evaluation) { ", in an evaluation" } else { "" };
        let at = at.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
        let peak = run.peak.unwrap_or_default();
        let beside = peak.device.saturating_sub(peak.reserved);
        let beside = if it.what == "reserved" { Bytes::ZERO } else { beside };
        let over = (*requested + *allocated + beside).saturating_sub(it.limit);
        let over = if over == Bytes::ZERO {
            "free memory is in pieces that are too small".to_owned()
        } else {
            format!("at least {over} too much")
        };
        let _ = writeln!(
            res,
            "{}={} runs out{at}{phase}: it requests {requested} while {allocated} are allocated, {over}",
            it.name, run.value
        );
    }
    find_changes(res, it, run.value);
}

/// The command that looks for a plan with `value`.
fn find_changes(res: &mut String, it: &FindMax, value: u64) {
    if let Some(line) = &it.plan_line {
        let _ = writeln!(res, "to find changes that make {}={value} fit:\n    {line}", it.name);
    }
}

/// One line for each set of remedies.
fn table(res: &mut String, it: &FindMax) {
    let Some(plain) = it.result.by_remedies.first() else { return };
    let name = &it.name;
    let width = name.chars().count().max(6);
    let (limited, each) = (it.what, format!("per {name}"));
    let each_width = each.chars().count().max(8);
    let _ = writeln!(
        res,
        "\n  {name:>width$}  {limited:>13}  {:>16}  {each:>each_width$}  {:<20} with",
        "step time", "numbers"
    );
    for row in &it.result.by_remedies {
        let value = row.found.map_or_else(|| "none".to_owned(), |it| it.to_string());
        let peak = row.peak.filter(|_| row.found.is_some());
        let peak = peak.map(|peak| if limited == "reserved" { peak.reserved } else { peak.device });
        let peak = peak.map_or_else(String::new, |it| it.to_string());
        let is_plain = std::ptr::eq(row, plain);
        let time = match row.time {
            Some(it) => it.to_string(),
            None if is_plain => "1.00x".to_owned(),
            None => "not counted".to_owned(),
        };
        let per = per_value(row, plain).map_or_else(String::new, |it| format!("{it:.2}x"));
        let numbers = row.plan.numbers().shown();
        let _ = writeln!(
            res,
            "  {value:>width$}  {peak:>13}  {time:>16}  {per:>each_width$}  {numbers:<20} {}",
            row.plan.shown()
        );
    }
    let _ = writeln!(
        res,
        "step times are estimates, relative to the first row; for the fastest plan for one value, run `plimsoll fit` with it\n"
    );
}

/// A step's time divided by the value, against that of `plain`.
fn per_value(row: &WithRemedies, plain: &WithRemedies) -> Option<f64> {
    let estimate = if std::ptr::eq(row, plain) { 1.0 } else { row.time?.estimate };
    let number = |it: Option<u64>| Some(f64::from(u32::try_from(it?).ok()?));
    Some(estimate * number(plain.found)? / number(row.found)?)
}

/// For programs: one JSON object.
pub fn json(it: &FindMax) -> String {
    let outcome = |tried: &Tried| match tried {
        Tried::Fits(_) => "fits",
        Tried::TooMuch => "out_of_memory",
        Tried::Fails(_) => "failed",
    };
    let tried = |run: &ValueRun| {
        let peak = run.peak;
        json!({
            "value": run.value,
            "outcome": outcome(&run.tried),
            "reason": match &run.tried { Tried::Fails(why) => Some(why), _ => None },
            "peak_allocated_bytes": peak.map(|it| it.allocated.0),
            "peak_reserved_bytes": peak.map(|it| it.reserved.0),
            "peak_device_bytes": peak.map(|it| it.device.0),
            "safe_bytes": peak.map(|_| run.safe.0),
            "retries": run.retries,
            "seconds": run.seconds,
        })
    };
    let all_tried = |runs: &[ValueRun]| runs.iter().map(tried).collect::<Vec<_>>();
    let by_remedies = it.result.by_remedies.iter().map(|row| {
        json!({
            "remedies": row.plan.remedies.iter().map(plimsoll_core::plan::Remedy::shown).collect::<Vec<_>>(),
            "found": row.found,
            "peak_allocated_bytes": row.peak.map(|it| it.allocated.0),
            "peak_reserved_bytes": row.peak.map(|it| it.reserved.0),
            "peak_device_bytes": row.peak.map(|it| it.device.0),
            "numbers": row.plan.numbers().shown(),
            "time_factor": row.time.map(|it| it.estimate),
            "time_factor_range": row.time.map(|it| [it.low, it.high]),
            "time_factor_per_value": it.result.by_remedies.first().and_then(|plain| per_value(row, plain)),
            "runs": row.n_runs,
        })
    });
    let by_remedies: Vec<Value> = by_remedies.collect();
    let name = it.name.clone();
    let above = it
        .result
        .above
        .as_ref()
        .map(|(value, it)| json!({ "value": value, "outcome": outcome(it) }));
    let named = |value: u64| Value::from_iter([(name.clone(), Value::from(value))]);
    let found = it.result.found.map(named);
    let res = json!({
        "version": VERSION,
        "found": found,
        "next": above,
        "with_less": it.result.with_less.map(|it| json!({ "less_bytes": it.less.0, "holds": it.holds })),
        "limit": { "what": if it.what == "reserved" { "reserved" } else { "device" }, "bytes": it.limit.0 },
        "gpu": it.card,
        "depends_on": depends_on(&it.result),
        "runs": it.result.runs.len(),
        "seconds": it.seconds,
        "connections": wire::connections(&it.reached),
        "interrupted": it.result.interrupted || it.result.rest_interrupted,
        "if_everything_is_found": it.result.if_found.as_ref().map(|all| json!({
            "found": all.found.map(named),
            "tried": all_tried(&all.runs),
        })),
        "tried": all_tried(&it.result.runs),
        "by_remedies": by_remedies,
        "so_far": it.result.so_far().map(plan::why_so_far),
        "notes": remarks(&it.result),
    });
    format!("{res:#}\n")
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{prediction::ToCome, recording::CodeLine};

    use super::*;
    use crate::search::WithLess;

    #[test]
    fn a_value_that_only_just_fits_says_which_one_has_room() {
        let run = |value, tried, retries| ValueRun {
            value,
            tried,
            peak: None,
            safe: Bytes::ZERO,
            ran_out: None,
            retries,
            seconds: 1.0,
            depends: None,
            to_come: None,
            unseen: None,
            ends: Vec::new(),
            is_part: false,
        };
        let mut it = FindMax {
            name: "batch".to_owned(),
            card: "NVIDIA H200".to_owned(),
            what: "reserved",
            limit: Bytes::gib(8),
            result: FoundValue {
                found: Some(26),
                above: Some((27, Tried::TooMuch)),
                is_end: false,
                out_of_order: Vec::new(),
                multiples_of: None,
                with_less: Some(WithLess { less: Bytes::mib(102), holds: Some(25) }),
                by_remedies: Vec::new(),
                if_found: None,
                interrupted: false,
                rest_interrupted: false,
                runs: vec![
                    run(27, Tried::TooMuch, 55),
                    run(24, Tried::Fits(Bytes::mib(7_600)), 0),
                    run(26, Tried::Fits(Bytes::mib(8_104)), 2),
                ],
            },
            plan_line: None,
            check_line: None,
            seconds: 3.0,
            reached: Reached::default(),
        };
        expect_test::expect![[r#"
            batch=26 is the largest that fits 8.00 GiB reserved (NVIDIA H200); 27 does not
            it needs 7.91 GiB reserved, 88.0 MiB to spare
              - at 26 the card was full twice, and the allocator gave its free memory back to the driver: the script runs, but slower; 24 fits without that
              - 26 only just fits: with 102.0 MiB less memory it runs out; 25 fits even then. How much memory PyTorch can give back depends on where the driver places each segment
            plimsoll started your script 3 times, in 3.0 s
        "#]]
        .assert_eq(&text(&it));
        it.result.with_less = Some(WithLess { less: Bytes::mib(102), holds: Some(26) });
        assert!(!text(&it).contains("only just"), "it has room");
    }

    #[test]
    fn a_value_whose_run_did_not_come_to_the_evaluation_fits_so_far() {
        let line = CodeLine {
            file: "/home/me/train.py".to_owned(),
            line: 71,
            function: "evaluate".to_owned(),
            text: String::new(),
        };
        let to_come = Some(ToCome::Evaluation(line));
        let run = |value, to_come| ValueRun {
            value,
            tried: Tried::Fits(Bytes::gib(7)),
            peak: None,
            safe: Bytes::gib(7),
            ran_out: None,
            retries: 0,
            seconds: 1.0,
            depends: None,
            to_come,
            unseen: None,
            ends: Vec::new(),
            is_part: false,
        };
        let result = FoundValue {
            found: Some(64),
            above: None,
            is_end: true,
            out_of_order: Vec::new(),
            multiples_of: None,
            with_less: None,
            by_remedies: Vec::new(),
            if_found: None,
            interrupted: false,
            rest_interrupted: false,
            runs: vec![run(32, to_come.clone()), run(64, to_come)],
        };
        let mut it = FindMax {
            name: "batch".to_owned(),
            card: "NVIDIA H200".to_owned(),
            what: "reserved",
            limit: Bytes::gib(8),
            result,
            plan_line: None,
            check_line: None,
            seconds: 3.0,
            reached: Reached::default(),
        };
        expect_test::expect![[r#"
            FITS SO FAR: batch=64 fits 8.00 GiB reserved (NVIDIA H200); it is the end of the range, so larger values were not tried
            the script's evaluation (train.py:71 in evaluate) was not reached and may need more: give it a smaller interval, or --until-exit
            it needs 7.00 GiB reserved, 1.00 GiB to spare
            plimsoll started your script twice, in 3.0 s
        "#]].assert_eq(&text(&it));
        assert!(json(&it).contains("was not reached"), "the JSON says why, too");
        // Only what is told of the answer counts.
        it.result.runs[1].to_come = None;
        assert!(!text(&it).contains("SO FAR"), "{}", text(&it));
    }

    #[test]
    fn a_tight_value_and_none_at_all_say_so() {
        let run = |value, tried, safe| ValueRun {
            value,
            tried,
            peak: Some(plimsoll_core::prediction::Peaks::default()),
            safe: Bytes::mib(safe),
            ran_out: None,
            retries: 0,
            seconds: 1.0,
            depends: None,
            to_come: None,
            unseen: None,
            ends: Vec::new(),
            is_part: false,
        };
        let mut it = FindMax {
            name: "batch".to_owned(),
            card: "NVIDIA H200".to_owned(),
            what: "reserved",
            limit: Bytes::gib(8),
            result: FoundValue {
                found: Some(26),
                above: Some((27, Tried::TooMuch)),
                is_end: false,
                out_of_order: Vec::new(),
                multiples_of: None,
                with_less: None,
                by_remedies: Vec::new(),
                if_found: None,
                interrupted: false,
                rest_interrupted: false,
                runs: vec![
                    run(27, Tried::TooMuch, 0),
                    run(24, Tried::Fits(Bytes::mib(7_600)), 7_700),
                    run(26, Tried::Fits(Bytes::mib(8_104)), 8_206),
                ],
            },
            plan_line: None,
            check_line: None,
            seconds: 3.0,
            reached: Reached::default(),
        };
        expect_test::expect![[r#"
            batch=26 is the largest that fits 8.00 GiB reserved (NVIDIA H200); 27 does not
            it needs 7.91 GiB reserved, 88.0 MiB to spare
            TIGHT: request 8.01 GiB reserved to be safe, 14.0 MiB more than there is; batch=24 is the largest that was run and is safe
            plimsoll started your script 3 times, in 3.0 s
        "#]].assert_eq(&text(&it));
        it.result.found = None;
        it.result.runs.truncate(1);
        it.result.runs[0].ran_out = Some(OomPlace {
            step: 1,
            phase: Some(Phase::Evaluation),
            requested: Bytes::gib(4),
            allocated: Bytes::gib(7),
            reserved: Bytes::gib(7),
            free: None,
            at: None,
        });
        it.plan_line = Some("plimsoll fit --gpu h200 -- python train.py --batch 27".to_owned());
        expect_test::expect![[r#"
            DOES NOT FIT with any value of batch that was tried: 8.00 GiB reserved (NVIDIA H200)
            batch=27 runs out, in an evaluation: it requests 4.00 GiB while 7.00 GiB are allocated, at least 3.00 GiB too much
            to find changes that make batch=27 fit:
                plimsoll fit --gpu h200 -- python train.py --batch 27
            plimsoll started your script once, in 3.0 s
        "#]].assert_eq(&text(&it));
    }
}
