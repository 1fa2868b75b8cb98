//! What other processes hold on the same devices. All processes of a session map one file, in which each has a seat: who it is, and how
//! much it holds on each device. What a process held comes back when it is gone, however it ended, as the driver does: a
//! seat counts for as long as its process lives. Nobody waits for anybody: who takes memory says so first, looks then, and takes it
//! back if it was too much.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Devices of a machine, and processes that one session counts.
const DEVICES: usize = 64;
const SEATS: usize = 1024;
/// A seat: who sits there, and what it holds on each device, in bytes.
const SEAT: usize = 1 + DEVICES;
/// How many seats were ever taken; then, for each device, the most that was held on it at once.
const HEAD: usize = 1 + DEVICES;
const LENGTH: usize = HEAD + SEATS * SEAT;

/// The file in the session's folder that has the table: one for each machine of a job, of which the launcher says its number, where
/// processes of several machines run here.
fn name_of_table() -> String {
    let machine =
        std::env::var("GROUP_RANK").ok().filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
    let of_several = std::env::var_os("PLIMSOLL_TOGETHER").and(machine);
    of_several.map_or_else(|| "devices.table".to_owned(), |it| format!("devices-{it}.table"))
}

/// How often somebody looks again who found no room: two may have asked at once, and seen each other.
const TRIES: u32 = 3;

/// The file that all processes of a session share.
#[derive(Clone, Copy, Debug)]
pub struct Table(&'static [AtomicU64]);

/// A process, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its bytes on one device, context included.
    pub bytes: u64,
}

/// The place of this process in the table, as far as one device goes.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    table: Table,
    number: usize,
    /// The device's number in the machine.
    ordinal: usize,
}

