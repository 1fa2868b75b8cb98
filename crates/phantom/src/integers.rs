//! Small tensors of whole numbers, truth values and floats, computed. Nothing runs on the phantom, but some
//! loops end by a handful of numbers that come from known ones (`unfinished & ~(length >= longest)`
//! in text generation, a counter, a mask of lengths), and an unknown zero would never end them. The
//! kernels that make such numbers are PyTorch's element-wise ones and its reductions; what each is,
//! and where its operands lie, is told by its mangled name and by the layout of its arguments
//! (`aten/src/ATen/native/cuda/CUDALoops.cuh`, `MemoryAccess.cuh`, `Reduce.cuh`).
//!
//! Only what is known in full is computed, and only up to [`MOST`] elements: never a weight, never an
//! activation. A layout that does not look as expected computes nothing, and the value is unknown.

use std::ffi::c_void;

use crate::draws;
use crate::effects::Effect;
use crate::elements;
use crate::halves;
use crate::histogram;
use crate::joins;
use crate::kernels;
use crate::lists;
use crate::offsets::Offsets;
use crate::places;
use crate::pools;
use crate::reductions::{self, Summary};
use crate::scatters;
use crate::sequences;
use crate::sorts;
use crate::steps;
use crate::triangles;

/// Elements that are computed at most.
pub const MOST: usize = 1 << 20;

/// An element's type, as `c10::ScalarType` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Byte = 0,
    Char = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Half = 5,
    Float = 6,
    Double = 7,
    Bool = 11,
    Brain = 15,
}

impl Type {
    /// The float that a mangled name means by this letter.
    pub fn of_float(letter: u8) -> Option<Self> {
        match letter {
            b'f' => Some(Self::Float),
            b'd' => Some(Self::Double),
            _ => None,
        }
    }

    pub fn is_whole(self) -> bool {
        !matches!(self, Self::Half | Self::Float | Self::Double | Self::Brain)
    }

    /// What is computed with, of halves.
    pub fn working(self) -> Self {
        if matches!(self, Self::Half | Self::Brain) { Self::Float } else { self }
    }

    /// The type that a mangled name means here, and how many letters say so. `c10` may have been named before.
    pub fn of_name(name: &[u8]) -> Option<(Self, usize)> {
        let of = |part: &[u8], kind| {
            let at = position(name.get(..name.len().min(20))?, part)?;
            let is_name = matches!(&name[..at], b"N3c10") || name.starts_with(b"NS") && at < 7;
            is_name.then_some((kind, at + part.len()))
        };
        match *name.first()? {
            b'N' => of(b"4HalfE", Self::Half).or_else(|| of(b"8BFloat16E", Self::Brain)),
            letter => Some((Self::of_letter(letter).or_else(|| Self::of_float(letter))?, 1)),
        }
    }

