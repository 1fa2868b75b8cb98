//! Step counts that an optimizer keeps on the device: with `torch.set_default_device("cuda")`, or the older
//! `set_default_tensor_type`, Adam's `step` is a number there, and is read back for the corrections of bias,
//! `1 - beta ** step`, by which it divides. All of them grow in one kernel, `_foreach_add_(steps, 1)`
//! (`aten/src/ATen/native/cuda/ForeachBinaryOpScalar.cu`, `MultiTensorApply.cuh`).

use std::ffi::c_void;

use crate::effects::Effect;
use crate::integers::{has, position};

/// Elements of a tensor that are computed at most: a count is one.
const MOST: u64 = 1;
/// `depth_to_max_tensors` and `depth_to_max_blocks` for one list.
const TENSORS: usize = 110;
const BLOCKS: usize = 320;

/// Adds one scalar to each tensor of a list, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The numbers are `double`, and not `float`.
    double: bool,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        const FUNCTOR: &[u8] = b"21BinaryOpScalarFunctorI";
        if !has(name, b"25multi_tensor_apply_kernel") || !has(name, b"18TensorListMetadataILi1E") {
            return None;
        }
        let rest = &name[position(name, FUNCTOR)? + FUNCTOR.len()..];
        let double = match rest.first()? {
            b'f' => false,
            b'd' => true,
            _ => return None,
        };
        let adds = rest[1..].starts_with(b"Li1ELi1ELi0E") && has(rest, b"St4plusI");
        adds.then_some(Kernel { double })
    }

    /// What it writes, launched as so many blocks. `known` reads device memory in full, or not at all.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name.
    pub unsafe fn effects(
        self,
        blocks: u32,
        arguments: *const *const c_void,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Vec<Effect> {
        let width = if self.double { 8 } else { 4 };
        // SAFETY: the tensors, the functor, the operation, the scalar; the last is as wide as an element.
        let (lists, scalar) = unsafe {
            let scalar = arguments.add(3).read().cast::<u8>();
            (
                arguments.read().cast::<Lists>(),
                self.number(std::slice::from_raw_parts(scalar, width)),
            )
        };
        // SAFETY: the caller's.
        let lists = unsafe { &*lists };
        let blocks = usize::try_from(blocks).unwrap_or(BLOCKS).min(BLOCKS);
        let mut effects = Vec::new();
        for block in 0..blocks {
            let tensor = usize::from(lists.tensor_of[block]);
            let (Some(&at), Some(&count)) = (lists.addresses.get(tensor), lists.counts.get(tensor))
            else {
                continue;
            };
            if lists.chunk_of[block] != 0 {
                continue;
            }
            if MOST < count {
                effects.push(Effect::Unknown(at, count.saturating_mul(8)));
                continue;
            }
            let bytes = usize::try_from(count).unwrap_or(0) * width;
            let Some(old) = known(at, bytes) else { continue };
            let sum = |it: &[u8]| self.bytes(self.number(it) + scalar);
            effects.push(Effect::Known(at, old.chunks_exact(width).flat_map(sum).collect()));
        }
        effects
    }

    fn number(self, bytes: &[u8]) -> f64 {
        if self.double {
            bytes.first_chunk().map_or(0.0, |it| f64::from_le_bytes(*it))
        } else {
            bytes.first_chunk().map_or(0.0, |it| f64::from(f32::from_le_bytes(*it)))
        }
    }

    fn bytes(self, number: f64) -> Vec<u8> {
        if self.double {
            number.to_le_bytes().to_vec()
        } else {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the kernel rounds to its type as well"
            )]
            let number = number as f32;
            number.to_le_bytes().to_vec()
        }
    }
}

/// `TensorListMetadata<1>`.
#[repr(C)]
struct Lists {
    addresses: [u64; TENSORS],
    counts: [u64; TENSORS],
    tensor_of: [u8; BLOCKS],
    chunk_of: [i32; BLOCKS],
    first: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &[u8] = b"_ZN2at6native25multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS1_21BinaryOpScalarFunctorIfLi1ELi1ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_";

    #[test]
    fn each_count_grows_by_the_scalar() {
        let kernel = Kernel::of(NAME).unwrap();
        let mut lists = Lists {
            addresses: [0; TENSORS],
            counts: [1; TENSORS],
            tensor_of: [0; BLOCKS],
            chunk_of: [0; BLOCKS],
            first: 0,
        };
        // The third is of an earlier launch: only two blocks run.
        for (i, at) in [4096, 8192, 12288].into_iter().enumerate() {
            lists.addresses[i] = at;
            lists.tensor_of[i] = u8::try_from(i).unwrap();
        }
        let (functor, operation, scalar) = (0_u8, 0_u8, 1_f32);
        let arguments: [*const c_void; 4] = [
            (&raw const lists).cast(),
            (&raw const functor).cast(),
            (&raw const operation).cast(),
            (&raw const scalar).cast(),
        ];
        let known = |at: u64, size: usize| {
            assert_eq!(size, 4);
            (at != 8192).then(|| 6_f32.to_le_bytes().to_vec())
        };
        // SAFETY: the arguments of such a kernel.
        let effects = unsafe { kernel.effects(2, arguments.as_ptr(), known) };
        assert_eq!(effects, [Effect::Known(4096, 7_f32.to_le_bytes().to_vec())]);
    }

    #[test]
    fn products_and_lists_of_two_are_others() {
        let of = |from: &str, to: &str| {
            Kernel::of(String::from_utf8_lossy(NAME).replace(from, to).as_bytes())
        };
        assert_eq!(of("St4plus", "St10multiplies"), None);
        assert_eq!(of("MetadataILi1E", "MetadataILi2E"), None);
        assert_eq!(of("FunctorIf", "FunctorIN3c108BFloat16E"), None);
        assert_eq!(of("FunctorIf", "FunctorId"), Some(Kernel { double: true }));
    }
}
