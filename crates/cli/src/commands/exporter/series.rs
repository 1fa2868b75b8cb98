//! A snapshot as series of numbers with names and labels: what every monitoring reads, whatever its format.
//!
//! Labels are bounded: devices, and for a process its id, user and name, none longer than [`LONGEST_LABEL`]. No label has a command line.

use std::{cmp::Reverse, collections::BTreeMap};

use plimsoll_core::units::Bytes;

use crate::gpu::machine::snapshot::{Device, End, Process, Row, Snapshot};

/// Longer values are cut.
const LONGEST_LABEL: usize = 64;
/// Categories and codes of alarms are named by who writes the status; more than these are left out.
const MOST_NAMES: usize = 16;

/// What a number is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    /// It only grows, for as long as its process lives.
    Counter,
}

/// The unit, which its name ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    None,
    Bytes,
    Seconds,
    Ratio,
}

/// One metric that there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    /// Without the unit, and without a counter's `_total`.
    pub(super) stem: &'static str,
    pub(super) unit: Unit,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

/// A number and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: f64,
}

/// A metric and its numbers.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) metric: Metric,
    pub(super) samples: Vec<Sample>,
}

const fn gauge(stem: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric { stem, unit, kind: Kind::Gauge, help }
}

const fn counter(stem: &'static str, help: &'static str) -> Metric {
    Metric { stem, unit: Unit::None, kind: Kind::Counter, help }
}

/// Every metric, in the order of the manual.
pub(super) const METRICS: &[Metric] = &[
    gauge("plimsoll_nvml_up", Unit::None, "1 if the driver answers, 0 if not"),
    gauge("plimsoll_device_info", Unit::None, "Always 1; the labels describe the device"),
    gauge("plimsoll_device_memory_capacity", Unit::Bytes, "Total memory of the device"),
    gauge("plimsoll_device_memory_used", Unit::Bytes, "Memory of the device that is in use"),
    gauge("plimsoll_device_memory_free", Unit::Bytes, "Memory of the device that is free"),
    gauge(
        "plimsoll_device_utilization",
        Unit::Ratio,
        "Share of the last second in which a kernel ran, from 0 to 1",
    ),
    gauge("plimsoll_device_processes", Unit::None, "Number of processes on the device"),
    gauge(
        "plimsoll_process_held",
        Unit::Bytes,
        "GPU memory of the process as the driver reports it, CUDA context included",
    ),
    gauge(
        "plimsoll_process_room",
        Unit::Bytes,
        "Free memory of the device, plus memory that the process has reserved and not allocated",
    ),
    gauge("plimsoll_allocator_allocated", Unit::Bytes, "Memory of the process's tensors"),
    gauge(
        "plimsoll_allocator_reserved",
        Unit::Bytes,
        "Memory that PyTorch's allocator holds from the driver",
    ),
    gauge(
        "plimsoll_allocator_active",
        Unit::Bytes,
        "Memory that is allocated, or waits for another stream",
    ),
    gauge("plimsoll_allocator_inactive_split", Unit::Bytes, "Free memory in blocks that are split"),
    gauge("plimsoll_allocator_allocated_peak", Unit::Bytes, "Peak of allocated memory"),
    gauge("plimsoll_allocator_reserved_peak", Unit::Bytes, "Peak of reserved memory"),
    gauge(
        "plimsoll_allocator_largest_free",
        Unit::Bytes,
        "The largest free block in reserved memory",
    ),
    gauge(
        "plimsoll_allocator_growth_per_step",
        Unit::Bytes,
        "Change of allocated memory from step to step",
    ),
    gauge("plimsoll_allocator_category", Unit::Bytes, "Memory by category"),
    counter("plimsoll_allocator_retries", "How often the allocator freed its cache and retried"),
    counter("plimsoll_allocator_ooms", "How often PyTorch ran out of memory"),
    counter("plimsoll_process_steps", "Optimizer steps"),
    gauge("plimsoll_process_step_duration", Unit::Seconds, "Time of a step"),
    gauge(
        "plimsoll_process_time_to_end",
        Unit::Seconds,
        "Time until free memory is used up at the present growth; absent without growth",
    ),
    gauge(
        "plimsoll_process_steps_to_end",
        Unit::None,
        "Steps until free memory is used up at the present growth; absent without growth",
    ),
    gauge(
        "plimsoll_process_expected_peak",
        Unit::Bytes,
        "Reserved memory that the baseline or the plan expects",
    ),
    gauge(
        "plimsoll_process_alarms",
        Unit::None,
        "Alarms by code, among the last 20 of the process",
    ),
    gauge(
        "plimsoll_process_updated_timestamp",
        Unit::Seconds,
        "Time of the process's last report, in seconds since 1970",
    ),
    gauge(
        "plimsoll_exporter_left_out_processes",
        Unit::None,
        "Processes without series, because the limit on series is reached",
    ),
];

