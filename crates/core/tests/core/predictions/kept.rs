//! What `explain` says of marked runs: results of each evaluation, and passes that wait for one backward pass.

use std::fmt::Write;

use expect_test::{Expect, expect};
use plimsoll_core::explanation;

use super::recorder::recording;

/// The findings of a recording that a person would act on: code, line, title.
fn check(program: &str, expect: Expect) {
    let found = explanation::of_recording("a test", &recording(program), &[]);
    let mut said = String::new();
    for it in found.findings.iter().filter(|it| !it.remedy.is_empty()) {
        let line = it.at.as_ref().map_or(0, |it| it.line);
        writeln!(said, "{}:{line} {}", it.code.word(), it.title).unwrap();
    }
    expect.assert_eq(&said);
}

fn step(text: &mut String, n: u32) {
    write!(text, "begin forward\nalloc a{n} 8MiB at train.py:10\nend forward\nbegin backward\nend backward\nfree a{n}\nbegin optimizer\nend optimizer\nstep\n").unwrap();
}

/// Two epochs of six steps, an evaluation after each.
fn evaluated(clears: bool) -> String {
    let mut text = "alloc weights 20MiB\nname weights parameter w\n".to_owned();
    for n in 0..14 {
        if n == 6 || n == 12 {
            for batch in 0..4 {
                writeln!(text, "begin evaluation\nalloc t{n}{batch} 6MiB at train.py:20\nalloc r{n}{batch} 3MiB at train.py:20\nfree t{n}{batch}\nend evaluation").unwrap();
            }
            if clears {
                (0..4).for_each(|batch| writeln!(text, "free r{n}{batch}").unwrap());
            }
        }
        step(&mut text, n);
    }
    text
}

#[test]
fn what_each_of_two_evaluations_leaves_is_told() {
    check(
        &evaluated(false),
        expect![[r#"
        growth/per-step:20 results of 2 evaluations stay on the device: 24.0 MiB, 12.0 MiB of each
    "#]],
    );
    check(&evaluated(true), expect![[""]]);
}

/// Losses of several passes are added up before one backward pass, or each is walked at once.
fn accumulated(sums: bool) -> String {
    let mut text = "alloc weights 20MiB\nname weights parameter w\n".to_owned();
    for step in 0..3 {
        for pass in 0..5 {
            let name = format!("{step}{pass}");
            writeln!(text, "begin forward\nalloc a{name} 60MiB at train.py:11\nend forward\nalloc l{name} 512B at train.py:12").unwrap();
            if !sums {
                writeln!(text, "begin backward\nend backward\nfree a{name}\nfree l{name}").unwrap();
            }
        }
        if sums {
            writeln!(text, "begin backward\nend backward").unwrap();
            (0..5)
                .for_each(|pass| writeln!(text, "free a{step}{pass}\nfree l{step}{pass}").unwrap());
        }
        writeln!(text, "begin optimizer\nend optimizer\nstep").unwrap();
    }
    text
}

#[test]
fn passes_that_wait_for_one_backward_pass_are_told() {
    check(
        &accumulated(true),
        expect![[r#"
            backward/many-passes:11 5 calls of a model at one line wait for one backward pass: 300.0 MiB
        "#]],
    );
    check(&accumulated(false), expect![[""]]);
}

/// A forward pass, or a loss, in which one line stores a result ten times; the module's name, if each is in another one.
fn unrolled(per_turn: &str, runs_out: bool, modules: impl Fn(u32) -> String) -> String {
    let mut text = "alloc weights 20MiB\nname weights parameter w\n".to_owned();
    for step in 0..3 {
        writeln!(text, "begin forward").unwrap();
        for turn in 0..10 {
            writeln!(text, "alloc a{step}{turn} {per_turn} at train.py:11{}", modules(turn))
                .unwrap();
        }
        if step == 2 && runs_out {
            writeln!(text, "oom 90MiB").unwrap();
            break;
        }
        writeln!(text, "end forward\nbegin backward\nend backward").unwrap();
        (0..10).for_each(|turn| writeln!(text, "free a{step}{turn}").unwrap());
        writeln!(text, "begin optimizer\nend optimizer\nstep").unwrap();
    }
    text
}

#[test]
fn results_of_each_turn_of_a_loop_in_one_pass_are_told_and_layers_are_none() {
    for module in [" in matcher", ""] {
        check(
            &unrolled("60MiB", true, |_| module.to_owned()),
            expect![[r#"
                backward/unrolled-loop:11 the results of a loop wait for the backward pass: 600.0 MiB, of which one line made 10 of 60.0 MiB each
            "#]],
        );
    }
    check(&unrolled("60MiB", true, |turn| format!(" in layers.{turn}")), expect![[""]]);
    // A recurrent network that fits.
    check(&unrolled("60MiB", false, |_| " in matcher".to_owned()), expect![[""]]);
    // Less than other things take.
    check(&unrolled("1MiB", true, |_| " in matcher".to_owned()), expect![[""]]);
}
