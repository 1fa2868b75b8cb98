//! What is scattered and gathered along a dimension, of known numbers: `one_hot`, its `cumsum(0)` and the `gather` of it say
//! which token is within its expert's capacity, `scatter_add_` of ones how many neighbours a node has, or how many nodes a
//! graph (`aten/src/ATen/native/cuda/ScatterGatherKernel.cu`, `Indexing.cu`). Elements are moved as bytes.

use crate::arguments::{Arguments, Bytes, Structure};
use crate::memory::Known;
use crate::memory::writes::MOST;
use crate::memory::writes::Write;
use crate::names::{self, has, position};
use crate::numbers::arithmetic::{Action, apply};
use crate::numbers::offsets::{Offsets, Walk};
use crate::types::ScalarType;

/// A kernel that moves elements by an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `scatter_` of one value, of elements of that many bytes, by an index of 64 bits.
    Fills { width: usize },
    /// `gather`, likewise.
    Gathers { width: usize },
    /// `scatter_` of a tensor, likewise; what is there and what comes to it become one in this way, or it is overwritten.
    Puts { width: usize, combine: Option<(Action, ScalarType)> },
    /// Another `scatter`, whose closure has an offset calculator of so many tensors.
    Scatters { tensors: usize },
    /// `index_add_` of numbers by an index of 64 bits; few of them are one kernel's, more another's, and that one counts by the
    /// index or by the slices.
    Adds { element: ScalarType, few: bool, by_index: bool },
    /// Its like: into a `TensorInfo`, which begins with the address.
    AddsTo,
    /// `masked_scatter_`, of a tensor that we cannot tell: nothing computed is sure any more.
    ByMask,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let dense =
            has(name, names::UNROLLED_ELEMENTWISE) || has(name, names::VECTORIZED_ELEMENTWISE);
        if !dense && has(name, names::MASKED_SCATTER) {
            // The kernel that compares the sizes first writes nothing.
            return (!has(name, names::MASKED_SCATTER_CHECK)).then_some(Kernel::ByMask);
        }
        for (part, few) in [(names::INDEX_FUNC_SMALL, true), (names::INDEX_FUNC_LARGE, false)] {
            if let Some(at) = position(name, part) {
                let [element, rest @ ..] = &name[at + part.len()..] else { return None };
                let element =
                    ScalarType::of_letter(*element).or_else(|| ScalarType::of_float(*element));
                let followed = rest.starts_with(b"ljLi") && has(rest, names::SCATTER_ADD);
                let by_index = has(rest, b"ELb1E");
                let adds = |element| Kernel::Adds { element, few, by_index };
                return Some(element.filter(|_| followed).map_or(Kernel::AddsTo, adds));
            }
        }
        if !has(name, names::SCATTER_GATHER) {
            return None;
        }
        let assigns = has(name, names::SCATTER_ASSIGN);
        let width = || {
            const OPAQUE: &[u8] = names::OPAQUE_TYPE;
            let at = position(name, OPAQUE)? + OPAQUE.len();
            // The index's type, in torch from 2.9 on, comes next.
            match name.get(at..)? {
                [digit @ (b'1' | b'2' | b'4' | b'8'), b'E', b'E', b'E', b'E' | b'l', ..] => {
                    Some(usize::from(digit - b'0'))
                }
                _ => None,
            }
        };
        if has(name, names::SCATTER_FILL_INTERNAL) {
            let width = width().filter(|_| assigns);
            return Some(
                width.map_or(Kernel::Scatters { tensors: 2 }, |width| Kernel::Fills { width }),
            );
        }
        if has(name, names::GATHER_INTERNAL) {
            return Some(Kernel::Gathers { width: width()? });
        }
        let other = Kernel::Scatters { tensors: 3 };
        const PUTS: &[u8] = names::SCATTER_INTERNAL;
        let Some(at) = position(name, PUTS) else { return Some(other) };
        if assigns {
            return Some(width().map_or(other, |width| Kernel::Puts { width, combine: None }));
        }
        // The element's type, and that of the index in torch from 2.9 on.
        let [element, b'E' | b'l', ..] = &name[at + PUTS.len()..] else { return Some(other) };
        let element = ScalarType::of_letter(*element).or_else(|| ScalarType::of_float(*element));
        let action = [
            (names::SCATTER_ADD, Action::Add),
            (names::SCATTER_MAXIMUM, Action::Largest),
            (names::SCATTER_MINIMUM, Action::Smallest),
            (names::SCATTER_MULTIPLY, Action::Multiply),
        ]
        .into_iter()
        .find_map(|(part, action)| has(name, part).then_some(action));
        let combine = action.zip(element);
        let puts =
            |it: (Action, ScalarType)| Kernel::Puts { width: it.1.width(), combine: Some(it) };
        Some(combine.map_or(other, puts))
    }

    /// What it writes.
    pub(crate) fn writes(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
        match self {
            Kernel::Fills { width } => filled(width, arguments, known),
            Kernel::Scatters { tensors } => {
                let it = Closure::of(arguments, tensors)?;
                Some(vec![Write::Unknown(it.target, u64::MAX)])
            }
            Kernel::Puts { width, combine } => put(width, combine, arguments, known),
            Kernel::Adds { element, few, by_index } => {
                added(element, (few, by_index), arguments, known)
            }
            Kernel::AddsTo => Some(vec![Write::Unknown(arguments.tensor_address(0)?, u64::MAX)]),
            Kernel::Gathers { width } => gathered(width, arguments, known),
            Kernel::ByMask => Some(vec![Write::NothingComputed]),
        }
    }
}

