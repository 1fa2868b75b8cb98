//! The one cause that a report leads with, of short runs that run out of memory.

use plimsoll_core::{
    explanation::Explanation,
    recording::{CodeLine, Keeper, Keepers, Mark, MarkKind, Notes, OomNote, Phase, Place, Shape},
    trace::{Action, StackId},
    views::{explain_text, text::Styles},
};

use super::program::{MIB, Program};

const TRAINING: u32 = 11;
const VALIDATION: u32 = 31;

fn forward(program: &mut Program, line: u32, layers: u32, size: u64) -> Vec<u64> {
    let stacks: Vec<_> = (1..=layers).map(|it| program.module(line, it)).collect();
    stacks.into_iter().map(|it| program.alloc(size, it)).collect()
}

fn train(program: &mut Program, line: u32, size: u64) {
    let layers = forward(program, line, 8, size);
    for layer in layers.into_iter().rev() {
        let gradient = program.alloc(size, StackId::EMPTY);
        program.free(layer);
        program.free(gradient);
    }
}

/// The code and the line, once `asked` was refused in the model that `line` called.
fn cause(mut program: Program, line: u32, asked: u64) -> (&'static str, Option<u32>) {
    let stack = program.module(line, 40);
    program.event(Action::Oom, 0, asked, stack);
    let cause = program.explain().root_cause().unwrap();
    (cause.code.word(), cause.at.map(|it| it.line))
}

fn trained(steps: u32) -> Program {
    let mut program = Program::default();
    (0..steps).for_each(|_| train(&mut program, TRAINING, 8 * MIB));
    program
}

#[test]
fn the_first_batch_of_a_validation_with_a_graph() {
    let mut program = trained(3);
    forward(&mut program, VALIDATION, 12, 32 * MIB);
    assert_eq!(
        cause(program, VALIDATION, 32 * MIB),
        ("leak/eval-without-no-grad", Some(VALIDATION))
    );
}

#[test]
fn a_validation_that_gives_back_while_it_goes_on_is_too_large_by_itself() {
    let mut program = trained(3);
    let layers = forward(&mut program, VALIDATION, 12, 32 * MIB);
    layers[..10].iter().for_each(|it| program.free(*it));
    assert_eq!(cause(program, VALIDATION, 32 * MIB).0, "size/one-allocation");
}

#[test]
fn a_second_network_in_the_first_step_is_no_validation() {
    let mut program = trained(1);
    forward(&mut program, 14, 12, 32 * MIB);
    assert_eq!(cause(program, 14, 32 * MIB), ("size/activations", Some(14)));
}

#[test]
fn an_input_larger_than_those_before() {
    let mut program = trained(4);
    forward(&mut program, TRAINING, 5, 64 * MIB);
    assert_eq!(cause(program, TRAINING, 64 * MIB).0, "inputs/dynamic-shapes");
}

#[test]
fn the_activations_of_the_first_step() {
    let mut program = Program::default();
    forward(&mut program, TRAINING, 30, 32 * MIB);
    assert_eq!(cause(program, TRAINING, 32 * MIB), ("size/activations", Some(TRAINING)));
}

#[test]
fn a_result_that_is_half_of_all() {
    let mut program = trained(3);
    forward(&mut program, TRAINING, 2, 8 * MIB);
    assert_eq!(cause(program, TRAINING, 300 * MIB).0, "size/one-allocation");
}

#[test]
fn a_gradient_as_large_as_its_parameter_is_the_models() {
    let mut program = Program::default();
    let moved = program.stack(&[
        ("/home/u/train.py", "main", 3),
        ("/venv/site-packages/torch/nn/modules/module.py", "_apply", 1),
    ]);
    program.alloc(400 * MIB, moved);
    program.alloc(300 * MIB, moved);
    forward(&mut program, TRAINING, 4, 2 * MIB);
    // Autograd's thread has no stack.
    program.alloc(2 * MIB, StackId::EMPTY);
    program.event(Action::Oom, 0, 400 * MIB, StackId::EMPTY);
    let cause = program.explain().root_cause().unwrap();
    assert_eq!(cause.code.word(), "size/model-states");
}

