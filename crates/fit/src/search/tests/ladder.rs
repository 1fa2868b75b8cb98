//! Which remedies are tried, and in which order.

use std::collections::BTreeMap;

use expect_test::expect;
use plimsoll_core::{
    cards,
    plan::{Op, find},
    recording::{Split, Work},
};

use super::made::{Made, fails, refuses, takes};
use crate::search::{Look, Noted, Ran, Run, ladder::rungs};

/// What nothing is to do for is left out only if the run of the script says so.
fn all_suit(ran: Ran) -> Ran {
    Ran { noted: Noted { idle: Some(BTreeMap::new()), ..ran.noted }, ..ran }
}

/// The plan that is found for a program that needs just the remedies of each rung, and how many plans are tried till then.
fn found_by_each_rung(gpus: u32) -> String {
    let card = cards::find("a100-40g").unwrap();
    let mut res = String::new();
    let all = rungs(
        card,
        gpus,
        |_| true,
        |it| find(it).unwrap().offer == plimsoll_core::plan::Offer::Usual,
    );
    for rung in all.into_iter().skip(1) {
        let needed = rung.clone();
        let made = Made::new(8_000, move |run: &Run| {
            let has_all = needed.iter().all(|it| run.has(it));
            all_suit(takes(if has_all { 5_000 } else { 12_000 }))
        });
        let picture = made.rules(|it| it.gpus = gpus).plans();
        let plan = picture.lines().find(|it| it.starts_with("plan: ")).unwrap_or("nothing");
        let plan = plan.trim_start_matches("plan: ").split(", needs").next().unwrap();
        let runs = picture.lines().filter(|it| it.contains(" -> "));
        let before = runs.take_while(|it| !it.contains("5.37 GiB")).count();
        res += &format!("{}: after {before} runs {plan}\n", rung.join(" + "));
    }
    res
}