impl Table {
    /// That of the run whose folder this is. `None` if there can be none, and then each process has the machine for itself.
    pub fn of_session(session: &Path) -> Option<Table> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(session.join(name_of_table()))
            .ok()?;
        let length = LENGTH * size_of::<AtomicU64>();
        // Whoever comes first makes it as long as it is to be, and nobody ever makes it shorter.
        file.set_len(u64::try_from(length).ok()?).ok()?;
        // SAFETY: a mapping at an address of the kernel's choice touches nothing of ours; it is never unmapped.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: as many words as the file has, aligned to a page, for as long as the process lives; whoever else has
        // them mapped changes them by atomic operations only.
        Some(Table(unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), LENGTH) }))
    }

    /// A seat for this process, the same for as long as it lives. `None` if all are taken.
    pub fn sit(self) -> Option<usize> {
        let own = Process::own();
        let seats =
            (0..SEATS).filter(|&it| self.0[HEAD + it * SEAT].load(Ordering::SeqCst) == own.0);
        // A program that became another one, by `exec`, has its seat already.
        let number = seats.into_iter().next().or_else(|| self.take_seat(own))?;
        let held = &self.0[HEAD + number * SEAT + 1..HEAD + (number + 1) * SEAT];
        held.iter().for_each(|it| it.store(0, Ordering::SeqCst));
        let taken = u64::try_from(number + 1).ok()?;
        self.0[0].fetch_max(taken, Ordering::SeqCst);
        Some(number)
    }

    fn take_seat(self, own: Process) -> Option<usize> {
        let take = |number: usize, from: u64| {
            let owner = &self.0[HEAD + number * SEAT];
            owner.compare_exchange(from, own.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        (0..SEATS).find(|&seat| {
            let owner = self.0[HEAD + seat * SEAT].load(Ordering::SeqCst);
            (owner == 0 || !Process(owner).is_alive()) && take(seat, owner)
        })
    }

    /// All processes but the one at `number` that live and hold something on this device.
    fn others(self, number: usize, ordinal: usize) -> Vec<Holder> {
        let taken = usize::try_from(self.0[0].load(Ordering::SeqCst)).unwrap_or(0).min(SEATS);
        let holder = |seat: usize| {
            let owner = Process(self.0[HEAD + seat * SEAT].load(Ordering::SeqCst));
            let bytes = self.0[HEAD + seat * SEAT + 1 + ordinal].load(Ordering::SeqCst);
            let counts = bytes != 0 && owner.is_alive();
            counts.then_some(Holder { pid: owner.pid(), bytes })
        };
        (0..taken).filter(|&it| it != number).filter_map(holder).collect()
    }
}

impl Seat {
    /// That of the process at `number`, for this device of the machine. `None` for a device that the table has no room for.
    pub fn new(table: Table, number: usize, ordinal: u32) -> Option<Seat> {
        let ordinal = usize::try_from(ordinal).ok().filter(|&it| it < DEVICES)?;
        Some(Seat { table, number, ordinal })
    }

    /// Who else holds something on the device.
    pub fn others(&self) -> Vec<Holder> {
        self.table.others(self.number, self.ordinal)
    }

    /// This process holds so many bytes from now on, whether or not there is room.
    pub fn hold(&self, bytes: u64) {
        // A child that was forked has its parent's seat and none of its memory.
        if self.is_own() {
            self.own().store(bytes, Ordering::SeqCst);
            let others = together(&self.others());
            if others != 0 {
                let most = &self.table.0[1 + self.ordinal];
                most.fetch_max(bytes.saturating_add(others), Ordering::SeqCst);
            }
        }
    }

    /// This process holds so many bytes from now on, if others leave that much of `total`. Who does hold it, if not.
    pub fn take(&self, bytes: u64, total: u64) -> Result<(), Vec<Holder>> {
        if !self.is_own() {
            return Ok(());
        }
        let before = self.own().load(Ordering::SeqCst);
        let mut tries = 0;
        loop {
            self.own().store(bytes, Ordering::SeqCst);
            let others = self.others();
            if bytes.saturating_add(together(&others)) <= total {
                self.hold(bytes);
                return Ok(());
            }
            self.own().store(before, Ordering::SeqCst);
            tries += 1;
            if tries == TRIES {
                return Err(others);
            }
            // The first at the table looks again first.
            std::thread::sleep(Duration::from_micros(200 * (1 + self.number as u64 % 16)));
        }
    }

    /// The most that all processes held on the device at once, in bytes; zero if there was never more than one.
    pub fn most_together(&self) -> u64 {
        self.table.0[1 + self.ordinal].load(Ordering::SeqCst)
    }

    fn own(&self) -> &AtomicU64 {
        &self.table.0[HEAD + self.number * SEAT + 1 + self.ordinal]
    }

    fn is_own(&self) -> bool {
        let owner = Process(self.table.0[HEAD + self.number * SEAT].load(Ordering::SeqCst));
        owner.pid() == std::process::id()
    }
}

/// Bytes that all of them hold.
pub fn together(holders: &[Holder]) -> u64 {
    holders.iter().fold(0, |sum, it| sum.saturating_add(it.bytes))
}

/// A process: its id, and in the upper half when it started, since ids are given again. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process(u64);

impl Process {
    fn own() -> Process {
        let pid = std::process::id();
        let started = state_and_start(pid).map_or(0, |it| it.1);
        Process(u64::from(pid) | started << 32)
    }

    fn pid(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Whether it still runs. One that has ended and that nobody has waited for has given everything back.
    fn is_alive(self) -> bool {
        if self.0 == 0 {
            return false;
        }
        match state_and_start(self.pid()) {
            Some((state, started)) => !matches!(state, 'Z' | 'X') && started == self.0 >> 32,
            // No `/proc` to look at.
            None if self.0 >> 32 == 0 => {
                let pid = libc::pid_t::try_from(self.pid()).unwrap_or(0);
                // SAFETY: signal 0 is not sent; it only asks whether there is such a process.
                pid != 0 && unsafe { libc::kill(pid, 0) } == 0
            }
            None => false,
        }
    }
}

/// The state of a process, and the lower half of when it started, in the kernel's ticks.
fn state_and_start(pid: u32) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses, and may have anything in it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let started: u64 = fields.nth(18)?.parse().ok()?;
    Some((state, started & u64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn table() -> Table {
        Table(Box::leak((0..LENGTH).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Another process sits down.
    fn seat_of(table: Table, process: Process, ordinal: u32) -> usize {
        let number = table.take_seat(process).expect("room");
        table.0[0].fetch_max(number as u64 + 1, Ordering::SeqCst);
        let _ = Seat::new(table, number, ordinal);
        number
    }

    fn child() -> (std::process::Child, Process) {
        let child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let started = state_and_start(child.id()).expect("it runs").1;
        let process = Process(u64::from(child.id()) | started << 32);
        (child, process)
    }

    #[test]
    fn together_they_have_what_the_device_has() {
        let table = table();
        let own = Seat::new(table, table.sit().unwrap(), 0).unwrap();
        assert_eq!(own.take(14 * GIB, 24 * GIB), Ok(()));
        assert_eq!(own.most_together(), 0, "it is alone");
        let (mut child, process) = child();
        let other = seat_of(table, process, 0);
        table.0[HEAD + other * SEAT + 1].store(9 * GIB, Ordering::SeqCst);
        let holder = Holder { pid: process.pid(), bytes: 9 * GIB };
        assert_eq!(own.take(16 * GIB, 24 * GIB), Err(vec![holder]));
        assert_eq!(own.take(15 * GIB, 24 * GIB), Ok(()));
        assert_eq!(own.most_together(), 24 * GIB);
        let elsewhere = Seat::new(table, own.number, 1).unwrap();
        assert_eq!(elsewhere.take(24 * GIB, 24 * GIB), Ok(()), "on the other device");
        child.kill().unwrap();
        while Process(process.0).is_alive() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(own.take(24 * GIB, 24 * GIB), Ok(()), "killed, and not waited for");
        child.wait().unwrap();
        assert_eq!(seat_of(table, Process(1), 0), other, "its seat is free");
    }

    #[test]
    fn a_process_has_one_seat_for_as_long_as_it_lives() {
        let table = table();
        let number = table.sit();
        assert_eq!((number, table.sit()), (Some(0), Some(0)));
        assert!(Process::own().is_alive());
        assert!(!Process(Process::own().0 ^ 1 << 32).is_alive(), "another one of the same number");
        assert!(!Process(0).is_alive());
    }
}
