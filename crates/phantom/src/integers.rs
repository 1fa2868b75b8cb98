//! Small tensors of whole numbers and truth values, computed. Nothing runs on the phantom, but some
//! loops end by a handful of numbers that come from known ones (`unfinished & ~(length >= longest)`
//! in text generation, a counter, a mask of lengths), and an unknown zero would never end them. The
//! kernels that make such numbers are PyTorch's element-wise ones and its reductions; what each is,
//! and where its operands lie, is told by its mangled name and by the layout of its arguments
//! (`aten/src/ATen/native/cuda/CUDALoops.cuh`, `MemoryAccess.cuh`, `Reduce.cuh`).
//!
//! Only what is known in full is computed, and only up to [`MOST`] elements: never a weight, never an
//! activation. A layout that does not look as expected computes nothing, and the value is unknown.

use std::ffi::c_void;

use crate::contents::Contents;
use crate::histogram;
use crate::reductions::Summary;
use crate::sequences;

/// Elements that are computed at most.
pub const MOST: usize = 4096;

/// An element's type, as `c10::ScalarType` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Byte = 0,
    Char = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Bool = 11,
}

impl Type {
    /// The type that a mangled name means by this letter.
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

    fn of_number(number: u8) -> Option<Self> {
        b"hasilb".iter().find_map(|&it| Self::of_letter(it).filter(|it| *it as u8 == number))
    }

    pub fn width(self) -> usize {
        match self {
            Self::Byte | Self::Char | Self::Bool => 1,
            Self::Short => 2,
            Self::Int => 4,
            Self::Long => 8,
        }
    }

    /// The number in the first bytes of `bytes`.
    pub fn read(self, bytes: &[u8]) -> i64 {
        let mut wide = [0; 8];
        wide[..self.width()].copy_from_slice(&bytes[..self.width()]);
        let value = i64::from_le_bytes(wide);
        let spare = 64 - 8 * self.width();
        match self {
            Self::Byte => value,
            Self::Bool => i64::from(value != 0),
            _ => value << spare >> spare,
        }
    }

    /// `value` as this type stores it.
    pub fn write(self, value: i64, out: &mut Vec<u8>) {
        let value = if self == Self::Bool { i64::from(value != 0) } else { value };
        out.extend_from_slice(&value.to_le_bytes()[..self.width()]);
    }
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
    Largest,
    Smallest,
}

/// Where a kernel has its scalar, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The scalar is all there is: `FillFunctor`.
    Alone,
    /// `BinaryFunctor`: two tensors, and perhaps a choice or a factor in the functor.
    Tensors,
    /// `AUnaryFunctor`: the scalar, then a tensor. Also `CUDAFunctorOnOther_add`.
    ScalarFirst,
    /// `BUnaryFunctor`, `CUDAFunctorOnSelf_add`, a comparison's lambda.
    ScalarLast,
    /// One tensor.
    Unary,
}

/// What a kernel does, as far as we can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `vectorized_elementwise_kernel`, or `unrolled_elementwise_kernel` with or without casts.
    Elementwise { meaning: Meaning, casts: bool },
    /// `reduce_kernel` of all elements, or of some dimensions.
    Reduction(Summary),
    /// The elements of a vector in their order.
    Sequence(sequences::Kernel),
    /// How many of each number there are.
    Histogram(histogram::Kernel),
    /// Writes parts of a tensor that existed before: nothing computed is sure any more.
    Scatters,
}

/// What an element-wise kernel does to its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    action: Action,
    form: Form,
    /// The type that is computed with.
    kind: Type,
}

/// Kernels that write into tensors in place, by a part of their names.
const SCATTERING: [&[u8]; 8] = [
    b"index_elementwise_kernel",
    b"indexing_backward_kernel",
    b"scatter_gather_elementwise",
    b"indexFunc",
    b"masked_fill_kernel",
    b"masked_scatter",
    b"index_fill_kernel",
    b"index_copy_kernel",
];

pub fn position(name: &[u8], part: &[u8]) -> Option<usize> {
    name.windows(part.len()).position(|it| it == part)
}

