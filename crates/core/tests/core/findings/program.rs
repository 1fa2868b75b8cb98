//! A program that trains, written down event by event.

use plimsoll_core::{
    explanation::{self, Explanation},
    recording::{Notes, Recording},
    scene::Scenes,
    trace::{
        Action, Block, BlockState, DeviceTrace, Event, Frame, PoolId, Segment, SizeClass, StackId,
        StreamId, TextId, Trace,
    },
    units::Bytes,
};

use crate::counted;

pub(crate) const MIB: u64 = 1 << 20;

/// A program that trains: a forward pass in a module, a backward pass, and what it keeps.
#[derive(Default)]
pub(crate) struct Program {
    pub(crate) trace: Trace,
    pub(crate) device: DeviceTrace,
    /// The device that events do not go to now.
    other: DeviceTrace,
    clock: i64,
    next: u64,
    live: Vec<(u64, u64)>,
}

impl Program {
    pub(crate) fn stack(&mut self, frames: &[(&str, &str, u32)]) -> StackId {
        frames.iter().fold(StackId::EMPTY, |caller, (file, function, line)| {
            let file = self.trace.texts.intern(file);
            let function = self.trace.texts.intern(function);
            let frame = self.trace.stacks.frame(Frame { file, function, line: *line });
            self.trace.stacks.push(caller, frame)
        })
    }

    pub(crate) fn module(&mut self, line: u32, layer: u32) -> StackId {
        let module = "/venv/site-packages/torch/nn/modules/module.py";
        let layers = "/home/u/net.py";
        self.stack(&[
            ("/home/u/train.py", "main", line),
            (module, "_call_impl", 5),
            (layers, "forward", layer),
        ])
    }

    pub(crate) fn event(&mut self, action: Action, address: u64, size: u64, stack: StackId) {
        self.clock += 1;
        self.device.events.push(Event {
            action,
            address,
            size: Bytes(size),
            stream: StreamId(0),
            pool: PoolId(0),
            stack,
            time_micros: self.clock,
            metadata: TextId(0),
        });
    }

    /// What follows happens on the other one of two devices.
    pub(crate) fn switch_device(&mut self) {
        std::mem::swap(&mut self.device, &mut self.other);
    }

    pub(crate) fn alloc(&mut self, size: u64, stack: StackId) -> u64 {
        let address = 0x7000_0000 + self.next;
        self.next += size;
        self.event(Action::SegmentAlloc, address, size, stack);
        self.event(Action::Alloc, address, size, stack);
        self.live.push((address, size));
        address
    }

    pub(crate) fn free(&mut self, address: u64) {
        let at = self.live.iter().position(|(it, _)| *it == address).unwrap();
        let (_, size) = self.live.remove(at);
        self.event(Action::FreeRequested, address, size, StackId::EMPTY);
        self.event(Action::FreeCompleted, address, size, StackId::EMPTY);
        self.event(Action::SegmentFree, address, size, StackId::EMPTY);
    }

    /// What another stream had kept from being given back.
    pub(crate) fn free_completed(&mut self, address: u64) {
        let at = self.live.iter().position(|(it, _)| *it == address).unwrap();
        let (_, size) = self.live.remove(at);
        self.event(Action::FreeCompleted, address, size, StackId::EMPTY);
        self.event(Action::SegmentFree, address, size, StackId::EMPTY);
    }

    /// One step: input, forward pass with three layers, backward pass. `keep` says whether its graph stays.
    pub(crate) fn step(&mut self, keep: bool, backward: bool) -> u64 {
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

    pub(crate) fn explain(self) -> Explanation {
        self.explain_noted(Notes::default())
    }

    /// With what the agent noted.
    pub(crate) fn explain_noted(self, notes: Notes) -> Explanation {
        self.explain_with(Recording { notes, ..Recording::default() })
    }

    /// With whatever else is in the recording.
    pub(crate) fn explain_with(mut self, rest: Recording) -> Explanation {
        self.trace.streams.push(0);
        self.trace.pools.extend([(0, 0), (0, 1)]);
        for (address, size) in std::mem::take(&mut self.live) {
            self.segment(address, size, PoolId(0), BlockState::Allocated);
        }
        self.trace.devices.push(self.device);
        self.trace.devices.extend(Some(self.other).filter(|it| !it.events.is_empty()));
        let recording = Recording { trace: Some(self.trace), ..rest };
        let res = explanation::of_recording("a test", &recording, &[]);
        counted::agree("a test", &res, &Scenes::new("a test", &recording));
        res
    }

    /// A segment with one block, in the snapshot's state.
    pub(crate) fn segment(&mut self, address: u64, size: u64, pool: PoolId, state: BlockState) {
        let index = u32::try_from(self.device.blocks.len()).unwrap();
        let size = Bytes(size);
        let stack = StackId::EMPTY;
        self.device.blocks.push(Block { address, size, requested: size, state, stack });
        self.device.segments.push(Segment {
            address,
            size,
            stream: StreamId(0),
            pool,
            size_class: SizeClass::Large,
            expandable: false,
            stack,
            blocks: index..index + 1,
        });
    }
}
