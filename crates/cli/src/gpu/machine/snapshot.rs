//! A machine at one moment, as values: its devices, who holds memory on them, and what those say of themselves that plimsoll watches. Nobody is
//! asked here.

use std::collections::BTreeMap;

use plimsoll_core::{units::Bytes, views::alarm::Neighbour};

/// What `top` and `exporter` show.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// When, in seconds since 1970.
    pub(crate) at: f64,
    /// The machine's name for itself.
    pub(crate) host: String,
    /// NVIDIA's driver, as it calls itself.
    pub(crate) driver: Option<String>,
    /// Why NVML told of no device.
    pub(crate) no_gpu: Option<String>,
    pub(crate) devices: Vec<Device>,
    pub(crate) processes: Vec<Process>,
}

/// A GPU, or a MIG instance of one: a part that programs see as a device of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Device {
    /// The GPU's number, as `nvidia-smi` counts.
    pub(crate) index: u32,
    /// The instance's number on that GPU.
    pub(crate) instance: Option<u32>,
    pub(crate) name: String,
    /// `GPU-` or `MIG-`, and a number.
    pub(crate) uuid: String,
    /// None where NVML does not tell.
    pub(crate) memory: Option<Memory>,
    /// For how much of the last second something ran on it, in percent.
    pub(crate) utilization: Option<u32>,
    /// Why NVML does not tell who is on it.
    pub(crate) no_processes: Option<String>,
}

/// Memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: Bytes,
    /// What nobody holds. The rest is used: by processes, and by the driver for itself.
    pub(crate) free: Bytes,
}

/// One process that holds memory on a device, or that plimsoll watches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// What the system says of it; none where it shows no such process.
    pub(crate) person: Option<Person>,
    /// The devices on which NVML sees it: their places in [`Snapshot::devices`], and what it holds there if NVML tells.
    pub(crate) on: Vec<(usize, Option<Bytes>)>,
    /// What it says of itself.
    pub(crate) status: Option<Status>,
}

/// Who a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) uid: u32,
    /// The account's name, or its number.
    pub(crate) user: String,
    /// The program, and its script if it is Python's: no arguments.
    pub(crate) name: String,
}

/// What a watched process says of itself. Nothing in it is trusted: texts are short and have no control characters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Status {
    pub(crate) label: String,
    pub(crate) command: Vec<String>,
    pub(crate) rank: Option<u32>,
    /// In seconds since 1970.
    pub(crate) updated: f64,
    pub(crate) step: Option<u64>,
    pub(crate) seconds_per_step: Option<f64>,
    pub(crate) counters: Vec<Counters>,
    /// What the baseline or the plan says it will reserve.
    pub(crate) expected_peak: Option<Bytes>,
    pub(crate) alarms: Vec<Alarm>,
    /// Whether it is watched, and not only seen.
    pub(crate) raises_alarms: bool,
}

/// PyTorch's allocator on one device, as `torch.cuda.memory_stats` counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// The device's, where torch tells it.
    pub(crate) uuid: Option<String>,
    /// The device's number in the process.
    pub(crate) index: u32,
    pub(crate) total: Bytes,
    pub(crate) allocated: Bytes,
    pub(crate) reserved: Bytes,
    pub(crate) active: Bytes,
    pub(crate) inactive_split: Bytes,
    pub(crate) peak_allocated: Bytes,
    pub(crate) peak_reserved: Bytes,
    pub(crate) retries: u64,
    pub(crate) ooms: u64,
    pub(crate) largest_free: Option<Bytes>,
    /// Bytes by which `allocated` changes from the end of a step to that of the next.
    pub(crate) growth: Option<f64>,
    pub(crate) categories: BTreeMap<String, Bytes>,
}

/// Something that the watch found wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// Such as `watch/growth`.
    pub(crate) code: String,
    pub(crate) step: Option<u64>,
    pub(crate) text: String,
}

