//! Whether scaled gradients overflowed. PyTorch's `GradScaler` multiplies the loss of a training in half
//! precision by 65,536 at first, looks for infinite gradients on the device, reads what it found, and if it found
//! one leaves the optimizer's step out and takes a smaller scale. Which steps these are follows from the
//! gradients, which nobody knows: none, or as many of the first as `assumed_overflows` says. It decides when
//! an optimizer makes its state, before or after the memory of the first step was free again.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::card;
use crate::integers::{has, position};
use crate::machine;
use crate::report;

/// Kernels of a gradient scaler (`aten/src/ATen/native/cuda/AmpKernels.cu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Divides gradients by the scale, and says whether one is infinite. Its closure, the argument of this
    /// number, begins with the address of the answer.
    Unscales { closure: usize },
    /// Takes another scale, or not.
    Updates,
}

/// What scalers have asked.
#[derive(Debug, Default)]
struct Scalers {
    /// Steps that are over.
    updates: u64,
    /// Where the answers of this step are.
    answers: BTreeSet<u64>,
    /// How often the program has read one.
    asked: u64,
}

static SCALERS: Mutex<Scalers> =
    Mutex::new(Scalers { updates: 0, answers: BTreeSet::new(), asked: 0 });

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        if has(name, b"28amp_update_scale_cuda_kernel") {
            return Some(Kernel::Updates);
        }
        position(name, b"non_finite_check_and_unscale_cuda_")?;
        if has(name, b"25multi_tensor_apply_kernel") {
            // The tensors, what is done to each, and the closure.
            return Some(Kernel::Unscales { closure: 2 });
        }
        let elementwise = has(name, b"29vectorized_elementwise_kernel")
            || has(name, b"27unrolled_elementwise_kernel");
        elementwise.then_some(Kernel::Unscales { closure: 1 })
    }

    /// The kernel was launched.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name.
    pub unsafe fn launched(self, arguments: *const *const c_void) {
        let mut scalers = SCALERS.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            Kernel::Unscales { closure } => {
                // SAFETY: the caller's.
                let answer =
                    unsafe { arguments.add(closure).read().cast::<u64>().read_unaligned() };
                let assumed = card::current().map_or(0, |it| it.assumed_overflows);
                let overflows = scalers.updates < assumed;
                if overflows {
                    report::approximate("the first steps of a GradScaler were skipped, as assumed");
                }
                scalers.answers.insert(answer);
                write(answer, Some(f32::from(u8::from(overflows))));
            }
            Kernel::Updates => {
                scalers.updates += 1;
                for answer in std::mem::take(&mut scalers.answers) {
                    write(answer, None);
                }
            }
        }
    }
}

/// That number is at that address now; or one that nobody knows.
fn write(at: u64, number: Option<f32>) {
    if let Some(mut machine) = machine::lock()
        && let Some((device, ..)) = machine.device_of(at)
    {
        let contents = &mut machine.devices[device].contents;
        match number {
            Some(it) => contents.write(at, &it.to_le_bytes()),
            None => contents.forget(at, 4),
        }
    }
}

/// The program has read `size` bytes at `from`.
pub fn read(from: u64, size: u64) {
    if size == 4 {
        let mut scalers = SCALERS.lock().unwrap_or_else(PoisonError::into_inner);
        scalers.asked += u64::from(scalers.answers.contains(&from));
    }
}

/// How often the program has read whether its gradients overflowed.
pub fn asked() -> u64 {
    SCALERS.lock().unwrap_or_else(PoisonError::into_inner).asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let of = |name: &str| Kernel::of(name.as_bytes());
        assert_eq!(
            of(
                "_ZN2at6native46_GLOBAL__N__1df100ae_13_AmpKernels_cu_3810c27325multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS1_14UnaryOpFunctorIfLi1ELi1ELi0EEEJZZZNS0_47_amp_foreach_non_finite_check_and_unscale_cuda_EN3c108ArrayRefINS_6TensorEEE"
            ),
            Some(Kernel::Unscales { closure: 2 })
        );
        assert_eq!(
            of(
                "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_46_GLOBAL__N__1df100ae_13_AmpKernels_cu_3810c27339_amp_non_finite_check_and_unscale_cuda_ERNS_6TensorES4_RKS3_ENKUlvE_"
            ),
            Some(Kernel::Unscales { closure: 1 })
        );
        assert_eq!(
            of("_ZN2at6native28amp_update_scale_cuda_kernelEPfPiPKfddi"),
            Some(Kernel::Updates)
        );
        assert_eq!(of("_ZN2at6native29vectorized_elementwise_kernelILi4E"), None);
    }
}
