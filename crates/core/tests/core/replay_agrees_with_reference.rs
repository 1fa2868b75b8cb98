//! Random programs, run through an allocator that is slow and easy to believe: memory is an array of
//! 512-byte units, free memory is what nobody's name stands on, and the best fit is found by looking at
//! all of it. What it records must be explained by the checked replay without any mismatch, and the free
//! run must end where it ended.

use plimsoll_core::{
    replay::{self, Ahead, Config, TorchVersion},
    trace::{
        Action, Block, BlockState, DeviceTrace, Event, PoolId, Portion, Segment, Settings,
        SizeClass, StackId, StreamId, TextId, Trace,
    },
    units::Bytes,
};
use proptest::prelude::*;

const UNIT: u64 = 512;
const MIB: u64 = 1 << 20;

/// One thing that a program does.
#[derive(Clone, Debug)]
enum Op {
    Alloc {
        size: u64,
        stream: u32,
    },
    /// The n-th oldest block that is there.
    Free(usize),
    /// The same, while another stream uses it.
    FreeRequested(usize),
    /// The n-th of those is done.
    FreeCompleted(usize),
    EmptyCache,
}

/// What it runs under.
#[derive(Clone, Debug)]
struct Rules {
    capacity: u64,
    max_split: Option<u64>,
    divisions: u32,
}

struct Area {
    at: u64,
    small: bool,
    stream: u32,
    /// Who has each unit; 0 is nobody.
    units: Vec<u32>,
}

struct Held {
    name: u32,
    at: u64,
    requested: u64,
    stream: u32,
}

struct Reference {
    rules: Rules,
    areas: Vec<Area>,
    live: Vec<Held>,
    pending: Vec<Held>,
    trace: DeviceTrace,
    n_names: u32,
    n_ops: u32,
    n_segments: u64,
    retries: u64,
    ooms: u64,
    peak_reserved: u64,
    peak_allocated: u64,
}

impl Reference {
    fn event(&mut self, action: Action, address: u64, size: u64, stream: u32) {
        self.trace.events.push(Event {
            action,
            address,
            size: Bytes(size),
            stream: StreamId(stream),
            pool: PoolId(0),
            // Every operation has a stack of its own, as an `empty_cache` and a `malloc` have.
            stack: StackId(self.n_ops),
            time_micros: 0,
            metadata: TextId(0),
        });
    }

    fn reserved(&self) -> u64 {
        self.areas.iter().map(|it| it.units.len() as u64 * UNIT).sum()
    }

    fn round(&self, size: u64) -> u64 {
        let divisions = u64::from(self.rules.divisions);
        if size <= 512 {
            512
        } else if 1 < divisions && 512 * divisions < size && !size.is_power_of_two() {
            let step = (size.next_power_of_two() / 2) / divisions;
            size.div_ceil(step) * step
        } else {
            size.div_ceil(512) * 512
        }
    }

    /// Every free run of units of the half and stream: where, how long, in which area.
    fn runs(&self, small: bool, stream: u32) -> Vec<(u64, u64, usize)> {
        let mut res = Vec::new();
        for (index, area) in self.areas.iter().enumerate() {
            if area.small != small || area.stream != stream {
                continue;
            }
            let mut from = 0;
            for run in area.units.chunk_by(|a, b| a == b) {
                if run[0] == 0 {
                    res.push((run.len() as u64 * UNIT, area.at + from * UNIT, index));
                }
                from += run.len() as u64;
            }
        }
        res.sort_unstable();
        res
    }

    fn find(&self, size: u64, small: bool, stream: u32) -> Option<(u64, u64, usize)> {
        let found = self.runs(small, stream).into_iter().find(|it| size <= it.0)?;
        let max_split = self.rules.max_split.unwrap_or(u64::MAX);
        let too_good = size < max_split && max_split <= found.0;
        let too_large = max_split <= size && size + 20 * MIB <= found.0;
        (!too_good && !too_large).then_some(found)
    }

