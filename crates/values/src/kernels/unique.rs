//! `unique()`, `unique_consecutive()` and `coalesce()` of known numbers: what is left, how often each was there, and which each
//! was. CUB's kernels, and `aten/src/ATen/native/cuda/UniqueCub.cu`. How many are left is `count`'s, but of `coalesce()`, which
//! leaves them where they were.

use crate::arguments::Arguments;
use crate::memory::Known;
use crate::memory::writes::{MOST, Write};
use crate::names::{self, has};
use crate::types::{ScalarType, number_after};

/// Indices of a sparse tensor at most: those of an embedding's gradient.
const MOST_KEYS: usize = 1 << 21;

/// A kernel of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `DeviceSelectSweepKernel` with a test for equal neighbours.
    LeavesOutEqual { key: ScalarType, within: usize },
    /// `DeviceReduceByKeyKernel` of a run-length encoding: what there is, and how often, in 64 bits.
    CountsRuns { key: ScalarType, within: usize },
    /// `adjacent_difference_kernel`: where a sorted vector of this type goes on to another number.
    Differs { key: ScalarType },
    /// `DeviceUniqueByKeySweepKernel`: the sorted indices of a sparse tensor, without those that are there again. How many are
    /// left is a number of so many bytes.
    LeavesOutEqualKeys { key: ScalarType, width: usize },
    /// `scatter_kernel`: each number goes where its index says.
    Scatters,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let within = names::address_within(name);
        if has(name, names::UNIQUE_CUB_FILE) {
            if let Some(key) = number_after(name, names::ADJACENT_DIFFERENCE) {
                return Some(Kernel::Differs { key });
            }
            if has(name, names::UNIQUE_SCATTER) {
                return Some(Kernel::Scatters);
            }
        }
        if has(name, names::DEVICE_REDUCE_BY_KEY) {
            // The type of the counts, then that of what is counted.
            const POLICIES: &[&[u8]] = &[names::RUN_LENGTH_POLICY, names::RUN_LENGTH_POLICY_OF_12];
            let key = number_after(name, names::one_of(name, POLICIES)?)?;
            return Some(Kernel::CountsRuns { key, within });
        }
        if has(name, names::DEVICE_UNIQUE_BY_KEY_SWEEP) {
            let key = number_after(name, names::EQUAL_TO)?;
            let width = if has(name, names::COUNTED_IN_32_BITS) { 4 } else { 8 };
            return Some(Kernel::LeavesOutEqualKeys { key, width });
        }
        (has(name, names::DEVICE_SELECT_SWEEP) && has(name, names::EQUAL_TO)).then_some(())?;
        // Truth values are read as numbers of 32 bits.
        let of_bool = has(name, names::LOAD_BOOL).then_some(ScalarType::Bool);
        let policy = || names::one_of(name, &[names::POLICY_HUB, names::SELECT_POLICY]);
        let key = of_bool.or_else(|| number_after(name, policy()?))?;
        Some(Kernel::LeavesOutEqual { key, within })
    }

    /// What it writes.
    pub(crate) fn writes(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
        match self {
            Kernel::LeavesOutEqual { key, within } => without_equals(key, within, arguments, known),
            Kernel::CountsRuns { key, within } => runs(key, within, arguments, known),
            Kernel::Differs { key } => differences(key, arguments, known),
            Kernel::LeavesOutEqualKeys { key, width } => {
                without_equal_keys(key, width, arguments, known)
            }
            Kernel::Scatters => scattered(arguments, known),
        }
    }
}

/// In, flags, out, how many are left, state, selection, equality, how many.
fn without_equals(
    key: ScalarType,
    within: usize,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let (from, to, count) =
        (arguments.elements(0, within)?, arguments.address(2)?, arguments.count(7)?);
    let bytes = (count <= MOST).then(|| known(from, count * key.width())).flatten();
    let Some(bytes) = bytes else { return Some(vec![Write::Unknown(to, u64::MAX)]) };
    let mut values: Vec<i64> = bytes.chunks(key.width()).map(|it| key.read(it)).collect();
    values.dedup();
    let mut left = Vec::with_capacity(values.len() * key.width());
    values.iter().for_each(|&it| key.write(it, &mut left));
    Some(vec![Write::Known(to, left)])
}

