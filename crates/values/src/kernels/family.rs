//! Which family a kernel is of, if it is of one whose results are known.

use crate::arguments::Arguments;
use crate::guesses::Guesses;
use crate::kernels::{
    cat, elementwise, foreach, histogram, index, multinomial, nonzero, pooling, random, range,
    reduce, scan, scatter, search, softmax, sort, step_count, triangle, unique,
};
use crate::memory::writes::Write;
use crate::memory::{IsLazy, Known, KnowsAny};
use crate::names::{self, has};

/// What a kernel does, as far as we can tell. Each is followed in the file of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Cat(cat::Kernel),
    Elementwise(elementwise::Kernel),
    Foreach(foreach::Kernel),
    Histogram(histogram::Kernel),
    Index(index::Kernel),
    Multinomial(multinomial::Kernel),
    NonZero(nonzero::Kernel),
    Pooling(pooling::Kernel),
    Random(random::Kernel),
    Range(range::Kernel),
    Reduce(reduce::Summary),
    Scan(scan::Kernel),
    Scatter(scatter::Kernel),
    Search(search::Kernel),
    Softmax(softmax::Kernel),
    Sort(sort::Kernel),
    StepCount(step_count::Kernel),
    Triangle(triangle::Kernel),
    Unique(unique::Kernel),
    /// Writes a tensor element by element, in a way that is not followed.
    Overwrites,
    /// Adds up overlapping windows, which is not followed either.
    Unfolds,
}

impl Family {
    /// That of the kernel of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Family> {
        if has(name, names::MULTI_TENSOR_APPLY) {
            let counts = step_count::Kernel::of(name).map(Family::StepCount);
            return counts.or_else(|| foreach::Kernel::of(name).map(Family::Foreach));
        }
        if has(name, names::REDUCE_KERNEL) || name == reduce::PRODUCT.to_bytes() {
            return reduce::Summary::of(name).map(Family::Reduce);
        }
        None.or_else(|| cat::Kernel::of(name).map(Family::Cat))
            .or_else(|| nonzero::Kernel::of(name).map(Family::NonZero))
            .or_else(|| index::Kernel::of(name).map(Family::Index))
            .or_else(|| search::Kernel::of(name).map(Family::Search))
            .or_else(|| multinomial::Kernel::of(name).map(Family::Multinomial))
            .or_else(|| softmax::Kernel::of(name).map(Family::Softmax))
            .or_else(|| sort::Kernel::of(name).map(Family::Sort))
            .or_else(|| scatter::Kernel::of(name).map(Family::Scatter))
            .or_else(|| scan::Kernel::of(name).map(Family::Scan))
            .or_else(|| unique::Kernel::of(name).map(Family::Unique))
            .or_else(|| range::Kernel::of(name).map(Family::Range))
            .or_else(|| histogram::Kernel::of(name).map(Family::Histogram))
            .or_else(|| random::Kernel::of(name).map(Family::Random))
            .or_else(|| triangle::Kernel::of(name).map(Family::Triangle))
            .or_else(|| pooling::Kernel::of(name).map(Family::Pooling))
            .or_else(|| elementwise::Kernel::of(name).map(Family::Elementwise))
            .or_else(|| has(name, names::UNFOLD_BACKWARD).then_some(Family::Unfolds))
            .or_else(|| overwrites(name).then_some(Family::Overwrites))
    }

    /// What it writes when it is launched with these arguments and blocks. `known` reads device memory in full, or not at
    /// all, `knows_any` says whether some of it is known. `None` if the arguments are not what they should be.
    pub(crate) fn writes(
        self,
        [blocks, along_second]: [u32; 2],
        arguments: Arguments<'_>,
        (known, knows_any, is_lazy): (Known<'_>, KnowsAny<'_>, IsLazy<'_>),
        guesses: &mut Guesses,
    ) -> Option<Vec<Write>> {
        let Guesses { settings, remarks, choices, .. } = guesses;
        match self {
            Family::Cat(it) => it.writes(along_second, arguments, known),
            Family::Elementwise(it) => it.writes(arguments, (known, knows_any), is_lazy),
            Family::Foreach(it) => it.writes(blocks, arguments, known, settings.long_lists),
            Family::Histogram(it) => it.writes(arguments, known, remarks),
            Family::Index(it) => it.writes(arguments, known),
            Family::Multinomial(it) => it.writes(arguments, (known, knows_any), choices),
            Family::NonZero(it) => it.writes(arguments, known),
            Family::Pooling(it) => it.writes(blocks, arguments, known),
            Family::Random(it) => it.writes(arguments, known, settings),
            Family::Range(it) => it.writes(arguments, known),
            Family::Reduce(it) => it.writes(arguments, (known, knows_any), (choices, remarks)),
            Family::Scan(it) => it.writes(arguments, known),
            Family::Scatter(it) => it.writes(arguments, known),
            Family::Search(it) => it.writes(arguments, known),
            Family::Softmax(it) => it.writes(blocks, arguments, (known, knows_any), is_lazy),
            Family::Sort(it) => it.writes(arguments, known, knows_any),
            Family::StepCount(it) => it.writes(blocks, arguments, known, settings.long_lists),
            Family::Triangle(it) => it.writes(arguments, known),
            Family::Unique(it) => it.writes(arguments, known),
            Family::Overwrites => elementwise::overwritten(arguments),
            Family::Unfolds => elementwise::unfolded(arguments),
        }
    }

    /// Where the indices are that it takes elements by, if it does.
    pub(crate) fn indices(self, arguments: Arguments<'_>) -> Vec<u64> {
        match self {
            Family::Index(it) => it.indices(arguments),
            _ => Vec::new(),
        }
    }

    /// Whether it compares two tensors of whole numbers.
    pub(crate) fn compares_tensors(self) -> bool {
        matches!(self, Family::Elementwise(it) if it.compares_tensors())
    }

    /// Whether it gathers truth values: what is true stays so.
    pub(crate) fn gathers_flags(self) -> bool {
        matches!(self, Family::Elementwise(it) if it.is_either())
    }
}

/// Whether a kernel of this (mangled) name writes a tensor whose elements lie one after the other.
fn overwrites(name: &[u8]) -> bool {
    has(name, names::UNROLLED_ELEMENTWISE) || has(name, names::VECTORIZED_ELEMENTWISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_told_by_mangled_names() {
        let product = Family::of(reduce::PRODUCT.to_bytes());
        assert!(matches!(product, Some(Family::Reduce(_))));
        let of_floats = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";
        assert!(matches!(Family::of(of_floats), Some(Family::Elementwise(_))));
    }
}
