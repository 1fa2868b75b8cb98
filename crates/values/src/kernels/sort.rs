//! Known numbers, sorted, and what goes with them: `argsort`, `topk`'s last step, `unique` of more than one block sorts.
//! CUB sorts by digits, one kernel for each, as many as a key has, and carries values along
//! (`DeviceRadixSortOnesweepKernel`); short vectors take one kernel; rows are sorted where they are
//! (`aten/src/ATen/native/cuda/SortUtils.cuh`). `coalesce()` sorts by merging (`DeviceMergeSortBlockSortKernel`, and others that
//! merge): what the last of them leaves is written when the first is launched.

use crate::arguments::{Arguments, TensorInfo};
use crate::guesses::choices;
use crate::memory::writes::Write;
use crate::memory::{Known, KnowsAny, MOST_LOOKED_AT, known_among};
use crate::names::{self, has, position};
use crate::types::{ScalarType, as_f64, number_after};

/// Elements that are sorted at most.
const MOST: usize = 1 << 18;
/// Likewise where they are sorted once: the indices of an embedding's gradient.
const MOST_MERGED: usize = 1 << 21;

/// Digits up to this one are counted instead of compared; CUB's passes have eight bits.
const FEW_DIGITS: u64 = (1 << 12) - 1;

/// A kernel that sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `DeviceRadixSortSingleTileKernel`: all at once, of values of that many bytes, none if they are zero.
    Whole { key: ScalarType, value: usize, descending: bool },
    /// `DeviceRadixSortOnesweepKernel`: by one digit, and otherwise in the order in which they came.
    Digit { key: ScalarType, value: usize, descending: bool },
    /// `radixSortKVInPlace`, `bitonicSortKVInPlace` and, since torch 2.15 from 33 to 128 elements, `warpMergeSortKVInPlace`: rows,
    /// with values of 64 bits.
    Rows { key: ScalarType, descending: Option<bool> },
    /// `DeviceMergeSortBlockSortKernel` with `LTOp`: the first of several, with values of 64 bits.
    Merged { key: ScalarType },
    /// Likewise, in an order or of types that are not followed.
    MergedOtherwise,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        // The value of `SortOrder`, or a truth value behind the policy, is a template argument.
        let descending = has(name, names::DESCENDING) || has(name, names::DESCENDING_FLAG);
        if has(name, names::DEVICE_RADIX_SORT_SINGLE_TILE) {
            let (key, value) = key_and_value(name)?;
            return Some(Kernel::Whole { key, value, descending });
        }
        if has(name, names::DEVICE_RADIX_SORT_ONESWEEP) {
            let (key, value) = key_and_value(name)?;
            return Some(Kernel::Digit { key, value, descending });
        }
        if has(name, names::MERGE_SORT_OF_BLOCKS) {
            // The types of a key and of a value end the template's arguments, but for a helper since torch 2.15.
            let types = &name[..position(name, b"EvbT0_T1_T2_T3_T4_PT6_PT7_T5_").unwrap_or(0)];
            let types = match position(types, names::HELPER_OF_CUB) {
                Some(at) => types[..at].rsplitn(2, |it| *it == b'N').last().unwrap_or_default(),
                None => types.strip_suffix(b"E").unwrap_or_default(),
            };
            let key = number_after(name, names::LESS_THAN).filter(|_| types.ends_with(b"l"));
            return Some(key.map_or(Kernel::MergedOtherwise, |key| Kernel::Merged { key }));
        }
        let rows = [
            names::RADIX_SORT_IN_PLACE,
            names::BITONIC_SORT_IN_PLACE,
            names::WARP_MERGE_SORT_IN_PLACE,
        ]
        .into_iter()
        .find_map(|part| Some(&name[position(name, part)? + part.len()..]))?;
        // Numbers as `Li2E`, then the types of key, value and, after a comparison perhaps, position.
        let mut rest = rows;
        while let Some(number) = rest.strip_prefix(b"L") {
            rest = &number[number.iter().position(|&it| it == b'E')? + 1..];
        }
        let [key, b'l', after @ ..] = rest else { return None };
        let key = ScalarType::of_letter(*key).or_else(|| ScalarType::of_float(*key))?;
        let descending = if after.starts_with(b"jE") {
            None // It is an argument.
        } else {
            has(after, b"EEj").then_some(())?;
            Some(has(after, names::GREATER_THAN))
        };
        Some(Kernel::Rows { key, descending })
    }

    /// What it writes.
    pub(crate) fn writes(
        self,
        arguments: Arguments<'_>,
        known: Known<'_>,
        knows_any: KnowsAny<'_>,
    ) -> Option<Vec<Write>> {
        let address = |i: usize| arguments.address(i);
        let few = |i: usize| arguments.count(i).map(|it| Some(it).filter(|&it| it <= MOST));
        let bit = |i: usize| arguments.count(i).map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        match self {
            // Keys, sorted keys, values, sorted values, how many, the first bit and the one behind the last.
            Kernel::Whole { key, value, descending } => {
                let bits = (bit(5)?, bit(6)?.saturating_sub(bit(5)?));
                let (from, count) = ((address(0)?, address(2)?), few(4)?);
                let sorted = || sorted(key, value, descending, bits, count?, from, known);
                let to = (address(1)?, address(3)?);
                let in_part = || {
                    let keys = Keys { key, descending, at: from.0, count: arguments.count(4)? };
                    keys.with_values(bits.0, (from.1, value), known, knows_any)
                };
                Some(sorted().map_or_else(
                    || unsorted(to, value, in_part()),
                    |it| written(to.0, to.1, value, Some(it)),
                ))
            }
            // State, counters, two tables of digits, sorted keys, keys, sorted values, values, how many, first bit, bits.
            Kernel::Digit { key, value, descending } => {
                let bits = (bit(9)?, bit(10)?);
                let (from, count) = ((address(5)?, address(7)?), few(8)?);
                let sorted = || sorted(key, value, descending, bits, count?, from, known);
                let to = (address(4)?, address(6)?);
                let in_part = || {
                    let keys = Keys { key, descending, at: from.0, count: arguments.count(8)? };
                    keys.with_values(bits.0, (from.1, value), known, knows_any)
                };
                Some(sorted().map_or_else(
                    || unsorted(to, value, in_part()),
                    |it| written(to.0, to.1, value, Some(it)),
                ))
            }
            // Which of two buffers, keys, values, where both go, how many, and what is between.
            Kernel::Merged { key } => {
                let elements = |i: usize| arguments.elements(i, 0);
                let (from, count) = ((elements(1)?, elements(2)?), arguments.count(5)?);
                let sorted = || {
                    let count = Some(count).filter(|&it| it <= MOST_MERGED)?;
                    sorted(key, 8, false, (0, u32::MAX), count, from, known)
                };
                Some(written(elements(3)?, elements(4)?, 8, sorted()))
            }
            Kernel::MergedOtherwise => Some(vec![
                Write::Unknown(arguments.elements(3, 0)?, u64::MAX),
                Write::Unknown(arguments.elements(4, 0)?, u64::MAX),
            ]),
            // Keys, how many rows, how long, how far apart, values, how far apart they are, and the order.
            Kernel::Rows { key, descending } => {
                let descending = match descending {
                    Some(it) => it,
                    None => arguments.flag(6)?,
                };
                let (keys, values) = (arguments.tensor_address(0)?, arguments.tensor_address(4)?);
                let shape = (arguments.count(1)?, arguments.count(2)?);
                let (rows, length) = (few(1)?, few(2)?);
                let apart = [arguments.count(3)?, arguments.count(5)?];
                let dense = apart == [1, 1] || shape.1 == 1;
                let sorted_rows = || {
                    let (rows, length) = (rows?, length?);
                    (rows.checked_mul(length)? <= MOST).then_some(())?;
                    if !dense {
                        let (keys, values) = (arguments.tensor(0)?, arguments.tensor(4)?);
                        let keys = Slices { tensor: keys, rows, length, apart: apart[0] };
                        let values = Slices { tensor: values, rows, length, apart: apart[1] };
                        return apart_sorted(key, descending, &keys, &values, known);
                    }
                    let mut writes = Vec::new();
                    for row in 0..rows {
                        let at = |from: u64, width: usize| {
                            from + u64::try_from(row * length * width).unwrap_or(0)
                        };
                        let from = (at(keys, key.width()), at(values, 8));
                        let it = sorted(key, 8, descending, (0, u32::MAX), length, from, known)?;
                        writes.extend(written(from.0, from.1, 8, Some(it)));
                    }
                    Some(writes)
                };
                Some(sorted_rows().unwrap_or_else(|| {
                    let known_places = || {
                        let reads = (known, knows_any);
                        dense.then(|| out_last(key, descending, shape, (keys, values), reads))?
                    };
                    let places = known_places().map(|it| Write::Known(values, it));
                    vec![Write::Unknown(keys, u64::MAX), places.unwrap_or(Write::Shuffled(values))]
                }))
            }
        }
    }
}

