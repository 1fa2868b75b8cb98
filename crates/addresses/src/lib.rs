//! Which address the driver hands out. PyTorch breaks ties between equal free blocks by address
//! (before torch 2.12), so the order decides which block is used again, and with it the reserved
//! bytes. Knows neither capacity nor contents.
//!
//! A crate of its own, because both need it and neither may link the other: the phantom, which goes into
//! somebody else's process, and the replay, which asks where segments would have been.
//!
//! The rule was seen on a real H200 (driver 580, Linux 6.18), where a library between the driver and the
//! kernel noted every `mmap`, `munmap` and UVM call of it (`bench/instruments/addresses_watch.c`). It holds for each of the 3,500
//! ranges that the driver placed there, its own among them:
//!
//! - address space is reserved in multiples of 32 MiB that begin at a multiple of 32 MiB: the driver asks the
//!   kernel for 32 MiB less a page more than that, and gives back what is over on both sides. The kernel
//!   answers with the upper end of the highest gap that is large enough;
//! - a request goes into the newest reservation that has room, there into the smallest hole that it fits
//!   into, of equal ones the lowest, at its lower end;
//! - a reservation of which nothing is used any more goes back to the kernel.
//!
//! What the host's own memory leaves and takes in the same address space differs from run to run, and is no part of the rule:
//! [`Addresses::host_leaves`] and [`Addresses::host_takes`].

mod gaps;

use std::collections::BTreeMap;

use gaps::{CHUNK, Gaps};

/// What the driver maps memory in: every allocation is a multiple of it.
pub const GRANULE: u64 = 2 << 20;

/// The address space of one device for `cudaMalloc`.
#[derive(Clone, Debug)]
pub struct Addresses {
    gaps: Gaps,
    /// By age: the last one is the newest.
    reservations: BTreeMap<u64, Reservation>,
    next: u64,
    /// Above everything that is or was in use.
    top: u64,
    /// Where each of them begins, and its age.
    starts: BTreeMap<u64, u64>,
    /// Ranges handed out, by address.
    taken: BTreeMap<u64, u64>,
}

/// A range that the kernel gave.
#[derive(Clone, Debug)]
struct Reservation {
    at: u64,
    bytes: u64,
    /// What of it is not handed out, by address. No two touch.
    holes: BTreeMap<u64, u64>,
    /// The largest of them.
    largest: u64,
}

impl Addresses {
    /// An address space that hands out `floor..ceiling`, from the top.
    pub fn new(floor: u64, ceiling: u64) -> Addresses {
        let top = ceiling / CHUNK * CHUNK;
        Addresses {
            gaps: Gaps::new(floor, top),
            top,
            reservations: BTreeMap::new(),
            next: 0,
            starts: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }

    /// An address space that goes on below all of `taken`: starts and sizes, the oldest first, that are in
    /// use as somebody else's record has it. The chunks that they lie in are reserved.
    pub fn holding(floor: u64, ceiling: u64, taken: &[(u64, u64)]) -> Addresses {
        let lowest = taken.iter().map(|it| it.0).min().unwrap_or(ceiling);
        let mut res = Addresses::new(floor, lowest);
        for &(at, bytes) in taken {
            let end = at.saturating_add(bytes);
            res.top = res.top.max(end.checked_next_multiple_of(CHUNK).unwrap_or(end));
            let below = res.starts.range(..=at).next_back().map(|it| *it.1);
            let from = below.map_or(0, |it| res.end_of(it));
            let above = res.starts.range(end..).next().map_or(u64::MAX, |it| *it.0);
            let to = end.checked_next_multiple_of(CHUNK).unwrap_or(end).min(above);
            match below.and_then(|it| res.reservations.get_mut(&it)).filter(|_| at < from) {
                Some(it) => it.grow(to),
                None => {
                    let from = from.max(at / CHUNK * CHUNK);
                    res.add(from, to.saturating_sub(from));
                }
            }
            res.put(at, bytes);
        }
        res
    }

    /// The start of a new range of `bytes`, a multiple of [`GRANULE`]. `None` if the address space
    /// is used up.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let newest = self.reservations.iter().rev().find(|it| bytes <= it.1.largest);
        let age = match newest {
            Some((&age, _)) => age,
            None => {
                let whole = bytes.max(1).checked_next_multiple_of(CHUNK)?;
                let at = self.gaps.take(whole)?;
                self.add(at, whole)
            }
        };
        let at = self.reservations.get_mut(&age)?.take(bytes)?;
        self.taken.insert(at, bytes);
        Some(at)
    }

