//! For each kind of finding two pictures: a program that has it, and one that only looks like it.

use plimsoll_core::{
    explanation::Explanation,
    findings::Weight,
    recording::{PhantomDevice, PhantomReport, Recording},
    trace::{
        Action, Block, BlockState, Event, PoolId, Segment, SizeClass, StackId, StreamId, TextId,
    },
    units::Bytes,
};

use super::program::{MIB, Program};

const TORCH: &str = "/venv/lib/python3.12/site-packages/torch";

/// A model of four parameters of 10 MiB that is trained.
struct Training {
    program: Program,
    parameters: usize,
    gradients: Vec<u64>,
    has_states: bool,
    /// The stack of autograd's threads: C++ frames, if the recorder kept them.
    engine: StackId,
    /// The parameters and states of the last model.
    model: Vec<u64>,
}

impl Training {
    fn new() -> Training {
        let mut res = Training {
            program: Program::default(),
            parameters: 4,
            gradients: Vec::new(),
            has_states: false,
            engine: StackId::EMPTY,
            model: Vec::new(),
        };
        res.make_model();
        res
    }

    /// Moves a model of four parameters to the device.
    fn make_model(&mut self) {
        let moved = self.at(3, &[("nn/modules/module.py", "_apply")]);
        self.model = (0..self.parameters).map(|_| self.program.alloc(10 * MIB, moved)).collect();
        self.has_states = false;
    }

    /// Copies the model with `copy.deepcopy`.
    fn copy_model(&mut self) {
        let copied = self.at(37, &[("nn/parameter.py", "__deepcopy__")]);
        self.model = (0..self.parameters).map(|_| self.program.alloc(10 * MIB, copied)).collect();
        self.has_states = false;
    }

    /// Nobody needs the last model any more.
    fn let_go(&mut self) {
        self.zero_grad();
        for it in std::mem::take(&mut self.model) {
            self.program.free(it);
        }
    }

    /// The stack of line `line` of the user's script, and of what it calls in PyTorch.
    fn at(&mut self, line: u32, callees: &[(&str, &str)]) -> StackId {
        let files: Vec<String> =
            callees.iter().map(|(file, _)| format!("{TORCH}/{file}")).collect();
        let mut frames = vec![("/home/u/train.py", "main", line)];
        frames.extend(files.iter().zip(callees).map(|(file, (_, name))| (file.as_str(), *name, 7)));
        self.program.stack(&frames)
    }

    /// A batch, loaded by the loop.
    fn input(&mut self) -> u64 {
        let line = self.at(10, &[]);
        self.program.alloc(MIB, line)
    }

    /// Six activations of `size`.
    fn forward(&mut self, size: u64) -> Vec<u64> {
        let layers: Vec<StackId> = (1..=6).map(|it| self.program.module(11, it)).collect();
        layers.into_iter().map(|it| self.program.alloc(size, it)).collect()
    }

    /// Gives `activations` back, and makes the gradients that are not there.
    fn backward(&mut self, activations: &[u64]) {
        let caller = self.at(12, &[("autograd/__init__.py", "backward")]);
        let seed = self.program.alloc(512, caller);
        for it in activations.iter().rev() {
            self.program.free(*it);
        }
        while self.gradients.len() < self.parameters {
            self.gradients.push(self.program.alloc(10 * MIB, self.engine));
        }
        self.program.free(seed);
    }

    /// Updates with `temporaries` of 10 MiB at a time.
    fn optimizer(&mut self, temporaries: usize) {
        let inside = self.at(13, &[("optim/adamw.py", "step")]);
        if !std::mem::replace(&mut self.has_states, true) {
            for _ in 0..2 * self.parameters {
                let state = self.program.alloc(10 * MIB, inside);
                self.model.push(state);
            }
        }
        let small = self.program.alloc(512, inside);
        let made: Vec<u64> =
            (0..temporaries).map(|_| self.program.alloc(10 * MIB, inside)).collect();
        made.iter().for_each(|it| self.program.free(*it));
        self.program.free(small);
    }

    fn zero_grad(&mut self) {
        for it in std::mem::take(&mut self.gradients) {
            self.program.free(it);
        }
    }

    /// A whole step as it should be.
    fn step(&mut self, size: u64) {
        let activations = self.forward(size);
        self.backward(&activations);
        self.optimizer(0);
        self.zero_grad();
    }
}

fn has(explanation: &Explanation, code: &str) -> bool {
    explanation.findings.iter().any(|it| it.code.word() == code)
}