/// What the closure of such a kernel has behind its offset calculator: where the index is, how many there are to choose
/// from, a functor, where the result is, the stride of what is chosen, how many elements, and the last: a value, or
/// where the source is.
struct Closure<'a> {
    elements: Option<usize>,
    bytes: Bytes<'a>,
    tensors: usize,
    index: u64,
    size: i64,
    target: u64,
    stride: i64,
    last: u64,
}

impl<'a> Closure<'a> {
    /// That of a `_scatter_gather_elementwise_kernel` over so many tensors, whose other argument is how many elements.
    fn of(arguments: Arguments<'a>, tensors: usize) -> Option<Closure<'a>> {
        let from = Offsets { at: 0, tensors }.end().next_multiple_of(8);
        let named = &[
            "at::native::_cuda_scatter_gather_internal_kernel<",
            "at::native::_cuda_scatter_fill_internal_kernel<",
        ];
        let bytes = arguments.structure(1, Structure { named, size: from + 8 * 7 })?;
        let word = |i: usize| bytes.u64(from + 8 * i);
        Some(Closure {
            elements: usize::try_from(arguments.whole(0)?).ok().filter(|&it| it <= MOST),
            bytes,
            tensors,
            index: word(0)?,
            size: word(1)?.cast_signed(),
            target: word(3)?,
            stride: word(4)?.cast_signed(),
            last: word(6)?,
        })
    }

    /// Where the elements of each tensor lie, and where the last ones do.
    fn walk(&self, count: usize) -> Option<(Walk, [usize; 4])> {
        let number = |at: usize| self.bytes.u32(at);
        let offsets = Offsets { at: 0, tensors: self.tensors };
        let mut last = [0; 4];
        for (last, offset) in last.iter_mut().zip(offsets.of(count.checked_sub(1)?, number)?) {
            *last = usize::try_from(offset).ok()?;
        }
        Some((offsets.walk(count, number)?, last))
    }

    /// How many bytes further what the index says at `offset` lies, of elements of that width.
    fn chosen(&self, indices: &[u8], offset: u64, width: usize) -> Option<usize> {
        let index = ScalarType::Long.read(indices.get(usize::try_from(offset).ok()?..)?);
        let further = index.checked_mul(self.stride).filter(|_| (0..self.size).contains(&index))?;
        usize::try_from(further).ok()?.checked_mul(width)
    }
}

/// [`Kernel::Fills`], whose last is the value. A value may be narrower than eight bytes: what lies above it is not read.
fn filled(width: usize, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let it = Closure::of(arguments, 2)?;
    let value = it.last.to_le_bytes();
    let compute = || {
        let count = it.elements?;
        let (walk, last) = it.walk(count)?;
        let indices = known(it.index, last[1] + 8)?;
        let mut places = Vec::with_capacity(count);
        for [to, from, ..] in walk {
            places.push(usize::try_from(to).ok()? + it.chosen(&indices, from, width)?);
        }
        let mut bytes = known(it.target, places.iter().max()? + width)?;
        for at in places {
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
        Some(vec![Write::Known(it.target, bytes)])
    };
    Some(compute().unwrap_or_else(|| vec![Write::Unknown(it.target, u64::MAX)]))
}

/// [`Kernel::Puts`], whose last is where the source is.
fn put(
    width: usize,
    combine: Option<(Action, ScalarType)>,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let it = Closure::of(arguments, 3)?;
    let compute = || {
        let count = it.elements?;
        let (walk, last) = it.walk(count)?;
        let source = known(it.last, last[1] + width)?;
        let indices = known(it.index, last[2] + 8)?;
        let mut moves = Vec::with_capacity(count);
        for [to, from, index, _] in walk {
            let to = usize::try_from(to).ok()? + it.chosen(&indices, index, width)?;
            moves.push((to, usize::try_from(from).ok()?));
        }
        let size = moves.iter().map(|it| it.0).max()? + width;
        // A permutation that is turned round overwrites what was there, known or not. What lies behind it stays.
        let is_overwritten =
            combine.is_none() && moves.len() * width == size && is_one_each(&moves, width);
        let bytes = if is_overwritten { vec![0; size] } else { known(it.target, size)? };
        Some(vec![Write::Known(it.target, combined(bytes, &source, moves, width, combine)?)])
    };
    // Of numbers that nobody knows, those that are written over are unknown, and the others stay.
    let in_part = || {
        let count = it.elements?;
        let (walk, last) = it.walk(count)?;
        let indices = known(it.index, last[2] + 8)?;
        let mut places = Vec::with_capacity(count);
        for [to, _, index, _] in walk {
            places.push(usize::try_from(to).ok()? + it.chosen(&indices, index, width)?);
        }
        places.sort_unstable();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in places {
            match runs.last_mut() {
                Some((_, end)) if at <= *end => *end = at + width,
                _ => runs.push((at, at + width)),
            }
        }
        let wide = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        let forget = |(at, end)| Write::Forgotten(it.target + wide(at), wide(end - at));
        Some(runs.into_iter().map(forget).collect())
    };
    Some(compute().or_else(in_part).unwrap_or_else(|| vec![Write::Unknown(it.target, u64::MAX)]))
}

/// Whether each element is moved to a place of its own, that of an element of `width` bytes.
fn is_one_each(moves: &[(usize, usize)], width: usize) -> bool {
    let mut places: Vec<usize> = moves.iter().map(|it| it.0).collect();
    places.sort_unstable();
    places.iter().all(|it| it.is_multiple_of(width)) && places.windows(2).all(|it| it[0] != it[1])
}

/// `bytes` with elements of `source` moved into it: where to and where from.
fn combined(
    mut bytes: Vec<u8>,
    source: &[u8],
    moves: Vec<(usize, usize)>,
    width: usize,
    combine: Option<(Action, ScalarType)>,
) -> Option<Vec<u8>> {
    let mut one = Vec::with_capacity(8);
    for (to, from) in moves {
        let element = source.get(from..from + width)?;
        let there = bytes.get_mut(to..to + width)?;
        let Some((action, kind)) = combine else {
            there.copy_from_slice(element);
            continue;
        };
        let factor = ScalarType::Long.into(kind, 1);
        let both = apply(action, kind, factor, kind.read(there), kind.read(element))?;
        one.clear();
        kind.write(both, &mut one);
        there.copy_from_slice(&one);
    }
    Some(bytes)
}

/// Numbers that are added to those of a vector. The arguments of [`Kernel::Adds`] are the target, what is added, the indices,
/// the dimension in both, for more than few how much there is, how many elements a slice or the index has, two sizes, an
/// operation, and a factor.
fn added(
    kind: ScalarType,
    (few, by_index): (bool, bool),
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let [target, source, indices] =
        [arguments.tensor(0)?, arguments.tensor(1)?, arguments.tensor(2)?];
    let (to_dim, from_dim) = (arguments.count(3)?, arguments.count(4)?);
    let (to, from, index) = (target.address()?, source.address()?, indices.address()?);
    // Slices of one element.
    let flat = match (few, by_index) {
        (true, _) => arguments.whole(5)? == 1,
        (_, true) => arguments.whole(6)? == 1,
        _ => arguments.whole(5)? == arguments.whole(6)?,
    };
    let factor = arguments.element(if few { 9 } else { 10 }, kind)?;
    let width = kind.width();
    let compute = || {
        let wide = |it: u32| usize::try_from(it).ok();
        let (to_stride, from_stride) =
            (wide(target.stride(to_dim)?)?, wide(source.stride(from_dim)?)?);
        let (count, index_stride) = (wide(indices.size(0)?)?, wide(indices.stride(0)?)?);
        (flat && 0 < count && count <= MOST).then_some(())?;
        let span = |from: u64, stride: usize, width: usize| {
            known(from, (count - 1).checked_mul(stride)?.checked_mul(width)? + width)
        };
        let source = span(from, from_stride, width)?;
        let indices = span(index, index_stride, 8)?;
        let mut moves = Vec::with_capacity(count);
        for i in 0..count {
            let place = ScalarType::Long.read(&indices[i * index_stride * 8..]);
            let place = usize::try_from(place).ok()?;
            moves.push((place.checked_mul(to_stride * width)?, i * from_stride * width));
        }
        (factor == ScalarType::Long.into(kind, 1)).then_some(())?;
        let bytes = known(to, moves.iter().map(|it| it.0).max()?.checked_add(width)?)?;
        let bytes = combined(bytes, &source, moves, width, Some((Action::Add, kind)))?;
        Some(vec![Write::Known(to, bytes)])
    };
    Some(compute().unwrap_or_else(|| vec![Write::Unknown(to, u64::MAX)]))
}

/// [`Kernel::Gathers`], whose last is where the source is.
fn gathered(width: usize, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let it = Closure::of(arguments, 3)?;
    let compute = || {
        let count = it.elements?;
        let (walk, last) = it.walk(count)?;
        let indices = known(it.index, last[2] + 8)?;
        let mut moves = Vec::with_capacity(count);
        for (i, [to, from, index, _]) in walk.enumerate() {
            // Only results that lie one after the other.
            (usize::try_from(to) == Ok(i * width)).then_some(())?;
            let from = usize::try_from(from).ok()? + it.chosen(&indices, index, width)?;
            moves.push((i * width, from));
        }
        let source = known(it.last, moves.iter().map(|it| it.1).max()? + width)?;
        let bytes = combined(vec![0; count * width], &source, moves, width, None)?;
        Some(vec![Write::Known(it.target, bytes)])
    };
    Some(compute().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let combine = Some((Action::Add, ScalarType::Float));
        assert_eq!(Kernel::of(add.as_bytes()), Some(Kernel::Puts { width: 4, combine }));
        let of_halves = add.replace("ILb1Efl", "ILb1EN3c104HalfEl");
        assert_eq!(Kernel::of(of_halves.as_bytes()), Some(Kernel::Scatters { tensors: 3 }));
        let index_add = "_ZN2at6native19indexFuncLargeIndexIfljLi1ELi1ELin2ELb1ENS0_44_GLOBAL__N__50c743a2_11_Indexing_cu_89862edb9ReduceAddEEEvNS_4cuda6detail10TensorInfoIT_T1_EE";
        let expected = Kernel::Adds { element: ScalarType::Float, few: false, by_index: true };
        assert_eq!(Kernel::of(index_add.as_bytes()), Some(expected));
        let by_mask = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_15gpu_kernel_implIZZZNS0_28launch_masked_scatter_kernelERKNS_10TensorBaseES5_S5_S5_ENKUlvE_clEvENKUlvE10_clEvEUlN3c104HalfEblE_EEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";
        assert_eq!(Kernel::of(by_mask.as_bytes()), Some(Kernel::ByMask));
        let check = "_ZN2at6native47_GLOBAL__N__ce072f67_14_IndexKernel_cu_3e7731d125masked_scatter_size_checkEPKlPKbl";
        assert_eq!(Kernel::of(check.as_bytes()), None, "it writes nothing");
    }
}
