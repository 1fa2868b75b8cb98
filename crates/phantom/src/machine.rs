//! The machine that is not there: its devices, and the streams, events and captures of this
//! process. One lock around it; every entry point takes it, answers and lets go.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::card::{self, Card};
use crate::memory::DeviceMemory;
use crate::report::{self, DeviceReport};

/// What a kernel takes. Not a figure of the card: programs that repeat a kernel until they have timed
/// it for long enough shall be done soon.
pub const LAUNCH: Duration = Duration::from_micros(100);

/// `cudaDeviceGetStreamPriorityRange`: the smaller, the more urgent.
pub const PRIORITIES: std::ops::RangeInclusive<i32> = -5..=0;

/// The machine, once a device is asked for.
static MACHINE: OnceLock<Option<Mutex<Machine>>> = OnceLock::new();

/// Training steps that are over.
static STEPS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The device of `cudaSetDevice`, per thread as in CUDA.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// All devices of this process.
#[derive(Debug)]
pub struct Machine {
    /// The imitated card.
    pub card: &'static Card,
    /// Visible devices: each one's number among the machine's.
    pub ordinals: Vec<u32>,
    /// One per visible device.
    pub devices: Vec<DeviceMemory>,
    /// Memory that the program pinned: address to size.
    pub pinned: BTreeMap<u64, u64>,
    /// Managed memory, which is host memory here: address to size.
    pub managed: BTreeMap<u64, u64>,
    /// Where `cuMemAddressReserve` put ranges: address to size.
    pub reserved: BTreeMap<u64, u64>,
    events: BTreeMap<u64, Event>,
    captures: BTreeMap<u64, Capture>,
    /// Streams in a capture: stream to capture.
    capturing: BTreeMap<u64, u64>,
    graphs: BTreeMap<u64, u64>,
    /// Streams that were created, with their priorities.
    streams: BTreeMap<u64, i32>,
    next_handle: u64,
    /// How long all work took that was queued so far.
    clock: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    /// When, by the machine's clock, and by the host's.
    recorded: Option<(Duration, Instant)>,
    /// Training steps that were over when it was recorded.
    step: u64,
    /// The capture that the event was recorded in.
    capture: Option<u64>,
}

/// A stream capture under way.
#[derive(Clone, Copy, Debug)]
pub struct Capture {
    /// As `cudaStreamGetCaptureInfo` gives it.
    pub id: u64,
    /// The graph under construction.
    pub graph: u64,
    /// The stream that began it.
    pub origin: u64,
    /// Kernels and copies so far.
    pub nodes: u64,
}