impl Unit {
    pub(super) fn text(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Ratio => "ratio",
        }
    }
}

#[cfg(test)]
impl Metric {
    /// As it stands in a query.
    pub(super) fn name(&self) -> String {
        let unit = match self.unit {
            Unit::None => String::new(),
            unit => format!("_{}", unit.text()),
        };
        let end = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{end}", self.stem)
    }
}

/// All series of the machine. Processes that hold most come first, until there would be more than `most` series; devices are always there.
pub(super) fn all(snapshot: &Snapshot, most: usize) -> Vec<Series> {
    let mut res = Table::default();
    res.machine(snapshot);
    let rows = snapshot.rows();
    let mut by_process: BTreeMap<u32, Vec<&Row<'_>>> = BTreeMap::new();
    for row in &rows {
        by_process.entry(row.process.pid).or_default().push(row);
    }
    let held = |rows: &[&Row<'_>]| {
        let of = |it: &&Row<'_>| it.held.or(it.counters.map(|it| it.reserved)).unwrap_or_default();
        rows.iter().map(of).sum::<Bytes>()
    };
    let mut processes: Vec<(u32, Vec<&Row<'_>>)> = by_process.into_iter().collect();
    processes.sort_by_key(|(_, rows)| Reverse(held(rows)));
    let mut left_out: u32 = 0;
    for (_, rows) in processes {
        let mut own = Table::default();
        own.process(rows[0].process);
        rows.iter().for_each(|it| own.row(it));
        // One is kept for the number of those that are left out.
        if most <= res.len() + own.len() {
            left_out += 1;
        } else {
            res.0.extend(own.0);
        }
    }
    res.add("plimsoll_exporter_left_out_processes", vec![], f64::from(left_out));
    res.sorted()
}

/// Numbers by the stem of their metric.
#[derive(Default)]
struct Table(Vec<(&'static str, Sample)>);

impl Table {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn add(&mut self, stem: &'static str, labels: Vec<(&'static str, String)>, value: f64) {
        self.0.push((stem, Sample { labels, value }));
    }

    #[expect(clippy::cast_precision_loss, reason = "no card has 2^53 bytes")]
    fn bytes(
        &mut self,
        stem: &'static str,
        labels: &[(&'static str, String)],
        value: Option<Bytes>,
    ) {
        if let Some(value) = value {
            self.add(stem, labels.to_vec(), value.0 as f64);
        }
    }

    fn real(&mut self, stem: &'static str, labels: &[(&'static str, String)], value: Option<f64>) {
        if let Some(value) = value.filter(|it| it.is_finite()) {
            self.add(stem, labels.to_vec(), value);
        }
    }

    fn sorted(self) -> Vec<Series> {
        let mut res: Vec<Series> =
            METRICS.iter().map(|it| Series { metric: *it, samples: Vec::new() }).collect();
        for (stem, sample) in self.0 {
            if let Some(series) = res.iter_mut().find(|it| it.metric.stem == stem) {
                series.samples.push(sample);
            }
        }
        res.retain(|it| !it.samples.is_empty());
        res
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of processes")]
    fn machine(&mut self, snapshot: &Snapshot) {
        self.add("plimsoll_nvml_up", vec![], if snapshot.no_gpu.is_none() { 1.0 } else { 0.0 });
        for (place, device) in snapshot.devices.iter().enumerate() {
            let labels = of_device(Some(device));
            let driver = snapshot.driver.clone().unwrap_or_default();
            let more = [("name", label(&device.name)), ("driver", label(&driver))];
            self.add("plimsoll_device_info", [labels.clone(), more.to_vec()].concat(), 1.0);
            self.bytes(
                "plimsoll_device_memory_capacity",
                &labels,
                device.memory.map(|it| it.total),
            );
            self.bytes("plimsoll_device_memory_used", &labels, device.memory.map(|it| it.used()));
            self.bytes("plimsoll_device_memory_free", &labels, device.memory.map(|it| it.free));
            let busy = device.utilization.map(|it| f64::from(it) / 100.0);
            self.real("plimsoll_device_utilization", &labels, busy);
            if device.no_processes.is_none() {
                let here = |it: &&Process| it.on.iter().any(|it| it.0 == place);
                let count = snapshot.processes.iter().filter(here).count();
                self.add("plimsoll_device_processes", labels, count as f64);
            }
        }
    }

    /// What is not of a device.
    #[expect(clippy::cast_precision_loss, reason = "steps")]
    fn process(&mut self, process: &Process) {
        let Some(status) = &process.status else { return };
        let labels = of_process(process);
        self.real("plimsoll_process_steps", &labels, status.step.map(|it| it as f64));
        self.real("plimsoll_process_step_duration", &labels, status.seconds_per_step);
        self.bytes("plimsoll_process_expected_peak", &labels, status.expected_peak);
        let heard = Some(status.updated).filter(|it| 0.0 < *it);
        self.real("plimsoll_process_updated_timestamp", &labels, heard);
        let mut alarms: BTreeMap<String, u32> = BTreeMap::new();
        for alarm in &status.alarms {
            *alarms.entry(label(&alarm.code)).or_default() += 1;
        }
        for (code, count) in alarms.into_iter().take(MOST_NAMES) {
            let labels = [labels.clone(), vec![("code", code)]].concat();
            self.add("plimsoll_process_alarms", labels, f64::from(count));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts")]
    fn row(&mut self, row: &Row<'_>) {
        let labels = [of_process(row.process), of_device(row.device)].concat();
        self.bytes("plimsoll_process_held", &labels, row.held);
        self.bytes("plimsoll_process_room", &labels, row.room());
        let Some(it) = row.counters else { return };
        self.bytes("plimsoll_allocator_allocated", &labels, Some(it.allocated));
        self.bytes("plimsoll_allocator_reserved", &labels, Some(it.reserved));
        self.bytes("plimsoll_allocator_active", &labels, Some(it.active));
        self.bytes("plimsoll_allocator_inactive_split", &labels, Some(it.inactive_split));
        self.bytes("plimsoll_allocator_allocated_peak", &labels, Some(it.peak_allocated));
        self.bytes("plimsoll_allocator_reserved_peak", &labels, Some(it.peak_reserved));
        self.bytes("plimsoll_allocator_largest_free", &labels, it.largest_free);
        self.real("plimsoll_allocator_growth_per_step", &labels, it.growth);
        self.real("plimsoll_allocator_retries", &labels, Some(it.retries as f64));
        self.real("plimsoll_allocator_ooms", &labels, Some(it.ooms as f64));
        let mut categories: BTreeMap<String, Bytes> = BTreeMap::new();
        for (name, bytes) in &it.categories {
            let sum = categories.entry(label(name)).or_default();
            *sum = Bytes(sum.0.saturating_add(bytes.0));
        }
        for (name, bytes) in categories.into_iter().take(MOST_NAMES) {
            let labels = [labels.clone(), vec![("category", name)]].concat();
            self.bytes("plimsoll_allocator_category", &labels, Some(bytes));
        }
        if let Some(End::In { steps, seconds }) = row.end() {
            self.real("plimsoll_process_steps_to_end", &labels, Some(steps));
            self.real("plimsoll_process_time_to_end", &labels, seconds);
        }
    }
}

fn of_device(device: Option<&Device>) -> Vec<(&'static str, String)> {
    let number = device.map(Device::number).unwrap_or_default();
    let uuid = device.map(|it| label(&it.uuid)).unwrap_or_default();
    vec![("gpu", number), ("uuid", uuid)]
}

fn of_process(process: &Process) -> Vec<(&'static str, String)> {
    let user = process.person.as_ref().map(|it| label(&it.user)).unwrap_or_default();
    let rank = process.status.as_ref().and_then(|it| it.rank);
    vec![
        ("pid", process.pid.to_string()),
        ("user", user),
        ("process", label(process.name().unwrap_or_default())),
        ("rank", rank.map(|it| it.to_string()).unwrap_or_default()),
    ]
}

fn label(text: &str) -> String {
    if text.chars().count() <= LONGEST_LABEL {
        return text.to_owned();
    }
    text.chars().take(LONGEST_LABEL - 1).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::gpu::machine::snapshot::{Counters, Memory, Status};

    /// Every word in `text` that is called as our metrics are.
    fn named_in(text: &str) -> BTreeSet<String> {
        let is_of_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let words = text.split(|it| !is_of_name(it));
        words.filter(|it| it.starts_with("plimsoll_")).map(str::to_owned).collect()
    }

    fn names() -> BTreeSet<String> {
        METRICS.iter().map(Metric::name).collect()
    }

    #[test]
    fn every_metric_of_the_board_exists() {
        let board = include_str!("../../../../../docs/grafana-board.json");
        let named = named_in(board);
        assert!(10 < named.len(), "{named:?}");
        assert_eq!(named.difference(&names()).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn the_manual_has_every_metric() {
        let page = include_str!("../../../../../docs/exporter.md");
        let rows = page.lines().filter_map(|it| it.strip_prefix("| `plimsoll_"));
        let told: Vec<String> = rows
            .filter_map(|it| it.split_once('`'))
            .map(|it| format!("plimsoll_{}", it.0))
            .collect();
        let expected: Vec<String> = METRICS.iter().map(Metric::name).collect();
        assert_eq!(told, expected);
        assert_eq!(named_in(page).difference(&names()).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    fn machine(n_processes: u32) -> Snapshot {
        let memory = Some(Memory { total: Bytes::gib(80), free: Bytes::gib(8) });
        let device = Device { uuid: "GPU-1".to_owned(), memory, ..Device::default() };
        let process = |pid: u32| {
            let counters = Counters { uuid: Some("GPU-1".to_owned()), ..Counters::default() };
            let status = Status {
                label: "x".repeat(500),
                command: vec!["--password=secret".to_owned()],
                counters: vec![counters],
                ..Status::default()
            };
            let held = Some(Bytes::gib(u64::from(pid)));
            Process { pid, on: vec![(0, held)], status: Some(status), ..Process::default() }
        };
        Snapshot {
            devices: vec![device],
            processes: (1..=n_processes).map(process).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn there_are_never_more_series_than_allowed_and_the_largest_stay() {
        for (most, n_processes) in [(5000, 40), (200, 40), (50, 3000), (0, 3)] {
            let series = all(&machine(n_processes), most);
            let count: usize = series.iter().map(|it| it.samples.len()).sum();
            // Devices, and how many were left out, are always told.
            assert!(count <= most.max(7), "{count} of {most}");
            let held = series.iter().find(|it| it.metric.stem == "plimsoll_process_held");
            let first = held.map(|it| it.samples[0].value);
            assert_eq!(first.is_some(), most != 0);
            assert!(first.is_none_or(|it| it == f64::from(n_processes) * (1_u64 << 30) as f64));
            let left_out = series.last().unwrap().samples[0].value;
            let told = held.map_or(0, |it| it.samples.len());
            assert_eq!(left_out, f64::from(n_processes) - told as f64);
        }
    }

    #[test]
    fn labels_are_short_and_have_no_command() {
        let labels: Vec<String> = all(&machine(2), 5000)
            .into_iter()
            .flat_map(|it| it.samples)
            .flat_map(|it| it.labels)
            .map(|it| it.1)
            .collect();
        assert!(labels.iter().all(|it| it.chars().count() <= LONGEST_LABEL), "{labels:?}");
        assert!(labels.iter().any(|it| it.ends_with("x…")));
        assert!(!labels.iter().any(|it| it.contains("secret")));
    }
}