#[test]
fn a_caught_error_that_leaves_no_room_for_the_next_batch() {
    let mut program = Program::default();
    forward(&mut program, TRAINING, 12, 32 * MIB);
    let linear = program.module(TRAINING, 13);
    program.event(Action::Oom, 0, 32 * MIB, linear);
    let batch = program.stack(&[("/home/u/train.py", "main", 37)]);
    program.event(Action::Oom, 0, 16 * MIB, batch);
    let cause = program.explain().root_cause().unwrap();
    assert_eq!(
        (cause.code.word(), cause.at.map(|it| it.line)),
        ("leak/traceback-kept", Some(TRAINING))
    );
}

#[test]
fn errors_that_the_program_caught_lead_the_report() {
    let line = |program: &mut Program, line| program.stack(&[("/home/u/train.py", "main", line)]);
    let mut program = Program::default();
    let held = line(&mut program, 5);
    program.alloc(300 * MIB, held);
    let (small, large) = (line(&mut program, 7), line(&mut program, 8));
    program.event(Action::Oom, 10 * MIB, 40 * MIB, small);
    program.event(Action::Oom, 10 * MIB, 90 * MIB, large);
    program.event(Action::Oom, 10 * MIB, 50 * MIB, small);
    program.alloc(8 * MIB, held);
    let told = program.explain();
    assert!(told.ooms.is_empty());
    let shown = explain_text::explanations(&[told], None, Styles::default(), 200).to_string();
    let first = "OUT OF MEMORY, CAUGHT: The program caught 3 out-of-memory errors and went on; the largest requested 90.0 MiB at train.py:8 when tensors used 300.0 MiB, and 0 B of PyTorch's cache and 10.0 MiB of the device were free.";
    let shown_first: Vec<&str> = shown.lines().take(2).map(str::trim).collect();
    assert!(shown_first.join(" ").starts_with(first), "{shown}");
}

#[test]
fn two_lists_that_grow_side_by_side_and_neither_of_which_is_enough() {
    let mut program = Program::default();
    let weights = program.stack(&[("/home/u/train.py", "main", 5)]);
    (0..3).for_each(|_| _ = program.alloc(24 * MIB, weights));
    let targets = program.stack(&[("/home/u/train.py", "main", 22)]);
    for _ in 0..20 {
        // What it gives back is kept, too.
        program.step(false, true);
        program.alloc(20 * MIB, targets);
    }
    let (code, line) = cause(program, TRAINING, 600 * MIB);
    assert!(["growth/per-step", "leak/results-kept"].contains(&code), "{code} at {line:?}");
}

/// Where the program is now.
fn now(program: &Program) -> Place {
    let actions = program.device.events.actions();
    let count = |of: Action| vec![actions.iter().filter(|it| **it == of).count() as u64];
    Place { allocs: count(Action::Alloc), frees: count(Action::FreeRequested) }
}

fn mark(program: &Program, kind: MarkKind) -> Mark {
    Mark {
        kind,
        step: 0,
        place: now(program),
        reserved: vec![],
        allocated: vec![],
        seconds: 0.0,
        with_gradients: false,
        host: None,
        workers: None,
    }
}

