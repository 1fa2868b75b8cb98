//! A graph that no backward pass uses is found where it is thrown away, and what only looks like it is not.

use plimsoll_core::{
    explanation::Explanation,
    recording::{Mark, MarkKind, Notes, OomNote, Phase, Place},
    trace::{Action, StackId},
    units::Bytes,
};

use super::program::{MIB, Program};

const LAYERS: u32 = 30;
const TRAINING: u32 = 11;
const VALIDATION: u32 = 31;

fn found(it: &Explanation) -> Vec<(u32, Bytes)> {
    let found = it.findings.iter().filter(|it| it.code.word() == "evaluation/unused-graph");
    found.map(|it| (it.at.as_ref().unwrap().line, it.bytes)).collect()
}

/// The layers of a pass that keeps its graph.
fn forward(program: &mut Program, line: u32, size: u64) -> Vec<u64> {
    let stacks: Vec<_> = (1..=LAYERS).map(|it| program.module(line, it)).collect();
    stacks.into_iter().map(|it| program.alloc(size, it)).collect()
}

fn train(program: &mut Program, line: u32) {
    let layers = forward(program, line, 8 * MIB);
    for layer in layers.into_iter().rev() {
        let gradient = program.alloc(8 * MIB, StackId::EMPTY);
        program.free(layer);
        program.free(gradient);
    }
}

fn validate(program: &mut Program, line: u32) {
    let layers = forward(program, line, 32 * MIB);
    layers.into_iter().for_each(|it| program.free(it));
}

#[test]
fn a_validation_with_a_graph_is_found_at_its_line() {
    let mut program = Program::default();
    for _ in 0..2 {
        (0..4).for_each(|_| train(&mut program, TRAINING));
        (0..3).for_each(|_| validate(&mut program, VALIDATION));
    }
    // A pass without a graph holds four of the thirty.
    assert_eq!(found(&program.explain()), [(VALIDATION, Bytes::mib(26 * 32))]);
}

/// After so many allocations and frees.
fn mark(kind: MarkKind, step: u32, (allocs, frees): (u64, u64)) -> Mark {
    Mark {
        kind,
        step,
        place: Place { allocs: vec![allocs], frees: vec![frees] },
        reserved: vec![],
        allocated: vec![],
        seconds: 0.0,
        with_gradients: false,
        host: None,
        workers: None,
    }
}

/// Lightning gives the optimizer a closure with both passes. What the frozen part of a model makes is large, and no evaluation.
#[test]
fn a_forward_pass_in_a_closure_has_its_backward_pass_after_it() {
    let (mut program, mut notes) = (Program::default(), Notes::default());
    let (mut allocs, mut frees) = (0, 0);
    for step in 0..4 {
        let mut at = |kind, place| notes.marks.push(mark(kind, step, place));
        at(MarkKind::Begin(Phase::Optimizer), (allocs, frees));
        at(MarkKind::Begin(Phase::Forward), (allocs, frees));
        let layers = forward(&mut program, TRAINING, 32 * MIB);
        allocs += u64::from(LAYERS);
        at(MarkKind::End(Phase::Forward), (allocs, frees));
        let loss = program.alloc(MIB, StackId::EMPTY);
        allocs += 1;
        at(MarkKind::Begin(Phase::Backward), (allocs, frees));
        let gradient = program.alloc(MIB, StackId::EMPTY);
        allocs += 1;
        layers.into_iter().for_each(|it| program.free(it));
        frees += u64::from(LAYERS);
        at(MarkKind::End(Phase::Backward), (allocs, frees));
        [loss, gradient].into_iter().for_each(|it| program.free(it));
        frees += 2;
        at(MarkKind::End(Phase::Optimizer), (allocs, frees));
        at(MarkKind::StepEnd, (allocs, frees));
    }
    let large = forward(&mut program, TRAINING, 64 * MIB);
    notes.marks.push(mark(MarkKind::Begin(Phase::Optimizer), 4, (allocs, frees)));
    notes.marks.push(mark(MarkKind::Begin(Phase::Forward), 4, (allocs, frees)));
    large.into_iter().for_each(|it| program.free(it));
    assert_eq!(found(&program.explain_noted(notes)), []);
}

