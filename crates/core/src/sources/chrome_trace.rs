//! The profiler's Chrome trace: `[memory]` events, and the operators that run around them. The file
//! is read as it arrives; of each event that matters a few numbers are kept.

use std::{cmp::Reverse, collections::BTreeMap, fmt, io::Read};

use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::{
    recording::{Curve, CurveDevice},
    trace::{Interner, TextId},
    units::Bytes,
};

/// What an event says. Its `args` are kept only where they are about memory.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    tid: Thread,
    #[serde(default)]
    args: Option<Args>,
}

/// Kineto's threads are numbers, those of other rows texts.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Thread {
    Number(i64),
    Text(String),
    #[default]
    Other,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Args {
    #[serde(rename = "Total Reserved", deserialize_with = "number")]
    reserved: i64,
    #[serde(rename = "Total Allocated", deserialize_with = "number")]
    allocated: i64,
    #[serde(rename = "Bytes", deserialize_with = "number")]
    bytes: i64,
    #[serde(rename = "Addr", deserialize_with = "number")]
    address: i64,
    #[serde(rename = "Device Id", deserialize_with = "number")]
    device: i64,
    #[serde(rename = "Device Type", deserialize_with = "number")]
    device_type: i64,
}

/// Other events use the same words for something else, which is nothing to fail over.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Any {
        Signed(i64),
        Unsigned(u64),
        Other(IgnoredAny),
    }
    Ok(match Any::deserialize(deserializer)? {
        Any::Signed(it) => it,
        Any::Unsigned(it) => it.cast_signed(),
        Any::Other(_) => 0,
    })
}

/// A `[memory]` or `[OutOfMemory]` event.
struct Memory {
    ts: f64,
    thread: TextId,
    ran_out: bool,
    args: Args,
}

/// A stretch of time in which an operator ran.
struct Operator {
    ts: f64,
    dur: f64,
    name: TextId,
}

/// Everything that is kept.
#[derive(Default)]
struct Contents {
    texts: Interner,
    memory: Vec<Memory>,
    /// By thread.
    operators: BTreeMap<TextId, Vec<Operator>>,
    has_events: bool,
}

impl Contents {
    fn take(&mut self, event: Event) {
        let Event { name, cat, ts, dur, tid, args } = event;
        let is_memory = name == "[memory]" || name == "[OutOfMemory]";
        if !is_memory && cat != "cpu_op" {
            return;
        }
        let thread = match tid {
            Thread::Number(it) => self.texts.intern(&it.to_string()),
            Thread::Text(it) => self.texts.intern(&it),
            Thread::Other => TextId(0),
        };
        if !is_memory {
            let name = self.texts.intern(&name);
            self.operators.entry(thread).or_default().push(Operator { ts, dur, name });
        } else if let Some(args) = args {
            let ran_out = name == "[OutOfMemory]";
            self.memory.push(Memory { ts, thread, ran_out, args });
        }
    }
}

/// The object that the file is; of its fields only the events.
impl<'de> Visitor<'de> for &mut Contents {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `traceEvents`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                self.has_events = true;
                map.next_value_seed(EventList(self))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        match self.has_events {
            true => Ok(()),
            false => Err(de::Error::custom("it has no `traceEvents`")),
        }
    }
}

struct EventList<'a>(&'a mut Contents);

impl<'de> DeserializeSeed<'de> for EventList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EventList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(event) = seq.next_element()? {
            self.0.take(event);
        }
        Ok(())
    }
}

/// Whether `bytes` begin like a Chrome trace.
pub fn is_trace(bytes: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(64 << 10)]);
    start.trim_start().starts_with('{') && start.contains("\"traceEvents\"")
}

/// The curves of a trace that is in memory; see [`read_from`].
pub fn read(bytes: &[u8]) -> Result<Curve, String> {
    read_from(bytes)
}

/// The curves of a trace as it arrives; the reason when it is none. One that is cut off is read as far
/// as it goes, and [`Curve::cut_off`] says why it ends.
pub fn read_from(reader: impl Read) -> Result<Curve, String> {
    let mut kept = Contents::default();
    let mut json = serde_json::Deserializer::from_reader(std::io::BufReader::new(reader));
    let found = json.deserialize_map(&mut kept).and_then(|()| json.end());
    let cut_off = match found {
        Ok(()) => None,
        Err(error) if kept.memory.is_empty() => {
            return Err(format!("not a profiler trace: {error}"));
        }
        Err(error) => Some(error.to_string()),
    };
    Ok(curve(kept, cut_off))
}

fn curve(mut kept: Contents, cut_off: Option<String>) -> Curve {
    kept.memory.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    for it in kept.operators.values_mut() {
        it.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    }
    let mut by_device: BTreeMap<u32, Vec<&Memory>> = BTreeMap::new();
    for event in &kept.memory {
        let Ok(index) = u32::try_from(event.args.device) else { continue };
        if event.args.device_type != 0 {
            by_device.entry(index).or_default().push(event);
        }
    }
    let devices = by_device.into_iter().map(|(index, events)| device(&kept, index, &events));
    Curve { torch_version: None, devices: devices.collect(), cut_off }
}