/// An inner loop of eight passes, each of which `torch.autograd.grad` goes back through; then `last` calls what is in that file. What the
/// passes made is held by attributes with so many nodes of a graph, if it is held.
fn inner_loop(last: Option<&str>, nodes: Option<u64>) -> (&'static str, Option<u32>) {
    const AUTOGRAD: &str = "/venv/site-packages/torch/autograd/__init__.py";
    let mut program = Program::default();
    let mut made = Vec::new();
    for _ in 0..8 {
        made.extend(forward(&mut program, 21, 6, 20 * MIB));
        let call = program.stack(&[("/home/u/train.py", "adapt", 22), (AUTOGRAD, "grad", 3)]);
        let seed = program.alloc(512, call);
        program.alloc(4 * MIB, StackId::EMPTY);
        program.free(seed);
        if let Some(last) = last {
            let call = program.stack(&[("/home/u/train.py", "main", 23), (AUTOGRAD, last, 3)]);
            let seed = program.alloc(512, call);
            program.alloc(4 * MIB, StackId::EMPTY);
            program.free(seed);
        }
    }
    let keeper = nodes.map(|nodes| Keeper {
        name: "model.layers[...].output".into(),
        what: "attribute".into(),
        nodes,
        addresses: made,
        at: Some(CodeLine { file: "/home/u/train.py".into(), line: 9, ..CodeLine::default() }),
        ..Keeper::default()
    });
    let place = now(&program);
    let entries = keeper.into_iter().collect();
    let keepers = vec![Keepers { place, entries, ..Keepers::default() }];
    let stack = program.module(21, 40);
    program.event(Action::Oom, 0, 20 * MIB, stack);
    let notes = Notes { keepers, ..Notes::default() };
    let cause = program.explain_noted(notes).root_cause().unwrap();
    (cause.code.word(), cause.at.map(|it| it.line))
}

#[test]
fn passes_that_the_steps_own_backward_is_still_to_go_through_are_no_leak() {
    assert_eq!(inner_loop(None, None), ("size/activations", Some(21)));
    assert_eq!(inner_loop(Some("backward"), None).0, "leak/graph-retained");
}

/// Hooks that store `output.detach()` on the modules: no backward pass is to come for that.
#[test]
fn what_somebody_stores_without_its_graph_is_kept() {
    assert_eq!(inner_loop(None, Some(0)), ("leak/results-kept", Some(9)));
    assert_eq!(inner_loop(None, Some(400)), ("size/activations", Some(21)));
}

/// Eight layers whose results wait for the backward pass, of which a variable holds so many.
fn first_pass(held: usize) -> (String, Option<String>) {
    let (mut program, begun) = (Program::default(), Program::default());
    let begin = mark(&begun, MarkKind::Begin(Phase::Forward));
    let layer = program.module(21, 5);
    let sizes = (1..=8).map(|it| (56 + 2 * it) * MIB);
    let made: Vec<u64> = sizes.map(|size| program.alloc(size, layer)).collect();
    let at = CodeLine { file: "/home/u/train.py".into(), line: 9, ..CodeLine::default() };
    let entry = Keeper {
        name: "features".into(),
        what: "variable".into(),
        nodes: 8,
        addresses: made[..held].to_vec(),
        at: Some(at),
        of_largest: Shape { sizes: vec![64, 4096], dtype: "float32".into() },
        ..Keeper::default()
    };
    let entries = vec![entry];
    let keepers = vec![Keepers { place: now(&program), entries, ..Keepers::default() }];
    let stack = program.module(21, 40);
    program.event(Action::Oom, 0, 64 * MIB, stack);
    let ooms = vec![OomNote { phase: Some(Phase::Forward), ..OomNote::default() }];
    let notes = Notes { keepers, ooms, marks: vec![begin], ..Notes::default() };
    let told = program.explain_noted(notes);
    let oom = told.ooms.first().unwrap();
    (oom.root.text.clone(), oom.remedies.first().cloned())
}

/// Where no rule has a name, the largest part has one.
#[test]
fn activations_are_told_with_their_largest_part_and_who_stores_it() {
    let (text, remedy) = first_pass(0);
    assert!(text.contains("520.0 MiB of that in 8 blocks made at "), "{text}");
    assert!(text.contains("autograd stores it for the backward pass"), "{text}");
    assert!(remedy.unwrap().contains("checkpoint"));
    let (text, remedy) = first_pass(6);
    assert!(text.ends_with("`features` (64 x 4096, float32) holds 378.0 MiB of it"), "{text}");
    assert!(!remedy.unwrap().contains("utils.checkpoint"));
}

