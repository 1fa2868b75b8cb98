//! What the driver and NVIDIA's libraries put on a device for themselves, as far as it decides where
//! the program's own memory lies: each takes addresses in the same space, and leaves holes there that
//! PyTorch's segments fill. How much memory that is, is counted with the card's context; only what a program has more
//! of or less than most trainings is counted here ([`Resident::beside`]).
//!
//! The ranges are those that the driver of a real H200 (580) asked UVM for, the same in each of 40 processes
//! (`bench/instruments/addresses_watch.c`).

use crate::addresses::{Addresses, GRANULE};
use crate::machine::graphs::Graphs;
use plimsoll_values::Room;

const MIB: u64 = 1 << 20;

/// What a new context takes before its local memory: seventeen small ranges that fill a chunk, and tables.
const CONTEXT: [u64; 3] = [32 * MIB, 70 * MIB, GRANULE];
/// A multiprocessor's resident threads on Hopper, and the multiprocessors of its full chip: local memory is
/// taken for those that a card has switched off, too.
const THREADS: u64 = 144 * 2048;
/// Local memory of a thread in a new context, and once a kernel of PyTorch or of NCCL is loaded, in bytes.
const LOCAL: [u64; 2] = [1472, 1792];
/// Bytes of a kernel's local memory that every kernel has room for, and those of NCCL's collectives, as their machine code says. Kernels with up
/// to 1,024 bytes took nothing on an H200, those with more as much more for each thread that the card keeps.
const STACK: u64 = 1024;
const NCCL_STACK: u64 = 1736;
/// What the driver adds where it looks for a place for it.
const STACK_BESIDE: u64 = 712;
/// The first kernel's code; what kernels print into; the heap that `malloc` has on the device, as soon as
/// a kernel could fail an assertion.
const CODE: u64 = GRANULE;
const PRINTED: u64 = GRANULE;
const HEAP: u64 = 10 * MIB;
/// Streams that share a small range: the first of each four takes it. What else they take, they take where graphs do.
const STREAMS: u64 = 4;
/// What a handle of cuBLAS takes.
const BLAS: u64 = 64 * MIB;
/// One of cuSOLVER: one of cuBLAS, and its workspace.
const SOLVER: [u64; 2] = [BLAS, 32 * MIB];
/// The first plan of cuFFT.
const FFT: u64 = 8 * MIB;
/// And a handle of cuDNN: streams, small ranges with code where it is the first library, and what that is in memory.
const DNN_STREAMS: usize = 16;
const DNN_CODE: usize = 2;
const DNN: u64 = 10 * MIB;
/// How many handles of cuBLAS and of cuDNN a card's context is counted with: one for each thread of a training,
/// which is the backward pass's, too (760 MiB on an H200; 610 after the first kernel, and 612 with a library's code).
const USUAL: u64 = 2;
/// What NCCL takes at its first communicator before and after its kernels, and for each further one: small
/// ranges that it asks `cuMemAddressReserve` for, which the driver answers out of the same reservations.
const NCCL: [usize; 3] = [50, 133, 99];
/// What the first collective takes: a pair of buffers for each channel that it uses, of which DDP and FSDP
/// between two ranks had four to fifteen.
const CHANNELS: usize = 9;
const BUFFERS: [u64; 2] = [10 * MIB, GRANULE];

/// What a library's handle takes on a card, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handles {
    /// Of cuBLAS.
    pub blas: u64,
    /// Of cuDNN.
    pub dnn: u64,
}

impl Default for Handles {
    /// Those of an H200.
    fn default() -> Handles {
        Handles { blas: BLAS, dnn: DNN }
    }
}

/// How many threads a card keeps at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// On the multiprocessors that are in use.
    pub card: u64,
    /// Those of switched-off multiprocessors included.
    pub chip: u64,
}

/// The ranges of one device that are not the program's.
#[derive(Clone, Debug, Default)]
pub struct Resident {
    handles: Handles,
    /// Threads, each of which has local memory.
    threads: Threads,
    /// Where local memory is, and how much a thread has.
    local: Option<(u64, u64)>,
    /// The most local memory of a thread that a kernel's machine code asks for.
    stack: u64,
    has_code: bool,
    has_kernels: bool,
    has_heap: bool,
    /// Whether cuBLAS or cuDNN have loaded code.
    has_libraries: bool,
    has_nccl: bool,
    has_collectives: bool,
    has_transforms: bool,
    /// Streams that the program has made, and handles of cuBLAS and cuSOLVER.
    streams: u64,
    n_blas: u64,
    n_dnn: u64,
    n_solvers: u64,
    /// Streams of any kind.
    all_streams: u64,
    /// Graphs that can be launched.
    pub graphs: Graphs,
    /// A kernel of another library than PyTorch's was launched after the first handle of cuBLAS was made.
    has_foreign_code: bool,
}

