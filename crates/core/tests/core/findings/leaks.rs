//! What leaks is found at its line, and what only looks like it is not.

use plimsoll_core::{
    explanation::Explanation,
    recording::{Begin, CodeLine, DeviceStats, Keeper, Keepers, Notes, OomNote, Place},
    trace::{Action, BlockState, PoolId, StackId},
    units::Bytes,
};

use super::program::{MIB, Program};

fn growths(it: &Explanation) -> Vec<(&'static str, u32, Bytes)> {
    let growths = it
        .findings
        .iter()
        .filter(|it| it.code.word().starts_with("leak/") || it.code.word().starts_with("growth/"));
    growths.map(|it| (it.code.word(), it.at.as_ref().unwrap().line, it.bytes)).collect()
}

#[test]
fn kept_graphs_are_a_leak_and_its_line_is_the_forward_pass() {
    let mut program = Program::default();
    for _ in 0..8 {
        program.step(true, true);
    }
    assert_eq!(
        growths(&program.explain()).iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(),
        [("leak/graph-retained", 11)]
    );
}

#[test]
fn without_a_backward_pass_no_grad_is_missing() {
    let mut program = Program::default();
    for _ in 0..8 {
        program.step(true, false);
    }
    assert_eq!(growths(&program.explain())[0].0, "leak/eval-without-no-grad");
}

#[test]
fn outputs_alone_are_results() {
    let mut program = Program::default();
    for _ in 0..8 {
        program.step(false, false);
    }
    let found = growths(&program.explain());
    assert_eq!((found[0].0, found[0].1), ("leak/results-kept", 11));
}

/// Layers that are called one by one, each checkpointed: their inputs are there until the step's backward pass comes to them.
#[test]
fn what_the_calls_of_one_step_leave_for_its_backward_pass_is_no_leak() {
    let mut program = Program::default();
    let (between, layer) =
        (program.stack(&[("/home/u/train.py", "main", 10)]), program.module(11, 1));
    let caller = program.stack(&[
        ("/home/u/train.py", "main", 12),
        ("/venv/site-packages/torch/autograd/__init__.py", "backward", 1),
    ]);
    for step in 0..2 {
        let inputs: Vec<u64> = (0..12)
            .map(|_| {
                let passing = program.alloc(MIB, between);
                program.free(passing);
                program.alloc(20 * MIB, layer)
            })
            .collect();
        let seed = program.alloc(2 * MIB, caller);
        if step == 1 {
            program.runs_out(60 * MIB, 0);
            break;
        }
        program.free(seed);
        inputs.into_iter().for_each(|it| program.free(it));
    }
    assert_eq!(growths(&program.explain()), []);
}

/// A model whose layers are all made at one line, as those of `nn.Sequential`: in each step `sizes` at once, the last of which
/// is kept. Its last step runs out.
fn layers_of_one_line(steps: usize, sizes: &dyn Fn(usize) -> Vec<u64>) -> Explanation {
    let mut program = Program::default();
    for step in 0..=steps {
        let layers: Vec<u64> = sizes(step)
            .into_iter()
            .map(|size| {
                let stack = program.module(11, 1);
                program.alloc(size, stack)
            })
            .collect();
        if step == steps {
            program.runs_out(60 * MIB, 0);
            break;
        }
        let caller = program.stack(&[
            ("/home/u/train.py", "main", 12),
            ("/venv/site-packages/torch/autograd/__init__.py", "backward", 1),
        ]);
        let seed = program.alloc(2 * MIB, caller);
        program.free(seed);
        layers.split_last().unwrap().1.iter().for_each(|it| program.free(*it));
        let optimizer = program.stack(&[
            ("/home/u/train.py", "main", 13),
            ("/venv/site-packages/torch/optim/sgd.py", "step", 1),
        ]);
        let passing = program.alloc(MIB, optimizer);
        program.free(passing);
    }
    program.explain()
}