/// Keys, values, where both go, how many are left, state, equality, and how many.
fn without_equal_keys(
    key: ScalarType,
    width: usize,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let (from, to, values) =
        (arguments.elements(0, 0)?, arguments.elements(2, 0)?, arguments.elements(3, 0)?);
    let (left, count) = (arguments.address(4)?, arguments.count(7)?);
    let bytes = (0 < count && count <= MOST_KEYS).then(|| known(from, count * key.width()));
    let values = Write::Unknown(values, u64::MAX);
    let Some(bytes) = bytes.flatten() else {
        return Some(vec![Write::Unknown(to, u64::MAX), values, Write::Forgotten(left, 8)]);
    };
    let mut keys: Vec<&[u8]> = bytes.chunks_exact(key.width()).collect();
    keys.dedup();
    let found = keys.len().to_le_bytes()[..width].to_vec();
    // What is behind them stays what it was, and nobody reads it.
    Some(vec![Write::Known(to, keys.concat()), values, Write::Known(left, found)])
}

/// What is counted, where what there is goes, ones, where the counts go, how many there are, state, the first tile, two
/// operations, and how many are counted.
fn runs(
    key: ScalarType,
    within: usize,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let (from, to, counts) =
        (arguments.elements(0, within)?, arguments.address(1)?, arguments.address(3)?);
    let count = arguments.count(9)?;
    let bytes = (count <= MOST).then(|| known(from, count * key.width())).flatten();
    let Some(bytes) = bytes else {
        return Some([to, counts].map(|it| Write::Unknown(it, u64::MAX)).into());
    };
    let (mut found, mut times) = (Vec::new(), Vec::new());
    let mut elements = bytes.chunks(key.width()).peekable();
    while let Some(first) = elements.next() {
        let mut run = 1_i64;
        while elements.next_if_eq(&first).is_some() {
            run += 1;
        }
        found.extend_from_slice(first);
        times.extend(run.to_le_bytes());
    }
    Some(vec![Write::Known(to, found), Write::Known(counts, times)])
}

/// How many, what, and where to, as 32 bits.
fn differences(key: ScalarType, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let (count, from, to) = (arguments.count(0)?, arguments.address(1)?, arguments.address(2)?);
    let bytes = (count <= MOST).then(|| known(from, count * key.width())).flatten();
    let compared = bytes.map(|bytes| {
        let elements = || bytes.chunks_exact(key.width());
        let differs = elements().zip(elements().skip(1)).map(|it| i32::from(it.0 != it.1));
        [0].into_iter().chain(differs).take(count).flat_map(i32::to_le_bytes).collect()
    });
    Some(vec![compared.map_or(Write::Unknown(to, u64::MAX), |it| Write::Known(to, it))])
}

