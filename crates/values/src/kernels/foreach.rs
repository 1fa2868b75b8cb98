//! Kernels that write whole lists of tensors, as optimizers and `torch._foreach_add_` do: what was known of these is not
//! known any more (`aten/src/ATen/native/cuda/MultiTensorApply.cuh`).

use crate::arguments::{Arguments, Structure};
use crate::memory::writes::Write;
use crate::names::{self, position};

/// `multi_tensor_apply_kernel` over so many lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    lists: usize,
    /// The tensors of a list at most.
    most: usize,
    /// Where the structure says for each block which tensor it works on.
    tensors: usize,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        const MOST: [usize; 5] = [110, 64, 48, 36, 30];
        const MOST_WITH_SCALARS: [usize; 5] = [96, 64, 48, 36, 30];
        let of = |part: &[u8]| {
            let digit = name.get(position(name, part)? + part.len())?.checked_sub(b'0')?;
            let lists = usize::from(digit);
            Some((lists, *MOST.get(lists.checked_sub(1)?)?, MOST_WITH_SCALARS[lists - 1]))
        };
        // `{ addresses[lists][most]; i64 numbers[most]; ...; u8 tensor of a block[]; ... }`
        if let Some((lists, most, steps)) = of(names::FUSED_OPTIMIZER_LIST) {
            return Some(Kernel { lists, most, tensors: 8 * ((lists + 1) * most + steps) });
        }
        if let Some((lists, most, _)) = of(names::TENSOR_LIST) {
            return Some(Kernel { lists, most, tensors: 8 * (lists + 1) * most });
        }
        let scalars: [(&[u8], usize); 2] =
            [(names::SCALAR_LIST_FLOAT, 4), (names::SCALAR_LIST_DOUBLE, 8)];
        scalars.into_iter().find_map(|(part, width)| {
            let (lists, _, most) = of(part)?;
            Some(Kernel { lists, most, tensors: (8 * (lists + 1) + width) * most })
        })
    }

    /// What it writes, launched as so many blocks.
    pub(crate) fn writes(self, blocks: u32, arguments: Arguments<'_>) -> Option<Vec<Write>> {
        const MOST_BLOCKS: usize = 320;
        let structure = Structure {
            named: &["TensorListMetadata<", "TensorListScalarListMetadata<"],
            size: self.tensors + MOST_BLOCKS,
        };
        let structure = arguments.structure(0, structure)?;
        let blocks = usize::try_from(blocks).unwrap_or(0).min(MOST_BLOCKS);
        let last = (0..blocks).filter_map(|i| structure.u8(self.tensors + i)).max();
        let used = last.map_or(0, |it| usize::from(it) + 1).min(self.most);
        // The addresses come first.
        let address = |(list, i): (usize, usize)| structure.u64(8 * (list * self.most + i));
        let all = (0..self.lists).flat_map(|list| (0..used).map(move |i| (list, i)));
        all.map(|it| Some(Write::Unknown(address(it)?, u64::MAX))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_told_by_the_mangled_name() {
        let name = b"_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi2EEENS1_20BinaryOpListAlphaFunctorIfLi2ELi2ELi0EEEE";
        let expected = Kernel { lists: 2, most: 64, tensors: 8 * 3 * 64 };
        assert_eq!(Kernel::of(name), Some(expected));
        assert_eq!(Kernel::of(b"25multi_tensor_apply_kernelINS1_9SomethingILi2E"), None);
    }
}
