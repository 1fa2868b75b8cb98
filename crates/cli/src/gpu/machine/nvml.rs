//! What NVIDIA's driver tells of the devices and of who is on them.

use std::{collections::BTreeMap, ffi::OsStr};

use nvml_wrapper::{
    Device as Handle, Nvml, enums::device::UsedGpuMemory, error::NvmlError,
    struct_wrappers::device::ProcessInfo,
};
use plimsoll_core::units::Bytes;

use crate::{
    gpu::machine::snapshot::{Device, Memory},
    signals::without_signals,
};

/// The name that the driver installs. The loader looks for it as for every library: `LD_LIBRARY_PATH` may name another place.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// On which devices a process is, by their places in the list, and what it holds there.
pub(super) type On = BTreeMap<u32, Vec<(usize, Option<Bytes>)>>;

/// The library, loaded once and kept.
#[derive(Debug, Default)]
pub(super) struct Driver(Option<Nvml>);

/// What it told.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) driver: Option<String>,
    pub(super) devices: Vec<Device>,
    pub(super) on: On,
}

impl Driver {
    /// All devices and all processes, or why not. What failed is loaded anew the next time: a driver may be updated below us.
    pub(super) fn ask(&mut self) -> Result<Reading, String> {
        if self.0.is_none() {
            let nvml = without_signals(|| Nvml::builder().lib_path(OsStr::new(LIBRARY)).init());
            self.0 = Some(nvml.map_err(|error| why(&error))?);
        }
        let told = self.0.as_ref().ok_or_else(|| "NVML is not loaded".to_owned()).and_then(told);
        if told.is_err() {
            self.0 = None;
        }
        told
    }
}

/// Why it does not answer.
fn why(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) => {
            format!("NVIDIA's driver is not installed ({LIBRARY} is not found)")
        }
        other => format!("{LIBRARY} reports an error: {other}"),
    }
}

fn told(nvml: &Nvml) -> Result<Reading, String> {
    let count = nvml.device_count().map_err(|error| why(&error))?;
    if count == 0 {
        return Err("the driver lists no GPU".to_owned());
    }
    let mut res = Reading { driver: nvml.sys_driver_version().ok(), ..Reading::default() };
    for index in 0..count {
        match nvml.device_by_index(index) {
            Ok(handle) => res.take(&handle, index),
            // Fallen off the bus, or not ours to see. The others are worth showing.
            Err(error) => res.devices.push(Device {
                index,
                name: format!("could not be asked: {error}"),
                ..Device::default()
            }),
        }
    }
    Ok(res)
}

impl Reading {
    /// A GPU, and the instances that it is cut into.
    fn take(&mut self, handle: &Handle<'_>, index: u32) {
        let is_cut = handle.mig_mode().is_ok_and(|it| it.current == 1);
        let most = if is_cut { handle.mig_device_count().unwrap_or(0) } else { 0 };
        let whole = self.devices.len();
        self.add(handle, index, None);
        for number in 0..most {
            if let Ok(instance) = handle.mig_device_by_index(number) {
                self.add(&instance, index, Some(number));
            }
        }
        name_once(&mut self.on, whole, self.devices.len());
    }

    fn add(&mut self, handle: &Handle<'_>, index: u32, instance: Option<u32>) {
        let place = self.devices.len();
        let memory = handle.memory_info().ok();
        let processes = processes(handle);
        self.devices.push(Device {
            index,
            instance,
            name: handle.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
            uuid: handle.uuid().unwrap_or_default(),
            memory: memory.map(|it| Memory { total: Bytes(it.total), free: Bytes(it.free) }),
            utilization: handle.utilization_rates().ok().map(|it| it.gpu),
            no_processes: processes.as_ref().err().map(ToString::to_string),
        });
        let own = std::process::id();
        for it in processes.unwrap_or_default().into_iter().filter(|it| it.pid != own) {
            let held = match it.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
                UsedGpuMemory::Unavailable => None,
            };
            let places = self.on.entry(it.pid).or_default();
            // One that both computes and draws is in two lists.
            match places.iter_mut().find(|it| it.0 == place) {
                Some((_, known)) => *known = (*known).max(held),
                None => places.push((place, held)),
            }
        }
    }
}

/// Takes those who are on an instance off its GPU, which names them once more. The GPU is at `whole`, its instances behind it up to `end`.
fn name_once(on: &mut On, whole: usize, end: usize) {
    for places in on.values_mut() {
        if places.iter().any(|it| whole < it.0 && it.0 < end) {
            places.retain(|it| it.0 != whole);
        }
    }
}

/// Who computes or draws on the device. Drivers that do not know the second list, or that of MPS, have the first.
fn processes(handle: &Handle<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    let mut res = handle.running_compute_processes()?;
    res.extend(handle.running_graphics_processes().unwrap_or_default());
    res.extend(handle.mps_running_compute_processes().unwrap_or_default());
    Ok(res)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_on_an_instance_is_not_on_its_gpu_as_well() {
        // A GPU without instances, then one with two, then another one.
        let mut on = On::from([
            (7, vec![(0, None), (1, Some(Bytes(5))), (3, Some(Bytes(5))), (4, None)]),
            (8, vec![(1, None)]),
        ]);
        name_once(&mut on, 1, 4);
        let places = |pid: u32| on[&pid].iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!((places(7), places(8)), (vec![0, 3, 4], vec![1]));
    }
}
