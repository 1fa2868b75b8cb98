//! The places that `nonzero()` gives of a known mask (`aten/src/ATen/native/cuda/Nonzero.cu`). How many there are is
//! `count`'s.

use crate::arguments::{Arguments, Structure};
use crate::memory::Known;
use crate::memory::writes::{MOST, Write};
use crate::names::{self, has};
use crate::types::{ScalarType, element_after};

/// A kernel that finds places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `DeviceSelectSweepKernel` over `NonZeroOp`, of elements of so many bytes.
    Finds { width: usize, within: usize },
    /// `write_indices`: places in one dimension become those in several.
    Unravels,
}

/// Bytes of a mask that are looked at, at most.
const MOST_BYTES: usize = 1 << 24;
/// Dimensions of `TensorDims`.
const DIMENSIONS: usize = 16;

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        if has(name, names::DEVICE_SELECT_SWEEP) {
            names::one_of(
                name,
                &[names::COUNTING_ITERATOR_LONG, names::COUNTING_INPUT_ITERATOR_LONG],
            )?;
            let width = element_after(name, names::NON_ZERO)?.width();
            return Some(Kernel::Finds { width, within: names::address_within(name) });
        }
        has(name, names::WRITE_INDICES).then_some(Kernel::Unravels)
    }

    /// What it writes.
    pub(crate) fn writes(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
        match self {
            Kernel::Finds { width, within } => found(width, within, arguments, known),
            Kernel::Unravels => unravelled(arguments, known),
        }
    }
}

/// From where it counts, where the elements are, where to, how many are found, state, two that are nothing, how many.
fn found(
    width: usize,
    within: usize,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let (first, mask) = (arguments.elements(0, 0)?, arguments.elements(1, within)?);
    let (to, count) = (arguments.address(2)?, arguments.count(7)?);
    let size = count.checked_mul(width).filter(|&it| it <= MOST_BYTES);
    let found = size.and_then(|it| known(mask, it)).map(|mask| {
        let set = (first..).zip(mask.chunks_exact(width));
        set.filter(|it| it.1.iter().any(|&byte| byte != 0))
            .flat_map(|it| it.0.to_le_bytes())
            .collect::<Vec<_>>()
    });
    Some(vec![found.map_or(Write::Unknown(to, u64::MAX), |it| Write::Known(to, it))])
}

/// Places, in their place: where they are, `{ i64 sizes[16] }`, how many dimensions, and how many places.
fn unravelled(arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let sizes = Structure { named: &["::TensorDims<long>"], size: 8 * DIMENSIONS };
    let (at, sizes) = (arguments.address(0)?, arguments.structure(1, sizes)?);
    let (dims, count) = (arguments.count(2)?, arguments.count(3)?);
    let unravelled = || {
        ((1..=DIMENSIONS).contains(&dims) && count <= MOST).then_some(())?;
        let flat = known(at, 8 * count)?;
        let flat = flat.chunks_exact(8).map(|it| ScalarType::Long.read(it)).collect::<Vec<_>>();
        let mut columns = Vec::with_capacity(dims);
        let mut step = 1_i64;
        for dim in (0..dims).rev() {
            let size = sizes.i64(8 * dim)?.max(1);
            let place = |it: &i64| (it / step % size).to_le_bytes();
            columns.push(flat.iter().flat_map(place).collect::<Vec<_>>());
            step = step.checked_mul(size)?;
        }
        columns.reverse();
        Some(Write::Known(at, columns.concat()))
    };
    Some(vec![unravelled().unwrap_or(Write::Unknown(at, u64::MAX))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    fn longs(it: &[i64]) -> Vec<u8> {
        it.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    #[test]
    fn a_mask_becomes_places() {
        let counting = Made::Structure("thrust::counting_iterator<long>", &[]);
        let mask = longs(&[4096]);
        let launch = Launch::of(&[
            counting,
            Made::Structure("thrust::transform_iterator<NonZeroOp<bool>, bool const*>", &mask),
            Made::Address(8192),
            Made::Address(0),
            Made::Structure("ScanTileState", &[]),
            Made::Structure("NullType", &[]),
            Made::Structure("NullType", &[]),
            Made::Int(6),
        ]);
        let known = |at, size| (at == 4096 && size == 6).then(|| vec![0, 1, 0, 0, 1, 1]);
        let writes = Kernel::Finds { width: 1, within: 0 }.writes(launch.arguments(), &known);
        assert_eq!(writes.unwrap(), [Write::Known(8192, longs(&[1, 4, 5]))]);

        let sizes = longs(&[2, 3]);
        let launch = Launch::of(&[
            Made::Address(8192),
            Made::Structure("at::native::(anonymous namespace)::TensorDims<long>", &sizes),
            Made::Int(2),
            Made::Long(3),
        ]);
        let known = |_, _| Some(longs(&[1, 4, 5]));
        let writes = Kernel::Unravels.writes(launch.arguments(), &known);
        assert_eq!(writes.unwrap(), [Write::Known(8192, longs(&[0, 1, 1, 1, 1, 2]))]);
    }
}
