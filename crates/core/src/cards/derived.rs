//! What follows from a card's chip where nobody has measured it, and how far off that may be.

use crate::units::Bytes;

/// Local memory of a thread once kernels of PyTorch are loaded, in bytes (see `resident.rs` of the phantom).
const LOCAL: u64 = 1792;
/// What is in a context beside local memory and handles, and the handles of a training: two of cuDNN and, before Hopper,
/// two of cuBLAS that are small. Found, with [`RANGE`], from what PyTorch's out-of-memory messages say of 49 processes on
/// 21 cards (`bench/instruments/contexts.py`).
const BASE: Bytes = Bytes::mib(84);
/// A handle of cuBLAS: on Hopper and on Blackwell of data centres it takes twice its workspace of 32 MiB.
const BLAS: [Bytes; 2] = [Bytes::mib(10), Bytes::mib(64)];
/// A handle of cuDNN.
const DNN: Bytes = Bytes::mib(10);
/// The H200's context would be derived as 696 MiB, and is 760; of the 49, 46 took at most so much more or less.
const RANGE: Bytes = Bytes::mib(80);
/// Of how many multiprocessors a chip has some switched off, where the chip is not named: Hopper's 132 of 144.
const SWITCHED_OFF: [u32; 2] = [12, 11];

/// What a training takes beside PyTorch's allocator, and by how much that may be wrong. Local memory is taken for the
/// multiprocessors that are switched off, too.
pub(super) fn context(capability: (u32, u32), chip_sms: u32, threads_each: u32) -> (Bytes, Bytes) {
    let local = u64::from(chip_sms) * u64::from(threads_each) * LOCAL;
    let [small, large] = BLAS;
    let handles = if blas(capability) == large { Bytes(2 * (large.0 - small.0)) } else { Bytes(0) };
    ((BASE + handles + Bytes(local)).round_up_to(Bytes::mib(2)), RANGE)
}

/// What a handle of cuBLAS takes.
pub(super) fn blas(capability: (u32, u32)) -> Bytes {
    BLAS[usize::from(matches!(capability.0, 9 | 10))]
}

/// What a handle of cuDNN takes.
pub(super) fn dnn() -> Bytes {
    DNN
}

/// How many multiprocessors the chip has of which these are in use.
pub(super) fn chip_sms(sm_count: u32) -> u32 {
    sm_count * SWITCHED_OFF[0] / SWITCHED_OFF[1]
}

/// Multiprocessors of each of so many clusters, as even as they can be; they come in pairs.
pub(super) fn gpcs(sm_count: u32, clusters: u32) -> Vec<u32> {
    let (pairs, clusters) = (sm_count / 2, clusters.max(1));
    let with_more = pairs % clusters;
    (0..clusters).map(|i| 2 * (pairs / clusters + u32::from(i < with_more))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::find;

    #[test]
    fn the_h200_is_within_the_range_of_what_would_be_derived_of_it() {
        let h200 = find("h200").unwrap();
        let (context, range) =
            context(h200.compute_capability, h200.chip_sms, h200.max_threads_per_sm);
        assert_eq!(context, Bytes::mib(696));
        assert!(h200.context.0.abs_diff(context.0) <= range.0);
        assert_eq!(blas(h200.compute_capability), h200.blas);
    }

    #[test]
    fn clusters_are_even() {
        assert_eq!(gpcs(170, 11), [16, 16, 16, 16, 16, 16, 16, 16, 14, 14, 14]);
        assert_eq!(gpcs(148, 8), [20, 20, 18, 18, 18, 18, 18, 18]);
        assert_eq!(gpcs(132, 8).iter().sum::<u32>(), 132);
    }
}