#[test]
fn what_the_last_step_works_on_is_no_measure_of_what_each_keeps() {
    let said = |it: &Explanation| it.root_cause().unwrap().text;
    let layers = |_| vec![64 * MIB, 96 * MIB, 128 * MIB, 12 * MIB];
    let found = said(&layers_of_one_line(23, &layers));
    assert!(
        found.contains("results of 23 steps stay on the device: 276.0 MiB, 12.0 MiB more in each"),
        "{found}"
    );

    // Texts of any length: the long ones do not hide that the short ones stay, too.
    let layers = |step: usize| vec![64 * MIB, if step % 4 == 3 { 40 * MIB } else { 2 * MIB }];
    let found = said(&layers_of_one_line(24, &layers));
    assert!(
        found.contains("results of 24 steps stay on the device: 276.0 MiB, 11.5 MiB more in each"),
        "{found}"
    );
}

#[test]
fn results_that_the_script_makes_of_outputs_are_no_graph() {
    let mut program = Program::default();
    for _ in 0..8 {
        let output = program.step(false, true);
        // Three in each step, half of what the step makes.
        let softmax = program.stack(&[("/home/u/train.py", "main", 20)]);
        (0..3).for_each(|_| {
            program.alloc(40 * MIB, softmax);
        });
        program.free(output);
    }
    let found = growths(&program.explain());
    assert_ne!(found[0].0, "leak/graph-retained", "{found:?}");
    assert_eq!(found[0].1, 20);
}

#[test]
fn a_state_that_is_carried_on_by_a_model_called_part_by_part() {
    // Four calls and one backward pass in each episode, no optimizer; it ends within one.
    let mut program = Program::default();
    for episode in 0..7 {
        for part in 0..4 {
            let between = program.stack(&[("/home/u/train.py", "main", 9)]);
            let seen = program.alloc(MIB, between);
            for layer in 1..=3 {
                let stack = program.module(11, 10 * part + layer);
                program.alloc(4 * MIB, stack);
            }
            program.free(seen);
        }
        if episode != 6 {
            let caller = program.stack(&[
                ("/home/u/train.py", "main", 12),
                ("/venv/site-packages/torch/autograd/__init__.py", "backward", 1),
            ]);
            let seed = program.alloc(2 * MIB, caller);
            let gradient = program.alloc(4 * MIB, StackId::EMPTY);
            program.free(seed);
            program.free(gradient);
        }
    }
    let found = growths(&program.explain());
    assert_eq!((found[0].0, found[0].1), ("leak/graph-retained", 11));
}

#[test]
fn what_a_module_keeps_is_told_at_the_line_in_it() {
    let kept_layer = |kept: u32| {
        let mut program = Program::default();
        for _ in 0..10 {
            let layers: Vec<u64> = (1..=6)
                .map(|it| {
                    let stack = program.module(11, it);
                    program.alloc(20 * MIB, stack)
                })
                .collect();
            let others = (1..).zip(layers).filter(|(layer, _)| *layer != kept);
            others.for_each(|(_, it)| program.free(it));
            let step = [
                ("/home/u/train.py", "main", 13),
                ("/venv/site-packages/torch/optim/sgd.py", "step", 1),
            ];
            let stack = program.stack(&step);
            let passing = program.alloc(2 * MIB, stack);
            program.free(passing);
        }
        let found = growths(&program.explain());
        (found[0].0, found[0].1)
    };
    assert_eq!(kept_layer(3), ("leak/results-kept", 3));
    assert_eq!(kept_layer(6), ("leak/results-kept", 11), "what it made last, it gave back");
}

#[test]
fn a_healthy_run_and_a_ring_of_outputs_are_no_leak() {
    let mut healthy = Program::default();
    for _ in 0..8 {
        let output = healthy.step(false, true);
        healthy.free(output);
    }
    assert_eq!(growths(&healthy.explain()), []);

    let mut ring = Program::default();
    let mut outputs = std::collections::VecDeque::new();
    for _ in 0..16 {
        outputs.push_back(ring.step(false, true));
        if 4 < outputs.len() {
            let oldest = outputs.pop_front().unwrap();
            ring.free(oldest);
        }
    }
    assert_eq!(growths(&ring.explain()), []);
}

impl Program {
    /// A healthy step, after which the lines `kept` of one function each keep `size` bytes.
    fn step_that_keeps(&mut self, kept: &[u32], size: u64) {
        let output = self.step(false, true);
        self.free(output);
        for line in kept {
            let stack = self.stack(&[("/home/u/train.py", "main", *line)]);
            self.alloc(size, stack);
        }
    }

