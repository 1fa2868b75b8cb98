//! Where things are: the indices that `nonzero()` gives of a known mask, what `x[indices]` and `x[indices] = y` move, the
//! place of each number among known bounds, and what `flip` turns round. Elements are moved as bytes
//! (`aten/src/ATen/native/cuda/Nonzero.cu`, `IndexKernel.cu`, `IndexKernelUtils.cu`, `Bucketization.cu`).

use std::ffi::c_void;

use crate::effects::Effect;
use crate::integers::{MOST, Type, element_after, has, number_after, position};
use crate::offsets::Offsets;

/// A kernel that finds places, or moves elements by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `DeviceSelectSweepKernel` over `NonZeroOp`, of elements of so many bytes.
    Finds { width: usize },
    /// `write_indices`: places in one dimension become those in several.
    Unravels,
    /// `x[indices]`, of elements of so many bytes; or `x[indices] = y`.
    Indexes { width: usize, puts: bool },
    /// `index_copy_`, of elements of so many bytes.
    Copies { width: usize },
    /// `index_fill_`, likewise.
    Fills { width: usize },
    /// `x[indices]` of whole rows.
    TakesRows,
    /// `searchsorted` and `bucketize`, with results of this type.
    Sorts { from: Type, to: Type },
    /// `flip`.
    Flips { width: usize },
    /// `adjacent_difference_kernel` of `unique`: where a sorted vector of this type goes on to another number.
    Differs { key: Type },
    /// `scatter_kernel` of it: each number goes where its index says.
    Scatters,
}