/// An event or a stream that does not exist, or a capture that does not allow the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// The machine under its lock. `None` if this process has none: no session, or no device visible.
pub fn lock() -> Option<MutexGuard<'static, Machine>> {
    let machine = MACHINE.get_or_init(|| {
        let card = card::current()?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let ordinals = card::visible(card.devices, visible.as_deref());
        if ordinals.is_empty() {
            return None;
        }
        report::begin();
        Some(Mutex::new(Machine::new(card, ordinals)))
    });
    Some(machine.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many devices the program sees. Does not begin the use of one.
pub fn device_count() -> u32 {
    let Some(card) = card::current() else { return 0 };
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    u32::try_from(card::visible(card.devices, visible.as_deref()).len()).unwrap_or(0)
}

/// The program has finished `steps` more training steps. Does not begin the use of a device.
pub fn finish_steps(steps: u64) {
    STEPS.fetch_add(steps, Ordering::Relaxed);
}

/// The calling thread's device.
pub fn current_device() -> u32 {
    CURRENT.get()
}

/// `cudaSetDevice`, for a device that exists.
pub fn set_current_device(device: u32) {
    CURRENT.set(device);
}

impl Machine {
    /// A machine whose program sees the devices `ordinals`.
    pub fn new(card: &'static Card, ordinals: Vec<u32>) -> Machine {
        // Twice the card's memory and some: freed chunks leave holes.
        let space = card.total_bytes.saturating_mul(2).saturating_add(64 << 30);
        let devices = ordinals
            .iter()
            .map(|_| {
                let floor = reserve_addresses(space);
                let limit = card.total_bytes.saturating_sub(card.context_bytes);
                DeviceMemory::new(limit, floor, floor + space)
            })
            .collect();
        Machine {
            card,
            ordinals,
            devices,
            pinned: BTreeMap::new(),
            managed: BTreeMap::new(),
            reserved: BTreeMap::new(),
            events: BTreeMap::new(),
            captures: BTreeMap::new(),
            capturing: BTreeMap::new(),
            graphs: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_handle: 0x5500_0000_1000,
            clock: Duration::ZERO,
        }
    }

    /// The memory of the calling thread's device.
    pub fn current(&mut self) -> &mut DeviceMemory {
        let last = self.devices.len() - 1;
        let device = usize::try_from(current_device()).unwrap_or(0).min(last);
        &mut self.devices[device]
    }

    /// The device that `address` lies on, with the range around it.
    pub fn device_of(&self, address: u64) -> Option<(usize, u64, u64)> {
        self.devices
            .iter()
            .enumerate()
            .find_map(|(i, device)| device.range_of(address).map(|(at, size)| (i, at, size)))
    }

    /// The pinned or managed host range around `address`.
    pub fn host_range(table: &BTreeMap<u64, u64>, address: u64) -> Option<(u64, u64)> {
        let (&at, &size) = table.range(..=address).next_back()?;
        (address < at + size).then_some((at, size))
    }

    /// A value that no other handle has; looks like a small heap address, as the driver's do.
    pub fn handle(&mut self) -> u64 {
        self.next_handle += 0x40;
        self.next_handle
    }

    /// `cudaStreamCreate...`. A priority beyond the range of [`PRIORITIES`] is the nearest in it.
    pub fn create_stream(&mut self, priority: i32) -> u64 {
        let stream = self.handle();
        self.streams.insert(stream, priority.clamp(*PRIORITIES.start(), *PRIORITIES.end()));
        stream
    }

    /// `cudaStreamGetPriority`: zero for the default stream.
    pub fn priority(&self, stream: u64) -> i32 {
        self.streams.get(&stream).copied().unwrap_or(0)
    }

    /// `cudaStreamDestroy`.
    pub fn destroy_stream(&mut self, stream: u64) {
        self.streams.remove(&stream);
        self.capturing.remove(&stream);
    }

    /// `cudaEventCreate...`.
    pub fn create_event(&mut self) -> u64 {
        let event = self.handle();
        self.events.insert(event, Event { recorded: None, step: 0, capture: None });
        event
    }

    /// `cudaEventDestroy`.
    pub fn destroy_event(&mut self, event: u64) {
        self.events.remove(&event);
    }

    /// `cudaEventRecord`: everything before it is done at once.
    pub fn record(&mut self, event: u64, stream: u64) -> Result<(), Invalid> {
        let capture = self.capturing.get(&stream).copied();
        let step = STEPS.load(Ordering::Relaxed);
        let event = self.events.get_mut(&event).ok_or(Invalid)?;
        *event = Event { recorded: Some((self.clock, Instant::now())), step, capture };
        Ok(())
    }

    /// Whether the training step that `event` was recorded in is over, or so much time has passed that
    /// nothing trains here.
    pub fn is_long_past(&self, event: u64) -> bool {
        const LONG: Duration = Duration::from_secs(5);
        let Some(it) = self.events.get(&event) else { return true };
        it.step < STEPS.load(Ordering::Relaxed)
            || it.recorded.is_none_or(|(_, at)| LONG <= at.elapsed())
    }

    /// Milliseconds between two recorded events, never zero: scripts divide by it. No host's clock: a
    /// program that times kernels to choose one chooses the same one every time.
    pub fn elapsed_millis(&self, from: u64, to: u64) -> Result<f32, Invalid> {
        let at = |event| {
            let it = self.events.get(&event).and_then(|it| it.recorded);
            it.map(|(clock, _)| clock).ok_or(Invalid)
        };
        let elapsed = at(to)?.saturating_sub(at(from)?);
        Ok((elapsed.as_secs_f32() * 1e3).max(1e-3))
    }

    /// Work took so long, in the only time that a phantom has.
    pub fn spend(&mut self, time: Duration) {
        self.clock += time;
    }

    /// `cudaStreamWaitEvent`: a stream that waits for a captured event joins its capture.
    pub fn wait(&mut self, stream: u64, event: u64) {
        let capture = self.events.get(&event).and_then(|it| it.capture);
        if let Some(capture) = capture.filter(|it| self.captures.contains_key(it)) {
            self.capturing.insert(stream, capture);
        }
    }

    /// `cudaStreamBeginCapture`.
    pub fn begin_capture(&mut self, stream: u64) -> Result<(), Invalid> {
        if self.capturing.contains_key(&stream) {
            return Err(Invalid);
        }
        let (id, graph) = (self.handle(), self.handle());
        self.captures.insert(id, Capture { id, graph, origin: stream, nodes: 0 });
        self.capturing.insert(stream, id);
        Ok(())
    }

    /// The capture that `stream` is in.
    pub fn capture(&self, stream: u64) -> Option<Capture> {
        self.captures.get(self.capturing.get(&stream)?).copied()
    }

    /// `cudaStreamEndCapture`: the graph.
    pub fn end_capture(&mut self, stream: u64) -> Result<u64, Invalid> {
        let capture = self.capture(stream).filter(|it| it.origin == stream).ok_or(Invalid)?;
        self.captures.remove(&capture.id);
        self.capturing.retain(|_, id| *id != capture.id);
        self.graphs.insert(capture.graph, capture.nodes);
        Ok(capture.graph)
    }

    /// How many kernels and copies `graph` has.
    pub fn graph_nodes(&self, graph: u64) -> u64 {
        self.graphs.get(&graph).copied().unwrap_or(0)
    }

    /// Work is queued on `stream`; a capture counts it.
    pub fn work(&mut self, stream: u64) {
        self.spend(LAUNCH);
        if let Some(id) = self.capturing.get(&stream)
            && let Some(capture) = self.captures.get_mut(id)
        {
            capture.nodes += 1;
        }
    }

    /// What the devices have to report.
    pub fn report(&self) -> Vec<DeviceReport> {
        self.devices
            .iter()
            .map(|it| DeviceReport {
                total: self.card.total_bytes,
                context: self.card.context_bytes,
                used: it.used(),
                peak: it.peak(),
                other_peak: it.other_peak(),
            })
            .collect()
    }
}

/// Reserves address space that nothing else in the process can get, without memory behind it, so
/// that a phantom address never equals a host address, and the host faults when it is touched, as
/// with a real device.
pub fn reserve_addresses(bytes: u64) -> u64 {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        // A limit on the address space (`ulimit -v`): non-canonical addresses, which no mapping of
        // the host can have, serve as well.
        report::approximate(
            "address space is limited on this machine (ulimit -v): device addresses are not reserved",
        );
        return 1 << 52;
    }
    at as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let card = Box::leak(Box::new(Card { total_bytes: 8 << 30, ..Card::h200() }));
        Machine::new(card, vec![0, 1])
    }

    #[test]
    fn every_device_has_its_own_memory_and_addresses() {
        let mut machine = machine();
        let a = machine.devices[0].allocate(2 << 20).expect("room");
        let b = machine.devices[1].allocate(2 << 20).expect("room");
        assert_eq!(machine.device_of(a).map(|it| it.0), Some(0));
        assert_eq!(machine.device_of(b + 7).map(|it| it.0), Some(1));
        assert_eq!(machine.device_of(0x1234), None);
    }

    #[test]
    fn a_capture_spreads_over_events_and_ends_with_its_graph() {
        let mut machine = machine();
        let (a, b, event) =
            (machine.create_stream(0), machine.create_stream(0), machine.create_event());
        machine.begin_capture(a).expect("not capturing");
        assert_eq!(machine.begin_capture(a), Err(Invalid));
        machine.record(event, a).expect("an event");
        machine.wait(b, event);
        assert!(machine.capture(b).is_some(), "the other stream joined");
        machine.work(a);
        machine.work(b);
        assert_eq!(machine.end_capture(b), Err(Invalid), "only the stream that began it ends it");
        let graph = machine.end_capture(a).expect("a capture");
        assert_eq!(machine.graph_nodes(graph), 2);
        assert!(machine.capture(a).is_none() && machine.capture(b).is_none());
    }

    #[test]
    fn an_event_is_long_past_when_its_step_is_over() {
        let mut machine = machine();
        let event = machine.create_event();
        machine.record(event, 0).expect("an event");
        assert!(!machine.is_long_past(event));
        finish_steps(1);
        assert!(machine.is_long_past(event));
        assert!(machine.is_long_past(event + 1), "no such event");
    }

    #[test]
    fn a_stream_keeps_its_priority() {
        let mut machine = machine();
        let (urgent, usual, beyond) =
            (machine.create_stream(-3), machine.create_stream(0), machine.create_stream(-9));
        assert_eq!([urgent, usual, beyond, 0].map(|it| machine.priority(it)), [-3, 0, -5, 0]);
    }

    #[test]
    fn time_between_events_is_never_zero() {
        let mut machine = machine();
        let (a, b) = (machine.create_event(), machine.create_event());
        assert_eq!(machine.elapsed_millis(a, b), Err(Invalid), "not recorded");
        machine.record(a, 0).expect("an event");
        machine.record(b, 0).expect("an event");
        assert!(machine.elapsed_millis(a, b).is_ok_and(|it| 0.0 < it));
        machine.work(0);
        machine.record(b, 0).expect("an event");
        let once = machine.elapsed_millis(a, b).expect("recorded");
        machine.work(0);
        machine.record(b, 0).expect("an event");
        assert!(machine.elapsed_millis(a, b).is_ok_and(|it| once < it));
    }
}