    /// A request of `size` fails, with `free` left on the device.
    fn runs_out(&mut self, size: u64, free: u64) {
        let stack = self.module(11, 3);
        self.event(Action::Oom, free, size, stack);
    }
}

#[test]
fn a_little_in_each_step_is_told_once_it_cannot_be_chance() {
    let mut long = Program::default();
    (0..40).for_each(|_| long.step_that_keeps(&[20], 8 << 10));
    let found = long.explain();
    assert_eq!(growths(&found), [("growth/per-step", 20, Bytes(39 * (8 << 10)))]);
    let evidence =
        &found.findings.iter().find(|it| it.code.word() == "growth/per-step").unwrap().evidence;
    assert!(evidence.iter().any(|it| it == "that is 78.1 MiB in 10000 steps"), "{evidence:?}");

    let mut short = Program::default();
    (0..6).for_each(|_| short.step_that_keeps(&[20], 8 << 10));
    assert_eq!(growths(&short.explain()), [], "six steps are no proof");

    let mut tiny = Program::default();
    (0..40).for_each(|_| tiny.step_that_keeps(&[20], 64));
    assert_eq!(growths(&tiny.explain()), [], "a long run would not notice");
}

/// A mask for each of so many lengths, made when the length first comes.
fn keeps_a_mask_for_each_of(lengths: u64, steps: u64) -> Program {
    let mut program = Program::default();
    let (mut seen, mut random) = (std::collections::BTreeSet::new(), 1_u64);
    for _ in 0..steps {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let is_new = seen.insert((random >> 33) % lengths);
        program.step_that_keeps(if is_new { &[20] } else { &[] }, 2 * MIB);
    }
    program
}

#[test]
fn a_cache_with_a_place_for_each_length_grows_until_it_is_full() {
    let codes = |lengths: u64, steps: u64| -> Vec<&'static str> {
        let told = keeps_a_mask_for_each_of(lengths, steps).explain();
        told.findings
            .iter()
            .map(|it| it.code.word())
            .filter(|it| *it != "peak/composition")
            .collect()
    };
    assert!(codes(200, 100).contains(&"growth/per-step"));
    assert!(codes(200, 430).contains(&"growth/per-step"), "it is nearly full");
    // What a full one holds makes later steps larger, and no input does.
    let full = codes(40, 400);
    assert!(
        !full.contains(&"growth/per-step") && !full.contains(&"inputs/dynamic-shapes"),
        "{full:?}"
    );
}

#[test]
fn what_stays_is_found_beside_what_is_replaced() {
    // One line makes a state that is kept, and an output that lives until the next one is there.
    let mut program = Program::default();
    let mut last = None;
    for _ in 0..12 {
        let stack = program.module(9, 1);
        program.alloc(4 * MIB, stack);
        let output = program.alloc(36 * MIB, stack);
        if let Some(old) = last.replace(output) {
            program.free(old);
        }
        let output = program.step(false, true);
        program.free(output);
    }
    let found = program.explain();
    assert_eq!(growths(&found).iter().map(|it| it.1).collect::<Vec<_>>(), [9], "{found:?}");
}

#[test]
fn a_cache_that_fills_up_to_a_bound_does_not_grow() {
    // Memory is at its highest while it fills, with a few entries in it.
    for (spike, bound) in [(4, 5), (5, 5), (6, 8), (4, 6), (4, 4), (20, 4), (40, 4), (40, 3)] {
        let mut program = Program::default();
        let mut cache = std::collections::VecDeque::new();
        for step in 1..=40 {
            let stack = program.module(11, 1);
            cache.push_back(program.alloc(4 * MIB, stack));
            if bound < cache.len() {
                cache.pop_front().into_iter().for_each(|old| program.free(old));
            }
            if step == spike {
                let large = program.alloc(200 * MIB, stack);
                program.free(large);
            }
            let output = program.step(false, true);
            program.free(output);
        }
        let found = program.explain();
        assert_eq!(growths(&found), [], "{bound} entries, most memory in step {spike}: {found:?}");
    }
}