impl Resident {
    /// A context begins.
    pub fn new(addresses: &mut Addresses) -> Resident {
        for bytes in CONTEXT {
            addresses.take(bytes);
        }
        let threads = Threads { card: THREADS / 12 * 11, chip: THREADS };
        let mut res = Resident { threads, ..Resident::default() };
        res.grow(addresses, LOCAL[0]);
        res
    }

    /// Counts handles as this card has them, and local memory for so many `threads`.
    pub fn count(&mut self, handles: Handles, threads: Threads) {
        self.handles = handles;
        self.threads = threads;
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

    /// A kernel is launched whose threads need so many bytes of local memory.
    pub fn stack(&mut self, addresses: &mut Addresses, bytes: u64) {
        if self.stack < bytes {
            self.stack = bytes;
            if STACK < bytes {
                self.grow(addresses, bytes + STACK_BESIDE);
            }
        }
    }

    /// A stream is made.
    pub fn stream(&mut self, addresses: &mut Addresses) {
        self.streams += 1;
        self.any_stream(addresses);
    }

    fn any_stream(&mut self, addresses: &mut Addresses) {
        if self.all_streams.is_multiple_of(STREAMS) {
            addresses.take(GRANULE);
        }
        self.all_streams += 1;
    }

    /// A handle of cuBLAS is made.
    pub fn blas(&mut self, addresses: &mut Addresses) {
        if !std::mem::replace(&mut self.has_libraries, true) {
            addresses.take(CODE);
        }
        addresses.take(BLAS);
        self.n_blas += 1;
    }

    /// A handle of cuSOLVER is made.
    pub fn solver(&mut self, addresses: &mut Addresses) {
        for bytes in SOLVER {
            addresses.take(bytes);
        }
        if !std::mem::replace(&mut self.has_libraries, true) {
            addresses.take(CODE);
        }
        self.n_solvers += 1;
    }

    /// A transform of cuFFT is planned.
    pub fn transform(&mut self, addresses: &mut Addresses) {
        if !std::mem::replace(&mut self.has_transforms, true) {
            addresses.take(FFT);
        }
    }

    /// A handle of cuDNN is made.
    pub fn dnn(&mut self, addresses: &mut Addresses) {
        for _ in 0..DNN_STREAMS {
            self.any_stream(addresses);
        }
        if !std::mem::replace(&mut self.has_libraries, true) {
            take_small(addresses, DNN_CODE);
        }
        self.n_dnn += 1;
    }

    /// A kernel of another library than PyTorch's is launched, or beside such a library one of Triton's. From the first product of matrices on, the next of them takes one range more of code:
    /// in vLLM 0.24 in the first pass, which has that product, on an H100 and an H200. 0.33 computes one before it looks at the card's memory, and
    /// took that range in the first pass of six models, and with an fp8 model when its weights were loaded, which its own kernel quantizes.
    pub fn foreign_kernel(&mut self) {
        self.has_foreign_code |= 0 < self.n_blas;
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
            self.grow(addresses, NCCL_STACK + STACK_BESIDE);
        }
    }