/// What fixing it gives back.
fn bytes(explanation: &Explanation, code: &str) -> Option<Bytes> {
    explanation.findings.iter().find(|it| it.code.word() == code).map(|it| it.bytes)
}

#[test]
fn gradients_that_live_through_the_next_forward_pass() {
    let train = |early: bool| {
        let mut it = Training::new();
        for _ in 0..4 {
            if early {
                it.zero_grad();
            }
            let activations = it.forward(20 * MIB);
            it.zero_grad();
            it.backward(&activations);
            it.optimizer(0);
        }
        it.program.explain()
    };
    assert_eq!(bytes(&train(false), "gradients/kept"), Some(Bytes::mib(40)));
    assert!(!has(&train(true), "gradients/kept"));
}

#[test]
fn temporaries_of_the_optimizer_at_the_peak() {
    let train = |temporaries: usize| {
        let mut it = Training::new();
        for _ in 0..4 {
            let activations = it.forward(2 * MIB);
            it.backward(&activations);
            it.optimizer(temporaries);
            it.zero_grad();
        }
        it.program.explain()
    };
    let found = bytes(&train(8), "optimizer/foreach-temporaries");
    assert_eq!(found, Some(Bytes::mib(80) + Bytes(512)), "and the small one beside them");
    assert!(!has(&train(0), "optimizer/foreach-temporaries"), "a fused one has none");
}

#[test]
fn logits_are_told_from_layers_of_one_size() {
    let train_of = |weight: u64, norm: u64, losses: usize, size: u64| {
        let mut it = Training::new();
        let embedding = it.at(3, &[("nn/modules/sparse.py", "__init__")]);
        it.program.alloc(weight, embedding);
        it.program.alloc(norm, embedding);
        for _ in 0..4 {
            let mut activations = it.forward(4 * MIB);
            let inside = it.at(11, &[("nn/functional.py", "cross_entropy")]);
            activations.extend((0..losses).map(|_| it.program.alloc(size, inside)));
            it.backward(&activations);
            it.optimizer(0);
            it.zero_grad();
        }
        it.program.explain()
    };
    let train = |losses, size| train_of(50257 * 1024, 1024, losses, size);
    // 2048 tokens of a vocabulary of 50257 words in four bytes.
    let logits = 2048 * 50257 * 4;
    let found = train(2, logits);
    let finding = found.findings.iter().find(|it| it.code.word() == "size/one-allocation").unwrap();
    assert!(finding.title.contains("2048 tokens x 50257 words x 4 bytes"), "{}", finding.title);
    assert_eq!((finding.bytes, finding.at.as_ref().unwrap().line), (Bytes(logits), 11));
    assert!(!has(&train(12, 32 * MIB), "size/one-allocation"), "a dozen alike are layers");
    // Four sequences of 896 tokens of 8000 words; 32000 words of 896 tokens are as many bytes.
    let found = train_of(8000 * 1024, 1024, 2, 4 * 896 * 8000 * 4);
    let finding = found.findings.iter().find(|it| it.code.word() == "size/one-allocation").unwrap();
    assert!(!finding.title.contains("32000"), "{}", finding.title);
    // 200000 words of 2048 bytes.
    let found = train_of(200_000 * 2048, 2048, 2, 256 * 200_000 * 4);
    let finding = found.findings.iter().find(|it| it.code.word() == "size/one-allocation").unwrap();
    assert!(!finding.title.contains("words"), "{}", finding.title);
}

#[test]
fn one_long_batch_among_short_ones() {
    let train = |sizes: [u64; 6]| {
        let mut it = Training::new();
        sizes.iter().for_each(|size| it.step(size * MIB));
        it.program.explain()
    };
    let found = train([8, 6, 9, 60, 7, 8]);
    let finding =
        found.findings.iter().find(|it| it.code.word() == "inputs/dynamic-shapes").unwrap();
    assert_eq!(finding.step, Some(4), "{}", finding.title);
    assert!(!has(&train([8; 6]), "inputs/dynamic-shapes"));
}

#[test]
fn states_of_the_optimizer_arrive_with_the_second_step() {
    let train = |has_states: bool| {
        let mut it = Training::new();
        it.has_states = !has_states;
        (0..4).for_each(|_| it.step(20 * MIB));
        it.program.explain()
    };
    assert_eq!(bytes(&train(true), "steps/first-against-later"), Some(Bytes::mib(80)));
    assert!(!has(&train(false), "steps/first-against-later"), "plain SGD has none");
}

