//! What costs no time.

use std::collections::BTreeMap;

use expect_test::expect;

use super::made::{Made, fails, takes};
use crate::search::{Noted, Ran, Run};

const FREE: &[&str] = &["fused", "foreach", "set-to-none", "chunked-loss", "attention"];

fn nothing_idle(mib: u64) -> Ran {
    Ran { noted: Noted { idle: Some(BTreeMap::new()), ..Noted::default() }, ..takes(mib) }
}

/// 12,000 MiB, less what each remedy of the plan saves.
fn less(run: &Run, each: &[(&str, u64)]) -> u64 {
    12_000 - each.iter().filter(|(id, _)| run.has(id)).map(|it| it.1).sum::<u64>()
}

#[test]
fn they_are_tried_all_at_once_and_go_again_where_they_are_not_needed() {
    let made = Made::new(8_000, |run| {
        nothing_idle(less(run, &[("fused", 1_000), ("chunked-loss", 4_000)]))
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        fused + set-to-none + chunked-loss + attention, 2 steps -> 7.32 GiB
        set-to-none + chunked-loss + attention, 2 steps -> cut
        fused + chunked-loss + attention, 2 steps -> 7.32 GiB
        fused + attention, 2 steps -> cut
        fused + chunked-loss, 2 steps -> 7.32 GiB
        fused + chunked-loss, steady, reserves up to 7.32 GiB -> 7.32 GiB
        fused + chunked-loss, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        fused + chunked-loss, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: fused + chunked-loss, needs 7.32 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(FREE).plans());
}

#[test]
fn one_by_one_where_they_do_not_run_together() {
    let made = Made::new(8_000, |run| {
        if run.has("attention") {
            return fails("no such kernel");
        }
        nothing_idle(less(run, &[("fused", 2_500), ("chunked-loss", 2_500)]))
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        fused + set-to-none + chunked-loss + attention, 2 steps -> no such kernel
        fused, 2 steps -> cut
        set-to-none, 2 steps -> cut
        chunked-loss, 2 steps -> cut
        attention, 2 steps -> no such kernel
        fused + set-to-none + chunked-loss, 2 steps -> 7.32 GiB
        set-to-none + chunked-loss, 2 steps -> cut
        fused + chunked-loss, 2 steps -> 7.32 GiB
        fused + chunked-loss, steady, reserves up to 7.32 GiB -> 7.32 GiB
        fused + chunked-loss, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        fused + chunked-loss, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: fused + chunked-loss, needs 7.32 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(FREE).plans());
}

#[test]
fn where_fused_may_not_be_used_foreach_is() {
    let made = Made::new(8_000, |run| {
        nothing_idle(less(run, &[("foreach", 2_500), ("set-to-none", 2_500)]))
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        foreach + set-to-none + chunked-loss + attention, 2 steps -> 7.32 GiB
        set-to-none + chunked-loss + attention, 2 steps -> cut
        foreach + chunked-loss + attention, 2 steps -> cut
        foreach + set-to-none + attention, 2 steps -> 7.32 GiB
        foreach + set-to-none, 2 steps -> 7.32 GiB
        foreach + set-to-none, steady, reserves up to 7.32 GiB -> 7.32 GiB
        foreach + set-to-none, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        foreach + set-to-none, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: foreach + set-to-none, needs 7.32 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(FREE).forbid(&["fused"]).plans());
}

#[test]
fn the_strong_ones_alone_are_most_often_enough() {
    let made =
        Made::new(8_000, |run| nothing_idle(less(run, &[("fused", 100), ("checkpoint", 6_000)])));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        fused + set-to-none, 2 steps -> cut
        fused + set-to-none + checkpoint, 2 steps -> 6.25 GiB
        checkpoint, 2 steps -> 6.35 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 6.35 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 6.35 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 6.35 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 6.35 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["fused", "set-to-none", "checkpoint"]).plans());
}

#[test]
fn and_sometimes_both_are_needed() {
    let made =
        Made::new(8_000, |run| nothing_idle(less(run, &[("fused", 3_000), ("checkpoint", 2_000)])));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        fused + set-to-none, 2 steps -> cut
        fused + set-to-none + checkpoint, 2 steps -> 7.32 GiB
        checkpoint, 2 steps -> cut
        set-to-none + checkpoint, 2 steps -> cut
        fused + checkpoint, 2 steps -> 7.32 GiB
        fused + checkpoint, steady, reserves up to 7.32 GiB -> 7.32 GiB
        fused + checkpoint, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        fused + checkpoint, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: fused + checkpoint, needs 7.32 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["fused", "set-to-none", "checkpoint"]).plans());
}

#[test]
fn in_place_is_used_only_where_that_alone_takes_less() {
    let allowed = ["set-to-none", "inplace-activations"];
    let made = Made::new(8_000, |run| nothing_idle(less(run, &[("inplace-activations", 5_000)])));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        inplace-activations, 2 steps -> 7.32 GiB
        set-to-none + inplace-activations, 2 steps -> 7.32 GiB
        inplace-activations, steady, reserves up to 7.32 GiB -> 7.32 GiB
        inplace-activations, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        inplace-activations, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: inplace-activations, needs 7.32 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&allowed).plans());
    let made = Made::new(8_000, |run| nothing_idle(less(run, &[("set-to-none", 1_000)])));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        inplace-activations, 2 steps -> 12.21 GiB
        set-to-none, 2 steps -> cut
        set-to-none, 2 steps -> 11.23 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: set-to-none, needs 11.23 GiB
    "#]]
    .assert_eq(&made.allow(&allowed).plans());
}

#[test]
fn gradients_are_shared_with_what_is_sent_only_where_something_is() {
    let program = |is_distributed| {
        move |run: &Run| {
            let noted = Noted { idle: Some(BTreeMap::new()), is_distributed, ..Noted::default() };
            Ran { noted, ..takes(less(run, &[("bucket-view", 5_000)])) }
        }
    };
    let allowed = ["bucket-view", "set-to-none"];
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        set-to-none + bucket-view, 2 steps -> 7.32 GiB
        bucket-view, 2 steps -> 7.32 GiB
        bucket-view, steady, reserves up to 7.32 GiB -> 7.32 GiB
        bucket-view, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        bucket-view, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: bucket-view, needs 7.32 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&Made::new(8_000, program(true)).allow(&allowed).plans());
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        set-to-none, 2 steps -> cut
        set-to-none, 2 steps -> 12.21 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
    "#]]
    .assert_eq(&Made::new(8_000, program(false)).allow(&allowed).plans());
}

#[test]
fn what_raises_where_it_comes_that_far_is_left_out_though_it_was_ended_before() {
    let made = Made::new(8_000, |run| {
        let takes = less(run, &[("fused", 1_000), ("offload", 5_000)]);
        let is_ended = run.give_up_above.is_some_and(|it| it.0 >> 20 < takes);
        if run.has("fused") && !is_ended {
            return fails("`fused=True` requires other tensors");
        }
        nothing_idle(takes)
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        fused + set-to-none, 2 steps -> cut
        fused + set-to-none + offload, 2 steps -> `fused=True` requires other tensors
        fused + set-to-none, 2 steps -> `fused=True` requires other tensors
        fused, 2 steps -> `fused=True` requires other tensors
        set-to-none, 2 steps -> 12.21 GiB
        set-to-none + offload, 2 steps -> 7.32 GiB
        offload, 2 steps -> 7.32 GiB
        offload, steady, reserves up to 7.32 GiB -> 7.32 GiB
        offload, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        offload, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: offload, needs 7.32 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["fused", "set-to-none", "offload"]).plans());
}
