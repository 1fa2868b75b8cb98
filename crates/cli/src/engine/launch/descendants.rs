//! Everything that the script started, found and ended. We are the subreaper: a process whose parent is
//! gone becomes our child, so whoever is below us in `/proc` is of this run, daemons included.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, Instant},
};

use plimsoll_core::{prediction::Host, units::Bytes};

use crate::contract;

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getpid},
};

/// How long what is left may take to end by itself: workers that notice that their parent is gone.
const BY_ITSELF: Duration = Duration::from_secs(1);
/// How long it may take after SIGTERM, and how long we wait for the kernel after SIGKILL.
const AFTER_SIGNAL: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// Where files are that processes share.
const SHM: &str = "/dev/shm";

/// A process that runs.
struct Process {
    pid: i32,
    parent: i32,
    /// Ticks of the kernel's clock that it has worked, with its children that ended.
    worked: u64,
    /// It waits for nothing but a processor or a disk.
    is_at_work: bool,
}

/// What a run has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) pids: BTreeSet<i32>,
    /// In ticks of the kernel's clock (1/100 s).
    pub(super) worked: u64,
    /// One of them waits for nothing but a processor or a disk, which on a busy machine may take long.
    pub(super) goes_on: bool,
}

/// Processes below us that are ours, and no run's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spared {
    /// Who helps with a layer; what is below it is the run's.
    pub(crate) helper: Option<Pid>,
    /// A nursery that waits, with all that it started.
    pub(crate) nursery: Option<Pid>,
}

/// The processes below us that still run, without `spared`, children before grandchildren or not.
pub(super) fn running(spared: Spared) -> Vec<Pid> {
    let all = below_us(spared).into_iter().map(|it| Pid::from_raw(it.pid));
    all.filter(|it| Some(*it) != spared.helper).collect()
}

/// What the processes below us have done, and those of `recorded`, which left notes wherever they were started from.
pub(super) fn work(recorded: &BTreeSet<i32>) -> Work {
    let own = getpid().as_raw();
    let all = processes();
    let mut ours = below(&all, getpid());
    ours.extend(recorded);
    ours.remove(&own);
    let mut res = Work { pids: BTreeSet::new(), worked: 0, goes_on: false };
    for it in all.iter().filter(|it| ours.contains(&it.pid)) {
        res.pids.insert(it.pid);
        res.worked += it.worked;
        res.goes_on |= it.is_at_work;
    }
    res
}

/// What the processes below us have of the host right now: their own pages, and files in /dev/shm, each once; on a phantom also
/// pinned memory and ghosts, whole, as they are on a real device, though nobody may have touched them.
pub(super) fn memory(spared: Spared) -> Host {
    let mut own = Bytes::ZERO;
    let mut shared: BTreeMap<u64, u64> = BTreeMap::new();
    // By file and address: a forked child has its parent's.
    let mut whole: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for it in below_us(spared) {
        if spared.helper == Some(Pid::from_raw(it.pid)) {
            continue;
        }
        let pid = it.pid;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"));
        let kib = line.and_then(|it| it.split_whitespace().next()?.parse().ok());
        own += Bytes::kib(kib.unwrap_or(0));
        // Of what is on its way between two processes somebody still has a descriptor; the others have mapped it.
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        for it in maps.lines().filter_map(mapped) {
            if it.is_in_shm {
                let known = shared.entry(it.file).or_default();
                *known = it.bytes.max(*known);
            } else {
                whole.insert((it.file, it.at), it.bytes);
            }
        }
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let path = entry.path();
            if fs::read_link(&path).is_ok_and(|it| it.starts_with(SHM))
                && let Ok(file) = fs::metadata(&path)
            {
                shared.insert(file.ino(), file.len());
            }
        }
    }
    let shared = Bytes(shared.values().sum());
    Host { peak: own + shared + Bytes(whole.values().sum()), shared }
}

/// What a line of /proc/PID/maps is about.
#[derive(Debug, PartialEq, Eq)]
struct Mapped {
    /// The file's number.
    file: u64,
    at: u64,
    bytes: u64,
    is_in_shm: bool,
}