/// Bytes of a mask that are looked at, and of anything that is moved.
const MOST_BYTES: usize = 1 << 24;

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        if has(name, b"23DeviceSelectSweepKernel") {
            let counts = has(name, b"17counting_iteratorIl");
            let width = element_after(name, b"9NonZeroOpI").filter(|_| counts)?.width();
            return Some(Kernel::Finds { width });
        }
        if has(name, b"13write_indicesIl") {
            return Some(Kernel::Unravels);
        }
        if has(name, b"24index_elementwise_kernel") {
            const OPAQUE: &[u8] = b"10OpaqueTypeILi";
            let mut digits = name.get(position(name, OPAQUE)? + OPAQUE.len()..)?.iter();
            let width = usize::from(digits.next()?.checked_sub(b'0')?);
            if !matches!((width, digits.next()?), (1 | 2 | 4 | 8, b'E')) {
                return None;
            }
            return [
                (b"17index_kernel_impl".as_slice(), Kernel::Indexes { width, puts: false }),
                (b"21index_put_kernel_impl", Kernel::Indexes { width, puts: true }),
                (b"22index_copy_kernel_impl", Kernel::Copies { width }),
                (b"22index_fill_kernel_impl", Kernel::Fills { width }),
                (b"16flip_kernel_impl", Kernel::Flips { width }),
            ]
            .into_iter()
            .find_map(|(part, kernel)| has(name, part).then_some(kernel));
        }
        if has(name, b"24vectorized_gather_kernelILi16ElE") {
            return Some(Kernel::TakesRows);
        }
        if has(name, b"12_UniqueCub_cu") {
            if let Some(key) = number_after(name, b"26adjacent_difference_kernelIPK") {
                return Some(Kernel::Differs { key });
            }
            if has(name, b"14scatter_kernelElPKl") {
                return Some(Kernel::Scatters);
            }
        }
        const SEARCH: &[u8] = b"24searchsorted_cuda_kernelI";
        let from = number_after(name, SEARCH)?;
        let to = Type::of_letter(*name.get(position(name, SEARCH)? + SEARCH.len() + 1)?)?;
        Some(Kernel::Sorts { from, to })
    }

    /// Where the indices are that it takes elements by.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name.
    pub unsafe fn indices(self, arguments: *const *const c_void) -> Vec<u64> {
        let Kernel::Indexes { puts: false, .. } = self else { return Vec::new() };
        // SAFETY: the caller's.
        let closure = unsafe { Closure::of(arguments, 3) };
        let count = usize::try_from(closure.word(2)).unwrap_or(0).min(MOST_INDICES_KNOWN);
        (0..count).map(|i| closure.word(3 + i)).collect()
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
        // SAFETY: the caller's; each argument that is read is a pointer or a number of the kernel.
        let word = |i: usize| unsafe { arguments.add(i).read().cast::<u64>().read_unaligned() };
        // SAFETY: the same.
        let half = |i: usize| unsafe { arguments.add(i).read().cast::<u32>().read_unaligned() };
        let forgotten = |to: u64| vec![Effect::Unknown(to, u64::MAX)];
        match self {
            Kernel::Finds { width } => {
                // From where it counts, where the elements are, where to, how many are found, state, two that are
                // nothing, how many.
                let (first, mask, to) = (word(0), word(1), word(2));
                let count = usize::try_from(half(7)).unwrap_or(usize::MAX);
                let size = count.checked_mul(width).filter(|&it| it <= MOST_BYTES);
                let found = size.and_then(|it| known(mask, it)).map(|mask| {
                    let set = (first..).zip(mask.chunks_exact(width));
                    set.filter(|it| it.1.iter().any(|&byte| byte != 0))
                        .flat_map(|it| it.0.to_le_bytes())
                        .collect::<Vec<_>>()
                });
                found.map_or_else(|| forgotten(to), |it| vec![Effect::Known(to, it)])
            }
            Kernel::Unravels => {
                let (at, dims, count) = (word(0), half(2), word(3));
                // SAFETY: sizes of 64 bits, of sixteen dimensions.
                let size = |i: usize| unsafe {
                    arguments.add(1).read().cast::<i64>().add(i).read_unaligned()
                };
                let unravelled = || {
                    let dims = usize::try_from(dims).ok().filter(|it| (1..=16).contains(it))?;
                    let count = usize::try_from(count).ok().filter(|&it| it <= MOST)?;
                    let flat = known(at, 8 * count)?;
                    let flat =
                        flat.chunks_exact(8).map(|it| Type::Long.read(it)).collect::<Vec<_>>();
                    let mut columns = Vec::with_capacity(dims);
                    let mut step = 1_i64;
                    for dim in (0..dims).rev() {
                        let size = size(dim).max(1);
                        let place = |it: &i64| (it / step % size).to_le_bytes();
                        columns.push(flat.iter().flat_map(place).collect::<Vec<_>>());
                        step = step.checked_mul(size)?;
                    }
                    columns.reverse();
                    Some(vec![Effect::Known(at, columns.concat())])
                };
                unravelled().unwrap_or_else(|| forgotten(at))
            }
            // SAFETY: the caller's.
            Kernel::Indexes { width, puts } => unsafe { indexed(width, puts, arguments, known) },
            // SAFETY: the caller's.
            Kernel::Copies { width } => unsafe { put_along(width, false, arguments, known) },
            // SAFETY: the caller's.
            Kernel::Fills { width } => unsafe { put_along(width, true, arguments, known) },
            // SAFETY: the caller's.
            Kernel::Flips { width } => unsafe { flipped(width, arguments, known) },
            Kernel::TakesRows => {
                // To, from, indices, how many, bytes of a row, rows, from one to the next in both.
                let to = word(0);
                let rows = || {
                    let count = usize::try_from(half(3)).ok().filter(|&it| it <= MOST)?;
                    let size = usize::try_from(word(4)).ok()?;
                    count.checked_mul(size).filter(|&it| it <= MOST_BYTES)?;
                    let (all, from_next) = (word(5).cast_signed(), word(6));
                    (usize::try_from(word(7)) == Ok(size)).then_some(())?;
                    let indices = known(word(2), 8 * count)?;
                    let mut bytes = Vec::with_capacity(count * size);
                    for it in indices.chunks_exact(8) {
                        let row = place(Type::Long.read(it), all)?;
                        bytes.extend(known(word(1) + row.checked_mul(from_next)?, size)?);
                    }
                    Some(vec![Effect::Known(to, bytes)])
                };
                rows().unwrap_or_else(|| forgotten(to))
            }
            Kernel::Differs { key } => {
                // How many, what, and where to, as 32 bits.
                let (count, from, to) = (word(0), word(1), word(2));
                let compared = || {
                    let count = usize::try_from(count).ok().filter(|&it| it <= MOST)?;
                    let bytes = known(from, count * key.width())?;
                    let elements = || bytes.chunks_exact(key.width());
                    let differs =
                        elements().zip(elements().skip(1)).map(|it| i32::from(it.0 != it.1));
                    Some(
                        [0].into_iter()
                            .chain(differs)
                            .take(count)
                            .flat_map(i32::to_le_bytes)
                            .collect(),
                    )
                };
                compared().map_or_else(|| forgotten(to), |it| vec![Effect::Known(to, it)])
            }
            Kernel::Scatters => {
                // How many, what, indices, and where to, as 64 bits.
                let to = word(3);
                let scattered = || {
                    let count = usize::try_from(word(0)).ok().filter(|&it| it <= MOST)?;
                    let (from, indices) = (known(word(1), 8 * count)?, known(word(2), 8 * count)?);
                    let mut result = vec![0; 8 * count];
                    for (number, index) in from.chunks_exact(8).zip(indices.chunks_exact(8)) {
                        let at = 8 * usize::try_from(Type::Long.read(index)).ok()?;
                        result.get_mut(at..at + 8)?.copy_from_slice(number);
                    }
                    Some(result)
                };
                scattered().map_or_else(|| forgotten(to), |it| vec![Effect::Known(to, it)])
            }
            Kernel::Sorts { from, to } => {
                // To, numbers, bounds, an order of these, lengths of both, how many, right, one row of bounds.
                let (out, numbers, bounds, order) = (word(0), word(1), word(2), word(3));
                // SAFETY: truth values of the kernel.
                let flag = |i: usize| unsafe { arguments.add(i).read().cast::<u8>().read() } != 0;
                let sorted = || {
                    (order == 0 && flag(8)).then_some(())?;
                    let few = |it: u64| usize::try_from(it).ok().filter(|&it| it <= MOST);
                    let read = |at: u64, count: usize| {
                        let bytes = known(at, count * from.width())?;
                        Some(
                            bytes
                                .chunks_exact(from.width())
                                .map(|it| from.ordered(it))
                                .collect::<Vec<_>>(),
                        )
                    };
                    let (bounds, numbers) =
                        (read(bounds, few(word(5))?)?, read(numbers, few(word(6))?)?);
                    let right = flag(7);
                    let mut bytes = Vec::with_capacity(numbers.len() * to.width());
                    for number in numbers {
                        let place =
                            bounds.partition_point(|&it| it < number || right && it == number);
                        to.write(i64::try_from(place).ok()?, &mut bytes);
                    }
                    Some(vec![Effect::Known(out, bytes)])
                };
                sorted().unwrap_or_else(|| forgotten(out))
            }
        }
    }
}

