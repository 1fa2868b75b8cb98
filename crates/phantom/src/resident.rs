//! What the driver and NVIDIA's libraries put on a device for themselves, as far as it decides where
//! the program's own memory lies: each takes addresses in the same space, and leaves holes there that
//! PyTorch's segments fill. How much memory that is, is counted elsewhere (the card's context).
//!
//! The ranges are those that the driver of a real H200 (580) asked UVM for, the same in each of 40 processes
//! (`bench/addresses`).

use crate::addresses::{Addresses, GRANULE};

const MIB: u64 = 1 << 20;

/// What a new context takes before its local memory: seventeen small ranges that fill a chunk, and tables.
const CONTEXT: [u64; 3] = [32 * MIB, 70 * MIB, GRANULE];
/// A multiprocessor's resident threads on Hopper, and the multiprocessors of its full chip: local memory is
/// taken for those that a card has switched off, too.
const THREADS: u64 = 144 * 2048;
/// Local memory of a thread in a new context, and once a kernel of PyTorch is loaded, in bytes.
const LOCAL: u64 = 1472;
const LOCAL_OF_KERNELS: u64 = 1792;
/// The first kernel's code; what kernels print into; the heap that `malloc` has on the device, as soon as
/// a kernel could fail an assertion.
const CODE: u64 = GRANULE;
const PRINTED: u64 = GRANULE;
const HEAP: u64 = 10 * MIB;
/// What a handle of cuBLAS takes.
const BLAS: u64 = 64 * MIB;
/// And one of cuDNN: four small ranges, and two with code.
const DNN: usize = 6;

/// The ranges of one device that are not the program's.
#[derive(Clone, Debug, Default)]
pub struct Resident {
    /// Local memory, until the first kernel makes it larger.
    local: Option<u64>,
    has_blas: bool,
}

impl Resident {
    /// A context begins.
    pub fn new(addresses: &mut Addresses) -> Resident {
        for bytes in CONTEXT {
            addresses.take(bytes);
        }
        Resident { local: addresses.take(whole(THREADS * LOCAL)), has_blas: false }
    }

    /// A kernel of the program is launched.
    pub fn kernel(&mut self, addresses: &mut Addresses) {
        if let Some(local) = self.local.take() {
            addresses.take(CODE);
            addresses.give_back(local);
            for bytes in [whole(THREADS * LOCAL_OF_KERNELS), PRINTED, HEAP] {
                addresses.take(bytes);
            }
        }
    }

    /// A stream is made.
    pub fn stream(&mut self, addresses: &mut Addresses) {
        addresses.take(GRANULE);
    }

    /// A handle of cuBLAS is made.
    pub fn blas(&mut self, addresses: &mut Addresses) {
        if !std::mem::replace(&mut self.has_blas, true) {
            addresses.take(CODE);
        }
        addresses.take(BLAS);
    }

    /// A handle of cuDNN is made.
    pub fn dnn(&mut self, addresses: &mut Addresses) {
        for _ in 0..DNN {
            addresses.take(GRANULE);
        }
    }
}

fn whole(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE)
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
        resident.kernel(&mut space);
        assert_eq!(take(&mut space, 148), Some(544), "where local memory was: a segment keeps that reserved");
    }
}
