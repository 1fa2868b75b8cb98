//! What is scattered, gathered and summed up along a dimension, of known numbers: `one_hot`, its `cumsum(0)` and the
//! `gather` of it say which token is within its expert's capacity, `scatter_add_` of ones how many neighbours a node has, or
//! how many nodes a graph (`aten/src/ATen/native/cuda/ScatterGatherKernel.cu`, `Indexing.cu`, `ScanUtils.cuh`). Elements are
//! moved as bytes.

use std::ffi::c_void;

use crate::arithmetic::{Action, apply};
use crate::effects::Effect;
use crate::integers::{MOST, Type, has, number_after, position};
use crate::offsets::{Offsets, Walk};

/// A kernel that moves elements by an index, or sums them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `scatter_` of one value, of elements of that many bytes, by an index of 64 bits.
    Fills { width: usize },
    /// `gather`, likewise.
    Gathers { width: usize },
    /// `scatter_` of a tensor, likewise; what is there and what comes to it become one in this way, or it is overwritten.
    Puts { width: usize, combine: Option<(Action, Type)> },
    /// Another `scatter`, whose closure has an offset calculator of so many tensors.
    Scatters { tensors: usize },
    /// `index_add_` of numbers by an index of 64 bits; few of them are one kernel's, more another's, and that one counts by the
    /// index or by the slices.
    Adds { element: Type, few: bool, by_index: bool },
    /// Its like: into a `TensorInfo`, which begins with the address.
    AddsTo,
    /// `cumsum` or `cumprod` along a dimension that others come after, or along the last one of several.
    Scans { action: Action, kind: Type, along: bool },
}

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        if let Some(action) = scanned(name) {
            let of = |part: &[u8], along| {
                number_after(name, part).map(|kind| Kernel::Scans { action, kind, along })
            };
            let across = of(b"28tensor_kernel_scan_outer_dimI", false);
            let scans = across.or_else(|| of(b"32tensor_kernel_scan_innermost_dimI", true));
            if scans.is_some() {
                return scans;
            }
        }
        for (part, few) in
            [(b"19indexFuncSmallIndexI".as_slice(), true), (b"19indexFuncLargeIndexI", false)]
        {
            if let Some(at) = position(name, part) {
                let [element, rest @ ..] = &name[at + part.len()..] else { return None };
                let element = Type::of_letter(*element).or_else(|| Type::of_float(*element));
                let followed = rest.starts_with(b"ljLi") && has(rest, b"9ReduceAddE");
                let by_index = has(rest, b"ELb1E");
                let adds = |element| Kernel::Adds { element, few, by_index };
                return Some(element.filter(|_| followed).map_or(Kernel::AddsTo, adds));
            }
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
        let other = Kernel::Scatters { tensors: 3 };
        const PUTS: &[u8] = b"_cuda_scatter_gather_internal_kernelILb1E";
        let Some(at) = position(name, PUTS) else { return Some(other) };
        if assigns {
            return Some(width().map_or(other, |width| Kernel::Puts { width, combine: None }));
        }
        // The element's type, and that of the index in torch from 2.9 on.
        let [element, b'E' | b'l', ..] = &name[at + PUTS.len()..] else { return Some(other) };
        let element = Type::of_letter(*element).or_else(|| Type::of_float(*element));
        let action = [
            (b"9ReduceAddE".as_slice(), Action::Add),
            (b"13ReduceMaximumE", Action::Largest),
            (b"13ReduceMinimumE", Action::Smallest),
            (b"14ReduceMultiplyE", Action::Multiply),
        ]
        .into_iter()
        .find_map(|(part, action)| has(name, part).then_some(action));
        let combine = action.zip(element);
        let puts = |it: (Action, Type)| Kernel::Puts { width: it.1.width(), combine: Some(it) };
        Some(combine.map_or(other, puts))
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
            // SAFETY: the caller's.
            Kernel::Puts { width, combine } => unsafe { put(width, combine, arguments, known) },
            Kernel::Adds { element, few, by_index } => {
                // SAFETY: the caller's.
                unsafe { added(element, (few, by_index), arguments, known) }
            }
            Kernel::AddsTo => {
                // SAFETY: the caller's.
                let to = unsafe { arguments.read().cast::<u64>().read_unaligned() };
                vec![Effect::Unknown(to, u64::MAX)]
            }
            Kernel::Gathers { width } => {
                // SAFETY: the caller's.
                unsafe { gathered(width, arguments, known) }.unwrap_or_default()
            }
            Kernel::Scans { action, kind, along } => {
                // SAFETY: to, from, and three or two sizes of 32 bits.
                let (to, from, sizes) = unsafe {
                    let address = |i: usize| arguments.add(i).read().cast::<u64>().read_unaligned();
                    let size = |i: usize| arguments.add(i).read().cast::<u32>().read_unaligned();
                    let sizes =
                        if along { [size(2), 1, size(3)] } else { [size(2), size(3), size(4)] };
                    (address(0), address(1), sizes)
                };
                let sizes = sizes.map(|it| usize::try_from(it).unwrap_or(usize::MAX));
                let summed = summed_up(action, kind, sizes, |size| known(from, size));
                let unknown = Effect::Unknown(to, u64::MAX);
                vec![summed.map_or(unknown, |it| Effect::Known(to, it))]
            }
        }
    }
}

