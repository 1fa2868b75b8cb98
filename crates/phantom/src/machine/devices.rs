//! The machine that is not there: its devices, and the streams, events and captures of this
//! process. One lock around it; every entry point takes it, answers and lets go.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::machine::card::{self, Card, Visible};
use crate::machine::completion::{Completion, Mark, Order};
use crate::machine::graphs::{Content, Node};
use crate::machine::memory::{DeviceMemory, Full};
use crate::machine::neighbours::{Holder, Seat, Table};
use crate::machine::report::{self, DeviceReport};
use crate::machine::resident::Resident;
use crate::machine::steps;
use plimsoll_values::Dropped;

/// What a kernel takes. Not a figure of the card: programs that repeat a kernel until they have timed
/// it for long enough shall be done soon.
pub const LAUNCH: Duration = Duration::from_micros(100);

/// `cudaDeviceGetStreamPriorityRange`: the smaller, the more urgent.
pub const PRIORITIES: std::ops::RangeInclusive<i32> = -5..=0;

/// The machine, once a device is asked for.
static MACHINE: OnceLock<Option<Mutex<Machine>>> = OnceLock::new();
/// How many devices the program sees, once the machine is there. PyTorch asks at nearly each operation.
static SEEN: OnceLock<u32> = OnceLock::new();

/// See [`asked_beyond`].
static ASKED_BEYOND: AtomicU64 = AtomicU64::new(0);
/// Training steps that are over.
/// Whether something holds memory until a watchdog has seen that a collective is done.
static WATCHDOG_HOLDS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The device of `cudaSetDevice`, per thread as in CUDA.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// All devices of this process.
#[derive(Debug)]
pub struct Machine {
    /// The imitated card.
    pub card: &'static Card,
    /// Visible devices: each one's place among the machine's.
    pub visible: Vec<Visible>,
    /// One per visible device.
    pub devices: Vec<DeviceMemory>,
    /// Where the other processes of the session are found, and this one's seat there.
    table: Option<(Table, usize)>,
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
    graphs: BTreeMap<u64, Content>,
    /// Graphs that can be launched: on which device, and what is in each.
    executables: BTreeMap<u64, (usize, Content)>,
    /// Streams that were created, with their priorities.
    streams: BTreeMap<u64, i32>,
    completion: Completion,
    /// Streams with a collective after which no event was recorded yet.
    collectives: BTreeSet<u64>,
    /// Events after collectives that no watchdog knows to be done.
    unseen: BTreeSet<u64>,
    next_handle: u64,
    /// How long all work took that was queued so far.
    clock: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    /// When, by the machine's clock, and by the host's.
    recorded: Option<(Duration, Instant)>,
    /// The work before it.
    after: Mark,
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
    content: Content,
}