/// The values of rows that lie one after the other, where few of the keys are known: see [`Keys::places`]. None if none of them says anything.
fn out_last(
    key: ScalarType,
    descending: bool,
    (rows, length): (usize, usize),
    (keys, values): (u64, u64),
    (known, knows_any): (Known<'_>, KnowsAny<'_>),
) -> Option<Vec<u8>> {
    let count = rows.checked_mul(length).filter(|it| (1..=MOST_LOOKED_AT).contains(it))?;
    let values = known(values, count * 8)?;
    let mut res = Vec::with_capacity(values.len());
    let mut says_something = false;
    for (row, values) in values.chunks_exact(8 * length).enumerate() {
        let at = keys + u64::try_from(row * length * key.width()).unwrap_or(0);
        let keys = Keys { key, descending, at, count: length };
        match keys.places(known, knows_any) {
            Some(order) => {
                says_something = true;
                res.extend(in_order::<8>(values, &order));
            }
            None => res.extend_from_slice(values),
        }
    }
    says_something.then_some(res)
}

/// Keys of which few are known.
struct Keys {
    key: ScalarType,
    descending: bool,
    at: u64,
    count: usize,
}

impl Keys {
    /// Where each of the sorted ones was before: those that a program put at an end stand there (see [`choices::is_out`]), and of the others
    /// any order is as good. None if nothing of them says so.
    fn places(&self, known: Known<'_>, knows_any: KnowsAny<'_>) -> Option<Vec<usize>> {
        let key = self.key;
        if key.is_whole() || MOST_LOOKED_AT < self.count {
            return None;
        }
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (i, bytes) in known_among(self.at, (self.count, key.width()), known, knows_any) {
            let number = as_f64(key.read(&bytes));
            let rank = if self.descending { !key.ordered(&bytes) } else { key.ordered(&bytes) };
            if choices::is_out(number, self.descending) {
                last.push((rank, i));
            } else if choices::is_out(number, !self.descending) {
                first.push((rank, i));
            }
        }
        if first.is_empty() && last.is_empty() {
            return None;
        }
        first.sort_unstable();
        last.sort_unstable();
        let mut is_placed = vec![false; self.count];
        first.iter().chain(&last).for_each(|(_, i)| is_placed[*i] = true);
        let others = (0..self.count).filter(|i| !is_placed[*i]);
        let of = |it: &[(u64, usize)]| -> Vec<usize> { it.iter().map(|(_, i)| *i).collect() };
        Some(of(&first).into_iter().chain(others).chain(of(&last)).collect())
    }

