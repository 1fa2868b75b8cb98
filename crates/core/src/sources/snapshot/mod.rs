//! `snapshot.pickle`: what `torch.cuda.memory._dump_snapshot` writes, and its relatives: Python's
//! pickler with any protocol, the C++ one of torch, and the bare list of segments that
//! `torch.cuda.memory_snapshot()` returns.
//!
//! Keys that are not in `keys.rs` are left out; of those that torch 2.15 knows these are
//! `compile_context`, `forward_frames`, `internal_metadata`, the `fx_*` keys of frames and the pinned
//! host memory (`host_segments`, `host_traces`).

mod decoder;
mod event_rows;
mod html;
mod json;
mod keys;
mod object;

use std::io::{Cursor, Read};

use crate::{
    recording::contract::ProcessFile,
    sources::{
        Problem, ReadError, Warning,
        pickle::{Damage, Machine, Refused, Stop, Value},
        snapshot::{
            decoder::Decoder,
            keys::Word,
            object::{Kind, Object, Span, Top},
        },
    },
    trace::{DeviceTrace, Keeper, Segment, Trace},
};

/// How much of the beginning says what a file is.
pub const HEAD: usize = 64 << 10;

/// Whether a file that begins with `head` (its first [`HEAD`] bytes, or all of it) is a snapshot, as a
/// pickle, as JSON or inside torch's page.
pub fn is_snapshot(head: &[u8]) -> bool {
    match form(head) {
        Form::Json | Form::Page => true,
        Form::Pickle if head.first() == Some(&0x80) => true,
        // Protocols 0 and 1 are made of letters, as texts are.
        Form::Pickle if matches!(head.first(), Some(b'(' | b']' | b'}')) => {
            let is_name =
                |it: &str| it.bytes().all(|it| it.is_ascii_alphanumeric() || b"._".contains(&it));
            match read_pickle(head, Decoder::new(None)) {
                Ok(_) => true,
                Err(ReadError::Unreadable { damage: Damage::CutOff, .. }) => {
                    says(head, "segments") || says(head, "device_traces")
                }
                Err(ReadError::RunsCode { import: Some(import), .. }) => is_name(&import),
                Err(_) => false,
            }
        }
        Form::Pickle => false,
    }
}

/// Reads a memory snapshot that is in memory; see [`read_from`].
pub fn read(bytes: &[u8]) -> Result<(Trace, Vec<Warning>), ReadError> {
    read_from(bytes)
}

/// Reads a memory snapshot as it arrives, as a pickle, as JSON or inside torch's page; nothing of its
/// bytes is kept. What a damaged one still has comes with a warning that says where it breaks; bytes
/// that are no snapshot, or that want to run code, are an error.
pub fn read_from(reader: impl Read) -> Result<(Trace, Vec<Warning>), ReadError> {
    read_for(reader, None).map(|it| (it.trace, it.warnings))
}

/// The same, and `keeper` gets the events as they come.
pub fn read_with(reader: impl Read, keeper: &mut dyn Keeper) -> Result<Whole, ReadError> {
    read_for(reader, Some(keeper))
}

fn read_for(mut reader: impl Read, keeper: Option<&mut dyn Keeper>) -> Result<Whole, ReadError> {
    let mut head = Vec::new();
    let failure = reader.by_ref().take(HEAD as u64).read_to_end(&mut head).err();
    if let Some(why) = failure.filter(|_| head.is_empty()) {
        let damage = Damage::Unreadable(why.to_string());
        return Err(ReadError::Unreadable { damage, at: 0 });
    }
    if head.is_empty() {
        return Err(ReadError::Empty);
    }
    let form = form(&head);
    let whole = Cursor::new(head).chain(reader);
    let decoder = Decoder::new(keeper);
    match form {
        Form::Pickle => read_pickle(whole, decoder),
        Form::Json => read_json(whole, decoder),
        Form::Page => read_pickle(html::pickle(whole), decoder),
    }
}

/// A snapshot that was read.
#[derive(Debug)]
pub struct Whole {
    /// What it says.
    pub trace: Trace,
    /// What could not be read.
    pub warnings: Vec<Warning>,
    /// The device whose first event was the first of all.
    pub begins: Option<usize>,
}