pub fn has(name: &[u8], part: &[u8]) -> bool {
    position(name, part).is_some()
}

/// The letter that follows `part`: a template's first argument.
pub fn letter_after(name: &[u8], part: &[u8]) -> Option<Type> {
    let at = position(name, part)? + part.len();
    Type::of_letter(*name.get(at)?)
}

/// What the kernel of this (mangled) name does, if it concerns whole numbers.
pub fn kernel_of(name: &[u8]) -> Option<Kernel> {
    // `x[indices]` is an `index_elementwise_kernel` that only reads.
    if SCATTERING.iter().any(|it| has(name, it)) && !has(name, b"17index_kernel_impl") {
        return Some(Kernel::Scatters);
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
    let unrolled = has(name, b"27unrolled_elementwise_kernel");
    if !unrolled && !has(name, b"29vectorized_elementwise_kernel") {
        return None;
    }
    let casts = unrolled && has(name, b"12LoadWithCast");
    Some(Kernel::Elementwise { meaning: meaning(name)?, casts })
}

fn meaning(name: &[u8]) -> Option<Meaning> {
    let meaning = |action, form, kind| Some(Meaning { action, form, kind });
    if let Some(kind) = letter_after(name, b"11FillFunctorI") {
        return meaning(Action::Fill, Form::Alone, kind);
    }
    if let Some(kind) = letter_after(name, b"22CUDAFunctorOnOther_addI") {
        return meaning(Action::Add, Form::ScalarFirst, kind);
    }
    if let Some(kind) = letter_after(name, b"21CUDAFunctorOnSelf_addI") {
        return meaning(Action::Add, Form::ScalarLast, kind);
    }
    if let Some(kind) = letter_after(name, b"15CUDAFunctor_addI") {
        return meaning(Action::Add, Form::Tensors, kind);
    }
    if let Some(kind) = letter_after(name, b"14CompareFunctorI") {
        return meaning(Action::Order, Form::Tensors, kind);
    }
    if let Some(kind) = letter_after(name, b"21compare_scalar_kernelI") {
        return meaning(Action::Order, Form::ScalarLast, kind);
    }
    for (part, action) in [
        (b"bitwise_not_kernel_cuda".as_slice(), Action::Not),
        (b"logical_not_kernel_cuda", Action::LogicalNot),
        (b"direct_copy_kernel_cuda", Action::Copy),
    ] {
        if has(name, part) {
            return meaning(action, Form::Unary, letter_after(name, b"EUl")?);
        }
    }
    let (form, operands) = [
        (Form::Tensors, b"13BinaryFunctorI".as_slice()),
        (Form::ScalarFirst, b"13AUnaryFunctorI"),
        (Form::ScalarLast, b"13BUnaryFunctorI"),
    ]
    .into_iter()
    .find_map(|(form, part)| Some((form, position(name, part)? + part.len())))?;
    let kind = Type::of_letter(*name.get(operands)?)?;
    // Both operands are of one type in these.
    if name.get(operands + 1) != name.get(operands) {
        return None;
    }
    let action = [
        (b"17BitwiseAndFunctor".as_slice(), Action::And),
        (b"16BitwiseOrFunctor", Action::Or),
        (b"17BitwiseXorFunctor", Action::Xor),
        (b"10MulFunctor", Action::Multiply),
        (b"16CompareEqFunctor", Action::Equal),
        (b"23logical_and_kernel_cuda", Action::LogicalAnd),
        (b"22logical_or_kernel_cuda", Action::LogicalOr),
    ]
    .into_iter()
    .find_map(|(part, action)| has(name, part).then_some(action))?;
    meaning(action, form, kind)
}

/// One element of the result.
pub fn apply(action: Action, kind: Type, choice: i64, a: i64, b: i64) -> i64 {
    let truth = i64::from;
    match action {
        Action::And => a & b,
        Action::Or => a | b,
        Action::Xor => a ^ b,
        Action::Multiply => a.wrapping_mul(b),
        Action::Add => a.wrapping_add(choice.wrapping_mul(b)),
        Action::Equal => truth((a == b) != (choice != 0)),
        Action::Order => truth(match choice {
            0 => a >= b,
            1 => a > b,
            2 => a <= b,
            _ => a < b,
        }),
        Action::LogicalAnd => truth(a != 0 && b != 0),
        Action::LogicalOr => truth(a != 0 || b != 0),
        Action::Not if kind == Type::Bool => truth(a == 0),
        Action::Not => !a,
        Action::LogicalNot => truth(a == 0),
        Action::Copy | Action::Fill => a,
        Action::Largest => a.max(b),
        Action::Smallest => a.min(b),
    }
}

/// Whether the result is a truth value, whatever the operands are.
fn is_test(action: Action) -> bool {
    matches!(
        action,
        Action::Equal | Action::Order | Action::LogicalAnd | Action::LogicalOr | Action::LogicalNot
    )
}

/// A write to device memory that a kernel makes.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// These bytes are at this address now.
    Known(u64, Vec<u8>),
    /// Up to so many bytes from this address have a value that we do not know.
    Unknown(u64, u64),
    /// No computed value is sure any more.
    NothingComputed,
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
        Kernel::Elementwise { meaning, casts } => {
            // SAFETY: the caller's.
            vec![unsafe { elementwise(meaning, casts, arguments, known) }]
        }
        // SAFETY: the caller's.
        Kernel::Sequence(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Histogram(kernel) => unsafe { kernel.effects(arguments, known) },
        // SAFETY: the caller's.
        Kernel::Reduction(summary) => unsafe { summary.effects(arguments, known) },
    }
}