/// How many, what, indices, and where to, as 64 bits.
fn scattered(arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let (count, to) = (arguments.count(0)?, arguments.address(3)?);
    let (from, indices) = (arguments.address(1)?, arguments.address(2)?);
    let scattered = || {
        (count <= MOST).then_some(())?;
        let (from, indices) = (known(from, 8 * count)?, known(indices, 8 * count)?);
        let mut result = vec![0; 8 * count];
        for (number, index) in from.chunks_exact(8).zip(indices.chunks_exact(8)) {
            let at = usize::try_from(ScalarType::Long.read(index)).ok()?.checked_mul(8)?;
            result.get_mut(at..at.checked_add(8)?)?.copy_from_slice(number);
        }
        Some(result)
    };
    Some(vec![scattered().map_or(Write::Unknown(to, u64::MAX), |it| Write::Known(to, it))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    fn longs(it: &[i64]) -> Vec<u8> {
        it.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let unique = b"_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelINS2_10policy_hubIlNS0_8NullTypeEiLb0ELNS0_10SelectImplE0EE10Policy1000EPKlPS5_PlSC_NS0_13ScanTileStateIiLb1EEES5_N4cuda3std3__48equal_toIvEEi";
        let key = ScalarType::Long;
        assert_eq!(Kernel::of(unique), Some(Kernel::LeavesOutEqual { key, within: 0 }));
        let of_floats = b"_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelINS2_10policy_hubIfNS0_8NullTypeE8equal_toIvEEi";
        let float = ScalarType::Float;
        assert_eq!(Kernel::of(of_floats), Some(Kernel::LeavesOutEqual { key: float, within: 0 }));
    }

    #[test]
    fn runs_are_counted() {
        let name = b"_ZN14at_cuda_detail3cub6detail6reduce23DeviceReduceByKeyKernelINS1_3rle6encode10policy_hubIllE10Policy1000EPKlPl";
        assert_eq!(Kernel::of(name), Some(Kernel::CountsRuns { key: ScalarType::Long, within: 0 }));
        let other = || Made::Structure("other", &[]);
        let launch = Launch::of(&[
            Made::Address(4096),
            Made::Address(8192),
            other(),
            Made::Address(12288),
            Made::Address(0),
            other(),
            Made::Int(0),
            other(),
            other(),
            Made::Int(4),
        ]);
        let known = |_, size| (size == 4).then(|| vec![3, 3, 5, 3]);
        let kernel = Kernel::CountsRuns { key: ScalarType::Byte, within: 0 };
        let writes = kernel.writes(launch.arguments(), &known).unwrap();
        let times = longs(&[2, 1, 1]);
        assert_eq!(writes, [Write::Known(8192, vec![3, 5, 3]), Write::Known(12288, times)]);
    }

    #[test]
    fn what_unique_left_says_which_each_was() {
        let of = |name: &str| {
            let file = "_ZN2at6native8internal45_GLOBAL__N__8f8ab667_12_UniqueCub_cu_fdb07b41";
            Kernel::of(format!("{file}{name}").as_bytes())
        };
        let differs = of("26adjacent_difference_kernelIPKlEEvlT_Pi");
        assert_eq!(differs, Some(Kernel::Differs { key: ScalarType::Long }));
        assert_eq!(of("14scatter_kernelElPKlS4_Pl"), Some(Kernel::Scatters));
        let run = |kernel: Kernel, addresses: &[u64]| {
            let mut all = vec![Made::Long(3)];
            all.extend(addresses.iter().map(|&it| Made::Address(it)));
            let known = |at, _| Some(longs(if at == 64 { &[3, 3, 8] } else { &[2, 0, 1] }));
            kernel.writes(Launch::of(&all).arguments(), &known).unwrap()
        };
        let halves = [0_i32, 0, 1].iter().flat_map(|it| it.to_le_bytes()).collect();
        let kernel = Kernel::Differs { key: ScalarType::Long };
        assert_eq!(run(kernel, &[64, 256]), [Write::Known(256, halves)]);
        let moved = run(Kernel::Scatters, &[64, 128, 256]);
        assert_eq!(moved, [Write::Known(256, longs(&[3, 8, 3]))]);
    }

    #[test]
    fn a_known_vector_is_freed_of_repetitions() {
        let other = || Made::Structure("other", &[]);
        let launch = Launch::of(&[
            Made::Address(4096),
            Made::Address(0),
            Made::Address(8192),
            Made::Address(0),
            other(),
            other(),
            other(),
            Made::Int(4),
        ]);
        let known = |at, size| (at == 4096 && size == 4).then(|| vec![3, 1, 1, 2]);
        let run = |key| {
            Kernel::LeavesOutEqual { key, within: 0 }.writes(launch.arguments(), &known).unwrap()
        };
        assert_eq!(run(ScalarType::Byte), [Write::Known(8192, vec![3, 1, 2])]);
        assert_eq!(run(ScalarType::Int), [Write::Unknown(8192, u64::MAX)]);
    }
}
