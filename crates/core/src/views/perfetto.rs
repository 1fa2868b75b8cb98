//! A recording as a trace that <https://ui.perfetto.dev> and `chrome://tracing` open: Chrome's JSON trace
//! events. Counters for what is allocated, reserved and active, and for each purpose; slices for steps,
//! phases and what the program annotated; instants for failed requests and for the driver's segments.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    explanation::{
        NoSuchDevice,
        held::{self, origin_words},
    },
    findings::category_name,
    prediction::{Category, categories::Evidence, device_run::DeviceRun, timeline::Stage},
    recording::Recording,
    replay::BlockId,
    trace::{Action, Event, StackId},
    units::Bytes,
};

/// Points of the counters of one device, at most: a trace with more takes minutes to open. Between two
/// of them are the lowest and the highest level, so no peak is lost.
const MOST_POINTS: usize = 200_000;
/// Instants of one kind and device, at most.
const MOST_INSTANTS: usize = 20_000;

/// A trace, and what to know about it.
#[derive(Clone, Debug)]
pub struct PerfettoTrace {
    /// The file.
    pub json: String,
    /// One sentence each.
    pub notes: Vec<String>,
}

/// All devices of `recording`, or the one `asked` for.
pub fn perfetto(
    recording: &Recording,
    asked: Option<usize>,
    name: &str,
) -> Result<PerfettoTrace, NoSuchDevice> {
    let devices = held::devices(recording, asked)?;
    let mut writer = Writer { json: String::from("{\"traceEvents\":[\n"), notes: Vec::new() };
    let mut timed = true;
    for index in devices {
        let Some(run) = DeviceRun::of(recording, index) else { continue };
        timed &= device(&mut writer, &run, name);
    }
    if !timed {
        writer.notes.push(
            "the recording has no times; each event takes one microsecond of the trace".to_owned(),
        );
    }
    let Writer { mut json, notes } = writer;
    // The last event has a comma, which JSON does not allow.
    json.truncate(json.trim_end_matches([',', '\n']).len());
    let clock = if timed { "microseconds of the recorder" } else { "number of the event" };
    let _ = write!(
        json,
        "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{{\"made_by\":\"plimsoll export\",\"recording\":{},\"clock\":\"{clock}\"}}}}\n",
        quoted(name)
    );
    Ok(PerfettoTrace { json, notes })
}

/// What a track is called and sorted by.
const COUNTERS: u32 = 0;
const STEPS: u32 = 1;
const PHASES: u32 = 2;
const ANNOTATIONS: u32 = 3;
const DRIVER: u32 = 4;

/// Adds one device; returns whether its events have times.
fn device(writer: &mut Writer, run: &DeviceRun<'_>, name: &str) -> bool {
    let events = &run.device.events;
    let clock = Clock::of(run);
    let pid = run.index;
    let process = format!("GPU {pid}, {name}");
    writer.meta(pid, None, "process_name", &process);
    let tracks = [
        (STEPS, "steps"),
        (PHASES, "phases"),
        (ANNOTATIONS, "annotations"),
        (DRIVER, "driver and failures"),
    ];
    for (tid, track) in tracks {
        writer.meta(pid, Some(tid), "thread_name", track);
    }
    let evidence = run.evidence();
    counters(writer, run, &evidence, &clock);
    let mut from = run.timeline.starts(Stage::Forward).next().map_or(0, |it| it.0);
    for (step, end) in (1..).zip(&run.timeline.step_ends) {
        writer.slice(pid, STEPS, &format!("step {step}"), clock.at(from), clock.at(end.0));
        from = from.max(end.0);
    }
    if run.oom.is_some() {
        let step = format!("step {}, ran out", run.timeline.step_ends.len() + 1);
        writer.slice(pid, STEPS, &step, clock.at(from), clock.at(run.timeline.end().0));
    }
    for (first, end, stage) in run.timeline.stretches() {
        if let Some(name) = stage_name(stage).filter(|_| first < end) {
            writer.slice(pid, PHASES, name, clock.at(first.0), clock.at(end.0));
        }
    }
    annotations(writer, run, &clock);
    let mut left = BTreeMap::from([("oom", MOST_INSTANTS), ("driver", MOST_INSTANTS)]);
    for (id, event) in events.iter() {
        let (kind, what) = match event.action {
            Action::Oom => ("oom", format!("OUT OF MEMORY: {} asked for", event.size)),
            Action::SegmentAlloc => ("driver", format!("segment of {} allocated", event.size)),
            Action::SegmentFree => ("driver", format!("segment of {} freed", event.size)),
            Action::SegmentMap => ("driver", format!("{} mapped", event.size)),
            Action::SegmentUnmap => ("driver", format!("{} unmapped", event.size)),
            Action::Snapshot => ("driver", "snapshot".to_owned()),
            _ => continue,
        };
        let left = left.entry(kind).or_default();
        if *left == 0 {
            continue;
        }
        *left -= 1;
        if *left == 0 {
            writer.notes.push(format!(
                "device {pid}: only the first {MOST_INSTANTS} instants of a kind are in the trace"
            ));
        }
        let retry = is_release_for_retry(run, id.index(), &event);
        let what = if retry { format!("{what} (allocation retry)") } else { what };
        writer.instant(pid, &what, clock.at(id.0), &place(run, event.stack), &event);
    }
    clock.is_timed
}