/// # Safety
///
/// As [`effects`]: how many elements, the functor, the addresses of result and operands, and with
/// casts two empty structures and the types of operands and result.
unsafe fn elementwise(
    Meaning { action, form, kind }: Meaning,
    casts: bool,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Effect {
    // SAFETY: the first and third argument of every kernel of the two kinds.
    let (count, result) = unsafe {
        let count = arguments.read().cast::<i32>().read_unaligned();
        (usize::try_from(count).unwrap_or(0), arguments.add(2).read().cast::<u64>())
    };
    // SAFETY: the array of addresses has one for the result at least.
    let to = unsafe { result.read_unaligned() };
    // How wide its elements are is told below, or not at all.
    let lost = Effect::Unknown(to, 8 * u64::try_from(count).unwrap_or(u64::MAX));
    if MOST < count {
        return lost;
    }
    let operands = match form {
        Form::Alone => 0,
        Form::Tensors => 2,
        _ => 1,
    };
    let mut types = [kind; 2];
    let mut out = if is_test(action) { Type::Bool } else { kind };
    if casts {
        // SAFETY: `LoadWithCast` and `StoreWithCast` begin with the types, one byte each.
        let (load, store) =
            unsafe { (arguments.add(5).read().cast::<u8>(), arguments.add(6).read().cast::<u8>()) };
        for (i, it) in types.iter_mut().enumerate().take(operands) {
            // SAFETY: one type for each operand.
            let Some(found) = Type::of_number(unsafe { load.add(i).read() }) else {
                return lost;
            };
            *it = found;
        }
        // SAFETY: one type for the result.
        let Some(found) = Type::of_number(unsafe { store.read() }) else { return lost };
        out = found;
    }
    let mut columns = [Vec::new(), Vec::new()];
    for (i, column) in columns.iter_mut().enumerate().take(operands) {
        // SAFETY: one address for each operand follows that of the result.
        let from = unsafe { result.add(1 + i).read_unaligned() };
        let Some(bytes) = known(from, count * types[i].width()) else { return lost };
        // A cast comes first: what is computed with is of the functor's type.
        *column = bytes.chunks(types[i].width()).map(|it| cast(types[i].read(it), kind)).collect();
    }
    // SAFETY: the functor of a kernel of this name.
    let (choice, scalar) = unsafe { functor(action, form, kind, arguments.add(1).read().cast()) };
    let mut bytes = Vec::with_capacity(count * out.width());
    let [first, second] = columns;
    for i in 0..count {
        let at = |column: &[i64]| column.get(i).copied().unwrap_or(0);
        let (a, b) = match form {
            Form::ScalarFirst => (scalar, at(&first)),
            Form::ScalarLast => (at(&first), scalar),
            Form::Alone => (scalar, 0),
            Form::Tensors | Form::Unary => (at(&first), at(&second)),
        };
        let value = apply(action, kind, choice, a, b);
        let value = if is_test(action) { value } else { cast(value, kind) };
        out.write(value, &mut bytes);
    }
    Effect::Known(to, bytes)
}

fn cast(value: i64, kind: Type) -> i64 {
    let mut bytes = Vec::with_capacity(8);
    kind.write(value, &mut bytes);
    kind.read(&bytes)
}

/// The choice or factor, and the scalar, of a functor.
///
/// # Safety
///
/// `functor` must be one of an action and form that [`meaning`] gave.
unsafe fn functor(action: Action, form: Form, kind: Type, functor: *const u8) -> (i64, i64) {
    let width = kind.width();
    // SAFETY: every read below lies in the functor, as the C++ declares it.
    let number =
        |at: usize| unsafe { kind.read(std::slice::from_raw_parts(functor.add(at), width)) };
    // SAFETY: an enumeration of four bytes stands first in functors that have a choice.
    let choice = || i64::from(unsafe { functor.cast::<i32>().read_unaligned() });
    match (action, form) {
        (Action::Fill, _) => (0, number(0)),
        // `CUDAFunctor_add { alpha }`, and the two with one scalar: `{ other, alpha }`.
        (Action::Add, Form::Tensors) => (number(0), 0),
        (Action::Add, _) => (number(width), number(0)),
        (Action::Equal | Action::Order, Form::Tensors) => (choice(), 0),
        (Action::Equal | Action::Order, _) => (choice(), number(width.max(4))),
        // An empty functor takes a byte, and the scalar its alignment.
        (_, Form::ScalarFirst | Form::ScalarLast) => (0, number(width)),
        _ => (0, 0),
    }
}

/// Writes what a kernel did.
pub fn take_effects(contents: &mut Contents, effects: Vec<Effect>) {
    for effect in effects {
        match effect {
            Effect::Known(at, bytes) => contents.write_computed(at, &bytes),
            Effect::Unknown(at, most) => contents.forget_span(at, most),
            Effect::NothingComputed => contents.forget_computed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_whole_numbers_are_told_by_their_mangled_names() {
        let fill = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIbEESt5arrayIPcLm1EEEEviT0_T1_";
        let Some(Kernel::Elementwise { meaning, casts: false }) = kernel_of(fill) else {
            panic!("a fill")
        };
        assert_eq!(meaning, Meaning { action: Action::Fill, form: Form::Alone, kind: Type::Bool });
        let of_floats = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";
        assert_eq!(kernel_of(of_floats), None);
        assert_eq!(
            kernel_of(b"_ZN2at6native24index_elementwise_kernelILi128E"),
            Some(Kernel::Scatters)
        );
    }

    #[test]
    fn a_fill_is_known_and_one_of_too_many_is_not() {
        let fill = Kernel::Elementwise {
            meaning: Meaning { action: Action::Fill, form: Form::Alone, kind: Type::Int },
            casts: false,
        };
        let run = |count: i32| {
            let (value, addresses) = (7_i32, [4096_u64]);
            let arguments: [*const c_void; 3] = [
                (&raw const count).cast(),
                (&raw const value).cast(),
                (&raw const addresses).cast(),
            ];
            // SAFETY: arguments as the kernel has them.
            unsafe { effects(fill, arguments.as_ptr(), |_, _| None) }
        };
        assert_eq!(run(2), [Effect::Known(4096, vec![7, 0, 0, 0, 7, 0, 0, 0])]);
        assert_eq!(run(5000), [Effect::Unknown(4096, 40_000)]);
    }
}
