//! What is said when nothing fits, and what only a person can decide.

use expect_test::expect;
use plimsoll_core::prediction::OtherEnd;

use super::made::{Made, fails, takes};
use crate::search::{Half, Ran};

#[test]
fn what_came_nearest_is_run_through_to_see_what_it_needs() {
    let made = Made::new(8_000, |run| {
        takes(match () {
            () if run.has("autocast") => 10_000,
            () if run.has("checkpoint") => 9_000,
            () => 12_000,
        })
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> cut
        checkpoint, 2 steps -> cut
        autocast + checkpoint, 2 steps -> cut
        checkpoint, 2 steps -> 9.28 GiB
        autocast, 2 steps -> 10.25 GiB
        autocast + checkpoint, 2 steps -> 10.25 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: checkpoint, needs 9.28 GiB
    "#]]
    .assert_eq(&made.allow(&["autocast", "checkpoint"]).plans());
}

#[test]
fn what_takes_more_than_the_script_as_it_is_came_no_nearer() {
    let made =
        Made::new(8_000, |run| takes(if run.plan.remedies.is_empty() { 9_000 } else { 9_500 }));
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
        " without changes: 9.28 GiB to be safe
        autocast, 2 steps -> cut
        checkpoint, 2 steps -> cut
        autocast + checkpoint, 2 steps -> cut
        autocast, 2 steps -> 9.77 GiB
        checkpoint, 2 steps -> 9.77 GiB
        autocast + checkpoint, 2 steps -> 9.77 GiB
        as it is: does not fit, needs 9.28 GiB
        nearest: the unchanged script, needs 9.28 GiB
    "#]]
    .assert_eq(&made.allow(&["autocast", "checkpoint"]).plans());
}

#[test]
fn no_more_than_three_are_run_through() {
    let made = Made::new(8_000, |run| {
        takes(20_000 - 100 * u64::try_from(run.plan.remedies.len()).unwrap())
    });
    let allowed =
        ["autocast", "checkpoint", "optimizer-in-backward", "optimizer-offload", "offload"];
    expect![[r#"
        the unchanged script, steady, sites -> 20.02 GiB
        " without changes: 20.02 GiB to be safe
        autocast, 2 steps -> cut
        optimizer-in-backward, 2 steps -> cut
        checkpoint, 2 steps -> cut
        autocast + checkpoint, 2 steps -> cut
        optimizer-in-backward + checkpoint, 2 steps -> cut
        optimizer-in-backward + autocast + checkpoint, 2 steps -> cut
        optimizer-offload + checkpoint, 2 steps -> cut
        offload, 2 steps -> cut
        autocast + offload, 2 steps -> cut
        optimizer-offload + autocast + checkpoint + offload, 2 steps -> cut
        optimizer-offload + autocast + checkpoint + offload, 2 steps -> 19.63 GiB
        optimizer-in-backward + autocast + checkpoint, 2 steps -> 19.73 GiB
        autocast + checkpoint, 2 steps -> 19.82 GiB
        as it is: does not fit, needs 20.02 GiB
        nearest: optimizer-offload + autocast + checkpoint + offload, needs 19.63 GiB
    "#]]
    .assert_eq(&made.allow(&allowed).plans());
}

#[test]
fn advice_is_run_and_what_the_script_does_not_bear_is_left_out() {
    let made = Made::new(8_000, |run| match () {
        () if run.has("smaller-model") => fails("no blocks"),
        () if run.has("lora") => takes(3_000),
        () if run.half.is_some() => takes(7_000),
        () => takes(12_000),
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        detach-losses, 2 steps -> cut
        detach-losses, 2 steps -> 12.21 GiB
        the unchanged script, steady, half as long -> 7.32 GiB
        " advice shorter-sequence: needs 7.32 GiB
        the unchanged script, steady, half as many -> 7.32 GiB
        " advice smaller-batch: needs 7.32 GiB
        the unchanged script, steady, half as high and wide -> 7.32 GiB
        " advice smaller-images: needs 7.32 GiB
        lora, steady -> 3.42 GiB
        " advice lora: needs 3.42 GiB
        lora + quantization, steady -> 3.42 GiB
        " advice lora + quantization: needs 3.42 GiB
        smaller-model, steady -> no blocks
        depthwise, steady -> 12.21 GiB
        pruning, steady -> 12.21 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
        advice: shorter-sequence, fits
        advice: smaller-batch, fits
        advice: smaller-images, fits
        advice: lora, fits
        advice: lora + quantization, fits
    "#]]
    .assert_eq(&made.allow(&["detach-losses"]).with_advice().plans());
}

#[test]
fn advice_may_be_asked_for_though_it_fits() {
    let made =
        Made::new(8_000, |run| takes(if run.half == Some(Half::Length) { 2_000 } else { 4_000 }));
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        the unchanged script, steady, half as long -> 2.44 GiB
        " advice shorter-sequence: needs 2.44 GiB
        the unchanged script, steady, half as many -> 4.39 GiB
        the unchanged script, steady, half as high and wide -> 4.39 GiB
        lora, steady -> 4.39 GiB
        lora + quantization, steady -> 4.39 GiB
        smaller-model, steady -> 4.39 GiB
        depthwise, steady -> 4.39 GiB
        pruning, steady -> 4.39 GiB
        as it is: fits, needs 4.39 GiB
        advice: shorter-sequence, fits
        seen: 3 steps
    "#]]
    .assert_eq(&made.rules(|it| it.advice = true).with_advice().plans());
}

#[test]
fn what_came_nearest_needs_more_than_there_is_at_one_of_its_ends() {
    // As it is it fits at one end, and takes more than the plan does at the other.
    let made = Made::new(8_000, |run| {
        let takes_more = run.end == Some(OtherEnd::Late);
        let mib = match (run.has("checkpoint"), takes_more) {
            (true, false) => 7_000,
            (true, true) => 8_200,
            (false, false) => 6_000,
            (false, true) => 9_000,
        };
        Ran { ends: vec![OtherEnd::Late], ..takes(mib) }
    });
    let found = made.allow(&["checkpoint"]).plans();
    assert!(found.contains("as it is: does not fit, needs 9.28 GiB"), "{found}");
    assert!(found.contains("nearest: checkpoint, needs 8.50 GiB"), "{found}");
}
