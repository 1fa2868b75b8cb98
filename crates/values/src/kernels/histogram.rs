//! Counts of whole numbers: `bincount()` and `histc()`, by which programs decide how many tokens each rank or each
//! expert gets. Known numbers are counted. Of unknown ones every bin gets as many, as a trained router would
//! spread its tokens: what is sent adds up to what there is, and the report says that it was taken so.

use crate::arguments::Arguments;
use crate::guesses::remarks::Remarks;
use crate::memory::Known;
use crate::memory::writes::Write;
use crate::names::{self, position};
use crate::types::{ScalarType, as_f64};

/// `at::cuda::kernelHistogram1D`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// That counts in the first type numbers of the second one, with 64-bit positions.
    Counts(ScalarType, ScalarType),
    /// That adds up weights, or counts in a type that is not followed.
    Weighs,
}

/// The most bytes of numbers that are counted one by one, and the most bins.
const MOST: usize = 1 << 20;

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let of_letter = |it: u8| ScalarType::of_letter(it).or_else(|| ScalarType::of_float(it));
        position(name, names::HISTOGRAM)?;
        // The type of the counts, of the numbers, and whether there are weights.
        let of = names::HISTOGRAM_OF;
        let types = name.get(position(name, of)? + of.len()..)?;
        let [count, number, b'L', b'b', b'0', ..] = types else { return Some(Kernel::Weighs) };
        let types = of_letter(*count).zip(of_letter(*number)).filter(|(count, number)| {
            const COUNTS: [ScalarType; 4] =
                [ScalarType::Long, ScalarType::Int, ScalarType::Float, ScalarType::Double];
            COUNTS.contains(count) && (number.is_whole() || count == number)
        });
        Some(types.map_or(Kernel::Weighs, |(count, number)| Kernel::Counts(count, number)))
    }

    /// What it writes: counts, partial counts, numbers, how many bins, the least and the largest number, how many numbers
    /// there are, and an operation.
    pub(crate) fn writes(
        self,
        arguments: Arguments<'_>,
        known: Known<'_>,
        remarks: &mut Remarks,
    ) -> Option<Vec<Write>> {
        let counts = arguments.tensor_address(0)?;
        let unknown = Some(vec![Write::Unknown(counts, u64::MAX)]);
        let Kernel::Counts(count, number) = self else { return unknown };
        let numbers = arguments.tensor_address(2)?;
        let (bins, total) = (arguments.count(3)?, arguments.count(6)?);
        if !(1..=MOST / 8).contains(&bins) {
            return unknown;
        }
        let size = total.saturating_mul(number.width());
        let values = (size <= MOST).then(|| known(numbers, size)).flatten();
        let counted = if let Some(values) = values {
            let values = values.chunks(number.width()).map(|it| number.read(it));
            if number.is_whole() {
                counted(values, bins, arguments.whole(4)?, arguments.whole(5)?)
            } else {
                let bounds = [arguments.float(4)?, arguments.float(5)?];
                counted_floats(number, values.map(as_f64), bins, bounds)
            }
        } else if number.is_whole() {
            remarks.approximate(
                "where the GPU computed the input of bincount() and histc(), plimsoll assumed that its values are spread evenly",
            );
            even(total, bins)
        } else {
            return unknown;
        };
        let mut bytes = Vec::with_capacity(bins * count.width());
        for it in counted {
            let it = i64::try_from(it).unwrap_or(i64::MAX);
            count.write(ScalarType::Long.into(count, it), &mut bytes);
        }
        Some(vec![Write::Known(counts, bytes)])
    }
}

/// How many of `values` are in each of `bins` between two floats of this type, as `getBin` sorts them: rounded at each step.
fn counted_floats(
    kind: ScalarType,
    values: impl Iterator<Item = f64>,
    bins: usize,
    [least, largest]: [f64; 2],
) -> Vec<u64> {
    let mut counts = vec![0; bins];
    let whole = |it: usize| as_f64(ScalarType::Long.into(kind, i64::try_from(it).unwrap_or(0)));
    let (many, range) = (whole(bins), kind.rounded(largest - least));
    for value in values.filter(|it| (least..=largest).contains(it)) {
        let place = kind.rounded(kind.rounded(kind.rounded(value - least) * many) / range);
        let bin = usize::try_from(kind.into(ScalarType::Long, kind.of_f64(place))).unwrap_or(0);
        counts[bin.min(bins - 1)] += 1;
    }
    counts
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
        let floats = [0.0, 0.99, 1.0, 4.0, 4.5, f64::NAN].into_iter();
        assert_eq!(counted_floats(ScalarType::Float, floats, 4, [0.0, 4.0]), [2, 1, 0, 1]);
    }

    #[test]
    fn counts_are_told_by_the_kernels_names() {
        let of_longs = "_ZN2at4cuda17kernelHistogram1DIlllLi1ELi2ELin1ELNS0_23CUDAHistogramMemoryTypeE0EZNS0_21CUDA_tensor_histogramIllLb0EEE";
        let of = |name: &str| Kernel::of(name.as_bytes());
        let (long, float) = (ScalarType::Long, ScalarType::Float);
        assert_eq!(of(of_longs), Some(Kernel::Counts(long, long)));
        assert_eq!(of(&of_longs.replace("IllL", "IffL")), Some(Kernel::Counts(float, float)));
        assert_eq!(of(&of_longs.replace("IllLb0", "IflLb1")), Some(Kernel::Weighs));
    }
}
