//! What the dicts and lists of a snapshot mean. Each is turned into columns as soon as its items
//! arrive and leaves a small [`Object`] behind for who refers to it; there is never a tree of
//! generic objects.

use std::collections::BTreeMap;

use crate::{
    sources::{
        pickle::{Builder, Damage, Value},
        snapshot::{
            event_rows::EventRows,
            keys::{self, Record, Word},
            object::{Kind, Object, Span, Top, row},
        },
    },
    trace::{
        Annotation, Block, BlockState, Event, Frame, FrameId, Interner, Keeper, PoolId, Portion,
        Segment, Settings, SizeClass, StackId, StackTable, StreamId, TextId,
    },
};

/// Dicts that may be unfinished at once. Only protocol 0 gives the items of a dict one by one, and
/// it finishes each dict before it begins the next one beside it.
const MAX_OPEN: usize = 4096;
/// Devices that a snapshot may have; torch itself stops at 128.
const MAX_DEVICES: u32 = 1024;
/// Streams and pools; torch has 32 streams of each priority, and a pool for each graph.
const MAX_STREAMS: usize = 1 << 14;
const MAX_POOLS: usize = 1 << 16;
/// Bytes of a frame's file and function: no path is longer, and each report names some.
const LONGEST_NAME: usize = 4096;

/// The columns, and what refers to them.
pub(super) struct Decoder<'k> {
    pub(super) texts: Interner,
    pub(super) stacks: StackTable,
    pub(super) events: EventRows<'k>,
    /// Each with the device that it says it is on.
    pub(super) segments: Vec<(u32, Segment)>,
    pub(super) blocks: Vec<Block>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) settings: Option<Settings>,
    /// One bit for each key that any event, segment, the settings or the whole has.
    pub(super) keys: u64,
    divisions: [u32; 16],
    pub(super) streams: Vec<i64>,
    stream_ids: BTreeMap<i64, StreamId>,
    pub(super) pools: Vec<(i64, i64)>,
    pool_ids: BTreeMap<(i64, i64), PoolId>,
    objects: Vec<Object>,
    open: Vec<Record>,
    free_open: Vec<u32>,
    /// The frames of the lists in `open_frames`.
    frame_items: Vec<FrameId>,
    open_frames: Vec<Span>,
    free_frames: Vec<u32>,
    /// The rows of each list of events, segments or blocks.
    lists: Vec<Span>,
    tops: Vec<Top>,
    pub(super) traces: Vec<Vec<u32>>,
    /// Events before this one are in a list.
    pub(super) n_events_in_lists: u32,
    /// The record of the dict at hand; away while it is decoded.
    scratch: Option<Box<Record>>,
    /// What had to be left out; each kind once.
    pub(super) left_out: Vec<&'static str>,
}

