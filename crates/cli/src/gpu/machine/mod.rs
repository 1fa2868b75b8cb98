//! What happens on this machine's GPUs right now: the driver, `/proc` and the status files of watched runs, read together.

mod nvml;
mod people;
pub(crate) mod snapshot;
mod status;
mod text;

use std::{
    collections::BTreeMap,
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use plimsoll_core::views::alarm::Neighbour;

use self::{
    nvml::Driver,
    people::People,
    snapshot::{Process, Snapshot},
    text::plain,
};
pub(crate) use self::{people::started, status::all as running};

/// Looks again and again. What can be kept from look to look is.
#[derive(Debug, Default)]
pub(crate) struct Looker {
    driver: Driver,
    people: People,
}

impl Looker {
    /// The machine as it is now.
    pub(crate) fn look(&mut self) -> Snapshot {
        let (told, no_gpu) = match self.driver.ask() {
            Ok(told) => (told, None),
            Err(why) => (nvml::Reading::default(), Some(why)),
        };
        let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
        for (pid, on) in told.on {
            processes.entry(pid).or_default().on = on;
        }
        for (pid, status) in status::all() {
            processes.entry(pid).or_default().status = Some(status);
        }
        let are_of_host = people::are_of_host();
        let named = processes.into_iter().map(|(pid, it)| {
            let is_it = are_of_host || it.status.is_some() || people::uses_gpu(pid);
            let person = if is_it { self.people.person(pid) } else { None };
            Process { pid, person, ..it }
        });
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Snapshot {
            at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64()),
            host: plain(host.trim(), 64),
            driver: told.driver,
            no_gpu,
            devices: told.devices,
            processes: named.collect(),
        }
    }

    /// Who but the process `pid` holds most of the device with this number. None in a container whose process numbers are not
    /// the driver's: it may be `pid` itself.
    pub(crate) fn neighbour(&mut self, uuid: &str, pid: u32) -> Option<Neighbour> {
        if people::are_of_host() { self.look().neighbour(uuid, pid) } else { None }
    }
}