/// A process on a device: a line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) process: &'a Process,
    /// None where a watched process has a device that NVML does not know.
    pub(crate) device: Option<&'a Device>,
    /// What the driver says that it holds, CUDA context included.
    pub(crate) held: Option<Bytes>,
    pub(crate) counters: Option<&'a Counters>,
    /// Bytes a second by which the other watched processes on the device grow.
    others_grow: f64,
}

/// How far it is until a process has no memory left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// It does not grow.
    Never,
    /// So many steps at the present growth, and how long they take if that is known.
    In { steps: f64, seconds: Option<f64> },
}

impl Memory {
    pub(crate) fn used(&self) -> Bytes {
        self.total.saturating_sub(self.free)
    }
}

impl Device {
    /// As people call it: `0`, or `0:2` of an instance.
    pub(crate) fn number(&self) -> String {
        match self.instance {
            Some(instance) => format!("{}:{instance}", self.index),
            None => self.index.to_string(),
        }
    }
}

impl Process {
    /// Its label, or the program's name.
    pub(crate) fn name(&self) -> Option<&str> {
        let label = self.status.as_ref().map(|it| it.label.as_str()).filter(|it| !it.is_empty());
        label.or_else(|| self.person.as_ref().map(|it| it.name.as_str()))
    }
}

impl Snapshot {
    /// All lines, device by device; last those of devices that NVML does not know.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        let mut res = Vec::new();
        for process in &self.processes {
            let mut seen: Vec<Row<'_>> = Vec::new();
            for (place, held) in &process.on {
                let device = self.devices.get(*place);
                seen.push(Row { process, device, held: *held, counters: None, others_grow: 0.0 });
            }
            for counters in process.status.iter().flat_map(|it| &it.counters) {
                let device = self.device_of(process, counters);
                let same = |row: &&mut Row<'_>| {
                    let is_it = match (row.device, device) {
                        (Some(a), Some(b)) => std::ptr::eq(a, b),
                        _ => false,
                    };
                    is_it && row.counters.is_none()
                };
                match seen.iter_mut().find(same) {
                    Some(row) => row.counters = Some(counters),
                    None => seen.push(Row {
                        process,
                        device,
                        held: None,
                        counters: Some(counters),
                        others_grow: 0.0,
                    }),
                }
            }
            if seen.is_empty() {
                seen.push(Row {
                    process,
                    device: None,
                    held: None,
                    counters: None,
                    others_grow: 0.0,
                });
            }
            res.extend(seen);
        }
        let mut growing: Vec<(usize, &str, f64)> = Vec::new();
        for (index, row) in res.iter().enumerate() {
            if let Some(device) = row.device.filter(|_| 0.0 < row.rate()) {
                growing.push((index, &device.uuid, row.rate()));
            }
        }
        for (index, row) in res.iter_mut().enumerate() {
            let uuid = row.device.map(|it| it.uuid.as_str());
            let others = growing.iter().filter(|it| it.0 != index && Some(it.1) == uuid);
            row.others_grow = others.map(|it| it.2).sum();
        }
        let place = |row: &Row<'_>| {
            row.device.map_or((u32::MAX, None), |device| (device.index, device.instance))
        };
        res.sort_by_key(|it| (place(it), it.process.pid));
        res
    }

    /// By the number that both call it by. Where torch tells none, the only device on which NVML sees the process.
    fn device_of(&self, process: &Process, counters: &Counters) -> Option<&Device> {
        match &counters.uuid {
            Some(uuid) => self.devices.iter().find(|it| bare(&it.uuid) == bare(uuid)),
            None => match process.on[..] {
                [(place, _)] => self.devices.get(place),
                _ => None,
            },
        }
    }

    /// Who but the process `pid` holds most of the device with this number, as far as the driver tells.
    pub(crate) fn neighbour(&self, uuid: &str, pid: u32) -> Option<Neighbour> {
        let place = self.devices.iter().position(|it| bare(&it.uuid) == bare(uuid))?;
        let on_it = |it: &&(usize, Option<Bytes>)| it.0 == place;
        let others = self.processes.iter().filter(|it| it.pid != pid).filter_map(|process| {
            let held = process.on.iter().find(on_it)?.1?;
            Some((held, process))
        });
        let (held, process) = others.max_by_key(|it| it.0)?;
        let person = process.person.as_ref();
        Some(Neighbour {
            pid: process.pid,
            name: person.map(|it| it.name.clone()),
            user: person.map(|it| it.user.clone()),
            held,
        })
    }

    /// What a person has to know of what is not shown.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut res = Vec::new();
        if let Some(why) = &self.no_gpu {
            res.push(format!("no NVIDIA GPU here: {why}"));
        }
        let nameless = self.processes.iter().filter(|it| it.person.is_none()).count();
        if nameless != 0 {
            res.push(format!(
                "{nameless} of {} processes have no name: they run outside this container, or /proc hides other users' processes",
                self.processes.len()
            ));
        }
        let on_nothing = |it: &&Device| it.no_processes.is_some();
        if let Some(device) = self.devices.iter().find(on_nothing) {
            let why = device.no_processes.as_deref().unwrap_or_default();
            res.push(format!(
                "the driver does not list the processes on GPU {}: {why}",
                device.number()
            ));
        }
        res
    }
}

