//! Runs that are there to refute a plan.

use std::cell::Cell;

use expect_test::expect;
use plimsoll_core::{
    plan::{CATALOGUE, Op},
    prediction::{OtherEnd, Outcome},
    recording::Work,
    units::Bytes,
};

use super::made::{Made, evaluates, fails, reserves, takes};
use crate::search::{Look, Noted, On, Ran, Run, Until};

/// What a plan takes with either of two remedies.
fn either(run: &Run, autocast: u64, checkpoint: u64) -> u64 {
    match () {
        () if run.has("autocast") => autocast,
        () if run.has("checkpoint") => checkpoint,
        () => 12_000,
    }
}

const BOTH: &[&str] = &["autocast", "checkpoint"];

#[test]
fn a_plan_that_takes_more_in_another_run_is_none() {
    let made = Made::new(8_000, |run| {
        // Only the second time: its limit is known then.
        let more = if run.limit_reserved.is_some() && run.has("autocast") { 3_000 } else { 0 };
        takes(either(run, 5_000, 5_500) + more)
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> out of memory
        " a later step needs more than the first ones: from now on each run includes it
        autocast, steady -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> out of memory
        checkpoint, steady -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.86 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.86 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.86 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn the_last_run_refutes_plans_too_and_others_are_looked_for() {
    // Which frees its memory in another order every third time.
    let n = Cell::new(0);
    let made = Made::new(8_000, move |run| {
        let is_again = run.has("autocast") && run.limit_reserved.is_some();
        n.set(n.get() + u32::from(is_again));
        takes(either(run, 5_000, 5_500) + if is_again && n.get() % 3 != 1 { 3_000 } else { 0 })
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.86 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> out of memory
        autocast, steady, reserves up to 7.32 GiB -> out of memory
        " a later step needs more than the first ones: from now on each run includes it
        checkpoint, steady -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.86 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.86 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.86 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn a_repeat_that_counts_work_and_takes_anything_else_is_made_again_without() {
    let made = |with_work: u64| {
        Made::new(8_000, move |run| {
            let counts = run.look == Some(Look::Work) && run.limit_reserved.is_some();
            takes(either(run, 12_000, if counts { with_work } else { 5_000 }))
        })
        .allow(&["checkpoint"])
    };
    let repeats = |all: String| {
        let lines = all.lines().filter(|it| it.contains("reserves up to"));
        lines.map(|it| format!("{}\n", it.trim())).collect::<String>()
    };
    expect![[r#"
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 4.39 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
    "#]]
    .assert_eq(&repeats(made(4_000).plans()));
    expect![[r#"
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> out of memory
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
    "#]]
    .assert_eq(&repeats(made(9_000).plans()));
    assert!(made(9_000).plans().contains("plan: checkpoint, needs 5.37 GiB"));
}

/// What is compiled is counted as it was written, which takes other memory: with room, and no plan is refuted by it.
#[test]
fn the_work_of_a_compiled_script_is_counted_in_a_run_whose_memory_does_not_count() {
    let made = Made::new(8_000, |run| {
        let counts = run.look == Some(Look::Work);
        let product = |count: f64| {
            let (op, dtype) = (Op::Matmul, "float32".to_owned());
            Work { op, dtype, count, flops: 1e12, bytes: 1e6 }
        };
        let times = if run.has("checkpoint") { 1.3 } else { 1.0 };
        let work = if counts { vec![product(100.0 * times)] } else { Vec::new() };
        let written = if counts { 9_000 } else { 0 };
        let noted = Noted { compiles: true, work, ..Noted::default() };
        Ran { noted, ..takes(either(run, 12_000, 5_000) + written) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        checkpoint, steady -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        the unchanged script, 2 steps, work -> 21.00 GiB
        checkpoint, 2 steps, work -> 14.16 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same, roughly 1.30x
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["checkpoint"]).plans());
}

#[test]
fn a_later_step_that_takes_more_has_all_steps_run_from_then_on() {
    let made = Made::new(8_000, |run| {
        let mut ran = takes(either(run, 12_000, 5_000));
        if run.has("checkpoint") && run.until == Until::Steady {
            ran.took = reserves(9_000, 9_000);
        }
        ran
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> cut
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> out of memory
        " a later step needs more than the first ones: from now on each run includes it
        checkpoint, steady -> cut
        autocast + checkpoint, steady -> cut
        checkpoint, steady -> 9.28 GiB
        autocast + checkpoint, steady -> 9.28 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: checkpoint, needs 9.28 GiB
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn the_next_plan_is_taken_where_the_first_does_not_get_through_on_the_card() {
    let made = Made::new(8_000, |run| {
        if run.on == On::CardAlone && run.has("checkpoint") && run.until == Until::Validation {
            return fails("a library differs");
        }
        let more = if run.on == On::CardAlone && run.has("checkpoint") { 5_000 } else { 0 };
        takes(either(run, 5_000, 5_500) + more)
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.86 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.86 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> a library differs
        the unchanged script, a validation -> 12.21 GiB
        " checkpoint: a later step fails with it, but not without it: a library differs
        autocast, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: autocast, needs 5.37 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn a_validation_that_takes_more_is_in_each_run_from_then_on() {
    let made = Made::new(8_000, |run| match run.until {
        Until::Validation | Until::OneValidation if run.has("no-grad-evaluation") => {
            evaluates(either(run, 5_000, 5_500))
        }
        Until::Validation | Until::OneValidation => evaluates(10_000),
        _ => takes(either(run, 5_000, 5_500)),
    });
    // What may be used is not named: only then it may be what is for validations alone.
    let others = CATALOGUE.iter().map(|it| it.id);
    let others: Vec<&str> =
        others.filter(|it| !["no-grad-evaluation", "checkpoint"].contains(it)).collect();
    let made = made.forbid(&others);
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        checkpoint, 2 steps -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.86 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> out of memory
        " an evaluation needs more than training does: searching again, with an evaluation in each run
        the unchanged script, one validation -> 10.25 GiB
        the unchanged script, a validation -> cut
        no-grad-evaluation, a validation -> cut
        checkpoint, a validation -> cut
        no-grad-evaluation + checkpoint, a validation -> 5.86 GiB
        no-grad-evaluation + checkpoint, a validation, reserves up to 7.32 GiB -> 5.86 GiB
        no-grad-evaluation + checkpoint, a validation, reserves up to 7.32 GiB, work -> 5.86 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        no-grad-evaluation + checkpoint, a validation, alone on the card -> 5.86 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: no-grad-evaluation + checkpoint, needs 5.86 GiB, same
        seen: 3 steps, an evaluation
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn so_is_a_larger_batch_that_comes_later() {
    let made = Made::new(8_000, |run| {
        let is_later = run.until == Until::Validation;
        takes(match (run.has("autocast"), run.has("checkpoint"), is_later) {
            (false, false, _) => 12_000,
            (true, true, false) => 4_000,
            (true, true, true) => 7_000,
            (_, _, false) => 6_000,
            (_, _, true) => 9_000,
        })
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 6.35 GiB
        autocast, steady, reserves up to 7.32 GiB -> 6.35 GiB
        checkpoint, 2 steps -> 6.35 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 6.35 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 6.35 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 6.35 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> out of memory
        autocast, a validation, alone on the card -> out of memory
        " later steps need more than the first ones: searching again, with later steps in each run
        the unchanged script, a validation -> cut
        autocast, a validation -> cut
        checkpoint, a validation -> cut
        autocast + checkpoint, a validation -> 7.32 GiB
        autocast + checkpoint, a validation, reserves up to 7.32 GiB -> 7.32 GiB
        autocast + checkpoint, a validation, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        autocast + checkpoint, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: autocast + checkpoint, needs 7.32 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn what_masks_may_find_refutes_no_plan_and_is_said() {
    let made = Made::new(8_000, |run| {
        let found = if run.end == Some(OtherEnd::Found) { 3_000 } else { 0 };
        Ran { ends: vec![OtherEnd::Found], ..takes(either(run, 5_500, 5_000) + found) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.86 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.86 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, on the card, everything found -> out of memory
        checkpoint, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        if masks find everything: RunsOut
        plan: checkpoint, needs 5.37 GiB, same
        plan: autocast, needs 5.86 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn a_plan_is_proven_at_the_other_end_too() {
    let made = Made::new(8_000, |run| {
        let late = if run.end == Some(OtherEnd::Late) && run.has("checkpoint") { 3_000 } else { 0 };
        Ran { ends: vec![OtherEnd::Late], ..takes(either(run, 5_500, 5_000) + late) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.86 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.86 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, on the card, late -> out of memory
        checkpoint, a validation, alone on the card -> 5.37 GiB
        autocast, a validation, on the card, late -> 5.86 GiB
        autocast, a validation, alone on the card -> 5.86 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: autocast, needs 5.86 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn a_plan_of_a_job_fits_only_if_predict_says_so() {
    let made = Made::new(8_000, |run| {
        let depends = run.as_predicted && run.has("checkpoint");
        let outcome = if depends { Outcome::OutOfMemory } else { Outcome::Fits };
        Ran { is_part: true, outcome, ..takes(either(run, 5_500, 5_000)) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.86 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.86 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        checkpoint, a validation, alone on the card, as predicted -> 5.37 GiB
        autocast, a validation, alone on the card -> 5.86 GiB
        autocast, a validation, alone on the card, as predicted -> 5.86 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: autocast, needs 5.86 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn a_limit_on_what_is_reserved_holds_in_every_proof() {
    let made = Made::new(40_000, |run| takes(either(run, 9_000, 5_000)));
    let made = made.rules(|it| it.limit_reserved = Some(Bytes::mib(6_000)));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 11.72 GiB to be safe
        autocast, 2 steps -> cut
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 5.86 GiB -> 5.37 GiB
        checkpoint, steady, reserves up to 5.86 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card, reserves up to 5.86 GiB -> 5.37 GiB
        as it is: does not fit, needs 11.72 GiB
        plan: checkpoint, needs 4.88 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}

#[test]
fn a_plan_is_run_to_the_end_if_that_is_asked_for() {
    let made = Made::new(8_000, |run| {
        takes(if run.until == Until::Exit && run.has("autocast") {
            9_000
        } else {
            either(run, 5_000, 5_500)
        })
    });
    let made = made.rules(|it| it.until_exit = true);
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.86 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.86 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.86 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, the end, alone on the card -> 5.86 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.86 GiB, same
        plan: autocast, needs 5.37 GiB, less precise
        seen: 3 steps, its end
    "#]]
    .assert_eq(&made.allow(BOTH).plans());
}
