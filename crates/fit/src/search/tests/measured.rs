//! Steps on the machine's own device.

use expect_test::expect;
use plimsoll_core::{recording::Spread, units::Bytes};

use super::made::{Made, takes};
use crate::search::{Measure, On, Run, Steps};

/// Two plans fit; as it is it takes so many MiB.
fn two_plans(run: &Run, plain: u64) -> u64 {
    if run.has("autocast") || run.has("checkpoint") { 5_000 } else { plain }
}

fn seconds(each: &[f64]) -> Steps {
    let spread = |it: &f64| Spread { count: 9, median: *it, low: it * 0.9, high: it * 1.1 };
    Steps { each: each.iter().map(spread).collect(), ..Steps::default() }
}

/// Of two plans that cost the same by an estimate the one that is less precise is the faster.
fn measured(it: &Measure) -> Steps {
    match it.plan.shown().as_str() {
        "the script as it is" => seconds(&[1.0]),
        "autocast" => seconds(&[0.6]),
        // Two devices: the slower one counts.
        _ => seconds(&[1.0, 1.2]),
    }
}

fn made(plain: u64, free: u64) -> Made {
    let made = Made::new(8_000, move |run| takes(two_plans(run, plain)));
    made.allow(&["autocast", "checkpoint"]).rules(|it| it.measure_in = Some(Bytes::mib(free)))
}

#[test]
fn the_fastest_comes_first_and_is_proven_if_it_was_not() {
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        the unchanged script, 16 steps on the device
        " the unchanged script, on the device: 1.2000 s a step
        checkpoint, 16 steps on the device
        " checkpoint, on the device: 1.2000 s a step
        autocast, 16 steps on the device
        " autocast, on the device: 0.6000 s a step
        the unchanged script, 16 steps on the device
        " the unchanged script, on the device: 1.2000 s a step
        checkpoint, 16 steps on the device
        " checkpoint, on the device: 1.2000 s a step
        autocast, 16 steps on the device
        " autocast, on the device: 0.6000 s a step
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same, measured 1.00x
        plan: autocast, needs 5.37 GiB, less precise, measured 0.50x
        seen: 3 steps
    "#]]
    .assert_eq(&made(12_000, 40_000).steps(measured).plans());
}

#[test]
fn what_is_not_free_is_not_measured() {
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        " not measured: the unchanged script needs 12.21 GiB of the device, and 7.81 GiB are free
        checkpoint, 16 steps on the device
        " checkpoint, on the device: 1.2000 s a step
        autocast, 16 steps on the device
        " autocast, on the device: 0.6000 s a step
        checkpoint, 16 steps on the device
        " checkpoint, on the device: 1.2000 s a step
        autocast, 16 steps on the device
        " autocast, on the device: 0.6000 s a step
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same
        plan: autocast, needs 5.37 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made(12_000, 8_000).steps(measured).plans());
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        " not measured: the unchanged script needs 12.21 GiB of the device, and 2.93 GiB are free
        " not measured: checkpoint needs 5.37 GiB of the device, and 2.93 GiB are free
        " not measured: autocast needs 5.37 GiB of the device, and 2.93 GiB are free
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same
        plan: autocast, needs 5.37 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made(12_000, 3_000).steps(measured).plans());
}

#[test]
fn what_fails_there_is_said() {
    let made = made(12_000, 40_000).steps(|it| match it.plan.remedies.len() {
        0 => Steps { failure: Some("a driver that is too old".to_owned()), ..Steps::default() },
        _ => Steps::default(),
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        the unchanged script, 16 steps on the device
        " the unchanged script, on the device: a driver that is too old
        checkpoint, 16 steps on the device
        " checkpoint, on the device: it ended before a step could be measured
        autocast, 16 steps on the device
        " autocast, on the device: it ended before a step could be measured
        the unchanged script, 16 steps on the device
        " the unchanged script, on the device: a driver that is too old
        checkpoint, 16 steps on the device
        " checkpoint, on the device: it ended before a step could be measured
        autocast, 16 steps on the device
        " autocast, on the device: it ended before a step could be measured
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same
        plan: autocast, needs 5.37 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn a_script_that_fits_is_measured_as_it_is() {
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        the unchanged script, 16 steps on the device
        " the unchanged script, on the device: 1.2000 s a step
        the unchanged script, 16 steps on the device
        " the unchanged script, on the device: 1.2000 s a step
        as it is: fits, needs 4.39 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&made(4_000, 40_000).steps(measured).plans());
}

#[test]
fn one_that_is_faster_and_not_provable_is_no_plan() {
    let made = Made::new(8_000, |run| {
        let more = if run.on == On::CardAlone && run.has("autocast") { 9_000 } else { 0 };
        takes(two_plans(run, 12_000) + more)
    });
    let made = made.allow(&["autocast", "checkpoint"]);
    let made = made.rules(|it| it.measure_in = Some(Bytes::mib(40_000)));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        the unchanged script, 16 steps on the device
        " the unchanged script, on the device: 1.2000 s a step
        checkpoint, 16 steps on the device
        " checkpoint, on the device: 1.2000 s a step
        autocast, 16 steps on the device
        " autocast, on the device: 0.6000 s a step
        the unchanged script, 16 steps on the device
        " the unchanged script, on the device: 1.2000 s a step
        checkpoint, 16 steps on the device
        " checkpoint, on the device: 1.2000 s a step
        autocast, 16 steps on the device
        " autocast, on the device: 0.6000 s a step
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same, measured 1.00x
        plan: autocast, needs 5.37 GiB, less precise, measured 0.50x
        seen: 3 steps
    "#]]
    .assert_eq(&made.steps(measured).plans());
}
