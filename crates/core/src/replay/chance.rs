//! Chance that is the same each time.

/// Bits that look random: the last steps of `SplitMix64` (Steele, Lea and Flood, 2014).
pub(super) fn mixed(it: u64) -> u64 {
    let it = it.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}