    /// What goes with the keys, so many bytes each, after the pass over the digits from bit `bit` on: the first pass puts it into its places,
    /// and those that follow leave it there.
    fn with_values(
        &self,
        bit: u32,
        (values, width): (u64, usize),
        known: Known<'_>,
        knows_any: KnowsAny<'_>,
    ) -> Option<Vec<u8>> {
        (width == 8 && self.count <= MOST_LOOKED_AT).then_some(())?;
        if bit != 0 {
            return known(values, self.count * 8);
        }
        let order = self.places(known, knows_any)?;
        Some(in_order::<8>(&known(values, self.count * 8)?, &order))
    }
}

/// Keys that nobody knows, and values of that many bytes that are known perhaps.
fn unsorted((keys, values): (u64, u64), width: usize, known_values: Option<Vec<u8>>) -> Vec<Write> {
    let mut res = vec![Write::Unknown(keys, u64::MAX)];
    if width != 0 {
        res.push(
            known_values.map_or(Write::Unknown(values, u64::MAX), |it| Write::Known(values, it)),
        );
    }
    res
}

/// Rows of a tensor whose elements lie apart: a sort along another dimension than the last one.
struct Slices<'a> {
    /// With a size of one in the dimension that is sorted.
    tensor: TensorInfo<'a>,
    rows: usize,
    length: usize,
    /// From one element of a row to the next, in elements.
    apart: usize,
}