/// Tensors of indices that one kernel is followed with.
const MOST_INDICES_KNOWN: usize = 5;

/// What a kernel is launched with that walks through tensors of any strides: how many elements, and a closure that has an
/// offset calculator, and words behind it.
struct Closure {
    elements: u64,
    at: *const u8,
    offsets: Offsets,
}

impl Closure {
    /// # Safety
    ///
    /// `arguments` must be those of such a kernel over so many tensors, and live as long as what is returned.
    unsafe fn of(arguments: *const *const c_void, tensors: usize) -> Closure {
        // SAFETY: the caller's.
        unsafe {
            Closure {
                elements: arguments.read().cast::<u64>().read_unaligned(),
                at: arguments.add(1).read().cast(),
                offsets: Offsets { at: 0, tensors },
            }
        }
    }

    /// How many elements there are; none if there are none, or more than are followed.
    fn count(&self) -> Option<usize> {
        usize::try_from(self.elements).ok().filter(|&it| 0 < it && it <= MOST)
    }

    fn word(&self, i: usize) -> u64 {
        let from = self.offsets.end().next_multiple_of(8) + 8 * i;
        // SAFETY: the words of such a kernel stand there.
        unsafe { self.at.add(from).cast::<u64>().read_unaligned() }
    }

    /// A number of the offset calculator.
    fn number(&self, at: usize) -> u32 {
        // SAFETY: the offset calculator is as long as it reads.
        unsafe { self.at.add(at).cast::<u32>().read_unaligned() }
    }
}

