//! Changes of the allocator alone.

use expect_test::expect;
use plimsoll_core::{
    plan::Point,
    prediction::{Tuned, Tuning},
    units::Bytes,
};

use super::made::{Made, out_of_memory, reserves, takes};
use crate::search::{Ran, Run};

const ALLOCATOR: &[&str] = &["allocator", "empty-cache"];

fn settings(text: &str) -> Tuned {
    Tuned { tuning: Tuning::Settings(text.to_owned()), reserved: Bytes::mib(6_000) }
}

fn emptied(after: Point) -> Tuned {
    Tuned { tuning: Tuning::EmptyCache(after), reserved: Bytes::mib(6_000) }
}

/// One that reserves far more than it allocates, unless its plan has what `helps`.
fn fragmented(helps: impl Fn(&Run) -> bool + 'static) -> Made {
    Made::new(8_000, move |run| {
        let reserved = if helps(run) { 6_500 } else { 9_000 };
        Ran { took: reserves(6_000, reserved), ..takes(0) }
    })
}

fn three(_: &Run) -> Vec<Tuned> {
    vec![
        settings("expandable_segments:True"),
        settings("max_split_size_mb:128"),
        settings("roundup_power2_divisions:4"),
        emptied(Point::Backward),
        emptied(Point::Step),
    ]
}

fn conf(run: &Run) -> Option<&str> {
    run.plan.alloc_conf()
}

#[test]
fn a_setting_that_a_replay_is_content_with_is_run() {
    let made = fragmented(|run| conf(run) == Some("expandable_segments:True"));
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 5
        " without changes: 9.28 GiB to be safe
        allocator (expandable_segments:True), 2 steps -> 6.84 GiB
        allocator (expandable_segments:True), steady, reserves up to 7.32 GiB -> 6.84 GiB
        allocator (expandable_segments:True), steady, reserves up to 7.32 GiB, work -> 6.84 GiB
        the unchanged script, 2 steps, work -> 9.28 GiB
        allocator (expandable_segments:True), a validation, alone on the card -> 6.84 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (expandable_segments:True), needs 6.84 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.tunings(three).allow(ALLOCATOR).plans());
}

#[test]
fn two_settings_and_one_point_to_empty_the_cache_are_run() {
    let made = fragmented(|run| run.has("empty-cache"));
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 5
        " without changes: 9.28 GiB to be safe
        allocator (expandable_segments:True), 2 steps -> 9.28 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 5
        allocator (max_split_size_mb:128), 2 steps -> 9.28 GiB
        empty-cache (after backward), 2 steps -> 6.84 GiB
        empty-cache (after backward), steady, reserves up to 7.32 GiB -> 6.84 GiB
        empty-cache (after backward), steady, reserves up to 7.32 GiB, work -> 6.84 GiB
        the unchanged script, 2 steps, work -> 9.28 GiB
        empty-cache (after backward), a validation, alone on the card -> 6.84 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 9.28 GiB
        plan: empty-cache (after backward), needs 6.84 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.tunings(three).allow(ALLOCATOR).plans());
}

#[test]
fn what_may_not_be_used_is_not_run() {
    let made = fragmented(|_| false);
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 5
        " without changes: 9.28 GiB to be safe
        empty-cache (after backward), 2 steps -> 9.28 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 9.28 GiB
        nearest: the unchanged script, needs 9.28 GiB
    "#]]
    .assert_eq(&made.tunings(three).allow(&["empty-cache"]).plans());
}

#[test]
fn nothing_is_replayed_where_nothing_may_be_changed() {
    let made = fragmented(|_| false).tunings(three);
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
        " without changes: 9.28 GiB to be safe
        detach-losses, 2 steps -> 9.28 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 9.28 GiB
        nearest: the unchanged script, needs 9.28 GiB
    "#]]
    .assert_eq(&made.allow(&["detach-losses"]).plans());
}

