//! The communicators of this process, and what they take on their devices.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::addresses::Addresses;
use crate::launch::with_values;
use crate::machine;
use crate::machine::memory::Full;
use crate::machine::nccl::Nccl;
use crate::machine::report;
use crate::machine::resident::Resident;

/// What a communicator is used for; the first time that it is, it takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A collective over all ranks.
    Ring,
    /// To one rank, or to every other one.
    Send(Option<i32>),
    /// From one rank, or from every other one.
    Receive(Option<i32>),
    /// To and from every rank.
    Exchange,
}

/// What a process loads once for all of its communicators on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Once {
    Library,
    RingKernels,
    PeerKernels,
}

/// One rank's side of a communicator.
#[derive(Clone, Copy, Debug)]
pub struct Communicator {
    /// How many ranks it has; the parent's for a part of unknown size.
    pub ranks: u64,
    /// How many ranks it has, zero if that is not known.
    pub known_ranks: u64,
    /// This process's number in it.
    pub rank: i32,
    /// The device that it lives on.
    pub device: u32,
}

/// Who is in a communicator.
#[derive(Clone, Debug)]
pub struct Members {
    pub ranks: u64,
    /// Those of them that are on this machine, by their numbers in it.
    pub near: BTreeSet<i32>,
}

/// What a communicator holds on its device.
#[derive(Debug, Default)]
struct Holdings {
    /// Its ranks on this machine. Those of others are reached through a network, whose buffers are not counted.
    near: BTreeSet<i32>,
    /// The device's handles of it.
    memory: Vec<u64>,
    rings: bool,
    /// Ranks that it has sent to, and received from.
    sent: BTreeSet<i32>,
    received: BTreeSet<i32>,
}

impl Holdings {
    /// What a rank at the other end of one-way messages takes more than this one, of those on this machine:
    /// this one scattered, and each of the others has received; or it had the other part in either.
    fn more_at_a_peer(&self, nccl: Nccl) -> u64 {
        let others = self.near.len().saturating_sub(1) as u64;
        let only = |some: &BTreeSet<i32>, of: &BTreeSet<i32>| some.difference(of).count() as u64;
        let (to, from) = (only(&self.sent, &self.received), only(&self.received, &self.sent));
        let ours = nccl.send * to + nccl.receive * from;
        let member_or_root = |peers: u64, one: u64| match peers {
            0 => 0,
            1 => one * others,
            _ => one,
        };
        let theirs = member_or_root(to, nccl.receive).max(member_or_root(from, nccl.send));
        theirs.saturating_sub(ours)
    }
}

impl Communicator {
    /// This rank's number as an index.
    pub fn slot(&self) -> u64 {
        u64::try_from(self.rank).unwrap_or(0)
    }

    /// The ranks on this machine, where nobody knows which ones of the job they are: as if it was the whole job.
    fn of_a_whole_job(&self) -> BTreeSet<i32> {
        let devices = i32::try_from(machine::device_count()).unwrap_or(1).max(1);
        let first = self.rank / devices * devices;
        let ranks = i32::try_from(self.ranks).unwrap_or(i32::MAX);
        (first..first.saturating_add(devices).min(ranks)).collect()
    }
}

/// Why there is no communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A rank or a parent that does not exist.
    Argument,
    /// The card is full.
    Full,
}

static ALL: Mutex<BTreeMap<u64, (Communicator, Holdings)>> = Mutex::new(BTreeMap::new());
/// What is loaded once, by device.
static LOADED: Mutex<BTreeSet<(u32, Once)>> = Mutex::new(BTreeSet::new());
/// Groups by the color that they split with.
static COLORS: Mutex<BTreeMap<i32, Members>> = Mutex::new(BTreeMap::new());
/// The most that other ranks took where this one took less, by device, at a moment when it was looked at.
static MORE_ELSEWHERE: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());
static HAS_RANKS: AtomicBool = AtomicBool::new(false);
static RAN_OUT: AtomicBool = AtomicBool::new(false);
static IDS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Who is in the next communicator that this thread makes, if that is known.
    static NEXT: RefCell<Option<Members>> = const { RefCell::new(None) };
}

/// A number that no other unique id of this process has.
pub fn next_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// Whether a communicator could not be made because its device was full.
pub fn ran_out() -> bool {
    RAN_OUT.load(Ordering::Relaxed)
}