impl<'k> Decoder<'k> {
    /// `keeper` wants the events as they come.
    pub(super) fn new(keeper: Option<&'k mut dyn Keeper>) -> Decoder<'k> {
        Decoder {
            texts: keys::interner(),
            stacks: StackTable::default(),
            events: EventRows::new(keeper),
            segments: Vec::new(),
            blocks: Vec::new(),
            annotations: Vec::new(),
            settings: None,
            keys: 0,
            divisions: [0; 16],
            streams: vec![0],
            stream_ids: BTreeMap::from([(0, StreamId(0))]),
            pools: vec![(0, 0)],
            pool_ids: BTreeMap::from([((0, 0), PoolId(0))]),
            objects: Vec::new(),
            open: Vec::new(),
            free_open: Vec::new(),
            frame_items: Vec::new(),
            open_frames: Vec::new(),
            free_frames: Vec::new(),
            lists: Vec::new(),
            tops: Vec::new(),
            traces: Vec::new(),
            n_events_in_lists: 0,
            scratch: None,
            left_out: Vec::new(),
        }
    }

    /// What `object` is.
    pub(super) fn object(&self, object: u32) -> Object {
        self.objects.get(object as usize).copied().unwrap_or(Object::Ignored)
    }

    fn add(&mut self, object: Object) -> u32 {
        self.objects.push(object);
        row(self.objects.len() - 1)
    }

    fn leave_out(&mut self, what: &'static str) {
        if !self.left_out.contains(&what) {
            self.left_out.push(what);
        }
    }

    /// What `object` is now that somebody refers to it: it has all its items.
    pub(super) fn close(&mut self, object: u32) -> Object {
        let closed = match self.object(object) {
            Object::Open(open) => {
                let record = std::mem::replace(&mut self.open[open as usize], Record::new());
                self.free_open.push(open);
                self.decode(&record)
            }
            Object::Frames(open) => {
                let span = std::mem::take(&mut self.open_frames[open as usize]);
                self.free_frames.push(open);
                let range = span.first as usize..span.end() as usize;
                let stack = self.stacks.stack(&self.frame_items[range]);
                if span.end() as usize == self.frame_items.len() {
                    self.frame_items.truncate(span.first as usize);
                }
                Object::Stack(stack)
            }
            other => return other,
        };
        self.objects[object as usize] = closed;
        closed
    }

    /// Turns a complete dict into what it is.
    fn decode(&mut self, record: &Record) -> Object {
        if record.has(Word::Action) {
            self.event(record)
        } else if record.has(Word::Filename) {
            let frame = Frame {
                file: self.name(record, Word::Filename),
                function: self.name(record, Word::Name),
                line: record.int(Word::Line).and_then(|it| u32::try_from(it).ok()).unwrap_or(0),
            };
            Object::Frame(self.stacks.frame(frame))
        } else if record.has(Word::TotalSize) {
            self.segment(record)
        } else if record.has(Word::State) {
            self.block(record)
        } else if record.has(Word::RealSize) {
            Object::History(self.stack(record))
        } else if record.has(Word::Stage) {
            self.annotations.push(Annotation {
                name: record.text(Word::Name).unwrap_or_default(),
                begins: record.text(Word::Stage).is_some_and(|it| Word::Start.is(it)),
                device: record.int(Word::Device).and_then(|it| u32::try_from(it).ok()).unwrap_or(0),
                time_micros: record.int(Word::TimeUs).unwrap_or(0),
            });
            Object::Annotation
        } else if record.has(Word::DeviceTraces) || record.has(Word::Segments) {
            if let Some(settings) = record.object(Word::AllocatorSettings) {
                self.close(settings);
            }
            self.keys |= record.keys();
            self.tops.push(Top {
                traces: record.object(Word::DeviceTraces),
                segments: record.object(Word::Segments),
            });
            Object::Top(row(self.tops.len() - 1))
        } else if record.has(Word::AllocConf) || record.has(Word::MaxSplitSize) {
            self.settings(record)
        } else if let Some(divisions) = record.divisions() {
            self.divisions = divisions;
            Object::Divisions
        } else {
            Object::Ignored
        }
    }

    /// The name of a frame's file or function, as much as is said of it.
    #[inline]
    fn name(&mut self, record: &Record, key: Word) -> TextId {
        let id = record.text(key).unwrap_or_default();
        if self.texts.get(id).len() <= LONGEST_NAME { id } else { self.shortened(id) }
    }

    #[cold]
    fn shortened(&mut self, id: TextId) -> TextId {
        self.leave_out("the rest of a name of more than 4096 bytes");
        let text = self.texts.get(id);
        let end = text.floor_char_boundary(LONGEST_NAME);
        let short = text[..end].to_owned();
        self.texts.intern(&short)
    }

    #[inline]
    fn event(&mut self, record: &Record) -> Object {
        let action = record.text(Word::Action).map_or(crate::trace::Action::Other, keys::action);
        let address = record.address(Word::Addr).or_else(|| record.address(Word::DeviceFree));
        let (Some(address), Some(size)) = (address, record.size(Word::Size)) else {
            self.leave_out("an event without address or size");
            return Object::Ignored;
        };
        if u32::MAX as usize - 1 <= self.events.len() {
            self.leave_out("events beyond the 4294967294th");
            return Object::Ignored;
        }
        self.keys |= record.keys();
        let event = Event {
            action,
            address,
            size,
            stream: self.stream(record.int(Word::Stream).unwrap_or(0)),
            pool: self.pool(record, Word::PoolId),
            stack: self.stack(record),
            time_micros: record.int(Word::TimeUs).unwrap_or(0),
            metadata: record.text(Word::UserMetadata).unwrap_or_default(),
        };
        self.events.push(event);
        let at = row(self.events.len() - 1);
        if self.events.is_due() {
            self.hand_over();
        }
        Object::Event(at)
    }

    #[cold]
    fn hand_over(&mut self) {
        self.events.hand_over(Portion {
            streams: self.streams.clone(),
            has_expandable: self.segments.iter().any(|(_, it)| it.expandable),
            ..Portion::default()
        });
    }

    fn segment(&mut self, record: &Record) -> Object {
        let device = record.int(Word::Device).unwrap_or(0);
        let device = u32::try_from(device).ok().filter(|it| *it < MAX_DEVICES);
        let (Some(address), Some(size), Some(device)) =
            (record.address(Word::Address), record.size(Word::TotalSize), device)
        else {
            self.leave_out("a segment without address, size or device");
            return Object::Ignored;
        };
        let blocks =
            record.object(Word::Blocks).map_or(Span::default(), |it| self.rows(Kind::Blocks, it));
        // Before 2.1 a block does not say where it is; blocks cover their segment without gaps.
        let mut next = address;
        for block in &mut self.blocks[blocks.first as usize..blocks.end() as usize] {
            if block.address == 0 {
                block.address = next;
            }
            next = block.address.wrapping_add(block.size.0);
        }
        self.keys |= record.keys();
        let is_small = record.text(Word::SegmentType).is_some_and(|it| Word::Small.is(it));
        let segment = Segment {
            address,
            size,
            stream: self.stream(record.int(Word::Stream).unwrap_or(0)),
            pool: self.pool(record, Word::SegmentPoolId),
            size_class: if is_small { SizeClass::Small } else { SizeClass::Large },
            expandable: record.bool(Word::IsExpandable),
            stack: self.stack(record),
            blocks: blocks.first..blocks.end(),
        };
        self.segments.push((device, segment));
        Object::Segment(row(self.segments.len() - 1))
    }

    fn block(&mut self, record: &Record) -> Object {
        let Some(size) = record.size(Word::Size) else {
            self.leave_out("a block without size");
            return Object::Ignored;
        };
        let state = match record.text(Word::State) {
            Some(it) if Word::ActiveAllocated.is(it) => BlockState::Allocated,
            Some(it) if Word::ActivePendingFree.is(it) || Word::ActiveAwaitingFree.is(it) => {
                BlockState::PendingFree
            }
            _ => BlockState::Free,
        };
        let stack = match record.object(Word::History).map(|it| self.object(it)) {
            Some(Object::History(stack)) if !record.has(Word::Frames) => stack,
            _ => self.stack(record),
        };
        self.blocks.push(Block {
            address: record.address(Word::Address).unwrap_or(0),
            size,
            requested: record.size(Word::RequestedSize).unwrap_or(size),
            state,
            stack,
        });
        Object::Block(row(self.blocks.len() - 1))
    }

    fn settings(&mut self, record: &Record) -> Object {
        self.keys |= record.keys();
        let text = record.text(Word::AllocConf).map_or("", |it| self.texts.get(it)).to_owned();
        let divisions = record.object(Word::RoundupPower2Divisions).map(|it| self.close(it));
        self.settings = Some(Settings {
            is_of_beginning: false,
            text,
            // -1 is the writer's word for unlimited.
            max_split_size: record.size(Word::MaxSplitSize).filter(|it| it.0 != 0),
            garbage_collection_threshold: match record.get(Word::GarbageCollectionThreshold) {
                Some(Value::Float(it)) => it,
                _ => 0.0,
            },
            expandable_segments: record.bool(Word::ExpandableSegments),
            roundup_power2_divisions: match divisions {
                Some(Object::Divisions) => self.divisions,
                _ => [0; 16],
            },
        });
        Object::Settings
    }

    #[inline]
    fn stack(&mut self, record: &Record) -> StackId {
        match record.object(Word::Frames).map(|it| self.close(it)) {
            Some(Object::Stack(stack)) => stack,
            _ => StackId::EMPTY,
        }
    }

    #[inline]
    fn stream(&mut self, handle: i64) -> StreamId {
        if handle == 0 {
            return StreamId(0);
        }
        if let Some(known) = self.stream_ids.get(&handle) {
            return *known;
        }
        if MAX_STREAMS <= self.streams.len() {
            self.leave_out("streams beyond the 16384th");
            return StreamId(0);
        }
        self.streams.push(handle);
        let id = StreamId(row(self.streams.len() - 1));
        self.stream_ids.insert(handle, id);
        id
    }

    #[inline]
    fn pool(&self, record: &Record, key: Word) -> PoolId {
        match record.object(key).map(|it| self.object(it)) {
            Some(Object::Pool(pool)) => pool,
            _ => PoolId(0),
        }
    }

    /// The rows of the list `object`; none when it holds something else.
    pub(super) fn rows(&self, kind: Kind, object: u32) -> Span {
        match self.object(object) {
            Object::Rows(found, list) if found == kind => self.lists[list as usize],
            _ => Span::default(),
        }
    }

    /// The snapshot's own dict.
    pub(super) fn top(&self, top: u32) -> Top {
        self.tops[top as usize]
    }

    /// The list `list` after `item` is added to it.
    fn appended(&mut self, list: Object, object: u32, item: Object) -> Object {
        let grown = match item {
            Object::Event(at) => {
                self.n_events_in_lists = self.n_events_in_lists.max(at + 1);
                self.with_row(list, Kind::Events, at)
            }
            Object::Segment(at) => self.with_row(list, Kind::Segments, at),
            Object::Block(at) => self.with_row(list, Kind::Blocks, at),
            Object::List | Object::Rows(Kind::Events, _) => match list {
                Object::List => {
                    self.traces.push(vec![object]);
                    Some(Object::Traces(row(self.traces.len() - 1)))
                }
                Object::Traces(at) if self.traces[at as usize].len() < MAX_DEVICES as usize => {
                    self.traces[at as usize].push(object);
                    Some(list)
                }
                _ => None,
            },
            // The newest use of a block comes first.
            Object::History(stack) => {
                Some(if list == Object::List { Object::History(stack) } else { list })
            }
            Object::Annotation | Object::Ignored => Some(list),
            _ => None,
        };
        grown.unwrap_or_else(|| {
            self.leave_out("an item of a list that holds something else");
            list
        })
    }

    /// `list` with the row `at`, which is the one after its last: a row elsewhere belongs to two lists,
    /// which no writer does.
    fn with_row(&mut self, list: Object, kind: Kind, at: u32) -> Option<Object> {
        match list {
            Object::List => {
                self.lists.push(Span { first: at, len: 1 });
                Some(Object::Rows(kind, row(self.lists.len() - 1)))
            }
            Object::Rows(found, list) if found == kind => {
                let span = &mut self.lists[list as usize];
                (span.end() == at).then(|| {
                    span.len += 1;
                    Object::Rows(kind, list)
                })
            }
            _ => None,
        }
    }

    /// `list` with the frames that `items` begin with, and how many these are: most lists are stacks.
    #[inline]
    fn with_frames(&mut self, list: Object, items: &[Value]) -> (Object, usize) {
        let first = row(self.frame_items.len());
        let open = match list {
            // A list that was put aside, while another one began, is no writer's.
            Object::Frames(open) if self.open_frames[open as usize].end() == first => Some(open),
            Object::List => None,
            _ => return (list, 0),
        };
        for item in items {
            let Value::Object(object) = *item else { break };
            let Some(&Object::Frame(frame)) = self.objects.get(object as usize) else { break };
            self.frame_items.push(frame);
        }
        let len = row(self.frame_items.len()) - first;
        if len == 0 {
            return (list, 0);
        }
        let open = open.or_else(|| self.free_frames.pop()).unwrap_or_else(|| {
            self.open_frames.push(Span::default());
            row(self.open_frames.len() - 1)
        });
        let span = &mut self.open_frames[open as usize];
        // One that was closed is empty.
        *span =
            if span.len == 0 { Span { first, len } } else { Span { len: span.len + len, ..*span } };
        (Object::Frames(open), len as usize)
    }
}

impl Builder for Decoder<'_> {
    #[inline]
    fn text(&mut self, text: &str) -> TextId {
        self.texts.intern(text)
    }

