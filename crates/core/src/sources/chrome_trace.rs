//! The profiler's Chrome trace: `[memory]` events, and the operators that run around them.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Deserialize;

use crate::{
    recording::{Curve, CurveDevice},
    units::Bytes,
};

#[derive(Deserialize)]
struct File {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

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
    tid: serde_json::Value,
    #[serde(default)]
    args: Option<Args>,
}

#[derive(Default, Deserialize)]
struct Args {
    #[serde(rename = "Total Reserved", default)]
    reserved: i64,
    #[serde(rename = "Total Allocated", default)]
    allocated: i64,
    #[serde(rename = "Bytes", default)]
    bytes: i64,
    #[serde(rename = "Addr", default)]
    address: i64,
    #[serde(rename = "Device Id", default)]
    device: i64,
    #[serde(rename = "Device Type", default)]
    device_type: i64,
}

/// Whether `bytes` begin like a Chrome trace.
pub fn is_trace(bytes: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(64 << 10)]);
    start.trim_start().starts_with('{') && start.contains("\"traceEvents\"")
}

/// The curves of a trace; the reason when it is none.
pub fn read(bytes: &[u8]) -> Result<Curve, String> {
    let file: File =
        serde_json::from_slice(bytes).map_err(|it| format!("not a profiler trace: {it}"))?;
    let is_memory = |it: &&Event| it.name == "[memory]" || it.name == "[OutOfMemory]";
    let mut memory: Vec<&Event> = file.events.iter().filter(is_memory).collect();
    memory.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let mut operators: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
    for it in file.events.iter().filter(|it| it.cat == "cpu_op") {
        operators.entry(it.tid.to_string()).or_default().push(it);
    }
    for it in operators.values_mut() {
        it.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    }
    let mut devices: BTreeMap<u32, Device> = BTreeMap::new();
    for event in memory {
        let Some(args) = &event.args else { continue };
        let Ok(index) = u32::try_from(args.device) else { continue };
        if args.device_type == 0 {
            continue;
        }
        devices.entry(index).or_default().take(event, args, &operators);
    }
    let devices = devices.into_iter().map(|(index, it)| it.finish(index)).collect();
    Ok(Curve { torch_version: None, devices })
}

#[derive(Default)]
struct Device {
    res: CurveDevice,
    live: BTreeMap<i64, (String, Bytes)>,
    at_peak: BTreeMap<String, Bytes>,
}

impl Device {
    fn take(&mut self, event: &Event, args: &Args, operators: &BTreeMap<String, Vec<&Event>>) {
        let size = |it: i64| Bytes(u64::try_from(it).unwrap_or(0));
        self.res.events += 1;
        if event.name == "[OutOfMemory]" {
            self.res.ooms += 1;
            return;
        }
        if 0 < args.bytes {
            let around = operators.get(&event.tid.to_string());
            let name = around.and_then(|it| operator_at(it, event.ts)).unwrap_or("no operator");
            self.live.insert(args.address, (name.to_owned(), size(args.bytes)));
        } else {
            self.live.remove(&args.address);
        }
        self.res.peak_reserved = self.res.peak_reserved.max(size(args.reserved));
        if self.res.peak_allocated < size(args.allocated) {
            self.res.peak_allocated = size(args.allocated);
            self.at_peak.clear();
            for (name, bytes) in self.live.values() {
                *self.at_peak.entry(name.clone()).or_default() += *bytes;
            }
        }
    }

    fn finish(mut self, index: u32) -> CurveDevice {
        self.res.index = index;
        self.res.operators = self.at_peak.into_iter().collect();
        self.res.operators.sort_by_key(|(name, bytes)| (Reverse(*bytes), name.clone()));
        self.res.operators.truncate(5);
        self.res
    }
}

/// The innermost operator around a moment.
fn operator_at<'a>(operators: &[&'a Event], ts: f64) -> Option<&'a str> {
    let at = operators.partition_point(|it| it.ts <= ts);
    let around = operators[at.saturating_sub(64)..at].iter().rev().find(|it| ts <= it.ts + it.dur);
    around.map(|it| it.name.as_str())
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
        assert!(read(b"{").is_err());
    }
}