/// A segment that went back in order to serve a request: the release has the stack of the request, which
/// comes after all releases.
fn is_release_for_retry(run: &DeviceRun<'_>, at: usize, event: &Event) -> bool {
    let gives_back = |it| matches!(it, Action::SegmentFree | Action::SegmentUnmap);
    if !gives_back(event.action) || event.stack == StackId::EMPTY {
        return false;
    }
    let events = &run.device.events;
    let passes = |it| gives_back(it) || it == Action::FreeCompleted;
    let next = (at + 1..events.len()).find(|it| !passes(events.actions()[*it]));
    next.map(|it| events.get(it)).is_some_and(|next| {
        let asks = matches!(next.action, Action::SegmentAlloc | Action::SegmentMap | Action::Oom);
        asks && next.stack == event.stack
    })
}

fn place(run: &DeviceRun<'_>, stack: StackId) -> String {
    let line = crate::prediction::origins::line_of(run.trace, &run.stacks, stack);
    line.map_or_else(String::new, |it| origin_words(&crate::prediction::Origin::Line(it)))
}

fn stage_name(stage: Stage) -> Option<&'static str> {
    Some(match stage {
        Stage::Forward => "forward",
        Stage::Loss => "loss",
        Stage::Backward => "backward",
        Stage::Optimizer => "optimizer",
        Stage::ZeroGrad => "zero_grad",
        Stage::Evaluation => "evaluation",
        Stage::Saving => "saving",
        Stage::Merging => "merging",
        Stage::Setup => "setup",
        Stage::Between | Stage::AfterBackward => return None,
    })
}

/// What the program named. Perfetto wants slices that lie in each other; ranges that overlap are ended
/// where the outer one ends.
fn annotations(writer: &mut Writer, run: &DeviceRun<'_>, clock: &Clock) {
    let mut open: Vec<(crate::trace::TextId, i64)> = Vec::new();
    let mut last = i64::MIN;
    let own = run.trace.annotations.iter();
    for it in own.filter(|it| usize::try_from(it.device) == Ok(run.index)) {
        let time = clock.of_time(it.time_micros).max(last);
        last = time;
        if it.begins {
            open.push((it.name, time));
        } else if let Some(at) = open.iter().rposition(|(name, _)| *name == it.name) {
            for (name, from) in open.drain(at..) {
                writer.slice(run.index, ANNOTATIONS, run.trace.text(name), from, time);
            }
        }
    }
    for (name, from) in open {
        writer.slice(run.index, ANNOTATIONS, run.trace.text(name), from, clock.end.max(last));
    }
}