#[test]
fn no_allocator_saves_what_is_allocated() {
    let made = Made::new(8_000, |_| takes(9_000)).tunings(three);
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
        " without changes: 9.28 GiB to be safe
        as it is: does not fit, needs 9.28 GiB
        nearest: the unchanged script, needs 9.28 GiB
    "#]]
    .assert_eq(&made.allow(ALLOCATOR).plans());
    let made =
        Made::new(8_000, |run| if run.has("checkpoint") { takes(9_000) } else { out_of_memory() });
    expect![[r#"
        the unchanged script, steady, sites -> out of memory
        " without changes: at least 500.0 MiB to be safe
        the unchanged script, a validation, alone on the card -> out of memory
        the unchanged script, a validation -> out of memory
        the unchanged script, a validation -> out of memory
        checkpoint, a validation -> cut
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        checkpoint, a validation -> 9.28 GiB
        as it is: does not fit, needs 500.0 MiB
        nearest: checkpoint, needs 9.28 GiB
    "#]]
    .assert_eq(&made.tunings(three).allow(&["allocator", "checkpoint"]).plans());
}

#[test]
fn who_has_a_budget_has_no_card_to_take_a_share_of() {
    let made =
        fragmented(|run| conf(run).is_some()).tunings(|_| vec![settings("max_split_size_mb:128")]);
    let made = made.rules(|it| it.is_whole_card = false);
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
          replayed below 7.32 GiB -> 1
        " without changes: 9.28 GiB to be safe
        allocator (max_split_size_mb:128), 2 steps -> 6.84 GiB
        allocator (max_split_size_mb:128), steady, reserves up to 7.32 GiB -> 6.84 GiB
        allocator (max_split_size_mb:128), steady, reserves up to 7.32 GiB, work -> 6.84 GiB
        the unchanged script, 2 steps, work -> 9.28 GiB
        allocator (max_split_size_mb:128), a validation, alone on the card -> 6.84 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (max_split_size_mb:128), needs 6.84 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(ALLOCATOR).plans());
}

#[test]
fn garbage_is_collected_below_a_limit() {
    let made = fragmented(|run| conf(run).is_some());
    let made = made.tunings(|_| vec![settings("garbage_collection_threshold:0.8")]);
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 1
        " without changes: 9.28 GiB to be safe
        allocator (garbage_collection_threshold:0.8), 2 steps, reserves up to 7.73 GiB -> 6.84 GiB
        allocator (garbage_collection_threshold:0.8), steady, reserves up to 7.32 GiB -> 6.84 GiB
        allocator (garbage_collection_threshold:0.8), steady, reserves up to 7.32 GiB, work -> 6.84 GiB
        the unchanged script, 2 steps, work -> 9.28 GiB
        allocator (garbage_collection_threshold:0.8), a validation, alone on the card -> 6.84 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (garbage_collection_threshold:0.8), needs 6.84 GiB, same
        seen: 3 steps
    "#]].assert_eq(&made.allow(ALLOCATOR).plans());
}

#[test]
fn a_strong_remedy_is_tuned_too() {
    let made = Made::new(8_000, |run| {
        let tuned = conf(run).is_some();
        let took = match (run.has("checkpoint"), tuned) {
            (true, true) => reserves(7_000, 7_300),
            (true, false) => reserves(7_000, 8_200),
            _ => reserves(12_000, 12_500),
        };
        Ran { took, ..takes(0) }
    });
    let made = made.tunings(|_| vec![settings("expandable_segments:True")]);
    expect![[r#"
        the unchanged script, steady, sites -> 12.70 GiB
        " without changes: 12.70 GiB to be safe
        checkpoint, 2 steps -> 8.50 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 1
        checkpoint + allocator (expandable_segments:True), 2 steps -> 7.62 GiB
        checkpoint + allocator (expandable_segments:True), steady, reserves up to 7.32 GiB -> 7.62 GiB
        checkpoint + allocator (expandable_segments:True), steady, reserves up to 7.32 GiB, work -> 7.62 GiB
        the unchanged script, 2 steps, work -> 12.70 GiB
        checkpoint + allocator (expandable_segments:True), a validation, alone on the card -> 7.62 GiB
        as it is: does not fit, needs 12.70 GiB
        plan: checkpoint + allocator (expandable_segments:True), needs 7.62 GiB, same
        seen: 3 steps
    "#]].assert_eq(&made.allow(&["allocator", "checkpoint"]).plans());
}
