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

/// The codes of what is found in a recording.
fn codes(of: &plimsoll_core::recording::Recording) -> Vec<&'static str> {
    let found = explanation::of_recording("a test", of, &[]);
    found.findings.iter().map(|it| it.code.word()).collect()
}

/// A closure of L-BFGS is inside of the optimizer's step: its losses wait for a backward pass, and no evaluation ran out.
#[test]
fn a_closure_that_runs_out_before_its_backward_pass_is_no_evaluation() {
    let mut text = "alloc weights 20MiB\nname weights parameter w\nbegin optimizer\n".to_owned();
    for pass in 0..6 {
        writeln!(text, "begin forward\nalloc a{pass} 60MiB at train.py:11\nend forward\nalloc l{pass} 512B at train.py:12").unwrap();
    }
    let mut closure = recording(&(text + "begin forward\noom 60MiB\n"));
    closure.notes.ooms[0].goes_back = true;
    let found = codes(&closure);
    assert!(found.contains(&"backward/many-passes"), "{found:?}");
    assert!(!found.contains(&"leak/eval-without-no-grad"), "{found:?}");
}

/// IPython keeps the last error: the smaller batch that is tried then runs out beside the failed one.
#[test]
fn an_error_that_the_agent_told_of_keeps_its_pass() {
    let text = "alloc weights 20MiB\nname weights parameter w\nbegin forward\nalloc a 600MiB at train.py:11\noom 80MiB caught\nend forward\nbegin forward\nalloc b 100MiB at train.py:11\noom 80MiB\n";
    let found = codes(&recording(text));
    assert!(found.contains(&"leak/traceback-kept"), "{found:?}");
}

/// One recording of a collection is far longer than the others.
#[test]
fn an_input_far_larger_than_those_before_is_named() {
    let told = |last: &str, is_of_parts: bool| {
        let mut text = "alloc weights 20MiB\nname weights parameter w\n".to_owned();
        for n in 0..6 {
            if is_of_parts {
                writeln!(text, "alloc x{n} 10MiB at train.py:5\nfree x{n}").unwrap();
                continue;
            }
            writeln!(text, "alloc x{n} 10MiB at train.py:5\nname x{n} input x\nbegin evaluation\nalloc a{n} 20MiB at train.py:10\nfree a{n}\nend evaluation\nfree x{n}").unwrap();
        }
        text += &format!(
            "alloc x {last} at train.py:5\nname x input x\nbegin evaluation\noom 800MiB\n"
        );
        let found = explanation::of_recording("a test", &recording(&text), &[]);
        found.root_cause().unwrap().text.clone()
    };
    assert!(
        told("200MiB", false)
            .contains("its input has 200.0 MiB, each of the 6 before at most 10.0 MiB")
    );
    assert!(!told("12MiB", false).contains("its input"));
    assert!(!told("200MiB", true).contains("its input"), "what one batch is made of");
}

/// Keys and values of a decoder: each pass joins them with those of a token, while what it was given is there.
#[test]
fn a_cache_that_each_pass_makes_anew_is_there_twice() {
    let told = |longer: &str| {
        let mut text =
            "alloc weights 20MiB\nname weights parameter w\nbegin evaluation\n".to_owned();
        for layer in 0..8 {
            writeln!(text, "alloc k{layer} 60MiB at train.py:10").unwrap();
        }
        text += "end evaluation\nalloc token 512B at train.py:20\nbegin evaluation\n";
        for layer in 0..6 {
            writeln!(text, "alloc n{layer} {longer} at train.py:12").unwrap();
        }
        codes(&recording(&(text + "oom 61MiB\n")))
    };
    assert!(told("61MiB").contains(&"copies/double-buffer"));
    assert!(!told("60MiB").contains(&"copies/double-buffer"), "activations of equal size");
    assert!(!told("90MiB").contains(&"copies/double-buffer"));
}
