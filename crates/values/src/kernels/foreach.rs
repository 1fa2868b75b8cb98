//! Kernels that write whole lists of tensors, as optimizers and `torch._foreach_add_` do: what was known of these is not
//! known any more (`aten/src/ATen/native/cuda/MultiTensorApply.cuh`). `torch._foreach_copy_` of what is known makes it known.

use crate::arguments::{Arguments, Structure};
use crate::memory::Known;
use crate::memory::writes::Write;
use crate::names::{self, position};
use crate::types::ScalarType;

/// Elements of a tensor that are copied at most: those of one block.
const MOST: u64 = 1 << 16;

/// `multi_tensor_apply_kernel` over so many lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    lists: usize,
    kind: Kind,
    /// It copies the first list into the second, which is of the first type: from the second one.
    copies: Option<[ScalarType; 2]>,
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
            let copies = copied(name).filter(|_| lists == 2 && kind == Kind::Plain);
            (1..=5).contains(&lists).then_some(Kernel { lists, kind, copies })
        };
        of(names::FUSED_OPTIMIZER_LIST, Kind::Fused)
            .or_else(|| of(names::TENSOR_LIST, Kind::Plain))
            .or_else(|| of(names::SCALAR_LIST_FLOAT, Kind::Scalars(4)))
            .or_else(|| of(names::SCALAR_LIST_DOUBLE, Kind::Scalars(8)))
    }

    /// The tensors of a list at most, and where the structure says for each block which of them it works on:
    /// `{ addresses[lists][most]; i64 numbers[most]; ...; tensor of a block[]; ... }`.
    fn layout(self, limits: &Limits) -> (usize, usize) {
        let Kernel { lists, kind, .. } = self;
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
        known: Known<'_>,
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
        if let Some([to, from]) = self.copies {
            let copy = |i| {
                let count = address((2, i))?;
                let (source, target) = (address((0, i))?, address((1, i))?);
                let bytes = usize::try_from(count.min(MOST)).ok()? * from.width();
                let Some(old) = known(source, bytes).filter(|_| count <= MOST) else {
                    return Some(Write::Unknown(target, count.saturating_mul(to.width() as u64)));
                };
                let mut new = Vec::new();
                for it in old.chunks_exact(from.width()) {
                    to.write(from.into(to, from.read(it)), &mut new);
                }
                Some(Write::Known(target, new))
            };
            return (0..used).map(copy).collect();
        }
        let all = (0..self.lists).flat_map(|list| (0..used).map(move |i| (list, i)));
        all.map(|it| Some(Write::Unknown(address(it)?, u64::MAX))).collect()
    }
}

/// The types of a copy between lists, if the mangled name means one between whole numbers or floats.
fn copied(name: &[u8]) -> Option<[ScalarType; 2]> {
    let rest = &name[position(name, names::COPY)? + names::COPY.len()..];
    let of = |at: usize| {
        let letter = *rest.get(at)?;
        ScalarType::of_letter(letter).or_else(|| ScalarType::of_float(letter))
    };
    Some([of(0)?, of(1)?]).filter(|_| rest[2..].starts_with(b"EEEEEv"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    #[test]
    fn the_lists_are_told_by_the_mangled_name() {
        let name = b"_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi2EEENS1_20BinaryOpListAlphaFunctorIfLi2ELi2ELi0EEEE";
        let expected = Kernel { lists: 2, kind: Kind::Plain, copies: None };
        assert_eq!(Kernel::of(name), Some(expected));
        assert_eq!(expected.layout(&USUAL), (64, 8 * 3 * 64));
        assert_eq!(expected.layout(&LONG), (448, 8 * 3 * 448));
        assert_eq!(Kernel::of(b"25multi_tensor_apply_kernelINS1_9SomethingILi2E"), None);
    }

    #[test]
    fn what_is_known_is_copied_and_what_is_not_is_not() {
        let name = |functor: &str, types: &str| {
            format!(
                "_ZN2at6native55_GLOBAL__N__d25d856e_22_ForeachBinaryOpList_cu_a911ec4325multi_tensor_apply_kernelINS1_18TensorListMetadataILi2EEENS1_{functor}Li2ELi1ELi1EEEJNS0_4CopyI{types}EEEEEvT_T0_DpT1_"
            )
        };
        let kernel = Kernel::of(name("11CopyFunctorIil", "il").as_bytes()).unwrap();
        assert_eq!(kernel.copies, Some([ScalarType::Int, ScalarType::Long]));
        let copies = |functor, types| Kernel::of(name(functor, types).as_bytes()).unwrap().copies;
        assert_eq!(copies("14UnaryOpFunctorIl", "ll"), Some([ScalarType::Long; 2]));
        assert_eq!(copies("14UnaryOpFunctorIN3c104HalfE", "S7_S7_"), None);
        for limits in [USUAL, LONG] {
            let (most, tensors) = kernel.layout(&limits);
            let mut lists = vec![0; tensors + limits.blocks * (limits.index + 4)];
            for (i, (from, to)) in [(4096_u64, 8192_u64), (4352, 8448)].into_iter().enumerate() {
                lists[8 * i..][..8].copy_from_slice(&from.to_le_bytes());
                lists[8 * (most + i)..][..8].copy_from_slice(&to.to_le_bytes());
                lists[8 * (2 * most + i)] = 2;
                lists[tensors + limits.index * i] = u8::try_from(i).unwrap();
            }
            let launch = Launch::of(&[Made::Structure("TensorListMetadata<2>", &lists)]);
            let known = |at: u64, size: usize| {
                let numbers = [64_i64, -1].map(i64::to_le_bytes).concat();
                (at == 4096 && size == 16).then_some(numbers)
            };
            let copied = Write::Known(8192, [64_i32, -1].map(i32::to_le_bytes).concat());
            let writes = kernel.writes(2, launch.arguments(), &known, limits.index == 2);
            assert_eq!(writes.unwrap(), [copied, Write::Unknown(8448, 8)]);
        }
    }
}