/// Whether there was ever a communicator of several ranks.
pub fn has_ranks() -> bool {
    HAS_RANKS.load(Ordering::Relaxed)
}

/// A communicator of `ranks`, in which we are `rank`, on `device`.
pub fn create(ranks: i32, rank: i32, device: u32) -> Result<u64, Refused> {
    let (Ok(n), true) = (u64::try_from(ranks), (0..ranks).contains(&rank)) else {
        return Err(Refused::Argument);
    };
    let members = NEXT.take().filter(|it| it.ranks == n);
    add(Communicator { ranks: n, known_ranks: n, rank, device }, members)
}

/// The part of `parent` that chose `color`, in the order of `key`.
pub fn split(parent: u64, color: i32, key: i32) -> Result<u64, Refused> {
    let parent = find(parent).ok_or(Refused::Argument)?;
    let learnt = COLORS.lock().unwrap_or_else(PoisonError::into_inner).get(&color).cloned();
    let members = NEXT.take().or(learnt);
    let known_ranks = members.as_ref().map_or(0, |it| it.ranks);
    let ranks = if known_ranks == 0 { parent.ranks } else { known_ranks };
    // PyTorch gives the rank in the new group as the key.
    add(Communicator { ranks, known_ranks, rank: key, device: parent.device }, members)
}

/// `color` stands for a group of these.
pub fn learn(color: i32, members: Members) {
    COLORS.lock().unwrap_or_else(PoisonError::into_inner).insert(color, members);
}

/// The next communicator that this thread makes is of these; none if that is not known.
pub fn expect(members: Option<Members>) {
    NEXT.set(members);
}

/// What other ranks take at most of their device number `device` where this one takes less. Not asked in the middle of a group of
/// messages: who has sent to one rank of eight so far has not gathered, and scatters.
pub fn more_elsewhere(device: u32) -> u64 {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let now: u64 = all
        .values()
        .filter(|it| it.0.device == device)
        .map(|(_, holdings)| holdings.more_at_a_peer(nccl()))
        .sum();
    drop(all);
    let mut more = MORE_ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
    let most = more.entry(device).or_default();
    *most = now.max(*most);
    *most
}

/// A communicator that lives.
pub fn find(handle: u64) -> Option<Communicator> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).map(|it| it.0)
}

/// Takes the memory and gives the communicator a handle.
fn add(communicator: Communicator, members: Option<Members>) -> Result<u64, Refused> {
    let near = members.map_or_else(|| communicator.of_a_whole_job(), |it| it.near);
    let mut holdings = Holdings { near, ..Holdings::default() };
    let nccl = nccl();
    take_once(communicator.device, Once::Library)?;
    holdings.memory.push(take(communicator.device, nccl.communicator(communicator.ranks))?);
    reside(communicator.device, Resident::communicator)?;
    if 2 <= communicator.ranks {
        HAS_RANKS.store(true, Ordering::Relaxed);
        with_values(|it, _| it.there_are_ranks());
        report::approximate(if nccl.is_of_the_card {
            "NCCL's memory on the device was measured on a machine with several of this card; it may differ with another network or number of ranks"
        } else {
            "NCCL's memory on the device (some 850 MiB for the first communicator, and 486 MiB for each further one that is used) was measured with two ranks on H200s with NVLink; it may differ with another card, network or number of ranks"
        });
    }
    let handle = machine::lock().ok_or(Refused::Argument)?.handle();
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(handle, (communicator, holdings));
    Ok(handle)
}

