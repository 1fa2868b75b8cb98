//! The communicators of this process, and what they take on their devices.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::addresses::Addresses;
use crate::launch::with_values;
use crate::machine;
use crate::machine::report;
use crate::machine::resident::Resident;

/// The smallest piece of device memory; NCCL asks for each of its small tables by itself.
const GRANULE: u64 = 2 << 20;
/// Channels between two H200s joined by `NVLink` under NCCL 2.28: of rings, and from one peer to another.
/// All that follows was measured there, with NCCL's own log of allocations and what the driver counted for
/// the process.
const RING_CHANNELS: u64 = 24;
const PEER_CHANNELS: u64 = 32;
/// Channels of a communicator of one rank: as many as NCCL can have, as no link limits them.
const LONE_CHANNELS: u64 = 64;
/// What each channel takes to send, and to receive into: buffers of 0.5, 4.7 and 4 MiB.
const SENDER: u64 = GRANULE;
const RECEIVER: u64 = 5 * GRANULE;
/// What a process takes at its first communicator: 350 MiB over the context of 760 MiB and the
/// communicator were counted in DDP and FSDP2 runs, of which the kernels of the first collective are 186.
const LIBRARY: u64 = 164 << 20;
const RING_KERNELS: u64 = 186 << 20;
/// And at the first message from one rank to another.
const PEER_KERNELS: u64 = 58 << 20;

/// Three tables for each channel, and two for all of them; one more where there is somebody to talk to: 388 and
/// 198 MiB.
const fn tables(ranks: u64) -> u64 {
    let (channels, of_all) = if 2 <= ranks { (PEER_CHANNELS, 3) } else { (LONE_CHANNELS, 2) };
    GRANULE * (3 * channels + of_all)
}

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

/// What a communicator holds on its device.
#[derive(Debug, Default)]
struct Holdings {
    /// The device's handles of it.
    memory: Vec<u64>,
    rings: bool,
    /// Ranks that it has sent to, and received from.
    sent: BTreeSet<i32>,
    received: BTreeSet<i32>,
}

impl Holdings {
    /// What a rank at the other end of one-way messages takes more than this one, of `near` ranks on a machine:
    /// this one scattered, and each of the others has received; or it had the other part in either.
    fn more_at_a_peer(&self, near: i32) -> u64 {
        let others = u64::try_from(near - 1).unwrap_or(0);
        let only = |some: &BTreeSet<i32>, of: &BTreeSet<i32>| some.difference(of).count() as u64;
        let (to, from) = (only(&self.sent, &self.received), only(&self.received, &self.sent));
        let ours = PEER_CHANNELS * (SENDER * to + RECEIVER * from);
        let member_or_root = |peers: u64, one: u64| match peers {
            0 => 0,
            1 => one * others,
            _ => one,
        };
        let theirs = member_or_root(to, PEER_CHANNELS * RECEIVER)
            .max(member_or_root(from, PEER_CHANNELS * SENDER));
        theirs.saturating_sub(ours)
    }
}

impl Communicator {
    /// This rank's number as an index.
    pub fn slot(&self) -> u64 {
        u64::try_from(self.rank).unwrap_or(0)
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
/// What is loaded once, by device and size.
static LOADED: Mutex<BTreeSet<(u32, u64)>> = Mutex::new(BTreeSet::new());
/// Sizes of groups by the color that they split with.
static COLORS: Mutex<BTreeMap<i32, u64>> = Mutex::new(BTreeMap::new());
/// What other ranks take at most where this one takes less, by device.
static MORE_ELSEWHERE: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());
static HAS_RANKS: AtomicBool = AtomicBool::new(false);
static RAN_OUT: AtomicBool = AtomicBool::new(false);
static IDS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// How many ranks the next part of a communicator has that this thread makes, zero if that is not known.
    static NEXT: Cell<u64> = const { Cell::new(0) };
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
    add(Communicator { ranks: n, known_ranks: n, rank, device })
}

/// The part of `parent` that chose `color`, in the order of `key`.
pub fn split(parent: u64, color: i32, key: i32) -> Result<u64, Refused> {
    let parent = find(parent).ok_or(Refused::Argument)?;
    let learnt = COLORS.lock().unwrap_or_else(PoisonError::into_inner).get(&color).copied();
    let known_ranks = match NEXT.get() {
        0 => learnt.unwrap_or(0),
        ranks => ranks,
    };
    let ranks = if known_ranks == 0 { parent.ranks } else { known_ranks };
    // PyTorch gives the rank in the new group as the key.
    add(Communicator { ranks, known_ranks, rank: key, device: parent.device })
}

/// `color` stands for a group of `ranks`.
pub fn learn(color: i32, ranks: i32) {
    if let Ok(ranks) = u64::try_from(ranks) {
        COLORS.lock().unwrap_or_else(PoisonError::into_inner).insert(color, ranks);
    }
}

/// Until it is told otherwise, this thread makes parts of `ranks`; zero if that is not known.
pub fn expect(ranks: u64) {
    NEXT.set(ranks);
}

/// What other ranks take at most of their device number `device` where this one takes less.
pub fn more_elsewhere(device: u32) -> u64 {
    let more = MORE_ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
    more.get(&device).copied().unwrap_or(0)
}