    /// The whole type that a mangled name means by this letter.
    pub fn of_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b'h' => Self::Byte,
            b'a' => Self::Char,
            b's' => Self::Short,
            b'i' => Self::Int,
            b'l' => Self::Long,
            b'b' => Self::Bool,
            _ => return None,
        })
    }

    /// The type that `c10::ScalarType` gives this number.
    pub fn of_number(number: u8) -> Option<Self> {
        let of = |letter: u8| Self::of_letter(letter).or_else(|| Self::of_float(letter));
        let known = b"hasilbfd".iter().filter_map(|&it| of(it));
        known.chain([Self::Half, Self::Brain]).find(|&it| it as u8 == number)
    }

    pub fn width(self) -> usize {
        match self {
            Self::Byte | Self::Char | Self::Bool => 1,
            Self::Short | Self::Half | Self::Brain => 2,
            Self::Int | Self::Float => 4,
            Self::Long | Self::Double => 8,
        }
    }

    /// The number in the first bytes of `bytes`; of a float, the bits of it as a double.
    pub fn read(self, bytes: &[u8]) -> i64 {
        let mut wide = [0; 8];
        wide[..self.width()].copy_from_slice(&bytes[..self.width()]);
        let value = i64::from_le_bytes(wide);
        let spare = 64 - 8 * self.width();
        match self {
            Self::Byte => value,
            Self::Bool => i64::from(value != 0),
            Self::Float => {
                let [a, b, c, d, ..] = wide;
                f64::from(f32::from_le_bytes([a, b, c, d])).to_bits().cast_signed()
            }
            Self::Half => {
                halves::from_half(u16::from_le_bytes([wide[0], wide[1]])).to_bits().cast_signed()
            }
            Self::Brain => {
                f64::from(f32::from_le_bytes([0, 0, wide[0], wide[1]])).to_bits().cast_signed()
            }
            _ => value << spare >> spare,
        }
    }

    /// The number in `bytes`, such that a larger one has larger bits.
    pub fn ordered(self, bytes: &[u8]) -> u64 {
        let mut wide = [0; 8];
        wide[..self.width()].copy_from_slice(&bytes[..self.width()]);
        let bits = u64::from_le_bytes(wide);
        let sign = 1_u64 << (8 * self.width() - 1);
        match self {
            Self::Byte | Self::Bool => bits,
            _ if !self.is_whole() && bits & sign != 0 => !bits & (sign | (sign - 1)),
            _ => bits ^ sign,
        }
    }

    /// `value`, which is one of this type, as one of another.
    pub fn into(self, other: Self, value: i64) -> i64 {
        match (self.is_whole(), other.is_whole()) {
            (true, true) => value,
            (true, false) => other.of_f64(whole_as_f64(value)),
            (false, true) if other == Self::Bool => i64::from(as_f64(value) != 0.0),
            (false, true) => f64_as_whole(as_f64(value)),
            (false, false) => other.of_f64(as_f64(value)),
        }
    }

    /// `value` as this float has it.
    pub fn of_f64(self, value: f64) -> i64 {
        let value = match self {
            Self::Float => f64::from(rounded(value)),
            Self::Half => halves::from_half(halves::to_half(rounded(value))),
            Self::Brain => {
                f64::from(f32::from_bits(u32::from(halves::to_brain(rounded(value))) << 16))
            }
            _ => value,
        };
        value.to_bits().cast_signed()
    }

    /// `value` as this float has it.
    pub fn rounded(self, value: f64) -> f64 {
        as_f64(self.of_f64(value))
    }

    /// `value` as it is once it was stored as this type.
    pub fn fitted(self, value: i64) -> i64 {
        match self {
            Self::Bool => i64::from(value != 0),
            Self::Byte => value & 0xff,
            Self::Float | Self::Half | Self::Brain => self.of_f64(as_f64(value)),
            Self::Double | Self::Long => value,
            Self::Char | Self::Short | Self::Int => {
                let spare = 64 - 8 * self.width();
                value << spare >> spare
            }
        }
    }

    /// `value` as this type stores it.
    pub fn write(self, value: i64, out: &mut Vec<u8>) {
        match self {
            Self::Float => return out.extend_from_slice(&as_f32(value).to_le_bytes()),
            Self::Half => {
                return out.extend_from_slice(&halves::to_half(as_f32(value)).to_le_bytes());
            }
            Self::Brain => {
                return out.extend_from_slice(&halves::to_brain(as_f32(value)).to_le_bytes());
            }
            _ => {}
        }
        let value = if self == Self::Bool { i64::from(value != 0) } else { value };
        out.extend_from_slice(&value.to_le_bytes()[..self.width()]);
    }
}

/// The float that these bits are.
pub fn as_f64(bits: i64) -> f64 {
    f64::from_bits(bits.cast_unsigned())
}

/// Likewise, as a float of 32 bits.
pub fn as_f32(bits: i64) -> f32 {
    rounded(as_f64(bits))
}

#[expect(clippy::cast_possible_truncation, reason = "the device rounds in the same way")]
fn rounded(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_precision_loss, reason = "the device rounds in the same way")]
fn whole_as_f64(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, reason = "the device cuts off in the same way")]
fn f64_as_whole(value: f64) -> i64 {
    value as i64
}