/// `handle` is used in this way: connects what is not connected yet.
pub fn connect(handle: u64, how: Use) -> Result<(), Refused> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let (it, holdings) = all.get_mut(&handle).ok_or(Refused::Argument)?;
    if it.ranks < 2 {
        return Ok(());
    }
    let (near, rank) = (holdings.near.clone(), it.rank);
    let peers = |of: Option<i32>| {
        let is_one = move |it: &i32| *it != rank && of.is_none_or(|of| of == *it);
        near.iter().copied().filter(is_one).collect::<Vec<_>>()
    };
    let (to, from) = match how {
        Use::Ring => (None, None),
        Use::Send(of) => (Some(peers(of)), None),
        Use::Receive(of) => (None, Some(peers(of))),
        Use::Exchange => (Some(peers(None)), Some(peers(None))),
    };
    let nccl = nccl();
    let mut size = 0;
    if how == Use::Ring && !std::mem::replace(&mut holdings.rings, true) {
        size += nccl.ring;
    }
    for peer in to.into_iter().flatten() {
        size += if holdings.sent.insert(peer) { nccl.send } else { 0 };
    }
    for peer in from.into_iter().flatten() {
        size += if holdings.received.insert(peer) { nccl.receive } else { 0 };
    }
    take_once(it.device, Once::RingKernels)?;
    reside(it.device, Resident::collective)?;
    if how != Use::Ring {
        take_once(it.device, Once::PeerKernels)?;
    }
    if size != 0 {
        holdings.memory.push(take(it.device, size)?);
    }
    Ok(())
}

/// What NCCL takes on this card.
fn nccl() -> Nccl {
    machine::lock().map_or_else(Nccl::default, |it| it.card.nccl)
}

/// Memory of `device` for `what`, which the process keeps; nothing if it has that.
fn take_once(device: u32, what: Once) -> Result<(), Refused> {
    if LOADED.lock().unwrap_or_else(PoisonError::into_inner).insert((device, what)) {
        let nccl = nccl();
        take(
            device,
            match what {
                Once::Library => nccl.library,
                Once::RingKernels => nccl.ring_kernels,
                Once::PeerKernels => nccl.peer_kernels,
            },
        )?;
    }
    Ok(())
}

/// NCCL takes addresses on `device`.
fn reside(device: u32, what: impl FnOnce(&mut Resident, &mut Addresses)) -> Result<(), Refused> {
    let mut machine = machine::lock().ok_or(Refused::Argument)?;
    let index = usize::try_from(device).map_err(|_| Refused::Argument)?;
    let device = machine.devices.get_mut(index).ok_or(Refused::Argument)?;
    device.reside(what).map_err(ran_out_of)
}

fn ran_out_of(_: Full) -> Refused {
    RAN_OUT.store(true, Ordering::Relaxed);
    Refused::Full
}

/// `size` bytes of `device`, as a handle. Addresses for them are taken by [`reside`].
fn take(device: u32, size: u64) -> Result<u64, Refused> {
    let mut machine = machine::lock().ok_or(Refused::Argument)?;
    let index = usize::try_from(device).map_err(|_| Refused::Argument)?;
    let device = machine.devices.get_mut(index).ok_or(Refused::Argument)?;
    device.create_for_library(size).map_err(ran_out_of)
}

/// `ncclCommDestroy`: its memory goes with it.
pub fn remove(handle: u64) {
    // What it had to do with other ranks counts, although it goes.
    if let Some(it) = find(handle) {
        more_elsewhere(it.device);
    }
    let gone = ALL.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    let Some((it, holdings)) = gone else { return };
    if let Some(mut machine) = machine::lock()
        && let Ok(index) = usize::try_from(it.device)
        && let Some(device) = machine.devices.get_mut(index)
    {
        for memory in holdings.memory {
            // A handle of ours that was released once is the only one that could fail.
            let _ = device.release_handle(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_receives_takes_more_than_who_sends() {
        const MIB: u64 = 1 << 20;
        let holdings = |near: i32, sent: &[i32], received: &[i32]| Holdings {
            near: (0..near).collect(),
            sent: sent.iter().copied().collect(),
            received: received.iter().copied().collect(),
            ..Holdings::default()
        };
        // Rank 0 of two, and of four, scattered: the others have 320 each where it has 64 and 192.
        assert_eq!(holdings(2, &[1], &[]).more_at_a_peer(Nccl::default()), 256 * MIB);
        assert_eq!(holdings(4, &[1, 2, 3], &[]).more_at_a_peer(Nccl::default()), 128 * MIB);
        assert_eq!(holdings(4, &[], &[0]).more_at_a_peer(Nccl::default()), 0);
        // One of four was gathered from: the first one has 960 for its 64.
        assert_eq!(holdings(4, &[0], &[]).more_at_a_peer(Nccl::default()), 896 * MIB);
        // Messages both ways are the same at both ends.
        assert_eq!(holdings(8, &[1, 2], &[1, 2]).more_at_a_peer(Nccl::default()), 0);
    }
}
