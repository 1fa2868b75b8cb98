//! Reductions of known numbers and truth values, over all elements or some dimensions: `mask.all()`,
//! `(labels >= 0).sum(-1)`. As with `integers`, what is not known in full stays unknown.

use std::ffi::c_void;

use crate::effects::Effect;
use crate::integers::{Action, MOST, Type, apply, has, number_after, position};
use crate::offsets::Offsets;

/// What a reduction does, to which elements, and the type of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    action: Action,
    element: Type,
    out: Type,
}

impl Summary {
    /// That of the kernel of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Summary> {
        let action = if has(name, b"15and_kernel_cuda") {
            Action::LogicalAnd
        } else if has(name, b"14or_kernel_cuda") {
            Action::LogicalOr
        } else if has(name, b"MaxNanFunctor") {
            Action::Largest
        } else if has(name, b"MinNanFunctor") {
            Action::Smallest
        } else if has(name, b"11sum_functor") {
            Action::Add
        } else {
            return None;
        };
        let element = number_after(name, b"8ReduceOpI")?;
        // The operation ends with `E`, then come the type of the index (j or m) and that of the result.
        let tail = position(name, b"Li4ELi4E").or_else(|| position(name, b"Li4E"))?;
        let letter = *name.get(tail.checked_sub(1)?)?;
        let out = Type::of_letter(letter).or_else(|| Type::of_float(letter))?;
        Some(Summary { action, element, out })
    }

    /// What it writes.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name: one, a `ReduceOp`.
    pub unsafe fn effects(
        self,
        arguments: *const *const c_void,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Vec<Effect> {
        let Summary { action, element, out } = self;
        // SAFETY: a `ReduceOp` is longer than all the offsets below.
        let operation = unsafe { arguments.read().cast::<u8>() };
        // SAFETY: the same.
        let number = |at: usize| unsafe { operation.add(at).cast::<u32>().read_unaligned() };
        // SAFETY: the same.
        let address = |at: usize| unsafe { operation.add(at).cast::<u64>().read_unaligned() };
        let width = element.width();
        let layout = ReduceOp::of(width);
        let [element_size, inputs, outputs] =
            [0, 4, 8].map(|at| usize::try_from(number(layout.config + at)).unwrap_or(0));
        let few = inputs.checked_mul(outputs).is_some_and(|it| 0 < it && it <= MOST);
        if element_size != width || !few {
            return Vec::new();
        }
        let one = Type::Long.into(element, 1);
        // All that is reduced, read at once.
        let end = |calculator: &Offsets, count: usize, which: usize| {
            calculator.of(count - 1, number).and_then(|it| usize::try_from(it[which]).ok())
        };
        let span = end(&layout.input, inputs, 0)
            .zip(end(&layout.output, outputs, 1))
            .and_then(|(along, across)| known(address(layout.source), along + across + width));
        let Some(span) = span else { return Vec::new() };
        let result = |i: usize| {
            let [to, first, ..] = layout.output.of(i, number)?;
            let mut total: Option<i64> = None;
            for j in 0..inputs {
                let [offset, ..] = layout.input.of(j, number)?;
                let value = element.read(span.get(usize::try_from(first + offset).ok()?..)?);
                total = Some(match total {
                    None => value,
                    Some(total) => apply(action, element, one, total, value)?,
                });
            }
            let mut bytes = Vec::new();
            out.write(element.into(out, total?), &mut bytes);
            Some(Effect::Known(address(layout.target) + to, bytes))
        };
        (0..outputs).map(result).collect::<Option<_>>().unwrap_or_default()
    }
}

/// Where the truth values are that a reduction reads.
///
/// # Safety
///
/// `arguments` must be those of a `reduce_kernel` over elements of one byte.
pub unsafe fn source(arguments: *const *const c_void) -> u64 {
    // SAFETY: the caller's.
    unsafe { arguments.read().byte_add(ReduceOp::of(1).source).cast::<u64>().read_unaligned() }
}

/// Where `ReduceOp` has what, for an operation without state, the four-byte index and PyTorch's 25
/// dimensions: `{ ops, ident, ReduceConfig config, OffsetCalculator<1> input, OffsetCalculator<2>
/// output, const void *src, char *dst[2], ... }`.
struct ReduceOp {
    /// `{ int element_size_bytes, num_inputs, num_outputs, ... }`
    config: usize,
    /// Where an element of one result lies: the dimensions that are reduced.
    input: Offsets,
    /// Where a result goes, and where its first element lies.
    output: Offsets,
    source: usize,
    target: usize,
}

impl ReduceOp {
    /// For elements of `width` bytes: so wide, and so aligned, is `ident`.
    fn of(width: usize) -> Self {
        let config = (2 * width).next_multiple_of(4);
        let input = Offsets { at: config + 16 * 4, tensors: 1 };
        let output = Offsets { at: input.end(), tensors: 2 };
        let source = output.end().next_multiple_of(8);
        Self { config, input, output, source, target: source + 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_are_told_by_their_mangled_names() {
        let largest = b"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIlNS0_14func_wrapper_tIlNS0_13MaxNanFunctorIlEEEEjlLi4ELi4EEEEEvT1_";
        let expected = Summary { action: Action::Largest, element: Type::Long, out: Type::Long };
        assert_eq!(Summary::of(largest), Some(expected));
    }
}