/// The levels after some of the events: after all of them, if they are not too many.
fn counters(writer: &mut Writer, run: &DeviceRun<'_>, evidence: &Evidence<'_>, clock: &Clock) {
    let events = &run.device.events;
    let blocks = run.replay.blocks.len();
    let categories: Vec<Category> =
        (0..).map(BlockId).take(blocks).map(|it| evidence.category(it)).collect();
    let mut sums: BTreeMap<Category, Bytes> = BTreeMap::new();
    let mut before = run.replay.allocated_before;
    let mut pending = Pending::of(run);
    let mut freed = run.replay.freed.iter();
    let (mut next_block, mut n_points) = (0, 0);
    let stand_in = !events.actions().contains(&Action::FreeRequested);
    // In each bucket the lowest and the highest level are shown.
    let bucket = events.len().div_ceil(MOST_POINTS / 2).max(1);
    let chosen = (bucket != 1).then(|| extremes(run, bucket));
    let mut chosen = chosen.as_ref().map(|it| it.iter().peekable());
    let mut shown = Shown::default();
    shown.show(
        writer,
        run.index,
        clock.at(0),
        &run.replay.levels_before(),
        before,
        &sums,
        pending.bytes,
    );
    for (id, levels) in run.replay.levels(events) {
        let event = events.get(id.index());
        match event.action {
            Action::Alloc => {
                let size = run.replay.blocks.get(next_block).map_or(Bytes::ZERO, |it| it.size);
                *sums.entry(categories[next_block]).or_default() += size;
                next_block += 1;
            }
            Action::FreeRequested | Action::FreeCompleted
                if event.action == Action::FreeRequested || stand_in =>
            {
                if let Some(it) = freed.next() {
                    match it.block {
                        Some(block) => {
                            let sum = sums.entry(categories[block.index()]).or_default();
                            *sum = sum.saturating_sub(it.size);
                        }
                        None => before = before.saturating_sub(it.size),
                    }
                    pending.requested(event.address, it.size);
                }
            }
            _ => {}
        }
        if event.action == Action::FreeCompleted {
            pending.completed(event.address);
        }
        let is_shown = match &mut chosen {
            None => true,
            Some(chosen) => chosen.next_if(|it| **it == id.0).is_some(),
        };
        if is_shown {
            n_points += 1;
            shown.show(writer, run.index, clock.at(id.0), &levels, before, &sums, pending.bytes);
        }
    }
    if bucket != 1 {
        writer.notes.push(format!(
            "device {}: of {} events, the counters show {n_points}: the lowest and the highest level of every {bucket}",
            run.index,
            events.len()
        ));
    }
}

/// The events after which allocated memory is lowest and highest, of every `bucket` events.
fn extremes(run: &DeviceRun<'_>, bucket: usize) -> Vec<u32> {
    let mut res = Vec::new();
    let mut lowest = (Bytes(u64::MAX), 0);
    let mut highest = (Bytes::ZERO, 0);
    let n = run.device.events.len();
    for (id, levels) in run.replay.levels(&run.device.events) {
        if levels.allocated < lowest.0 {
            lowest = (levels.allocated, id.0);
        }
        if highest.0 <= levels.allocated {
            highest = (levels.allocated, id.0);
        }
        if (id.index() + 1).is_multiple_of(bucket) || id.index() + 1 == n {
            res.extend([lowest.1.min(highest.1), lowest.1.max(highest.1)]);
            (lowest, highest) = ((Bytes(u64::MAX), 0), (Bytes::ZERO, 0));
        }
    }
    res.dedup();
    res
}

/// Given back by the program, and in use on another stream still.
struct Pending {
    waiting: BTreeMap<u64, Bytes>,
    bytes: Bytes,
    completes: bool,
}

impl Pending {
    fn of(run: &DeviceRun<'_>) -> Pending {
        let mut res = Pending {
            waiting: BTreeMap::new(),
            bytes: Bytes::ZERO,
            completes: run.device.events.actions().contains(&Action::FreeCompleted),
        };
        for it in run.replay.initial.iter().filter(|it| it.pending && res.completes) {
            res.waiting.insert(it.address, it.size);
            res.bytes += it.size;
        }
        res
    }

    fn requested(&mut self, address: u64, size: Bytes) {
        if self.completes {
            self.waiting.insert(address, size);
            self.bytes += size;
        }
    }

    fn completed(&mut self, address: u64) {
        if let Some(size) = self.waiting.remove(&address) {
            self.bytes = self.bytes.saturating_sub(size);
        }
    }
}

/// What was there before the first event.
const BEFORE: &str = "for: before the recording";

/// What was shown last: a counter is written when it changes.
#[derive(Default)]
struct Shown {
    last: BTreeMap<&'static str, u64>,
}