#[test]
fn a_list_that_each_episode_clears_does_not_grow() {
    for (steps, length) in [(24, 4), (26, 4), (31, 6), (40, 10), (44, 10)] {
        let mut program = Program::default();
        let mut kept = Vec::new();
        for step in 0..steps {
            kept.push(program.step(false, true));
            if step % length == length - 1 {
                kept.drain(..).for_each(|it| program.free(it));
            }
        }
        let found = program.explain();
        assert_eq!(growths(&found), [], "{steps} steps, cleared each {length}: {found:?}");
    }

    // One that no episode clears, beside one that they clear.
    let mut program = Program::default();
    let mut kept = Vec::new();
    for step in 0..24 {
        kept.push(program.step(false, true));
        if step % 4 == 3 {
            kept.drain(..).for_each(|it| program.free(it));
        }
        let stack = program.stack(&[("/home/u/train.py", "main", 20)]);
        program.alloc(MIB, stack);
    }
    assert_eq!(growths(&program.explain()).iter().map(|it| it.1).collect::<Vec<_>>(), [20]);
}

#[test]
fn lines_that_grow_together_are_one_finding() {
    let mut program = Program::default();
    (0..12).for_each(|_| program.step_that_keeps(&[20, 21], MIB));
    assert_eq!(growths(&program.explain()), [("growth/per-step", 20, Bytes(2 * 11 * MIB))]);
}

#[test]
fn an_error_is_a_leaks_if_the_request_fits_without_it() {
    let mut program = Program::default();
    for _ in 0..8 {
        program.step(true, true);
    }
    program.runs_out(20 * MIB, 0);
    let oom = program.explain().ooms.remove(0);
    assert_eq!((oom.cause.word(), oom.is_proven), ("leak", true));
    assert!(oom.remedies[0].contains("replayed without them, the request fits"), "{oom:#?}");
    let blocks: u64 = oom.enough.iter().map(|(_, _, blocks)| blocks).sum();
    assert_eq!((blocks, oom.enough[0].1), (1, Bytes(20 * MIB)), "one of them is enough");
}

#[test]
fn an_error_of_a_healthy_run_is_its_size() {
    let mut program = Program::default();
    for _ in 0..4 {
        let output = program.step(false, true);
        program.free(output);
    }
    let stack = program.module(11, 1);
    let kept: Vec<u64> = (0..3).map(|_| program.alloc(20 * MIB, stack)).collect();
    program.runs_out(30 * MIB, 2 * MIB);
    let oom = program.explain().ooms.remove(0);
    assert_eq!((oom.cause.word(), oom.is_proven, kept.len()), ("size", true, 3));
    let blocks: u64 = oom.enough.iter().map(|(_, _, blocks)| blocks).sum();
    assert_eq!(blocks, 2, "no single block of 20 MiB makes room for 30 MiB: {:?}", oom.enough);
    assert!(oom.in_vain.iter().any(|it| it.contains("still runs out")), "{oom:#?}");
}

#[test]
fn what_was_not_recorded_is_not_called_healthy() {
    let nothing = Program::default().explain();
    assert!(!nothing.is_sure(), "{nothing:?}");

    let mut frees = Program::default();
    frees.event(Action::FreeRequested, 4096, 512, StackId::EMPTY);
    frees.event(Action::FreeCompleted, 4096, 512, StackId::EMPTY);
    let frees = frees.explain();
    assert!(frees.unsure.unwrap().starts_with("the recording has 2 frees and no allocation"));

    let mut end_only = Program::default();
    end_only.segment(1 << 30, 64 * MIB, PoolId(0), BlockState::Allocated);
    let mut end_only = end_only.explain();
    assert!(end_only.unsure.as_ref().unwrap().starts_with("the recording has no events"));
    // Where the file is cut, they may be in the rest.
    end_only.heed(["byte 300".to_owned()], true);
    assert!(end_only.unsure.unwrap().starts_with("the file is cut off"));

    let mut cut = Program::default();
    let output = cut.step(false, true);
    cut.free(output);
    let mut cut = cut.explain();
    assert!(cut.is_sure());
    cut.heed(["byte 300".to_owned()], true);
    assert!(!cut.is_sure());
}