/// A backward pass wants 4 GiB; a variable has a tensor of that shape, whose storage is small.
fn wanted_beside(is_sparse: bool) -> String {
    let mut program = Program::default();
    let made = forward(&mut program, 21, 1, 8 * MIB);
    let entry = Keeper {
        name: "weights".into(),
        what: "variable".into(),
        addresses: made,
        at: Some(CodeLine { file: "/home/u/train.py".into(), line: 9, ..CodeLine::default() }),
        of_largest: Shape { sizes: vec![32_768, 32_768], dtype: "float32".into() },
        is_sparse,
        ..Keeper::default()
    };
    let entries = vec![entry];
    let keepers = vec![Keepers { place: now(&program), entries, ..Keepers::default() }];
    program.event(Action::Oom, 0, 4096 * MIB, StackId::EMPTY);
    let ooms = vec![OomNote { phase: Some(Phase::Backward), ..OomNote::default() }];
    let told = program.explain_noted(Notes { keepers, ooms, ..Notes::default() });
    told.ooms.first().map(|it| format!("{}; {:?}", it.root.text, it.remedies)).unwrap()
}

#[test]
fn what_is_made_dense_is_told_by_the_sparse_tensor_and_an_expanded_one_is_none() {
    let told = wanted_beside(true);
    let sparse = "the sparse `weights` (32768 x 32768, float32) with all its zeros";
    assert!(told.contains(sparse) && told.contains("index_add_"), "{told}");
    let told = wanted_beside(false);
    assert!(!told.contains("sparse"), "{told}");
}

/// So many evaluations of one line, each of whose results lives until the next is made; the last one is refused.
fn refused_in_pass(passes: u32) -> Vec<(u32, u64)> {
    let (mut program, mut notes) = (Program::default(), Notes::default());
    let mut last = None;
    for pass in 1..=passes {
        let begin = mark(&program, MarkKind::Begin(Phase::Evaluation));
        let stack = program.module(22, 1);
        let result = (pass < passes).then(|| program.alloc(256 * MIB, stack));
        notes.marks.extend([begin, mark(&program, MarkKind::End(Phase::Evaluation))]);
        let Some(result) = result else {
            program.event(Action::Oom, 0, 256 * MIB, stack);
            let phase = Some(Phase::Evaluation);
            notes.ooms.push(OomNote { phase, ..OomNote::default() });
            break;
        };
        if let Some(before) = last.replace(result) {
            program.free(before);
        }
    }
    step_before(program.explain_noted(notes))
}

#[test]
fn the_result_of_the_pass_before_is_found_in_the_second_pass_of_all() {
    assert_eq!(refused_in_pass(2), [(22, 256)]);
    assert_eq!(refused_in_pass(3), [(22, 256)]);
    assert_eq!(refused_in_pass(1), []);
}

/// A rollout that lives for so many steps, and perhaps until the next one is complete, whose request is refused.
fn rollout(is_live: bool, steps: u32) -> Vec<(u32, u64)> {
    let (mut program, mut notes) = (Program::default(), Notes::default());
    let stack = program.stack(&[("/home/u/train.py", "collect", 30)]);
    let before = program.alloc(512 * MIB, stack);
    for step in 1..=steps {
        notes.marks.push(mark(&program, MarkKind::Begin(Phase::Forward)));
        let output = program.step(false, true);
        program.free(output);
        notes.marks.push(mark(&program, MarkKind::End(Phase::Forward)));
        notes.marks.push(Mark { step, ..mark(&program, MarkKind::StepEnd) });
    }
    if !is_live {
        program.free(before);
    }
    program.event(Action::Oom, 0, 512 * MIB, stack);
    notes.ooms.push(OomNote::default());
    step_before(program.explain_noted(notes))
}

fn step_before(explanation: Explanation) -> Vec<(u32, u64)> {
    let found = explanation.findings;
    let found = found.iter().filter(|it| it.code.word() == "outputs/step-before");
    found.map(|it| (it.at.as_ref().unwrap().line, it.bytes.0 / MIB)).collect()
}

