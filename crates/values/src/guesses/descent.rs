//! What a program reads that minimizes something and asks whether it is done. L-BFGS steps inside itself, and
//! every turn of its loop is decided by numbers that nobody computes: is the gradient below a tolerance, is the
//! curvature positive, did the loss change, does the line search take this step. Zeros would say that it is at its minimum at
//! once, and it would never fill the history that takes its memory.
//!
//! While the agent says that such a step runs on this thread, numbers are those of a descent that goes well: each loss
//! that is read is lower than the one before, a number that is compared with a tolerance lies beyond it, on
//! the tolerance's own side of zero, and the line search takes the first step that it tries.

use super::remarks::Remarks;
use crate::arguments::{Arguments, Structure};
use crate::names::{self, has};

/// Scalars up to here are tolerances.
const TOLERANCE: f64 = 1e-2;

/// A descent on this thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descent {
    /// Bytes of a loss: 4 or 8; 0 when it is over.
    width: usize,
    /// How many losses were read, of the descents before it, too.
    read: u32,
    /// It has come as far as it will: losses stay what they are.
    still: bool,
}

/// From now on a descent runs in `now` whose losses have `width` bytes, or none does, if that is zero. It does not go on
/// if `still`.
pub(crate) fn descends(
    now: &mut Option<Descent>,
    width: usize,
    still: bool,
    remarks: &mut Remarks,
) {
    // The next descent goes on where this one ends.
    let read = now.map_or(0, |it| it.read);
    if width != 0 && !still {
        remarks.assume(
            "plimsoll assumed that L-BFGS continues until its history is full: where it stops depends on values",
        );
    }
    *now = Some(Descent { width, read, still });
}

/// The loss after so many others: always lower, and never by less than a tolerance.
fn loss_after(read: u32) -> f64 {
    1.0 / (1.0 + f64::from(read) / 64.0)
}

/// The bytes of the loss that the program reads now in `width` unknown ones.
pub(crate) fn loss(now: &mut Option<Descent>, width: usize) -> Option<[u8; 8]> {
    let descent = now.as_mut().filter(|it| 0 < width && it.width == width)?;
    if !descent.still {
        descent.read = descent.read.saturating_add(1);
    }
    let loss = loss_after(descent.read);
    let mut bytes = [0; 8];
    if width == 4 {
        #[expect(clippy::cast_possible_truncation, reason = "a loss of 32 bits is a rounded one")]
        bytes[..4].copy_from_slice(&(loss as f32).to_le_bytes());
    } else {
        bytes = loss.to_le_bytes();
    }
    Some(bytes)
}

/// A comparison of floats, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// With a scalar of so many bytes.
    Scalar { width: usize },
    /// Of two tensors.
    Tensors,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        // A strided kernel has its arguments elsewhere, and a single element needs none.
        if !has(name, names::VECTORIZED_ELEMENTWISE) && !has(name, names::UNROLLED_ELEMENTWISE) {
            return None;
        }
        [(b"f".as_slice(), 4), (b"d", 8)].into_iter().find_map(|(letter, width)| {
            let of = |part: &[u8]| has(name, &[part, letter].concat());
            if of(names::COMPARE_SCALAR) {
                Some(Kernel::Scalar { width })
            } else {
                of(names::COMPARE).then_some(Kernel::Tensors)
            }
        })
    }

    /// What a comparison that is launched now will be found to say, if it is of one element and a descent runs. Its arguments
    /// are how many elements, and the functor: `OpType`, then the scalar, aligned.
    pub(crate) fn launched(self, now: Option<Descent>, arguments: Arguments<'_>) -> Option<bool> {
        let descent = now.filter(|it| it.width != 0)?;
        if arguments.whole(0)? != 1 {
            return None;
        }
        let functor = |size: usize| {
            let named = &["compare_scalar_kernel<", "CompareFunctor<"];
            arguments.structure(1, Structure { named, size })
        };
        match self {
            // The gradient has become flatter along the line: `abs(new) <= c * abs(old)`.
            Kernel::Tensors => {
                let order = Order::of(functor(4)?.i32(0)?);
                Some(matches!(order, Order::AtMost | Order::Below))
            }
            Kernel::Scalar { width } => {
                let functor = functor(2 * width)?;
                let scalar = if width == 4 { functor.f32(4)?.into() } else { functor.f64(8)? };
                Some(descent.compares(Order::of(functor.i32(0)?), scalar))
            }
        }
    }
}

