//! Recordings in, findings out: what leaks is found at its line, and what only looks like it is not.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use plimsoll_core::{
    explanation::{self, Explanation},
    recording::Recording,
    trace::{
        Action, Block, BlockState, DeviceTrace, Event, Frame, PoolId, Segment, SizeClass, StackId,
        StreamId, TextId, Trace,
    },
    units::Bytes,
};

const MIB: u64 = 1 << 20;

/// A program that trains: a forward pass in a module, a backward pass, and what it keeps.
#[derive(Default)]
struct Program {
    trace: Trace,
    device: DeviceTrace,
    next: u64,
    live: Vec<(u64, u64)>,
}

impl Program {
    fn stack(&mut self, frames: &[(&str, &str, u32)]) -> StackId {
        frames.iter().fold(StackId::EMPTY, |caller, (file, function, line)| {
            let file = self.trace.texts.intern(file);
            let function = self.trace.texts.intern(function);
            let frame = self.trace.stacks.frame(Frame { file, function, line: *line });
            self.trace.stacks.push(caller, frame)
        })
    }

    fn module(&mut self, line: u32, layer: u32) -> StackId {
        let module = "/venv/site-packages/torch/nn/modules/module.py";
        let layers = "/home/u/net.py";
        self.stack(&[
            ("/home/u/train.py", "main", line),
            (module, "_call_impl", 5),
            (layers, "forward", layer),
        ])
    }

    fn event(&mut self, action: Action, address: u64, size: u64, stack: StackId) {
        self.device.events.push(Event {
            action,
            address,
            size: Bytes(size),
            stream: StreamId(0),
            pool: PoolId(0),
            stack,
            time_micros: 0,
            metadata: TextId(0),
        });
    }

    fn alloc(&mut self, size: u64, stack: StackId) -> u64 {
        let address = 0x7000_0000 + self.next;
        self.next += size;
        self.event(Action::SegmentAlloc, address, size, stack);
        self.event(Action::Alloc, address, size, stack);
        self.live.push((address, size));
        address
    }

    fn free(&mut self, address: u64) {
        let at = self.live.iter().position(|(it, _)| *it == address).unwrap();
        let (_, size) = self.live.remove(at);
        self.event(Action::FreeRequested, address, size, StackId::EMPTY);
        self.event(Action::FreeCompleted, address, size, StackId::EMPTY);
        self.event(Action::SegmentFree, address, size, StackId::EMPTY);
    }

    /// One step: input, forward pass with three layers, backward pass. `keep` says whether its graph stays.
    fn step(&mut self, keep: bool, backward: bool) -> u64 {
        let input = self.stack(&[("/home/u/train.py", "main", 10)]);
        let input = self.alloc(2 * MIB, input);
        let layers: Vec<u64> = (1..=6)
            .map(|it| {
                let stack = self.module(11, it);
                self.alloc(20 * MIB, stack)
            })
            .collect();
        if backward {
            let caller = self.stack(&[
                ("/home/u/train.py", "main", 12),
                ("/venv/site-packages/torch/autograd/__init__.py", "backward", 1),
            ]);
            let seed = self.alloc(2 * MIB, caller);
            let gradient = self.alloc(20 * MIB, StackId::EMPTY);
            self.free(seed);
            self.free(gradient);
        }
        let (output, saved) = layers.split_last().unwrap();
        if !keep {
            saved.iter().for_each(|it| self.free(*it));
            self.free(input);
        }
        *output
    }

    fn explain(mut self) -> Explanation {
        self.trace.streams.push(0);
        self.trace.pools.push((0, 0));
        for (index, (address, size)) in self.live.iter().enumerate() {
            let index = u32::try_from(index).unwrap();
            let size = Bytes(*size);
            self.device.blocks.push(Block {
                address: *address,
                size,
                requested: size,
                state: BlockState::Allocated,
                stack: StackId::EMPTY,
            });
            self.device.segments.push(Segment {
                address: *address,
                size,
                stream: StreamId(0),
                pool: PoolId(0),
                size_class: SizeClass::Large,
                expandable: false,
                stack: StackId::EMPTY,
                blocks: index..index + 1,
            });
        }
        self.trace.devices.push(self.device);
        let recording = Recording { trace: Some(self.trace), ..Recording::default() };
        explanation::of_recording("a test", &recording, &[])
    }
}

fn growths(it: &Explanation) -> Vec<(&'static str, u32, Bytes)> {
    let growths = it
        .findings
        .iter()
        .filter(|it| it.code.starts_with("leak/") || it.code.starts_with("growth/"));
    growths.map(|it| (it.code, it.at.as_ref().unwrap().line, it.bytes)).collect()
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