/// A device's number without what stands before it, which torch and NVML do not agree on for MIG.
fn bare(uuid: &str) -> String {
    let text = uuid.strip_prefix("GPU-").or_else(|| uuid.strip_prefix("MIG-")).unwrap_or(uuid);
    text.to_ascii_lowercase()
}

impl Row<'_> {
    /// Bytes that it can still take: what is free on the device, and what PyTorch has reserved and not given out. Less where that is in
    /// pieces.
    pub(crate) fn room(&self) -> Option<Bytes> {
        let free = self.device?.memory?.free;
        let unused = self.counters.map(|it| it.reserved.saturating_sub(it.allocated));
        Some(Bytes(free.0.saturating_add(unused.unwrap_or_default().0)))
    }

    /// Bytes a second by which it grows; zero where nobody knows it.
    fn rate(&self) -> f64 {
        let growth = self.counters.and_then(|it| it.growth).unwrap_or(0.0);
        match self.process.status.as_ref().and_then(|it| it.seconds_per_step) {
            Some(seconds) if 0.0 < seconds && 0.0 < growth => growth / seconds,
            _ => 0.0,
        }
    }

    /// When the room is used up, if it and the others on the device go on as in the last steps.
    #[expect(clippy::cast_precision_loss, reason = "two digits of it are shown")]
    pub(crate) fn end(&self) -> Option<End> {
        let growth = self.counters?.growth?;
        if growth <= 0.0 {
            return Some(End::Never);
        }
        let room = self.room()?.0 as f64;
        let seconds = self.process.status.as_ref().and_then(|it| it.seconds_per_step);
        let others_a_step = self.others_grow * seconds.unwrap_or(0.0);
        let steps = room / (growth + others_a_step);
        Some(End::In { steps: steps.floor(), seconds: seconds.map(|it| it * steps) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, uuid: &str, free: Bytes) -> Device {
        let memory = Some(Memory { total: Bytes::gib(80), free });
        Device { index, uuid: uuid.to_owned(), memory, ..Device::default() }
    }

    fn counters(uuid: Option<&str>, growth: Option<f64>) -> Counters {
        let (allocated, reserved) = (Bytes::gib(30), Bytes::gib(32));
        let uuid = uuid.map(str::to_owned);
        Counters { uuid, allocated, reserved, growth, ..Counters::default() }
    }

    fn watched(pid: u32, on: Vec<(usize, Option<Bytes>)>, counters: Vec<Counters>) -> Process {
        let status = Status { counters, seconds_per_step: Some(0.5), ..Status::default() };
        Process { pid, on, status: Some(status), ..Process::default() }
    }

    #[test]
    fn what_torch_and_the_driver_say_of_a_process_comes_together() {
        let snapshot = Snapshot {
            devices: vec![device(0, "GPU-AA", Bytes::gib(8)), device(1, "MIG-bb", Bytes::gib(1))],
            processes: vec![
                watched(7, vec![(0, None), (1, None)], vec![counters(Some("GPU-bb"), None)]),
                watched(5, vec![(0, Some(Bytes::gib(33)))], vec![counters(None, Some(1e6))]),
                watched(6, vec![], vec![counters(Some("GPU-cc"), Some(1.0))]),
            ],
            ..Snapshot::default()
        };
        let rows = snapshot.rows();
        let told: Vec<_> = rows
            .iter()
            .map(|it| (it.process.pid, it.device.map(|it| it.index), it.counters.is_some()))
            .collect();
        assert_eq!(
            told,
            [(5, Some(0), true), (7, Some(0), false), (7, Some(1), true), (6, None, true)]
        );
        assert_eq!(rows[0].room(), Some(Bytes::gib(10)));
        assert_eq!(rows[1].room(), Some(Bytes::gib(8)), "what is free is all that is known");
        assert_eq!(rows[0].end(), Some(End::In { steps: 10737.0, seconds: Some(5_368.709_12) }));
        assert_eq!((rows[1].end(), rows[2].end(), rows[3].end()), (None, None, None));
    }

    #[test]
    fn who_else_holds_most_of_a_device_is_found() {
        let holds =
            |pid, gib| Process { pid, on: vec![(0, Some(Bytes::gib(gib)))], ..Process::default() };
        let hidden = Process { pid: 9, on: vec![(0, None)], ..Process::default() };
        let elsewhere =
            Process { pid: 8, on: vec![(1, Some(Bytes::gib(70)))], ..Process::default() };
        let ann = Person { user: "ann".to_owned(), name: "python serve.py".to_owned(), uid: 7 };
        let ann = Process { person: Some(ann), ..holds(5, 12) };
        let snapshot = Snapshot {
            devices: vec![device(0, "GPU-AA", Bytes::gib(8)), device(1, "GPU-bb", Bytes::gib(1))],
            processes: vec![holds(4, 2), ann, holds(6, 30), elsewhere, hidden],
            ..Snapshot::default()
        };
        let found = snapshot.neighbour("GPU-aa", 6).unwrap();
        assert_eq!((found.pid, found.held), (5, Bytes::gib(12)));
        assert_eq!(found.name.as_deref(), Some("python serve.py"));
        assert_eq!(snapshot.neighbour("GPU-aa", 5).unwrap().pid, 6);
        assert_eq!(snapshot.neighbour("GPU-cc", 6), None);
    }

    #[test]
    fn who_grows_beside_others_ends_sooner() {
        let grows = |pid| watched(pid, vec![], vec![counters(Some("GPU-aa"), Some(1e6))]);
        let mut snapshot = Snapshot {
            devices: vec![device(0, "GPU-aa", Bytes::gib(8)), device(1, "GPU-bb", Bytes::gib(8))],
            processes: vec![grows(1), grows(2), grows(3)],
            ..Snapshot::default()
        };
        if let Some(status) = &mut snapshot.processes[2].status {
            status.counters[0].uuid = Some("GPU-bb".to_owned());
        }
        let ends: Vec<_> = snapshot.rows().iter().map(Row::end).collect();
        let together = Some(End::In { steps: 5368.0, seconds: Some(2_684.354_56) });
        let alone = Some(End::In { steps: 10737.0, seconds: Some(5_368.709_12) });
        assert_eq!(ends, [together, together, alone]);
    }

    #[test]
    fn who_does_not_grow_never_ends() {
        let snapshot = Snapshot {
            devices: vec![device(0, "GPU-aa", Bytes::gib(8))],
            processes: [0.0, -3.0]
                .map(|it| watched(1, vec![], vec![counters(Some("GPU-aa"), Some(it))]))
                .to_vec(),
            ..Snapshot::default()
        };
        let ends: Vec<_> = snapshot.rows().iter().map(Row::end).collect();
        assert_eq!(ends, [Some(End::Never), Some(End::Never)]);
    }
}
