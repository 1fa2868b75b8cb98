//! `phantom.jsonl`: what the phantom writes itself, so that something is left when a process is killed
//! before the agent could ask. The first line comes at first use; a line follows the first time that
//! something is not imitated.

use serde::Deserialize;

use crate::{
    recording::{
        Approximated, Holder, NotImitated, PhantomDevice, PhantomReport, contract::ProcessFile,
    },
    sources::{
        Warning,
        json_lines::{for_each_line, one_line},
    },
    units::Bytes,
};

/// Reads the phantom's log: the sum of its lines, the devices of the last line that has any. None if
/// no line could be read.
pub fn read(bytes: &[u8], warnings: &mut Vec<Warning>) -> Option<PhantomReport> {
    let mut res: Option<PhantomReport> = None;
    for_each_line(bytes, ProcessFile::PhantomLog, warnings, |line: LogLine| {
        let res = res.get_or_insert_default();
        let report = PhantomReport::from(line.report);
        if !report.devices.is_empty() {
            res.devices = report.devices;
        }
        res.launches = res.launches.max(report.launches);
        res.devices_asked = res.devices_asked.max(report.devices_asked);
        res.asked_size = report.asked_size.or(res.asked_size.take());
        res.visible_devices = report.visible_devices.or(res.visible_devices.take());
        res.hurried = res.hurried.max(report.hurried);
        res.assumed_sizes = res.assumed_sizes.max(report.assumed_sizes);
        res.overflows_asked = res.overflows_asked.max(report.overflows_asked);
        res.overflows_found = res.overflows_found.max(report.overflows_found);
        res.trials = res.trials.max(report.trials);
        res.unknown_reads = res.unknown_reads.max(report.unknown_reads);
        res.unknown_read_bytes = res.unknown_read_bytes.max(report.unknown_read_bytes);
        res.not_imitated.extend(report.not_imitated);
        res.approximated.extend(report.approximated);
        if let Some(name) = line.name {
            res.not_imitated.push(NotImitated {
                name: one_line(name),
                library: one_line(line.library),
                answer: one_line(line.answer),
                count: line.count.max(1),
            });
        }
        Ok(())
    });
    res
}

/// A line of the log: a report, or one call that is not imitated.
#[derive(Debug, Deserialize)]
struct LogLine {
    #[serde(flatten)]
    report: ReportLine,
    name: Option<String>,
    #[serde(default)]
    library: String,
    #[serde(default)]
    answer: String,
    #[serde(default)]
    count: u64,
}

/// What `plimsoll_phantom_report` writes; the agent passes it on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReportLine {
    devices: Vec<DeviceLine>,
    launches: u64,
    hurried: u64,
    overflows_asked: u64,
    overflows_found: u64,
    trials: u64,
    assumed_sizes: u64,
    devices_asked: u64,
    visible_devices: Option<String>,
    asked_size: Option<String>,
    not_imitated: Vec<NotImitatedLine>,
    approximated: Vec<ApproximatedLine>,
    unknown_reads: ReadsLine,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeviceLine {
    total_bytes: u64,
    context_bytes: u64,
    used_bytes: u64,
    peak_bytes: u64,
    other_peak_bytes: u64,
    lacked_bytes: u64,
    lacked_steps: Option<u64>,
    more_elsewhere_bytes: u64,
    ordinal: u32,
    together_bytes: u64,
    ran_out_beside: Vec<HolderLine>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HolderLine {
    pid: u32,
    bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NotImitatedLine {
    name: String,
    library: String,
    answer: String,
    count: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApproximatedLine {
    what: String,
    count: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReadsLine {
    count: u64,
    bytes: u64,
}

impl From<ReportLine> for PhantomReport {
    fn from(it: ReportLine) -> PhantomReport {
        let holder = |it: HolderLine| Holder { pid: it.pid, bytes: Bytes(it.bytes) };
        let device = |device: DeviceLine| PhantomDevice {
            total: Bytes(device.total_bytes),
            context: Bytes(device.context_bytes),
            used: Bytes(device.used_bytes),
            peak: Bytes(device.peak_bytes),
            other_peak: Bytes(device.other_peak_bytes),
            lacked: Bytes(device.lacked_bytes),
            lacked_steps: device.lacked_steps,
            more_elsewhere: Bytes(device.more_elsewhere_bytes),
            ordinal: device.ordinal,
            together: Bytes(device.together_bytes),
            ran_out_beside: device.ran_out_beside.into_iter().map(holder).collect(),
        };
        let not_imitated = |line: NotImitatedLine| {
            let NotImitatedLine { name, library, answer, count } = line;
            let [name, library, answer] = [name, library, answer].map(one_line);
            NotImitated { name, library, answer, count }
        };
        let approximated =
            |it: ApproximatedLine| Approximated { what: one_line(it.what), count: it.count };
        PhantomReport {
            devices: it.devices.into_iter().map(device).collect(),
            launches: it.launches,
            hurried: it.hurried,
            overflows_asked: it.overflows_asked,
            overflows_found: it.overflows_found,
            trials: it.trials,
            assumed_sizes: it.assumed_sizes,
            devices_asked: it.devices_asked,
            visible_devices: it.visible_devices.map(one_line),
            asked_size: it.asked_size.map(one_line),
            not_imitated: it.not_imitated.into_iter().map(not_imitated).collect(),
            approximated: it.approximated.into_iter().map(approximated).collect(),
            unknown_reads: it.unknown_reads.count,
            unknown_read_bytes: Bytes(it.unknown_reads.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_devices_count_and_calls_add_up() {
        let log = r#"{"kind":"phantom","devices":[{"total_bytes":100,"used_bytes":1}]}
{"kind":"not_imitated","name":"cudaFoo","library":"cudart","answer":"error 801"}
{"devices":[{"total_bytes":100,"used_bytes":2}],"launches":3,"hurried":2}
"#;
        let mut warnings = Vec::new();
        let report = read(log.as_bytes(), &mut warnings).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(report.devices[0].used, Bytes(2));
        assert_eq!(report.not_imitated[0].name, "cudaFoo");
        assert_eq!((report.launches, report.hurried), (3, 2));
        assert_eq!(read(b"", &mut warnings), None);
    }
}