/// A communicator that lives.
pub fn find(handle: u64) -> Option<Communicator> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).map(|it| it.0)
}

/// Takes the memory and gives the communicator a handle.
fn add(communicator: Communicator) -> Result<u64, Refused> {
    let mut holdings = Holdings::default();
    take_once(communicator.device, LIBRARY)?;
    holdings.memory.push(take(communicator.device, tables(communicator.ranks))?);
    reside(communicator.device, Resident::communicator);
    if 2 <= communicator.ranks {
        HAS_RANKS.store(true, Ordering::Relaxed);
        with_values(|it, _| it.there_are_ranks());
        report::approximate(
            "NCCL's own memory on the device (some 850 MiB for the first communicator, and 486 MiB for each further one that is used) was measured with two ranks on H200s joined by NVLink; other cards, networks and numbers of ranks may differ",
        );
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
    // Ranks of other machines are reached through a network, whose buffers are the host's.
    let near = i32::try_from(it.ranks.min(machine::device_count().into())).unwrap_or(0);
    let rank = it.rank;
    let peers = |of: Option<i32>| {
        let all = of.map_or(0..near, |it| it..it.saturating_add(1));
        all.filter(move |&it| it != rank)
    };
    let (to, from) = match how {
        Use::Ring => (None, None),
        Use::Send(of) => (Some(peers(of)), None),
        Use::Receive(of) => (None, Some(peers(of))),
        Use::Exchange => (Some(peers(None)), Some(peers(None))),
    };
    let mut size = 0;
    if how == Use::Ring && !std::mem::replace(&mut holdings.rings, true) {
        size += RING_CHANNELS * (SENDER + RECEIVER);
    }
    for peer in to.into_iter().flatten() {
        size += if holdings.sent.insert(peer) { PEER_CHANNELS * SENDER } else { 0 };
    }
    for peer in from.into_iter().flatten() {
        size += if holdings.received.insert(peer) { PEER_CHANNELS * RECEIVER } else { 0 };
    }
    take_once(it.device, RING_KERNELS)?;
    reside(it.device, Resident::collective);
    if how != Use::Ring {
        take_once(it.device, PEER_KERNELS)?;
    }
    let device = it.device;
    if size != 0 {
        holdings.memory.push(take(device, size)?);
        let more: u64 = all
            .values()
            .filter(|it| it.0.device == device)
            .map(|(_, it)| it.more_at_a_peer(near))
            .sum();
        let mut known = MORE_ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
        let most = known.entry(device).or_default();
        *most = more.max(*most);
    }
    Ok(())
}

/// `size` bytes of `device`, which the process keeps; nothing if it has them.
fn take_once(device: u32, size: u64) -> Result<(), Refused> {
    if LOADED.lock().unwrap_or_else(PoisonError::into_inner).insert((device, size)) {
        take(device, size)?;
    }
    Ok(())
}

/// NCCL takes addresses on `device`.
fn reside(device: u32, what: impl FnOnce(&mut Resident, &mut Addresses)) {
    if let Some(mut machine) = machine::lock()
        && let Ok(index) = usize::try_from(device)
        && let Some(device) = machine.devices.get_mut(index)
    {
        device.reside(what);
    }
}

/// `size` bytes of `device`, as a handle. Addresses for them are taken by [`reside`].
fn take(device: u32, size: u64) -> Result<u64, Refused> {
    let mut machine = machine::lock().ok_or(Refused::Argument)?;
    let index = usize::try_from(device).map_err(|_| Refused::Argument)?;
    let device = machine.devices.get_mut(index).ok_or(Refused::Argument)?;
    device.create_for_library(size).map_err(|_| {
        RAN_OUT.store(true, Ordering::Relaxed);
        Refused::Full
    })
}

/// `ncclCommDestroy`: its memory goes with it.
pub fn remove(handle: u64) {
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
    fn a_communicator_takes_what_was_measured() {
        const MIB: u64 = 1 << 20;
        assert_eq!([1, 2, 8].map(tables), [388 * MIB, 198 * MIB, 198 * MIB]);
        assert_eq!(RING_CHANNELS * (SENDER + RECEIVER), 288 * MIB);
        assert_eq!([SENDER, RECEIVER].map(|it| PEER_CHANNELS * it), [64 * MIB, 320 * MIB]);
    }

    #[test]
    fn who_receives_takes_more_than_who_sends() {
        const MIB: u64 = 1 << 20;
        let holdings = |sent: &[i32], received: &[i32]| Holdings {
            sent: sent.iter().copied().collect(),
            received: received.iter().copied().collect(),
            ..Holdings::default()
        };
        // Rank 0 of two, and of four, scattered: the others have 320 each where it has 64 and 192.
        assert_eq!(holdings(&[1], &[]).more_at_a_peer(2), 256 * MIB);
        assert_eq!(holdings(&[1, 2, 3], &[]).more_at_a_peer(4), 128 * MIB);
        assert_eq!(holdings(&[], &[0]).more_at_a_peer(4), 0);
        // One of four was gathered from: the first one has 960 for its 64.
        assert_eq!(holdings(&[0], &[]).more_at_a_peer(4), 896 * MIB);
        // Messages both ways are the same at both ends.
        assert_eq!(holdings(&[1, 2], &[1, 2]).more_at_a_peer(8), 0);
    }
}
