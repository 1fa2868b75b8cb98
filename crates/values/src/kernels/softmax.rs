//! `softmax` and `log_softmax` along the last dimension (`aten/src/ATen/native/cuda/SoftMax.cu`, `PersistentSoftmax.cuh`): of numbers that nobody
//! computed no chance is known, but that what a program set to minus infinity has none.

use crate::arguments::Arguments;
use crate::kernels::partly::{Found, Parts};
use crate::memory::writes::Write;
use crate::memory::{IsLazy, Known, KnowsAny, MOST_LOOKED_AT};
use crate::names::{self, has, position};
use crate::numbers::arithmetic::BEYOND_ALL;
use crate::types::{ScalarType, as_f64};

/// One of these kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    from: ScalarType,
    to: ScalarType,
    is_log: bool,
    /// It computes several rows in a block, and gets how many there are.
    is_warp: bool,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let after = |part: &[u8]| name.get(position(name, part)? + part.len()..);
        if let Some(types) = after(names::SOFTMAX_WARP) {
            // The types of the input, of the result, and of sums; then how many elements, and whether it is the logarithm.
            let (from, length) = ScalarType::of_name(types)?;
            let rest = types.get(length..)?;
            let (to, length) = repeated(rest, from)?;
            let flags = rest.get(length..)?;
            let is_log = flags.get(position(flags, b"ELb")? + 3) == Some(&b'1');
            return Some(Kernel { from, to, is_log, is_warp: true });
        }
        let types = after(names::SOFTMAX_IN_REGISTERS).or_else(|| {
            let numbered = after(names::SOFTMAX_SHARED).or_else(|| after(names::SOFTMAX))?;
            numbered.get(position(numbered, b"E")? + 1..)
        })?;
        // The types of the input, of sums, and of the result.
        let (from, length) = ScalarType::of_name(types)?;
        let (to, _) = repeated(types.get(length + 1..)?, from)?;
        Some(Kernel { from, to, is_log: has(name, names::LOG_SOFTMAX), is_warp: false })
    }

    /// What it writes: where to, from where, and how long a row is.
    pub(crate) fn writes(
        self,
        blocks: u32,
        arguments: Arguments<'_>,
        reads: (Known<'_>, KnowsAny<'_>),
        is_lazy: IsLazy<'_>,
    ) -> Option<Vec<Write>> {
        let (to, from) = (arguments.address(0)?, arguments.address(1)?);
        let (rows, stride, length) = if self.is_warp {
            (arguments.count(2)?, arguments.count(3)?, arguments.count(4)?)
        } else {
            let length = arguments.count(2)?;
            (usize::try_from(blocks).ok()?, length, length)
        };
        let count = rows.saturating_mul(length);
        let width = self.to.width();
        let size = u64::try_from(count.saturating_mul(width)).unwrap_or(u64::MAX);
        let mut res = vec![Write::Unknown(to, size)];
        // The rows of others are looked at by nobody.
        if stride != length || count == 0 || MOST_LOOKED_AT < count {
            return Some(res);
        }
        let mut masked = Vec::new();
        let read =
            Parts { at: from, count, width: self.from.width(), reads, is_lazy: is_lazy(from) };
        read.each(|at, it| {
            if as_f64(self.from.read(it)) <= -BEYOND_ALL {
                masked.push(at);
            }
        });
        let mut nothing = Vec::new();
        let never = if self.is_log { f64::NEG_INFINITY } else { 0.0 };
        self.to.write(never.to_bits().cast_signed(), &mut nothing);
        let mut found = Found::nothing(count, width);
        for row in masked.chunk_by(|a, b| a / length == b / length) {
            // Of a row without any chance, each is as good as the next.
            if row.len() < length {
                row.iter().for_each(|at| found.set(*at, &nothing));
            }
        }
        res.extend(found.runs(to));
        Some(res)
    }
}

/// A type of a name, or the one before it again (`S2_`), and how long its name is.
fn repeated(name: &[u8], before: ScalarType) -> Option<(ScalarType, usize)> {
    match name.first()? {
        b'S' => Some((before, position(name, b"_")? + 1)),
        _ => ScalarType::of_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    const ROWS: &[u8] = b"_ZN2at6native43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6322cunn_SoftMaxForwardRegIN3c104HalfEfS4_NS1_25LogSoftMaxForwardEpilogueElLi2EEEvPT1_PKT_T3_";
    const WARP: &[u8] = b"_ZN43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi2ELb0ELb0EEEvPT0_PKT_iiiPKbib";

    #[test]
    fn its_types_are_those_of_its_name() {
        let half = ScalarType::Half;
        let expected = Kernel { from: half, to: half, is_log: true, is_warp: false };
        assert_eq!(Kernel::of(ROWS), Some(expected));
        let float = ScalarType::Float;
        let expected = Kernel { from: float, to: float, is_log: false, is_warp: true };
        assert_eq!(Kernel::of(WARP), Some(expected));
    }

    #[test]
    fn what_is_masked_has_no_chance() {
        let launch = Launch::of(&[
            Made::Address(64),
            Made::Address(128),
            Made::Int(2),
            Made::Int(3),
            Made::Int(3),
            Made::Address(0),
            Made::Int(0),
            Made::Int(0),
        ]);
        // The second row has no chance at all.
        let row = [None, Some(-1e9), Some(5.0), Some(-1e9), Some(f32::NEG_INFINITY), Some(-1e9)];
        let known = |at: u64, size: usize| {
            let first = usize::try_from(at - 128).unwrap() / 4;
            let all = row[first..first + size / 4].iter().copied().collect::<Option<Vec<f32>>>()?;
            Some(all.iter().flat_map(|it| it.to_le_bytes()).collect())
        };
        let kernel = Kernel::of(WARP).unwrap();
        let writes =
            kernel.writes(1, launch.arguments(), (&known, &|_, _| true), &|_| false).unwrap();
        assert_eq!(writes, [Write::Unknown(64, 24), Write::Known(68, vec![0; 4])]);
    }
}
