//! Vectors that are made of nothing but their length: `arange`, `linspace`, the places in each row of a long sort;
//! `repeat_interleave`, whose result has as many elements as its numbers say; and the place of each index of a sparse tensor, if
//! its dimensions were one (`aten/src/ATen/native/cuda/RangeFactories.cu`, `Repeat.cu`, `Sort.cu`,
//! `aten/src/ATen/native/sparse/FlattenIndicesCommon.h`).

use crate::arguments::{Arguments, Structure};
use crate::memory::Known;
use crate::memory::writes::{MOST, Write};
use crate::names::{self, has, position};
use crate::types::{ScalarType, as_f64, letter_after};

/// A kernel of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// `arange_cuda_out`.
    Ranges { to: ScalarType },
    /// `linspace` of 32-bit floats.
    Divides,
    /// `fill_reverse_indices_kernel` of a long sort: places in each row, in 64 bits.
    PlacesInRows,
    /// `compute_cuda_kernel` of `repeat_interleave`.
    Repeats { key: ScalarType },
    /// `_flatten_indices_impl` of up to eight dimensions and 64 bits; or otherwise.
    Flattens { followed: bool },
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        if letter_after(name, names::WITH_INDEX).is_some() {
            // The dispatch over floats is the second one, and in it doubles come before 32 bits.
            const SINGLE: &[u8] = b"ENKUlvE0_clEvENKUlvE0_clEv";
            if has(name, names::LINSPACE) && has(name, SINGLE) {
                return Some(Kernel::Divides);
            }
            let to = range_type(name.get(position(name, names::ARANGE)?..)?)?;
            return Some(Kernel::Ranges { to });
        }
        if has(name, names::REVERSE_INDICES) {
            return Some(Kernel::PlacesInRows);
        }
        if let Some(at) = position(name, names::FLATTEN_INDICES) {
            let dense =
                has(name, names::VECTORIZED_ELEMENTWISE) || has(name, names::UNROLLED_ELEMENTWISE);
            let followed = has(&name[at..], names::OF_LONGS_AND_UP_TO_EIGHT)
                && !has(name, names::LOAD_WITH_CAST);
            return dense.then_some(Kernel::Flattens { followed });
        }
        let key = letter_after(name, names::REPEAT_INTERLEAVE)?;
        Some(Kernel::Repeats { key })
    }

    /// What it writes.
    pub(crate) fn writes(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
        match self {
            Kernel::Ranges { to } => range(to, arguments),
            Kernel::Divides => divided(arguments),
            Kernel::PlacesInRows => places_in_rows(arguments),
            Kernel::Repeats { key } => repeated(key, arguments, known),
            Kernel::Flattens { followed } => flattened(followed, arguments, known),
        }
    }
}

/// The type of a range's elements: the kernels of one function are numbered in the order of its dispatch, bytes,
/// signed bytes, 32 bits, 64 bits, 16 bits, and then floats of 64 and of 32 bits.
fn range_type(name: &[u8]) -> Option<ScalarType> {
    [
        (b"clEvENKUlvE1_".as_slice(), ScalarType::Int),
        (b"clEvENKUlvE2_", ScalarType::Long),
        (b"clEvENKUlvE4_", ScalarType::Double),
        (b"clEvENKUlvE5_", ScalarType::Float),
    ]
    .into_iter()
    .find_map(|(part, kind)| has(name, part).then_some(kind))
}