/// An index into so many, counted from the end if it is negative.
fn place(index: i64, size: i64) -> Option<u64> {
    let index = if index < 0 { index + size } else { index };
    (0..size).contains(&index).then(|| index.cast_unsigned())
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Indexes`]: how many, and a closure that has an offset calculator, where to, where
/// from, how many indices, and of each where it is, the size that it is for, and the stride in bytes.
unsafe fn indexed(
    width: usize,
    puts: bool,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    const MOST_INDICES: usize = 25;
    // SAFETY: the caller's.
    let closure = unsafe { Closure::of(arguments, 3) };
    let (word, number) = (|i| closure.word(i), |at| closure.number(at));
    let (to, from) = (word(0), word(1));
    let moved = || {
        let count = closure.count()?;
        let indices = usize::try_from(word(2)).ok();
        let indices = indices.filter(|it| (1..=MOST_INDICES_KNOWN).contains(it))?;
        let last = closure.offsets.of(count - 1, number)?;
        let spans: Vec<Vec<u8>> = (0..indices)
            .map(|i| known(word(3 + i), usize::try_from(last[2]).ok()? + 8))
            .collect::<Option<_>>()?;
        let mut moves = Vec::with_capacity(count);
        for [out, input, index, _] in closure.offsets.walk(count, number)? {
            let index = usize::try_from(index).ok()?;
            let mut by = 0_u64;
            for (which, span) in spans.iter().enumerate() {
                let size = word(3 + MOST_INDICES + which).cast_signed();
                let stride = word(3 + 2 * MOST_INDICES + which);
                let row = place(Type::Long.read(span.get(index..index + 8)?), size)?;
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
        placed(to, moves, &source, width, &known)
    };
    moved().unwrap_or_else(|| vec![Effect::Unknown(to, u64::MAX)])
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Copies`] or, if it `fills`, of [`Kernel::Fills`]: how many, and a closure that has an
/// offset calculator, where to, where the indices are, of the first where from, the size and the stride of the dimension, and
/// of the second the value.
unsafe fn put_along(
    width: usize,
    fills: bool,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    // SAFETY: the caller's.
    let closure = unsafe { Closure::of(arguments, if fills { 2 } else { 3 }) };
    let (to, indices) = (closure.word(0), closure.word(1));
    let moved = || {
        let count = closure.count()?;
        let last = closure.offsets.of(count - 1, |at| closure.number(at))?;
        let span = |from: u64, last: u64, width: usize| {
            known(from, usize::try_from(last).ok()?.checked_add(width)?)
        };
        let source = if fills {
            closure.word(4).to_le_bytes().to_vec()
        } else {
            span(closure.word(2), last[2], width)?
        };
        let indices = span(indices, last[1], 8)?;
        let rest = if fills { 2 } else { 3 };
        let size = closure.word(rest).cast_signed();
        let stride = usize::try_from(closure.word(rest + 1)).ok()?.checked_mul(width)?;
        let mut moves = Vec::with_capacity(count);
        for [out, index, input, _] in closure.offsets.walk(count, |at| closure.number(at))? {
            let index = Type::Long.read(indices.get(usize::try_from(index).ok()?..)?);
            let row = usize::try_from(place(index, size)?).ok()?;
            let input = if fills { 0 } else { usize::try_from(input).ok()? };
            moves.push((usize::try_from(out).ok()?.checked_add(row.checked_mul(stride)?)?, input));
        }
        placed(to, moves, &source, width, known)
    };
    moved().unwrap_or_else(|| vec![Effect::Unknown(to, u64::MAX)])
}

