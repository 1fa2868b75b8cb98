//! Somebody stops the search: nothing is run after that, and the best so far is kept.

use expect_test::{Expect, expect};
use plimsoll_core::{prediction::OtherEnd, recording::Spread};

use super::made::{Made, takes};
use crate::search::{Noted, Ran, Run};

/// The run that is stopped, how many come after it, and what is found: for every run of the search.
fn at_each_run(made: impl Fn() -> Made, expected: Expect) {
    let is_run = |it: &str| {
        !it.starts_with(['"', ' '])
            && [" -> ", " on the device"].iter().any(|word| it.contains(word))
    };
    let all = made().with_advice().plans().lines().filter(|it| is_run(it)).count();
    let mut res = String::new();
    for n in 0..all {
        let picture = made().with_advice().stopped_at(n).plans();
        let runs: Vec<&str> = picture.lines().filter(|it| is_run(it)).collect();
        let stopped = runs[n].split(" -> ").next().unwrap();
        let found = picture.lines().find(|it| {
            ["plan: ", "nearest: ", "does not run: "].iter().any(|word| it.starts_with(word))
                || it.starts_with("as it is: fits")
        });
        let found = found.unwrap_or("nothing");
        let after = runs.len() - n - 1;
        res += &format!("{stopped}; {after} more; {found}\n");
    }
    expected.assert_eq(&res);
}

fn with_a_plan(run: &Run) -> Ran {
    let enough = run.has("autocast") || run.has("checkpoint");
    let noted = Noted { n_blocks: run.has("checkpoint").then_some(4), ..Noted::default() };
    Ran { noted, ends: vec![OtherEnd::Late], ..takes(if enough { 5_000 } else { 12_000 }) }
}