impl Shown {
    #[expect(clippy::too_many_arguments, reason = "one point of all counters")]
    fn show(
        &mut self,
        writer: &mut Writer,
        pid: usize,
        time: i64,
        levels: &crate::replay::Levels,
        before: Bytes,
        sums: &BTreeMap<Category, Bytes>,
        pending: Bytes,
    ) {
        let began_late = before != Bytes::ZERO || self.last.contains_key(BEFORE);
        let mut point = |name, bytes: Bytes| {
            if self.last.insert(name, bytes.0) != Some(bytes.0) {
                writer.counter(pid, name, time, bytes);
            }
        };
        point("allocated", levels.allocated);
        point("reserved", levels.reserved);
        point("active", levels.allocated + pending);
        if began_late {
            point(BEFORE, before);
        }
        for (category, bytes) in sums {
            point(counter_name(*category), *bytes);
        }
    }
}

fn counter_name(category: Category) -> &'static str {
    match category {
        Category::Parameters => "for: parameters",
        Category::Gradients => "for: gradients",
        Category::OptimizerState => "for: optimizer state",
        Category::Activations => "for: activations",
        Category::Inputs => "for: inputs",
        Category::Temporaries => "for: temporaries",
        Category::Workspaces => "for: workspaces",
        Category::Buffers => "for: buffers",
        Category::KeyValueCache => "for: key-value cache",
        Category::Graphs => "for: CUDA graphs",
        Category::Retained => "for: kept",
        Category::Unknown => "for: unknown",
        // Never a block's.
        it => category_name(it),
    }
}

/// When events happened. The recorder's clock is not monotone across threads; time never goes back here.
struct Clock {
    /// By event; empty when there are no times.
    times: Vec<i64>,
    is_timed: bool,
    end: i64,
}

impl Clock {
    fn of(run: &DeviceRun<'_>) -> Clock {
        let events = &run.device.events;
        let n = i64::try_from(events.len()).unwrap_or(i64::MAX);
        let is_timed = !events.is_empty() && events.iter().all(|(_, it)| it.time_micros != 0);
        if !is_timed {
            return Clock { times: Vec::new(), is_timed: events.is_empty(), end: n };
        }
        let mut latest = i64::MIN;
        let times: Vec<i64> = events
            .iter()
            .map(|(_, it)| {
                latest = latest.max(it.time_micros);
                latest
            })
            .collect();
        Clock { times, is_timed, end: latest }
    }

    /// When event `event` happened; of one past the last, when all was over.
    fn at(&self, event: u32) -> i64 {
        if self.is_timed {
            self.times.get(event as usize).copied().unwrap_or(self.end)
        } else {
            i64::from(event)
        }
    }

    /// A time that is no event's.
    fn of_time(&self, micros: i64) -> i64 {
        if self.is_timed { micros } else { micros.clamp(0, self.end) }
    }
}

struct Writer {
    json: String,
    notes: Vec<String>,
}

impl Writer {
    fn meta(&mut self, pid: usize, tid: Option<u32>, what: &str, name: &str) {
        let tid = tid.unwrap_or(COUNTERS);
        let _ = writeln!(
            self.json,
            "{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{what}\",\"args\":{{\"name\":{}}}}},",
            quoted(name)
        );
    }

    fn counter(&mut self, pid: usize, name: &str, time: i64, bytes: Bytes) {
        let _ = writeln!(
            self.json,
            "{{\"ph\":\"C\",\"pid\":{pid},\"name\":\"{name}\",\"ts\":{time},\"args\":{{\"bytes\":{}}}}},",
            bytes.0
        );
    }

    fn slice(&mut self, pid: usize, tid: u32, name: &str, from: i64, to: i64) {
        let length = to.saturating_sub(from).max(0);
        let _ = writeln!(
            self.json,
            "{{\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"name\":{},\"ts\":{from},\"dur\":{length}}},",
            quoted(name)
        );
    }

    fn instant(&mut self, pid: usize, name: &str, time: i64, at: &str, event: &Event) {
        let _ = writeln!(
            self.json,
            "{{\"ph\":\"i\",\"s\":\"t\",\"pid\":{pid},\"tid\":{DRIVER},\"name\":{},\"ts\":{time},\"args\":{{\"bytes\":{},\"line\":{}}}}},",
            quoted(name),
            event.size.0,
            quoted(at),
        );
    }
}

/// `text` as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