impl Slices<'_> {
    /// Where the elements of each row lie, in elements.
    fn places(&self) -> Option<Vec<Vec<usize>>> {
        let place = |begin: usize, i: usize| begin.checked_add(i.checked_mul(self.apart)?);
        let row = |row| {
            let begin = self.tensor.element_of_row(row)?;
            (0..self.length).map(|i| place(begin, i)).collect()
        };
        (0..self.rows).map(row).collect()
    }

    /// All that lies between the first element and the last one, of so many bytes each.
    fn span(&self, places: &[Vec<usize>], width: usize, known: Known<'_>) -> Option<Vec<u8>> {
        let last = places.iter().flatten().max()?.checked_add(1)?;
        known(self.tensor.address()?, last.checked_mul(width).filter(|&it| it <= 8 * MOST)?)
    }
}

/// Rows whose elements lie apart, sorted where they are, with values of 64 bits.
fn apart_sorted(
    key: ScalarType,
    descending: bool,
    keys: &Slices<'_>,
    values: &Slices<'_>,
    known: Known<'_>,
) -> Option<Vec<Write>> {
    let width = key.width();
    let (key_places, value_places) = (keys.places()?, values.places()?);
    let old_keys = keys.span(&key_places, width, known)?;
    let old_values = values.span(&value_places, 8, known)?;
    let (mut new_keys, mut new_values) = (old_keys.clone(), old_values.clone());
    for (key_places, value_places) in key_places.iter().zip(&value_places) {
        let mut order: Vec<usize> = (0..keys.length).collect();
        order.sort_by_key(|&i| {
            let it = key.ordered(&old_keys[key_places[i] * width..]);
            if descending { !it } else { it }
        });
        for (to, from) in order.into_iter().enumerate() {
            let put = |new: &mut Vec<u8>, old: &[u8], places: &[usize], width: usize| {
                let (to, from) = (places[to] * width, places[from] * width);
                new[to..to + width].copy_from_slice(&old[from..from + width]);
            };
            put(&mut new_keys, &old_keys, key_places, width);
            put(&mut new_values, &old_values, value_places, 8);
        }
    }
    let (to, values_to) = (keys.tensor.address()?, values.tensor.address()?);
    Some(vec![Write::Known(to, new_keys), Write::Known(values_to, new_values)])
}

/// The type of the keys of a kernel of CUB's radix sort, and the bytes of a value.
fn key_and_value(name: &[u8]) -> Option<(ScalarType, usize)> {
    let policy = names::one_of(name, &[names::POLICY_HUB, names::RADIX_SORT_POLICY])?;
    let key = number_after(name, policy)?;
    let value = name.get(position(name, policy)? + policy.len() + 1..)?;
    const OPAQUE: &[u8] = names::OPAQUE_TYPE;
    let opaque = || {
        let at = value.windows(OPAQUE.len()).take(40).position(|it| it == OPAQUE)? + OPAQUE.len();
        match value.get(at..)? {
            [digit @ (b'1' | b'2' | b'4' | b'8'), b'E', ..] => Some(usize::from(digit - b'0')),
            _ => None,
        }
    };
    let width = match value.first()? {
        b'l' | b'm' => 8,
        b'i' | b'j' => 4,
        _ if value.starts_with(names::NULL_TYPE_OF_CUB) => 0,
        _ => opaque()?,
    };
    Some((key, width))
}

