//! What the driver and NVIDIA's libraries put on a device for themselves, as far as it decides where
//! the program's own memory lies: each takes addresses in the same space, and leaves holes there that
//! PyTorch's segments fill. How much memory that is, is counted elsewhere (the card's context).
//!
//! The ranges are those that the driver of a real H200 (580) asked UVM for, the same in each of 40 processes
//! (`bench/addresses`).

use crate::addresses::{Addresses, GRANULE};
use crate::kernels::Room;

const MIB: u64 = 1 << 20;

/// What a new context takes before its local memory: seventeen small ranges that fill a chunk, and tables.
const CONTEXT: [u64; 3] = [32 * MIB, 70 * MIB, GRANULE];
/// A multiprocessor's resident threads on Hopper, and the multiprocessors of its full chip: local memory is
/// taken for those that a card has switched off, too.
const THREADS: u64 = 144 * 2048;
/// Local memory of a thread in a new context, once a kernel of PyTorch or of NCCL is loaded, and once one of
/// NCCL's collectives is, in bytes.
const LOCAL: [u64; 3] = [1472, 1792, 2448];
/// The first kernel's code; what kernels print into; the heap that `malloc` has on the device, as soon as
/// a kernel could fail an assertion.
const CODE: u64 = GRANULE;
const PRINTED: u64 = GRANULE;
const HEAP: u64 = 10 * MIB;
/// What a handle of cuBLAS takes.
const BLAS: u64 = 64 * MIB;
/// And one of cuDNN: four small ranges, and two with code.
const DNN: usize = 6;
/// What NCCL takes at its first communicator before and after its kernels, and for each further one: small
/// ranges that it asks `cuMemAddressReserve` for, which the driver answers out of the same reservations.
const NCCL: [usize; 3] = [50, 133, 99];
/// What the first collective takes: a pair of buffers for each channel that it uses, of which DDP and FSDP
/// between two ranks had four to fifteen.
const CHANNELS: usize = 9;
const BUFFERS: [u64; 2] = [10 * MIB, GRANULE];

/// The ranges of one device that are not the program's.
#[derive(Clone, Debug, Default)]
pub struct Resident {
    /// Where local memory is, and how much a thread has.
    local: Option<(u64, u64)>,
    has_code: bool,
    has_kernels: bool,
    has_heap: bool,
    /// Whether cuBLAS or cuDNN have loaded code.
    has_libraries: bool,
    has_nccl: bool,
    has_collectives: bool,
}

impl Resident {
    /// A context begins.
    pub fn new(addresses: &mut Addresses) -> Resident {
        for bytes in CONTEXT {
            addresses.take(bytes);
        }
        let mut res = Resident::default();
        res.grow(addresses, LOCAL[0]);
        res
    }

    /// A kernel of the program is launched.
    pub fn kernel(&mut self, addresses: &mut Addresses, room: Room) {
        if !std::mem::replace(&mut self.has_code, true) {
            addresses.take(CODE);
        }
        if room != Room::Less && !std::mem::replace(&mut self.has_kernels, true) {
            self.grow(addresses, LOCAL[1]);
            addresses.take(PRINTED);
        }
        if room == Room::Asserting && !std::mem::replace(&mut self.has_heap, true) {
            addresses.take(HEAP);
        }
    }

    /// A stream is made.
    pub fn stream(&mut self, addresses: &mut Addresses) {
        addresses.take(GRANULE);
    }

    /// A handle of cuBLAS is made.
    pub fn blas(&mut self, addresses: &mut Addresses) {
        if !std::mem::replace(&mut self.has_libraries, true) {
            addresses.take(CODE);
        }
        addresses.take(BLAS);
    }

    /// A handle of cuDNN is made.
    pub fn dnn(&mut self, addresses: &mut Addresses) {
        self.has_libraries = true;
        take_small(addresses, DNN);
    }

    /// A communicator of NCCL is made.
    pub fn communicator(&mut self, addresses: &mut Addresses) {
        if std::mem::replace(&mut self.has_nccl, true) {
            take_small(addresses, NCCL[2]);
        } else {
            take_small(addresses, NCCL[0]);
            self.grow(addresses, LOCAL[1]);
            take_small(addresses, NCCL[1]);
        }
    }

    /// A collective between several ranks.
    pub fn collective(&mut self, addresses: &mut Addresses) {
        if !std::mem::replace(&mut self.has_collectives, true) {
            for bytes in BUFFERS {
                for _ in 0..CHANNELS {
                    addresses.take(bytes);
                }
            }
            self.grow(addresses, LOCAL[2]);
        }
    }

    /// A kernel needs that much local memory.
    fn grow(&mut self, addresses: &mut Addresses, of_a_thread: u64) {
        let has = self.local.map_or(0, |it| it.1);
        if has < of_a_thread {
            if let Some((at, _)) = self.local {
                addresses.give_back(at);
            }
            let bytes = (THREADS * of_a_thread).next_multiple_of(GRANULE);
            self.local = addresses.take(bytes).map(|at| (at, of_a_thread));
        }
    }
}

fn take_small(addresses: &mut Addresses, count: usize) {
    for _ in 0..count {
        addresses.take(GRANULE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = 0x7f00_0000_0000;

    #[test]
    fn a_program_begins_in_the_holes_of_its_context() {
        // As each of the 40 processes: MiB below the first chunk's end.
        let mut space = Addresses::new(0x7000_0000_0000, TOP);
        let mut resident = Resident::new(&mut space);
        let take = |space: &mut Addresses, mib| space.take(mib * MIB).map(|at| (TOP - at) / MIB);
        assert_eq!(take(&mut space, 20), Some(56), "beside the tables");
        assert_eq!(take(&mut space, 2), Some(130), "behind local memory");
        assert_eq!(take(&mut space, 20), Some(576), "a chunk below");
        resident.kernel(&mut space, Room::Less);
        assert_eq!(take(&mut space, 2), Some(554), "behind the first kernel's code");
        resident.kernel(&mut space, Room::Asserting);
        assert_eq!(
            take(&mut space, 148),
            Some(534),
            "where local memory was: a segment keeps that reserved"
        );
    }

    #[test]
    fn nccl_fills_the_hole_that_local_memory_leaves() {
        // 50 small ranges keep their reservations, so what was local memory becomes a hole; the 133 that follow fill
        // most of it, the first segment what is left, and the next one lies below everything.
        let mut space = Addresses::new(0x7000_0000_0000, TOP);
        let mut resident = Resident::new(&mut space);
        resident.communicator(&mut space);
        let first = space.take(148 * MIB).map(|at| (TOP - at) / MIB);
        resident.collective(&mut space);
        let second = space.take(20 * MIB).map(|at| (TOP - at) / MIB);
        assert_eq!((first, second), (Some(308), Some(1152)));
    }
}