#[test]
fn while_plans_are_looked_for() {
    at_each_run(
        || Made::new(8_000, with_a_plan).allow(&["fused", "set-to-none", "autocast", "checkpoint"]),
        expect![[r#"
            the unchanged script, steady, sites; 0 more; does not run: interrupted
            fused + set-to-none, 2 steps; 0 more; nearest: the unchanged script, needs 12.21 GiB
            fused + set-to-none + autocast, 2 steps; 0 more; nearest: the unchanged script, needs 12.21 GiB
            autocast, 2 steps; 0 more; plan: fused + set-to-none + autocast, needs 5.37 GiB, less precise
            autocast, steady, reserves up to 7.32 GiB; 0 more; plan: autocast, needs 5.37 GiB, less precise
            fused + set-to-none + checkpoint, 2 steps; 0 more; plan: autocast, needs 5.37 GiB, less precise
            checkpoint, 2 steps; 0 more; plan: fused + set-to-none + checkpoint, needs 5.37 GiB, same
            checkpoint (1 measure, 0 blocks), 3 steps; 0 more; plan: checkpoint, needs 5.37 GiB, same
            checkpoint (1 measure), 2 steps; 0 more; plan: checkpoint, needs 5.37 GiB, same
            checkpoint (2 blocks), 2 steps; 0 more; plan: checkpoint, needs 5.37 GiB, same
            checkpoint (1 block), 2 steps; 0 more; plan: checkpoint (2 blocks), needs 5.37 GiB, same
            checkpoint (1 block), steady, reserves up to 7.32 GiB; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            autocast, steady, reserves up to 7.32 GiB, work; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            checkpoint (1 block), steady, reserves up to 7.32 GiB, work; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            the unchanged script, 2 steps, work; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            checkpoint (1 block), a validation, on the card, late; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            checkpoint (1 block), a validation, alone on the card; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
        "#]],
    );
}

#[test]
fn while_the_script_fits_as_it_is() {
    at_each_run(
        || {
            Made::new(8_000, |_| Ran { ends: vec![OtherEnd::Overflow], ..takes(4_000) })
                .rules(|it| it.advice = true)
        },
        expect![[r#"
            the unchanged script, steady, sites; 0 more; does not run: interrupted
            the unchanged script, a validation, on the card, overflowing; 0 more; as it is: fits, needs 4.39 GiB
            the unchanged script, a validation, alone on the card; 0 more; as it is: fits, needs 4.39 GiB
            the unchanged script, steady, half as long; 0 more; as it is: fits, needs 4.39 GiB
            the unchanged script, steady, half as many; 0 more; as it is: fits, needs 4.39 GiB
            the unchanged script, steady, half as high and wide; 0 more; as it is: fits, needs 4.39 GiB
            lora, steady; 0 more; as it is: fits, needs 4.39 GiB
            lora + quantization, steady; 0 more; as it is: fits, needs 4.39 GiB
            smaller-model, steady; 0 more; as it is: fits, needs 4.39 GiB
            depthwise, steady; 0 more; as it is: fits, needs 4.39 GiB
            pruning, steady; 0 more; as it is: fits, needs 4.39 GiB
        "#]],
    );
}

#[test]
fn what_was_seen_before_the_proof_was_stopped_counts() {
    let picture = Made::new(8_000, |_| takes(4_000)).stopped_at(1).plans();
    assert!(picture.contains("\nseen: 3 steps\n"), "{picture}");
}

#[test]
fn while_nothing_fits() {
    at_each_run(
        || {
            Made::new(8_000, |run| takes(if run.has("checkpoint") { 9_000 } else { 12_000 }))
                .allow(&["checkpoint"])
        },
        expect![[r#"
            the unchanged script, steady, sites; 0 more; does not run: interrupted
            checkpoint, 2 steps; 0 more; nearest: the unchanged script, needs 12.21 GiB
            checkpoint, 2 steps; 0 more; nearest: the unchanged script, needs 12.21 GiB
            the unchanged script, steady, half as long; 0 more; nearest: checkpoint, needs 9.28 GiB
            the unchanged script, steady, half as many; 0 more; nearest: checkpoint, needs 9.28 GiB
            the unchanged script, steady, half as high and wide; 0 more; nearest: checkpoint, needs 9.28 GiB
            lora, steady; 0 more; nearest: checkpoint, needs 9.28 GiB
            lora + quantization, steady; 0 more; nearest: checkpoint, needs 9.28 GiB
            smaller-model, steady; 0 more; nearest: checkpoint, needs 9.28 GiB
            depthwise, steady; 0 more; nearest: checkpoint, needs 9.28 GiB
            pruning, steady; 0 more; nearest: checkpoint, needs 9.28 GiB
        "#]],
    );
}

#[test]
fn while_steps_are_measured() {
    at_each_run(
        || {
            let made = Made::new(8_000, with_a_plan).allow(&["autocast", "checkpoint"]);
            let made = made.rules(|it| it.measure_in = Some(it.card.total));
            made.steps(|it| {
                let seconds = if it.plan.shown().contains("checkpoint") { 1.0 } else { 2.0 };
                let spread = Spread { count: 9, median: seconds, low: seconds, high: seconds };
                crate::search::Steps { each: vec![spread], ..Default::default() }
            })
        },
        expect![[r#"
            the unchanged script, steady, sites; 0 more; does not run: interrupted
            autocast, 2 steps; 0 more; nearest: the unchanged script, needs 12.21 GiB
            autocast, steady, reserves up to 7.32 GiB; 0 more; plan: autocast, needs 5.37 GiB, less precise
            checkpoint, 2 steps; 0 more; plan: autocast, needs 5.37 GiB, less precise
            checkpoint (1 measure, 0 blocks), 3 steps; 0 more; plan: checkpoint, needs 5.37 GiB, same
            checkpoint (1 measure), 2 steps; 0 more; plan: checkpoint, needs 5.37 GiB, same
            checkpoint (2 blocks), 2 steps; 0 more; plan: checkpoint, needs 5.37 GiB, same
            checkpoint (1 block), 2 steps; 0 more; plan: checkpoint (2 blocks), needs 5.37 GiB, same
            checkpoint (1 block), steady, reserves up to 7.32 GiB; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            autocast, steady, reserves up to 7.32 GiB, work; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            checkpoint (1 block), steady, reserves up to 7.32 GiB, work; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            the unchanged script, 2 steps, work; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            checkpoint (1 block), a validation, on the card, late; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            checkpoint (1 block), a validation, alone on the card; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            checkpoint (1 block), 16 steps on the device; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            autocast, 16 steps on the device; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            checkpoint (1 block), 16 steps on the device; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
            autocast, 16 steps on the device; 0 more; plan: checkpoint (1 block), needs 5.37 GiB, same
        "#]],
    );
}