#[test]
fn blocks_that_wait_for_another_stream() {
    let train = |waits: bool| {
        let mut it = Training::new();
        for _ in 0..4 {
            let line = it.at(9, &[]);
            let batch = it.program.alloc(32 * MIB, line);
            if waits {
                it.program.event(Action::FreeRequested, batch, 32 * MIB, StackId::EMPTY);
            }
            let activations = it.forward(20 * MIB);
            if !waits {
                it.program.free(batch);
            }
            it.backward(&activations);
            if waits {
                it.program.free_completed(batch);
            }
            it.optimizer(0);
            it.zero_grad();
        }
        it.program.explain()
    };
    assert_eq!(bytes(&train(true), "streams/pending-frees"), Some(Bytes::mib(32)));
    assert!(!has(&train(false), "streams/pending-frees"));
}

#[test]
fn blocks_that_wait_while_little_else_is_there_are_no_finding() {
    let mut it = Training::new();
    for _ in 0..4 {
        let line = it.at(9, &[]);
        let batch = it.program.alloc(32 * MIB, line);
        it.program.event(Action::FreeRequested, batch, 32 * MIB, StackId::EMPTY);
        let other = it.program.alloc(MIB, line);
        it.program.free(other);
        it.program.free_completed(batch);
        let activations = it.forward(20 * MIB);
        it.backward(&activations);
        it.optimizer(0);
        it.zero_grad();
    }
    let found = it.program.explain();
    assert!(!has(&found, "streams/pending-frees"), "{:?}", found.findings);
}

/// A request of 485 MiB fails beside 490 that are free in a segment of `stream`.
fn fails_beside_free_memory_of(stream: u32) -> Explanation {
    let mut it = Training::new();
    let line = it.at(20, &[]);
    let address = 0x1_0000_0000;
    let mut event = |action, size| {
        it.program.device.events.push(Event {
            action,
            address,
            size: Bytes(size),
            stream: StreamId(stream),
            pool: PoolId(0),
            stack: line,
            time_micros: 0,
            metadata: TextId(0),
        });
    };
    event(Action::SegmentAlloc, 500 * MIB);
    event(Action::Alloc, 500 * MIB);
    event(Action::FreeRequested, 500 * MIB);
    event(Action::FreeCompleted, 500 * MIB);
    event(Action::Alloc, 10 * MIB);
    let (program, block) = (&mut it.program, Bytes::mib(10));
    let blocks = [(block, BlockState::Allocated), (Bytes::mib(490), BlockState::Free)];
    let first = u32::try_from(program.device.blocks.len()).unwrap();
    let mut at = address;
    for (size, state) in blocks {
        let stack = StackId::EMPTY;
        program.device.blocks.push(Block { address: at, size, requested: size, state, stack });
        at += size.0;
    }
    program.device.segments.push(Segment {
        address,
        size: Bytes::mib(500),
        stream: StreamId(stream),
        pool: PoolId(0),
        size_class: SizeClass::Large,
        expandable: false,
        stack: StackId::EMPTY,
        blocks: first..first + 2,
    });
    program.trace.streams.push(0);
    program.event(Action::Oom, 0, 485 * MIB, line);
    it.program.explain()
}

#[test]
fn what_no_setting_would_give_back_is_no_fragmentation() {
    // Another stream's memory serves nobody else, in one piece or in many.
    let found = fails_beside_free_memory_of(1);
    assert!(!has(&found, "fragmentation/slack"), "{:?}", found.findings);
    assert_ne!(found.root_cause().unwrap().code.word(), "fragmentation/slack");
}

#[test]
fn nothing_that_is_found_is_of_no_bytes() {
    for found in [fails_beside_free_memory_of(1), fails_beside_free_memory_of(0)] {
        for it in found.findings.iter().filter(|it| it.weight != Weight::Fact) {
            assert_ne!(it.bytes, Bytes::ZERO, "{it:?}");
            assert!(!format!(" {}", it.title).contains(" 0 B"), "{}", it.title);
        }
    }
}

#[test]
fn a_private_pool_that_nobody_uses() {
    let train = |state: BlockState| {
        let mut it = Training::new();
        (0..3).for_each(|_| it.step(8 * MIB));
        it.program.segment(0x1000_0000, 64 * MIB, PoolId(1), state);
        it.program.explain()
    };
    assert_eq!(bytes(&train(BlockState::Free), "pools/idle-private"), Some(Bytes::mib(64)));
    assert!(!has(&train(BlockState::Allocated), "pools/idle-private"), "it is in use");
}

