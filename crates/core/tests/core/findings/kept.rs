//! What stays: rarely, of each evaluation, of a batch that is far larger than the others, in a bank that is full.

use plimsoll_core::{explanation::Explanation, units::Bytes};

use super::program::{MIB, Program};

fn growths(it: &Explanation) -> Vec<(&'static str, u32, Bytes)> {
    let growths = it
        .findings
        .iter()
        .filter(|it| it.code.word().starts_with("leak/") || it.code.word().starts_with("growth/"));
    growths.map(|it| (it.code.word(), it.at.as_ref().unwrap().line, it.bytes)).collect()
}

/// A bank that `cat` makes longer in each step, up to `most` rows of 4 MiB.
fn bank(steps: u64, most: u64) -> Vec<(&'static str, u32, Bytes)> {
    let mut program = Program::default();
    let mut bank = None;
    for step in 1..=steps {
        let output = program.step(false, true);
        program.free(output);
        let stack = program.stack(&[("/home/u/train.py", "main", 18)]);
        let longer = program.alloc(4 * MIB * step.min(most), stack);
        if let Some(old) = bank.replace(longer) {
            program.free(old);
        }
    }
    growths(&program.explain())
}

#[test]
fn a_bank_grows_until_it_is_full_and_no_longer() {
    let code =
        |it: Vec<(&'static str, u32, Bytes)>| it.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>();
    assert_eq!(code(bank(40, 1000)), [("growth/per-step", 18)]);
    for steps in [44, 50, 70] {
        assert_eq!(code(bank(steps, 40)), [], "{steps}");
    }
}

/// What `train` returns lives until the next step is over; each tenth step it goes into a list, too.
#[test]
fn what_each_tenth_step_keeps_is_found_after_thirty() {
    let told = |keeps: bool| {
        let mut program = Program::default();
        let mut last = Vec::new();
        for step in 0..30 {
            let stack = program.module(16, 1);
            let error = program.alloc(MIB, stack);
            let output = program.step(false, true);
            program.free(output);
            if !(keeps && step % 10 == 0) {
                last.push(error);
            }
            if 2 < last.len() {
                program.free(last.remove(0));
            }
        }
        growths(&program.explain()).iter().map(|it| (it.0, it.1)).collect::<Vec<_>>()
    };
    assert_eq!(told(true), [("leak/results-kept", 16)]);
    assert_eq!(told(false), []);
}

/// A list comprehension over scales: three results of the picture before are still in a variable, and two of the next one are far larger.
#[test]
fn results_of_a_larger_picture_are_no_growth() {
    let told = |sizes: [u64; 5]| {
        let mut program = Program::default();
        let input = program.step(false, true);
        program.free(input);
        for size in sizes {
            let stack = program.module(26, 1);
            let inside = program.alloc(MIB, stack);
            program.free(inside);
            let stack = program.stack(&[("/home/u/train.py", "main", 39)]);
            program.alloc(size * MIB, stack);
        }
        let stack = program.module(26, 1);
        program.alloc(MIB, stack);
        growths(&program.explain()).iter().map(|it| it.1).collect::<Vec<_>>()
    };
    assert!(told([60, 60, 60, 3600, 3600]).is_empty());
    assert_eq!(told([60, 60, 60, 60, 60]), [39]);
}