/// `count` keys in the order of `bits`, a first one and how many, and their values; what is equal stays in its order.
fn sorted(
    key: ScalarType,
    value: usize,
    descending: bool,
    (first, bits): (u32, u32),
    count: usize,
    (keys, values): (u64, u64),
    known: Known<'_>,
) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let width = key.width();
    let keys = known(keys, count * width)?;
    let values = if value == 0 { None } else { known(values, count * value) };
    let mask = 1_u64.checked_shl(bits).map_or(u64::MAX, |it| it - 1);
    let digit = |element: &[u8]| {
        let digit = key.ordered(element).checked_shr(first).unwrap_or(0) & mask;
        if descending { mask - digit } else { digit }
    };
    let digits: Vec<u64> = keys.chunks_exact(width).map(digit).collect();
    let order = if mask <= FEW_DIGITS { by_counting(&digits, mask) } else { by_comparing(&digits) };
    let take = |from: &[u8], width: usize| match width {
        8 => in_order::<8>(from, &order),
        4 => in_order::<4>(from, &order),
        2 => in_order::<2>(from, &order),
        _ => in_order::<1>(from, &order),
    };
    Some((take(&keys, width), values.map(|it| take(&it, value))))
}

/// Where each digit of the sorted ones was before, by how many are smaller: digits are few.
fn by_counting(digits: &[u64], most: u64) -> Vec<usize> {
    let of = |digit: u64| usize::try_from(digit).unwrap_or(0);
    let mut next = vec![0; of(most) + 2];
    for it in digits {
        next[of(*it) + 1] += 1;
    }
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    let mut order = vec![0; digits.len()];
    for (i, it) in digits.iter().enumerate() {
        let to = &mut next[of(*it)];
        order[*to] = i;
        *to += 1;
    }
    order
}

fn by_comparing(digits: &[u64]) -> Vec<usize> {
    let mut order: Vec<(u64, usize)> = digits.iter().copied().zip(0..).collect();
    order.sort_by_key(|it| it.0);
    order.into_iter().map(|it| it.1).collect()
}

/// Elements of `N` bytes in this order.
fn in_order<const N: usize>(from: &[u8], order: &[usize]) -> Vec<u8> {
    let (elements, _) = from.as_chunks::<N>();
    let mut res = Vec::with_capacity(order.len() * N);
    for &i in order {
        res.extend_from_slice(&elements[i]);
    }
    res
}