enum Form {
    Pickle,
    Json,
    Page,
}

fn form(head: &[u8]) -> Form {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    // A pickle of protocol 0 or 1 never begins with these two.
    if matches!(text.first(), Some(b'{' | b'['))
        && (says(text, "\"device_traces\"") || says(text, "\"total_size\""))
    {
        Form::Json
    } else if html::is_page(text) {
        Form::Page
    } else {
        Form::Pickle
    }
}

fn says(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|it| it == word.as_bytes())
}

fn read_pickle(reader: impl Read, decoder: Decoder<'_>) -> Result<Whole, ReadError> {
    let mut machine = Machine::new(reader, decoder);
    let (layout, damage) = match machine.run() {
        Ok(value) => (layout(&mut machine.builder, value), None),
        Err(Stop::Refused(Refused { opcode, import })) => {
            return Err(ReadError::RunsCode { opcode, offset: machine.at, import });
        }
        Err(Stop::Damage(damage)) => (salvage(&mut machine.builder, &machine.stack), Some(damage)),
    };
    let at = machine.at;
    match layout {
        Some(layout) => Ok(finish(machine.builder, layout, at, damage)),
        None => Err(not_a_snapshot(machine.head(), at, damage)),
    }
}

fn read_json(reader: impl Read, decoder: Decoder<'_>) -> Result<Whole, ReadError> {
    let (mut json, found) = json::read(reader, decoder);
    let (layout, damage) = match found {
        Ok(value) => (layout(&mut json.builder, value), None),
        Err(damage) => (salvage(&mut json.builder, &json.stack), Some(damage)),
    };
    match (layout, damage) {
        (Some(layout), damage) => Ok(finish(json.builder, layout, json.at, damage)),
        (None, Some(damage)) => Err(ReadError::Unreadable { damage, at: json.at }),
        (None, None) => Err(ReadError::SomethingElse),
    }
}

/// Which rows are whose.
#[derive(Debug, Default)]
struct Layout {
    /// The events of each device.
    devices: Vec<Span>,
    segments: Span,
}

/// The layout of a complete snapshot whose outermost object is `value`.
fn layout(decoder: &mut Decoder<'_>, value: Value) -> Option<Layout> {
    let Value::Object(object) = value else { return None };
    match decoder.close(object) {
        Object::Top(top) => Some(layout_of(decoder, decoder.top(top))),
        // A bare list, or a device without any segment.
        Object::Rows(Kind::Segments, _) => {
            Some(Layout { devices: Vec::new(), segments: decoder.rows(Kind::Segments, object) })
        }
        Object::List => Some(Layout::default()),
        _ => None,
    }
}

fn layout_of(decoder: &Decoder<'_>, top: Top) -> Layout {
    let devices = match top.traces.map(|it| decoder.object(it)) {
        Some(Object::Traces(lists)) => {
            let lists = decoder.traces[lists as usize].iter();
            lists.map(|it| decoder.rows(Kind::Events, *it)).collect()
        }
        _ => Vec::new(),
    };
    let segments = top.segments.map_or(Span::default(), |it| decoder.rows(Kind::Segments, it));
    Layout { devices, segments }
}