#[test]
fn a_workspace_of_cublas_is_told_from_a_block_of_its_size() {
    let train = |stays: bool| {
        let mut it = Training::new();
        let mut workspace = None;
        for _ in 0..4 {
            let inside = it.program.module(11, 1);
            if !stays || workspace.is_none() {
                workspace = Some(it.program.alloc(32 * MIB, inside));
            }
            let mut activations = it.forward(8 * MIB);
            activations.extend(workspace.filter(|_| !stays));
            it.backward(&activations);
            it.optimizer(0);
            it.zero_grad();
        }
        it.program.explain()
    };
    assert_eq!(bytes(&train(true), "workspace/libraries"), Some(Bytes::mib(32)));
    assert!(!has(&train(false), "workspace/libraries"), "an activation of 32 MiB");
}

#[test]
fn what_other_libraries_took() {
    let train = |other: u64| {
        let mut it = Training::new();
        (0..3).for_each(|_| it.step(8 * MIB));
        let device = PhantomDevice { other_peak: Bytes::mib(other), ..PhantomDevice::default() };
        let phantom = PhantomReport { devices: vec![device], ..PhantomReport::default() };
        it.program.explain_with(Recording { phantom: Some(phantom), ..Recording::default() })
    };
    assert_eq!(bytes(&train(450), "outside/not-pytorch"), Some(Bytes::mib(450)));
    assert!(!has(&train(2), "outside/not-pytorch"));
}

#[test]
fn parts_that_are_joined_are_there_twice() {
    let evaluate = |joined: u64, by: &[(&str, &str)], is_refused: bool| {
        let mut it = Training::new();
        it.step(8 * MIB);
        for _ in 0..8 {
            let input = it.input();
            let mut activations = it.forward(20 * MIB);
            // The output stays.
            activations.pop();
            activations.push(input);
            activations.iter().for_each(|part| it.program.free(*part));
        }
        let line = it.at(30, by);
        if is_refused {
            it.program.event(Action::Oom, 0, joined * MIB, line);
        } else {
            it.program.alloc(joined * MIB, line);
        }
        it.program.explain()
    };
    assert_eq!(bytes(&evaluate(160, &[], false), "copies/double-buffer"), Some(Bytes::mib(160)));
    assert!(
        !has(&evaluate(150, &[], false), "copies/double-buffer"),
        "something else that is large"
    );
    // The widest layer of a transformer asks for as much as four of its activations take.
    let layer = &[("nn/modules/linear.py", "forward")];
    for is_refused in [false, true] {
        assert!(!has(&evaluate(160, layer, is_refused), "copies/double-buffer"));
    }
}

/// Losses go into a list, and each holds 4 MiB; each pass makes one result as large as all of them in the end. Then comes an evaluation.
fn train_and_evaluate(has_list: bool, passes: usize) -> Explanation {
    let mut it = Training::new();
    for _ in 0..12 {
        let large = it.program.module(11, 50);
        let large = it.program.alloc(48 * MIB, large);
        let mut activations = it.forward(20 * MIB);
        let loss = it.at(12, &[("nn/functional.py", "mse_loss")]);
        let loss = it.program.alloc(4 * MIB, loss);
        if !has_list {
            activations.push(loss);
        }
        activations.push(large);
        it.backward(&activations);
        it.optimizer(0);
        it.zero_grad();
    }
    for _ in 0..passes {
        let activations = it.forward(MIB);
        activations.iter().for_each(|it_is| it.program.free(*it_is));
    }
    it.program.explain()
}

#[test]
fn what_training_left_is_found_when_many_passes_of_an_evaluation_come_last() {
    for passes in [0, 3, 40] {
        let found = train_and_evaluate(true, passes);
        let leak = found.findings.iter().find(|it| it.code.word() == "leak/results-kept").unwrap();
        assert_eq!(leak.per_step, Bytes::mib(4), "{passes}");
        assert!(leak.evidence.iter().any(|it| it.contains("steps are still live")), "{leak:?}");
        assert!(!leak.evidence.iter().any(|it| it.contains("of 13 steps")), "{leak:?}");
        assert!(!has(&train_and_evaluate(false, passes), "leak/results-kept"), "{passes}");
    }
}

#[test]
fn what_was_as_large_before_is_not_joined_of_what_was_collected_since() {
    assert!(!has(&train_and_evaluate(true, 0), "copies/double-buffer"));
}

