//! The communicators of this process, and what they take on their devices.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::machine;
use crate::report;

/// What NCCL took on each of two H200s joined by `NVLink` (NCCL 2.28, driver 580): `cudaMemGetInfo`
/// less what `PyTorch` had reserved was 1594.9 MiB in a DDP run and 1608.9 MiB in an FSDP2 run, and
/// 742 to 762 MiB, the context, in runs without NCCL. The smaller of the two, less the context of
/// 760 MiB.
const MEASURED: u64 = 835 << 20;
/// What each further communicator took there once it had been used: 485 to 486 MiB, three times.
const FURTHER: u64 = 486 << 20;

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
    /// The device memory that came with it.
    memory: Option<u64>,
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

static ALL: Mutex<BTreeMap<u64, Communicator>> = Mutex::new(BTreeMap::new());
/// Sizes of groups by the color that they split with.
static COLORS: Mutex<BTreeMap<i32, u64>> = Mutex::new(BTreeMap::new());
static RAN_OUT: AtomicBool = AtomicBool::new(false);
static IDS: AtomicU64 = AtomicU64::new(1);

/// A number that no other unique id of this process has.
pub fn next_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// Whether a communicator could not be made because its device was full.
pub fn ran_out() -> bool {
    RAN_OUT.load(Ordering::Relaxed)
}

/// A communicator of `ranks`, in which we are `rank`, on `device`.
pub fn create(ranks: i32, rank: i32, device: u32) -> Result<u64, Refused> {
    let (Ok(n), true) = (u64::try_from(ranks), (0..ranks).contains(&rank)) else {
        return Err(Refused::Argument);
    };
    add(Communicator { ranks: n, known_ranks: n, rank, device, memory: None })
}

/// The part of `parent` that chose `color`, in the order of `key`.
pub fn split(parent: u64, color: i32, key: i32) -> Result<u64, Refused> {
    let parent = find(parent).ok_or(Refused::Argument)?;
    let known_ranks =
        COLORS.lock().unwrap_or_else(PoisonError::into_inner).get(&color).copied().unwrap_or(0);
    let ranks = if known_ranks == 0 { parent.ranks } else { known_ranks };
    // PyTorch gives the rank in the new group as the key.
    add(Communicator { ranks, known_ranks, rank: key, device: parent.device, memory: None })
}

/// `color` stands for a group of `ranks`.
pub fn learn(color: i32, ranks: i32) {
    if let Ok(ranks) = u64::try_from(ranks) {
        COLORS.lock().unwrap_or_else(PoisonError::into_inner).insert(color, ranks);
    }
}

/// A communicator that lives.
pub fn find(handle: u64) -> Option<Communicator> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).copied()
}

/// Takes the memory and gives the communicator a handle.
fn add(mut communicator: Communicator) -> Result<u64, Refused> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut machine = machine::lock().ok_or(Refused::Argument)?;
    let index = usize::try_from(communicator.device).map_err(|_| Refused::Argument)?;
    let is_first = all.values().all(|it| it.device != communicator.device || it.ranks < 2);
    let device = machine.devices.get_mut(index).ok_or(Refused::Argument)?;
    if 2 <= communicator.ranks {
        // NCCL maps its own physical memory, so it takes no address that `cudaMalloc` would.
        let Ok(memory) = device.create(if is_first { MEASURED } else { FURTHER }) else {
            RAN_OUT.store(true, Ordering::Relaxed);
            return Err(Refused::Full);
        };
        communicator.memory = Some(memory);
        report::approximate(
            "NCCL's own memory on the device (835 MiB, and 486 MiB for each further communicator) was measured with two ranks on H200s joined by NVLink; other cards, networks and numbers of ranks may differ",
        );
    }
    let handle = machine.handle();
    all.insert(handle, communicator);
    Ok(handle)
}

/// `ncclCommDestroy`: its memory goes with it.
pub fn remove(handle: u64) {
    let gone = ALL.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    let Some((it, memory)) = gone.and_then(|it| Some((it, it.memory?))) else { return };
    if let Some(mut machine) = machine::lock()
        && let Ok(index) = usize::try_from(it.device)
        && let Some(device) = machine.devices.get_mut(index)
    {
        // A handle of ours that was released once is the only one that could fail.
        let _ = device.release_handle(memory);
    }
}
