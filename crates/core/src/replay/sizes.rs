//! Sizes that the allocator is made of, by their names in PyTorch's source (`c10/cuda/CUDACachingAllocator.cpp`).

use crate::units::Bytes;

/// `kMinBlockSize`: every block is a multiple of this.
pub const MIN_BLOCK: Bytes = Bytes(512);

/// `kSmallSize`: the largest rounded size that the small pool serves, and the largest rest of a block
/// of the large pool that is not split off.
pub const SMALL_SIZE: Bytes = Bytes::mib(1);

/// `kSmallBuffer`: the size of a segment of the small pool, and its granule of mapping.
pub const SMALL_BUFFER: Bytes = Bytes::mib(2);

/// `kMinLargeAlloc`: smaller requests of the large pool take a segment of `kLargeBuffer`.
pub const MIN_LARGE_ALLOC: Bytes = Bytes::mib(10);

/// `kLargeBuffer`, unless `large_segment_size_mb` says otherwise.
pub const LARGE_BUFFER: Bytes = Bytes::mib(20);

/// `kRoundLarge`: what the driver is asked for is a multiple of this.
pub const ROUND_LARGE: Bytes = Bytes::mib(2);