/// Its parts are still in a list when they are joined.
#[test]
fn the_parts_of_a_rollout_that_the_one_before_gave_back_are_no_leak() {
    let (mut program, mut notes) = (Program::default(), Notes::default());
    let join = program.stack(&[("/home/u/train.py", "collect", 30)]);
    for round in 0..2 {
        let mut parts = Vec::new();
        for _ in 0..32 {
            notes.marks.push(mark(&program, MarkKind::Begin(Phase::Evaluation)));
            let stack = program.module(22, 1);
            let action = program.alloc(MIB, stack);
            notes.marks.push(mark(&program, MarkKind::End(Phase::Evaluation)));
            program.free(action);
            let stack = program.stack(&[("/home/u/train.py", "collect", 29)]);
            parts.push(program.alloc(32 * MIB, stack));
            parts.push(program.alloc(512, join));
        }
        if round == 1 {
            program.event(Action::Oom, 0, 1024 * MIB, join);
            notes.ooms.push(OomNote { step: 3, ..OomNote::default() });
            break;
        }
        program.alloc(1024 * MIB, join);
        parts.into_iter().for_each(|it| program.free(it));
        for step in 1..=3 {
            notes.marks.push(mark(&program, MarkKind::Begin(Phase::Forward)));
            let output = program.step(false, true);
            program.free(output);
            notes.marks.push(mark(&program, MarkKind::End(Phase::Forward)));
            notes.marks.push(Mark { step, ..mark(&program, MarkKind::StepEnd) });
        }
    }
    let found = program.explain_noted(notes).findings;
    let codes: Vec<&str> = found.iter().map(|it| it.code.word()).collect();
    assert!(codes.contains(&"outputs/step-before"), "{codes:?}");
    assert!(!codes.contains(&"growth/per-step"), "{codes:?}");
}

#[test]
fn the_rollout_before_is_found_when_the_next_is_refused() {
    assert_eq!(rollout(true, 3), [(30, 512)]);
    assert_eq!(rollout(false, 3), []);
    // An average, a queue: the next is computed from the one before.
    assert_eq!(rollout(true, 1), []);
}

/// So many windows of an evaluation by `main`, which fill results of these sizes that `function` made.
fn windows(passes: u32, function: &str, sizes: &[u64]) -> Vec<(u32, u64)> {
    let (mut program, mut notes) = (Program::default(), Notes::default());
    let stack = program.stack(&[("/home/u/train.py", function, 20)]);
    let results: Vec<u64> = sizes.iter().map(|it| program.alloc(it * MIB, stack)).collect();
    for _ in 0..passes {
        notes.marks.push(mark(&program, MarkKind::Begin(Phase::Evaluation)));
        let stack = program.module(22, 1);
        let window = program.alloc(24 * MIB, stack);
        notes.marks.push(mark(&program, MarkKind::End(Phase::Evaluation)));
        program.free(window);
    }
    results.into_iter().for_each(|it| program.free(it));
    let found = program.explain_noted(notes).findings;
    let found = found.iter().filter(|it| it.code.word() == "evaluation/whole-volume");
    found.map(|it| (it.at.as_ref().unwrap().line, it.bytes.0 / MIB)).collect()
}

#[test]
fn a_whole_volume_is_what_many_windows_of_its_function_fill() {
    assert_eq!(windows(6, "main", &[400]), [(20, 400)]);
    assert_eq!(
        windows(6, "main", &[300, 300]),
        [(20, 600)],
        "a result, and how often each place was counted"
    );
    assert_eq!(windows(3, "main", &[400]), [], "few windows");
    assert_eq!(windows(6, "tables", &[400]), [], "made by who does not call the model");
    assert_eq!(windows(6, "main", &[20]), [], "small");
    assert_eq!(windows(6, "main", &[20; 30]), [], "parts of a list");
}

#[test]
fn a_line_between_the_model_and_its_backward_pass_is_no_layer() {
    let mut program = Program::default();
    for line in [36, 37] {
        forward(&mut program, line, 4, MIB);
        let scores = program.module(line, 19);
        program.alloc(300 * MIB, scores);
    }
    let loss = program.stack(&[("/home/u/train.py", "divergence", 28)]);
    program.event(Action::Oom, 0, 300 * MIB, loss);
    let cause = program.explain().root_cause().unwrap();
    assert_eq!((cause.code.word(), cause.at.map(|it| it.line)), ("size/one-allocation", Some(28)));
}