/// What a kernel does, as far as we can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Element by element.
    Elementwise(elements::Kernel),
    /// `reduce_kernel` of all elements, or of some dimensions.
    Reduction(Summary),
    /// Tensors become one.
    Joins(joins::Kernel),
    /// Finds places, and moves elements by them.
    Places(places::Kernel),
    /// Sorts.
    Sorts(sorts::Kernel),
    /// The elements of a vector in their order.
    Sequence(sequences::Kernel),
    /// How many of each number there are.
    Histogram(histogram::Kernel),
    /// Counts of steps grow.
    Steps(steps::Kernel),
    /// Draws random numbers.
    Draws(draws::Kernel),
    /// Keeps what is above or below a diagonal.
    Cuts(triangles::Kernel),
    /// Pools, enlarges, rolls.
    Pools(pools::Kernel),
    /// Moves elements by an index, or sums them up along a dimension.
    Moves(scatters::Kernel),
    /// Writes a tensor element by element, in a way that we do not follow.
    Overwrites,
    /// Writes tensors of lists, in a way that we do not follow.
    OverwritesLists(lists::Kernel),
    /// Writes parts of one tensor that existed before (`index_put_`).
    Puts,
    /// Likewise (`index_put_` that adds): sorted indices, their order, what is added, and to what.
    Adds,
    /// Likewise, of one that we cannot tell: nothing computed is sure any more.
    Scatters,
}

/// Kernels that write into tensors in place, by a part of their names.
const SCATTERING: [&[u8]; 1] = [b"masked_scatter"];

impl Kernel {
    /// Where the indices are that it takes elements by, if it does.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel whose name gave this one.
    pub unsafe fn indices(self, arguments: *const *const c_void) -> Vec<u64> {
        match self {
            // SAFETY: the caller's.
            Kernel::Places(kernel) => unsafe { kernel.indices(arguments) },
            _ => Vec::new(),
        }
    }

    /// Whether it gathers truth values: what is true stays so.
    pub fn gathers_flags(self) -> bool {
        matches!(self, Kernel::Elementwise(it) if it.is_either())
    }
}

pub fn position(name: &[u8], part: &[u8]) -> Option<usize> {
    name.windows(part.len()).position(|it| it == part)
}

pub fn has(name: &[u8], part: &[u8]) -> bool {
    position(name, part).is_some()
}

/// The type whose letter follows `part`: a template's first argument, where it is one of whole numbers.
pub fn letter_after(name: &[u8], part: &[u8]) -> Option<Type> {
    let at = position(name, part)? + part.len();
    Type::of_letter(*name.get(at)?)
}

/// Likewise, of whole numbers or floats.
pub fn number_after(name: &[u8], part: &[u8]) -> Option<Type> {
    let letter = *name.get(position(name, part)? + part.len())?;
    Type::of_letter(letter).or_else(|| Type::of_float(letter))
}

/// Likewise, of halves, too.
pub fn element_after(name: &[u8], part: &[u8]) -> Option<Type> {
    Some(Type::of_name(name.get(position(name, part)? + part.len()..)?)?.0)
}