    fn malloc(&mut self, requested: u64, stream: u32) {
        let size = self.round(requested);
        let small = size <= MIB;
        let asked = match size {
            _ if small => 2 * MIB,
            it if it < 10 * MIB => 20 * MIB,
            it => it.div_ceil(2 * MIB) * 2 * MIB,
        };
        let mut found = self.find(size, small, stream);
        if found.is_none() {
            let fits = |this: &Self| this.reserved() + asked <= this.rules.capacity;
            let mut ok = fits(self);
            if !ok && self.release_available(size, small, stream) {
                ok = fits(self);
            }
            if !ok {
                self.empty_cache();
                self.retries += 1;
                ok = fits(self);
            }
            if !ok {
                self.ooms += 1;
                return self.event(Action::Oom, 0, size, stream);
            }
            self.n_segments += 1;
            // Addresses that are in no order.
            let at = (self.n_segments * 0x9e37 % 0x1_0000) << 30;
            self.event(Action::SegmentAlloc, at, asked, stream);
            let n_units = usize::try_from(asked / UNIT).unwrap();
            self.areas.push(Area { at, small, stream, units: vec![0; n_units] });
            self.peak_reserved = self.peak_reserved.max(self.reserved());
            found = Some((asked, at, self.areas.len() - 1));
        }
        let (room, at, area) = found.unwrap();
        let splits = if small {
            UNIT <= room - size
        } else {
            self.rules.max_split.is_none_or(|it| size < it) && MIB < room - size
        };
        let taken = if splits { size } else { room };
        self.n_names += 1;
        let area = &mut self.areas[area];
        let first = usize::try_from((at - area.at) / UNIT).unwrap();
        area.units[first..first + usize::try_from(taken / UNIT).unwrap()].fill(self.n_names);
        self.live.push(Held { name: self.n_names, at, requested, stream });
        self.peak_allocated = self.peak_allocated.max(self.allocated());
        self.event(Action::Alloc, at, requested, stream);
    }

    fn allocated(&self) -> u64 {
        self.live.iter().map(|it| self.size_of(it.name)).sum()
    }

    fn size_of(&self, name: u32) -> u64 {
        let units = self.areas.iter().flat_map(|it| &it.units);
        units.filter(|it| **it == name).count() as u64 * UNIT
    }

    fn complete(&mut self, held: &Held) {
        self.event(Action::FreeCompleted, held.at, held.requested, held.stream);
        for unit in self.areas.iter_mut().flat_map(|it| &mut it.units) {
            if *unit == held.name {
                *unit = 0;
            }
        }
    }

    fn free_segment(&mut self, at: u64) {
        let index = self.areas.iter().position(|it| it.at == at).unwrap();
        let Area { stream, units, .. } = self.areas.remove(index);
        self.event(Action::SegmentFree, at, units.len() as u64 * UNIT, stream);
    }

    fn empty_cache(&mut self) {
        for held in std::mem::take(&mut self.pending) {
            self.complete(&held);
        }
        for small in [false, true] {
            for stream in 0..3 {
                for (size, at, area) in self.runs(small, stream) {
                    let area = self.areas.iter().position(|it| it.at == at && area < usize::MAX);
                    if area.is_some_and(|it| self.areas[it].units.len() as u64 * UNIT == size) {
                        self.free_segment(at);
                    }
                }
            }
        }
    }

    fn release_available(&mut self, size: u64, small: bool, stream: u32) -> bool {
        let Some(max_split) = self.rules.max_split else { return false };
        let wanted = size.max(max_split);
        let runs = self.runs(small, stream);
        if let Some(found) = runs.iter().find(|it| wanted <= it.0) {
            self.free_segment(found.1);
            return true;
        }
        let mut released = 0;
        for run in runs.iter().rev() {
            if wanted <= released || run.0 < max_split {
                break;
            }
            self.free_segment(run.1);
            released += run.0;
        }
        wanted <= released
    }

    fn run(&mut self, op: &Op) {
        self.n_ops += 1;
        match op {
            Op::Alloc { size, stream } => self.malloc(*size, *stream),
            Op::Free(n) if *n < self.live.len() => {
                let held = self.live.remove(*n);
                self.event(Action::FreeRequested, held.at, held.requested, held.stream);
                self.complete(&held);
            }
            Op::FreeRequested(n) if *n < self.live.len() => {
                let held = self.live.remove(*n);
                self.event(Action::FreeRequested, held.at, held.requested, held.stream);
                self.pending.push(held);
            }
            Op::FreeCompleted(n) if *n < self.pending.len() => {
                let held = self.pending.remove(*n);
                self.complete(&held);
            }
            Op::EmptyCache => self.empty_cache(),
            _ => {}
        }
    }

    /// The end state, as a recorder writes it.
    fn finish(mut self) -> Self {
        self.areas.sort_by_key(|it| it.at);
        for area in &self.areas {
            let first = u32::try_from(self.trace.blocks.len()).unwrap();
            let mut at = area.at;
            for run in area.units.chunk_by(|a, b| a == b) {
                let size = run.len() as u64 * UNIT;
                let of = |it: &&Held| it.name == run[0];
                let live = self.live.iter().find(of);
                let pending = self.pending.iter().find(of);
                self.trace.blocks.push(Block {
                    address: at,
                    size: Bytes(size),
                    requested: Bytes(live.or(pending).map_or(0, |it| it.requested)),
                    state: match (live, pending) {
                        (Some(_), _) => BlockState::Allocated,
                        (_, Some(_)) => BlockState::PendingFree,
                        _ => BlockState::Free,
                    },
                    stack: StackId::EMPTY,
                });
                at += size;
            }
            let end = u32::try_from(self.trace.blocks.len()).unwrap();
            self.trace.segments.push(Segment {
                address: area.at,
                size: Bytes(at - area.at),
                stream: StreamId(area.stream),
                pool: PoolId(0),
                size_class: if area.small { SizeClass::Small } else { SizeClass::Large },
                expandable: false,
                stack: StackId::EMPTY,
                blocks: first..end,
            });
        }
        self
    }
}