/// A file in /dev/shm that a line of /proc/PID/maps is about, or one of the phantom's that counts whole.
fn mapped(line: &str) -> Option<Mapped> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let file = words.nth(3)?.parse().ok()?;
    let name = words.next()?;
    let is_in_shm = Path::new(name).starts_with(SHM);
    if !is_in_shm && ![contract::PINNED, contract::GHOSTS].contains(&name) {
        return None;
    }
    let number = |it: &str| u64::from_str_radix(it, 16).ok();
    let at = number(from)?;
    Some(Mapped { file, at, bytes: number(to)?.checked_sub(at)?, is_in_shm })
}

/// Without a nursery and what is below it.
fn below_us(spared: Spared) -> Vec<Process> {
    let own = getpid();
    let all = processes();
    let mut runs = below(&all, own);
    if let Some(nursery) = spared.nursery {
        runs = &runs - &below(&all, nursery);
    }
    all.into_iter().filter(|it| it.pid != own.as_raw() && runs.contains(&it.pid)).collect()
}

/// `top` and everything below it, by number.
fn below(all: &[Process], top: Pid) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([top.as_raw()]);
    loop {
        let before = found.len();
        let children = all.iter().filter(|it| found.contains(&it.parent)).map(|it| it.pid);
        found.extend(children.collect::<Vec<_>>());
        if found.len() == before {
            return found;
        }
    }
}

/// Sends `signal` to everything that still runs, but not to `spared`, which is ours.
pub(crate) fn signal_all(signal: Signal, spared: Spared) {
    for pid in running(spared) {
        // It may just have ended; then there is nothing to do.
        let _ = kill(pid, signal);
    }
}

/// Waits a moment for what the script left running, then ends it, but not `spared`. Returns how many had to be ended.
pub(crate) fn end_all(be_patient: bool, spared: Spared) -> usize {
    let patience = if be_patient { BY_ITSELF } else { Duration::ZERO };
    if all_gone_within(patience, spared) {
        return 0;
    }
    let mut ended = BTreeSet::new();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let until = Instant::now() + AFTER_SIGNAL;
        while Instant::now() < until {
            let left = running(spared);
            // Those that were started meanwhile, too; each is told once per signal that ends it.
            for pid in left {
                if ended.insert((pid, signal as i32)) {
                    let _ = kill(pid, signal);
                }
            }
            if all_gone_within(PAUSE, spared) {
                break;
            }
        }
    }
    let pids: BTreeSet<Pid> = ended.into_iter().map(|(pid, _)| pid).collect();
    pids.len()
}

fn all_gone_within(patience: Duration, spared: Spared) -> bool {
    let until = Instant::now() + patience;
    loop {
        reap_orphans();
        if running(spared).is_empty() {
            return true;
        }
        if until <= Instant::now() {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Takes note of children that ended, so that they do not stay as zombies.
fn reap_orphans() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            break;
        }
    }
}

/// Everything that runs; zombies do not.
fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let of_entry = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // `pid (name) state parent ...`; a name may hold anything, also `)`.
        let name_end = stat.iter().rposition(|it| *it == b')')?;
        let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // utime, stime, cutime and cstime are fields 14 to 17; the parent is field 4 (proc(5)).
        let worked = fields.skip(9).take(4).filter_map(|it| it.parse::<u64>().ok()).sum();
        let is_at_work = state == "R" || state == "D";
        (state != "Z" && state != "X").then_some(Process { pid, parent, worked, is_at_work })
    };
    entries.flatten().filter_map(of_entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_of_shared_memory_is_told_by_its_file() {
        let line = |name: &str| {
            mapped(&format!(
                "7f2a00000000-7f2a03000000 rw-s 00000000 00:19 4711   {name} (deleted)"
            ))
        };
        let it = |is_in_shm| {
            Some(Mapped { file: 4711, at: 0x7f2a_0000_0000, bytes: 48 << 20, is_in_shm })
        };
        assert_eq!(line("/dev/shm/torch_12_34_0"), it(true));
        assert_eq!(line("/memfd:plimsoll-pinned"), it(false));
        assert_eq!(line("/memfd:plimsoll-ghosts"), it(false));
        assert_eq!(line("/memfd:somebody-elses"), None);
        assert_eq!(mapped("7f2a00000000-7f2a03000000 rw-p 00000000 00:00 0"), None);
        assert_eq!(
            mapped("7f2a00000000-7f2a03000000 r--p 00000000 08:01 99 /usr/lib/libc.so"),
            None
        );
    }
}