/// A pyramid of features, as detectors have one, goes at once when its pass ends, whether there was a graph or not.
#[test]
fn a_pass_whose_gradients_were_off_has_no_graph() {
    let served = |with_gradients: bool| {
        let (mut program, mut notes) = (Program::default(), Notes::default());
        for n in 1..=3 {
            let n_allocated = u64::from(LAYERS) * n;
            for (kind, so_far, freed) in [
                (MarkKind::Begin(Phase::Evaluation), n_allocated - u64::from(LAYERS), n - 1),
                (MarkKind::End(Phase::Evaluation), n_allocated, n),
            ] {
                notes.marks.push(Mark {
                    with_gradients,
                    ..mark(kind, 0, (so_far, u64::from(LAYERS) * freed))
                });
            }
            validate(&mut program, VALIDATION);
        }
        found(&program.explain_noted(notes))
    };
    assert_eq!(served(true).len(), 1);
    assert_eq!(served(false), []);
}

/// A script that halves its batch until it fits: the passes that ran out were to train.
#[test]
fn a_pass_that_ran_out_of_memory_and_was_given_up_is_none() {
    let attempts = |fails: bool| {
        let mut program = Program::default();
        for _ in 0..3 {
            let layers = forward(&mut program, TRAINING, 32 * MIB);
            if fails {
                program.event(Action::Oom, 0, 32 * MIB, StackId::EMPTY);
            }
            layers.into_iter().for_each(|it| program.free(it));
        }
        (0..4).for_each(|_| train(&mut program, VALIDATION));
        found(&program.explain())
    };
    assert_eq!(attempts(true), []);
    assert_eq!(attempts(false).len(), 1);
}

#[test]
fn training_alone_is_none() {
    let mut program = Program::default();
    (0..6).for_each(|_| train(&mut program, TRAINING));
    assert_eq!(found(&program.explain()), []);
}

#[test]
fn a_pass_that_gives_back_while_it_goes_on_is_none() {
    let mut program = Program::default();
    (0..4).for_each(|_| train(&mut program, TRAINING));
    for _ in 0..3 {
        let mut before = None;
        for layer in 1..=LAYERS {
            let stack = program.module(VALIDATION, layer);
            let output = program.alloc(256 * MIB, stack);
            if let Some(before) = before.replace(output) {
                program.free(before);
            }
        }
        before.into_iter().for_each(|it| program.free(it));
    }
    assert_eq!(found(&program.explain()), []);
}

#[test]
fn outputs_of_all_layers_are_little_of_what_was_made() {
    let mut program = Program::default();
    for _ in 0..3 {
        let mut outputs = Vec::new();
        for layer in 1..=LAYERS {
            let inside = program.module(VALIDATION, 100 + layer);
            let between: Vec<u64> = (0..6).map(|_| program.alloc(32 * MIB, inside)).collect();
            let stack = program.module(VALIDATION, layer);
            outputs.push(program.alloc(32 * MIB, stack));
            between.into_iter().for_each(|it| program.free(it));
        }
        outputs.into_iter().for_each(|it| program.free(it));
    }
    assert_eq!(found(&program.explain()), []);
}

/// A validation that runs out in its first pass: an attribution looks the same, but goes on to `torch.autograd.grad`.
#[test]
fn a_pass_that_died_before_its_backward_pass_is_no_evaluation() {
    let died = |goes_back: bool| {
        let mut program = Program::default();
        for _ in 0..4 {
            train(&mut program, TRAINING);
            let optimizer = program.stack(&[
                ("/home/u/train.py", "main", 13),
                ("/venv/site-packages/torch/optim/sgd.py", "step", 1),
            ]);
            let passing = program.alloc(MIB, optimizer);
            program.free(passing);
        }
        forward(&mut program, VALIDATION, 32 * MIB);
        let stack = program.module(VALIDATION, 3);
        program.event(Action::Oom, 0, 40 * MIB, stack);
        let oom = OomNote { goes_back, ..OomNote::default() };
        program.explain_noted(Notes { ooms: vec![oom], ..Notes::default() })
    };
    let lines = |it: &Explanation| found(it).iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(lines(&died(false)), [VALIDATION]);
    let attribution = died(true);
    assert!(lines(&attribution).is_empty());
    assert_eq!(attribution.root_cause().unwrap().code.word(), "size/activations");
}
