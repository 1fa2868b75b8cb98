//! How much the allocator takes for a request. Function and constant names are PyTorch's
//! (`c10/cuda/CUDACachingAllocator.cpp`), so that whoever has its source open finds the same thing.

use crate::{
    replay::{Config, TorchVersion},
    units::Bytes,
};

pub use crate::replay::sizes::{
    LARGE_BUFFER, MIN_BLOCK, MIN_LARGE_ALLOC, ROUND_LARGE, SMALL_BUFFER, SMALL_SIZE,
};

/// `round_size`: the block that a request of `size` asks for.
pub fn round_size(size: Bytes, config: &Config) -> Bytes {
    if size < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let divisions = divisions_for(size, config);
    let least = if config.torch <= TorchVersion::two(0) { 1 } else { 2 };
    if least <= divisions && MIN_BLOCK * divisions < size {
        round_up_to_power2_division(size, divisions)
    } else {
        size.round_up_to(MIN_BLOCK)
    }
}

/// `roundup_power2_divisions(size)`: the entry for the power of two at or below `size`.
fn divisions_for(size: Bytes, config: &Config) -> u64 {
    let interval = size.0.max(1).ilog2().saturating_sub(20).min(15);
    u64::from(config.roundup_power2_divisions[interval as usize])
}

/// `roundup_power2_next_division`: `size` rounded up to a multiple of the power of two at or below
/// it, divided by `divisions`.
fn round_up_to_power2_division(size: Bytes, divisions: u64) -> Bytes {
    if size.0.is_power_of_two() {
        return size;
    }
    let floor = 1_u64 << size.0.ilog2();
    match floor >> divisions.ilog2() {
        0 => Bytes(floor.saturating_mul(2)),
        step => size.round_up_to(Bytes(step)),
    }
}

/// `get_allocation_size`: what the driver is asked for, for a block of `size`.
pub fn allocation_size(size: Bytes, config: &Config) -> Bytes {
    if size <= SMALL_SIZE {
        SMALL_BUFFER
    } else if size < MIN_LARGE_ALLOC {
        config.large_segment_size
    } else {
        size.round_up_to(ROUND_LARGE)
    }
}

/// `should_split`: whether the rest of a free block goes back, given the block handed out.
///
/// What is left out: pools that never split, of which the caller knows.
pub fn should_split(size: Bytes, rest: Bytes, expandable: bool, config: &Config) -> bool {
    if size <= SMALL_SIZE || expandable {
        MIN_BLOCK <= rest
    } else {
        config.max_split_size.is_none_or(|max| size < max) && SMALL_SIZE < rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::of_torch(TorchVersion::two(11))
    }

    fn rounded(size: u64, divisions: u32) -> u64 {
        let roundup_power2_divisions = [divisions; 16];
        round_size(Bytes(size), &Config { roundup_power2_divisions, ..config() }).0
    }

    #[test]
    fn rounds_as_pytorch_does() {
        let sizes = [1, 512, 513, 1_048_577, 5_000_000, 10_485_249, 12_345_678, 100_000_001];
        let rounded = sizes.map(|it| rounded(it, 0));
        assert_eq!(
            rounded,
            [512, 512, 1024, 1_049_088, 5_000_192, 10_485_760, 12_345_856, 100_000_256]
        );
    }

    #[test]
    fn rounds_to_divisions_of_a_power_of_two() {
        let four =
            [1200, 2049, 2561, 1200 << 10, 1300 << 10, 33 << 20, 70 << 30].map(|it| rounded(it, 4));
        assert_eq!(four, [1536, 2560, 3072, 1_310_720, 1_572_864, 40 << 20, 80 << 30]);
        assert_eq!([1300 << 10, 4097, 5000].map(|it| rounded(it, 8)), [1_441_792, 4608, 5120]);
    }

    #[test]
    fn splits_above_and_not_at_the_limit() {
        let config = Config { max_split_size: Some(Bytes::mib(32)), ..config() };
        let mib = Bytes::mib;
        assert!(!should_split(mib(19), mib(1), false, &config));
        assert!(should_split(mib(19), mib(1) + MIN_BLOCK, false, &config));
        assert!(should_split(mib(19), MIN_BLOCK, true, &config));
        assert!(should_split(mib(1), MIN_BLOCK, false, &config));
        assert!(!should_split(mib(32), mib(64), false, &config));
    }

    #[test]
    fn asks_the_driver_for_what_pytorch_asks() {
        let sizes = [512, 1 << 20, 1_049_088, 10_485_248, 10_485_760, 10_486_272, 100_000_256];
        let asked = sizes.map(|it| allocation_size(Bytes(it), &config()).0 >> 20);
        assert_eq!(asked, [2, 2, 20, 20, 10, 12, 96]);
    }
}