#[test]
fn a_ring_that_lost_events_says_how_many_where_somebody_counted() {
    let lost = |counted: Option<u64>| {
        let mut program = Program::default();
        program.step(false, true);
        let made = program.device.events.actions().iter().filter(|it| **it == Action::Alloc);
        let made = made.count() as u64;
        let stats =
            counted.map(|lost| DeviceStats { allocs: made + lost, ..DeviceStats::default() });
        let begin = counted.map(|_| Begin::default());
        let notes = Notes { begin, stats: stats.into_iter().collect(), ..Notes::default() };
        let explanation = program.explain_noted(notes);
        let is_said =
            explanation.findings.iter().any(|it| it.code.word() == "recording/ring-too-small");
        let window = explanation.window.unwrap();
        assert_eq!(window.overwritten, is_said);
        (is_said, window.overwritten_allocations)
    };
    assert_eq!(lost(None), (false, None));
    assert_eq!(lost(Some(0)), (false, Some(0)));
    assert_eq!(lost(Some(7)), (true, Some(7)));
}

#[test]
fn what_a_backward_pass_makes_on_another_device_has_the_line_that_called_it() {
    const AUTOGRAD: &str = "/venv/site-packages/torch/autograd/__init__.py";
    let mut program = Program::default();
    for line in [12, 15] {
        let layer = program.module(line, 1);
        let activation = program.alloc(20 * MIB, layer);
        // The loss, and with it the call, is on the second device.
        program.switch_device();
        let call =
            program.stack(&[("/home/u/train.py", "main", line + 1), (AUTOGRAD, "backward", 3)]);
        program.alloc(2 * MIB, call);
        program.switch_device();
        program.alloc(u64::from(line) * MIB, StackId::EMPTY);
        program.free(activation);
    }
    let found = program.explain();
    let made =
        found.findings.iter().find(|it| it.code.word() == "peak/composition" && it.device == 0);
    let made = made.unwrap().evidence.join("\n");
    for told in ["12.0 MiB by backward of train.py:13", "15.0 MiB by backward of train.py:16"] {
        assert!(made.contains(told), "{made}");
    }
}

#[test]
fn what_a_hook_keeps_of_each_layer_is_told_at_its_line() {
    let mut program = Program::default();
    for _ in 0..10 {
        for layer in 1..=3 {
            let made = program.module(11, layer);
            let made = program.alloc(20 * MIB, made);
            let hook = program.module(11, 40);
            program.alloc(4 * MIB, hook);
            program.free(made);
        }
        let step = program.stack(&[
            ("/home/u/train.py", "main", 13),
            ("/venv/site-packages/torch/optim/sgd.py", "step", 1),
        ]);
        let passing = program.alloc(2 * MIB, step);
        program.free(passing);
    }
    let found = growths(&program.explain());
    assert_eq!((found[0].0, found[0].1), ("leak/results-kept", 40), "{found:?}");
}

/// Ten steps that each keep four of a pass's results, a small part of what it made, and perhaps the pass's input, which is larger.
fn keeps_some(with_input: bool) -> (&'static str, u32) {
    let mut program = Program::default();
    let mut input = None;
    for _ in 0..10 {
        let line = program.stack(&[("/home/u/train.py", "main", 10)]);
        let batch = program.alloc(30 * MIB, line);
        if let Some(old) = input.replace(batch).filter(|_| !with_input) {
            program.free(old);
        }
        for layer in 1..=4 {
            let layer = program.module(11, layer);
            program.alloc(4 * MIB, layer);
            // Room to compute in.
            let scratch = program.alloc(20 * MIB, layer);
            program.free(scratch);
        }
        let call = program.stack(&[
            ("/home/u/train.py", "main", 12),
            ("/venv/site-packages/torch/autograd/__init__.py", "backward", 1),
        ]);
        let seed = program.alloc(512, call);
        let gradient = program.alloc(2 * MIB, StackId::EMPTY);
        program.free(seed);
        program.free(gradient);
    }
    let found = growths(&program.explain());
    (found[0].0, found[0].1)
}

#[test]
fn a_graph_holds_its_input_and_results_do_not() {
    assert_eq!(keeps_some(false), ("leak/results-kept", 11));
    assert_eq!(keeps_some(true), ("leak/graph-retained", 11));
}