#[test]
fn every_rung_is_reached_on_one_device() {
    expect![[r#"
        channels-last: after 3 runs channels-last
        autocast: after 4 runs autocast
        autocast + channels-last: after 5 runs autocast + channels-last
        micro-batches: after 6 runs micro-batches (2 parts)
        optimizer-in-backward: after 8 runs optimizer-in-backward
        optimizer-8bit: after 9 runs optimizer-8bit
        checkpoint: after 10 runs checkpoint
        autocast + micro-batches: after 11 runs autocast + micro-batches (2 parts)
        autocast + checkpoint: after 13 runs autocast + checkpoint
        micro-batches + checkpoint: after 14 runs micro-batches (2 parts) + checkpoint
        autocast + micro-batches + checkpoint: after 16 runs autocast + micro-batches (2 parts) + checkpoint
        optimizer-in-backward + checkpoint: after 18 runs optimizer-in-backward + checkpoint
        optimizer-in-backward + autocast + checkpoint: after 19 runs optimizer-in-backward + autocast + checkpoint
        optimizer-offload + checkpoint: after 20 runs optimizer-offload + checkpoint
        parameter-offload + optimizer-in-backward + checkpoint: after 21 runs parameter-offload + optimizer-in-backward + checkpoint
        parameter-offload + optimizer-offload + checkpoint: after 22 runs parameter-offload + optimizer-offload + checkpoint
        offload: after 23 runs offload
        autocast + offload: after 24 runs autocast + offload
        micro-batches + offload: after 25 runs micro-batches (2 parts) + offload
        optimizer-offload + micro-batches + checkpoint: after 27 runs optimizer-offload + micro-batches (2 parts) + checkpoint
        parameter-offload + optimizer-offload + autocast + micro-batches + checkpoint + offload: after 29 runs parameter-offload + optimizer-offload + autocast + micro-batches (2 parts) + checkpoint + offload
    "#]].assert_eq(&found_by_each_rung(1));
}

#[test]
fn every_rung_is_reached_on_several_devices() {
    expect![[r#"
        zero1: after 3 runs zero1 (4 gpus)
        fsdp2: after 4 runs fsdp2 (4 gpus)
        zero1 + micro-batches: after 5 runs zero1 (4 gpus) + micro-batches (2 parts)
        fsdp2 + autocast: after 7 runs fsdp2 (4 gpus) + autocast
        fsdp2 + micro-batches: after 8 runs fsdp2 (4 gpus) + micro-batches (2 parts)
        fsdp2 + checkpoint: after 10 runs fsdp2 (4 gpus) + checkpoint
        zero1 + micro-batches + checkpoint: after 11 runs zero1 (4 gpus) + micro-batches (2 parts) + checkpoint
        fsdp2 + autocast + checkpoint: after 13 runs fsdp2 (4 gpus) + autocast + checkpoint
        fsdp2 + autocast + micro-batches + checkpoint: after 14 runs fsdp2 (4 gpus) + autocast + micro-batches (2 parts) + checkpoint
        fsdp2 + autocast + offload: after 16 runs fsdp2 (4 gpus) + autocast + offload
        model-parallel: after 17 runs model-parallel (4 gpus)
        model-parallel + checkpoint: after 18 runs model-parallel (4 gpus) + checkpoint
        channels-last: after 19 runs channels-last
        autocast: after 7 runs autocast
        autocast + channels-last: after 21 runs autocast + channels-last
        micro-batches: after 5 runs micro-batches (2 parts)
        optimizer-in-backward: after 24 runs optimizer-in-backward
        optimizer-8bit: after 25 runs optimizer-8bit
        checkpoint: after 10 runs checkpoint
        autocast + micro-batches: after 14 runs autocast + micro-batches (2 parts)
        autocast + checkpoint: after 13 runs autocast + checkpoint
        micro-batches + checkpoint: after 11 runs micro-batches (2 parts) + checkpoint
        autocast + micro-batches + checkpoint: after 14 runs autocast + micro-batches (2 parts) + checkpoint
        optimizer-in-backward + checkpoint: after 34 runs optimizer-in-backward + checkpoint
        optimizer-in-backward + autocast + checkpoint: after 35 runs optimizer-in-backward + autocast + checkpoint
        optimizer-offload + checkpoint: after 36 runs optimizer-offload + checkpoint
        parameter-offload + optimizer-in-backward + checkpoint: after 37 runs parameter-offload + optimizer-in-backward + checkpoint
        parameter-offload + optimizer-offload + checkpoint: after 38 runs parameter-offload + optimizer-offload + checkpoint
        offload: after 16 runs offload
        autocast + offload: after 16 runs autocast + offload
        micro-batches + offload: after 41 runs micro-batches (2 parts) + offload
        optimizer-offload + micro-batches + checkpoint: after 43 runs optimizer-offload + micro-batches (2 parts) + checkpoint
        parameter-offload + optimizer-offload + autocast + micro-batches + checkpoint + offload: after 45 runs parameter-offload + optimizer-offload + autocast + micro-batches (2 parts) + checkpoint + offload
    "#]].assert_eq(&found_by_each_rung(4));
}

#[test]
fn people_are_told_what_each_plan_comes_to() {
    let made = Made::new(8_000, |run| takes(if run.has("checkpoint") { 5_000 } else { 12_000 }));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> cut
        " autocast: needs more than 7.81 GiB (1.0 s)
        checkpoint, 2 steps -> 5.37 GiB
        " checkpoint: fits, 5.37 GiB to be safe (1.0 s)
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["checkpoint", "autocast"]).with_all_said().plans());
}

#[test]
fn an_old_card_has_no_bfloat16() {
    let made = Made::new(8_000, |run| takes(if run.has("autocast-fp16") { 5_000 } else { 12_000 }));
    let made = made.rules(|it| it.card.compute_capability = (7, 5));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast-fp16, 2 steps -> 5.37 GiB
        autocast-fp16, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast-fp16, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        autocast-fp16, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: autocast-fp16, needs 5.37 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["autocast", "autocast-fp16"]).plans());
}

#[test]
fn what_was_asked_for_by_name_comes_first_and_then_in_company() {
    let made = Made::new(8_000, |run| {
        let both = run.has("sgd") && run.has("checkpoint");
        takes(if both { 5_000 } else { 12_000 })
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        sgd, 2 steps -> cut
        checkpoint, 2 steps -> cut
        sgd + checkpoint, 2 steps -> 5.37 GiB
        sgd + checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        sgd + checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        sgd + checkpoint, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: sgd + checkpoint, needs 5.37 GiB, another training
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&["sgd", "checkpoint"]).plans());
}