/// How many, in 32 or 64 bits, `{ first, step }` in 64 bits, of floats in theirs, and where to.
fn range(to: ScalarType, arguments: Arguments<'_>) -> Option<Vec<Write>> {
    let held = if to.is_whole() { ScalarType::Long } else { to };
    let bounds = Structure { named: &["at::native::arange_cuda_out("], size: 2 * held.width() };
    let (count, bounds, address) =
        (arguments.count(0)?, arguments.structure(1, bounds)?, arguments.address(2)?);
    let (first, step) = (bounds.element(0, held)?, bounds.element(held.width(), held)?);
    if MOST < count {
        return Some(vec![Write::Unknown(address, u64::MAX)]);
    }
    let mut result = Vec::with_capacity(count * to.width());
    for i in (0_i64..).take(count) {
        let value = if to.is_whole() {
            first.wrapping_add(step.wrapping_mul(i))
        } else {
            let i = to.rounded(as_f64(ScalarType::Long.into(ScalarType::Double, i)));
            to.of_f64(as_f64(step).mul_add(i, as_f64(first)))
        };
        to.write(value, &mut result);
    }
    Some(vec![Write::Known(address, result)])
}

/// How many; `{ indices, i64 from one to the next, i64 dimensions, i64 what one of each is worth[8], i64 from one dimension to the
/// next }`; and where to.
fn flattened(followed: bool, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    const DIMENSIONS: usize = 8;
    let address =
        arguments.structure(2, Structure { named: &["rray<char*, "], size: 8 })?.u64(0)?;
    let unknown = vec![Write::Unknown(address, u64::MAX)];
    if !followed {
        return Some(unknown);
    }
    let named = &["_flatten_indices_impl<"];
    let count = arguments.count(0)?;
    let it = arguments.structure(1, Structure { named, size: 8 * (DIMENSIONS + 4) })?;
    let flat = || {
        let word = |i: usize| usize::try_from(it.i64(8 * i)?).ok();
        let (next, dims, apart) = (word(1)?, word(2)?, word(3 + DIMENSIONS)?);
        (0 < count && count <= MOST && (1..=DIMENSIONS).contains(&dims)).then_some(())?;
        let at = |i: usize, dim: usize| {
            i.checked_mul(next)?.checked_add(dim.checked_mul(apart)?)?.checked_mul(8)
        };
        let size = at(count - 1, dims - 1)?.checked_add(8)?;
        (size <= 8 * DIMENSIONS * MOST).then_some(())?;
        let indices = known(it.u64(0)?, size)?;
        let mut bytes = Vec::with_capacity(8 * count);
        for i in 0..count {
            let mut place = 0_i64;
            for dim in 0..dims {
                let index = ScalarType::Long.read(indices.get(at(i, dim)?..)?);
                place = place.checked_add(index.checked_mul(it.i64(8 * (3 + dim))?)?)?;
            }
            ScalarType::Long.write(place, &mut bytes);
        }
        Some(vec![Write::Known(address, bytes)])
    };
    Some(flat().unwrap_or(unknown))
}

/// How many, `{ first, last, i64 steps, step, i64 half of them }`, and where to.
fn divided(arguments: Arguments<'_>) -> Option<Vec<Write>> {
    let bounds = Structure { named: &["at::native::linspace_cuda_out("], size: 32 };
    let (count, bounds, address) =
        (arguments.count(0)?, arguments.structure(1, bounds)?, arguments.address(2)?);
    let (first, last, step, half) =
        (bounds.f32(0)?, bounds.f32(4)?, bounds.f32(16)?, bounds.i64(24)?);
    let Ok(count) = u16::try_from(count) else {
        return Some(vec![Write::Unknown(address, u64::MAX)]);
    };
    let element = |i: u16| {
        if i64::from(i) < half {
            step.mul_add(f32::from(i), first)
        } else {
            (-step).mul_add(f32::from(count - i - 1), last)
        }
    };
    let bytes = (0..count).flat_map(|it| element(it).to_le_bytes()).collect();
    Some(vec![Write::Known(address, bytes)])
}

/// Where to, how many, and a divisor, which begins with itself (`IntDivider` of `ATen/cuda/detail/IntegerDivider.cuh`).
fn places_in_rows(arguments: Arguments<'_>) -> Option<Vec<Write>> {
    let divisor = Structure { named: &["at::cuda::detail::IntDivider<"], size: 4 };
    let (to, count, row) =
        (arguments.address(0)?, arguments.count(1)?, arguments.structure(2, divisor)?.u32(0)?);
    let count = u32::try_from(count).ok();
    let few = |it: &u32| usize::try_from(*it).is_ok_and(|it| it <= MOST) && row != 0;
    let Some(count) = count.filter(few) else {
        return Some(vec![Write::Unknown(to, u64::MAX)]);
    };
    let places = (0..count).flat_map(|it| u64::from(it % row).to_le_bytes());
    Some(vec![Write::Known(to, places.collect())])
}