fn written(
    keys: u64,
    values: u64,
    value: usize,
    sorted: Option<(Vec<u8>, Option<Vec<u8>>)>,
) -> Vec<Write> {
    let (known_keys, known_values) = sorted.map_or((None, None), |it| (Some(it.0), it.1));
    let effect = |at, bytes: Option<Vec<u8>>| {
        bytes.map_or(Write::Unknown(at, u64::MAX), |it| Write::Known(at, it))
    };
    let keys = effect(keys, known_keys);
    if value == 0 { vec![keys] } else { vec![keys, effect(values, known_values)] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let of = |name: &str| Kernel::of(name.as_bytes());
        let pass = "_ZN14at_cuda_detail3cub6detail10radix_sort29DeviceRadixSortOnesweepKernelINS1_5radix10policy_hubIllyE10Policy1000ELNS0_9SortOrderE0EllyiiNS1_21identity_decomposer_tEEEvPT5_";
        let (key, descending) = (ScalarType::Long, false);
        assert_eq!(of(pass), Some(Kernel::Digit { key, value: 8, descending }));
        let alone = pass.replace("hubIlly", "hubIlNS0_8NullTypeEy").replace("OrderE0E", "OrderE1E");
        assert_eq!(of(&alone), Some(Kernel::Digit { key, value: 0, descending: true }));
        let opaque = pass.replace("hubIlly", "hubIlN2at4cuda3cub6detail10OpaqueTypeILi4EEEy");
        assert_eq!(of(&opaque), Some(Kernel::Digit { key, value: 4, descending }));
        let rows = "_ZN2at6native18radixSortKVInPlaceILi2ELin1ELi16ELi2EfljEEvNS_4cuda6detail10TensorInfoIT3_T5_EES6_S6_S6_NS4_IT4_S6_EES6_b";
        let key = ScalarType::Float;
        assert_eq!(of(rows), Some(Kernel::Rows { key, descending: None }));
        let compared = "_ZN2at6native20bitonicSortKVInPlaceILi2ELin1ELi16ELi16EflNS0_4GTOpIfLb1EEEjEEvNS_4cuda6detail10TensorInfoIT3_T6_EES8_";
        assert_eq!(of(compared), Some(Kernel::Rows { key, descending: Some(true) }));
        let merge = "_ZN14at_cuda_detail3cub6detail10merge_sort30DeviceMergeSortBlockSortKernelINS2_10policy_hubIN6thrust23THRUST_300001_SM_900_NS10device_ptrIlEEE9Policy600ES8_S8_S8_S8_jN2at6native4LTOpIlLb0EEEllEEvbT0_T1_T2_T3_T4_PT6_PT7_T5_NS1_7vsmem_tE";
        let helped = merge.replace("EllEEvb", "EllNS2_11VSMemHelperEEEvb");
        for it in [merge, &helped] {
            assert_eq!(of(it), Some(Kernel::Merged { key: ScalarType::Long }), "{it}");
            let other = it.replace("EllEE", "ElfEE").replace("EllNS2", "ElfNS2");
            assert_eq!(of(&other), Some(Kernel::MergedOtherwise), "{other}");
        }
        let merged = "_ZN2at6native22warpMergeSortKVInPlaceILin1ELin1ELi128ELi16EflNS0_4LTOpIfLb1EEEjLi32EEEvNS_4cuda6detail10TensorInfoIT3_T6_EES8_";
        assert_eq!(of(merged), Some(Kernel::Rows { key, descending: Some(false) }));
    }

    #[test]
    fn counted_and_compared_come_to_the_same_and_what_is_equal_stays_in_its_order() {
        let digits = [3, 0, 3, 255, 1, 0];
        assert_eq!(by_counting(&digits, 255), [1, 5, 4, 0, 2, 3]);
        assert_eq!(by_counting(&digits, 255), by_comparing(&digits));
        let keys: Vec<u8> = [0x0103_i64, 0x0201, 0x0002].map(i64::to_le_bytes).concat();
        let known = |at, _| Some(if at == 0 { keys.clone() } else { vec![7, 8, 9] });
        let by = |descending, bits| {
            sorted(ScalarType::Long, 1, descending, bits, 3, (0, 64), &known).and_then(|it| it.1)
        };
        assert_eq!(by(false, (0, 8)), Some(vec![8, 9, 7]));
        assert_eq!(by(false, (8, 8)), Some(vec![9, 7, 8]));
        assert_eq!(by(true, (8, 8)), Some(vec![8, 7, 9]));
        assert_eq!(by(false, (0, u32::MAX)), Some(vec![9, 7, 8]));
    }

    #[test]
    fn columns_are_sorted_where_they_are() {
        // Two columns of three; a row's elements are two apart.
        let words = |it: &[u64]| it.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        let info = |address: u64| {
            let mut bytes = words(&[address]);
            let mut numbers = [0_u32; 51];
            (numbers[0], numbers[25], numbers[50]) = (2, 1, 1);
            bytes.extend(numbers.iter().flat_map(|it| it.to_le_bytes()));
            bytes
        };
        let (keys, values) = (info(4096), info(8192));
        let launch = Launch::of(&[
            Made::Structure("at::cuda::detail::TensorInfo<long, unsigned int>", &keys),
            Made::Unsigned(2),
            Made::Unsigned(3),
            Made::Unsigned(2),
            Made::Structure("at::cuda::detail::TensorInfo<long, unsigned int>", &values),
            Made::Unsigned(2),
            Made::Flag(false),
        ]);
        let known =
            |at, _| Some(words(if at == 4096 { &[3, 1, 0, 5, 2, 4] } else { &[0, 0, 1, 1, 2, 2] }));
        let kernel = Kernel::Rows { key: ScalarType::Long, descending: None };
        let writes = kernel.writes(launch.arguments(), &known, &|_, _| true).unwrap();
        let expected = [
            Write::Known(4096, words(&[0, 1, 2, 4, 3, 5])),
            Write::Known(8192, words(&[1, 0, 2, 2, 0, 1])),
        ];
        assert_eq!(writes, expected);
    }

    #[test]
    fn numbers_of_every_kind_are_in_order() {
        let mut last = 0;
        for it in [f32::NEG_INFINITY, -2.0, -0.5, 0.0, 1e-9, 3.0, f32::INFINITY] {
            let now = ScalarType::Float.ordered(&it.to_le_bytes());
            assert!(last < now, "{it}");
            last = now;
        }
        let of = |it: i64| ScalarType::Long.ordered(&it.to_le_bytes());
        assert!(of(i64::MIN) < of(-1) && of(-1) < of(0) && of(0) < of(i64::MAX));
    }

    #[test]
    fn passes_by_digits_sort_and_carry_along() {
        let bytes = |it: &[i64]| it.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        let mut memory = (bytes(&[300, -5, 7, 300]), bytes(&[0, 1, 2, 3]));
        for first in (0..64).step_by(8) {
            let known = |at, _| Some(if at == 1 { memory.0.clone() } else { memory.1.clone() });
            let it = sorted(ScalarType::Long, 8, false, (first, 8), 4, (1, 2), &known).unwrap();
            memory = (it.0, it.1.unwrap());
        }
        assert_eq!(memory, (bytes(&[-5, 7, 300, 300]), bytes(&[1, 2, 0, 3])));
        let known = |at, _| (at == 1).then(|| bytes(&[1, 2]));
        let it = sorted(ScalarType::Long, 8, true, (0, 64), 2, (1, 2), &known);
        assert_eq!(it, Some((bytes(&[2, 1]), None)), "values that nobody knows");
    }

    #[test]
    fn what_a_program_put_at_an_end_stands_there_and_the_others_as_they_came() {
        // Of half a million numbers four are known.
        let count = 1 << 19;
        let number = |i: usize| match i {
            0 => Some(0.0_f32),
            7 => Some(-2.0),
            300_000 => Some(f32::INFINITY),
            9 => Some(0.5),
            _ => None,
        };
        let width = 4;
        let known = |at: u64, size: usize| {
            let at = usize::try_from(at).unwrap() / width;
            if at < count {
                return number(at).filter(|_| size == width).map(|it| it.to_le_bytes().to_vec());
            }
            Some((0..count as u64).flat_map(u64::to_le_bytes).collect())
        };
        let knows_any = |at: u64, size: u64| {
            let (from, to) = (at / 4, (at + size) / 4);
            [0, 7, 9, 300_000].iter().any(|it| (from..to).contains(it))
        };
        let keys = |descending| Keys { key: ScalarType::Float, descending, at: 0, count };
        let values = 8 * count as u64;
        let of = |descending, bit| {
            let bytes = keys(descending).with_values(bit, (values, 8), &known, &knows_any).unwrap();
            let (numbers, _) = bytes.as_chunks::<8>();
            numbers.iter().map(|it| u64::from_le_bytes(*it)).collect::<Vec<_>>()
        };
        let up = of(false, 0);
        assert_eq!((&up[..4], up[count - 1]), (&[7, 0, 1, 2][..], 300_000));
        let down = of(true, 0);
        assert_eq!((&down[..3], &down[count - 2..]), (&[300_000, 1, 2][..], &[0, 7][..]));
        assert_eq!(of(true, 8)[..3], [0, 1, 2], "later passes leave them where they are");
        let nobody = keys(false).with_values(0, (values, 8), &|_, _| None, &|_, _| false);
        assert_eq!(nobody, None);
    }
}
