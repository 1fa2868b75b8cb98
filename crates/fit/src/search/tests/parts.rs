//! Batches that are done in parts.

use expect_test::expect;
use plimsoll_core::{plan::Remedy, recording::Split};

use super::made::{Made, fails, takes};
use crate::search::{Noted, Ran, Run};

fn parts(run: &Run) -> Option<u64> {
    run.remedy("micro-batches").and_then(Remedy::parts)
}

/// What a batch of `samples` takes can be divided, up to `fixed` MiB.
fn in_parts(fixed: u64, divided: u64, samples: Option<u64>) -> Made {
    let made = Made::new(8_000, move |run| {
        let split = parts(run).map(|_| Split { samples, ..Split::default() });
        let mib = fixed + divided / parts(run).unwrap_or(1);
        Ran { noted: Noted { split, ..Noted::default() }, ..takes(mib) }
    });
    made.allow(&["micro-batches"])
}

#[test]
fn there_are_twice_as_many_until_it_fits() {
    expect![[r#"
        the unchanged script, steady, sites -> 32.71 GiB
        " without changes: 32.71 GiB to be safe
        micro-batches (2 parts), 2 steps -> 17.09 GiB
        micro-batches (8 parts), 2 steps -> 5.37 GiB
        micro-batches (8 parts), steady, reserves up to 7.32 GiB -> 5.37 GiB
        micro-batches (8 parts), steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 32.71 GiB
        micro-batches (8 parts), a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 32.71 GiB
        plan: micro-batches (8 parts), needs 5.37 GiB, dropout, batch-norm
        seen: 3 steps
    "#]]
    .assert_eq(&in_parts(1_000, 32_000, Some(64)).plans());
}

#[test]
fn there_are_no_more_than_samples() {
    expect![[r#"
        the unchanged script, steady, sites -> 36.62 GiB
        " without changes: 36.62 GiB to be safe
        micro-batches (2 parts), 2 steps -> 21.00 GiB
        micro-batches (8 parts), 2 steps -> 9.28 GiB
        as it is: does not fit, needs 36.62 GiB
        nearest: micro-batches (8 parts), needs 9.28 GiB
    "#]]
    .assert_eq(&in_parts(5_000, 32_000, Some(8)).plans());
}

#[test]
fn more_parts_that_no_longer_help_are_not_tried() {
    expect![[r#"
        the unchanged script, steady, sites -> 11.23 GiB
        " without changes: 11.23 GiB to be safe
        micro-batches (2 parts), 2 steps -> 10.25 GiB
        micro-batches (4 parts), 2 steps -> 9.77 GiB
        as it is: does not fit, needs 11.23 GiB
        nearest: micro-batches (4 parts), needs 9.77 GiB
    "#]]
    .assert_eq(&in_parts(9_000, 2_000, None).plans());
}

#[test]
fn one_that_is_not_bearable_in_parts() {
    let made = Made::new(8_000, |run| {
        if parts(run).is_some() {
            fails("Expected more than 1 value per channel")
        } else {
            takes(12_000)
        }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        micro-batches (2 parts), 2 steps -> Expected more than 1 value per channel
        checkpoint, 2 steps -> cut
        checkpoint, 2 steps -> 12.21 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
    "#]]
    .assert_eq(&made.allow(&["micro-batches", "checkpoint"]).plans());
}
