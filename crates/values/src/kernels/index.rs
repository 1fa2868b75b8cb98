//! `x[indices]` and `x[indices] = y`, `index_select`, `index_copy_`, `index_fill_` and `flip`: elements are moved as bytes
//! (`aten/src/ATen/native/cuda/IndexKernel.cu`, `IndexKernelUtils.cu`, `Indexing.cu`).

use crate::arguments::{Arguments, Bytes, Structure, TensorInfo};
use crate::memory::Known;
use crate::memory::writes::{MOST, Write};
use crate::names::{self, has, position};
use crate::numbers::offsets::Offsets;
use crate::types::ScalarType;

/// A kernel that moves elements by indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `x[indices]`, of elements of so many bytes; or `x[indices] = y`.
    Indexes { width: usize, puts: bool },
    /// `index_copy_`, of elements of so many bytes.
    Copies { width: usize },
    /// `index_fill_`, likewise.
    Fills { width: usize },
    /// `x[indices]` of whole rows.
    TakesRows,
    /// `index_select` of rows that are not taken whole, of elements of so many bytes.
    Selects { width: usize },
    /// `flip`.
    Flips { width: usize },
    /// `index_put_` of elements that are not followed: what was there is not known any more.
    Puts,
    /// `take`.
    Takes,
    /// `put_`, of a tensor that we cannot tell: nothing computed is sure any more.
    PutsSomewhere,
    /// `index_put_` that adds: sorted indices, their order, what is added, and to what.
    Adds,
}

/// Bytes that are moved, at most.
const MOST_BYTES: usize = 1 << 24;
/// Tensors of indices that one kernel is followed with, of those that a closure has room for.
const MOST_INDICES_KNOWN: usize = 5;
const MOST_INDICES: usize = 25;

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        if has(name, names::VECTORIZED_GATHER) {
            return Some(Kernel::TakesRows);
        }
        const SELECTS: &[u8] = names::INDEX_SELECT_SMALL;
        if let Some(at) = position(name, SELECTS) {
            // The types of elements, of indices, and of positions.
            let [element, b'l', b'j', ..] = &name[at + SELECTS.len()..] else { return None };
            let element =
                ScalarType::of_letter(*element).or_else(|| ScalarType::of_float(*element))?;
            return Some(Kernel::Selects { width: element.width() });
        }
        if has(name, names::TAKE_PUT) {
            let takes = has(name, names::TAKE);
            return Some(if takes { Kernel::Takes } else { Kernel::PutsSomewhere });
        }
        if has(name, names::INDEX_ELEMENTWISE) {
            let reads = has(name, names::INDEX);
            return moves(name).or_else(|| (!reads).then_some(Kernel::Puts));
        }
        has(name, names::INDEXING_BACKWARD).then_some(Kernel::Adds)
    }

    /// Where the indices are that it takes elements by.
    pub(crate) fn indices(self, arguments: Arguments<'_>) -> Vec<u64> {
        if let Kernel::Selects { .. } = self {
            return arguments.tensor_address(2).into_iter().collect();
        }
        let Kernel::Indexes { puts: false, .. } = self else { return Vec::new() };
        let all = || -> Option<Vec<u64>> {
            let closure = Closure::of(arguments, 3, 3 + MOST_INDICES)?;
            let count = usize::try_from(closure.word(2)?).unwrap_or(0).min(MOST_INDICES_KNOWN);
            (0..count).map(|i| closure.word(3 + i)).collect()
        };
        all().unwrap_or_default()
    }

    /// What it writes.
    pub(crate) fn writes(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
        match self {
            Kernel::Indexes { width, puts } => indexed(width, puts, arguments, known),
            Kernel::Copies { width } => put_along(width, false, arguments, known),
            Kernel::Fills { width } => put_along(width, true, arguments, known),
            Kernel::Flips { width } => flipped(width, arguments, known),
            Kernel::TakesRows => rows(arguments, known),
            Kernel::Selects { width } => selected(width, arguments, known),
            Kernel::Puts => {
                // What is written to comes first behind the offsets.
                let to = Closure::of(arguments, 3, 1)?.word(0)?;
                Some(vec![Write::Unknown(to, u64::MAX)])
            }
            Kernel::Takes => {
                let to = Closure::of(arguments, 2, 1)?.word(0)?;
                Some(vec![Write::Unknown(to, u64::MAX)])
            }
            Kernel::PutsSomewhere => Some(vec![Write::NothingComputed]),
            Kernel::Adds => Some(vec![Write::Unknown(arguments.address(3)?, u64::MAX)]),
        }
    }
}

