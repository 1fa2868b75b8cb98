//! Sums and products from the start, `cumsum` and `cumprod`, of known numbers: of a vector by CUB's kernel, along a dimension by
//! PyTorch's (`aten/src/ATen/native/cuda/ScanUtils.cuh`).

use crate::arguments::Arguments;
use crate::memory::Known;
use crate::memory::writes::{MOST, Write};
use crate::names::{self, has, position};
use crate::numbers::arithmetic::{Action, apply};
use crate::types::{ScalarType, number_after};

/// A kernel that scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `DeviceScanKernel` with a sum or a product, each element included in its own.
    Vector { action: Action, from: ScalarType, to: ScalarType },
    /// `tensor_kernel_scan_outer_dim` along a dimension that others come after, or `tensor_kernel_scan_innermost_dim` along the
    /// last one of several.
    Dimension { action: Action, kind: ScalarType, is_last: bool },
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let action = action(name)?;
        let of = |part: &[u8], is_last| {
            number_after(name, part).map(|kind| Kernel::Dimension { action, kind, is_last })
        };
        let across = of(names::SCAN_OUTER_DIM, false);
        if let Some(kernel) = across.or_else(|| of(names::SCAN_INNERMOST_DIM, true)) {
            return Some(kernel);
        }
        (has(name, names::DEVICE_SCAN) && has(name, names::NULL_TYPE)).then_some(())?;
        // Both vectors are plain: `EPKlPlN...ScanTileState`.
        let source = position(name, b"EPK")? + b"EPK".len();
        let [from, b'P', to, ..] = name.get(source..)? else { return None };
        let of =
            |letter: u8| ScalarType::of_letter(letter).or_else(|| ScalarType::of_float(letter));
        Some(Kernel::Vector { action, from: of(*from)?, to: of(*to)? })
    }

    /// What it writes.
    pub(crate) fn writes(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
        let size = |i: usize| arguments.count(i);
        let (to, scanned) = match self {
            Kernel::Vector { action, from, to } => {
                // In, out, state, first tile, operation, start, how many.
                let (source, target) = (arguments.address(0)?, arguments.address(1)?);
                let count = size(6)?;
                (target, vector(action, (from, to), count, |size| known(source, size)))
            }
            Kernel::Dimension { action, kind, is_last } => {
                // To, from, and three or two sizes of 32 bits.
                let (target, source) = (arguments.address(0)?, arguments.address(1)?);
                let sizes = match is_last {
                    true => [size(2)?, 1, size(3)?],
                    false => [size(2)?, size(3)?, size(4)?],
                };
                (target, summed_up(action, kind, sizes, |size| known(source, size)))
            }
        };
        Some(vec![scanned.map_or(Write::Unknown(to, u64::MAX), |it| Write::Known(to, it))])
    }
}

/// A vector of numbers of one type, as sums of another.
fn vector(
    action: Action,
    (from, to): (ScalarType, ScalarType),
    count: usize,
    known: impl Fn(usize) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let bytes = (count <= MOST).then(|| known(count * from.width()))??;
    let one = ScalarType::Long.into(to, 1);
    let mut total = None;
    let mut result = Vec::with_capacity(count * to.width());
    for element in bytes.chunks(from.width()) {
        let here = to.fitted(from.into(to, from.read(element)));
        let sum = total.map_or(Some(here), |it| apply(action, to, one, it, here)).unwrap_or(here);
        to.write(sum, &mut result);
        total = Some(sum);
    }
    Some(result)
}

/// Rows of `size` numbers, `inner` of them side by side, `outer` times.
fn summed_up(
    action: Action,
    kind: ScalarType,
    [outer, inner, size]: [usize; 3],
    known: impl Fn(usize) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let count = outer.checked_mul(inner)?.checked_mul(size).filter(|&it| it <= MOST)?;
    let bytes = known(count * kind.width())?;
    let mut numbers: Vec<i64> = bytes.chunks(kind.width()).map(|it| kind.read(it)).collect();
    let one = ScalarType::Long.into(kind, 1);
    for i in 0..count {
        if inner <= i % (inner * size) {
            numbers[i] = apply(action, kind, one, numbers[i - inner], numbers[i])?;
        }
    }
    let mut res = Vec::with_capacity(bytes.len());
    numbers.iter().for_each(|&it| kind.write(it, &mut res));
    Some(res)
}

/// What a scan of this (mangled) name does with what comes before and each element.
fn action(name: &[u8]) -> Option<Action> {
    [(names::PLUS, Action::Add), (names::MULTIPLIES, Action::Multiply)]
        .into_iter()
        .find_map(|(part, action)| has(name, part).then_some(action))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    #[test]
    fn sums_go_along_one_dimension() {
        let bytes = |it: &[i32]| it.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        let known = |_| Some(bytes(&[1, 0, 0, 1, 1, 1]));
        let of = |action, sizes| summed_up(action, ScalarType::Int, sizes, known);
        assert_eq!(of(Action::Add, [1, 2, 3]), Some(bytes(&[1, 0, 1, 1, 2, 2])), "down");
        assert_eq!(of(Action::Add, [2, 1, 3]), Some(bytes(&[1, 1, 1, 1, 2, 3])), "along");
        assert_eq!(of(Action::Multiply, [2, 1, 3]), Some(bytes(&[1, 0, 0, 1, 1, 1])));
    }

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let scan = b"_ZN14at_cuda_detail3cub6detail4scan16DeviceScanKernelINS2_10policy_hubIllljSt4plusIlEE10Policy1000EPKlPlNS0_13ScanTileStateIlLb1EEES6_NS0_8NullTypeEjlLb0ESE_EEvT0_T1_T2_iT3_T4_T5_";
        let (from, to) = (ScalarType::Long, ScalarType::Long);
        assert_eq!(Kernel::of(scan), Some(Kernel::Vector { action: Action::Add, from, to }));
    }

    #[test]
    fn a_known_vector_is_summed() {
        let other = || Made::Structure("other", &[]);
        let launch = Launch::of(&[
            Made::Address(4096),
            Made::Address(8192),
            other(),
            Made::Int(0),
            other(),
            other(),
            Made::Unsigned(4),
        ]);
        let known = |at, size| (at == 4096 && size == 4).then(|| vec![3, 1, 3, 2]);
        let run = |action, from| {
            let kernel = Kernel::Vector { action, from, to: from };
            kernel.writes(launch.arguments(), &known).unwrap()
        };
        let written = |bytes: &[u8]| vec![Write::Known(8192, bytes.to_vec())];
        assert_eq!(run(Action::Add, ScalarType::Byte), written(&[3, 4, 7, 9]));
        assert_eq!(run(Action::Multiply, ScalarType::Byte), written(&[3, 3, 9, 18]));
        let unknown = vec![Write::Unknown(8192, u64::MAX)];
        assert_eq!(run(Action::Add, ScalarType::Int), unknown);
    }
}