#[test]
fn a_cache_of_keys_is_told_from_another_list_that_grows() {
    let generate = |file: &str, function: &str| {
        let mut it = Training::new();
        let mut cache: Option<u64> = None;
        for token in 1..=24 {
            let mut activations = it.forward(MIB);
            activations.push(it.input());
            let inside = it.program.stack(&[
                ("/home/u/generate.py", "main", 8),
                (&format!("{TORCH}/nn/modules/module.py"), "_call_impl", 7),
                (file, function, 40),
            ]);
            let larger = it.program.alloc(token * 2 * MIB, inside);
            if let Some(old) = cache.replace(larger) {
                it.program.free(old);
            }
            activations.into_iter().for_each(|part| it.program.free(part));
        }
        it.program.explain()
    };
    let transformers = "/venv/lib/python3.12/site-packages/transformers/cache_utils.py";
    assert!(has(&generate(transformers, "update"), "growth/kv-cache"));
    let other = generate("/home/u/net.py", "remember");
    assert!(!has(&other, "growth/kv-cache"));
    assert!(has(&other, "growth/per-step"), "{:?}", other.findings);
}

/// A program without training that joins `lines.len()` tensors, each made in `inside`, larger in each pass.
fn joined(
    lines: &[u32],
    tensors: usize,
    in_pass: bool,
    rises: usize,
    passes: usize,
) -> Explanation {
    let mut it = Training::new();
    let mut old: Vec<u64> = Vec::new();
    for pass in 1..=passes {
        let mut activations = it.forward(MIB);
        activations.push(it.input());
        let mut new = Vec::new();
        for line in lines {
            let inside = if in_pass { it.program.module(11, *line) } else { it.at(*line, &[]) };
            let size = 2 * MIB * pass.min(rises) as u64;
            new.extend((0..tensors).map(|_| it.program.alloc(size, inside)));
        }
        std::mem::replace(&mut old, new).into_iter().for_each(|part| it.program.free(part));
        activations.into_iter().for_each(|part| it.program.free(part));
    }
    it.program.explain()
}

#[test]
fn a_cache_is_known_by_what_it_does() {
    let keys_and_values = joined(&[40, 41], 1, true, 24, 24);
    assert!(has(&keys_and_values, "growth/kv-cache"), "{:?}", keys_and_values.findings);
    assert!(!has(&keys_and_values, "growth/per-step"));
    assert!(has(&joined(&[40], 6, true, 24, 24), "growth/kv-cache"), "layers share a line");
    assert!(has(&joined(&[40, 41], 6, false, 24, 24), "growth/kv-cache"), "functions, no modules");
}

#[test]
fn a_cache_that_the_next_token_has_no_room_for_is_the_cause() {
    let mut it = Training::new();
    let mut old: Vec<u64> = Vec::new();
    for token in 1..=24 {
        let activations = it.forward(MIB);
        let lines = [40, 41].map(|line| it.program.module(11, line));
        let new = lines.map(|line| it.program.alloc(2 * MIB * token, line)).to_vec();
        std::mem::replace(&mut old, new).into_iter().for_each(|part| it.program.free(part));
        activations.into_iter().for_each(|part| it.program.free(part));
    }
    let keys = it.program.module(11, 40);
    it.program.event(Action::Oom, 0, 50 * MIB, keys);
    let cause = it.program.explain().root_cause().unwrap();
    assert_eq!(cause.code.word(), "growth/kv-cache", "{cause:?}");
}

#[test]
fn parts_that_each_pass_joins_and_reads_are_a_cache() {
    let generate = |reads: bool| {
        let mut it = Training::new();
        for token in 1..=24 {
            let input = it.input();
            let mut activations = it.forward(MIB);
            activations.push(input);
            let keys = it.program.module(11, 40);
            (0..2).for_each(|_| {
                it.program.alloc(2 * MIB, keys);
            });
            let joined = it.program.module(11, 41);
            activations.push(it.program.alloc(if reads { token } else { 3 } * 4 * MIB, joined));
            activations.into_iter().for_each(|part| it.program.free(part));
        }
        it.program.explain()
    };
    let cache = generate(true);
    let results = generate(false);
    let leaks = |it: &Explanation| it.findings.iter().any(|it| it.code.word().starts_with("leak/"));
    assert!(has(&cache, "growth/kv-cache") && !leaks(&cache), "{:?}", cache.findings);
    assert!(!has(&results, "growth/kv-cache") && leaks(&results), "{:?}", results.findings);
}

#[test]
fn joined_results_are_no_cache() {
    for lines in [&[40][..], &[40, 41]] {
        let results = joined(lines, 1, false, 24, 24);
        assert!(has(&results, "growth/per-step"), "{:?}", results.findings);
        assert!(!has(&results, "growth/kv-cache"));
    }
}