/// The kernel of this name that moves elements in a way that is followed.
fn moves(name: &[u8]) -> Option<Kernel> {
    const OPAQUE: &[u8] = names::OPAQUE_TYPE;
    has(name, names::INDEX_ELEMENTWISE).then_some(())?;
    let mut digits = name.get(position(name, OPAQUE)? + OPAQUE.len()..)?.iter();
    let width = usize::from(digits.next()?.checked_sub(b'0')?);
    if !matches!((width, digits.next()?), (1 | 2 | 4 | 8, b'E')) {
        return None;
    }
    [
        (names::INDEX, Kernel::Indexes { width, puts: false }),
        (names::INDEX_PUT, Kernel::Indexes { width, puts: true }),
        (names::INDEX_COPY, Kernel::Copies { width }),
        (names::INDEX_FILL, Kernel::Fills { width }),
        (names::FLIP, Kernel::Flips { width }),
    ]
    .into_iter()
    .find_map(|(part, kernel)| has(name, part).then_some(kernel))
}

/// What a kernel is launched with that walks through tensors of any strides: how many elements, and a closure that has an
/// offset calculator, and words behind it.
struct Closure<'a> {
    elements: u64,
    bytes: Bytes<'a>,
    offsets: Offsets,
}

impl<'a> Closure<'a> {
    /// That of such a kernel over so many tensors, with so many words.
    fn of(arguments: Arguments<'a>, tensors: usize, words: usize) -> Option<Closure<'a>> {
        let offsets = Offsets { at: 0, tensors };
        let named = &[
            "at::native::gpu_index_kernel<",
            "at::native::index_copy_kernel_impl<",
            "at::native::index_fill_kernel_impl<",
            "at::native::flip_kernel_impl<",
            "at::native::cuda_take_put_kernel<",
        ];
        let size = offsets.end().next_multiple_of(8) + 8 * words;
        Some(Closure {
            elements: arguments.whole(0)?.cast_unsigned(),
            bytes: arguments.structure(1, Structure { named, size })?,
            offsets,
        })
    }

    /// How many elements there are; none if there are none, or more than are followed.
    fn count(&self) -> Option<usize> {
        usize::try_from(self.elements).ok().filter(|&it| 0 < it && it <= MOST)
    }

    fn word(&self, i: usize) -> Option<u64> {
        self.bytes.u64(self.offsets.end().next_multiple_of(8) + 8 * i)
    }

    /// A number of the offset calculator.
    fn number(&self, at: usize) -> Option<u32> {
        self.bytes.u32(at)
    }
}

/// An index into so many, counted from the end if it is negative.
fn place(index: i64, size: i64) -> Option<u64> {
    let index = if index < 0 { index + size } else { index };
    (0..size).contains(&index).then(|| index.cast_unsigned())
}

/// `vectorized_gather_kernel`: to, from, indices, how many, bytes of a row, rows, from one to the next in both.
fn rows(arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let (to, from, indices) = (arguments.address(0)?, arguments.address(1)?, arguments.address(2)?);
    let (count, size, next_to) = (arguments.count(3)?, arguments.count(4)?, arguments.count(7)?);
    let (all, next_from) = (arguments.whole(5)?, arguments.whole(6)?.cast_unsigned());
    let moved = || {
        (count <= MOST && count.checked_mul(size)? <= MOST_BYTES).then_some(())?;
        (next_to == size).then_some(())?;
        let indices = known(indices, 8 * count)?;
        let mut bytes = Vec::with_capacity(count * size);
        for it in indices.chunks_exact(8) {
            let row = place(ScalarType::Long.read(it), all)?;
            bytes.extend(known(from + row.checked_mul(next_from)?, size)?);
        }
        Some(vec![Write::Known(to, bytes)])
    };
    Some(moved().unwrap_or_else(|| vec![Write::Unknown(to, u64::MAX)]))
}

/// [`Kernel::Selects`]: to, from, indices, the dimension in both, how many elements a slice has, and the size of the dimension
/// that is selected from.
fn selected(width: usize, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let [to, from, indices] = [arguments.tensor(0)?, arguments.tensor(1)?, arguments.tensor(2)?];
    let dims = [arguments.count(3)?, arguments.count(4)?];
    let (slice, all) = (arguments.count(5)?, arguments.whole(6)?);
    let (target, source) = (to.address()?, from.address()?);
    let moved = || {
        let wide = |it: u32| usize::try_from(it).ok();
        let (count, next) = (wide(indices.size(0)?)?, wide(indices.stride(0)?)?);
        (1..=MOST).contains(&slice.checked_mul(count)?).then_some(())?;
        // The size of the dimension is one in both.
        let starts = |info: TensorInfo<'_>| {
            (0..slice).map(|row| info.element_of_row(row)).collect::<Option<Vec<usize>>>()
        };
        let starts = [starts(to)?, starts(from)?];
        let apart = [wide(to.stride(dims[0])?)?, wide(from.stride(dims[1])?)?];
        let last = (count - 1).checked_mul(next)?.checked_mul(8)?.checked_add(8)?;
        let indices = known(indices.address()?, last)?;
        let mut moves = Vec::with_capacity(slice * count);
        for i in 0..count {
            let index = place(ScalarType::Long.read(indices.get(8 * i * next..)?), all)?;
            let begin = usize::try_from(index).ok()?.checked_mul(apart[1])?;
            for (out, input) in starts[0].iter().zip(&starts[1]) {
                let out = i.checked_mul(apart[0])?.checked_add(*out)?;
                moves.push((out * width, begin.checked_add(*input)?.checked_mul(width)?));
            }
        }
        let last = moves.iter().map(|it| it.1).max()?.checked_add(width)?;
        let bytes = Some(last).filter(|&it| it <= MOST_BYTES).and_then(|it| known(source, it))?;
        placed(target, moves, &bytes, width, known)
    };
    Some(moved().unwrap_or_else(|| vec![Write::Unknown(target, u64::MAX)]))
}