/// The layout of what stood there when the machine stopped early, from what was on its stack: the
/// lists that were not finished are still open there, with the items that they had waiting. None if
/// nothing that matters was complete: that is no snapshot of an idle device.
fn salvage(decoder: &mut Decoder<'_>, stack: &[Value]) -> Option<Layout> {
    let mut res = Layout::default();
    // Where items come one by one, the outermost dict already has the finished ones.
    if let Some(&Value::Object(top)) = stack.first()
        && let Object::Top(top) = decoder.close(top)
    {
        res = layout_of(decoder, decoder.top(top));
    }
    let is_word = |value: &Value, word: Word| matches!(value, Value::Text(it) if word.is(*it));
    if let Some(at) = stack.iter().position(|it| is_word(it, Word::DeviceTraces)) {
        res.devices.clear();
        let mut objects = stack[at + 1..].iter();
        if let Some(Value::Object(outer)) = objects.next()
            && let Object::Traces(lists) = decoder.object(*outer)
        {
            let lists = decoder.traces[lists as usize].iter();
            res.devices.extend(lists.map(|it| decoder.rows(Kind::Events, *it)));
        }
        let open_lists = objects.map_while(|value| match value {
            Value::Object(id) => match decoder.object(*id) {
                Object::List => Some(Span::default()),
                Object::Rows(Kind::Events, _) => Some(decoder.rows(Kind::Events, *id)),
                _ => None,
            },
            _ => None,
        });
        res.devices.extend(open_lists);
    }
    // Events that wait for their list belong to the one that is open, which is the last.
    let n_events = u32::try_from(decoder.events.len()).unwrap_or(u32::MAX);
    let waiting = n_events.saturating_sub(decoder.n_events_in_lists);
    if 0 < waiting {
        if res.devices.is_empty() {
            res.devices.push(Span::default());
        }
        if let Some(last) = res.devices.last_mut() {
            if last.len == 0 {
                last.first = decoder.n_events_in_lists;
            }
            last.len = n_events - last.first;
        }
    }
    res.segments =
        Span { first: 0, len: u32::try_from(decoder.segments.len()).unwrap_or(u32::MAX) };
    (0 < n_events || 0 < res.segments.len).then_some(res)
}

/// The trace, and what is wrong with it. `at` is where reading ended.
fn finish(mut decoder: Decoder<'_>, layout: Layout, at: u64, damage: Option<Damage>) -> Whole {
    let warning = |problem| Warning { file: ProcessFile::Snapshot, at, problem };
    let left_out = std::mem::take(&mut decoder.left_out);
    let mut warnings: Vec<Warning> =
        left_out.into_iter().map(|what| warning(Problem::Malformed(what))).collect();
    let cut_at = damage.is_some().then_some(at);
    warnings.extend(damage.map(|it| warning(Problem::Damaged(it))));
    let begins = layout.devices.iter().position(|it| it.first == 0 && it.len != 0);
    Whole { trace: trace(decoder, layout, cut_at), warnings, begins }
}

fn trace(decoder: Decoder<'_>, layout: Layout, cut_at: Option<u64>) -> Trace {
    let Decoder { texts, stacks, events, segments, blocks, annotations, .. } = decoder;
    let mut events = events.all();
    let Decoder { settings, streams, pools, keys, .. } = decoder;
    let n_devices = layout.devices.len();
    let in_use = &segments[layout.segments.first as usize..layout.segments.end() as usize];
    let n_devices = in_use.iter().fold(n_devices, |n, (device, _)| n.max(*device as usize + 1));
    let mut devices: Vec<DeviceTrace> = Vec::new();
    devices.resize_with(n_devices, DeviceTrace::default);
    // From the last rows to the first, so that what is cut off is never moved twice.
    let mut spans: Vec<(Span, usize)> = layout.devices.into_iter().zip(0..).collect();
    spans.sort_by_key(|(span, _)| std::cmp::Reverse(span.first));
    for (span, device) in spans {
        // A damaged file may name one list for two devices; the first to come has it.
        if span.len != 0 && span.end() as usize <= events.len() {
            events.truncate(span.end() as usize);
            devices[device].events = events.split_off(span.first as usize);
        }
    }
    for (device, segment) in in_use {
        let DeviceTrace { segments, blocks: own, .. } = &mut devices[*device as usize];
        let first = own.len();
        let range = segment.blocks.start as usize..segment.blocks.end as usize;
        own.extend(blocks[range].iter().cloned());
        let ids = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        segments.push(Segment { blocks: ids(first)..ids(own.len()), ..segment.clone() });
    }
    let written_since = keys::first_version(keys);
    Trace { devices, stacks, texts, streams, pools, settings, written_since, annotations, cut_at }
}

fn not_a_snapshot(head: &[u8], at: u64, damage: Option<Damage>) -> ReadError {
    let looks_like_one = matches!(head.first(), Some(0x80 | b'(' | b']' | b'}'));
    match damage {
        None => ReadError::SomethingElse,
        Some(damage) if looks_like_one && head.len() != 1 => ReadError::Unreadable { damage, at },
        Some(_) => {
            let start = String::from_utf8_lossy(head);
            ReadError::NotAPickle { start: start.chars().take(20).collect() }
        }
    }
}