    /// How many bytes this program has more, and less, until now than the context of most trainings, which is the card's:
    /// their kernels are loaded, and they have two handles of each library.
    pub fn beside(&self) -> (u64, u64) {
        let Handles { blas, dnn } = self.handles;
        let handles = [(self.n_blas, blas), (self.n_dnn, dnn)];
        let more: u64 = handles.iter().map(|it| it.0.saturating_sub(USUAL) * it.1).sum();
        let less: u64 = handles.iter().map(|it| USUAL.saturating_sub(it.0) * it.1).sum();
        // What NCCL is known to take has streams in it. The driver has a stream or two of its own in the first range.
        let streams = if self.has_nccl { 0 } else { self.streams };
        let ranges = if self.has_nccl { 0 } else { (streams + 2) / STREAMS * GRANULE };
        let solvers = self.n_solvers * (blas + SOLVER[1]);
        let transforms = if self.has_transforms { FFT } else { 0 };
        let without = |is_there: bool, bytes: u64| if is_there { 0 } else { bytes };
        let local = (self.threads.chip * (LOCAL[1] - LOCAL[0])).next_multiple_of(GRANULE);
        // What NCCL is known to take has its kernels' local memory in it.
        let usual_stack = if self.has_collectives { NCCL_STACK } else { STACK };
        let stack = self.stack.saturating_sub(usual_stack) * self.threads.card;
        let less = less
            + without(0 < self.n_blas + self.n_solvers, CODE)
            + without(self.has_code, CODE)
            + without(LOCAL[1] <= self.local.map_or(0, |it| it.1), local);
        let foreign = if self.has_foreign_code { CODE } else { 0 };
        let of_libraries = ranges + self.graphs.bytes(streams) + solvers + transforms + foreign;
        (more + of_libraries + stack.next_multiple_of(GRANULE), less)
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
    fn four_streams_share_a_range() {
        // The 128 streams of PyTorch's pool took 32 ranges.
        let mut space = Addresses::new(0x7000_0000_0000, TOP);
        let mut resident = Resident::new(&mut space);
        let mut by_hand = space.clone();
        for _ in 0..8 {
            resident.stream(&mut space);
        }
        take_small(&mut by_hand, 2);
        assert_eq!(space.take(GRANULE), by_hand.take(GRANULE));
        assert_eq!(resident.beside().0, 2 * GRANULE);
        for _ in 8..128 {
            resident.stream(&mut space);
        }
        assert_eq!(resident.beside().0, 70 * MIB);
    }

    /// What a program takes on an H200 beside PyTorch's allocator after a kernel and what it `has`, in MiB.
    fn process(has: &[fn(&mut Resident, &mut Addresses)]) -> u64 {
        let mut space = Addresses::new(0x7000_0000_0000, TOP);
        let mut resident = Resident::new(&mut space);
        assert_eq!(total(&resident), 518, "before the first kernel, on an H100 and an H200");
        resident.kernel(&mut space, Room::Usual);
        for it in has {
            it(&mut resident, &mut space);
        }
        total(&resident)
    }

    fn total(resident: &Resident) -> u64 {
        let (more, less) = resident.beside();
        760 + more / MIB - less / MIB
    }

    #[test]
    fn handles_are_those_of_the_card() {
        let mut space = Addresses::new(0x7000_0000_0000, TOP);
        let mut resident = Resident::new(&mut space);
        let threads = Threads { card: 72 * 1536, chip: 80 * 1536 };
        resident.count(Handles { blas: 10 * MIB, dnn: 12 * MIB }, threads);
        resident.blas(&mut space);
        // Of the two handles of cuBLAS one, of cuDNN's none, and no kernel yet.
        assert_eq!(resident.beside(), (0, 10 * MIB + 24 * MIB + 2 * MIB + 38 * MIB));
    }

    #[test]
    fn local_memory_grows_with_the_largest_kernel() {
        // Kernels with so many bytes one after another on an H200, and MiB that were free before and not after; the last two are vLLM's
        // sampler for 50,257 and for 49,159 words.
        let rows = [(512, 0), (1024, 0), (1280, 66), (1536, 132), (512, 132), (2048, 264)];
        let mut space = Addresses::new(0x7000_0000_0000, TOP);
        let mut resident = Resident::new(&mut space);
        resident.kernel(&mut space, Room::Usual);
        for (bytes, mib) in rows {
            resident.stack(&mut space, bytes);
            assert_eq!(total(&resident), 610 + mib, "{bytes}");
        }
        for (bytes, mib) in [(1488, 120), (1544, 136)] {
            let mut resident = Resident::new(&mut space);
            resident.kernel(&mut space, Room::Usual);
            resident.stack(&mut space, bytes);
            assert_eq!(total(&resident), 610 + mib, "{bytes}");
        }
        // NCCL's is in what a collective takes, whichever comes first.
        for collective_first in [true, false] {
            let mut resident = Resident::new(&mut space);
            resident.kernel(&mut space, Room::Usual);
            if collective_first {
                resident.collective(&mut space);
            }
            resident.stack(&mut space, 2048);
            if !collective_first {
                resident.collective(&mut space);
            }
            assert_eq!(total(&resident), 610 + 82, "312 bytes more than NCCL's");
        }
    }

    #[test]
    fn a_program_takes_what_its_handles_take() {
        // As bench/instruments/library_process.py saw it.
        assert_eq!(process(&[]), 610, "a kernel");
        assert_eq!(process(&[Resident::blas]), 676, "a product of matrices");
        assert_eq!(process(&[Resident::blas, Resident::blas]), 740, "and its gradient");
        assert_eq!(process(&[Resident::dnn]), 620, "a convolution");
        assert_eq!(process(&[Resident::dnn, Resident::dnn]), 630, "and its gradient");
        assert_eq!(process(&[Resident::solver]), 708, "a singular value decomposition");
        assert_eq!(process(&[Resident::blas, Resident::solver]), 772, "a Cholesky decomposition");
        assert_eq!(process(&[Resident::transform]), 618, "Fourier transforms, however many");
        assert_eq!(process(&[Resident::transform, Resident::transform]), 618);
    }

    #[test]
    fn code_of_another_library_is_taken_when_it_is_used_after_a_product() {
        let foreign: fn(&mut Resident, &mut Addresses) = |it, _| it.foreign_kernel();
        assert_eq!(
            process(&[foreign]),
            610,
            "vLLM 0.24 quantizes its weights, and has no handle yet"
        );
        assert_eq!(process(&[foreign, Resident::blas]), 676);
        assert_eq!(process(&[foreign, Resident::blas, foreign, foreign]), 678, "its first pass");
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
