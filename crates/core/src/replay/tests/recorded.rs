//! Recordings as text, one event a line: `alloc 8M 4M` is a block at 8 MiB that 4 MiB were asked for. `line=3`
//! is the stack that asked; `free` is a request and its completion.

use crate::{
    trace::{Action, DeviceTrace, Event, PoolId, StackId, StreamId, TextId, Trace},
    units::Bytes,
};

/// The recording of one device that `text` shows; no end state.
pub(crate) fn recording(text: &str) -> Trace {
    let mut device = DeviceTrace::default();
    for line in text.lines().map(|it| it.split('#').next().unwrap().trim()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [what, place, size, marks @ ..] = &words[..] else { continue };
        let mark = |prefix: &str| {
            let found = marks.iter().find_map(|it| it.strip_prefix(prefix));
            found.map_or(0, |it| it.parse().unwrap())
        };
        let actions: &[Action] = match *what {
            "alloc" => &[Action::Alloc],
            "free" => &[Action::FreeRequested, Action::FreeCompleted],
            "free_requested" => &[Action::FreeRequested],
            "free_completed" => &[Action::FreeCompleted],
            "segment_alloc" => &[Action::SegmentAlloc],
            "segment_free" => &[Action::SegmentFree],
            "segment_map" => &[Action::SegmentMap],
            "segment_unmap" => &[Action::SegmentUnmap],
            "oom" => &[Action::Oom],
            _ => panic!("{line}"),
        };
        for action in actions {
            device.events.push(Event {
                action: *action,
                address: place.parse::<Bytes>().unwrap().0,
                size: size.parse().unwrap(),
                stream: StreamId(mark("stream=")),
                pool: PoolId(mark("pool=")),
                stack: StackId(mark("line=")),
                time_micros: 0,
                metadata: TextId(0),
            });
        }
    }
    Trace { devices: vec![device], ..Trace::default() }
}
