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
use crate::histogram;
use crate::joins;
use crate::kernels;
use crate::lists;
use crate::offsets::Offsets;
use crate::places;
use crate::reductions::Summary;
use crate::scatters;
use crate::sequences;
use crate::sorts;
use crate::steps;

/// Elements that are computed at most.
pub const MOST: usize = 1 << 17;

/// An element's type, as `c10::ScalarType` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Byte = 0,
    Char = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Float = 6,
    Double = 7,
    Bool = 11,
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
        !matches!(self, Self::Float | Self::Double)
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
        b"hasilbfd".iter().find_map(|&it| of(it).filter(|it| *it as u8 == number))
    }

    pub fn width(self) -> usize {
        match self {
            Self::Byte | Self::Char | Self::Bool => 1,
            Self::Short => 2,
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
            Self::Float | Self::Double if bits & sign != 0 => !bits & (sign | (sign - 1)),
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
        let value = if self == Self::Float { f64::from(rounded(value)) } else { value };
        value.to_bits().cast_signed()
    }

    /// `value` as this float has it.
    fn rounded(self, value: f64) -> f64 {
        as_f64(self.of_f64(value))
    }

    /// `value` as this type stores it.
    pub fn write(self, value: i64, out: &mut Vec<u8>) {
        if self == Self::Float {
            out.extend_from_slice(&rounded(as_f64(value)).to_le_bytes());
            return;
        }
        let value = if self == Self::Bool { i64::from(value != 0) } else { value };
        out.extend_from_slice(&value.to_le_bytes()[..self.width()]);
    }
}

