//! The machine's NVIDIA devices as they are right now, asked of NVML, which is loaded when it is needed: a machine
//! without it has no device that we know of.

use std::{collections::BTreeMap, env, ffi::OsStr, fs};

use nvml_wrapper::{Nvml, enums::device::UsedGpuMemory};
use plimsoll_core::units::Bytes;

use crate::signals::without_signals;

/// The name that the driver installs; `libnvidia-ml.so` is in development packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNow {
    /// As the driver calls it.
    pub(crate) name: String,
    /// All of its memory.
    pub(crate) total: Bytes,
    /// What nobody holds.
    pub(crate) free: Bytes,
    /// The processes on it that NVML may tell us of, and what each holds if it says so.
    pub(crate) processes: Vec<(u32, Option<Bytes>)>,
}

impl DeviceNow {
    /// Who holds what is not free, for a sentence; empty when nobody is known to.
    pub(crate) fn holders(&self) -> String {
        let of = |(pid, held): &(u32, Option<Bytes>)| match held {
            Some(held) => format!("process {pid} with {held}"),
            None => format!("process {pid}"),
        };
        self.processes.iter().take(3).map(of).collect::<Vec<_>>().join(", ")
    }
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    /// As the driver calls it.
    pub(crate) name: String,
    /// `GPU-` and a number.
    pub(crate) uuid: String,
    /// All of its memory, if the driver said so.
    pub(crate) total: Option<Bytes>,
}

/// Whether there is one at all.
pub(crate) fn are_there() -> bool {
    open().and_then(|it| Ok(it.device_count()?)).is_ok_and(|it| it != 0)
}

/// How many there are, those that `CUDA_VISIBLE_DEVICES` hides included; none where NVML does not say.
pub(crate) fn count() -> Option<u32> {
    open().ok()?.device_count().ok()
}

/// All of them: what each is, in the order in which `nvidia-smi` counts them.
pub(crate) fn all() -> anyhow::Result<Vec<Gpu>> {
    let nvml = open()?;
    let gpu = |index| {
        let device = nvml.device_by_index(index)?;
        let total = device.memory_info().ok().map(|it| Bytes(it.total));
        Ok(Gpu { name: device.name()?, uuid: device.uuid()?, total })
    };
    (0..nvml.device_count()?).map(gpu).collect()
}

fn open() -> anyhow::Result<Nvml> {
    let nvml = without_signals(|| Nvml::builder().lib_path(OsStr::new(LIBRARY)).init());
    nvml.map_err(|error| anyhow::anyhow!("cannot ask {LIBRARY}: {error}"))
}

/// The device that a script would call `cuda:0`, or that its rank on this machine would use.
pub(crate) fn first() -> anyhow::Result<DeviceNow> {
    nth(local_rank().unwrap_or(0))
}

fn local_rank() -> Option<usize> {
    env::var("LOCAL_RANK").ok()?.parse().ok()
}

/// How many of the devices a script sees; 1 where nobody can say.
pub(crate) fn visible_count() -> usize {
    let all = count().and_then(|it| usize::try_from(it).ok()).unwrap_or(1);
    let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
    visible.map_or(all, |it| it.split(',').count().min(all)).max(1)
}

/// The device that a script would call `cuda:nth`.
fn nth(nth: usize) -> anyhow::Result<DeviceNow> {
    let nvml = open()?;
    let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
    let device = match chosen(visible.as_deref(), nth)? {
        Chosen::Index(index) => nvml.device_by_index(index),
        Chosen::Uuid(uuid) => nvml.device_by_uuid(uuid),
    };
    let device =
        device.map_err(|error| anyhow::anyhow!("NVML does not know this device: {error}"))?;
    let memory = device.memory_info()?;
    // In a container or without rights there are none to be seen.
    let mut processes = device.running_compute_processes().unwrap_or_default();
    processes.retain(|it| it.pid != std::process::id());
    let held = |memory: UsedGpuMemory| match memory {
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
        UsedGpuMemory::Unavailable => None,
    };
    Ok(DeviceNow {
        name: device.name()?,
        total: Bytes(memory.total),
        free: Bytes(memory.free),
        processes: processes.into_iter().map(|it| (it.pid, held(it.used_gpu_memory))).collect(),
    })
}

/// What driver there is, as it calls itself.
pub(crate) fn driver() -> Option<String> {
    open().ok()?.sys_driver_version().ok()
}

/// What is held of the devices from now on, beyond what others hold already.
#[derive(Debug)]
pub(crate) struct Usage {
    devices: Vec<OfDevice>,
    /// The most that each process held of a device.
    of_processes: BTreeMap<u32, Bytes>,
}

/// What is held of one of them.
#[derive(Debug)]
struct OfDevice {
    nth: usize,
    /// Processes that were there before, and what was not free.
    before: Option<(Vec<u32>, Bytes)>,
    /// The most that processes below us held, that those held which came since, and by which less was free.
    most: [Bytes; 3],
}