/// How often each, the sums of these, where to, how many, and how many come out.
fn repeated(key: ScalarType, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
    let (repeats, to) = (arguments.address(0)?, arguments.address(2)?);
    let (count, size) = (arguments.count(3)?, arguments.count(4)?);
    if MOST < count || MOST < size {
        return Some(Vec::new());
    }
    let Some(bytes) = known(repeats, count * key.width()) else { return Some(Vec::new()) };
    let mut result = Vec::with_capacity(size * key.width());
    for (i, times) in (0_i64..).zip(bytes.chunks(key.width())) {
        let times = usize::try_from(key.read(times)).ok().filter(|&it| it <= MOST);
        for _ in 0..times.unwrap_or(0) {
            key.write(i, &mut result);
        }
    }
    let is_whole = result.len() == size * key.width();
    Some(if is_whole { vec![Write::Known(to, result)] } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    #[test]
    fn a_stretch_is_divided_from_both_ends() {
        let name = b"_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel_with_indexIiZZZN2at6native17linspace_cuda_outERKN3c106ScalarES6_lRNS1_6TensorEENKUlvE0_clEvENKUlvE0_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE";
        assert_eq!(Kernel::of(name), Some(Kernel::Divides));
        let mut bounds = [0; 32];
        bounds[4..8].copy_from_slice(&1_f32.to_le_bytes());
        bounds[8] = 3;
        bounds[16..20].copy_from_slice(&0.5_f32.to_le_bytes());
        bounds[24] = 1;
        let launch = Launch::of(&[
            Made::Int(3),
            Made::Structure("at::native::linspace_cuda_out(...)::{lambda(long)#1}", &bounds),
            Made::Address(4096),
        ]);
        let writes = Kernel::Divides.writes(launch.arguments(), &|_, _| None).unwrap();
        let bytes = [0.0_f32, 0.5, 1.0].iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(writes, [Write::Known(4096, bytes)]);
    }

    #[test]
    fn ranges_and_repetitions_are_told_and_computed() {
        let name = b"_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel_with_indexIiZZZN2at6native15arange_cuda_outERKN3c106ScalarES6_S6_RNS1_6TensorEENKUlvE_clEvENKUlvE2_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE";
        assert_eq!(Kernel::of(name), Some(Kernel::Ranges { to: ScalarType::Long }));
        let bounds = [2_i64, 3].map(i64::to_le_bytes).concat();
        let launch = Launch::of(&[
            Made::Int(3),
            Made::Structure("at::native::arange_cuda_out(...)::{lambda(long)#1}", &bounds),
            Made::Address(8192),
        ]);
        let narrow = Kernel::Ranges { to: ScalarType::Int };
        let writes = narrow.writes(launch.arguments(), &|_, _| None).unwrap();
        assert_eq!(writes, [Write::Known(8192, vec![2, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0])]);

        let repeats = Kernel::of(b"_Z19compute_cuda_kernelIlEvPKT_PKlPS0_ll");
        assert_eq!(repeats, Some(Kernel::Repeats { key: ScalarType::Long }));
        let launch = Launch::of(&[
            Made::Address(4096),
            Made::Address(0),
            Made::Address(8192),
            Made::Long(3),
            Made::Long(3),
        ]);
        let known = |_, size| (size == 3).then(|| vec![2, 0, 1]);
        let writes = Kernel::Repeats { key: ScalarType::Byte }.writes(launch.arguments(), &known);
        assert_eq!(writes.unwrap(), [Write::Known(8192, vec![0, 0, 2])]);
    }
}
