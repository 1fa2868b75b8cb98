//! A script of one process on several devices.

use expect_test::expect;
use plimsoll_core::plan::Remedy;

use super::made::{Made, takes};
use crate::search::Run;

/// It needs to be shared, and the last rank takes more.
fn shared(run: &Run) -> u64 {
    let last = if run.rank == Some(3) { 500 } else { 0 };
    match run.remedy("fsdp2").and_then(Remedy::gpus) {
        Some(_) => 5_000 + last,
        None => 12_000,
    }
}

#[test]
fn they_are_used_first_and_each_rank_is_looked_at() {
    let made = Made::new(8_000, |run| takes(shared(run))).rules(|it| it.gpus = 4);
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        zero1 (4 gpus), 2 steps -> cut
        fsdp2 (4 gpus), 2 steps -> 5.37 GiB
        fsdp2 (4 gpus), steady, reserves up to 7.32 GiB, rank 1 -> 5.37 GiB
        fsdp2 (4 gpus), steady, reserves up to 7.32 GiB, rank 2 -> 5.37 GiB
        fsdp2 (4 gpus), steady, reserves up to 7.32 GiB, rank 3 -> 5.86 GiB
        fsdp2 (4 gpus), steady, reserves up to 7.32 GiB -> 5.37 GiB
        zero1 (4 gpus) + checkpoint, 2 steps -> cut
        checkpoint, 2 steps -> cut
        the unchanged script, 2 steps, work -> 12.21 GiB
        fsdp2 (4 gpus), 2 steps, work -> 5.37 GiB
        fsdp2 (4 gpus), a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: fsdp2 (4 gpus), needs 5.86 GiB, dropout, batch-norm
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["zero1", "fsdp2", "checkpoint"]).plans());
}

#[test]
fn a_rank_that_takes_more_than_there_is_refutes_the_plan() {
    let made = Made::new(5_800, |run| takes(shared(run))).rules(|it| it.gpus = 4);
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        fsdp2 (4 gpus), 2 steps -> 5.37 GiB
        fsdp2 (4 gpus), steady, reserves up to 5.18 GiB, rank 1 -> 5.37 GiB
        fsdp2 (4 gpus), steady, reserves up to 5.18 GiB, rank 2 -> 5.37 GiB
        fsdp2 (4 gpus), steady, reserves up to 5.18 GiB, rank 3 -> out of memory
        " a later step needs more than the first ones: from now on each run includes it
        fsdp2 (4 gpus), steady, rank 3 -> 5.86 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: fsdp2 (4 gpus), needs 5.86 GiB
    "#]]
    .assert_eq(&made.allow(&["fsdp2"]).plans());
}

#[test]
fn of_sixteen_devices_eight_are_looked_at() {
    let made = Made::new(8_000, |run| takes(shared(run) - 500 * u64::from(run.rank == Some(3))));
    let picture = made.allow(&["fsdp2"]).rules(|it| it.gpus = 16).plans();
    let ranks = picture.lines().filter(|it| it.contains("rank ")).count();
    assert_eq!(ranks, 8, "{picture}");
}

#[test]
fn who_has_one_device_is_not_asked_for_more() {
    let made = Made::new(8_000, |run| takes(shared(run)));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
    "#]]
    .assert_eq(&made.allow(&["zero1", "fsdp2", "model-parallel"]).plans());
}
