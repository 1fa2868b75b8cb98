//! Kernels that write whole lists of tensors, as optimizers and `torch._foreach_add_` do: what was known of these is not
//! known any more (`aten/src/ATen/native/cuda/MultiTensorApply.cuh`).

use crate::arguments::{Arguments, Structure};
use crate::memory::writes::Write;
use crate::names::{self, position};

/// `multi_tensor_apply_kernel` over so many lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    lists: usize,
    kind: Kind,
}

/// Which structure has the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `TensorListMetadata`.
    Plain,
    /// `FusedOptimizerTensorListMetadata`, which has the counts of steps, too.
    Fused,
    /// `TensorListScalarListMetadata`, with scalars of so many bytes.
    Scalars(usize),
}

/// How many tensors a list has at most, of a structure with so many lists; likewise with scalars; and how many blocks, whose
/// tensors are so many bytes wide.
struct Limits {
    most: [usize; 5],
    with_scalars: [usize; 5],
    blocks: usize,
    index: usize,
}

const USUAL: Limits = Limits {
    most: [110, 64, 48, 36, 30],
    with_scalars: [96, 64, 48, 36, 30],
    blocks: 320,
    index: 1,
};
const LONG: Limits = Limits {
    most: [770, 448, 336, 252, 210],
    with_scalars: [672, 448, 336, 252, 210],
    blocks: 2240,
    index: 2,
};

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let of = |part: &[u8], kind| {
            let digit = name.get(position(name, part)? + part.len())?;
            let lists = usize::from(digit.checked_sub(b'0')?);
            (1..=5).contains(&lists).then_some(Kernel { lists, kind })
        };
        of(names::FUSED_OPTIMIZER_LIST, Kind::Fused)
            .or_else(|| of(names::TENSOR_LIST, Kind::Plain))
            .or_else(|| of(names::SCALAR_LIST_FLOAT, Kind::Scalars(4)))
            .or_else(|| of(names::SCALAR_LIST_DOUBLE, Kind::Scalars(8)))
    }

    /// The tensors of a list at most, and where the structure says for each block which of them it works on:
    /// `{ addresses[lists][most]; i64 numbers[most]; ...; tensor of a block[]; ... }`.
    fn layout(self, limits: &Limits) -> (usize, usize) {
        let Kernel { lists, kind } = self;
        let (most, with_scalars) = (limits.most[lists - 1], limits.with_scalars[lists - 1]);
        match kind {
            Kind::Plain => (most, 8 * (lists + 1) * most),
            Kind::Fused => (most, 8 * ((lists + 1) * most + with_scalars)),
            Kind::Scalars(width) => (with_scalars, (8 * (lists + 1) + width) * with_scalars),
        }
    }

    /// What it writes, launched as so many blocks.
    pub(crate) fn writes(
        self,
        blocks: u32,
        arguments: Arguments<'_>,
        is_long: bool,
    ) -> Option<Vec<Write>> {
        let limits = if is_long { LONG } else { USUAL };
        let (most, tensors) = self.layout(&limits);
        let structure = Structure {
            named: &["TensorListMetadata<", "TensorListScalarListMetadata<"],
            size: tensors + limits.blocks * limits.index,
        };
        let structure = arguments.structure(0, structure)?;
        let blocks = usize::try_from(blocks).unwrap_or(0).min(limits.blocks);
        let last = (0..blocks).filter_map(|i| structure.index(tensors, i, limits.index)).max();
        let used = last.map_or(0, |it| it + 1).min(most);
        // The addresses come first.
        let address = |(list, i): (usize, usize)| structure.u64(8 * (list * most + i));
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
        let expected = Kernel { lists: 2, kind: Kind::Plain };
        assert_eq!(Kernel::of(name), Some(expected));
        assert_eq!(expected.layout(&USUAL), (64, 8 * 3 * 64));
        assert_eq!(expected.layout(&LONG), (448, 8 * 3 * 448));
        assert_eq!(Kernel::of(b"25multi_tensor_apply_kernelINS1_9SomethingILi2E"), None);
    }
}