#[test]
fn numbers_that_are_to_be_kept_leave_no_room_for_precision() {
    let made = Made::new(8_000, |run| {
        let enough = run.has("autocast") || run.has("checkpoint");
        takes(if enough { 5_000 } else { 12_000 })
    });
    let made = made.allow(&["autocast", "checkpoint"]).rules(|it| it.keep_numerics = true);
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

/// In parts it fits; whether something in it draws random numbers is seen by then.
fn in_parts(exact: bool) -> Made {
    let made = Made::new(8_000, move |run| {
        let split = run.has("micro-batches").then_some(Split {
            exact,
            samples: Some(8),
            ..Split::default()
        });
        let mib = if split.is_some() { 5_000 } else { 12_000 };
        Ran { noted: Noted { split, ..Noted::default() }, ..takes(mib) }
    });
    made.allow(&["micro-batches"]).rules(|it| it.keep_numerics = true)
}

#[test]
fn parts_keep_numbers_where_nothing_draws_random_ones() {
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        micro-batches (2 parts), 2 steps -> 5.37 GiB
        micro-batches (2 parts), steady, reserves up to 7.32 GiB -> 5.37 GiB
        micro-batches (2 parts), steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        micro-batches (2 parts), a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: micro-batches (2 parts), needs 5.37 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&in_parts(true).plans());
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        micro-batches (2 parts), 2 steps -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
    "#]]
    .assert_eq(&in_parts(false).plans());
}

#[test]
fn three_plans_are_enough_and_offload_is_for_those_who_have_none() {
    let one_of = ["autocast", "micro-batches", "optimizer-8bit", "checkpoint", "offload"];
    let made = Made::new(8_000, move |run| {
        let enough = one_of.iter().any(|it| run.has(it));
        all_suit(takes(if enough { 5_000 } else { 12_000 }))
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        micro-batches (2 parts), 2 steps -> 5.37 GiB
        micro-batches (2 parts), steady, reserves up to 7.32 GiB -> 5.37 GiB
        optimizer-8bit, 2 steps -> 5.37 GiB
        optimizer-8bit, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        micro-batches (2 parts), steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        optimizer-8bit, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        micro-batches (2 parts), a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: micro-batches (2 parts), needs 5.37 GiB, dropout, batch-norm
        plan: autocast, needs 5.37 GiB, less precise
        plan: optimizer-8bit, needs 5.37 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&one_of).plans());
}

#[test]
fn two_plans_are_enough_if_one_keeps_the_numbers() {
    let made = Made::new(8_000, |run| {
        let enough =
            run.has("optimizer-in-backward") || run.has("checkpoint") || run.has("autocast");
        takes(if enough { 5_000 } else { 12_000 })
    });
    let allowed = ["optimizer-in-backward", "checkpoint", "autocast"];
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB -> 5.37 GiB
        optimizer-in-backward, 2 steps -> 5.37 GiB
        optimizer-in-backward, steady, reserves up to 7.32 GiB -> 5.37 GiB
        autocast, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        optimizer-in-backward, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        optimizer-in-backward, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: optimizer-in-backward, needs 5.37 GiB, same
        plan: autocast, needs 5.37 GiB, less precise
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&allowed).plans());
}

