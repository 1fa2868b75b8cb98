//! The settings that an allocator runs under. There is no default: every constructor says whose settings
//! they are.

use crate::{
    replay::{TorchVersion, sizes},
    units::Bytes,
};

/// What one allocator may take, and how it goes about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whose rules.
    pub torch: TorchVersion,
    /// What the driver can give to this allocator in all; none when it always has more.
    pub capacity: Option<Bytes>,
    /// All memory of the device; none when that is the capacity.
    pub card: Option<Bytes>,
    /// `set_per_process_memory_fraction`: the share of the card that the allocator may take.
    pub fraction: Option<f64>,
    /// What the allocator may take, where that is known rather than the fraction.
    pub known_limit: Option<Bytes>,
    /// Blocks of at least this size are never split.
    pub max_split_size: Option<Bytes>,
    /// How much larger than the request a block may be that is not split.
    pub max_non_split_rounding: Bytes,
    /// Share of the limit above which free segments are collected; 0 is off.
    pub garbage_collection_threshold: f64,
    /// Whether segments grow by mapping.
    pub expandable_segments: bool,
    /// How many addresses an expandable segment takes; none where nothing is set, which is nine eighths of the device.
    pub expandable_segments_reserve: Option<Reserve>,
    /// Divisions of each power of two, for requests from 1 MiB << index on; 0 and 1 are off.
    pub roundup_power2_divisions: [u32; 16],
    /// `kLargeBuffer`, configurable since 2.11.
    pub large_segment_size: Bytes,
    /// Whether a request above the fraction fails without any attempt to make room (2.12).
    pub throw_on_cudamalloc_oom: bool,
    /// Where the driver's segments lie.
    pub places: Places,
}

/// Where the driver's segments lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// As recorded, and then by the phantom's rule.
    Recorded,
    /// By the rule, in an address space in which the host's own memory leaves gaps and takes some: another one for each number.
    BesideTheHost(u64),
    /// Anywhere, in another order for each number: where ranks exchange memory, the driver follows no rule that is known.
    Anywhere(u64),
}

/// How many addresses an expandable segment takes at once (`expandable_segments_reserve`, since torch 2.15).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserve {
    /// That share of the device's memory.
    Share(f64),
    /// So many.
    Size(Bytes),
}

impl Config {
    /// What torch does when nobody sets anything, on a device that always has more.
    pub fn of_torch(torch: TorchVersion) -> Config {
        Config {
            torch,
            capacity: None,
            card: None,
            fraction: None,
            known_limit: None,
            max_split_size: None,
            max_non_split_rounding: Bytes::mib(20),
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            expandable_segments_reserve: None,
            roundup_power2_divisions: [0; 16],
            large_segment_size: sizes::LARGE_BUFFER,
            throw_on_cudamalloc_oom: false,
            places: Places::Recorded,
        }
    }

    /// On a driver that places segments elsewhere: of equal free blocks PyTorch (before 2.12) takes the one with the lowest address.
    pub fn placed(self, places: Places) -> Config {
        Config { places, ..self }
    }

    /// On a device that gives `capacity` to this allocator and no more.
    pub fn with_capacity(self, capacity: Bytes) -> Config {
        Config { capacity: Some(capacity), ..self }
    }

    /// After `torch.cuda.set_per_process_memory_fraction(fraction)`.
    pub fn with_fraction(self, fraction: f64) -> Config {
        Config { fraction: Some(fraction), ..self }
    }

    /// What the allocator may take in all (`allowed_memory_maximum`), when it is limited at all.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "as PyTorch computes it: a fraction from 0 to 1 of a count of bytes"
    )]
    pub fn limit(&self) -> Option<Bytes> {
        if self.known_limit.is_some() {
            return self.known_limit;
        }
        let (fraction, card) = (self.fraction?, self.card.or(self.capacity)?);
        // Since 2.10 the whole device is no limit.
        if TorchVersion::two(10) <= self.torch && 1.0 <= fraction {
            return None;
        }
        Some(Bytes((fraction.clamp(0.0, 1.0) * card.0 as f64) as u64))
    }

    /// The reserved bytes above which garbage is collected, when the allocator may take `limit`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "as PyTorch computes it: a share of a count of bytes"
    )]
    pub(super) fn garbage_line(&self, limit: Bytes) -> Bytes {
        Bytes((self.garbage_collection_threshold * limit.0 as f64) as u64)
    }

    /// The least limit for which garbage is collected above `line` or more; the most that can be said, where no
    /// limit is enough for it.
    pub(super) fn limit_of_garbage_line(&self, line: Bytes) -> Bytes {
        // A share of a limit grows with it, and a recording may say any share.
        let (mut below, mut enough) = (0, u64::MAX);
        while below < enough {
            let limit = below.midpoint(enough);
            if line <= self.garbage_line(Bytes(limit)) {
                enough = limit;
            } else {
                below = limit + 1;
            }
        }
        Bytes(enough)
    }

    /// The address range that an expandable segment reserves.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a range of addresses, rounded up afterwards"
    )]
    pub(super) fn expandable_range(&self) -> u64 {
        let card = self.card.or(self.capacity);
        // Without a card it never ends: 1 TiB is more than any device has.
        let most = card.map_or(1 << 40, |it| it.0.saturating_add(it.0 / 8));
        match (self.expandable_segments_reserve, card) {
            (Some(Reserve::Share(share)), Some(card)) => most.min((card.0 as f64 * share) as u64),
            (Some(Reserve::Size(size)), _) => most.min(size.0),
            (None, _) | (Some(Reserve::Share(_)), None) => most,
        }
    }

    /// Whether expandable segments end somewhere that nobody knows, which may be before the device does.
    pub(super) fn ranges_end_early(&self) -> bool {
        let is_share = matches!(self.expandable_segments_reserve, Some(Reserve::Share(_)));
        is_share && self.card.or(self.capacity).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_a_garbage_line_is_found_for_any_share() {
        let config = |share| Config {
            garbage_collection_threshold: share,
            ..Config::of_torch(TorchVersion::NEWEST)
        };
        for (share, line) in [(0.8, 17_179_869_184), (0.6, 1), (1.0, 0), (0.333, 80 << 30)] {
            let config = config(share);
            let limit = config.limit_of_garbage_line(Bytes(line));
            assert!(Bytes(line) <= config.garbage_line(limit), "{share} {line}");
            let less = Bytes(limit.0.saturating_sub(1));
            assert!(limit.0 == 0 || config.garbage_line(less) < Bytes(line), "{share} {line}");
        }
        // What a damaged recording may say ends at once.
        for share in [7.29e-304, 0.0, -1.0, f64::NAN] {
            assert_eq!(config(share).limit_of_garbage_line(Bytes(1)), Bytes(u64::MAX), "{share}");
        }
    }
}
