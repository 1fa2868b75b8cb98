//! Whether scaled gradients overflowed. PyTorch's `GradScaler` multiplies the loss of a training in half
//! precision by 65,536 at first, looks for infinite gradients on the device, reads what it found, and if it found
//! one leaves the optimizer's step out and takes half the scale. It decides when an optimizer makes its state,
//! before or after the memory of the first step was free again.
//!
//! Which steps these are follows from the gradients, which nobody knows, but for where they begin: the gradient of
//! a loss by what goes into it is bounded, and what comes down to it is the scale, divided by whatever the program divides
//! its loss by, which is known. A cross entropy has for each class the share that was predicted less what the labels say, and the
//! gradient of the last layer's bias is the sum of that, in half precision: where a loss is a sum over many elements,
//! or CTC, that is beyond the largest half. So much is computed here; of other layers nothing is, and a network whose
//! gradients explode further down is taken for one whose do not. As many of the first steps as `assumed_overflows`
//! says are skipped if it says so.

use std::collections::BTreeMap;

use super::remarks::Remarks;
use super::settings::Settings;
use crate::arguments::{Arguments, Structure};
use crate::memory::Memory;
use crate::names::{self, has, position};

/// Kernels of a gradient scaler (`aten/src/ATen/native/cuda/AmpKernels.cu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Divides gradients by the scale, and says whether one is infinite. Its closure, the argument of this
    /// number, begins with the address of the answer.
    Unscales { closure: usize },
    /// Takes another scale, or not.
    Updates,
    /// Makes halves of floats: autocast is of that type.
    Halves,
    /// The gradient of a cross entropy by the chances of classes, of floats and labels of 64 bits.
    Entropy,
    /// That of CTC, of floats. Its number of sequences is the argument of this number.
    Frames { sequences: usize },
}

/// What is no half any more, as it is rounded.
const BEYOND: f64 = 65_520.0;

/// What scalers have asked.
#[derive(Debug, Default)]
pub(crate) struct Scalers {
    /// Steps that are over.
    updates: u64,
    /// Where the answers of this step are, and whether one is that there was an overflow.
    answers: BTreeMap<u64, bool>,
    /// How often the program has read one.
    asked: u64,
    /// How often it read that there was one.
    found: u64,
    /// Something is computed in halves.
    halves: bool,
    /// The largest sum of gradients at a loss of this step, as far as that is known.
    largest: f64,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        if has(name, names::UPDATE_SCALE) {
            return Some(Kernel::Updates);
        }
        if has(name, names::HALF_COPY) || has(name, names::CONVERTING_COPY_TO_HALF) {
            return Some(Kernel::Halves);
        }
        if has(name, names::NLL_LOSS_BACKWARD) {
            return Some(Kernel::Entropy);
        }
        if has(name, names::CTC_LOSS_BACKWARD) {
            return Some(Kernel::Frames { sequences: 26 });
        }
        if has(name, names::CTC_LOSS_BACKWARD_NONBLANK) {
            return Some(Kernel::Frames { sequences: 24 });
        }
        position(name, names::UNSCALE)?;
        if has(name, names::MULTI_TENSOR_APPLY) {
            // The tensors, what is done to each, and the closure.
            return Some(Kernel::Unscales { closure: 2 });
        }
        let elementwise =
            has(name, names::VECTORIZED_ELEMENTWISE) || has(name, names::UNROLLED_ELEMENTWISE);
        elementwise.then_some(Kernel::Unscales { closure: 1 })
    }

    /// The kernel was launched. `None` if its arguments are not what they should be.
    pub(crate) fn launched(
        self,
        scalers: &mut Scalers,
        settings: &Settings,
        remarks: &mut Remarks,
        arguments: Arguments<'_>,
        memory: &mut dyn Memory,
    ) -> Option<()> {
        match self {
            Kernel::Unscales { closure } => {
                let named = &["non_finite_check_and_unscale_cuda_"];
                let answer = arguments.structure(closure, Structure { named, size: 8 })?.u64(0)?;
                let overflows = match settings.overflows {
                    Some(steps) => scalers.updates < steps,
                    None => scalers.halves && BEYOND <= scalers.largest,
                };
                if overflows && settings.overflows.is_some() {
                    remarks.approximate(
                        "the first steps of a GradScaler were skipped, as --assume says",
                    );
                } else if overflows {
                    remarks.approximate(
                        "the first steps of a GradScaler were skipped: the loss is a sum whose scaled gradients exceed the range of float16",
                    );
                }
                scalers.answers.insert(answer, overflows);
                write(memory, answer, Some(f32::from(u8::from(overflows))));
            }
            Kernel::Updates => {
                let [scale, found] = [arguments.address(0)?, arguments.address(2)?];
                let backoff = arguments.float(4)?;
                scalers.updates += 1;
                scalers.largest = 0.0;
                take_scale(memory, scale, found, backoff);
                for (answer, _) in std::mem::take(&mut scalers.answers) {
                    write(memory, answer, None);
                }
            }
            Kernel::Halves => scalers.halves = true,
            Kernel::Entropy => scalers.sees(of_entropy(arguments, memory)),
            Kernel::Frames { sequences } => {
                scalers.sees(of_frames(arguments, sequences, memory));
            }
        }
        Some(())
    }
}

