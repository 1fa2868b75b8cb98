//! What is scattered, gathered and summed up along a dimension, of known numbers: `one_hot`, its `cumsum(0)` and the
//! `gather` of it say which token is within its expert's capacity (`aten/src/ATen/native/cuda/ScatterGatherKernel.cu`,
//! `ScanUtils.cuh`). Elements are moved as bytes.

use std::ffi::c_void;

use crate::effects::Effect;
use crate::integers::{MOST, Type, has, number_after, position};
use crate::offsets::Offsets;

/// A kernel that moves elements by an index, or sums them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `scatter_` of one value, of elements of that many bytes, by an index of 64 bits.
    Fills { width: usize },
    /// `gather`, likewise.
    Gathers { width: usize },
    /// Another `scatter`, whose closure has an offset calculator of so many tensors.
    Scatters { tensors: usize },
    /// `index_add_` and its like: into a `TensorInfo`, which begins with the address.
    Adds,
    /// `cumsum` along a dimension that others come after.
    SumsUpAcross { kind: Type },
    /// `cumsum` along the last dimension of several.
    SumsUpAlong { kind: Type },
}

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        if has(name, b"4plusI") {
            if let Some(kind) = number_after(name, b"28tensor_kernel_scan_outer_dimI") {
                return Some(Kernel::SumsUpAcross { kind });
            }
            if let Some(kind) = number_after(name, b"32tensor_kernel_scan_innermost_dimI") {
                return Some(Kernel::SumsUpAlong { kind });
            }
        }
        if has(name, b"19indexFuncSmallIndexI") || has(name, b"19indexFuncLargeIndexI") {
            return Some(Kernel::Adds);
        }
        if !has(name, b"_scatter_gather_elementwise_kernelI") {
            return None;
        }
        let assigns = has(name, b"12TensorAssign");
        let width = || {
            const OPAQUE: &[u8] = b"10OpaqueTypeILi";
            let at = position(name, OPAQUE)? + OPAQUE.len();
            // The index's type, in torch from 2.9 on, comes next.
            match name.get(at..)? {
                [digit @ (b'1' | b'2' | b'4' | b'8'), b'E', b'E', b'E', b'E' | b'l', ..] => {
                    Some(usize::from(digit - b'0'))
                }
                _ => None,
            }
        };
        if has(name, b"_cuda_scatter_fill_internal_kernelI") {
            let width = width().filter(|_| assigns);
            return Some(
                width.map_or(Kernel::Scatters { tensors: 2 }, |width| Kernel::Fills { width }),
            );
        }
        if has(name, b"_cuda_scatter_gather_internal_kernelILb0E") {
            return Some(Kernel::Gathers { width: width()? });
        }
        Some(Kernel::Scatters { tensors: 3 })
    }

    /// What it writes.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name.
    pub unsafe fn effects(
        self,
        arguments: *const *const c_void,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Vec<Effect> {
        match self {
            // SAFETY: the caller's.
            Kernel::Fills { width } => unsafe { filled(width, arguments, known) },
            Kernel::Scatters { tensors } => {
                // SAFETY: the caller's.
                let it = unsafe { Closure::at(arguments.add(1).read().cast(), tensors) };
                vec![Effect::Unknown(it.target, u64::MAX)]
            }
            Kernel::Adds => {
                // SAFETY: the caller's.
                let to = unsafe { arguments.read().cast::<u64>().read_unaligned() };
                vec![Effect::Unknown(to, u64::MAX)]
            }
            Kernel::Gathers { width } => {
                // SAFETY: the caller's.
                unsafe { gathered(width, arguments, known) }.unwrap_or_default()
            }
            Kernel::SumsUpAcross { kind } | Kernel::SumsUpAlong { kind } => {
                // SAFETY: to, from, and three or two sizes of 32 bits.
                let (to, from, sizes) = unsafe {
                    let address = |i: usize| arguments.add(i).read().cast::<u64>().read_unaligned();
                    let size = |i: usize| arguments.add(i).read().cast::<u32>().read_unaligned();
                    let sizes = if matches!(self, Kernel::SumsUpAlong { .. }) {
                        [size(2), 1, size(3)]
                    } else {
                        [size(2), size(3), size(4)]
                    };
                    (address(0), address(1), sizes)
                };
                let sizes = sizes.map(|it| usize::try_from(it).unwrap_or(usize::MAX));
                let summed = summed_up(kind, sizes, |size| known(from, size));
                summed.map(|it| Effect::Known(to, it)).into_iter().collect()
            }
        }
    }
}

/// Rows of `size` numbers, `inner` of them side by side, `outer` times.
fn summed_up(
    kind: Type,
    [outer, inner, size]: [usize; 3],
    known: impl Fn(usize) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let count = outer.checked_mul(inner)?.checked_mul(size).filter(|&it| it <= MOST)?;
    if !kind.is_whole() {
        return None;
    }
    let bytes = known(count * kind.width())?;
    let mut numbers: Vec<i64> = bytes.chunks(kind.width()).map(|it| kind.read(it)).collect();
    for i in 0..count {
        if inner <= i % (inner * size) {
            numbers[i] = numbers[i].wrapping_add(numbers[i - inner]);
        }
    }
    let mut res = Vec::with_capacity(bytes.len());
    numbers.iter().for_each(|&it| kind.write(it, &mut res));
    Some(res)
}