fn size() -> impl Strategy<Value = u64> {
    let limit =
        prop::sample::select(vec![512, MIB, 2 * MIB, 10 * MIB, 19 * MIB, 20 * MIB, 32 * MIB]);
    let at_limit = (limit, prop::sample::select(vec![-512, -1, 0, 1, 512]));
    prop_oneof![
        1..40 * MIB,
        1..2 * MIB,
        at_limit.prop_map(|(limit, off): (u64, i64)| limit.saturating_add_signed(off).max(1)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (size(), prop_oneof![4 => Just(0), 1 => Just(1_u32)])
            .prop_map(|(size, stream)| Op::Alloc { size, stream }),
        4 => (0..12_usize).prop_map(Op::Free),
        1 => (0..12_usize).prop_map(Op::FreeRequested),
        1 => (0..3_usize).prop_map(Op::FreeCompleted),
        1 => Just(Op::EmptyCache),
    ]
}

fn rules() -> impl Strategy<Value = Rules> {
    (
        prop_oneof![Just(1 << 40), 60 * MIB..200 * MIB],
        prop_oneof![2 => Just(None), 1 => Just(Some(32 * MIB)), 1 => Just(Some(24 * MIB))],
        prop_oneof![2 => Just(0), 1 => prop::sample::select(vec![2, 4, 8])],
    )
        .prop_map(|(capacity, max_split, divisions)| Rules { capacity, max_split, divisions })
}

/// Without optimisation each takes long; a release build, which `make soak` makes, looks at more.
const CASES: u32 = if cfg!(debug_assertions) { 8 } else { 240 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..Default::default() })]
    #[test]
    fn agrees(rules in rules(), ops in prop::collection::vec(op(), 1..60), cut in 1..40_usize) {
        let mut reference = Reference {
            rules: rules.clone(),
            areas: Vec::new(),
            live: Vec::new(),
            pending: Vec::new(),
            trace: DeviceTrace::default(),
            n_names: 0,
            n_ops: 0,
            n_segments: 0,
            retries: 0,
            ooms: 0,
            peak_reserved: 0,
            peak_allocated: 0,
        };
        for op in &ops {
            // Under a split limit a request releases blocks before and after it waits for streams: the
            // events do not say which completions it waited for.
            if rules.max_split.is_none() || !matches!(op, Op::FreeRequested(_)) {
                reference.run(op);
            }
        }
        let reference = reference.finish();
        let settings = Settings {
            max_split_size: rules.max_split.map(Bytes),
            roundup_power2_divisions: [rules.divisions; 16],
            ..Settings::default()
        };
        let device = reference.trace.clone();
        let checked = replay::checked(&device, &settings);
        let trace = Trace {
            devices: vec![device],
            streams: vec![0, 1],
            pools: vec![(0, 0)],
            settings: Some(settings.clone()),
            ..Trace::default()
        };
        prop_assert_eq!(&checked.mismatches, &vec![]);
        prop_assert_eq!(checked.stats.num_ooms, reference.ooms);
        prop_assert_eq!(checked.stats.num_alloc_retries, reference.retries);
        prop_assert_eq!(checked.peak_reserved.bytes.0, reference.peak_reserved);

        // It may be followed while it is read.
        let mut ahead = Ahead::default();
        let mut rest = trace.devices[0].events.clone();
        while !rest.is_empty() {
            let after = rest.split_off(cut.min(rest.len()));
            let streams = trace.streams.clone();
            ahead.follow(&Portion { events: rest, streams, has_expandable: false });
            rest = after;
        }
        let followed_on = replay::follow_on(&trace, 0, Some(ahead));
        prop_assert_eq!(format!("{followed_on:?}"), format!("{:?}", replay::follow_best(&trace, 0)));

        // What the program asked for, run freely on the same device.
        let config = Config::of_recording(&settings, TorchVersion::two(11));
        let (_, program) = replay::follow(&trace, 0, config.clone());
        let free = replay::what_if(&program, &config.with_capacity(Bytes(rules.capacity)));
        prop_assert_eq!(free.ran_out.is_some(), program.ends_failing());
        prop_assert_eq!(free.stats.num_ooms, reference.ooms);
        prop_assert_eq!(free.peak_reserved.bytes.0, reference.peak_reserved);
        prop_assert_eq!(free.peak_allocated.bytes.0, reference.peak_allocated);
        prop_assert_eq!(free.stats.num_alloc_retries, reference.retries);
    }
}
