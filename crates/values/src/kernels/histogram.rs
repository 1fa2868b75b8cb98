//! Counts of whole numbers: `bincount()` and `histc()`, by which programs decide how many tokens each rank or each
//! expert gets. Known numbers are counted. Of unknown ones every bin gets as many, as a trained router would
//! spread its tokens: what is sent adds up to what there is, and the report says that it was taken so.

use crate::arguments::Arguments;
use crate::guesses::remarks::Remarks;
use crate::memory::Known;
use crate::memory::writes::Write;
use crate::names;
use crate::types::{ScalarType, letter_after};

/// `at::cuda::kernelHistogram1D` that counts into `int64`, of numbers of this type, with 64-bit positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel(ScalarType);

/// The most bytes of numbers that are counted one by one, and the most bins.
const MOST: usize = 1 << 20;

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        const NAME: &[u8] = names::HISTOGRAM;
        // The type of the counts, of the numbers, and of positions.
        (letter_after(name, NAME)? == ScalarType::Long).then_some(())?;
        let types = name.windows(NAME.len()).position(|it| it == NAME)? + NAME.len();
        let [_, numbers, b'l', ..] = name.get(types..)? else { return None };
        ScalarType::of_letter(*numbers).map(Kernel)
    }

    /// What it writes: counts, partial counts, numbers, how many bins, the least and the largest number, how many numbers
    /// there are, and an operation.
    pub(crate) fn writes(
        self,
        arguments: Arguments<'_>,
        known: Known<'_>,
        remarks: &mut Remarks,
    ) -> Option<Vec<Write>> {
        let (counts, numbers) = (arguments.tensor_address(0)?, arguments.tensor_address(2)?);
        let (least, largest) = (arguments.whole(4)?, arguments.whole(5)?);
        let (bins, total) = (arguments.count(3)?, arguments.count(6)?);
        if !(1..=MOST / 8).contains(&bins) {
            return Some(Vec::new());
        }
        let size = total.saturating_mul(self.0.width());
        let values = (size <= MOST).then(|| known(numbers, size)).flatten();
        let counted = if let Some(values) = values {
            counted(values.chunks(self.0.width()).map(|it| self.0.read(it)), bins, least, largest)
        } else {
            remarks.approximate(
                "what bincount() and histc() count, where the GPU computed it, is taken to be spread evenly",
            );
            even(total, bins)
        };
        let bytes = counted.iter().flat_map(|it| it.to_le_bytes()).collect();
        Some(vec![Write::Known(counts, bytes)])
    }
}

/// How many of `values` are in each of `bins` between `least` and `largest`, as `getBin` sorts them.
fn counted(values: impl Iterator<Item = i64>, bins: usize, least: i64, largest: i64) -> Vec<u64> {
    let mut counts = vec![0; bins];
    let range = (i128::from(largest) - i128::from(least)).max(1);
    for value in values.filter(|it| (least..=largest).contains(it)) {
        let bin = (i128::from(value) - i128::from(least)) * bins as i128 / range;
        let bin = usize::try_from(bin).unwrap_or(0).min(bins - 1);
        counts[bin] += 1;
    }
    counts
}

/// `total` spread over `bins`; what does not divide goes to the first ones.
fn even(total: usize, bins: usize) -> Vec<u64> {
    (0..bins).map(|it| (total / bins + usize::from(it < total % bins)) as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers_are_counted_and_unknown_ones_spread() {
        assert_eq!(counted([0, 3, 3, 1].into_iter(), 4, 0, 4), [1, 1, 0, 2]);
        // `histc` with its last edge inside, and a number outside.
        assert_eq!(counted([0, 10, 4, 11].into_iter(), 2, 0, 10), [2, 1]);
        assert_eq!(even(10, 4), [3, 3, 2, 2]);
    }

    #[test]
    fn counts_are_told_by_the_kernels_names() {
        let of_longs =
            b"_ZN2at4cuda17kernelHistogram1DIlllLi1ELi2ELin1ELNS0_23CUDAHistogramMemoryTypeE0EZ";
        assert_eq!(Kernel::of(of_longs), Some(Kernel(ScalarType::Long)));
        assert_eq!(Kernel::of(b"_ZN2at4cuda17kernelHistogram1DIflLi1E"), None, "of weights");
    }
}
