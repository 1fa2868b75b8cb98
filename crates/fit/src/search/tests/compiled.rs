//! A script that compiles takes long, and all cores are to be used meanwhile.

use std::collections::BTreeMap;

use expect_test::expect;
use plimsoll_core::{
    plan::{Op, Remedy},
    prediction::OtherEnd,
    recording::Work,
};

use super::made::{Made, fails, takes};
use crate::search::{Look, Noted, On, Ran, Run};

const REMEDIES: [&str; 3] = ["chunked-loss", "micro-batches", "checkpoint"];

/// One that is compiled: it takes 12,000 MiB, so many less with its loss in chunks, and half of it in two parts. `anew`: whether a run finds
/// nothing that is compiled.
fn compiled(saved_by_chunks: u64, anew: fn(&Run) -> bool) -> Made {
    compiled_on(8_000, saved_by_chunks, anew, |mib| mib / 10 * 14)
}

/// The same on a card with so much memory. `written`: what it takes where nothing is compiled.
fn compiled_on(
    card: u64,
    saved_by_chunks: u64,
    anew: fn(&Run) -> bool,
    written: fn(u64) -> u64,
) -> Made {
    let made = Made::new(card, move |run| {
        let counts = matches!(run.look, Some(Look::Work | Look::SitesAndWork));
        let parts = run.remedy("micro-batches").and_then(Remedy::parts).unwrap_or(1);
        let saved = if run.has("chunked-loss") { saved_by_chunks } else { 0 };
        let kept = if run.has("checkpoint") { 9_000 } else { 10_000 };
        let (op, dtype) = (Op::Matmul, "float32".to_owned());
        let work = Work { op, dtype, count: 100.0, flops: 1e12, bytes: 1e6 };
        let noted = Noted {
            compiles: true,
            compiled_anew: anew(run),
            idle: Some(BTreeMap::new()),
            work: if counts { vec![work] } else { Vec::new() },
            ..Noted::default()
        };
        let took = 2_000 + kept / parts - saved;
        Ran { noted, ..takes(if counts { written(took) } else { took }) }
    });
    made.allow(&REMEDIES).rules(|it| it.speaks_of_compile = true)
}

