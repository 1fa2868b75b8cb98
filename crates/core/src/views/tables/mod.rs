//! A recording as tables, for those who ask their own questions (`export --to parquet`). Values are read one
//! by one when a writer asks for them, so that nothing is held twice.

mod schema;

pub use schema::{BLOCKS, Column, EVENTS, Kind, SEGMENTS, STACKS};

use std::collections::BTreeMap;

use crate::{
    explanation::{
        At, NoSuchDevice,
        held::{self, Names, origin_words},
    },
    findings::category_name,
    prediction::{Category, Origin, device_run::DeviceRun, timeline::Stage},
    recording::{Recording, is_users_code},
    replay::{BlockId, InitialBlock, Levels},
    trace::{
        Action, BlockState, Event, EventId, FrameId, Interner, SizeClass, StackId, StreamId,
        TextId, Trace,
    },
    units::Bytes,
};

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// There is none.
    Null,
    /// Of a column of kind [`Kind::Int`].
    Int(i64),
    /// Of a column of kind [`Kind::Text`].
    Text(&'a str),
    /// Of a column of kind [`Kind::Bool`].
    Bool(bool),
}

/// A table: its columns, and its rows on demand.
pub struct Table<'a> {
    /// Its name, which is the file's.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
    /// How many rows there are.
    pub rows: usize,
    read: Box<dyn Fn(usize, usize) -> Value<'a> + 'a>,
}

impl<'a> Table<'a> {
    /// The value of `column` in `row`, both from 0.
    pub fn value(&self, row: usize, column: usize) -> Value<'a> {
        (self.read)(row, column)
    }
}

/// What is worked out of one device before its rows are read.
struct Worked {
    levels: Vec<Levels>,
    /// By event: the row of `blocks` that it makes or frees, less one; 0 for none.
    blocks: Vec<u32>,
    /// By block.
    categories: Vec<Category>,
    /// By block, into [`Worked::words`]; 0 is none.
    names: Vec<u32>,
    /// By block, into [`Worked::words`]; 0 is none.
    lines: Vec<u32>,
    words: Interner,
    /// What was there before, with the stack that the end state has of it.
    before: Vec<(InitialBlock, StackId)>,
    /// How many events had happened at the peak.
    at_peak: u32,
}

/// A recording, worked out; its tables borrow from it.
pub struct Tables<'a> {
    devices: Vec<(DeviceRun<'a>, Worked)>,
    /// Every frame of every stack that anything points to.
    frames: Vec<(StackId, u32, FrameId)>,
    trace: Option<&'a Trace>,
}