#[test]
fn who_refuses_alone_is_not_tried_in_company() {
    let made = Made::new(8_000, |run| {
        if run.has("micro-batches") { refuses("micro-batches") } else { takes(12_000) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        micro-batches (2 parts), 2 steps -> micro-batches refuses
        checkpoint, 2 steps -> cut
        checkpoint, 2 steps -> 12.21 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
    "#]]
    .assert_eq(&made.allow(&["micro-batches", "checkpoint"]).plans());
}

#[test]
fn nor_is_what_fails_alone() {
    let made = Made::new(8_000, |run| {
        if run.has("checkpoint") { fails("RuntimeError: in place") } else { takes(12_000) }
    });
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> cut
        checkpoint, 2 steps -> RuntimeError: in place
        autocast, 2 steps -> 12.21 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: the unchanged script, needs 12.21 GiB
    "#]]
    .assert_eq(&made.allow(&["autocast", "checkpoint"]).plans());
}

#[test]
fn a_failure_in_company_says_nothing_of_each() {
    let made = Made::new(8_000, |run| match (run.has("autocast"), run.has("micro-batches")) {
        (true, true) => fails("not both"),
        _ => takes(if run.has("checkpoint") { 7_000 } else { 12_000 }),
    });
    let allowed = ["autocast", "micro-batches", "checkpoint"];
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        autocast, 2 steps -> cut
        micro-batches (2 parts), 2 steps -> 12.21 GiB
        micro-batches (4 parts), 2 steps -> 12.21 GiB
        checkpoint, 2 steps -> 7.32 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 7.32 GiB
        autocast + micro-batches (2 parts), 2 steps -> not both
        checkpoint, steady, reserves up to 7.32 GiB, work -> 7.32 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 7.32 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.allow(&allowed).plans());
}

#[test]
fn what_has_nothing_to_do_is_said_and_left_out() {
    let made = Made::new(8_000, |run| {
        let why = |it: &str| Some(it.to_owned());
        let idle = [
            ("checkpoint", why("no repeated blocks")),
            ("offload", why("no repeated blocks")),
            ("autocast", why("it is there")),
            ("autocast-fp16", why("it is there")),
            ("micro-batches", None),
        ];
        let idle = idle.map(|(id, why)| (id.to_owned(), why)).into();
        let mib = if run.has("optimizer-in-backward") { 5_000 } else { 12_000 };
        Ran { noted: Noted { idle: Some(idle), ..Noted::default() }, ..takes(mib) }
    });
    let made = made.forbid(&["fused", "foreach", "set-to-none", "chunked-loss", "attention"]);
    let made = made.rules(|it| it.forbid.push("inplace-activations".to_owned()));
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        " left out: autocast (it is there); checkpoint, offload (no repeated blocks)
        channels-last, 2 steps -> cut
        optimizer-in-backward, 2 steps -> 5.37 GiB
        optimizer-in-backward, steady, reserves up to 7.32 GiB -> 5.37 GiB
        optimizer-8bit, 2 steps -> cut
        optimizer-offload, 2 steps -> cut
        optimizer-in-backward, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        optimizer-in-backward, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: optimizer-in-backward, needs 5.37 GiB, same
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

/// Two plans fit, and a step of them computes more.
fn slower(with_8bit: f64, with_checkpoint: f64) -> Made {
    let made = Made::new(8_000, move |run| {
        let (fits, times) = match () {
            () if run.has("optimizer-8bit") => (true, with_8bit),
            () if run.has("checkpoint") => (true, with_checkpoint),
            () => (false, 1.0),
        };
        let product = |times: f64| Work {
            op: Op::Matmul,
            dtype: "float32".to_owned(),
            count: 100.0 * times,
            flops: 1e12,
            bytes: 1e6,
        };
        let work = if run.look == Some(Look::Work) { vec![product(times)] } else { Vec::new() };
        let idle = Some(BTreeMap::new());
        Ran {
            noted: Noted { idle, work, ..Noted::default() },
            ..takes(if fits { 5_000 } else { 12_000 })
        }
    });
    made.allow(&["optimizer-8bit", "checkpoint"])
}

#[test]
fn the_plan_that_costs_least_time_comes_first() {
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        optimizer-8bit, 2 steps -> 5.37 GiB
        optimizer-8bit, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        optimizer-8bit, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        optimizer-8bit, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: optimizer-8bit, needs 5.37 GiB, less precise, 1.00x
        plan: checkpoint, needs 5.37 GiB, same, 1.30x
        seen: 3 steps
    "#]]
    .assert_eq(&slower(1.0, 1.3).plans());
}

#[test]
fn of_plans_as_fast_the_one_that_keeps_the_numbers_comes_first() {
    expect![[r#"
        the unchanged script, steady, sites -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        optimizer-8bit, 2 steps -> 5.37 GiB
        optimizer-8bit, steady, reserves up to 7.32 GiB -> 5.37 GiB
        checkpoint, 2 steps -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB -> 5.37 GiB
        optimizer-8bit, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        checkpoint, steady, reserves up to 7.32 GiB, work -> 5.37 GiB
        the unchanged script, 2 steps, work -> 12.21 GiB
        checkpoint, a validation, alone on the card -> 5.37 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: checkpoint, needs 5.37 GiB, same, 1.01x
        plan: optimizer-8bit, needs 5.37 GiB, less precise, 1.02x
        seen: 3 steps
    "#]]
    .assert_eq(&slower(1.02, 1.01).plans());
}

#[test]
fn who_prefers_speed_gets_the_fastest_first() {
    let first = |prefers_speed: bool| {
        let found = slower(0.7, 1.0).rules(|it| it.prefers_speed = prefers_speed).plans();
        found.lines().find_map(|it| it.strip_prefix("plan: ").map(str::to_owned))
    };
    expect![[r#"
        Some("checkpoint, needs 5.37 GiB, same, 1.00x")
        Some("optimizer-8bit, needs 5.37 GiB, less precise, 0.70x")
    "#]]
    .assert_eq(&format!("{:?}\n{:?}\n", first(false), first(true)));
}