#[test]
fn it_is_looked_at_as_it_is_written_while_it_compiles() {
    expect![[r#"
        the unchanged script, steady, sites, work -> 16.89 GiB
        chunked-loss, 2 steps, work -> 16.89 GiB
        micro-batches (2 parts), 2 steps, work -> 10.06 GiB
        micro-batches (4 parts), 2 steps, work -> 6.64 GiB
        the unchanged script, steady -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        micro-batches (2 parts), steady -> 7.32 GiB
        micro-batches (2 parts), steady, reserves up to 7.32 GiB -> 7.32 GiB
        checkpoint, 2 steps, work -> 15.53 GiB
        " checkpoint: needs at least 15.53 GiB before anything is compiled, too much to compile it
        micro-batches (2 parts), steady, reserves up to 7.32 GiB -> 7.32 GiB
        micro-batches (2 parts), a validation, alone on the card, with what is compiled -> 7.32 GiB
        as it is: does not fit, needs 12.21 GiB
        plan: micro-batches (2 parts), needs 7.32 GiB, dropout, batch-norm, 1.00x
        seen: 3 steps
    "#]]
    .assert_eq(&compiled(0, |_| true).plans());
}

/// What is free and saves nothing would be compiled in each plan, and again without it.
#[test]
fn what_is_free_is_used_where_it_saves_something() {
    let first = |it: &str| {
        it.lines()
            .filter(|it| !it.starts_with('"') && !it.contains("work ->"))
            .take(4)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    expect![[r#"
        the unchanged script, steady -> 12.21 GiB
        micro-batches (2 parts), steady -> 7.32 GiB
        micro-batches (2 parts), steady, reserves up to 7.32 GiB -> 7.32 GiB
        micro-batches (2 parts), steady, reserves up to 7.32 GiB -> 7.32 GiB"#]]
    .assert_eq(&first(&compiled(4_000, |_| true).plans()).join("\n"));
}

/// To compile takes long: nothing is compiled that took far too much as it is written, unless there is no other plan.
#[test]
fn what_scouts_saw_to_take_far_too_much_is_not_compiled() {
    let runs = |it: Made| {
        let all = it.plans();
        let is_one = |it: &&str| !it.contains("reserves up to") && !it.contains("alone");
        all.lines().filter(is_one).map(|it| format!("{it}\n")).collect::<String>()
    };
    expect![[r#"
        the unchanged script, steady, sites, work -> 16.89 GiB
        chunked-loss, 2 steps, work -> 16.89 GiB
        micro-batches (2 parts), 2 steps, work -> 10.06 GiB
        micro-batches (4 parts), 2 steps, work -> 6.64 GiB
        micro-batches (8 parts), 2 steps, work -> 4.93 GiB
        checkpoint, 2 steps, work -> 15.53 GiB
        the unchanged script, steady -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        " micro-batches (2 parts): needs at least 10.06 GiB before anything is compiled, too much to compile it
        micro-batches (4 parts), steady -> 4.88 GiB
        " checkpoint: needs at least 15.53 GiB before anything is compiled, too much to compile it
        as it is: does not fit, needs 12.21 GiB
        plan: micro-batches (4 parts), needs 4.88 GiB, dropout, batch-norm, 1.00x
        seen: 3 steps
    "#]]
    .assert_eq(&runs(compiled_on(5_000, 0, |_| true, |mib| mib / 10 * 14)));
    // Where compiling saves the same of each, two parts are enough.
    expect![[r#"
        the unchanged script, steady, sites, work -> 15.14 GiB
        chunked-loss, 2 steps, work -> 15.14 GiB
        micro-batches (2 parts), 2 steps, work -> 10.25 GiB
        micro-batches (4 parts), 2 steps, work -> 7.81 GiB
        micro-batches (8 parts), 2 steps, work -> 6.59 GiB
        the unchanged script, steady -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        " micro-batches (2 parts): needs at least 10.25 GiB before anything is compiled, too much to compile it
        micro-batches (4 parts), steady -> 4.88 GiB
        micro-batches (2 parts), steady -> 7.32 GiB
        checkpoint, 2 steps, work -> 14.16 GiB
        " checkpoint: needs at least 14.16 GiB before anything is compiled, too much to compile it
        as it is: does not fit, needs 12.21 GiB
        plan: micro-batches (2 parts), needs 7.32 GiB, dropout, batch-norm, 1.00x
        seen: 3 steps
    "#]]
    .assert_eq(&runs(compiled_on(7_500, 0, |_| true, |mib| mib + 3_000)));
    expect![[r#"
        the unchanged script, steady, sites, work -> 16.89 GiB
        chunked-loss, 2 steps, work -> 16.89 GiB
        micro-batches (2 parts), 2 steps, work -> 10.06 GiB
        micro-batches (4 parts), 2 steps, work -> 6.64 GiB
        micro-batches (8 parts), 2 steps, work -> 4.93 GiB
        checkpoint, 2 steps, work -> 15.53 GiB
        the unchanged script, steady -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        " micro-batches (2 parts): needs at least 10.06 GiB before anything is compiled, too much to compile it
        " micro-batches (4 parts): needs at least 6.64 GiB before anything is compiled, too much to compile it
        " checkpoint: needs at least 15.53 GiB before anything is compiled, too much to compile it
        micro-batches (2 parts) + checkpoint, 2 steps, work -> 9.38 GiB
        " micro-batches (2 parts) + checkpoint: needs at least 9.38 GiB before anything is compiled, too much to compile it
        micro-batches (4 parts) + checkpoint, 2 steps, work -> 6.30 GiB
        " micro-batches (4 parts) + checkpoint: needs at least 6.30 GiB before anything is compiled, too much to compile it
        chunked-loss, steady -> 12.21 GiB
        micro-batches (2 parts), steady -> 7.32 GiB
        micro-batches (16 parts), steady -> 3.05 GiB
        checkpoint, steady -> cut
        micro-batches (2 parts) + checkpoint, steady -> 6.84 GiB
        micro-batches (16 parts) + checkpoint, steady -> 2.99 GiB
        as it is: does not fit, needs 12.21 GiB
        nearest: micro-batches (16 parts) + checkpoint, needs 2.99 GiB
    "#]].assert_eq(&runs(compiled_on(1_900, 0, |_| true, |mib| mib / 10 * 14)));
}

/// What it takes to compile was not seen in a run that found some of it.
#[test]
fn a_plan_that_found_something_compiled_is_compiled_once_more_for_its_proof() {
    let proofs = |it: &Made| {
        let all = it.plans();
        all.lines().filter(|it| it.contains("alone")).collect::<Vec<_>>().join("\n")
    };
    expect!["micro-batches (2 parts), a validation, alone on the card -> 7.32 GiB"]
        .assert_eq(&proofs(&compiled(0, |it| it.plan.remedies.is_empty())));
    expect!["micro-batches (2 parts), a validation, alone on the card, with what is compiled -> 7.32 GiB"].assert_eq(&proofs(&compiled(0, |_| true)));
}

#[test]
fn one_that_speaks_of_compiling_and_compiles_nothing_is_as_any_other() {
    let made = Made::new(8_000, |run| {
        let noted = Noted { idle: Some(BTreeMap::new()), ..Noted::default() };
        Ran { noted, ..takes(if run.has("checkpoint") { 5_000 } else { 12_000 }) }
    });
    let made = made.allow(&["chunked-loss", "checkpoint"]).rules(|it| it.speaks_of_compile = true);
    expect![[r#"
        the unchanged script, steady, sites, work -> 12.21 GiB
        the unchanged script, steady -> 12.21 GiB
        " without changes: 12.21 GiB to be safe
        chunked-loss, 2 steps -> cut
        chunked-loss + checkpoint, 2 steps -> 5.37 GiB
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

#[test]
fn one_that_does_not_run_as_it_is_written_is_looked_at_as_it_is() {
    let made = Made::new(8_000, |run| match run.look {
        Some(Look::SitesAndWork) => fails("only what is compiled runs"),
        _ => takes(6_000),
    });
    let made = made.rules(|it| it.speaks_of_compile = true);
    expect![[r#"
        the unchanged script, steady, sites, work -> only what is compiled runs
        the unchanged script, steady, sites -> 6.35 GiB
        " without changes: at least 6.35 GiB to be safe
        the unchanged script, a validation, alone on the card -> 6.35 GiB
        as it is: fits, needs 6.35 GiB
        seen: 3 steps
    "#]]
    .assert_eq(&made.plans());
}

/// One whose convolutions take what workspaces there is room for is tried on the card as it is: at once with all that is compiled, and once
/// more without where that fits.
#[test]
fn what_does_not_fit_with_all_that_is_compiled_is_not_compiled_again_for_that() {
    let on_card = |mib: u64| {
        let made = Made::new(8_000, move |run| {
            let noted = Noted { compiles: true, compiled_anew: true, ..Noted::default() };
            let took = if run.on == On::Roomy { 12_000 } else { mib };
            let ends = vec![OtherEnd::Workspaces];
            Ran { noted, ends, ..takes(took) }
        });
        let all = made.allow(&["checkpoint"]).rules(|it| it.speaks_of_compile = true).plans();
        all.lines().filter(|it| it.contains("alone")).collect::<Vec<_>>().join("\n")
    };
    expect!["the unchanged script, a validation, alone on the card, with what is compiled, reserves up to 7.32 GiB -> out of memory"].assert_eq(&on_card(9_000));
    expect![[r#"
        the unchanged script, a validation, alone on the card, with what is compiled, reserves up to 7.32 GiB -> 6.35 GiB
        the unchanged script, a validation, alone on the card, with what is compiled, largest workspaces, reserves up to 7.32 GiB -> 6.35 GiB
        the unchanged script, a validation, alone on the card, reserves up to 7.32 GiB -> 6.35 GiB
        the unchanged script, a validation, alone on the card, largest workspaces, reserves up to 7.32 GiB -> 6.35 GiB"#]].assert_eq(&on_card(6_000));
}