/// [`Kernel::Indexes`]: where to, where from, how many indices, and of each where it is, the size that it is for, and the
/// stride in bytes.
fn indexed(
    width: usize,
    puts: bool,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let closure = Closure::of(arguments, 3, 3 + 3 * MOST_INDICES)?;
    let (word, number) = (|i| closure.word(i), |at| closure.number(at));
    let (to, from) = (word(0)?, word(1)?);
    let moved = || {
        let count = closure.count()?;
        let indices = usize::try_from(word(2)?).ok();
        let indices = indices.filter(|it| (1..=MOST_INDICES_KNOWN).contains(it))?;
        let last = closure.offsets.of(count - 1, number)?;
        let spans: Vec<Vec<u8>> = (0..indices)
            .map(|i| known(word(3 + i)?, usize::try_from(last[2]).ok()? + 8))
            .collect::<Option<_>>()?;
        let mut moves = Vec::with_capacity(count);
        for [out, input, index, _] in closure.offsets.walk(count, number)? {
            let index = usize::try_from(index).ok()?;
            let mut by = 0_u64;
            for (which, span) in spans.iter().enumerate() {
                let size = word(3 + MOST_INDICES + which)?.cast_signed();
                let stride = word(3 + 2 * MOST_INDICES + which)?;
                let row = place(ScalarType::Long.read(span.get(index..index + 8)?), size)?;
                by = by.checked_add(row.checked_mul(stride)?)?;
            }
            let (out, input) = if puts { (out + by, input) } else { (out, input + by) };
            if moves.is_empty() {
                known(from + input, width)?; // Mostly it is an activation, and there are many.
            }
            moves.push((usize::try_from(out).ok()?, usize::try_from(input).ok()?));
        }
        let last = moves.iter().map(|it| it.1).max()?.checked_add(width)?;
        let source = known(from, last).filter(|it| it.len() <= MOST_BYTES)?;
        placed(to, moves, &source, width, known)
    };
    Some(moved().unwrap_or_else(|| vec![Write::Unknown(to, u64::MAX)]))
}