#[test]
fn a_memory_that_is_full_does_not_grow() {
    assert!(has(&joined(&[40], 1, false, 12, 12), "growth/per-step"));
    assert!(!has(&joined(&[40], 1, false, 12, 30), "growth/per-step"));
}

#[test]
fn a_recording_that_began_late() {
    let train = |late: bool| {
        let mut it = Training::new();
        if late {
            it.program.segment(0x1000_0000, 64 * MIB, PoolId(0), BlockState::Allocated);
        }
        (0..3).for_each(|_| it.step(8 * MIB));
        it.program.explain()
    };
    let late = train(true);
    assert!(has(&late, "recording/began-late"));
    assert_eq!(late.window.unwrap().bytes_before, Bytes::mib(64));
    assert!(!has(&train(false), "recording/began-late"));
}

#[test]
fn every_run_says_what_its_peak_was_made_of() {
    let mut it = Training::new();
    (0..3).for_each(|_| it.step(8 * MIB));
    let found = it.program.explain();
    let peak = found.findings.iter().find(|it| it.code.word() == "peak/composition").unwrap();
    // Parameters and both states, and the gradients or the activations beside them: 120 + 48.
    assert!(peak.title.contains("168.0 MiB"), "{}", peak.title);
}

#[test]
fn a_segment_that_is_too_small_for_the_next_request() {
    // A first request is given back and its segment kept; a second one is larger, or fits.
    let ask = |second: u64| {
        let mut it = Training::new();
        let line = it.at(20, &[]);
        let (address, first) = (0x1000_0000, 400 * MIB);
        it.program.event(Action::SegmentAlloc, address, first, line);
        it.program.event(Action::Alloc, address, first, line);
        it.program.event(Action::FreeRequested, address, first, StackId::EMPTY);
        it.program.event(Action::FreeCompleted, address, first, StackId::EMPTY);
        if second <= 400 {
            it.program.event(Action::Alloc, address, second * MIB, line);
        } else {
            it.program.segment(address, first, PoolId(0), BlockState::Free);
            it.program.alloc(second * MIB, line);
        }
        it.program.explain()
    };
    let found = ask(500);
    assert_eq!(bytes(&found, "fragmentation/slack"), Some(Bytes::mib(400)), "{:?}", found.findings);
    assert!(!has(&ask(400), "fragmentation/slack"));
}

#[test]
fn frames_of_c_plus_plus_do_not_hide_the_gradients() {
    let train = |cpp: bool| {
        let mut it = Training::new();
        if cpp {
            it.engine = it.program.stack(&[
                ("??", "torch::autograd::Engine::thread_init(int, std::shared_ptr<>)", 0),
                ("RegisterCUDA_0.cpp", "at::(anonymous namespace)::wrapper_CUDA_mm", 0),
            ]);
        }
        (0..4).for_each(|_| it.step(4 * MIB));
        let found = it.program.explain();
        found
            .findings
            .iter()
            .find(|it| it.code.word() == "peak/composition")
            .unwrap()
            .evidence
            .clone()
    };
    let (python, cpp) = (train(false), train(true));
    assert!(python.iter().any(|it| it.contains("gradients (4 blocks)")), "{python:?}");
    assert_eq!(python, cpp);
}

/// A sweep of `n` trials, each with a model and an optimizer of its own, which stay or go with their trial.
fn sweep(n: usize, stays: bool, trained: bool) -> Explanation {
    let mut it = Training::new();
    for trial in 0..n {
        if 0 < trial {
            it.make_model();
        }
        for _ in 0..if trained { 3 } else { 0 } {
            it.step(4 * MIB);
        }
        if !stays && trial + 1 < n {
            it.let_go();
        }
    }
    it.program.explain()
}

#[test]
fn models_of_earlier_experiments() {
    let found = sweep(4, true, true);
    let it = found.findings.iter().find(|it| it.code.word() == "leak/earlier-models");
    let it = it.unwrap_or_else(|| panic!("{:?}", found.findings));
    // Of each of three: four parameters and eight states of 10 MiB. Gradients went with zero_grad.
    assert_eq!((it.bytes, it.count), (Bytes::mib(360), 3), "{it:?}");
    assert_eq!(it.at.as_ref().map(|it| it.line), Some(3));
    assert_eq!(found.root_cause().unwrap().code.word(), "leak/earlier-models");
    assert!(!has(&sweep(4, false, true), "leak/earlier-models"));
    // Two networks of one class that are made before anything is trained.
    assert!(!has(&sweep(2, true, false), "leak/earlier-models"));
}

