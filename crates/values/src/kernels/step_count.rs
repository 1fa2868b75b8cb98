//! Step counts that an optimizer keeps on the device: with `torch.set_default_device("cuda")`, or the older
//! `set_default_tensor_type`, Adam's `step` is a number there, and is read back for the corrections of bias,
//! `1 - beta ** step`, by which it divides. All of them grow in one kernel, `_foreach_add_(steps, 1)`
//! (`aten/src/ATen/native/cuda/ForeachBinaryOpScalar.cu`, `MultiTensorApply.cuh`).

use crate::arguments::{Arguments, Structure};
use crate::memory::Known;
use crate::memory::writes::Write;
use crate::names::{self, has, position};

/// Elements of a tensor that are computed at most: a count is one.
const MOST: u64 = 1;
/// `depth_to_max_tensors` and `depth_to_max_blocks` for one list, and the bytes of `block_index_t`: as ever, and long.
const USUAL: [usize; 3] = [110, 320, 1];
const LONG: [usize; 3] = [770, 2240, 2];

/// Adds one scalar to each tensor of a list, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// The numbers are `double`, and not `float`.
    double: bool,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        const FUNCTOR: &[u8] = names::BINARY_OP_SCALAR;
        if !has(name, names::MULTI_TENSOR_APPLY) || !has(name, names::TENSOR_LIST_OF_ONE) {
            return None;
        }
        let rest = &name[position(name, FUNCTOR)? + FUNCTOR.len()..];
        let double = match rest.first()? {
            b'f' => false,
            b'd' => true,
            _ => return None,
        };
        let adds = rest[1..].starts_with(b"Li1ELi1ELi0E") && has(rest, names::STD_PLUS);
        adds.then_some(Kernel { double })
    }

    /// What it writes, launched as so many blocks: the tensors, the functor, the operation, and the scalar, which is as wide
    /// as an element.
    pub(crate) fn writes(
        self,
        blocks: u32,
        arguments: Arguments<'_>,
        known: Known<'_>,
        is_long: bool,
    ) -> Option<Vec<Write>> {
        let [most_tensors, most_blocks, index] = if is_long { LONG } else { USUAL };
        // `TensorListMetadata<1>`:
        // `{ void *addresses[110]; i64 counts[110]; u8 tensor_of_block[320]; int chunk_of_block[320]; int first }`
        let named = &["::TensorListMetadata<1>"];
        let (tensor_of, chunk_of) = (16 * most_tensors, 16 * most_tensors + index * most_blocks);
        let lists =
            arguments.structure(0, Structure { named, size: chunk_of + 4 * most_blocks })?;
        let width = if self.double { 8 } else { 4 };
        let scalar = arguments.float(3)?;
        let blocks = usize::try_from(blocks).unwrap_or(0).min(most_blocks);
        let mut writes = Vec::new();
        for block in 0..blocks {
            let tensor = lists.index(tensor_of, block, index)?;
            if most_tensors <= tensor || lists.i32(chunk_of + 4 * block)? != 0 {
                continue;
            }
            let (at, count) = (lists.u64(8 * tensor)?, lists.u64(8 * (most_tensors + tensor))?);
            if MOST < count {
                writes.push(Write::Unknown(at, count.saturating_mul(8)));
                continue;
            }
            let bytes = usize::try_from(count).unwrap_or(0) * width;
            let Some(old) = known(at, bytes) else { continue };
            let sum = |it: &[u8]| self.bytes(self.number(it) + scalar);
            writes.push(Write::Known(at, old.chunks_exact(width).flat_map(sum).collect()));
        }
        Some(writes)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    const NAME: &[u8] = b"_ZN2at6native25multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS1_21BinaryOpScalarFunctorIfLi1ELi1ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_";

    #[test]
    fn each_count_grows_by_the_scalar() {
        let kernel = Kernel::of(NAME).unwrap();
        for (is_long, [tensors, blocks, index]) in [(false, USUAL), (true, LONG)] {
            let mut lists = vec![0; 16 * tensors + (index + 4) * blocks];
            // The third is of an earlier launch: only two blocks run.
            for (i, at) in [4096_u64, 8192, 12288].into_iter().enumerate() {
                lists[8 * i..][..8].copy_from_slice(&at.to_le_bytes());
                lists[8 * (tensors + i)] = 1;
                lists[16 * tensors + index * i] = u8::try_from(i).unwrap();
            }
            let launch = Launch::of(&[
                Made::Structure("at::native::(anonymous namespace)::TensorListMetadata<1>", &lists),
                Made::Structure("BinaryOpScalarFunctor<float, 1, 1, 0>", &[]),
                Made::Structure("std::plus<float>", &[]),
                Made::Float(1.0),
            ]);
            let known = |at: u64, size: usize| {
                assert_eq!(size, 4);
                (at != 8192).then(|| 6_f32.to_le_bytes().to_vec())
            };
            let writes = kernel.writes(2, launch.arguments(), &known, is_long);
            assert_eq!(writes.unwrap(), [Write::Known(4096, 7_f32.to_le_bytes().to_vec())]);
        }
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