impl<'a> Tables<'a> {
    /// All devices of `recording`, or the one `asked` for.
    pub fn of(recording: &'a Recording, asked: Option<usize>) -> Result<Tables<'a>, NoSuchDevice> {
        let wanted = held::devices(recording, asked)?;
        let devices: Vec<(DeviceRun<'a>, Worked)> = wanted
            .into_iter()
            .filter_map(|it| DeviceRun::of(recording, it))
            .map(|run| {
                let worked = Worked::of(&run);
                (run, worked)
            })
            .collect();
        let trace = recording.trace.as_ref();
        let mut res = Tables { devices, frames: Vec::new(), trace };
        res.frames = res.frames();
        Ok(res)
    }

    /// The tables, in the order of the manual.
    pub fn all(&self) -> [Table<'_>; 4] {
        let rows = |count: fn(&(DeviceRun<'_>, Worked)) -> usize| -> Vec<usize> {
            let counts = self.devices.iter().scan(0, |sum, it| {
                *sum += count(it);
                Some(*sum)
            });
            counts.collect()
        };
        let events = rows(|(run, _)| run.device.events.len());
        let blocks = rows(|(run, worked)| run.replay.blocks.len() + worked.before.len());
        let segments = rows(|(run, _)| run.device.segments.len());
        let of = |ends: &[usize]| ends.last().copied().unwrap_or(0);
        [
            Table {
                name: "events",
                columns: EVENTS,
                rows: of(&events),
                read: Box::new(move |row, column| {
                    let (device, row) = local(&events, row);
                    self.event(device, row, EVENTS[column].name)
                }),
            },
            Table {
                name: "blocks",
                columns: BLOCKS,
                rows: of(&blocks),
                read: Box::new(move |row, column| {
                    let (device, row) = local(&blocks, row);
                    self.block(device, row, BLOCKS[column].name)
                }),
            },
            Table {
                name: "stacks",
                columns: STACKS,
                rows: self.frames.len(),
                read: Box::new(|row, column| self.frame(row, STACKS[column].name)),
            },
            Table {
                name: "segments",
                columns: SEGMENTS,
                rows: of(&segments),
                read: Box::new(move |row, column| {
                    let (device, row) = local(&segments, row);
                    self.segment(device, row, SEGMENTS[column].name)
                }),
            },
        ]
    }

    fn event(&self, device: usize, row: usize, column: &str) -> Value<'_> {
        let (run, worked) = &self.devices[device];
        let event = run.device.events.get(row);
        let id = EventId(u32::try_from(row).unwrap_or(u32::MAX));
        let is_oom = event.action == Action::Oom;
        match column {
            "device" => count(run.index),
            "event" => count(row),
            "action" => Value::Text(action(event.action)),
            "address" if is_oom => Value::Null,
            "address" => large(event.address),
            "size_bytes" => large(event.size.0),
            "free_bytes" if is_oom => large(event.address),
            "stream" => self.stream(event.stream),
            "pool" => large(event.pool.0.into()),
            "stack" => large(event.stack.0.into()),
            "time_us" => time(event),
            "annotation" => word(run.trace.text(event.metadata)),
            "block" => worked.blocks[row].checked_sub(1).map_or(Value::Null, |it| large(it.into())),
            "allocated_bytes" => large(worked.levels[row].allocated.0),
            "reserved_bytes" => large(worked.levels[row].reserved.0),
            "step" => large(run.moment(id).step.into()),
            "phase" => Value::Text(phase(run.timeline.stage(id))),
            _ => Value::Null,
        }
    }

    fn block(&self, device: usize, row: usize, column: &str) -> Value<'_> {
        let (run, worked) = &self.devices[device];
        let number = |it: EventId| large(it.0.into());
        let at = |it: EventId| time(run.device.events.get(it.index()));
        let Some(life) = run.replay.blocks.get(row) else {
            let (it, stack) = &worked.before[row - run.replay.blocks.len()];
            return match column {
                "device" => count(run.index),
                "block" => count(row),
                "address" => large(it.address),
                "size_bytes" => large(it.size.0),
                "requested_bytes" => large(it.requested.0),
                "free_event" => it.free.map_or(Value::Null, number),
                "free_time_us" => it.free.map_or(Value::Null, at),
                "stack" => large(stack.0.into()),
                "category" => Value::Text("before the recording"),
                "at_peak" => Value::Bool(it.free.is_none_or(|free| worked.at_peak <= free.0)),
                _ => Value::Null,
            };
        };
        match column {
            "device" => count(run.index),
            "block" => count(row),
            "address" => large(life.address),
            "size_bytes" => large(life.size.0),
            "requested_bytes" => large(life.requested.0),
            "alloc_event" => number(life.alloc),
            "free_event" => life.free.map_or(Value::Null, number),
            "alloc_time_us" => at(life.alloc),
            "free_time_us" => life.free.map_or(Value::Null, at),
            "stream" => self.stream(run.device.events.get(life.alloc.index()).stream),
            "stack" => large(run.device.events.stack(life.alloc.index()).0.into()),
            "category" => Value::Text(category_name(worked.categories[row])),
            "name" => word(worked.words.get(TextId(worked.names[row]))),
            "line" => word(worked.words.get(TextId(worked.lines[row]))),
            "step" => large(run.moment(life.alloc).step.into()),
            "phase" => Value::Text(phase(run.timeline.stage(life.alloc))),
            "at_peak" => {
                let lives_on = life.free.is_none_or(|it| worked.at_peak <= it.0);
                Value::Bool(life.alloc.0 < worked.at_peak && lives_on)
            }
            _ => Value::Null,
        }
    }

    fn frame(&self, row: usize, column: &str) -> Value<'_> {
        let Some(trace) = self.trace else { return Value::Null };
        let (stack, index, frame) = self.frames[row];
        let frame = trace.stacks.frame_of(frame);
        match column {
            "stack" => large(stack.0.into()),
            "frame" => large(index.into()),
            "function" => Value::Text(trace.text(frame.function)),
            "file" => Value::Text(trace.text(frame.file)),
            "line" if frame.line != 0 => large(frame.line.into()),
            "is_user" => Value::Bool(is_users_code(trace.text(frame.file), frame.line)),
            _ => Value::Null,
        }
    }