/// After each of three steps the model is copied; then either the copy is trained, or the model goes on.
fn copies_in_between(are_trained: bool) -> Explanation {
    let mut it = Training::new();
    it.step(4 * MIB);
    for _ in 0..3 {
        it.copy_model();
        it.has_states = !are_trained;
        it.step(4 * MIB);
    }
    it.program.explain()
}

#[test]
fn copies_that_were_trained_are_models_and_others_are_copies() {
    let learners = copies_in_between(true);
    assert!(has(&learners, "leak/earlier-models"), "{:?}", learners.findings);
    assert_eq!(learners.root_cause().unwrap().code.word(), "leak/earlier-models");
    let snapshots = copies_in_between(false);
    assert!(!has(&snapshots, "leak/earlier-models"), "{:?}", snapshots.findings);
    assert!(has(&snapshots, "copies/double-buffer"), "{:?}", snapshots.findings);
}

/// A model is trained; then line 42 makes `n` blocks of the size of its weights.
fn clones(n: usize) -> Explanation {
    let mut it = Training::new();
    (0..2).for_each(|_| it.step(4 * MIB));
    let line = it.at(42, &[]);
    (0..n).for_each(|_| _ = it.program.alloc(10 * MIB, line));
    it.step(4 * MIB);
    it.program.explain()
}

#[test]
fn a_dict_of_clones_is_a_copy_of_the_model() {
    assert_eq!(bytes(&clones(4), "copies/double-buffer"), Some(Bytes::mib(40)));
    // Of its states there are two for each weight.
    assert_eq!(bytes(&clones(8), "copies/double-buffer"), Some(Bytes::mib(80)));
    assert!(!has(&clones(3), "copies/double-buffer"), "not all of it");
}

#[test]
fn gradients_that_are_collected_are_called_so_and_told_once() {
    let mut it = Training::new();
    for _ in 0..8 {
        let activations = it.forward(4 * MIB);
        it.backward(&activations);
        // A list holds them.
        it.gradients.clear();
    }
    let found = it.program.explain();
    let kept = found.findings.iter().find(|it| it.code.word() == "leak/results-kept");
    let kept = kept.unwrap_or_else(|| panic!("{:?}", found.findings));
    assert!(kept.title.starts_with("gradients of 7 steps"), "{}", kept.title);
    assert!(!has(&found, "gradients/kept"), "{:?}", found.findings);
}

#[test]
fn caches_of_conversations_are_not_one_that_grew() {
    let mut it = Training::new();
    let keys = it.program.stack(&[
        ("/home/u/server.py", "answer", 8),
        (&format!("{TORCH}/nn/modules/module.py"), "_call_impl", 7),
        ("/venv/lib/python3.12/site-packages/transformers/cache_utils.py", "update", 40),
    ]);
    for conversation in 0..12 {
        let mut old = None;
        for token in 0..4 {
            let activations = it.forward(MIB);
            // Some begin with a longer text than others.
            let length = 8 + conversation * 5 % 7 + token;
            let longer = it.program.alloc(length * MIB, keys);
            activations
                .into_iter()
                .chain(old.replace(longer))
                .for_each(|part| it.program.free(part));
        }
    }
    let found = it.program.explain();
    let caches = found.findings.iter().find(|it| it.code.word() == "growth/kv-cache");
    let caches = caches.unwrap_or_else(|| panic!("{:?}", found.findings));
    assert!(caches.title.starts_with("key-value caches of several texts"), "{}", caches.title);
}

/// A model is trained, a second one of the same line comes beside it, and `trained` of their eight parameters have gradients from then on.
fn comes_beside(trained: usize) -> Explanation {
    let mut it = Training::new();
    (0..3).for_each(|_| it.step(4 * MIB));
    it.make_model();
    it.parameters = trained;
    (0..3).for_each(|_| it.step(4 * MIB));
    it.program.explain()
}

#[test]
fn stages_that_are_added_and_trained_on_are_no_earlier_models() {
    assert!(has(&comes_beside(4), "leak/earlier-models"));
    let both = comes_beside(8);
    assert!(!has(&both, "leak/earlier-models"), "{:?}", both.findings);
}

#[test]
fn earlier_models_without_an_optimizer_may_be_in_use() {
    let mut it = Training::new();
    for _ in 0..3 {
        let activations = it.forward(4 * MIB);
        it.backward(&activations);
        it.zero_grad();
        it.make_model();
    }
    let found = it.program.explain();
    let earlier = found.findings.iter().find(|it| it.code.word() == "leak/earlier-models").unwrap();
    assert_eq!((earlier.count, earlier.weight), (2, Weight::Chance));
}