/// An event or a stream that does not exist, or a capture that does not allow the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// The machine under its lock. `None` if this process has none: no session, or no device visible.
pub fn lock() -> Option<MutexGuard<'static, Machine>> {
    let machine = MACHINE.get_or_init(|| {
        let card = card::current()?;
        let visible = visible(card);
        if visible.is_empty() {
            return None;
        }
        report::begin();
        let _ = SEEN.set(number_of(&visible));
        let mut machine = Machine::new(card, visible);
        let session = std::env::var_os("PLIMSOLL_SESSION");
        if let Some(table) = session.and_then(|it| Table::of_session(Path::new(&it))) {
            machine.share(table);
        }
        Some(Mutex::new(machine))
    });
    Some(machine.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many devices the program sees. Does not begin the use of one.
pub fn device_count() -> u32 {
    // As of the driver, which reads the variable once: when a program begins to use a device.
    SEEN.get().copied().or_else(|| Some(number_of(&visible(card::current()?)))).unwrap_or(0)
}

fn number_of(devices: &[Visible]) -> u32 {
    u32::try_from(devices.len()).unwrap_or(0)
}

fn visible(card: &Card) -> Vec<Visible> {
    card::visible(card.devices, std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
}

/// How many devices the machine has, whatever the program sees: all that the command line asked for, and those that
/// `CUDA_VISIBLE_DEVICES` names. Does not begin the use of one.
pub fn installed() -> u32 {
    let Some(card) = card::current() else { return 0 };
    let named = visible(card).iter().map(|it| it.ordinal + 1).max().unwrap_or(0);
    named.max(card.devices)
}

/// What the user's machine calls a device, where `CUDA_VISIBLE_DEVICES` says so. Does not begin the use of one.
pub fn uuid_of(ordinal: u32) -> Option<String> {
    let it = visible(card::current()?).into_iter().find(|it| it.ordinal == ordinal);
    it?.uuid
}

/// `CUDA_VISIBLE_DEVICES`, if it decides which devices the program sees: if it hides all, or names one that only the user's machine
/// has.
pub fn remarkable_variable() -> Option<String> {
    let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok()?;
    let devices = card::current()?.devices;
    let visible = card::visible(devices, Some(&variable));
    let is_ours = |it: &Visible| it.uuid.is_none() && it.ordinal < devices;
    let names = variable.split(',').count();
    (visible.len() < names || !visible.iter().all(is_ours)).then_some(variable)
}

/// The program asked for the device of this number, which it does not see. Does not begin the use of one.
pub fn ask_beyond(device: u32) {
    ASKED_BEYOND.fetch_max(device.saturating_add(1).into(), Ordering::Relaxed);
}

/// How many devices the program would have to see for all that it asked for; zero if it asked for none beyond.
pub fn asked_beyond() -> u64 {
    ASKED_BEYOND.load(Ordering::Relaxed)
}

/// From now on it matters when a watchdog looks. Does not begin the use of a device.
pub fn watchdog_holds() {
    WATCHDOG_HOLDS.store(true, Ordering::Relaxed);
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
    /// A machine whose program sees these devices.
    pub fn new(card: &'static Card, visible: Vec<Visible>) -> Machine {
        // Twice the card's memory and some: freed chunks leave holes.
        let usable = card.total_bytes.saturating_sub(card.beside_bytes);
        let most = card.total_bytes.saturating_add(card.lent_bytes);
        let space = most.saturating_mul(2).saturating_add(64 << 30);
        let devices = visible
            .iter()
            .map(|_| {
                let floor = reserve_addresses(space);
                DeviceMemory::new(usable, card.context_bytes, floor, floor + space)
                    .with(card.handles, card.threads())
                    .lending(card.lent_bytes)
            })
            .collect();
        Machine {
            card,
            visible,
            devices,
            table: None,
            pinned: BTreeMap::new(),
            managed: BTreeMap::new(),
            reserved: BTreeMap::new(),
            events: BTreeMap::new(),
            captures: BTreeMap::new(),
            capturing: BTreeMap::new(),
            graphs: BTreeMap::new(),
            executables: BTreeMap::new(),
            streams: BTreeMap::new(),
            completion: Completion::new(card.order),
            collectives: BTreeSet::new(),
            unseen: BTreeSet::new(),
            next_handle: 0x5500_0000_1000,
            clock: Duration::ZERO,
        }
    }

    /// Other processes use the same devices.
    pub fn share(&mut self, table: Table) {
        let Some(number) = table.sit() else { return };
        self.table = Some((table, number));
        for (it, device) in self.visible.iter().zip(&mut self.devices) {
            if let Some(seat) = Seat::new(table, number, it.shared()) {
                device.share(seat);
            }
        }
    }

    /// The other processes that hold something on a device of the machine, whether or not this one sees it.
    pub fn others(&self, ordinal: u32) -> Vec<Holder> {
        let visible = self.visible.iter().find(|it| it.ordinal == ordinal);
        let shared = visible.map_or(ordinal, Visible::shared);
        let seat = self.table.and_then(|(table, number)| Seat::new(table, number, shared));
        seat.map(|it| it.others()).unwrap_or_default()
    }

    /// The memory of the calling thread's device.
    pub fn current(&mut self) -> &mut DeviceMemory {
        let device = self.current_index();
        &mut self.devices[device]
    }

    fn current_index(&self) -> usize {
        usize::try_from(current_device()).unwrap_or(0).min(self.devices.len() - 1)
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
    pub fn create_stream(&mut self, priority: i32) -> Result<u64, Full> {
        self.current().reside(Resident::stream)?;
        let stream = self.handle();
        self.streams.insert(stream, priority.clamp(*PRIORITIES.start(), *PRIORITIES.end()));
        Ok(stream)
    }

    /// `cudaStreamGetPriority`: zero for the default stream.
    pub fn priority(&self, stream: u64) -> i32 {
        self.streams.get(&stream).copied().unwrap_or(0)
    }

    /// `cudaStreamDestroy`.
    pub fn destroy_stream(&mut self, stream: u64) {
        self.streams.remove(&stream);
        self.capturing.remove(&stream);
        self.completion.forget(stream);
    }

    /// `cudaEventCreate...`.
    pub fn create_event(&mut self) -> u64 {
        let event = self.handle();
        let it = Event { recorded: None, after: Mark::default(), step: 0, capture: None };
        self.events.insert(event, it);
        event
    }

    /// `cudaEventDestroy`.
    pub fn destroy_event(&mut self, event: u64) {
        self.events.remove(&event);
        self.unseen.remove(&event);
    }

    /// `cudaEventRecord`.
    pub fn record(&mut self, event: u64, stream: u64) -> Result<(), Invalid> {
        let capture = self.capturing.get(&stream).copied();
        let step = steps::finished();
        let after = self.completion.mark(line(stream));
        let it = self.events.get_mut(&event).ok_or(Invalid)?;
        *it = Event { recorded: Some((self.clock, Instant::now())), after, step, capture };
        if self.collectives.remove(&stream) {
            self.unseen.insert(event);
        }
        Ok(())
    }

    /// `cudaEventQuery`: whether the work before `event` is done. An answer that `matters` is one that
    /// device memory depends on.
    pub fn is_done(&mut self, event: u64, matters: bool) -> bool {
        let Some(it) = self.events.get(&event) else { return true };
        self.completion.ask(it.after, matters)
    }

    /// `cudaStreamQuery`.
    pub fn is_idle(&mut self, stream: u64) -> bool {
        self.completion.ask(self.completion.mark(line(stream)), false)
    }

    /// `cudaEventSynchronize`.
    pub fn wait_for_event(&mut self, event: u64) {
        if let Some(it) = self.events.get(&event) {
            self.completion.finish(it.after);
        }
    }

    /// `cudaStreamSynchronize`, and what else makes the host wait for a stream.
    pub fn wait_for_stream(&mut self, stream: u64) {
        self.completion.finish(self.completion.mark(line(stream)));
    }

    /// `cudaDeviceSynchronize`, and what else makes the host wait for everything.
    pub fn wait_for_all(&mut self) {
        self.completion.finish_all();
    }

    /// A watchdog asks whether the work before `event` is done; see [`Machine::is_due`].
    pub fn is_seen(&mut self, event: u64) -> bool {
        let is_due = self.is_due(event);
        if is_due && self.unseen.remove(&event) && WATCHDOG_HOLDS.load(Ordering::Relaxed) {
            self.completion.hurried += 1;
        }
        is_due
    }

    /// Whether a watchdog may see that the work before `event` is done: in terms of training steps, so
    /// that it sees the same every time.
    fn is_due(&self, event: u64) -> bool {
        // So long that nothing trains here.
        const LONG: Duration = Duration::from_secs(30);
        let Some(it) = self.events.get(&event) else { return true };
        let steps_later = match self.completion.order() {
            Order::AtOnce => 1,
            Order::Late => 2,
        };
        it.step + steps_later <= steps::finished()
            || it.recorded.is_none_or(|(_, at)| LONG <= at.elapsed())
    }

    /// Collectives that a watchdog has to look at now, if somebody is to let go of memory then.
    pub fn unseen(&self) -> usize {
        if !WATCHDOG_HOLDS.load(Ordering::Relaxed) {
            return 0;
        }
        self.unseen.iter().filter(|it| self.is_due(**it)).count()
    }

    /// How often the program was told that work is done before a slower device would say so.
    pub fn hurried(&self) -> u64 {
        self.completion.hurried
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
        let Some(it) = self.events.get(&event) else { return };
        self.completion.wait(line(stream), it.after);
        let capture = it.capture;
        if let Some(id) = capture
            && let Some(capture) = self.captures.get_mut(&id)
            && self.capturing.insert(stream, id).is_none()
        {
            capture.content.lines += 1;
        }
    }

    /// `cudaStreamBeginCapture`.
    pub fn begin_capture(&mut self, stream: u64) -> Result<(), Invalid> {
        if self.capturing.contains_key(&stream) {
            return Err(Invalid);
        }
        let (id, graph) = (self.handle(), self.handle());
        self.captures.insert(id, Capture { id, graph, origin: stream, content: Content::NEW });
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
        self.graphs.insert(capture.graph, capture.content);
        Ok(capture.graph)
    }

    /// How many kernels and copies `graph` has.
    pub fn graph_nodes(&self, graph: u64) -> u64 {
        self.graphs.get(&graph).map_or(0, Content::nodes)
    }

    /// `cudaGraphInstantiate`: `graph` can be launched, for which the driver takes memory.
    pub fn instantiate(&mut self, graph: u64) -> Result<u64, Full> {
        let content = self.graphs.get(&graph).copied().unwrap_or(Content::NEW);
        let device = self.current_index();
        self.devices[device].reside(|it, _| it.graphs.add(content))?;
        let executable = self.handle();
        self.executables.insert(executable, (device, content));
        Ok(executable)
    }

    /// `cudaGraphExecDestroy`.
    pub fn destroy_executable(&mut self, executable: u64) {
        if let Some((device, content)) = self.executables.remove(&executable) {
            self.devices[device].leave(|it| it.graphs.remove(content));
        }
    }

    /// A library queues a kernel with so many bytes of `parameters`, and its stream is unknown; if one capture is under way, it counts it.
    pub fn library_work(&mut self, time: Duration, parameters: u32) {
        self.spend(time);
        if self.captures.len() == 1
            && let Some(capture) = self.captures.values_mut().next()
        {
            capture.content.add(Node::Kernel(parameters));
        }
    }

    /// Work is queued on `stream`; a capture counts it as this `node`.
    pub fn work(&mut self, stream: u64, node: Node) {
        self.spend(LAUNCH);
        self.completion.queue(line(stream));
        if let Some(id) = self.capturing.get(&stream)
            && let Some(capture) = self.captures.get_mut(id)
        {
            capture.content.add(node);
        }
    }

    /// A collective is queued on `stream`.
    pub fn collective(&mut self, stream: u64) {
        // NCCL passes its kernels 4 KiB (`ncclDevKernelArgs4K`).
        self.work(stream, Node::Kernel(4096));
        self.collectives.insert(stream);
    }

    /// Known values that were forgotten because they were too many.
    pub fn forgotten(&self) -> Dropped {
        self.devices.iter().fold(Dropped::default(), |all, it| all.and(it.contents.dropped()))
    }

    /// What the devices have to report; what other ranks take is not known here.
    pub fn report(&self) -> Vec<DeviceReport> {
        self.devices
            .iter()
            .zip(&self.visible)
            .map(|(it, visible)| DeviceReport {
                ordinal: visible.shared(),
                most_together: it.most_together(),
                ran_out: it.ran_out().to_vec(),
                total: self.card.total_bytes,
                context: it.context(),
                used: it.used(),
                peak: it.peak(),
                other_peak: it.other_peak(),
                lacked: it.lacked(),
                more_elsewhere: 0,
            })
            .collect()
    }
}

/// What stands for a stream where its work is counted: each device has a default stream of its own.
fn line(stream: u64) -> u64 {
    /// `cudaStreamLegacy` and `cudaStreamPerThread`.
    const NAMED: u64 = 2;
    if stream <= NAMED { current_device().into() } else { stream }
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
            "this machine limits address space (ulimit -v): device addresses are not reserved",
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
        Machine::new(card, vec![Visible::new(0), Visible::new(1)])
    }

    fn stream(machine: &mut Machine, priority: i32) -> u64 {
        machine.create_stream(priority).expect("room")
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
            (stream(&mut machine, 0), stream(&mut machine, 0), machine.create_event());
        machine.begin_capture(a).expect("not capturing");
        assert_eq!(machine.begin_capture(a), Err(Invalid));
        machine.record(event, a).expect("an event");
        machine.wait(b, event);
        assert!(machine.capture(b).is_some(), "the other stream joined");
        machine.work(a, Node::COPY);
        machine.work(b, Node::COPY);
        assert_eq!(machine.end_capture(b), Err(Invalid), "only the stream that began it ends it");
        let graph = machine.end_capture(a).expect("a capture");
        assert_eq!(machine.graph_nodes(graph), 2);
        assert!(machine.capture(a).is_none() && machine.capture(b).is_none());
    }

    #[test]
    fn a_watchdog_sees_a_collective_when_its_step_is_over_or_a_step_later() {
        for (order, steps) in [(Order::AtOnce, 1), (Order::Late, 2)] {
            let mut machine = machine();
            machine.completion = Completion::new(order);
            watchdog_holds();
            let event = machine.create_event();
            machine.collective(7);
            machine.record(event, 7).expect("an event");
            for _ in 0..steps {
                assert_eq!((machine.is_seen(event), machine.unseen()), (false, 0), "{order:?}");
                steps::finish(1);
            }
            assert_eq!(machine.unseen(), 1, "{order:?}");
            assert!(machine.is_seen(event));
            assert_eq!((machine.unseen(), machine.hurried()), (0, 1), "{order:?}");
            assert!(machine.is_seen(event + 1), "no such event");
        }
    }

    #[test]
    fn a_stream_keeps_its_priority() {
        let mut machine = machine();
        let (urgent, usual, beyond) =
            (stream(&mut machine, -3), stream(&mut machine, 0), stream(&mut machine, -9));
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
        machine.work(0, Node::COPY);
        machine.record(b, 0).expect("an event");
        let once = machine.elapsed_millis(a, b).expect("recorded");
        machine.work(0, Node::COPY);
        machine.record(b, 0).expect("an event");
        assert!(machine.elapsed_millis(a, b).is_ok_and(|it| once < it));
    }
}