impl Descent {
    /// Whether a number that nobody computed is so to `scalar`.
    fn compares(self, order: Order, scalar: f64) -> bool {
        let is_loss = (0..self.read.min(3)).any(|back| {
            let loss = loss_after(self.read - back);
            (loss - scalar).abs() <= loss * f64::from(f32::EPSILON)
        });
        // A number beside the loss is what the loss should have come down to: it is above it.
        let number = if is_loss || (scalar != 0.0 && scalar.abs() <= TOLERANCE) {
            scalar + scalar.signum()
        } else {
            f64::MIN_POSITIVE
        };
        order.holds(number, scalar)
    }
}

/// `OpType` of `aten/src/ATen/native/cuda/CompareKernels.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    AtLeast,
    Above,
    AtMost,
    Below,
}

impl Order {
    fn of(number: i32) -> Order {
        match number {
            0 => Order::AtLeast,
            1 => Order::Above,
            2 => Order::AtMost,
            _ => Order::Below,
        }
    }

    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Order::AtLeast => a >= b,
            Order::Above => a > b,
            Order::AtMost => a <= b,
            Order::Below => a < b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let scalar = "_ZN2at6native29vectorized_elementwise_kernelILi4EZNS0_21compare_scalar_kernelIfEEvRNS_18TensorIteratorBaseENS0_50_GLOBAL__N__e50ef81d_17_CompareKernels_cu_8f1b29aa6OpTypeET_EUlfE_St5arrayIPcLm2EEEEviT0_T1_";
        let of = |name: &str| Kernel::of(name.as_bytes());
        assert_eq!(of(scalar), Some(Kernel::Scalar { width: 4 }));
        assert_eq!(of(&scalar.replace("kernelIfE", "kernelIlE")), None, "of whole numbers");
        let tensors = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_50_GLOBAL__N__e50ef81d_17_CompareKernels_cu_8f1b29aa14CompareFunctorIdEESt5arrayIPcLm3EEEEviT0_T1_";
        assert_eq!(of(tensors), Some(Kernel::Tensors));
    }

    /// What `number order scalar` is answered with.
    fn compare(now: Option<Descent>, order: i32, scalar: f32) -> Option<bool> {
        let functor = [order.to_le_bytes(), scalar.to_le_bytes()].concat();
        let name = "at::native::compare_scalar_kernel<float>(...)::{lambda(float)#1}";
        let launch = Launch::of(&[Made::Int(1), Made::Structure(name, &functor)]);
        Kernel::Scalar { width: 4 }.launched(now, launch.arguments())
    }

    #[test]
    fn a_descent_goes_on_by_every_test_of_l_bfgs() {
        let (at_least, above, at_most, below) = (0, 1, 2, 3);
        let mut now = None;
        let mut remarks = Remarks::default();
        assert_eq!(compare(now, above, 1e-10), None, "nothing descends");
        descends(&mut now, 4, false, &mut remarks);
        let read = |now: &mut Option<Descent>| {
            f32::from_le_bytes(loss(now, 4).unwrap()[..4].try_into().unwrap())
        };
        let (first, second) = (read(&mut now), read(&mut now));
        assert!(second < first && 1e-9 < first - second, "the loss changes");
        assert_eq!(loss(&mut now, 8), None, "of another type");
        assert_eq!(compare(now, above, 1e-10), Some(true), "the curvature is positive");
        assert_eq!(compare(now, above, -1e-9), Some(false), "the direction descends");
        assert_eq!(compare(now, at_most, 1e-7), Some(false), "the gradient is not flat");
        assert_eq!(compare(now, below, 1.0), Some(true), "min(1, 1 / |gradient|)");
        assert_eq!(compare(now, below, second), Some(false), "the loss fell as far as it should");
        assert_eq!(compare(now, at_least, 0.0), Some(true));
        descends(&mut now, 4, true, &mut remarks);
        assert!(read(&mut now) == second && read(&mut now) == second, "it stands still");
        descends(&mut now, 0, false, &mut remarks);
        assert_eq!(loss(&mut now, 4), None);
    }

    #[test]
    fn losses_fall_for_as_long_as_anybody_steps() {
        assert!((1..100_000).all(|it| 2e-9 < loss_after(it) - loss_after(it + 1)));
    }
}