#[test]
fn what_has_half_of_all_is_the_cause_of_a_small_request_beside_it() {
    let ask = |size: u64, asked: u64| {
        let mut program = Program::default();
        let [windows, targets] =
            [12, 13].map(|line| program.stack(&[("/home/u/data.py", "windows", line)]));
        program.alloc(20 * MIB, targets);
        program.alloc(size * MIB, windows);
        program.event(Action::Oom, 0, asked * MIB, targets);
        let cause = program.explain().root_cause().unwrap();
        (cause.code.word(), cause.at.map(|it| it.line))
    };
    assert_eq!(ask(900, 200), ("size/one-allocation", Some(12)));
    assert_eq!(ask(300, 200), ("size/one-allocation", Some(13)));
}

/// A request of 3 layers fits; one of 12 runs out, and so does the next one, which has 3 again, if the error `is_kept`.
fn serves_after_an_error(is_kept: bool) -> (&'static str, Option<u32>) {
    let mut program = Program::default();
    let mut notes = Notes::default();
    let weights = program.stack(&[
        ("/home/u/serve.py", "main", 5),
        ("/venv/site-packages/torch/nn/modules/module.py", "_apply", 1),
    ]);
    program.alloc(64 * MIB, weights);
    for layers in [3, 12, 3] {
        notes.marks.push(mark(&program, MarkKind::Begin(Phase::Evaluation)));
        let made = forward(&mut program, 22, layers, 32 * MIB);
        if layers == 12 {
            let linear = program.module(22, 13);
            program.event(Action::Oom, 0, 32 * MIB, linear);
        }
        if layers != 12 || !is_kept {
            made.into_iter().for_each(|it| program.free(it));
        }
    }
    let next = program.module(22, 40);
    program.event(Action::Oom, 0, 64 * MIB, next);
    let cause = program.explain_noted(notes).root_cause().unwrap();
    (cause.code.word(), cause.at.map(|it| it.line))
}

#[test]
fn a_request_that_failed_and_whose_error_is_kept() {
    assert_eq!(serves_after_an_error(true), ("leak/traceback-kept", Some(22)));
    assert_ne!(serves_after_an_error(false).0, "leak/traceback-kept");
}

/// The first step of an optimizer whose states are made at line 29 of `file`; it runs out in a temporary, at line 45.
fn first_step_of(file: &str) -> Explanation {
    let mut program = Program::default();
    let moved = program.stack(&[
        ("/home/u/train.py", "main", 3),
        ("/venv/site-packages/torch/nn/modules/module.py", "_apply", 1),
    ]);
    program.alloc(20 * MIB, moved);
    train(&mut program, TRAINING, 4 * MIB);
    let inside = |program: &mut Program, line| {
        program.stack(&[
            ("/home/u/train.py", "main", 68),
            ("/venv/site-packages/torch/optim/optimizer.py", "wrapper", 500),
            (file, "step", line),
        ])
    };
    let [states, temporaries] = [29, 45].map(|line| inside(&mut program, line));
    (0..4).for_each(|_| _ = program.alloc(180 * MIB, states));
    let temporary = program.alloc(180 * MIB, temporaries);
    program.free(temporary);
    program.alloc(180 * MIB, states);
    program.event(Action::Oom, 0, 180 * MIB, temporaries);
    program.explain()
}

#[test]
fn the_states_of_an_optimizer_of_ones_own_have_their_line() {
    for (file, line) in
        [("/home/u/shampoo.py", 29), ("/venv/site-packages/torch/optim/adamw.py", 68)]
    {
        let report = first_step_of(file);
        let cause = report.root_cause().unwrap();
        assert_eq!((cause.code.word(), cause.at.unwrap().line), ("size/model-states", line));
    }
}
