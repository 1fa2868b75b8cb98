//! How much memory this machine has to run scripts in.

use std::fs;

use plimsoll_core::units::Bytes;

/// What a run of a rank takes of the host, by experience.
pub(crate) const OF_A_RUN: Bytes = Bytes::gib(2);

/// What the host has free, in bytes.
pub(crate) fn free() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