impl Usage {
    /// Before the processes start that are to be looked at.
    pub(crate) fn before() -> Usage {
        let numbers = local_rank().map_or_else(|| (0..visible_count()).collect(), |it| vec![it]);
        let devices = numbers.into_iter().map(OfDevice::before).collect();
        Usage { devices, of_processes: BTreeMap::new() }
    }

    /// Looks once.
    pub(crate) fn look(&mut self) {
        for device in &mut self.devices {
            for (pid, held) in device.look() {
                let most = self.of_processes.entry(pid).or_default();
                *most = held.max(*most);
            }
        }
    }

    /// The most that was seen of a device: of processes below us; in a container, where NVML has other numbers, of those that came
    /// since; where it shows none, of the first device.
    pub(crate) fn most(&self) -> Option<Bytes> {
        let ours = self.devices.iter().map(|it| it.most[0]).max();
        let of_first = self.devices.first().map(|it| it.most);
        let all = ours.into_iter().chain(of_first.into_iter().flatten());
        all.into_iter().find(|it| *it != Bytes::ZERO)
    }

    /// The most that this process held, which calls its device `cuda:nth`.
    pub(crate) fn most_of(&self, pid: u32, nth: usize) -> Option<Bytes> {
        let of_device = || {
            let device = self.devices.iter().find(|it| it.nth == nth)?;
            device.most.into_iter().find(|it| *it != Bytes::ZERO)
        };
        self.of_processes.get(&pid).copied().or_else(of_device)
    }
}

impl OfDevice {
    fn before(nth: usize) -> OfDevice {
        let now = self::nth(nth).ok();
        let before = now.map(|device| {
            let pids = device.processes.iter().map(|it| it.0).collect();
            (pids, device.total.saturating_sub(device.free))
        });
        OfDevice { nth, before, most: [Bytes::ZERO; 3] }
    }

    /// What each process below us holds now, as far as NVML says it.
    fn look(&mut self) -> Vec<(u32, Bytes)> {
        let (Some((pids, used)), Ok(now)) = (&self.before, nth(self.nth)) else {
            return Vec::new();
        };
        let held = |is_meant: &dyn Fn(u32) -> bool| -> Vec<(u32, Bytes)> {
            let meant = now.processes.iter().filter(|it| is_meant(it.0));
            meant.filter_map(|it| Some((it.0, it.1?))).collect()
        };
        let sum = |of: &[(u32, Bytes)]| of.iter().map(|it| it.1).sum();
        let ours = held(&is_below_us);
        let seen = [
            sum(&ours),
            sum(&held(&|it| !pids.contains(&it))),
            now.total.saturating_sub(now.free).saturating_sub(*used),
        ];
        for (most, seen) in self.most.iter_mut().zip(seen) {
            *most = (*most).max(seen);
        }
        ours
    }
}

/// Whether the process was started by us, or by one that was.
fn is_below_us(pid: u32) -> bool {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let ours = std::process::id();
    let mut pid = pid;
    // No tree of processes is deeper.
    for _ in 0..64 {
        match parent(pid) {
            Some(it) if it == ours => return true,
            Some(it) if 1 < it => pid = it,
            _ => return false,
        }
    }
    false
}

#[derive(Debug, PartialEq, Eq)]
enum Chosen<'a> {
    Index(u32),
    Uuid(&'a str),
}

/// The `nth` device of `CUDA_VISIBLE_DEVICES`. A launcher that gives each rank one device leaves a list of one.
fn chosen(visible: Option<&str>, nth: usize) -> anyhow::Result<Chosen<'_>> {
    let Some(visible) = visible else { return Ok(Chosen::Index(u32::try_from(nth)?)) };
    let entries: Vec<&str> = visible.split(',').map(str::trim).collect();
    let entry = entries.get(nth).or(entries.first()).copied().unwrap_or_default();
    match entry.parse::<u32>() {
        Ok(index) => Ok(Chosen::Index(index)),
        Err(_) if entry.starts_with("GPU-") || entry.starts_with("MIG-") => Ok(Chosen::Uuid(entry)),
        Err(_) => anyhow::bail!("CUDA_VISIBLE_DEVICES={visible} shows no device to the script"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_the_device_of_its_place() {
        assert_eq!(chosen(None, 3).unwrap(), Chosen::Index(3));
        assert_eq!(chosen(Some("4,6"), 1).unwrap(), Chosen::Index(6));
        assert_eq!(chosen(Some("7"), 2).unwrap(), Chosen::Index(7));
        assert_eq!(chosen(Some("GPU-1a2b"), 0).unwrap(), Chosen::Uuid("GPU-1a2b"));
        let error = chosen(Some(""), 0).unwrap_err().to_string();
        assert_eq!(error, "CUDA_VISIBLE_DEVICES= shows no device to the script");
        assert!(chosen(Some("-1"), 0).is_err());
    }
}