/// [`Kernel::Copies`] or, if it `fills`, [`Kernel::Fills`]: where to, where the indices are, of the first where from, the size and
/// the stride of the dimension, and of the second the value.
fn put_along(
    width: usize,
    fills: bool,
    arguments: Arguments<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let closure = Closure::of(arguments, if fills { 2 } else { 3 }, 5)?;
    let number = |at| closure.number(at);
    let (to, indices) = (closure.word(0)?, closure.word(1)?);
    let moved = || {
        let count = closure.count()?;
        let last = closure.offsets.of(count - 1, number)?;
        let span = |from: u64, last: u64, width: usize| {
            known(from, usize::try_from(last).ok()?.checked_add(width)?)
        };
        let source = if fills {
            closure.word(4)?.to_le_bytes().to_vec()
        } else {
            span(closure.word(2)?, last[2], width)?
        };
        let indices = span(indices, last[1], 8)?;
        let rest = if fills { 2 } else { 3 };
        let size = closure.word(rest)?.cast_signed();
        let stride = usize::try_from(closure.word(rest + 1)?).ok()?.checked_mul(width)?;
        let mut moves = Vec::with_capacity(count);
        for [out, index, input, _] in closure.offsets.walk(count, number)? {
            let index = ScalarType::Long.read(indices.get(usize::try_from(index).ok()?..)?);
            let row = usize::try_from(place(index, size)?).ok()?;
            let input = if fills { 0 } else { usize::try_from(input).ok()? };
            moves.push((usize::try_from(out).ok()?.checked_add(row.checked_mul(stride)?)?, input));
        }
        placed(to, moves, &source, width, known)
    };
    Some(moved().unwrap_or_else(|| vec![Write::Unknown(to, u64::MAX)]))
}

/// Elements of `source`, moved to where the first numbers say from where the second ones do. What lies between them need not be
/// known, if they are few, or if there is nothing between them.
fn placed(
    to: u64,
    mut moves: Vec<(usize, usize)>,
    source: &[u8],
    width: usize,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    const MOST_RUNS: usize = 1024;
    let wide = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
    moves.sort_by_key(|it| it.0);
    let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
    for (i, &(out, input)) in moves.iter().enumerate() {
        if moves.get(i + 1).is_some_and(|it| it.0 == out) {
            continue; // The last one of several stays.
        }
        let element = source.get(input..input.checked_add(width)?)?;
        match runs.last_mut() {
            Some((from, run)) if *from + run.len() == out => run.extend_from_slice(element),
            _ => runs.push((out, element.to_vec())),
        }
    }
    if runs.len() <= MOST_RUNS {
        return Some(runs.into_iter().map(|it| Write::Known(to + wide(it.0), it.1)).collect());
    }
    let (last, run) = runs.last()?;
    let mut result = known(to, last + run.len()).filter(|it| it.len() <= MOST_BYTES)?;
    for (out, run) in runs {
        result[out..out + run.len()].copy_from_slice(&run);
    }
    Some(vec![Write::Known(to, result)])
}

/// [`Kernel::Flips`], whose offsets have signs: where to, and where from.
fn flipped(width: usize, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let closure = Closure::of(arguments, 2, 2)?;
    let (to, from) = (closure.word(0)?, closure.word(1)?);
    let turned = || {
        let count = closure.count()?;
        let moves: Vec<[i64; 2]> = (0..count)
            .map(|i| closure.offsets.signed(i, |at| closure.number(at)))
            .collect::<Option<_>>()?;
        // A result that is written whole, from its first byte on.
        let first = moves.iter().map(|it| it[0]).min()?;
        let begin = to.checked_add_signed(first)?;
        let mut result = vec![0; count * width];
        for [out, input] in moves {
            let at = usize::try_from(out - first).ok()?;
            let element = known(from.checked_add_signed(input)?, width)?;
            result.get_mut(at..at + width)?.copy_from_slice(&element);
        }
        Some(vec![Write::Known(begin, result)])
    };
    Some(turned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let index = "_ZN2at6native24index_elementwise_kernelILi128ELi4EZNS0_16gpu_index_kernelIZZZNS0_17index_kernel_implINS0_10OpaqueTypeILi8EEEEEvRNS_18TensorIteratorBaseEN3c108ArrayRefIlEES8_EUlPcPKclE_EEvS6_S8_S8_RKT_bEUliE_EEvlT1_";
        let of = |name: &str| Kernel::of(name.as_bytes());
        assert_eq!(of(index), Some(Kernel::Indexes { width: 8, puts: false }));
        let put = index.replace("17index_kernel_impl", "21index_put_kernel_impl");
        assert_eq!(of(&put), Some(Kernel::Indexes { width: 8, puts: true }));
        assert_eq!(of(&index.replace("ILi8EEEEE", "ILi16EEEEE")), None);
    }

    #[test]
    fn what_writes_into_a_tensor_in_another_way_leaves_nothing_known_of_it() {
        let put = Kernel::of(b"_ZN2at6native24index_elementwise_kernelILi128E");
        assert_eq!(put, Some(Kernel::Puts));
        let adds =
            b"_ZN2at6native49_GLOBAL__N__24indexing_backward_kernelIfLi4EEEvPKlS3_PKT_PS4_lllib";
        assert_eq!(Kernel::of(adds), Some(Kernel::Adds));
    }
}