/// One device, from its events in the order of time.
fn device(kept: &Contents, index: u32, events: &[&Memory]) -> CurveDevice {
    let mut res = CurveDevice { index, events: events.len() as u64, ..CurveDevice::default() };
    let mut peak_at = None;
    for (at, event) in events.iter().enumerate() {
        if event.ran_out {
            res.ooms += 1;
            continue;
        }
        res.peak_reserved = res.peak_reserved.max(size(event.args.reserved));
        if res.peak_allocated < size(event.args.allocated) {
            res.peak_allocated = size(event.args.allocated);
            peak_at = Some(at);
        }
    }
    res.operators = peak_at.map_or_else(Vec::new, |at| live(kept, &events[..=at]));
    res.operators.truncate(5);
    res
}

/// Who asked for what is live after `events`, the most first.
fn live(kept: &Contents, events: &[&Memory]) -> Vec<(String, Bytes)> {
    let mut live: BTreeMap<i64, &Memory> = BTreeMap::new();
    for event in events.iter().filter(|it| !it.ran_out) {
        match 0 < event.args.bytes {
            true => live.insert(event.args.address, event),
            false => live.remove(&event.args.address),
        };
    }
    let mut by_name: BTreeMap<&str, Bytes> = BTreeMap::new();
    for event in live.into_values() {
        let around = kept.operators.get(&event.thread);
        let name = around.and_then(|it| operator_at(it, event.ts));
        let sum = by_name.entry(name.map_or("no operator", |it| kept.texts.get(it))).or_default();
        *sum = Bytes(sum.0.saturating_add(size(event.args.bytes).0));
    }
    let mut res: Vec<(String, Bytes)> =
        by_name.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    res.sort_by_key(|(_, bytes)| Reverse(*bytes));
    res
}

fn size(bytes: i64) -> Bytes {
    Bytes(u64::try_from(bytes).unwrap_or(0))
}

/// The innermost operator around a moment.
fn operator_at(operators: &[Operator], ts: f64) -> Option<TextId> {
    let at = operators.partition_point(|it| it.ts <= ts);
    let around = operators[at.saturating_sub(64)..at].iter().rev().find(|it| ts <= it.ts + it.dur);
    around.map(|it| it.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_operators_come_out() {
        let text = r#"{"traceEvents": [
          {"ph":"X","cat":"cpu_op","name":"aten::mm","tid":1,"ts":1.0,"dur":5.0,"args":{}},
          {"ph":"i","name":"[memory]","tid":1,"ts":2.0,"args":{"Total Reserved":100,"Total Allocated":60,"Bytes":60,"Addr":1,"Device Id":0,"Device Type":1}},
          {"ph":"i","name":"[memory]","tid":1,"ts":9.0,"args":{"Total Reserved":100,"Total Allocated":0,"Bytes":-60,"Addr":1,"Device Id":0,"Device Type":1}},
          {"ph":"i","name":"[memory]","tid":1,"ts":3.0,"args":{"Total Reserved":0,"Total Allocated":0,"Bytes":60,"Addr":1,"Device Id":-1,"Device Type":0}}
        ]}"#;
        assert!(is_trace(text.as_bytes()));
        let curve = read(text.as_bytes()).unwrap();
        let [device] = &curve.devices[..] else { panic!("{curve:?}") };
        assert_eq!(
            (device.events, device.peak_allocated, device.peak_reserved),
            (2, Bytes(60), Bytes(100))
        );
        assert_eq!(device.operators, [("aten::mm".to_owned(), Bytes(60))]);
        assert_eq!(curve.cut_off, None);
        // Cut in the middle of the third memory event: the first two are there, and it says so.
        let cut = read(&text.as_bytes()[..text.len() - 60]).unwrap();
        assert_eq!(cut.devices, curve.devices);
        assert!(cut.cut_off.unwrap().starts_with("EOF"), "says that the file ends");
        for no_trace in ["{", "{}", "[]", r#"{"traceEvents": 7}"#] {
            assert!(read(no_trace.as_bytes()).is_err(), "{no_trace}");
        }
    }

    #[test]
    fn words_of_other_events_are_nothing_to_fail_over() {
        let text = r#"{"schemaVersion": 1, "traceEvents": [
          {"ph":"X","name":"ncclDevKernel","tid":"stream 7","ts":1.5,"args":{"Device Id":"all","Bytes":[1]}},
          {"ph":"M","name":"process_name","tid":null,"args":{"name":"python"}},
          {"ph":"i","name":"[memory]","tid":1,"ts":2.0,"args":{"Total Reserved":9,"Total Allocated":6,"Bytes":6,"Addr":18446744073709551615,"Device Id":0,"Device Type":1}}
        ], "x": {}}"#;
        let curve = read(text.as_bytes()).unwrap();
        assert_eq!(curve.devices[0].peak_allocated, Bytes(6));
        assert_eq!(curve.devices[0].operators, [("no operator".to_owned(), Bytes(6))]);
    }
}