/// What a tracker holds is told at the line that fills it; what nobody is known to hold, where it was allocated.
#[test]
fn a_leak_is_told_at_the_line_of_who_holds_it() {
    let told = |share: usize| {
        let mut program = Program::default();
        let outputs: Vec<u64> = (0..8).map(|_| program.step(false, false)).collect();
        // An input, six layers and what was freed of them, in each step.
        let place = Place { allocs: vec![8 * 7], frees: vec![8 * 6] };
        let line =
            |line: u32| CodeLine { file: "/home/u/train.py".into(), line, ..CodeLine::default() };
        let keeper = Keeper {
            name: "tracker.total[...]".into(),
            what: "container".into(),
            addresses: outputs.into_iter().take(share).collect(),
            at: Some(line(40)),
            inner: Some(line(5)),
            ..Keeper::default()
        };
        let keepers = vec![Keepers { place, device: 0, entries: vec![keeper] }];
        let told = program.explain_noted(Notes { keepers, ..Notes::default() });
        let found =
            told.findings.into_iter().find(|it| it.code.word() == "leak/results-kept").unwrap();
        (found.at.unwrap().line, found.made_at.map(|it| it.line), found.evidence.join("; "))
    };
    let (at, made, evidence) = told(8);
    assert_eq!((at, made), (40, Some(11)));
    let first = "`tracker.total[...]` holds 140.0 MiB of it (a container); train.py:5 puts it there; allocated at train.py:11";
    assert!(evidence.starts_with(first), "{evidence}");
    let (at, made, _) = told(0);
    assert_eq!((at, made), (11, None));
}

/// The remedy fits who holds it: a cache of functools has a size, a chain of objects has a link.
#[test]
fn each_kind_of_keeper_has_a_remedy_of_its_own() {
    let remedy = |what: &str, link: Option<&str>| {
        let mut program = Program::default();
        let addresses = (0..8).map(|_| program.step(false, false)).collect();
        let keeper = Keeper {
            name: "bias[...]".into(),
            what: what.into(),
            addresses,
            at: Some(CodeLine { file: "/home/u/train.py".into(), line: 40, ..CodeLine::default() }),
            link: link.map(str::to_owned),
            ..Keeper::default()
        };
        let place = Place { allocs: vec![8 * 7], frees: vec![8 * 6] };
        let keepers = vec![Keepers { place, device: 0, entries: vec![keeper] }];
        let told = program.explain_noted(Notes { keepers, ..Notes::default() });
        let mut found = told.findings.into_iter();
        found.find(|it| it.code.word() == "leak/results-kept").unwrap().remedy
    };
    assert!(remedy("cache", None).contains("`bias.cache_clear()`"));
    assert!(remedy("attribute", Some("parent")).contains("set `.parent = None`"));
    assert!(remedy("cycle", None).contains("`while True: yield from loader`"));
    assert!(remedy("context", None).contains("ctx.save_for_backward"));
    assert!(remedy("variable", None).starts_with("move each one at once"));
}

/// A list of pairs, whose members two functions made, is one leak.
#[test]
fn what_one_object_holds_is_told_once() {
    let told = |is_one: bool| {
        let mut program = Program::default();
        let stacks = [("accuracy", 12), ("entropy", 30)]
            .map(|(function, line)| program.stack(&[("/home/u/train.py", function, line)]));
        let mut held = [Vec::new(), Vec::new()];
        for _ in 0..8 {
            program.step_that_keeps(&[], 0);
            for (stack, held) in stacks.iter().zip(&mut held) {
                held.push(program.alloc(2 * MIB, *stack));
            }
        }
        let line =
            |line: u32| CodeLine { file: "/home/u/train.py".into(), line, ..CodeLine::default() };
        let keeper = |name: &str, addresses: Vec<u64>| Keeper {
            name: name.into(),
            what: "container".into(),
            addresses,
            at: Some(line(50)),
            ..Keeper::default()
        };
        let entries = match (is_one, held) {
            (true, held) => vec![keeper("pairs[...]", held.concat())],
            (false, [a, b]) => vec![keeper("a[...]", a), keeper("b[...]", b)],
        };
        let actions = program.device.events.actions();
        let count = |of: Action| vec![actions.iter().filter(|it| **it == of).count() as u64];
        let place = Place { allocs: count(Action::Alloc), frees: count(Action::FreeRequested) };
        let keepers = vec![Keepers { place, device: 0, entries }];
        let told = program.explain_noted(Notes { keepers, ..Notes::default() });
        let found = told.findings.into_iter().filter(|it| it.code.word().starts_with("growth/"));
        found.map(|it| it.title).collect::<Vec<_>>()
    };
    assert_eq!(
        told(true),
        ["memory stays allocated after 7 of 8 steps: 28.0 MiB, 4.0 MiB in each"]
    );
    assert_eq!(told(false).len(), 2);
}