/// A training whose steps each join six tensors that are longer than before. The last one, whose layers ask for `times` as much as
/// usual, runs out.
fn trains_and_joins(times: u64) -> Explanation {
    let mut it = Training::new();
    let mut old: Vec<u64> = Vec::new();
    let line = it.at(40, &[]);
    let layer = it.program.module(11, 1);
    for step in 1..=24 {
        let new = (0..6).map(|_| it.program.alloc(2 * MIB * step, line)).collect();
        std::mem::replace(&mut old, new).into_iter().for_each(|part| it.program.free(part));
        // What the model makes of them is longer, too.
        let mut activations = it.forward(2 * MIB);
        activations.push(it.program.alloc(2 * MIB * step, layer));
        it.backward(&activations);
        it.optimizer(0);
        it.zero_grad();
    }
    it.forward(2 * times * MIB);
    it.program.event(Action::Oom, 0, times * 50 * MIB, layer);
    it.program.explain()
}

#[test]
fn tensors_that_a_training_joins_are_counted_and_neither_a_cache_nor_a_larger_input() {
    let found = trains_and_joins(1);
    let it = found.findings.iter().find(|it| it.code.word() == "growth/per-step").unwrap();
    assert!(it.title.starts_with("6 tensors were made anew, each about 24 times"), "{}", it.title);
    assert!(!has(&found, "growth/kv-cache") && !has(&found, "inputs/dynamic-shapes"));
    let cause = found.root_cause().unwrap();
    assert_eq!((cause.code.word(), cause.at.map(|it| it.line)), ("growth/per-step", Some(40)));
    // Three times as much as ever before is an input.
    assert!(has(&trains_and_joins(3), "inputs/dynamic-shapes"));
}

/// A server with conversations of different lengths, which come in no order; what each remembers is cut to `most` parts.
fn conversations(most: u64) -> Explanation {
    let mut it = Training::new();
    let mut parts = [3, 9, 5, 1];
    let mut memory = [None; 4];
    for request in 0..80 {
        let activations = it.forward(MIB);
        activations.into_iter().for_each(|part| it.program.free(part));
        let user = request * 7 % 4;
        let line = it.at(40, &[]);
        parts[user] = most.min(parts[user] + 1);
        let longer = it.program.alloc(parts[user] * MIB, line);
        if let Some(old) = memory[user].replace(longer) {
            it.program.free(old);
        }
    }
    it.program.explain()
}

#[test]
fn a_dict_whose_tensors_are_joined_is_several() {
    let found = conversations(1000);
    let it = found.findings.iter().find(|it| it.code.word() == "growth/per-step");
    let it = it.unwrap_or_else(|| panic!("{:?}", found.findings));
    assert!(it.title.starts_with("4 tensors were made anew, each about 18 times"), "{}", it.title);
    assert!(!has(&conversations(12), "growth/per-step"));
}

#[test]
fn batches_that_come_by_length_are_not_joined() {
    let mut it = Training::new();
    let mut old = None;
    for step in 1..=24 {
        let line = it.at(40, &[]);
        let batch = it.program.alloc(step * MIB, line);
        if let Some(old) = old.replace(batch) {
            it.program.free(old);
        }
        it.step(2 * step * MIB);
    }
    let found = it.program.explain();
    assert!(!has(&found, "growth/per-step"), "{:?}", found.findings);
}

/// A notebook whose cell ran five times, and each time made 20 MiB that `Out` keeps; the cells have `n` contents.
fn cells(n: usize) -> Explanation {
    let mut it = Training::new();
    for cell in 0..5 {
        (0..3).for_each(|_| it.step(MIB));
        let name = format!("<ipython-input-{}-{:012x}>", cell + 2, cell % n);
        let stack = it.program.stack(&[(&name, "<module>", 3), ("/home/u/net.py", "encode", 20)]);
        it.program.alloc(20 * MIB, stack);
    }
    (0..3).for_each(|_| it.step(MIB));
    it.program.explain()
}

#[test]
fn a_cell_that_ran_again_is_the_same_line() {
    let found = cells(1);
    let it = found.findings.iter().find(|it| it.code.word() == "growth/per-step");
    assert_eq!(it.map(|it| it.bytes), Some(Bytes::mib(100)), "{:?}", found.findings);
    assert!(!has(&cells(5), "growth/per-step"));
}
