//! The script as it is.

use expect_test::expect;
use plimsoll_core::{
    prediction::{Counted, OtherEnd, Outcome, StepGrowth},
    units::Bytes,
};

use super::made::{Made, evaluates, fails, out_of_memory, reserves, takes};
use crate::search::{Noted, On, Ran, Run, Took, Until};

/// Nothing that would help may be used.
const NOTHING: &[&str] = &["detach-losses"];

#[test]
fn it_fits_and_is_run_once_more_on_the_card_itself() {
    let made = Made::new(8_000, |run| {
        if run.until == Until::Validation { evaluates(4_000) } else { takes(4_000) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        as it is: fits, needs 4.39 GiB
        seen: 3 steps, an evaluation
    "#]]
    .assert_eq(&made.plans());
}

/// What is said of a search that is not over.
fn best_so_far(made: Made) -> String {
    made.with_best().plans()
}

#[test]
fn one_that_is_only_being_proven_is_the_best_so_far() {
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
          best so far: AsItIs
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, on the card, late -> 5.37 GiB
        the unchanged script, a validation, on the card, overflowing -> 4.39 GiB
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        as it is: fits, needs 5.37 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&best_so_far(with_other_ends(5_000)));
}

#[test]
fn one_that_the_proof_refutes_is_no_longer_the_best_so_far() {
    let made = Made::new(8_000, |run| match run.on {
        On::Roomy => takes(4_000),
        _ => out_of_memory(),
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
          best so far: AsItIs
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> out of memory
          best so far: Nothing
        the unchanged script, a validation -> 4.39 GiB
        the unchanged script, a validation, reserves up to 7.32 GiB -> 4.39 GiB
        the unchanged script, a validation, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 4.39 GiB
        the unchanged script, a validation, alone on the card -> out of memory
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 4.39 GiB
    "#]]
    .assert_eq(&best_so_far(made.allow(NOTHING)));
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
          best so far: AsItIs
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, on the card, late -> out of memory
          best so far: Nothing
        the unchanged script, a validation, on the card, overflowing -> 4.39 GiB
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        the unchanged script, a validation, late -> 9.28 GiB
        detach-losses, 2 steps -> 4.39 GiB
          best so far: Plan("detach-losses", Bytes(4718592000))
        detach-losses, steady, reserves up to 7.32 GiB -> 4.39 GiB
        detach-losses, steady, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 4.39 GiB
        detach-losses, a validation, on the card, late -> out of memory
        detach-losses, a validation, on the card, overflowing -> 4.39 GiB
        detach-losses, a validation, alone on the card -> 4.39 GiB
        detach-losses, a validation, late -> 9.28 GiB
        as it is: does not fit, needs 9.28 GiB
        nearest: the unchanged script, needs 9.28 GiB
    "#]]
    .assert_eq(&best_so_far(with_other_ends(9_000).allow(NOTHING)));
}

#[test]
fn one_that_needs_a_plan_has_it_as_its_best_so_far() {
    let made = Made::new(8_000, |run| match (run.plan.remedies.is_empty(), run.until) {
        (true, Until::Steps(_)) => takes(7_000),
        (true, _) => takes(9_000),
        (false, _) => takes(4_000),
    });
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
        " without changes: 9.28 GiB to be safe
        detach-losses, 2 steps -> 4.39 GiB
          best so far: Plan("detach-losses", Bytes(4718592000))
        detach-losses, steady, reserves up to 7.32 GiB -> 4.39 GiB
        detach-losses, steady, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 7.32 GiB
        detach-losses, a validation, alone on the card -> 4.39 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: detach-losses, needs 4.39 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&best_so_far(made.allow(NOTHING)));
}

#[test]
fn one_that_the_card_itself_bears_is_the_best_so_far() {
    let made = Made::new(8_000, |run| Ran {
        took: match run.on {
            On::Roomy => reserves(6_000, 9_000),
            _ => reserves(6_000, 7_000),
        },
        noted: Noted { sizes_differ: true, ..Noted::default() },
        ..takes(0)
    });
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
          replayed below 7.32 GiB on 7.81 GiB -> 0
        " without changes: at least 6.35 GiB to be safe
        the unchanged script, one validation after 3 steps -> 9.28 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> 7.32 GiB
          best so far: AsItIs
        the unchanged script, a validation, alone on the card -> 7.32 GiB
        as it is: fits, needs 7.32 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&best_so_far(made));
}

#[test]
fn it_grows_and_no_plan_is_looked_for() {
    let growth = growing(Bytes::mib(8), 400, Bytes::mib(4_000));
    let grows = move |growth: &StepGrowth| Ran {
        took: Took { growth: Some(growth.clone()), ..takes(4_000).took },
        outcome: Outcome::Grows,
        ..takes(4_000)
    };
    let made = Made::new(8_000, move |_| grows(&growth));
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        as it is: does not fit, needs 4.39 GiB
        grows 8.0 MiB a step, runs out at 838
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn it_does_not_run() {
    let made = Made::new(8_000, |_| fails("the script raised KeyError: 'lr'"));
    expect![[r#"
        the unchanged script, steady, sites -> the script raised KeyError: 'lr'
        does not run: the script raised KeyError: 'lr'
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn it_is_run_to_its_end_if_that_is_asked_for() {
    let made = Made::new(8_000, |_| takes(4_000)).rules(|it| it.until_exit = true);
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, the end, alone on the card -> 4.39 GiB
        as it is: fits, needs 4.39 GiB
        seen: 3 steps, its end
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn what_a_loop_raises_that_does_not_bear_an_early_end_of_an_epoch_is_said() {
    let made = Made::new(8_000, |run| {
        let why = (run.until == Until::Validation).then(|| "no metrics".to_owned());
        Ran { failed_later: why, ..takes(4_000) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        as it is: fits, needs 4.39 GiB
        seen: 3 steps
        then it fails, hurried: no metrics
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn it_fails_in_a_later_step() {
    let made = Made::new(8_000, |run| {
        if run.until == Until::Validation { fails("KeyError") } else { takes(4_000) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> KeyError
        the unchanged script, steady, alone on the card -> 4.39 GiB
        as it is: fits, needs 4.39 GiB
        seen: 3 steps
        then it fails: KeyError
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn it_fails_in_a_later_step_and_does_not_fit_until_then() {
    let made = |until: Until| {
        Made::new(8_000, move |run| match run.plan.remedies.is_empty() {
            _ if run.until == until => fails("KeyError"),
            true => takes(9_000),
            false => takes(4_000),
        })
    };
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
        " without changes: 9.28 GiB to be safe
        detach-losses, 2 steps -> 4.39 GiB
        detach-losses, steady, reserves up to 7.32 GiB -> 4.39 GiB
        detach-losses, steady, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 9.28 GiB
        detach-losses, a validation, alone on the card -> KeyError
        the unchanged script, a validation -> KeyError
        detach-losses, steady, alone on the card -> 4.39 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: detach-losses, needs 4.39 GiB, same
        seen: 3 steps
        then it fails: KeyError
    "#]]
    .assert_eq(&made(Until::Validation).allow(NOTHING).plans());
    let to_its_end = made(Until::Exit).rules(|it| it.until_exit = true);
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
        " without changes: 9.28 GiB to be safe
        detach-losses, 2 steps -> 4.39 GiB
        detach-losses, steady, reserves up to 7.32 GiB -> 4.39 GiB
        detach-losses, steady, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 9.28 GiB
        detach-losses, the end, alone on the card -> KeyError
        the unchanged script, the end -> KeyError
        detach-losses, steady, alone on the card -> 4.39 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: detach-losses, needs 4.39 GiB, same
        seen: 3 steps
        then it fails: KeyError
    "#]]
    .assert_eq(&to_its_end.allow(NOTHING).plans());
}

#[test]
fn a_plan_with_which_a_later_step_fails_is_none() {
    let made = Made::new(8_000, |run| match run.plan.shown().as_str() {
        "checkpoint" if run.until == Until::Validation => fails("KeyError"),
        "checkpoint" => takes(4_000),
        "optimizer-offload" => takes(5_000),
        _ => takes(9_000),
    });
    expect![[r#"
        the unchanged script, steady, sites -> 9.28 GiB
        " without changes: 9.28 GiB to be safe
        checkpoint, 2 steps -> 4.39 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 4.39 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 9.28 GiB
        checkpoint, a validation, alone on the card -> KeyError
        the unchanged script, a validation -> 9.28 GiB
        " checkpoint: a later step fails with it, but not without it: KeyError
        " searching again without the remedies that made a later step fail
        optimizer-offload, 2 steps -> 5.37 GiB
        optimizer-offload, steady, reserves up to 7.32 GiB -> 5.37 GiB
        optimizer-offload, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 9.28 GiB
        optimizer-offload, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 9.28 GiB
        plan: optimizer-offload, needs 5.37 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["checkpoint", "optimizer-offload"]).plans());
}

#[test]
fn it_runs_out_on_the_card_itself_and_its_validation_is_why() {
    let made = Made::new(8_000, |run| {
        if run.until == Until::Validation { evaluates(9_000) } else { takes(4_000) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> out of memory
        the unchanged script, a validation -> 9.28 GiB
        detach-losses, a validation -> cut
        detach-losses, a validation -> 9.28 GiB
        as it is: does not fit, needs 9.28 GiB
        nearest: the unchanged script, needs 9.28 GiB
    "#]]
    .assert_eq(&made.allow(NOTHING).plans());
}

/// One whose phantom decides when queued work is done, and whether the first step overflows.
fn with_other_ends(late: u64) -> Made {
    Made::new(8_000, move |run| {
        let mib = if run.end == Some(OtherEnd::Late) { late } else { 4_000 };
        Ran { ends: vec![OtherEnd::Late, OtherEnd::Overflow], ..takes(mib) }
    })
}

#[test]
fn both_ends_of_what_a_phantom_decides_are_run_and_the_hungriest_counts() {
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, on the card, late -> 5.37 GiB
        the unchanged script, a validation, on the card, overflowing -> 4.39 GiB
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        as it is: fits, needs 5.37 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&with_other_ends(5_000).plans());
}

#[test]
fn the_other_end_does_not_fit() {
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, on the card, late -> out of memory
        the unchanged script, a validation, on the card, overflowing -> 4.39 GiB
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        the unchanged script, a validation, late -> 9.28 GiB
        detach-losses, 2 steps -> 4.39 GiB
        detach-losses, steady, reserves up to 7.32 GiB -> 4.39 GiB
        detach-losses, steady, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 4.39 GiB
        detach-losses, a validation, on the card, late -> out of memory
        detach-losses, a validation, on the card, overflowing -> 4.39 GiB
        detach-losses, a validation, alone on the card -> 4.39 GiB
        detach-losses, a validation, late -> 9.28 GiB
        as it is: does not fit, needs 9.28 GiB
        nearest: the unchanged script, needs 9.28 GiB
    "#]]
    .assert_eq(&with_other_ends(9_000).allow(NOTHING).plans());
}

#[test]
fn an_end_that_is_seen_late_is_run_by_itself() {
    let made = Made::new(8_000, |run| {
        let ends = if run.on == On::CardAlone { vec![OtherEnd::Workspaces] } else { Vec::new() };
        Ran { ends, ..takes(4_000) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        the unchanged script, a validation, alone on the card, largest workspaces -> 4.39 GiB
        as it is: fits, needs 4.39 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn another_end_that_fails_by_itself_is_run_again_in_a_process_of_its_own() {
    let made = Made::new(8_000, |run: &Run| match (run.end, run.on) {
        (Some(_), On::Card) => fails("a worker died"),
        _ => Ran { ends: vec![OtherEnd::Late], ..takes(4_000) },
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, on the card, late -> a worker died
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        the unchanged script, a validation, alone on the card, late -> 4.39 GiB
        as it is: fits, needs 4.39 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn one_that_fits_with_room_and_runs_out_on_the_card_does_not_fit() {
    let made = Made::new(8_000, |run| match run.on {
        On::Roomy => takes(4_000),
        _ => out_of_memory(),
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> out of memory
        the unchanged script, a validation -> 4.39 GiB
        the unchanged script, a validation, reserves up to 7.32 GiB -> 4.39 GiB
        the unchanged script, a validation, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 4.39 GiB
        the unchanged script, a validation, alone on the card -> out of memory
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 4.39 GiB
    "#]]
    .assert_eq(&made.allow(NOTHING).plans());
}

#[test]
fn what_was_done_to_the_batches_is_said_first() {
    let made = Made::new(8_000, |_| {
        let batches =
            vec!["--worst-seq made every batch of the DataLoader 512 long: ids".to_owned()];
        Ran { noted: Noted { batches, ..Noted::default() }, ..takes(4_000) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " --worst-seq made every batch of the DataLoader 512 long: ids
        " without changes: at least 4.39 GiB to be safe
        the unchanged script, a validation, alone on the card -> 4.39 GiB
        as it is: fits, needs 4.39 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

#[test]
fn a_limit_on_what_is_reserved_leaves_out_what_is_beside() {
    // It needs 4.4 GiB of the device, and 3.9 of what is limited.
    let limit = plimsoll_core::units::Bytes::mib(4_000);
    let made = Made::new(40_000, |_| takes(4_000)).rules(|it| it.limit_reserved = Some(limit));
    expect![[r#"
        the unchanged script, steady, sites -> 4.39 GiB
        " without changes: at least 3.91 GiB to be safe
        the unchanged script, a validation, alone on the card, reserves up to 3.91 GiB -> 4.39 GiB
        as it is: fits, needs 3.91 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
    let made = Made::new(40_000, |_| takes(4_001)).rules(|it| it.limit_reserved = Some(limit));
    expect![[r#"
        the unchanged script, steady, sites -> 4.40 GiB
        " without changes: 3.91 GiB to be safe
        detach-losses, 2 steps -> cut
        as it is: does not fit, needs 3.91 GiB
        nearest: the unchanged script, needs 3.91 GiB
    "#]]
    .assert_eq(&made.allow(NOTHING).plans());
}

#[test]
fn one_that_takes_what_there_is_fits_where_it_took_too_much_with_room() {
    let made = Made::new(8_000, |run| {
        let ends = vec![OtherEnd::Workspaces];
        let takes_all = run.on == On::Roomy && run.limit_reserved.is_none();
        Ran { ends, ..takes(if takes_all { 12_000 } else { 6_000 }) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        the unchanged script, a validation, alone on the card, reserves up to 7.32 GiB -> 6.35 GiB
        the unchanged script, a validation, alone on the card, largest workspaces, reserves up to 7.32 GiB -> 6.35 GiB
        " on a real card, cudnn.benchmark skips algorithms whose workspaces do not fit
        as it is: fits, needs 6.35 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&made.with_all_said().plans());
}

#[test]
fn one_that_takes_what_there_is_and_still_too_much_is_tried_with_remedies_at_the_limit() {
    let made = Made::new(8_000, |run| {
        let ends = vec![OtherEnd::Workspaces];
        let least = if run.has("checkpoint") { 6_000 } else { 9_000 };
        match (run.on, run.limit_reserved) {
            (On::Roomy, None) => Ran { ends, ..takes(least + 6_000) },
            _ if least == 9_000 => out_of_memory(),
            _ => Ran { ends, ..takes(least) },
        }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 15.14 GiB
        " without changes: 15.14 GiB to be safe
        the unchanged script, a validation, alone on the card, reserves up to 7.32 GiB -> out of memory
        fused, 2 steps, reserves up to 7.32 GiB -> out of memory
        " fused: needs more than 7.81 GiB (1.0 s)
        fused + checkpoint, 2 steps, reserves up to 7.32 GiB -> 6.35 GiB
        " fused + checkpoint: fits, 6.35 GiB to be safe (1.0 s)
        checkpoint, 2 steps, reserves up to 7.32 GiB -> 6.35 GiB
        " checkpoint: fits, 6.35 GiB to be safe (1.0 s)
        checkpoint, steady, reserves up to 7.32 GiB -> 6.35 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 6.35 GiB
        the unchanged script, 2 steps, work -> 15.14 GiB
        checkpoint, a validation, on the card, largest workspaces, reserves up to 7.32 GiB -> 6.35 GiB
        checkpoint, a validation, alone on the card, reserves up to 7.32 GiB -> 6.35 GiB
        as it is: does not fit, needs 15.14 GiB
        plan: checkpoint, needs 6.35 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["checkpoint", "fused"]).with_all_said().plans());
}

#[test]
fn a_search_that_is_stopped_while_it_looks_at_the_card_does_not_say_that_it_fits() {
    let made = Made::new(8_000, |run| {
        let takes_all = run.on == On::Roomy && run.limit_reserved.is_none();
        Ran { ends: vec![OtherEnd::Workspaces], ..takes(if takes_all { 12_000 } else { 6_000 }) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        the unchanged script, a validation, alone on the card, reserves up to 7.32 GiB -> interrupted
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
        interrupted
    "#]]
    .assert_eq(&made.stopped_at(1).plans());
}

/// One that keeps 4,000 MiB more for later than it has allocated, where there is room.
fn with_cache(runs_out: bool) -> Made {
    Made::new(8_000, move |run| {
        let is_limited = run.limit_reserved.is_some() && run.plan.remedies.is_empty();
        match (is_limited, run.has("checkpoint")) {
            (true, _) if runs_out => out_of_memory(),
            (true, _) => Ran { n_retries: 14, took: reserves(6_000, 6_800), ..takes(0) },
            (false, true) => takes(4_000),
            (false, false) => Ran { took: reserves(6_000, 10_000), ..takes(0) },
        }
    })
}

#[test]
fn it_gets_through_since_what_is_kept_for_later_is_given_back() {
    expect![[r#"
        the unchanged script, steady, sites -> 10.25 GiB
        " without changes: 10.25 GiB to be safe
        checkpoint, 2 steps -> 4.39 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 4.39 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 4.39 GiB
        the unchanged script, 2 steps, work -> 10.25 GiB
        checkpoint, a validation, alone on the card -> 4.39 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> 7.13 GiB
        as it is: does not fit, needs 10.25 GiB
        as it is it gets through: 14 retries
        plan: checkpoint, needs 4.39 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&with_cache(false).allow(&["checkpoint"]).plans());
}

#[test]
fn so_it_fits_without_a_plan() {
    expect![[r#"
        the unchanged script, steady, sites -> 10.25 GiB
        " without changes: 10.25 GiB to be safe
        detach-losses, 2 steps -> 10.25 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> 7.13 GiB
        as it is: does not fit, needs 10.25 GiB
        as it is it gets through: 14 retries
    "#]]
    .assert_eq(&with_cache(false).allow(NOTHING).plans());
}

#[test]
fn it_does_not_get_through_all_the_same() {
    expect![[r#"
        the unchanged script, steady, sites -> 10.25 GiB
        " without changes: 10.25 GiB to be safe
        detach-losses, 2 steps -> 10.25 GiB
        the unchanged script, a validation, on the card, reserves up to 7.32 GiB -> out of memory
        as it is: does not fit, needs 10.25 GiB
        nearest: the unchanged script, needs 10.25 GiB
    "#]]
    .assert_eq(&with_cache(true).allow(NOTHING).plans());
}

/// So much in each step, where `needs` is what the device had to have after these.
fn growing(per_step: Bytes, seen: u32, needs: Bytes) -> StepGrowth {
    StepGrowth {
        per_step,
        every: 1,
        at: None,
        seen,
        counted: Counted::Steps,
        runs_out_at: 0,
        has_run_out: false,
        taken: per_step,
        needs,
        grown: needs,
    }
}
