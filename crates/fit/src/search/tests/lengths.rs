//! Programs whose batches differ in size, and evaluations.

use expect_test::expect;
use plimsoll_core::{
    plan::Remedy,
    prediction::{Category, CategoryShare, EvaluationPeak, StepPeaks},
    recording::Split,
    units::Bytes,
};

use super::made::{Made, evaluates, out_of_memory, refuses, reserves, takes};
use crate::search::{Look, Noted, On, Ran, Run, Took, Until};

/// Whether pieces of memory grow in this run.
fn grows_its_pieces(run: &Run) -> bool {
    run.plan.alloc_conf() == Some("expandable_segments:True")
}

/// Where there is room it reserves three times what it allocates; on the card PyTorch gives that back, `retries` times.
fn differ(allocated: u64, run: &Run, retries: u64) -> Ran {
    let is_limited = run.on != On::Roomy || run.limit_reserved.is_some();
    let reserved = match () {
        () if grows_its_pieces(run) => allocated + 100,
        () if is_limited => allocated + 300,
        () => 3 * allocated,
    };
    let n_retries = if is_limited && !grows_its_pieces(run) { retries } else { 0 };
    let noted = Noted { sizes_differ: true, ..Noted::default() };
    Ran { took: reserves(allocated, reserved), noted, n_retries, ..takes(0) }
}

/// The same with an evaluation of this size, where one goes by.
fn with_evaluation(mib: u64, beside: u64, run: &Run, mut ran: Ran) -> Ran {
    let has_one =
        |it| matches!(it, Until::Validation | Until::OneValidation | Until::ValidationAfter(_));
    if has_one(run.until) {
        let (own, allocated) = (Bytes::mib(mib), Bytes::mib(mib + beside));
        ran.evaluates = true;
        ran.took.evaluation = Some(EvaluationPeak { allocated, own, at: None });
        let more = allocated.saturating_sub(ran.took.peak.allocated);
        ran.took.peak.allocated += more;
        ran.took.peak.reserved += more;
        ran.took.peak.device += more;
        ran.took.safe += more;
    }
    ran
}

