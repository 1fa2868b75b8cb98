//! The place of each number among known bounds: `searchsorted` and `bucketize`
//! (`aten/src/ATen/native/cuda/Bucketization.cu`).

use crate::arguments::Arguments;
use crate::memory::Known;
use crate::memory::writes::{MOST, Write};
use crate::names::{self, position};
use crate::types::{ScalarType, number_after};

/// `searchsorted_cuda_kernel`, of numbers of one type, with results of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    from: ScalarType,
    to: ScalarType,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        const SEARCH: &[u8] = names::SEARCHSORTED;
        let from = number_after(name, SEARCH)?;
        let to = ScalarType::of_letter(*name.get(position(name, SEARCH)? + SEARCH.len() + 1)?)?;
        Some(Kernel { from, to })
    }

    /// What it writes: to, numbers, bounds, an order of these, lengths of both, how many, right, one row of bounds.
    pub(crate) fn writes(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
        let Kernel { from, to } = self;
        let address = |i: usize| arguments.address(i);
        let (out, numbers, bounds, order) = (address(0)?, address(1)?, address(2)?, address(3)?);
        let (n_bounds, n_numbers) = (arguments.count(5)?, arguments.count(6)?);
        let (right, is_one_row) = (arguments.flag(7)?, arguments.flag(8)?);
        let searched = || {
            (order == 0 && is_one_row && n_bounds <= MOST && n_numbers <= MOST).then_some(())?;
            let read = |at: u64, count: usize| {
                let bytes = known(at, count * from.width())?;
                let ordered = bytes.chunks_exact(from.width()).map(|it| from.ordered(it));
                Some(ordered.collect::<Vec<_>>())
            };
            let (bounds, numbers) = (read(bounds, n_bounds)?, read(numbers, n_numbers)?);
            let mut bytes = Vec::with_capacity(numbers.len() * to.width());
            for number in numbers {
                let place = bounds.partition_point(|&it| it < number || right && it == number);
                to.write(i64::try_from(place).ok()?, &mut bytes);
            }
            Some(Write::Known(out, bytes))
        };
        Some(vec![searched().unwrap_or(Write::Unknown(out, u64::MAX))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    fn longs(it: &[i64]) -> Vec<u8> {
        it.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    #[test]
    fn numbers_find_their_place_among_bounds() {
        let name = b"_ZN2at6native49_GLOBAL__N__c6f87824_16_Bucketization_cu_723a43a424searchsorted_cuda_kernelIllEEvPT0_PKT_S7_PKllllbb";
        let kernel = Kernel::of(name).unwrap();
        assert_eq!(kernel, Kernel { from: ScalarType::Long, to: ScalarType::Long });
        let run = |right: bool| {
            let launch = Launch::of(&[
                Made::Address(64),
                Made::Address(128),
                Made::Address(256),
                Made::Address(0),
                Made::Long(1),
                Made::Long(3),
                Made::Long(4),
                Made::Flag(right),
                Made::Flag(true),
            ]);
            let known = |at, _| Some(longs(if at == 128 { &[-1, 3, 4, 9] } else { &[0, 3, 7] }));
            kernel.writes(launch.arguments(), &known).unwrap()
        };
        assert_eq!(run(false), [Write::Known(64, longs(&[0, 1, 2, 3]))]);
        assert_eq!(run(true), [Write::Known(64, longs(&[0, 2, 2, 3]))]);
    }
}