    fn segment(&self, device: usize, row: usize, column: &str) -> Value<'_> {
        let (run, _) = &self.devices[device];
        let it = &run.device.segments[row];
        match column {
            "device" => count(run.index),
            "address" => large(it.address),
            "size_bytes" => large(it.size.0),
            "allocated_bytes" => {
                let blocks = &run.device.blocks[range(&it.blocks)];
                let held = blocks.iter().filter(|it| it.state == BlockState::Allocated);
                large(held.map(|it| it.size).sum::<Bytes>().0)
            }
            "blocks" => count(it.blocks.len()),
            "stream" => self.stream(it.stream),
            "pool" => large(it.pool.0.into()),
            "size_class" => Value::Text(match it.size_class {
                SizeClass::Small => "small",
                SizeClass::Large => "large",
            }),
            "is_expandable" => Value::Bool(it.expandable),
            "stack" => large(it.stack.0.into()),
            _ => Value::Null,
        }
    }

    fn stream(&self, id: StreamId) -> Value<'_> {
        let handle = self.trace.and_then(|it| it.streams.get(id.index()));
        handle.map_or(Value::Null, |it| Value::Int(*it))
    }

    /// The frames of every stack that a row has.
    fn frames(&self) -> Vec<(StackId, u32, FrameId)> {
        let Some(trace) = self.trace else { return Vec::new() };
        let mut is_used = vec![false; trace.stacks.n_nodes()];
        for (run, worked) in &self.devices {
            for (_, event) in run.device.events.iter() {
                is_used[event.stack.index()] = true;
            }
            let segments = run.device.segments.iter().map(|it| it.stack);
            for stack in segments.chain(worked.before.iter().map(|(_, stack)| *stack)) {
                is_used[stack.index()] = true;
            }
        }
        let used = (0..).map(StackId).zip(is_used).filter(|(_, it)| *it);
        used.flat_map(|(stack, _)| {
            let frames = trace.stacks.frame_ids(stack);
            (0..).zip(frames).map(move |(index, frame)| (stack, index, frame))
        })
        .collect()
    }
}

impl Worked {
    fn of(run: &DeviceRun<'_>) -> Worked {
        let events = &run.device.events;
        let evidence = run.evidence();
        let names = Names::new(run, &evidence);
        let mut blocks = vec![0; events.len()];
        for (number, life) in (1..).zip(&run.replay.blocks) {
            blocks[life.alloc.index()] = number;
            if let Some(free) = life.free {
                blocks[free.index()] = number;
            }
        }
        let before = held::before(run);
        let n_made = u32::try_from(run.replay.blocks.len()).unwrap_or(u32::MAX);
        for (number, (it, _)) in (n_made + 1..).zip(&before) {
            if let Some(free) = it.free {
                blocks[free.index()] = number;
            }
        }
        let mut words = Interner::default();
        // Many blocks come from few stacks, and a line is looked up once for each.
        let mut line_of_stack: BTreeMap<(bool, StackId), u32> = BTreeMap::new();
        let mut res = Worked {
            levels: run.replay.levels(events).map(|(_, it)| it).collect(),
            blocks,
            categories: Vec::with_capacity(run.replay.blocks.len()),
            names: Vec::with_capacity(run.replay.blocks.len()),
            lines: Vec::with_capacity(run.replay.blocks.len()),
            words: Interner::default(),
            before,
            at_peak: At::Peak.find(run).map_or(0, |it| it.done),
        };
        for (block, life) in (0..).map(BlockId).zip(&run.replay.blocks) {
            res.categories.push(evidence.category(block));
            let name = names.name(block).unwrap_or_default();
            res.names.push(words.intern(&name).0);
            let own = events.stack(life.alloc.index());
            let stack = names.stack(block);
            let line = *line_of_stack.entry((own == StackId::EMPTY, stack)).or_insert_with(|| {
                let at = names.origin(block);
                let has_line = matches!(at, Origin::Line(_) | Origin::BackwardOf(_));
                if has_line { words.intern(&origin_words(&at)).0 } else { 0 }
            });
            res.lines.push(line);
        }
        res.words = words;
        res
    }
}

/// Which device a row is of, and its row there. `ends` has where the rows of each device end.
fn local(ends: &[usize], row: usize) -> (usize, usize) {
    let device = ends.partition_point(|it| *it <= row);
    let start = device.checked_sub(1).map_or(0, |it| ends[it]);
    (device, row - start)
}

fn range(it: &std::ops::Range<u32>) -> std::ops::Range<usize> {
    it.start as usize..it.end as usize
}

/// Sizes and addresses have 64 bits; the highest is never set where memory is.
fn large<'a>(it: u64) -> Value<'a> {
    i64::try_from(it).map_or(Value::Null, Value::Int)
}

fn count<'a>(it: usize) -> Value<'a> {
    i64::try_from(it).map_or(Value::Null, Value::Int)
}

fn time<'a>(event: Event) -> Value<'a> {
    if event.time_micros == 0 { Value::Null } else { Value::Int(event.time_micros) }
}

fn word(text: &str) -> Value<'_> {
    if text.is_empty() { Value::Null } else { Value::Text(text) }
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::Snapshot => "snapshot",
        Action::Oom => "oom",
        Action::Annotate => "annotate",
        Action::Other => "other",
    }
}

fn phase(stage: Stage) -> &'static str {
    match stage {
        Stage::Setup => "setup",
        Stage::Forward => "forward",
        Stage::Loss => "loss",
        Stage::Backward => "backward",
        Stage::Optimizer => "optimizer",
        Stage::ZeroGrad => "zero_grad",
        Stage::Evaluation => "evaluation",
        Stage::Saving => "saving",
        Stage::Merging => "merging",
        Stage::Between | Stage::AfterBackward => "between",
    }
}