/// Elements of `source`, moved to where the first numbers say from where the second ones do. What lies between them need not be
/// known, if they are few, or if there is nothing between them.
fn placed(
    to: u64,
    mut moves: Vec<(usize, usize)>,
    source: &[u8],
    width: usize,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Vec<Effect>> {
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
        return Some(runs.into_iter().map(|it| Effect::Known(to + wide(it.0), it.1)).collect());
    }
    let (last, run) = runs.last()?;
    let mut result = known(to, last + run.len()).filter(|it| it.len() <= MOST_BYTES)?;
    for (out, run) in runs {
        result[out..out + run.len()].copy_from_slice(&run);
    }
    Some(vec![Effect::Known(to, result)])
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Flips`]: how many, and a closure that has an offset calculator with signs, where
/// to, and where from.
unsafe fn flipped(
    width: usize,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    // SAFETY: the caller's.
    let closure = unsafe { Closure::of(arguments, 2) };
    let (to, from) = (closure.word(0), closure.word(1));
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
        Some(vec![Effect::Known(begin, result)])
    };
    turned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longs(it: &[i64]) -> Vec<u8> {
        it.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let index = "_ZN2at6native24index_elementwise_kernelILi128ELi4EZNS0_16gpu_index_kernelIZZZNS0_17index_kernel_implINS0_10OpaqueTypeILi8EEEEEvRNS_18TensorIteratorBaseEN3c108ArrayRefIlEES8_EUlPcPKclE_EEvS6_S8_S8_RKT_bEUliE_EEvlT1_";
        let of = |name: &str| Kernel::of(name.as_bytes());
        assert_eq!(of(index), Some(Kernel::Indexes { width: 8, puts: false }));
        let put = index.replace("17index_kernel_impl", "21index_put_kernel_impl");
        assert_eq!(of(&put), Some(Kernel::Indexes { width: 8, puts: true }));
        assert_eq!(of(&index.replace("ILi8EEEEE", "ILi16EEEEE")), None);
        let search = "_ZN2at6native49_GLOBAL__N__c6f87824_16_Bucketization_cu_723a43a424searchsorted_cuda_kernelIllEEvPT0_PKT_S7_PKllllbb";
        assert_eq!(of(search), Some(Kernel::Sorts { from: Type::Long, to: Type::Long }));
    }

    #[test]
    fn a_mask_becomes_places() {
        let (first, mask, to, zero, count) = (0_u64, 4096_u64, 8192_u64, 0_u64, 6_u32);
        let zero = (&raw const zero).cast::<c_void>();
        let arguments: [*const c_void; 8] = [
            (&raw const first).cast(),
            (&raw const mask).cast(),
            (&raw const to).cast(),
            zero,
            zero,
            zero,
            zero,
            (&raw const count).cast(),
        ];
        let known = |at, size| (at == 4096 && size == 6).then(|| vec![0, 1, 0, 0, 1, 1]);
        // SAFETY: arguments as the kernel has them.
        let effects = unsafe { Kernel::Finds { width: 1 }.effects(arguments.as_ptr(), known) };
        assert_eq!(effects, [Effect::Known(8192, longs(&[1, 4, 5]))]);

        let (dims, count, sizes) = (2_u32, 3_u64, [2_i64, 3]);
        let arguments: [*const c_void; 4] = [
            (&raw const to).cast(),
            (&raw const sizes).cast(),
            (&raw const dims).cast(),
            (&raw const count).cast(),
        ];
        // SAFETY: the same.
        let effects =
            unsafe { Kernel::Unravels.effects(arguments.as_ptr(), |_, _| Some(longs(&[1, 4, 5]))) };
        assert_eq!(effects, [Effect::Known(8192, longs(&[0, 1, 1, 1, 1, 2]))]);
    }

    #[test]
    fn what_unique_left_says_which_each_was() {
        let of = |name: &str| {
            let file = "_ZN2at6native8internal45_GLOBAL__N__8f8ab667_12_UniqueCub_cu_fdb07b41";
            Kernel::of(format!("{file}{name}").as_bytes())
        };
        let differs = of("26adjacent_difference_kernelIPKlEEvlT_Pi");
        assert_eq!(differs, Some(Kernel::Differs { key: Type::Long }));
        assert_eq!(of("14scatter_kernelElPKlS4_Pl"), Some(Kernel::Scatters));
        let run = |kernel: Kernel, words: &[u64]| {
            let arguments =
                words.iter().map(|it| std::ptr::from_ref(it).cast()).collect::<Vec<_>>();
            let known = |at, _| Some(longs(if at == 64 { &[3, 3, 8] } else { &[2, 0, 1] }));
            // SAFETY: arguments as the kernels have them.
            unsafe { kernel.effects(arguments.as_ptr(), known) }
        };
        let halves = [0_i32, 0, 1].iter().flat_map(|it| it.to_le_bytes()).collect();
        let kernel = Kernel::Differs { key: Type::Long };
        assert_eq!(run(kernel, &[3, 64, 256]), [Effect::Known(256, halves)]);
        let moved = run(Kernel::Scatters, &[3, 64, 128, 256]);
        assert_eq!(moved, [Effect::Known(256, longs(&[3, 8, 3]))]);
    }

    #[test]
    fn numbers_find_their_place_among_bounds() {
        let (to, numbers, bounds, none) = (64_u64, 128_u64, 256_u64, 0_u64);
        let (rows, bounded, count) = (1_u64, 3_u64, 4_u64);
        let run = |right: u8| {
            let one = 1_u8;
            let arguments: [*const c_void; 9] = [
                (&raw const to).cast(),
                (&raw const numbers).cast(),
                (&raw const bounds).cast(),
                (&raw const none).cast(),
                (&raw const rows).cast(),
                (&raw const bounded).cast(),
                (&raw const count).cast(),
                (&raw const right).cast(),
                (&raw const one).cast(),
            ];
            let known = |at, _| Some(longs(if at == 128 { &[-1, 3, 4, 9] } else { &[0, 3, 7] }));
            let kernel = Kernel::Sorts { from: Type::Long, to: Type::Long };
            // SAFETY: arguments as the kernel has them.
            unsafe { kernel.effects(arguments.as_ptr(), known) }
        };
        assert_eq!(run(0), [Effect::Known(64, longs(&[0, 1, 2, 3]))]);
        assert_eq!(run(1), [Effect::Known(64, longs(&[0, 2, 2, 3]))]);
    }
}