/// A replay memory is no leak without end: how large it becomes is known.
#[test]
fn a_buffer_of_limited_length_is_told_with_its_size_when_full() {
    let mut program = Program::default();
    let outputs: Vec<u64> = (0..8).map(|_| program.step(false, false)).collect();
    let keeper = Keeper {
        name: "self.memory[...]".into(),
        what: "container".into(),
        limit: Some((8, 80)),
        addresses: outputs,
        at: Some(CodeLine { file: "/home/u/train.py".into(), line: 40, ..CodeLine::default() }),
        ..Keeper::default()
    };
    let place = Place { allocs: vec![8 * 7], frees: vec![8 * 6] };
    let keepers = vec![Keepers { place, device: 0, entries: vec![keeper] }];
    let told = program.explain_noted(Notes { keepers, ..Notes::default() });
    let found = &told.findings[0];
    assert_eq!(
        found.title,
        "a buffer of limited length fills up on the device: 160.0 MiB so far, 1.56 GiB when full"
    );
    let held =
        "`self.memory[...]` holds 140.0 MiB of it (a container with 8 of at most 80 members)";
    assert_eq!(found.evidence[0], held);
    assert!(found.remedy.contains("`self.memory`") && found.remedy.contains("maxlen"));
}

/// What the Trainer collects in an evaluation is no result of one line, and no input; the option that helps is named.
#[test]
fn logits_that_a_trainer_collects_have_their_own_name() {
    let told = |function: &str, tensors: usize| {
        let mut program = Program::default();
        program.step(false, false);
        let stack = program.stack(&[
            ("/home/u/train.py", "main", 28),
            ("/venv/site-packages/transformers/trainer_pt_utils.py", function, 117),
        ]);
        let mut all: Vec<u64> = (0..tensors).map(|_| program.alloc(60 * MIB, stack)).collect();
        for batch in 2..=16 {
            for one in &mut all {
                let larger = program.alloc(60 * MIB * batch, stack);
                program.free(std::mem::replace(one, larger));
            }
        }
        let told = program.explain();
        let found = told.findings.into_iter().map(|it| (it.code.word(), it.title, it.remedy));
        found
            .filter(|it| it.0.starts_with("growth/") || it.0.starts_with("size/one"))
            .collect::<Vec<_>>()
    };
    let found = told("nested_concat", 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].1.starts_with("the Trainer's evaluation collects"), "{found:?}");
    assert!(found[0].2.contains("eval_accumulation_steps"));
    // Hidden states of nine layers are no keys and values.
    let found = told("nested_concat", 9);
    assert_eq!(found[0].0, "growth/per-step", "{found:?}");
    assert!(found[0].1.contains("hidden states") && found[0].2.contains("output_hidden_states"));
    assert!(told("join", 1).iter().any(|it| it.1.starts_with("one tensor was made anew")));
}

/// A decoder that is called for each token, and runs out before the one backward pass: that needs all of these passes.
#[test]
fn passes_before_a_backward_pass_that_was_to_come_are_no_leak() {
    let cause = |goes_back: bool| {
        let mut program = Program::default();
        (0..8).for_each(|_| {
            program.step(true, false);
        });
        program.runs_out(60 * MIB, 0);
        let ooms = vec![OomNote { goes_back, ..OomNote::default() }];
        let told = program.explain_noted(Notes { ooms, ..Notes::default() });
        told.root_cause().unwrap().code.word()
    };
    assert_eq!(cause(true), "size/activations");
    assert_eq!(cause(false), "leak/eval-without-no-grad");
}