impl Scalers {
    /// A loss has this sum of gradients for one of its inputs.
    fn sees(&mut self, sum: Option<f64>) {
        self.largest = self.largest.max(sum.unwrap_or(0.0));
    }

    /// The program has copied `size` bytes from `from`.
    pub(crate) fn copied(&mut self, from: u64, size: u64) {
        if let Some(overflows) = self.answers.get(&from).filter(|_| size == 4) {
            self.asked += 1;
            self.found += u64::from(*overflows);
        }
    }

    /// How often the program has read whether its gradients overflowed.
    pub(crate) fn asked(&self) -> u64 {
        self.asked
    }

    /// How often it read that they did, and so skipped a step.
    pub(crate) fn found(&self) -> u64 {
        self.found
    }
}

/// The largest sum over all elements of a gradient by one class. The arguments of [`Kernel::Entropy`] are a result, the gradient
/// of the loss, labels, weights, their sum, whether it is a mean, how many elements, a stride, how many classes, and the label
/// that is none.
fn of_entropy(arguments: Arguments<'_>, memory: &mut dyn Memory) -> Option<f64> {
    const MOST: usize = 1 << 17;
    let is_mean = arguments.flag(5)?;
    let gradient = float(&known(memory, arguments.address(1)?, 4)?);
    let classes = f64::from(u32::try_from(arguments.whole(8)?).ok()?.max(1));
    let size = Some(arguments.count(6)?).filter(|it| (1..=MOST).contains(it))?;
    let none = arguments.whole(9)?;
    let mut labels = BTreeMap::new();
    for label in known(memory, arguments.address(2)?, 8 * size)?.chunks_exact(8) {
        let label = i64::from_le_bytes(label.try_into().ok()?);
        if label != none {
            *labels.entry(label).or_insert(0_u32) += 1;
        }
    }
    let total = f64::from(labels.values().sum::<u32>()).max(1.0);
    let most = f64::from(*labels.values().max()?);
    // A class that is predicted as any other.
    let sum = (most - total / classes).max(total / classes).max(1.0 - 1.0 / classes);
    Some(gradient.abs() * if is_mean { sum / total } else { sum })
}

/// The sum over all frames of a gradient by the blank, which every other of them is, while nothing is learned. The arguments of
/// [`Kernel::Frames`] are a result, gradients of the losses, their stride, three tables, and the lengths.
fn of_frames(arguments: Arguments<'_>, sequences: usize, memory: &mut dyn Memory) -> Option<f64> {
    const MOST: u64 = 1 << 12;
    let (gradients, lengths) = (arguments.address(1)?, arguments.address(6)?);
    let stride = arguments.whole(2)?.cast_unsigned();
    let count = arguments.whole(sequences)?.cast_unsigned();
    let count = Some(count).filter(|it| (1..=MOST).contains(it))?;
    let mut sum = 0.0;
    for i in 0..count {
        let gradient = float(&known(memory, gradients + 4 * stride.checked_mul(i)?, 4)?);
        let length = known(memory, lengths + 8 * i, 8)?;
        let length = match u64::from_le_bytes(length.try_into().ok()?) {
            // A length that nobody knew; the other kernel is not told how long a sequence may be.
            0 if sequences == 26 => arguments.whole(7)?.cast_unsigned(),
            length => length,
        };
        sum += gradient.abs() * f64::from(u32::try_from(length).ok()?) / 2.0;
    }
    Some(sum)
}

/// Takes a smaller scale if there was an overflow.
fn take_scale(memory: &mut dyn Memory, scale: u64, found: u64, backoff: f64) {
    let overflows = known(memory, found, 4).is_some_and(|it| float(&it) != 0.0);
    if let Some(bytes) = known(memory, scale, 4) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the kernel rounds to its type as well"
        )]
        let next = (float(&bytes) * if overflows { backoff } else { 1.0 }) as f32;
        write(memory, scale, Some(next));
    }
}

fn float(bytes: &[u8]) -> f64 {
    bytes.first_chunk().map_or(0.0, |it| f64::from(f32::from_le_bytes(*it)))
}

/// The bytes there, if all of them are known.
fn known(memory: &mut dyn Memory, at: u64, size: usize) -> Option<Vec<u8>> {
    memory.at(at)?.known(at, size)
}

/// That number is at that address now; or one that nobody knows.
fn write(memory: &mut dyn Memory, at: u64, number: Option<f32>) {
    if let Some(contents) = memory.at(at) {
        match number {
            Some(it) => contents.write(at, &it.to_le_bytes()),
            None => contents.forget(at, 4),
        }
    }
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
        let copy = "_ZN2at6native29vectorized_elementwise_kernelILi4EZNS0_24float16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_St5arrayIPcLm2EEEEviT0_T1_";
        assert_eq!(of(copy), Some(Kernel::Halves));
        assert_eq!(of(&copy.replace("24float16", "25bfloat16")), None);
        let entropy = "_ZN2at6native39_GLOBAL__N__5cd812b1_7_Loss_cu_5b0651e139nll_loss_backward_reduce_cuda_kernel_2dIflEEvPT_PKS3_PKT0_S6_S6_biill";
        assert_eq!(of(entropy), Some(Kernel::Entropy));
    }
}