    /// Takes the range that starts at `at` back. `None` if there is none.
    pub fn give_back(&mut self, at: u64) -> Option<u64> {
        let bytes = self.taken.remove(&at)?;
        let (&start, &age) = self.starts.range(..=at).next_back()?;
        let reservation = self.reservations.get_mut(&age)?;
        reservation.give_back(at, bytes);
        if reservation.largest == reservation.bytes {
            self.gaps.give_back(start, reservation.bytes);
            self.reservations.remove(&age);
            self.starts.remove(&start);
        }
        Some(bytes)
    }

    /// Memory of the host that lay above everything else is free now.
    pub fn host_leaves(&mut self, chunks: u64) {
        let bytes = chunks.saturating_mul(CHUNK);
        // Something between stays, so that it does not join what lies below.
        let Some(end) = self.top.checked_add(CHUNK).and_then(|at| at.checked_add(bytes)) else {
            return;
        };
        self.gaps.give_back(self.top + CHUNK, bytes);
        self.top = end;
    }

    /// The host takes so much, in the highest gap that is large enough.
    pub fn host_takes(&mut self, chunks: u64) {
        self.gaps.take(chunks.saturating_mul(CHUNK));
    }

    /// The range that `address` lies in: start and size.
    pub fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        let (&at, &bytes) = self.taken.range(..=address).next_back()?;
        (address < at + bytes).then_some((at, bytes))
    }

    /// A reservation is made; its age.
    fn add(&mut self, at: u64, bytes: u64) -> u64 {
        let age = self.next;
        self.next += 1;
        let holes = [(at, bytes)].into();
        self.reservations.insert(age, Reservation { at, bytes, holes, largest: bytes });
        self.starts.insert(at, age);
        age
    }

    /// Where the reservation of that age ends.
    fn end_of(&self, age: u64) -> u64 {
        self.reservations.get(&age).map_or(0, |it| it.at.saturating_add(it.bytes))
    }

    /// A range is handed out at this very place, as far as it is free.
    fn put(&mut self, at: u64, bytes: u64) {
        if let Some((_, &age)) = self.starts.range(..=at).next_back()
            && let Some(reservation) = self.reservations.get_mut(&age)
            && reservation.put(at, bytes)
        {
            self.taken.insert(at, bytes);
        }
    }
}

impl Reservation {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let fits = self.holes.iter().filter(|it| bytes <= *it.1);
        let (&at, _) = fits.min_by_key(|it| (*it.1, *it.0))?;
        self.put(at, bytes);
        Some(at)
    }

    /// Whether there was room at this very place, which is taken now.
    fn put(&mut self, at: u64, bytes: u64) -> bool {
        let Some((&hole, &size)) = self.holes.range(..=at).next_back() else { return false };
        let Some(rest) = (hole + size).checked_sub(at).and_then(|it| it.checked_sub(bytes)) else {
            return false;
        };
        self.holes.remove(&hole);
        if hole < at {
            self.holes.insert(hole, at - hole);
        }
        if 0 < rest {
            self.holes.insert(at + bytes, rest);
        }
        self.largest = self.holes.values().copied().max().unwrap_or(0);
        true
    }

    /// Goes on to `end`, if it does not yet.
    fn grow(&mut self, end: u64) {
        let more = end.saturating_sub(self.at + self.bytes);
        if 0 < more {
            self.give_back(self.at + self.bytes, more);
            self.bytes += more;
        }
    }

    fn give_back(&mut self, at: u64, bytes: u64) {
        let size = gaps::join(&mut self.holes, at, bytes);
        self.largest = self.largest.max(size);
    }
}

#[cfg(test)]
mod tests;
