//! Findings of runs that go on after an error, hold their data on the device, or join what they collected; each beside one that
//! only looks like it.

use plimsoll_core::{
    explanation::Explanation,
    trace::{Action, StackId},
};

use super::program::{MIB, Program};

fn found<'a>(it: &'a Explanation, code: &str) -> Option<&'a plimsoll_core::findings::Finding> {
    it.findings.iter().find(|it| it.code.word() == code)
}

/// Two steps, a pass that fails and is tried again; `holds` says whether its tensors are there then.
fn tried_again(holds: bool, refused: &str) -> Explanation {
    let mut program = Program::default();
    for _ in 0..2 {
        let output = program.step(false, true);
        program.free(output);
    }
    let stacks: Vec<StackId> = (1..=5).map(|it| program.module(11, it)).collect();
    let made: Vec<u64> = stacks.iter().map(|it| program.alloc(20 * MIB, *it)).collect();
    let refused = program.stack(&[
        ("/home/u/train.py", "main", 11),
        ("/venv/site-packages/torch/nn/modules/module.py", "_call_impl", 5),
        (refused, "forward", 5),
    ]);
    program.event(Action::Oom, 0, 20 * MIB, refused);
    if !holds {
        made.iter().for_each(|it| program.free(*it));
    }
    for _ in 0..2 {
        let output = program.step(false, true);
        program.free(output);
    }
    program.explain()
}

#[test]
fn a_caught_error_that_keeps_its_pass() {
    const LINEAR: &str = "/venv/site-packages/torch/nn/modules/linear.py";
    const CONVOLUTION: &str = "/venv/site-packages/torch/nn/modules/conv.py";
    let report = tried_again(true, LINEAR);
    let it = found(&report, "leak/traceback-kept").unwrap();
    assert_eq!((it.bytes.0, it.at.as_ref().unwrap().line), (100 * MIB, 11));
    assert_eq!(found(&tried_again(false, LINEAR), "leak/traceback-kept"), None);
    // Scratch memory that cuDNN does not get is no error.
    assert_eq!(found(&tried_again(true, CONVOLUTION), "leak/traceback-kept"), None);
}

/// Blocks of one line before training; `gradients` says whether the backward pass has some of their size.
fn begins_with(blocks: usize, gradients: bool) -> Explanation {
    let mut program = Program::default();
    let data = program.stack(&[("/home/u/train.py", "main", 5)]);
    for _ in 0..blocks {
        program.alloc(16 * MIB, data);
    }
    for _ in 0..3 {
        let layers: Vec<u64> = (1..=3)
            .map(|it| {
                let stack = program.module(11, it);
                program.alloc(20 * MIB, stack)
            })
            .collect();
        for layer in layers {
            let size = if gradients { 16 } else { 20 };
            let gradient = program.alloc(size * MIB, StackId::EMPTY);
            program.free(gradient);
            program.free(layer);
        }
    }
    program.explain()
}

#[test]
fn all_data_on_the_device_is_not_some_of_it_nor_weights() {
    let report = begins_with(20, false);
    let it = found(&report, "inputs/all-on-device").unwrap();
    assert_eq!((it.bytes.0, it.count, it.at.as_ref().unwrap().line), (320 * MIB, 20, 5));
    assert_eq!(found(&begins_with(4, false), "inputs/all-on-device"), None);
    assert_eq!(found(&begins_with(20, true), "inputs/all-on-device"), None);
}

/// Parts of one line, and a request as large as all of them.
fn joins(in_a_model: bool) -> Explanation {
    let mut program = Program::default();
    let collected = program.stack(&[("/home/u/train.py", "main", 20)]);
    let output = program.step(false, true);
    program.free(output);
    for _ in 0..8 {
        let stack = if in_a_model { program.module(11, 1) } else { collected };
        program.alloc(32 * MIB, stack);
    }
    let join = program.stack(&[("/home/u/train.py", "main", 30)]);
    program.event(Action::Oom, 0, 256 * MIB, join);
    program.explain()
}

#[test]
fn parts_and_the_whole_are_twice_the_same() {
    let report = joins(false);
    let cause = report.root_cause().unwrap();
    assert_eq!((cause.code.word(), cause.at.unwrap().line), ("copies/double-buffer", 30));
    // What a model made is needed on the way back.
    assert_ne!(joins(true).root_cause().unwrap().code.word(), "copies/double-buffer");
}

/// Something is kept in each step.
fn keeps(size: u64) -> String {
    let mut program = Program::default();
    for _ in 0..40 {
        let output = program.step(false, true);
        program.free(output);
        let kept = program.module(12, 9);
        program.alloc(size, kept);
    }
    let report = program.explain();
    found(&report, "leak/results-kept").unwrap().remedy.clone()
}

#[test]
fn numbers_that_are_kept_are_told_to_be_read_and_results_to_be_moved() {
    assert!(keeps(512).contains("store its `.item()`"), "{}", keeps(512));
    assert!(keeps(2 * MIB).starts_with("move each one at once"), "{}", keeps(2 * MIB));
}
