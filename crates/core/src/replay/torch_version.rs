//! Releases of torch, as far as their allocators differ.

use std::{fmt, str::FromStr};

/// A release of torch, as far as its allocator differs from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TorchVersion {
    /// 2 in 2.13.
    pub major: u8,
    /// 13 in 2.13.
    pub minor: u8,
}

/// How equal blocks in the free set are ordered (allocator.md, A.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TieBreak {
    /// The lowest address first.
    Address,
    /// The block object that was made first.
    BlockMade,
    /// The segment that was made first, then the lowest address.
    SegmentMade,
}

impl TorchVersion {
    /// The newest release that the model was compared with.
    pub const NEWEST: TorchVersion = TorchVersion { major: 2, minor: 15 };
    /// The oldest release that records events.
    pub const OLDEST: TorchVersion = TorchVersion { major: 2, minor: 0 };

    /// Version 2 of torch, release `minor`.
    pub const fn two(minor: u8) -> TorchVersion {
        TorchVersion { major: 2, minor }
    }

    pub(super) fn tie_break(self) -> TieBreak {
        if self < TorchVersion::two(12) {
            TieBreak::Address
        } else if self < TorchVersion::two(13) {
            TieBreak::BlockMade
        } else {
            TieBreak::SegmentMade
        }
    }
}

/// A text that is no version of torch whose allocator we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read {given:?} as a version of torch: expected one from {} to {}, as in `2.13`",
    TorchVersion::OLDEST,
    TorchVersion::NEWEST
)]
pub struct ParseVersionError {
    /// What was given.
    pub given: String,
}

impl fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for TorchVersion {
    type Err = ParseVersionError;

    /// Reads `2.13`, `2.13.1` and `2.13.0+cu130`.
    fn from_str(given: &str) -> Result<TorchVersion, ParseVersionError> {
        let mut parts = given.trim().trim_start_matches('v').split(['.', '+']);
        let mut number = || parts.next().and_then(|it| it.parse().ok());
        match (number(), number()) {
            (Some(major), Some(minor)) => Some(TorchVersion { major, minor }),
            _ => None,
        }
        .filter(|it| (TorchVersion::OLDEST..=TorchVersion::NEWEST).contains(it))
        .ok_or_else(|| ParseVersionError { given: given.to_owned() })
    }
}