    fn texts(&self) -> &Interner {
        &self.texts
    }

    #[inline]
    fn dict(&mut self) -> u32 {
        self.add(Object::Dict)
    }

    #[inline]
    fn list(&mut self) -> u32 {
        self.add(Object::List)
    }

    fn tuple(&mut self, items: &[Value]) -> u32 {
        let object = match items {
            [Value::Int(first), Value::Int(second)] => {
                let id = (*first, *second);
                match self.pool_ids.get(&id) {
                    Some(known) => Object::Pool(*known),
                    None if MAX_POOLS <= self.pools.len() => {
                        self.leave_out("pools beyond the 65536th");
                        Object::Ignored
                    }
                    None => {
                        self.pools.push(id);
                        let new = PoolId(row(self.pools.len() - 1));
                        self.pool_ids.insert(id, new);
                        Object::Pool(new)
                    }
                }
            }
            _ => Object::Ignored,
        };
        self.add(object)
    }

    #[inline]
    fn set(&mut self, dict: u32, items: &[Value], all: bool) -> Result<(), Damage> {
        match self.object(dict) {
            Object::Dict if all => {
                let mut record = self.scratch.take().unwrap_or_else(|| Box::new(Record::new()));
                record.clear();
                record.set(items);
                self.objects[dict as usize] = self.decode(&record);
                self.scratch = Some(record);
            }
            Object::Dict => {
                let open = match self.free_open.pop() {
                    Some(open) => open,
                    None if MAX_OPEN <= self.open.len() => {
                        return Err(Damage::TooMuch("unfinished dicts"));
                    }
                    None => {
                        self.open.push(Record::new());
                        row(self.open.len() - 1)
                    }
                };
                self.open[open as usize].set(items);
                self.objects[dict as usize] = Object::Open(open);
            }
            Object::Open(open) => self.open[open as usize].set(items),
            Object::Ignored => {}
            _ => self.leave_out("items of a dict that was complete"),
        }
        Ok(())
    }

    fn append(&mut self, list: u32, items: &[Value]) {
        let mut grown = self.object(list);
        let mut items = items;
        while let Some((first, rest)) = items.split_first() {
            let mut n = 0;
            if let Value::Object(object) = *first
                && object != list
            {
                let item = self.close(object);
                if matches!(item, Object::Frame(_)) {
                    (grown, n) = self.with_frames(grown, items);
                }
                if n == 0 {
                    grown = self.appended(grown, object, item);
                }
            }
            items = if n == 0 { rest } else { &items[n..] };
        }
        if let Some(it) = self.objects.get_mut(list as usize) {
            *it = grown;
        }
    }
}