#[test]
fn the_allocator_comes_first() {
    let made = Made::new(8_000, |run| differ(6_000, run, 5));
    expect![[r#"
        the unchanged script, steady, sites -> 18.07 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 0
        " without changes: at least 6.35 GiB to be safe
        the unchanged script, one validation after 3 steps -> 18.07 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> 6.64 GiB
        allocator (expandable_segments:True), 3 steps -> 6.45 GiB
        allocator (expandable_segments:True), 3 steps, reserves up to 7.32 GiB, work -> 6.45 GiB
        the unchanged script, 2 steps, work -> 18.07 GiB
        allocator (expandable_segments:True), a validation, alone on the card, reserves up to 7.32 GiB -> 6.45 GiB
        as it is: does not fit, needs 6.64 GiB
        as it is it gets through: 5 retries
        plan: allocator (expandable_segments:True), needs 6.45 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn what_is_given_back_on_the_card_is_not_needed() {
    let made = Made::new(8_000, |run| differ(6_000, run, 0)).forbid(&["allocator"]);
    expect![[r#"
        the unchanged script, steady, sites -> 18.07 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 0
        " without changes: at least 6.35 GiB to be safe
        the unchanged script, one validation after 3 steps -> 18.07 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> 6.64 GiB
        the unchanged script, a validation, alone on the card -> 6.64 GiB
        as it is: fits, needs 6.64 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn what_every_card_would_keep_is_no_need() {
    let made = Made::new(8_000, |run| match () {
        () if run.has("checkpoint") => differ(5_000, run, 0),
        () => differ(9_000, run, 0),
    });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 26.86 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps -> 5.47 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps, reserves up to 7.32 GiB, work -> 5.47 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + checkpoint, a validation, alone on the card, reserves up to 7.32 GiB -> 5.47 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (expandable_segments:True) + checkpoint, needs 5.47 GiB, same
        seen: 3 steps
    "#]].assert_eq(&made.allow(&["allocator", "checkpoint"]).plans());
}

#[test]
fn the_allocator_comes_first_wherever_much_is_kept_for_later() {
    // No batch showed it that sizes differ, and what is allocated as it is is too much for any allocator.
    let made = Made::new(8_000, |run| {
        let allocated = if run.has("checkpoint") { 6_500 } else { 9_000 };
        let noted = Noted { sizes_differ: false, ..Noted::default() };
        Ran { noted, ..differ(allocated, run, 0) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: 26.86 GiB to be safe
        allocator (expandable_segments:True) + checkpoint, 2 steps -> 6.93 GiB
        allocator (expandable_segments:True) + checkpoint, steady, reserves up to 7.32 GiB -> 6.93 GiB
        allocator (expandable_segments:True) + checkpoint, steady, reserves up to 7.32 GiB, work -> 6.93 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + checkpoint, a validation, alone on the card -> 6.93 GiB
        as it is: does not fit, needs 26.86 GiB
        plan: allocator (expandable_segments:True) + checkpoint, needs 6.93 GiB, same
        seen: 3 steps
    "#]].assert_eq(&made.allow(&["allocator", "checkpoint"]).plans());
}

#[test]
fn an_evaluation_that_the_first_run_came_to_ends_the_search_too() {
    let made = Made::new(8_000, |run| {
        let mut ran = evaluates(9_000);
        let (own, allocated) = (Bytes::mib(8_000), Bytes::mib(9_000));
        ran.took.evaluation = Some(EvaluationPeak { allocated, own, at: None });
        assert!(run.half.is_none());
        ran
    });
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
        " without changes: 9.28 GiB to be safe
        " the evaluation needs 9.28 GiB with what training keeps meanwhile: from now on each run includes it
        no-grad-evaluation + chunked-loss + autocast, one validation -> 9.28 GiB
        allocator (expandable_segments:True), one validation, on the card -> out of memory
        as it is: does not fit, needs 9.28 GiB
        its evaluation needs 8.30 GiB, 7.81 GiB its own, with the unchanged script
    "#]].assert_eq(&made.plans());
}

/// Steps of the same batch, one of which took half as much.
fn with_a_smaller_step(mut ran: Ran) -> Ran {
    let step = ran.took.steps[2];
    let of = |n: u32| StepPeaks { step: n, ..step };
    ran.took.steps = (1..=20).map(of).collect();
    ran.took.steps[16].allocated = Bytes(step.allocated.0 / 2);
    ran
}

fn tight_and_roomy(run: &Run) -> Ran {
    let allocated = match () {
        () if run.has("micro-batches") => 5_000,
        () if run.has("autocast") => 6_800,
        () => 9_000,
    };
    differ(allocated, run, 0)
}

#[test]
fn a_plan_with_little_to_spare_for_sizes_that_were_not_seen_is_tight_and_not_the_first() {
    let allowed = ["allocator", "autocast", "micro-batches"];
    let made = Made::new(8_000, |run| with_a_smaller_step(tight_and_roomy(run)));
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 26.86 GiB
        allocator (expandable_segments:True) + autocast, 3 steps -> 7.23 GiB
        allocator (expandable_segments:True) + micro-batches (2 parts), 3 steps -> 5.47 GiB
        allocator (expandable_segments:True) + autocast, 3 steps, reserves up to 7.32 GiB, work -> 7.23 GiB
        allocator (expandable_segments:True) + micro-batches (2 parts), 3 steps, reserves up to 7.32 GiB, work -> 5.47 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + micro-batches (2 parts), a validation, alone on the card, reserves up to 7.32 GiB -> 5.47 GiB
        as it is: does not fit, needs 9.28 GiB
        it chooses sizes by itself
        plan: allocator (expandable_segments:True) + micro-batches (2 parts), needs 5.47 GiB, dropout, batch-norm
        plan: allocator (expandable_segments:True) + autocast, needs 7.23 GiB, less precise, tight
        seen: 3 steps
    "#]].assert_eq(&made.allow(&allowed).plans());
    let steady = Made::new(8_000, tight_and_roomy);
    let found = steady.allow(&allowed).plans();
    assert!(!found.contains("tight") && !found.contains("by itself"), "{found}");
}

#[test]
fn a_plan_that_its_proof_shows_to_be_tight_is_not_the_first() {
    let made = Made::new(8_000, |run| {
        let allocated = match () {
            () if run.has("micro-batches") => 5_000,
            () if run.has("checkpoint") && run.on == On::CardAlone => 6_900,
            () if run.has("checkpoint") => 5_000,
            () => 9_000,
        };
        with_a_smaller_step(differ(allocated, run, 0))
    });
    let found = made.allow(&["allocator", "checkpoint", "micro-batches"]).plans();
    let plans: Vec<&str> = found.lines().filter(|it| it.starts_with("plan: ")).collect();
    expect![[r#"
        plan: allocator (expandable_segments:True) + micro-batches (2 parts), needs 5.47 GiB, dropout, batch-norm
        plan: allocator (expandable_segments:True) + checkpoint, needs 7.32 GiB, same, tight"#]].assert_eq(&plans.join("\n"));
}

#[test]
fn the_last_batch_of_an_epoch_is_smaller_for_no_other_reason() {
    let made = Made::new(8_000, |run| {
        let mut ran = with_a_smaller_step(tight_and_roomy(run));
        ran.took.began_again = true;
        ran
    });
    let found = made.allow(&["allocator", "autocast", "micro-batches"]).plans();
    assert!(!found.contains("tight") && !found.contains("by itself"), "{found}");
}

#[test]
fn an_evaluation_that_nothing_reaches_ends_the_search() {
    let made = Made::new(8_000, |run| with_evaluation(9_000, 2_000, run, differ(9_000, run, 0)));
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 28.81 GiB
        " the evaluation needs 11.23 GiB with what training keeps meanwhile: from now on each run includes it
        no-grad-evaluation + chunked-loss + autocast, one validation after 3 steps -> 28.81 GiB
        allocator (expandable_segments:True), one validation, on the card -> out of memory
        as it is: does not fit, needs 11.23 GiB
        its evaluation needs 9.28 GiB, 8.79 GiB its own, with the unchanged script
    "#]].assert_eq(&made.plans());
}

#[test]
fn what_does_not_suit_the_script_hides_no_evaluation_that_nothing_reaches() {
    let made =
        Made::new(8_000, |run| match run.plan.remedies.iter().any(|it| it.id == "chunked-loss") {
            true => refuses("chunked-loss"),
            false => with_evaluation(9_000, 2_000, run, differ(9_000, run, 0)),
        });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 28.81 GiB
        " the evaluation needs 11.23 GiB with what training keeps meanwhile: from now on each run includes it
        no-grad-evaluation + chunked-loss + autocast, one validation after 3 steps -> chunked-loss refuses
        no-grad-evaluation + autocast, one validation after 3 steps -> 28.81 GiB
        allocator (expandable_segments:True), one validation, on the card -> out of memory
        as it is: does not fit, needs 11.23 GiB
        its evaluation needs 9.28 GiB, 8.79 GiB its own, with the unchanged script
    "#]].assert_eq(&made.plans());
}

/// Not the script as it is without its evaluation.
#[test]
fn what_came_closest_has_the_evaluation_that_was_seen() {
    let made = Made::new(8_000, |run| with_evaluation(5_000, 7_000, run, differ(9_000, run, 0)));
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 29.79 GiB
        " the evaluation needs 12.21 GiB with what training keeps meanwhile: from now on each run includes it
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
    "#]].assert_eq(&made.allow(&["allocator"]).plans());
}

#[test]
fn an_evaluation_that_fits_by_itself_is_in_each_run() {
    let made = Made::new(8_000, |run| {
        let kept = if run.has("optimizer-offload") { 1_000 } else { 4_000 };
        with_evaluation(4_000, kept, run, differ(9_000 - 3 * (4_000 - kept) / 2, run, 0))
    });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 26.86 GiB
        " the evaluation needs 8.30 GiB with what training keeps meanwhile: from now on each run includes it
        allocator (expandable_segments:True) + checkpoint, one validation after 3 steps -> cut
        allocator (expandable_segments:True) + optimizer-offload + checkpoint, one validation after 3 steps -> 5.47 GiB
        allocator (expandable_segments:True) + optimizer-offload, one validation after 3 steps -> 5.47 GiB
        allocator (expandable_segments:True) + optimizer-offload, one validation after 3 steps, reserves up to 7.32 GiB, work -> 5.47 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + optimizer-offload, a validation, alone on the card, reserves up to 7.32 GiB -> 5.47 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (expandable_segments:True) + optimizer-offload, needs 5.47 GiB, same
        seen: 3 steps, an evaluation
    "#]].assert_eq(&made.allow(&["allocator", "optimizer-offload", "checkpoint"]).plans());
}

#[test]
fn a_plan_whose_training_needs_too_much_does_not_wait_for_its_evaluation() {
    let made = Made::new(8_000, |run| {
        let parts = run.plan.remedies.iter().find_map(Remedy::parts).unwrap_or(1);
        with_evaluation(2_000 + 2_000 / parts, 4_000, run, differ(2_000 + 20_000 / parts, run, 0))
    });
    expect![[r#"
        the unchanged script, steady, sites -> 64.94 GiB
        " without changes: at least 21.97 GiB to be safe
        the unchanged script, one validation after 3 steps -> 64.94 GiB
        " the evaluation needs 8.30 GiB with what training keeps meanwhile: from now on each run includes it
        allocator (expandable_segments:True) + micro-batches (2 parts), one validation after 3 steps, 3 steps at least -> cut
        " allocator (expandable_segments:True) + micro-batches (2 parts): at least 12.21 GiB to be safe, too much (1.0 s)
        allocator (expandable_segments:True) + micro-batches (4 parts), one validation after 3 steps, 3 steps at least -> 7.42 GiB
        " allocator (expandable_segments:True) + micro-batches (4 parts): fits, 7.42 GiB to be safe (1.0 s)
        allocator (expandable_segments:True) + micro-batches (4 parts), one validation after 3 steps, reserves up to 7.32 GiB, work -> 7.42 GiB
        the unchanged script, 2 steps, work -> 64.94 GiB
        allocator (expandable_segments:True) + micro-batches (4 parts), a validation, alone on the card, reserves up to 7.32 GiB -> 7.42 GiB
        as it is: does not fit, needs 21.97 GiB
        plan: allocator (expandable_segments:True) + micro-batches (4 parts), needs 7.42 GiB, dropout, batch-norm
        seen: 3 steps, an evaluation
    "#]]
    .assert_eq(&made.allow(&["allocator", "micro-batches"]).with_all_said().plans());
}

#[test]
fn free_memory_in_pieces_is_said_to_be_so() {
    let made = Made::new(8_000, |run| match differ(6_000, run, 0) {
        _ if run.on == On::Card => out_of_memory(),
        ran => ran,
    });
    expect![[r#"
        the unchanged script, steady, sites -> 18.07 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 0
        " without changes: at least 6.35 GiB to be safe
        the unchanged script, one validation after 3 steps -> 18.07 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        allocator (expandable_segments:True), 3 steps -> 6.45 GiB
        allocator (expandable_segments:True), 3 steps, reserves up to 7.32 GiB, work -> 6.45 GiB
        the unchanged script, 2 steps, work -> 18.07 GiB
        allocator (expandable_segments:True), a validation, alone on the card, reserves up to 7.32 GiB -> 6.45 GiB
        as it is: does not fit, needs 6.35 GiB
        its free memory is in pieces
        plan: allocator (expandable_segments:True), needs 6.45 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["allocator"]).plans());
}

#[test]
fn what_a_second_run_refutes_gives_way_to_a_stronger_plan() {
    let made = Made::new(8_000, |run| {
        let is_again = run.limit_reserved.is_some() || run.on != On::Roomy;
        match (run.has("checkpoint"), run.has("optimizer-in-backward")) {
            (true, true) => differ(5_000, run, 0),
            (true, false) if is_again => differ(7_450, run, 0),
            (true, false) => differ(7_250, run, 0),
            _ => differ(9_000, run, 0),
        }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 26.86 GiB
        allocator (expandable_segments:True) + optimizer-in-backward, 3 steps -> cut
        allocator (expandable_segments:True) + checkpoint, 3 steps -> 7.67 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps, reserves up to 7.32 GiB, work -> out of memory
        allocator (expandable_segments:True) + checkpoint, 3 steps, reserves up to 7.32 GiB -> out of memory
        allocator (expandable_segments:True) + optimizer-in-backward + checkpoint, 3 steps -> 5.47 GiB
        allocator (expandable_segments:True) + optimizer-in-backward + checkpoint, 3 steps, reserves up to 7.32 GiB, work -> 5.47 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + optimizer-in-backward + checkpoint, a validation, alone on the card, reserves up to 7.32 GiB -> 5.47 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (expandable_segments:True) + optimizer-in-backward + checkpoint, needs 5.47 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["allocator", "checkpoint", "optimizer-in-backward"]).plans());
}

#[test]
fn a_plan_whose_runs_differ_by_more_than_what_is_to_spare_is_tight() {
    let made = Made::new(8_000, |run| {
        let is_again = run.limit_reserved.is_some() || run.on != On::Roomy;
        match (run.has("checkpoint"), run.has("optimizer-in-backward")) {
            (true, true) => differ(5_000, run, 0),
            (true, false) if is_again => differ(7_350, run, 0),
            (true, false) => differ(7_000, run, 0),
            _ => differ(9_000, run, 0),
        }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 26.86 GiB
        allocator (expandable_segments:True) + optimizer-in-backward, 3 steps -> cut
        allocator (expandable_segments:True) + checkpoint, 3 steps -> 7.42 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps, reserves up to 7.32 GiB, work -> 7.76 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + checkpoint, a validation, alone on the card, reserves up to 7.32 GiB -> 7.76 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (expandable_segments:True) + checkpoint, needs 7.76 GiB, same, tight
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["allocator", "checkpoint", "optimizer-in-backward"]).plans());
}

#[test]
fn an_evaluation_that_makes_do_with_less_on_the_card_does_not_end_the_search() {
    // Its workspaces are as large as there is room for.
    let made = Made::new(8_000, |run| {
        let own = if run.on == On::Roomy { 8_000 } else { 5_000 };
        with_evaluation(own, 500, run, differ(3_000, run, 0))
    });
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 0
        " without changes: at least 3.42 GiB to be safe
        the unchanged script, one validation after 3 steps -> 14.65 GiB
        " the evaluation needs 8.79 GiB with what training keeps meanwhile: from now on each run includes it
        allocator (expandable_segments:True), one validation, on the card -> 5.96 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> 6.15 GiB
        the unchanged script, a validation, alone on the card -> 6.15 GiB
        as it is: fits, needs 6.15 GiB
        seen: 3 steps
    "#]].assert_eq(&made.allow(&["allocator", "checkpoint"]).plans());
}

#[test]
fn a_plan_that_is_only_too_large_by_what_is_kept_for_later_is_run_where_that_is_given_back() {
    let made = Made::new(8_000, |run| match () {
        () if !run.has("offload") => differ(9_000, run, 0),
        () if run.limit_reserved.is_some() || run.on != On::Roomy => {
            Ran { n_retries: 3, ..differ(7_000, run, 0) }
        }
        () => Ran { took: reserves(7_000, 7_900), ..differ(7_000, run, 0) },
    });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 26.86 GiB
        allocator (expandable_segments:True) + offload, 3 steps -> 8.20 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 0
        allocator (expandable_segments:True) + offload, 3 steps, reserves up to 7.32 GiB -> 7.42 GiB
        allocator (expandable_segments:True) + offload, 3 steps, reserves up to 7.32 GiB, work -> 7.42 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + offload, a validation, alone on the card, reserves up to 7.32 GiB -> 7.42 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (expandable_segments:True) + offload, needs 7.42 GiB, same
        seen: 3 steps
    "#]].assert_eq(&made.allow(&["allocator", "offload"]).plans());
}

#[test]
fn after_an_evaluation_that_makes_do_with_less_so_do_the_candidates() {
    let made = Made::new(8_000, |run| {
        let has_room = run.on == On::Roomy && run.limit_reserved.is_none();
        let own = if has_room { 8_000 } else { 5_000 };
        match () {
            () if run.plan.remedies.is_empty() && run.on != On::Roomy => out_of_memory(),
            () => with_evaluation(own, 2_000, run, differ(5_000, run, 0)),
        }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 15.14 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 0
        " without changes: at least 5.37 GiB to be safe
        the unchanged script, one validation after 3 steps -> 20.02 GiB
        " the evaluation needs 10.25 GiB with what training keeps meanwhile: from now on each run includes it
        allocator (expandable_segments:True), one validation, on the card -> 7.42 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        allocator (expandable_segments:True), one validation after 3 steps, reserves up to 7.32 GiB -> 7.42 GiB
        allocator (expandable_segments:True), one validation after 3 steps, reserves up to 7.32 GiB, work -> 7.42 GiB
        the unchanged script, 2 steps, work -> 15.14 GiB
        allocator (expandable_segments:True), a validation, alone on the card, reserves up to 7.32 GiB -> 7.42 GiB
        as it is: does not fit, needs 5.37 GiB
        its free memory is in pieces
        plan: allocator (expandable_segments:True), needs 7.42 GiB, same
        seen: 3 steps, an evaluation
    "#]].assert_eq(&made.allow(&["allocator"]).plans());
}

/// A language model on texts of every length: weights, gradients and optimizer hold 6,000 MiB between steps, a worst batch of eight samples takes 25,000
/// MiB more, and its 24 blocks keep most of that. It steps through a small batch, the worst one, and both again, and the same batch takes some MiB
/// more when larger free blocks serve it.
fn language_model(run: &Run, evaluation: u64) -> Ran {
    let parts = run.plan.remedies.iter().find_map(Remedy::parts).unwrap_or(1);
    let again = run.remedy("checkpoint").map_or(0, |it| it.blocks().map_or(24, <[u64]>::len));
    let again = u64::try_from(again).unwrap();
    let batch = (25_000 - 500 * again) / parts;
    let held = if run.has("optimizer-offload") { 4_500 } else { 8_200 };
    let split = (1 < parts).then(|| Split { samples: Some(8), exact: true, ..Split::default() });
    let ran = with_evaluation(evaluation, 6_000, run, differ(held + batch, run, 0));
    let mut took = ran.took;
    let step = took.steps[1];
    let of = |(n, mib): (u32, u64)| StepPeaks {
        step: n,
        allocated: step.allocated.saturating_sub(Bytes::mib(mib)),
        allocated_after: Bytes::mib(6_000),
        ..step
    };
    took.steps = vec![of((1, 5_000)), of((2, 9)), of((3, 5_000)), of((4, 4)), of((5, 0))];
    let idle = |id: &str| (id.to_owned(), None);
    let idle = [
        "autocast",
        "fused",
        "optimizer-in-backward",
        "channels-last",
        "attention",
        "inplace-activations",
    ]
    .map(idle);
    let noted = Noted {
        n_blocks: run.has("checkpoint").then_some(24),
        split,
        idle: Some(idle.into()),
        ..ran.noted
    };
    Ran { took, noted, ..ran }
}

#[test]
fn a_language_model_on_texts_of_every_length_has_a_plan_soon() {
    let made = Made::new(11_900, |run| language_model(run, 1_000));
    expect![[r#"
        the unchanged script, steady, sites -> 97.75 GiB
        " without changes: at least 32.91 GiB to be safe
        the unchanged script, one validation after 3 steps -> 97.75 GiB
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss, 3 steps -> cut
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss + micro-batches (2 parts), 3 steps -> 20.80 GiB
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss + micro-batches (8 parts), 3 steps -> 11.65 GiB
          replayed below 11.13 GiB on 11.62 GiB -> 0
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss + optimizer-8bit, 3 steps -> cut
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss + checkpoint, 3 steps -> cut
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss + micro-batches (2 parts) + checkpoint, 3 steps -> 14.94 GiB
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss + micro-batches (4 parts) + checkpoint, 3 steps -> 11.77 GiB
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss + micro-batches (8 parts) + checkpoint, 3 steps -> 10.18 GiB
        allocator (expandable_segments:True) + micro-batches (8 parts) + checkpoint, 3 steps -> 10.18 GiB
        allocator (expandable_segments:True) + micro-batches (8 parts), 3 steps -> 11.65 GiB
          replayed below 11.13 GiB on 11.62 GiB -> 0
        allocator (expandable_segments:True) + micro-batches (8 parts) + checkpoint (1 measure, 0 blocks), 3 steps -> 11.65 GiB
        allocator (expandable_segments:True) + micro-batches (8 parts) + checkpoint (1 measure), 2 steps -> 10.18 GiB
        allocator (expandable_segments:True) + micro-batches (8 parts) + checkpoint (7 blocks), 3 steps -> 11.22 GiB
        allocator (expandable_segments:True) + foreach + set-to-none + chunked-loss + optimizer-offload + checkpoint, 3 steps -> cut
        allocator (expandable_segments:True) + micro-batches (8 parts) + checkpoint (7 blocks), 3 steps, reserves up to 11.13 GiB, work -> 11.22 GiB
        the unchanged script, 2 steps, work -> 97.75 GiB
        allocator (expandable_segments:True) + micro-batches (8 parts) + checkpoint (7 blocks), a validation, alone on the card, reserves up to 11.13 GiB -> 11.22 GiB
        as it is: does not fit, needs 32.91 GiB
        plan: allocator (expandable_segments:True) + micro-batches (8 parts) + checkpoint (7 blocks), needs 11.22 GiB, same
        seen: 3 steps, an evaluation
    "#]].assert_eq(&made.plans());
    assert_eq!(made.n_runs(), (Some(10), 19));
    // Where nothing reaches its evaluation, no plan is run.
    let too_large = Made::new(11_900, |run| language_model(run, 14_000));
    assert_eq!(too_large.n_runs(), (None, 4));
}

#[test]
fn a_plan_that_keeps_more_for_later_in_other_orders_is_proven_where_that_is_given_back() {
    let made = Made::new(8_000, |run| {
        if !run.has("checkpoint") {
            return differ(9_000, run, 0);
        }
        let (reserved, n_retries) = match (run.on, run.limit_reserved) {
            (On::CardAlone, None) => (7_480, 0),
            (On::CardAlone, Some(_)) => (7_420, 2),
            _ => (6_100, 0),
        };
        let took = reserves(6_000, reserved);
        let safe = took.peak.device + Bytes::mib(60);
        Ran { took: Took { safe, ..took }, n_retries, ..differ(0, run, 0) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 26.86 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps -> 6.50 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps, reserves up to 7.32 GiB, work -> 6.50 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + checkpoint, a validation, alone on the card, reserves up to 7.25 GiB -> 7.79 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (expandable_segments:True) + checkpoint, needs 7.79 GiB, same, tight
        seen: 3 steps
    "#]].assert_eq(&made.allow(&["allocator", "checkpoint"]).plans());
}

#[test]
fn what_changes_no_answer_is_not_run() {
    // All blocks leave next to nothing of what they save, so which of them may keep theirs is not asked; and a run that counts takes less more than is free.
    let made = Made::new(8_000, |run| {
        let is_counted = run.look == Some(Look::Work);
        let ran =
            if run.has("checkpoint") { differ(7_200, run, 0) } else { differ(20_000, run, 0) };
        let more = Bytes::mib(if is_counted { 60 } else { 0 });
        let mut took = ran.took;
        took.peak.reserved += more;
        took.peak.device += more;
        took.safe += more;
        let noted = Noted { n_blocks: run.has("checkpoint").then_some(20), ..ran.noted };
        Ran { took, noted, ..ran }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 59.08 GiB
        " without changes: at least 20.02 GiB to be safe
        the unchanged script, one validation after 3 steps -> 59.08 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps -> 7.62 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps, reserves up to 7.32 GiB, work -> 7.68 GiB
        the unchanged script, 2 steps, work -> 59.14 GiB
        allocator (expandable_segments:True) + checkpoint, a validation, alone on the card, reserves up to 7.32 GiB -> 7.62 GiB
        as it is: does not fit, needs 20.02 GiB
        plan: allocator (expandable_segments:True) + checkpoint, needs 7.62 GiB, same
        seen: 3 steps
    "#]].assert_eq(&made.allow(&["allocator", "checkpoint"]).plans());
    // Nor are fewer blocks run where all of them leave too little for sizes that were not seen.
    let made = Made::new(8_000, |run| {
        let allocated = if run.has("checkpoint") { 6_500 } else { 9_000 };
        let ran = with_a_smaller_step(differ(allocated, run, 0));
        let noted = Noted { n_blocks: run.has("checkpoint").then_some(20), ..ran.noted };
        Ran { noted, ..ran }
    });
    let found = made.allow(&["allocator", "checkpoint"]).plans();
    assert!(found.contains("checkpoint, needs 6.93 GiB, same, tight"), "{found}");
    assert!(!found.contains("measure"), "{found}");
    // What a run held beside the optimizer's state is too much.
    let held_by_optimizer = |mib: u64| {
        let made = Made::new(8_000, move |run| {
            let held =
                |category, mib| CategoryShare { category, bytes: Bytes::mib(mib), blocks: 1 };
            let held =
                vec![held(Category::Activations, 9_000 - mib), held(Category::OptimizerState, mib)];
            let ran = differ(if run.has("checkpoint") { 10_000 } else { 20_000 }, run, 0);
            Ran { took: Took { held, ..ran.took }, ..ran }
        });
        made.allow(&["allocator", "checkpoint", "optimizer-offload"])
            .plans()
            .contains("optimizer-offload")
    };
    assert_eq!([1_000, 3_000].map(held_by_optimizer), [false, true]);
}

#[test]
fn a_plan_that_runs_out_in_another_order_gives_way_to_a_stronger_one() {
    let made =
        Made::new(8_000, |run| match (run.has("checkpoint"), run.has("optimizer-in-backward")) {
            (true, true) => differ(5_000, run, 0),
            (true, false) if run.on == On::CardAlone => out_of_memory(),
            (true, false) => differ(7_000, run, 0),
            _ => differ(9_000, run, 0),
        });
    expect![[r#"
        the unchanged script, steady, sites -> 26.86 GiB
        " without changes: at least 9.28 GiB to be safe
        the unchanged script, one validation after 3 steps -> 26.86 GiB
        allocator (expandable_segments:True) + optimizer-in-backward, 3 steps -> cut
        allocator (expandable_segments:True) + checkpoint, 3 steps -> 7.42 GiB
        allocator (expandable_segments:True) + checkpoint, 3 steps, reserves up to 7.32 GiB, work -> 7.42 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + checkpoint, a validation, alone on the card, reserves up to 7.32 GiB -> out of memory
        " batches in other orders need more: searching for a stronger plan
        allocator (expandable_segments:True) + optimizer-in-backward + checkpoint, 3 steps -> 5.47 GiB
        allocator (expandable_segments:True) + optimizer-in-backward + checkpoint, 3 steps, reserves up to 7.32 GiB, work -> 5.47 GiB
        the unchanged script, 2 steps, work -> 26.86 GiB
        allocator (expandable_segments:True) + optimizer-in-backward + checkpoint, a validation, alone on the card, reserves up to 7.32 GiB -> 5.47 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: allocator (expandable_segments:True) + optimizer-in-backward + checkpoint, needs 5.47 GiB, same
        seen: 3 steps
    "#]]
        .assert_eq(&made.allow(&["allocator", "checkpoint", "optimizer-in-backward"]).plans());
}