/// The float that these bits are.
pub fn as_f64(bits: i64) -> f64 {
    f64::from_bits(bits.cast_unsigned())
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

/// What is done to one element, or to all of them in a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    And,
    Or,
    Xor,
    Multiply,
    /// a + alpha * b
    Add,
    /// `EqOpType`: 0 is equal, 1 is not equal.
    Equal,
    /// `CompareKernels.cu`, `OpType`: at least, above, at most, below.
    Order,
    LogicalAnd,
    LogicalOr,
    Not,
    LogicalNot,
    Copy,
    Fill,
    Negate,
    Absolute,
    /// Towards minus infinity, as Python's `//`.
    DivideFloor,
    /// With the sign of the divisor, as Python's `%`.
    Remainder,
    Largest,
    Smallest,
    Divide,
    /// Towards zero.
    DivideTruncated,
    /// Between two numbers, above the first or below it, as `ClampLimits` says.
    Clamp,
    Floor,
    Ceiling,
    Truncate,
    Root,
    Reciprocal,
    Square,
    Cube,
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
const SCATTERING: [&[u8]; 3] = [b"masked_scatter", b"index_fill_kernel", b"index_copy_kernel"];

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
    if SCATTERING.iter().any(|it| has(name, it)) {
        return Some(Kernel::Scatters);
    }
    if let Some(kernel) = steps::Kernel::of(name) {
        return Some(Kernel::Steps(kernel));
    }
    if has(name, b"25multi_tensor_apply_kernel") {
        return lists::Kernel::of(name).map(Kernel::OverwritesLists);
    }
    if has(name, b"13reduce_kernel") {
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
    let dense = has(name, b"27unrolled_elementwise_kernelI")
        || has(name, b"29vectorized_elementwise_kernelI");
    let followed = elements::Kernel::of(name).map(Kernel::Elementwise);
    followed.or_else(|| dense.then_some(Kernel::Overwrites))
}

/// What comes of a number and one that nobody knows, if that does not matter: a text that has got as long as it may be
/// has ended, `done | (token == end)`, whatever the token is.
pub fn decided(action: Action, kind: Type, number: i64) -> Option<i64> {
    let decides = match action {
        Action::Or => number == if kind == Type::Bool { 1 } else { -1 },
        Action::LogicalOr => return (number != 0).then_some(1),
        Action::And | Action::LogicalAnd => number == 0,
        // Zero times what is no number is none.
        Action::Multiply => number == 0 && kind.is_whole(),
        _ => false,
    };
    decides.then_some(number)
}

/// One element of the result; nothing divides by zero.
pub fn apply(action: Action, kind: Type, choice: i64, a: i64, b: i64) -> Option<i64> {
    let truth = i64::from;
    if !kind.is_whole() {
        return apply_to_floats(action, kind, choice, as_f64(a), as_f64(b));
    }
    Some(match action {
        Action::And => a & b,
        Action::Or => a | b,
        Action::Xor => a ^ b,
        Action::Multiply => a.wrapping_mul(b),
        Action::Add => a.wrapping_add(choice.wrapping_mul(b)),
        Action::Equal => truth((a == b) != (choice != 0)),
        Action::Order => truth(is_ordered(choice, a, b)),
        Action::LogicalAnd => truth(a != 0 && b != 0),
        Action::LogicalOr => truth(a != 0 || b != 0),
        Action::Not if kind == Type::Bool => truth(a == 0),
        Action::Not => !a,
        Action::LogicalNot => truth(a == 0),
        Action::Copy | Action::Fill => a,
        Action::Negate => a.wrapping_neg(),
        Action::Absolute => a.wrapping_abs(),
        Action::DivideFloor => {
            let down = a.checked_rem(b)? != 0 && (a < 0) != (b < 0);
            a.checked_div(b)? - i64::from(down)
        }
        Action::Remainder => {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        Action::Largest => a.max(b),
        Action::Smallest => a.min(b),
        Action::DivideTruncated => a.checked_div(b)?,
        Action::Square => a.wrapping_mul(a),
        Action::Cube => a.wrapping_mul(a).wrapping_mul(a),
        Action::Floor | Action::Ceiling | Action::Truncate => a,
        Action::Divide | Action::Clamp | Action::Root | Action::Reciprocal => return None,
    })
}

/// What a comparison finds: `OpType` of `aten/src/ATen/native/cuda/CompareKernels.cu`.
fn is_ordered<T: PartialOrd>(choice: i64, a: T, b: T) -> bool {
    match choice {
        0 => a >= b,
        1 => a > b,
        2 => a <= b,
        _ => a < b,
    }
}

/// Likewise, of floats; a factor is one, too.
#[expect(clippy::float_cmp, reason = "the device compares in the same way")]
fn apply_to_floats(action: Action, kind: Type, choice: i64, a: f64, b: f64) -> Option<i64> {
    let truth = i64::from;
    let number = |it: f64| kind.of_f64(it);
    Some(match action {
        Action::Multiply => number(a * b),
        Action::Add => number(as_f64(choice).mul_add(b, a)),
        Action::Equal => truth((a == b) != (choice != 0)),
        Action::Order => truth(is_ordered(choice, a, b)),
        Action::LogicalAnd => truth(a != 0.0 && b != 0.0),
        Action::LogicalOr => truth(a != 0.0 || b != 0.0),
        Action::LogicalNot => truth(a == 0.0),
        Action::Copy | Action::Fill => number(a),
        Action::Negate => number(-a),
        Action::Absolute => number(a.abs()),
        Action::Largest => number(a.max(b)),
        Action::Smallest => number(a.min(b)),
        Action::Divide => number(a / b),
        Action::DivideTruncated => number(kind.rounded(a / b).trunc()),
        Action::Floor => number(a.floor()),
        Action::Ceiling => number(a.ceil()),
        Action::Truncate => number(a.trunc()),
        Action::Root => number(a.sqrt()),
        Action::Reciprocal => number(a.recip()),
        Action::Square => number(a * a),
        Action::Cube => number(kind.rounded(a * a) * a),
        Action::And
        | Action::Or
        | Action::Xor
        | Action::Not
        | Action::DivideFloor
        | Action::Clamp
        | Action::Remainder => {
            return None;
        }
    })
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
        Kernel::Reduction(summary) => unsafe { summary.effects(arguments, known) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_as_in_python() {
        let of = |action, a, b| apply(action, Type::Long, 1, a, b);
        assert_eq!(of(Action::DivideFloor, -7, 2), Some(-4));
        assert_eq!(of(Action::DivideFloor, 7, 2), Some(3));
        assert_eq!(of(Action::Remainder, -7, 2), Some(1));
        assert_eq!(of(Action::Remainder, 7, -2), Some(-1));
        assert_eq!(of(Action::DivideFloor, 7, 0), None);
    }

    #[test]
    fn what_writes_into_a_tensor_makes_nothing_sure() {
        assert_eq!(
            kernel_of(b"_ZN2at6native24index_elementwise_kernelILi128E"),
            Some(Kernel::Puts)
        );
        let adds =
            b"_ZN2at6native49_GLOBAL__N__24indexing_backward_kernelIfLi4EEEvPKlS3_PKT_PS4_lllib";
        assert_eq!(kernel_of(adds), Some(Kernel::Adds));
        let of_floats = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";
        assert!(matches!(kernel_of(of_floats), Some(Kernel::Elementwise(_))));
    }
}
