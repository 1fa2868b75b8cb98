//! The handle of a cuDNN that has no descriptor for a device (9.1 and 9.5, which come with PyTorch 2.6 and
//! 2.7): it asks its handle for everything, and finds the card at the start of it.

use crate::machine::card::Card;

/// The attributes that `cudnnCreate` asks `cudaDeviceGetAttribute` for, and where in the handle it has the
/// answer written: read from the instructions of cuDNN 9.1's and 9.5's `libcudnn_graph.so.9`, which put the
/// same members first.
const FIRST: [(i32, usize); 11] = [
    (5, 0x00),  // maxGridSize
    (6, 0x04),  //
    (7, 0x08),  //
    (2, 0x0c),  // maxBlockSize
    (3, 0x10),  //
    (4, 0x14),  //
    (12, 0x18), // regsPerBlock
    (16, 0x1c), // multiProcessorCount
    (10, 0x20), // warpSize
    (8, 0x24),  // maxSharedMemoryPerBlock
    (97, 0x28), // maxSharedMemoryPerBlockOptin
];
/// What follows, four bytes each from 0x2c.
const OF_9_1: [i32; 6] = [82, 106, 39, 34, 35, 95];
/// The same behind `reservedSharedMemoryPerBlock`, which 9.1 does not have.
const OF_9_5: [i32; 7] = [111, 82, 106, 39, 34, 35, 95];
/// `smClockRateKHz`, `memClockRateKHz`, `l2CacheSize`
const CLOCKS: [(i32, usize); 3] = [(13, 0x50), (36, 0x54), (38, 0x58)];
const TOTAL_MEMORY: usize = 0x48;
const DEVICE_VERSION: usize = 0x60;
const DRIVER_VERSION: usize = 0x64;
/// 24 integers.
const SKYLINE: usize = 0x68;
/// `textureAlignment`, the first member behind the description.
const TEXTURE_ALIGNMENT: (i32, usize) = (14, 0xc8);

/// How a handle begins in cuDNN `version` (`cudnnGetVersion`: 90100 is 9.1.0) on that card.
pub(super) fn begin(version: usize, card: &Card) -> Vec<u8> {
    let later: &[i32] = if version < 90_500 { &OF_9_1 } else { &OF_9_5 };
    let later = later.iter().enumerate().map(|(i, &code)| (code, 0x2c + 4 * i));
    let mut begin = vec![0; TEXTURE_ALIGNMENT.1 + 4];
    let mut put = |at: usize, bytes: &[u8]| begin[at..at + bytes.len()].copy_from_slice(bytes);
    for (code, at) in FIRST.into_iter().chain(later).chain(CLOCKS).chain([TEXTURE_ALIGNMENT]) {
        put(at, &card.attribute(code, 0).unwrap_or(0).to_le_bytes());
    }
    put(TOTAL_MEMORY, &card.total_bytes.to_le_bytes());
    put(DEVICE_VERSION, &(card.sm_version() * 10).to_le_bytes());
    put(DRIVER_VERSION, &card.driver_version.to_le_bytes());
    for (i, gpc) in card.gpcs.iter().take(24).enumerate() {
        put(SKYLINE + 4 * i, &gpc.to_le_bytes());
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The integers from `at` on.
    fn integers(begin: &[u8], at: usize, n: usize) -> Vec<i32> {
        let words = begin[at..].chunks_exact(4).take(n);
        words.map(|it| i32::from_le_bytes(it.try_into().unwrap())).collect()
    }

    #[test]
    fn the_card_stands_where_that_version_reads_it() {
        let card = Card::h200();
        let (of_1, of_5) = (begin(90_100, &card), begin(90_501, &card));
        for it in [&of_1, &of_5] {
            assert_eq!(integers(it, 0, 8), [i32::MAX, 65_535, 65_535, 1024, 1024, 64, 65_536, 132]);
            assert_eq!(integers(it, 0x20, 3), [32, 49_152, 232_448]);
            assert_eq!(it[0x48..0x50], 150_109_880_320_u64.to_le_bytes());
            assert_eq!(integers(it, 0x50, 6), [1_980_000, 3_201_000, 62_914_560, 0, 900, 13_000]);
            let clusters = [18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2, 0];
            assert_eq!(integers(it, 0x68, 13), clusters);
            assert_eq!(integers(it, 0xc8, 1), [512]);
        }
        assert_eq!(integers(&of_1, 0x2c, 7), [65_536, 32, 2048, 0, 0, 1, 0]);
        assert_eq!(integers(&of_5, 0x2c, 7), [1024, 65_536, 32, 2048, 0, 0, 1]);
    }
}
