//! What an element-wise kernel makes of rows of numbers, wherever these are.

use crate::numbers::arithmetic::{Action, clamped, decided, is_test};
use crate::numbers::offsets::MOST_TENSORS;
use crate::numbers::rows;
use crate::types::ScalarType;

/// Where a kernel has its scalar, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
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
    /// A condition and two tensors: `where`.
    Chosen,
    /// A tensor, a mask, and a scalar: `masked_fill`.
    Masked,
}

/// What is done to numbers, and with which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Formula {
    pub(crate) action: Action,
    pub(crate) form: Form,
    /// The type that is computed with.
    pub(crate) kind: ScalarType,
    /// What result and operands are before any casts, the result first.
    pub(crate) wanted: [ScalarType; MOST_TENSORS],
    /// And as they lie in memory.
    pub(crate) types: [ScalarType; MOST_TENSORS],
    /// The choice or factor, and the scalar.
    pub(crate) scalars: (i64, i64),
    /// The bounds of a clamp.
    pub(crate) limits: Option<[i64; 2]>,
}

/// Rows of the operands, each at its number.
pub(crate) struct Buffers([Vec<i64>; MOST_TENSORS]);

impl Buffers {
    /// For the elements of so many tensors.
    pub(crate) fn of(tensors: usize, count: usize) -> Buffers {
        let mut it = Buffers([const { Vec::new() }; MOST_TENSORS]);
        // The second operand's is a scalar's, if that is what there is.
        let last = tensors.max(3);
        it.0[1..last].iter_mut().for_each(|it| it.resize(count.min(rows::LENGTH), 0));
        it
    }

    /// Reads a row of one operand: where it begins in `span`, and from one element to the next.
    pub(crate) fn read(
        &mut self,
        formula: &Formula,
        i: usize,
        span: &[u8],
        (at, stride): (u64, u64),
        length: usize,
    ) -> Option<()> {
        let row = &mut self.0[i][..length];
        rows::read(formula.types[i], span, at, stride, row)?;
        // A cast comes first: what is computed with is of the functor's type.
        rows::cast(formula.types[i], formula.wanted[i], row);
        Some(())
    }
}

impl Formula {
    /// Bytes of an element of the result, or of an operand.
    pub(crate) fn width(&self, tensor: usize) -> usize {
        self.types[tensor].width()
    }

    /// Computes a row and writes it behind what is there.
    pub(crate) fn row(
        &self,
        are_known: [bool; MOST_TENSORS],
        buffers: &mut Buffers,
        length: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let to = self.types[0];
        self.computed(are_known, buffers, length)?;
        let results = &mut buffers.0[1][..length];
        if is_test(self.action) {
            rows::cast(ScalarType::Bool, to, results);
        } else if self.kind != to {
            results.iter_mut().for_each(|it| *it = self.kind.fitted(*it));
            rows::cast(self.kind, to, results);
        }
        rows::write(to, results, out);
        Some(())
    }

    /// A row of the result, in the place of the first operand's. What is not chosen need not be known.
    fn computed(
        &self,
        are_known: [bool; MOST_TENSORS],
        operands: &mut Buffers,
        length: usize,
    ) -> Option<()> {
        let (choice, scalar) = self.scalars;
        let [_, a, b, c] = &mut operands.0;
        let (a, b) = (&mut a[..length], &mut b[..length]);
        if let Some(limits) = self.limits {
            a.iter_mut().for_each(|it| *it = clamped(self.kind, *it, choice, limits));
            return Some(());
        }
        let (action, kind) = (self.action, self.kind);
        match self.form {
            Form::Chosen => {
                for (a, (b, c)) in a.iter_mut().zip(b.iter().zip(&c[..length])) {
                    let (other, is_known) =
                        if *a != 0 { (b, are_known[2]) } else { (c, are_known[3]) };
                    *a = is_known.then_some(*other)?;
                }
                Some(())
            }
            Form::Masked => {
                a.iter_mut().zip(&*b).filter(|it| *it.1 != 0).for_each(|it| *it.0 = scalar);
                Some(())
            }
            Form::ScalarFirst => {
                b.copy_from_slice(a);
                a.fill(scalar);
                rows::combine(action, kind, choice, a, b)
            }
            Form::ScalarLast => {
                b.fill(scalar);
                rows::combine(action, kind, choice, a, b)
            }
            Form::Alone => {
                a.fill(scalar);
                Some(())
            }
            Form::Tensors => match (are_known[1], are_known[2]) {
                (true, true) => rows::combine(action, kind, choice, a, b),
                (false, false) => None,
                (is_first, _) => a.iter_mut().zip(&*b).try_for_each(|(a, b)| {
                    let number = if is_first { *a } else { *b };
                    *a = decided(action, kind, choice, number, is_first)?;
                    Some(())
                }),
            },
            Form::Unary => rows::combine(action, kind, choice, a, b),
        }
    }
}
