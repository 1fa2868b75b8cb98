//! Runs that people can read. One line is one event:
//!
//! ```text
//! begin PHASE | end PHASE      the agent marks a phase
//! alloc NAME SIZE [at FILE:LINE] [in MODULE] [conv]     `autograd` for a thread without Python, `calls FILE:LINE` where
//!                              it calls a function in Python
//! free NAME
//! name NAME ROLE TENSOR        the agent says what lives in it
//! step                         the agent marks the end of a step
//! oom SIZE [caught]            a request fails
//! ```

use std::collections::BTreeMap;

use plimsoll_core::{
    recording::{
        Begin, CodeLine, End, EndReason, Mark, MarkKind, NamedTensor, Notes, OomNote, Phase, Place,
        Recording, Role, Tensors,
    },
    trace::{Action, DeviceTrace, Event, Frame, PoolId, StackId, StreamId, TextId, Trace},
    units::Bytes,
};

pub(super) fn recording(program: &str) -> Recording {
    let mut it = Recorder::default();
    it.trace.streams.push(0);
    it.trace.pools.push((0, 0));
    it.trace.devices.push(DeviceTrace::default());
    it.notes.begin = Some(Begin::default());
    for line in program.lines() {
        let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().collect();
        if !words.is_empty() {
            it.line(&words);
        }
    }
    let steps = it.step;
    let why = if it.ran_out { EndReason::Oom } else { EndReason::Steps };
    it.notes.end = Some(End { why, steps, steady: true, ..End::default() });
    Recording { pid: 7, trace: Some(it.trace), notes: it.notes, phantom: None }
}

#[derive(Default)]
struct Recorder {
    trace: Trace,
    notes: Notes,
    live: BTreeMap<String, (u64, Bytes)>,
    free: BTreeMap<Bytes, Vec<u64>>,
    end: u64,
    allocs: u64,
    frees: u64,
    step: u32,
    ran_out: bool,
}

impl Recorder {
    fn line(&mut self, words: &[&str]) {
        let place = Place { allocs: vec![self.allocs], frees: vec![self.frees] };
        match words {
            ["begin", phase] => self.mark(MarkKind::Begin(phase_of(phase)), place),
            ["end", phase] => self.mark(MarkKind::End(phase_of(phase)), place),
            ["step"] => {
                self.step += 1;
                self.mark(MarkKind::StepEnd, place);
            }
            ["alloc", name, size, rest @ ..] => self.alloc(name, size.parse().unwrap(), rest),
            ["free", name] => {
                let (address, size) = self.live.remove(*name).unwrap();
                self.event(Action::FreeRequested, address, size, StackId::EMPTY, TextId(0));
                self.event(Action::FreeCompleted, address, size, StackId::EMPTY, TextId(0));
                self.free.entry(size).or_default().push(address);
                self.frees += 1;
            }
            ["name", name, role, tensor] => {
                let (address, size) = self.live[*name];
                let role = match *role {
                    "parameter" => Role::Parameter,
                    "gradient" => Role::Gradient,
                    "buffer" => Role::Buffer,
                    "state" => Role::OptimizerState,
                    _ => Role::Input,
                };
                let name = (*tensor).to_owned();
                let entry = NamedTensor { name, role, address, size, model: "Net".to_owned() };
                self.notes.tensors.push(Tensors { place, device: 0, entries: vec![entry] });
            }
            ["oom", size, rest @ ..] => {
                let requested = size.parse().unwrap();
                self.event(Action::Oom, 0, requested, StackId::EMPTY, TextId(0));
                self.ran_out = rest.is_empty();
                let caught = Some(!self.ran_out);
                let line = CodeLine { file: "train.py".to_owned(), line: 9, ..CodeLine::default() };
                let user_frame = Some(line);
                let step = self.step;
                let note =
                    OomNote { step, requested, caught, user_frame, place, ..OomNote::default() };
                self.notes.ooms.push(note);
            }
            _ => panic!("{words:?}"),
        }
    }

    fn alloc(&mut self, name: &str, size: Bytes, mut rest: &[&str]) {
        let mut frames = vec![("train.py", "main", 1)];
        let mut metadata = String::new();
        while let [word, after @ ..] = rest {
            rest = after;
            match *word {
                "autograd" => frames.clear(),
                "backward" => frames.push((
                    "/venv/lib/python3.12/site-packages/torch/autograd/__init__.py",
                    "_make_grads",
                    99,
                )),
                "conv" => frames.push((
                    "/venv/lib/python3.12/site-packages/torch/nn/modules/conv.py",
                    "_conv_forward",
                    5,
                )),
                "recompute" => {
                    frames = vec![(
                        "/venv/lib/python3.12/site-packages/torch/utils/checkpoint.py",
                        "unpack_hook",
                        7,
                    )]
                }
                "calls" => {
                    frames = vec![(
                        "/venv/lib/python3.12/site-packages/torch/autograd/function.py",
                        "apply",
                        311,
                    )];
                    let (file, line) = after[0].split_once(':').unwrap();
                    frames.push((file, "backward", line.parse().unwrap()));
                    rest = &after[1..];
                }
                "at" => {
                    let (file, line) = after[0].split_once(':').unwrap();
                    frames[0] = (file, "main", line.parse().unwrap());
                    rest = &after[1..];
                }
                "in" => {
                    metadata = format!("m={}", after[0]);
                    rest = &after[1..];
                }
                _ => panic!("{word}"),
            }
        }
        let mut stack = StackId::EMPTY;
        for (file, function, line) in frames {
            let file = self.trace.texts.intern(file);
            let function = self.trace.texts.intern(function);
            let frame = self.trace.stacks.frame(Frame { file, function, line });
            stack = self.trace.stacks.push(stack, frame);
        }
        let metadata = self.trace.texts.intern(&metadata);
        // One segment for each block, kept and used again as the caching allocator does.
        let address = self.free.get_mut(&size).and_then(Vec::pop).unwrap_or_else(|| {
            let address = self.end;
            self.end += size.0.max(512);
            self.event(Action::SegmentAlloc, address, Bytes(size.0.max(512)), stack, metadata);
            address
        });
        self.event(Action::Alloc, address, size, stack, metadata);
        self.allocs += 1;
        self.live.insert(name.to_owned(), (address, size));
    }

    fn event(
        &mut self,
        action: Action,
        address: u64,
        size: Bytes,
        stack: StackId,
        metadata: TextId,
    ) {
        let (stream, pool) = (StreamId(0), PoolId(0));
        let event = Event { action, address, size, stream, pool, stack, time_micros: 0, metadata };
        self.trace.devices[0].events.push(event);
    }

    fn mark(&mut self, kind: MarkKind, place: Place) {
        let step = self.step;
        let (reserved, allocated) = (Vec::new(), Vec::new());
        self.notes.marks.push(Mark {
            kind,
            step,
            place,
            reserved,
            allocated,
            seconds: 0.0,
            with_gradients: false,
            host: None,
            workers: None,
        });
    }
}

fn phase_of(word: &str) -> Phase {
    match word {
        "forward" => Phase::Forward,
        "backward" => Phase::Backward,
        "optimizer" => Phase::Optimizer,
        "zero_grad" => Phase::ZeroGrad,
        "evaluation" => Phase::Evaluation,
        "saving" => Phase::Saving,
        "merging" => Phase::Merging,
        _ => panic!("{word}"),
    }
}