/// Rows of `size` numbers, `inner` of them side by side, `outer` times.
fn summed_up(
    action: Action,
    kind: Type,
    [outer, inner, size]: [usize; 3],
    known: impl Fn(usize) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let count = outer.checked_mul(inner)?.checked_mul(size).filter(|&it| it <= MOST)?;
    let bytes = known(count * kind.width())?;
    let mut numbers: Vec<i64> = bytes.chunks(kind.width()).map(|it| kind.read(it)).collect();
    let one = Type::Long.into(kind, 1);
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
pub fn scanned(name: &[u8]) -> Option<Action> {
    [(b"4plusI".as_slice(), Action::Add), (b"10multipliesI", Action::Multiply)]
        .into_iter()
        .find_map(|(part, action)| has(name, part).then_some(action))
}

/// What the closure of such a kernel has behind its offset calculator: where the index is, how many there are to choose
/// from, a functor, where the result is, the stride of what is chosen, how many elements, and the last: a value, or
/// where the source is.
struct Closure {
    at: *const u8,
    tensors: usize,
    index: u64,
    size: i64,
    target: u64,
    stride: i64,
    last: u64,
}

impl Closure {
    /// # Safety
    ///
    /// There must be one at `closure`, with an offset calculator of so many tensors, as long as what is returned lives.
    unsafe fn at(closure: *const u8, tensors: usize) -> Closure {
        let from = Offsets { at: 0, tensors }.end().next_multiple_of(8);
        // SAFETY: the caller's.
        let word = |i: usize| unsafe { closure.add(from + 8 * i).cast::<u64>().read_unaligned() };
        Closure {
            at: closure,
            tensors,
            index: word(0),
            size: word(1).cast_signed(),
            target: word(3),
            stride: word(4).cast_signed(),
            last: word(6),
        }
    }

    /// Where the elements of each tensor lie, and where the last ones do.
    fn walk(&self, count: usize) -> Option<(Walk, [usize; 4])> {
        // SAFETY: the offset calculator is as long as it reads.
        let number = |at: usize| unsafe { self.at.add(at).cast::<u32>().read_unaligned() };
        let offsets = Offsets { at: 0, tensors: self.tensors };
        let mut last = [0; 4];
        for (last, offset) in last.iter_mut().zip(offsets.of(count.checked_sub(1)?, number)?) {
            *last = usize::try_from(offset).ok()?;
        }
        Some((offsets.walk(count, number)?, last))
    }

    /// How many bytes further what the index says at `offset` lies, of elements of that width.
    fn chosen(&self, indices: &[u8], offset: u64, width: usize) -> Option<usize> {
        let index = Type::Long.read(indices.get(usize::try_from(offset).ok()?..)?);
        let further = index.checked_mul(self.stride).filter(|_| (0..self.size).contains(&index))?;
        usize::try_from(further).ok()?.checked_mul(width)
    }
}

/// How many elements, and the closure.
///
/// # Safety
///
/// `arguments` must be those of a `_scatter_gather_elementwise_kernel` over so many tensors.
unsafe fn launch(arguments: *const *const c_void, tensors: usize) -> (Option<usize>, Closure) {
    // SAFETY: the caller's.
    let (count, closure) = unsafe {
        let count = arguments.read().cast::<i32>().read_unaligned();
        (count, Closure::at(arguments.add(1).read().cast(), tensors))
    };
    (usize::try_from(count).ok().filter(|&it| it <= MOST), closure)
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Fills`].
unsafe fn filled(
    width: usize,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    // SAFETY: the caller's.
    let (count, it) = unsafe { launch(arguments, 2) };
    let value = it.last.to_le_bytes();
    let compute = || {
        let (walk, last) = it.walk(count?)?;
        let indices = known(it.index, last[1] + 8)?;
        let mut places = Vec::with_capacity(count?);
        for [to, from, ..] in walk {
            places.push(usize::try_from(to).ok()? + it.chosen(&indices, from, width)?);
        }
        let mut bytes = known(it.target, places.iter().max()? + width)?;
        for at in places {
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
        Some(vec![Effect::Known(it.target, bytes)])
    };
    compute().unwrap_or_else(|| vec![Effect::Unknown(it.target, u64::MAX)])
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Puts`].
unsafe fn put(
    width: usize,
    combine: Option<(Action, Type)>,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    // SAFETY: the caller's.
    let (count, it) = unsafe { launch(arguments, 3) };
    let compute = || {
        let (walk, last) = it.walk(count?)?;
        let source = known(it.last, last[1] + width)?;
        let indices = known(it.index, last[2] + 8)?;
        let mut moves = Vec::with_capacity(count?);
        for [to, from, index, _] in walk {
            let to = usize::try_from(to).ok()? + it.chosen(&indices, index, width)?;
            moves.push((to, usize::try_from(from).ok()?));
        }
        let bytes = known(it.target, moves.iter().map(|it| it.0).max()? + width)?;
        Some(vec![Effect::Known(it.target, combined(bytes, &source, moves, width, combine)?)])
    };
    compute().unwrap_or_else(|| vec![Effect::Unknown(it.target, u64::MAX)])
}

/// `bytes` with elements of `source` moved into it: where to and where from.
fn combined(
    mut bytes: Vec<u8>,
    source: &[u8],
    moves: Vec<(usize, usize)>,
    width: usize,
    combine: Option<(Action, Type)>,
) -> Option<Vec<u8>> {
    let mut one = Vec::with_capacity(8);
    for (to, from) in moves {
        let element = source.get(from..from + width)?;
        let there = bytes.get_mut(to..to + width)?;
        let Some((action, kind)) = combine else {
            there.copy_from_slice(element);
            continue;
        };
        let factor = Type::Long.into(kind, 1);
        let both = apply(action, kind, factor, kind.read(there), kind.read(element))?;
        one.clear();
        kind.write(both, &mut one);
        there.copy_from_slice(&one);
    }
    Some(bytes)
}

/// Numbers that are added to those of a vector.
///
/// # Safety
///
/// `arguments` must be those of [`Kernel::Adds`]: `TensorInfo`s of the target, what is added, and the indices, the dimension
/// in both, for more than few how much there is, how many elements a slice or the index has, two sizes, an operation, and a factor.
unsafe fn added(
    kind: Type,
    (few, by_index): (bool, bool),
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    // SAFETY: the caller's; `{ address; u32 sizes[25], strides[25]; int dims }`.
    let tensor = |i: usize, dim: u32| unsafe {
        let it = arguments.add(i).read().cast::<u8>();
        let dim = usize::try_from(dim).unwrap_or(0).min(24);
        let number = |at: usize| it.add(8 + 4 * at).cast::<u32>().read_unaligned();
        (it.cast::<u64>().read_unaligned(), number(dim), number(25 + dim))
    };
    // SAFETY: the same.
    let number = |i: usize| unsafe { arguments.add(i).read().cast::<u32>().read_unaligned() };
    let (to, _, to_stride) = tensor(0, number(3));
    let (from, _, from_stride) = tensor(1, number(4));
    let (index, count, index_stride) = tensor(2, 0);
    // Slices of one element.
    let flat = match (few, by_index) {
        (true, _) => number(5) == 1,
        (_, true) => number(6) == 1,
        _ => number(5) == number(6),
    };
    let width = kind.width();
    let compute = || {
        let wide = |it: u32| usize::try_from(it).ok();
        let (to_stride, from_stride, index_stride) =
            (wide(to_stride)?, wide(from_stride)?, wide(index_stride)?);
        let count = wide(count).filter(|&it| flat && 0 < it && it <= MOST)?;
        let factor = if few { 9 } else { 10 };
        // SAFETY: the factor is an element.
        let factor = kind.read(unsafe {
            std::slice::from_raw_parts(arguments.add(factor).read().cast::<u8>(), width)
        });
        let span = |from: u64, stride: usize, width: usize| {
            known(from, (count - 1).checked_mul(stride)?.checked_mul(width)? + width)
        };
        let source = span(from, from_stride, width)?;
        let indices = span(index, index_stride, 8)?;
        let mut moves = Vec::with_capacity(count);
        for i in 0..count {
            let place = usize::try_from(Type::Long.read(&indices[i * index_stride * 8..])).ok()?;
            moves.push((place.checked_mul(to_stride * width)?, i * from_stride * width));
        }
        (factor == Type::Long.into(kind, 1)).then_some(())?;
        let bytes = known(to, moves.iter().map(|it| it.0).max()?.checked_add(width)?)?;
        let bytes = combined(bytes, &source, moves, width, Some((Action::Add, kind)))?;
        Some(vec![Effect::Known(to, bytes)])
    };
    compute().unwrap_or_else(|| vec![Effect::Unknown(to, u64::MAX)])
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Gathers`].
unsafe fn gathered(
    width: usize,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Vec<Effect>> {
    // SAFETY: the caller's.
    let (count, it) = unsafe { launch(arguments, 3) };
    let (walk, last) = it.walk(count?)?;
    let indices = known(it.index, last[2] + 8)?;
    let mut moves = Vec::with_capacity(count?);
    for (i, [to, from, index, _]) in walk.enumerate() {
        // Only results that lie one after the other.
        (usize::try_from(to) == Ok(i * width)).then_some(())?;
        let from = usize::try_from(from).ok()? + it.chosen(&indices, index, width)?;
        moves.push((i * width, from));
    }
    let source = known(it.last, moves.iter().map(|it| it.1).max()? + width)?;
    let bytes = combined(vec![0; count? * width], &source, moves, width, None)?;
    Some(vec![Effect::Known(it.target, bytes)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_go_along_one_dimension() {
        let bytes = |it: &[i32]| it.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        let known = |_| Some(bytes(&[1, 0, 0, 1, 1, 1]));
        let of = |action, sizes| summed_up(action, Type::Int, sizes, known);
        assert_eq!(of(Action::Add, [1, 2, 3]), Some(bytes(&[1, 0, 1, 1, 2, 2])), "down");
        assert_eq!(of(Action::Add, [2, 1, 3]), Some(bytes(&[1, 1, 1, 1, 2, 3])), "along");
        assert_eq!(of(Action::Multiply, [2, 1, 3]), Some(bytes(&[1, 0, 0, 1, 1, 1])));
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
        let put = gather.replace("ILb0E", "ILb1E");
        let expected = Kernel::Puts { width: 8, combine: None };
        assert_eq!(Kernel::of(put.as_bytes()), Some(expected));
        let add = "_ZN2at6native34_scatter_gather_elementwise_kernelILi128ELi8EZNS0_36_cuda_scatter_gather_internal_kernelILb1EflEclINS0_9ReduceAddEEEvRNS_14TensorIteratorElllRKT_EUliE_EEviT1_";
        let combine = Some((Action::Add, Type::Float));
        assert_eq!(Kernel::of(add.as_bytes()), Some(Kernel::Puts { width: 4, combine }));
        let of_halves = add.replace("ILb1Efl", "ILb1EN3c104HalfEl");
        assert_eq!(Kernel::of(of_halves.as_bytes()), Some(Kernel::Scatters { tensors: 3 }));
        let index_add = "_ZN2at6native19indexFuncLargeIndexIfljLi1ELi1ELin2ELb1ENS0_44_GLOBAL__N__50c743a2_11_Indexing_cu_89862edb9ReduceAddEEEvNS_4cuda6detail10TensorInfoIT_T1_EE";
        let expected = Kernel::Adds { element: Type::Float, few: false, by_index: true };
        assert_eq!(Kernel::of(index_add.as_bytes()), Some(expected));
    }
}