/// What the kernel of this (mangled) name does, if it concerns numbers that we follow.
pub fn kernel_of(name: &[u8]) -> Option<Kernel> {
    if let Some(kernel) = joins::Kernel::of(name) {
        return Some(Kernel::Joins(kernel));
    }
    if let Some(kernel) = places::Kernel::of(name) {
        return Some(Kernel::Places(kernel));
    }
    if let Some(kernel) = sorts::Kernel::of(name) {
        return Some(Kernel::Sorts(kernel));
    }
    // `x[indices]` is an `index_elementwise_kernel` that only reads.
    if has(name, b"index_elementwise_kernel") {
        return (!has(name, b"17index_kernel_impl")).then_some(Kernel::Puts);
    }
    if let Some(kernel) = scatters::Kernel::of(name) {
        return Some(Kernel::Moves(kernel));
    }
    if has(name, b"indexing_backward_kernel") {
        return Some(Kernel::Adds);
    }
    let dense = has(name, b"27unrolled_elementwise_kernelI")
        || has(name, b"29vectorized_elementwise_kernelI");
    if !dense && SCATTERING.iter().any(|it| has(name, it)) {
        return Some(Kernel::Scatters);
    }
    if let Some(kernel) = steps::Kernel::of(name) {
        return Some(Kernel::Steps(kernel));
    }
    if has(name, b"25multi_tensor_apply_kernel") {
        return lists::Kernel::of(name).map(Kernel::OverwritesLists);
    }
    if has(name, b"13reduce_kernel") || name == reductions::PRODUCT.to_bytes() {
        return Summary::of(name).map(Kernel::Reduction);
    }
    if let Some(kernel) = sequences::Kernel::of(name) {
        return Some(Kernel::Sequence(kernel));
    }
    if let Some(kernel) = histogram::Kernel::of(name) {
        return Some(Kernel::Histogram(kernel));
    }
    if let Some(kernel) = draws::Kernel::of(name) {
        return Some(Kernel::Draws(kernel));
    }
    if let Some(kernel) = triangles::Kernel::of(name) {
        return Some(Kernel::Cuts(kernel));
    }
    if let Some(kernel) = pools::Kernel::of(name) {
        return Some(Kernel::Pools(kernel));
    }
    let followed = elements::Kernel::of(name).map(Kernel::Elementwise);
    followed.or_else(|| dense.then_some(Kernel::Overwrites))
}

/// What `kernel` does when it is launched with `arguments`. `known` reads device memory in full, or
/// not at all.
///
/// # Safety
///
/// `arguments` must be those of a kernel whose name gave `kernel`.
pub unsafe fn effects(
    kernel: Kernel,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    match kernel {
        Kernel::Scatters => vec![Effect::NothingComputed],
        // SAFETY: the caller's.
        Kernel::Moves(kernel) => unsafe { kernel.effects(arguments, known) },
        Kernel::Overwrites => {
            // SAFETY: how many, the functor, and the addresses, the result's first.
            let (count, to) = unsafe {
                let count = arguments.read().cast::<u32>().read_unaligned();
                (count, arguments.add(2).read().cast::<u64>().read_unaligned())
            };
            vec![Effect::Unknown(to, 8 * u64::from(count))]
        }
        // SAFETY: the caller's.
        Kernel::OverwritesLists(kernel) => unsafe { kernel.effects(arguments) },
        Kernel::Puts => {
            let offsets = Offsets { at: 0, tensors: 3 };
            // SAFETY: how many, and a closure of an offset calculator and the address of what is written to.
            let to = unsafe {
                let closure = arguments.add(1).read().cast::<u8>();
                closure.add(offsets.end().next_multiple_of(8)).cast::<u64>().read_unaligned()
            };
            vec![Effect::Unknown(to, u64::MAX)]
        }
        Kernel::Adds => {
            // SAFETY: the caller's.
            let to = unsafe { arguments.add(3).read().cast::<u64>().read_unaligned() };
            vec![Effect::Unknown(to, u64::MAX)]
        }
        // SAFETY: the caller's.
        Kernel::Elementwise(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Joins(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Places(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Sorts(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Sequence(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Histogram(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Steps(kernel) => unsafe { kernel.effects(kernels::blocks()[0], arguments, known) },
        // SAFETY: the caller's.
        Kernel::Draws(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Cuts(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Pools(kernel) => unsafe { kernel.effects(kernels::blocks()[0], arguments, known) },
        // SAFETY: the caller's.
        Kernel::Reduction(summary) => unsafe { summary.effects(arguments, known) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_into_a_tensor_makes_nothing_sure() {
        assert_eq!(
            kernel_of(b"_ZN2at6native24index_elementwise_kernelILi128E"),
            Some(Kernel::Puts)
        );
        let adds =
            b"_ZN2at6native49_GLOBAL__N__24indexing_backward_kernelIfLi4EEEvPKlS3_PKT_PS4_lllib";
        assert_eq!(kernel_of(adds), Some(Kernel::Adds));
        let product = kernel_of(reductions::PRODUCT.to_bytes());
        assert!(matches!(product, Some(Kernel::Reduction(_))));
        let of_floats = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";
        assert!(matches!(kernel_of(of_floats), Some(Kernel::Elementwise(_))));
    }
}