/// What the closure of such a kernel has behind its offset calculator: where the index is, how many there are to choose
/// from, a functor, where the result is, the stride of what is chosen, how many elements, and the last: a value, or
/// where the source is.
struct Closure {
    index: u64,
    size: i64,
    target: u64,
    stride: i64,
    last: u64,
}

impl Closure {
    /// # Safety
    ///
    /// There must be one at `closure`, with an offset calculator of so many tensors.
    unsafe fn at(closure: *const u8, tensors: usize) -> Closure {
        let from = Offsets { at: 0, tensors }.end().next_multiple_of(8);
        // SAFETY: the caller's.
        let word = |i: usize| unsafe { closure.add(from + 8 * i).cast::<u64>().read_unaligned() };
        Closure {
            index: word(0),
            size: word(1).cast_signed(),
            target: word(3),
            stride: word(4).cast_signed(),
            last: word(6),
        }
    }
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Fills`]: how many, and a closure.
unsafe fn filled(
    width: usize,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    // SAFETY: the caller's.
    let (count, closure) = unsafe {
        (arguments.read().cast::<i32>().read_unaligned(), arguments.add(1).read().cast::<u8>())
    };
    // SAFETY: the same.
    let it = unsafe { Closure::at(closure, 2) };
    let forgotten = vec![Effect::Unknown(it.target, u64::MAX)];
    let value = it.last.to_le_bytes();
    let compute = || {
        let count = usize::try_from(count).ok().filter(|&it| it <= MOST)?;
        let offsets = Offsets { at: 0, tensors: 2 };
        // SAFETY: the offset calculator is as long as it reads.
        let number = |at: usize| unsafe { closure.add(at).cast::<u32>().read_unaligned() };
        let mut places = Vec::with_capacity(count);
        let mut end = 0;
        for i in 0..count {
            let [to, from, ..] = offsets.of(i, number)?;
            let chosen = i64::from_le_bytes(known(it.index + from, 8)?.try_into().ok()?);
            let chosen = u64::try_from(
                chosen.checked_mul(it.stride).filter(|_| (0..it.size).contains(&chosen))?,
            )
            .ok()?;
            let at = usize::try_from(to + chosen * u64::try_from(width).ok()?).ok()?;
            end = end.max(at + width);
            places.push(at);
        }
        let mut bytes = known(it.target, end)?;
        for at in places {
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
        Some(vec![Effect::Known(it.target, bytes)])
    };
    compute().unwrap_or(forgotten)
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Gathers`]: how many, and a closure.
unsafe fn gathered(
    width: usize,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Vec<Effect>> {
    // SAFETY: the caller's.
    let (count, closure) = unsafe {
        (arguments.read().cast::<i32>().read_unaligned(), arguments.add(1).read().cast::<u8>())
    };
    // SAFETY: the same.
    let it = unsafe { Closure::at(closure, 3) };
    let count = usize::try_from(count).ok().filter(|&it| it <= MOST)?;
    let offsets = Offsets { at: 0, tensors: 3 };
    // SAFETY: the offset calculator is as long as it reads.
    let number = |at: usize| unsafe { closure.add(at).cast::<u32>().read_unaligned() };
    let mut bytes = Vec::with_capacity(count * width);
    for i in 0..count {
        let [to, from, index, _] = offsets.of(i, number)?;
        // Only results that lie one after the other.
        (usize::try_from(to) == Ok(i * width)).then_some(())?;
        let chosen = i64::from_le_bytes(known(it.index + index, 8)?.try_into().ok()?);
        let chosen = u64::try_from(
            chosen.checked_mul(it.stride).filter(|_| (0..it.size).contains(&chosen))?,
        )
        .ok()?;
        bytes.extend(known(it.last + from + chosen * u64::try_from(width).ok()?, width)?);
    }
    Some(vec![Effect::Known(it.target, bytes)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_go_along_one_dimension() {
        let bytes = |it: &[i32]| it.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        let of = |sizes| summed_up(Type::Int, sizes, |_| Some(bytes(&[1, 0, 0, 1, 1, 1])));
        assert_eq!(of([1, 2, 3]), Some(bytes(&[1, 0, 1, 1, 2, 2])), "down");
        assert_eq!(of([2, 1, 3]), Some(bytes(&[1, 1, 1, 1, 2, 3])), "along");
    }

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let fill = "_ZN2at6native33_scatter_gather_elementwise_kernelILi128ELi8EZNS0_34_cuda_scatter_fill_internal_kernelINS0_10OpaqueTypeILi8EEElEclINS0_12TensorAssignEEEvRNS_14TensorIteratorES4_lllRKT_EUliE_EEviT1_";
        assert_eq!(Kernel::of(fill.as_bytes()), Some(Kernel::Fills { width: 8 }));
        let of_short_index = fill.replace("EEElEcl", "EEEiEcl");
        assert_eq!(Kernel::of(of_short_index.as_bytes()), Some(Kernel::Scatters { tensors: 2 }));
        let gather = fill.replace(
            "34_cuda_scatter_fill_internal_kernelI",
            "36_cuda_scatter_gather_internal_kernelILb0E",
        );
        assert_eq!(Kernel::of(gather.as_bytes()), Some(Kernel::Gathers { width: 8 }));
    }
}
