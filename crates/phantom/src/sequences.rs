//! Vectors of known whole numbers, sorted, summed up from the start, and freed of repetitions: what
//! `unique()` and `repeat_interleave()` take the size of their result from. The kernels are CUB's, told by
//! their mangled names; as with `integers`, a vector that is not known in full stays unknown.

use std::ffi::c_void;

use crate::integers::{Effect, MOST, Type, has, letter_after, position};

/// What is done to a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `DeviceRadixSortSingleTileKernel`: sorts a short vector of keys, and perhaps what goes with them.
    Sorts { key: Type, descending: bool },
    /// `DeviceScanKernel` with a sum, each element included in its own.
    SumsUp { from: Type, to: Type },
    /// `DeviceSelectSweepKernel` with a test for equal neighbours.
    LeavesOutEqual { key: Type },
}

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        let key = || letter_after(name, b"10policy_hubI");
        if has(name, b"31DeviceRadixSortSingleTileKernel") {
            // The value of `SortOrder` is a template argument.
            let descending = has(name, b"9SortOrderE1E");
            return Some(Kernel::Sorts { key: key()?, descending });
        }
        if has(name, b"16DeviceScanKernel") && has(name, b"4plusI") && has(name, b"8NullTypeE") {
            // Both vectors are plain: `EPKlPlN...ScanTileState`.
            let source = position(name, b"EPK")? + b"EPK".len();
            let [from, b'P', to, ..] = name.get(source..)? else { return None };
            return Some(Kernel::SumsUp {
                from: Type::of_letter(*from)?,
                to: Type::of_letter(*to)?,
            });
        }
        (has(name, b"23DeviceSelectSweepKernel") && has(name, b"8equal_toI"))
            .then(|| Some(Kernel::LeavesOutEqual { key: key()? }))?
    }

    /// What it writes.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name.
    pub unsafe fn effects(
        self,
        arguments: *const *const c_void,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Vec<Effect> {
        // SAFETY: the caller's; each of these is a pointer or a 32-bit number of the kernel.
        let (address, count) = unsafe {
            let address = |i: usize| arguments.add(i).read().cast::<u64>().read_unaligned();
            let count = |i: usize| arguments.add(i).read().cast::<u32>().read_unaligned();
            match self {
                // Keys, sorted keys, values, sorted values, how many.
                Kernel::Sorts { .. } => ((address(0), address(1)), count(4)),
                // In, out, state, first tile, operation, start, how many.
                Kernel::SumsUp { .. } => ((address(0), address(1)), count(6)),
                // In, flags, out, how many are left, state, selection, equality, how many.
                Kernel::LeavesOutEqual { .. } => ((address(0), address(2)), count(7)),
            }
        };
        let (from, to) = match self {
            Kernel::Sorts { key, .. } | Kernel::LeavesOutEqual { key } => (key, key),
            Kernel::SumsUp { from, to } => (from, to),
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let bytes = (count <= MOST).then(|| known(address.0, count * from.width())).flatten();
        let Some(bytes) = bytes else { return Vec::new() };
        let mut values: Vec<i64> = bytes.chunks(from.width()).map(|it| from.read(it)).collect();
        match self {
            Kernel::Sorts { descending, .. } => {
                values.sort_unstable();
                if descending {
                    values.reverse();
                }
            }
            Kernel::SumsUp { .. } => {
                let mut total = 0_i64;
                for value in &mut values {
                    total = total.wrapping_add(*value);
                    *value = total;
                }
            }
            Kernel::LeavesOutEqual { .. } => values.dedup(),
        }
        let mut result = Vec::with_capacity(values.len() * to.width());
        values.iter().for_each(|&it| to.write(it, &mut result));
        vec![Effect::Known(address.1, result)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let sort = b"_ZN14at_cuda_detail3cub6detail10radix_sort31DeviceRadixSortSingleTileKernelINS1_5radix10policy_hubIlNS0_8NullTypeEyE10Policy1000ELNS0_9SortOrderE0ElS6_yNS1_21identity_decomposer_tEEEvPKT1_PSB_PKT2_PSF_T3_iiT4_";
        assert_eq!(Kernel::of(sort), Some(Kernel::Sorts { key: Type::Long, descending: false }));
        let scan = b"_ZN14at_cuda_detail3cub6detail4scan16DeviceScanKernelINS2_10policy_hubIllljSt4plusIlEE10Policy1000EPKlPlNS0_13ScanTileStateIlLb1EEES6_NS0_8NullTypeEjlLb0ESE_EEvT0_T1_T2_iT3_T4_T5_";
        assert_eq!(Kernel::of(scan), Some(Kernel::SumsUp { from: Type::Long, to: Type::Long }));
        let unique = b"_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelINS2_10policy_hubIlNS0_8NullTypeEiLb0ELNS0_10SelectImplE0EE10Policy1000EPKlPS5_PlSC_NS0_13ScanTileStateIiLb1EEES5_N4cuda3std3__48equal_toIvEEi";
        assert_eq!(Kernel::of(unique), Some(Kernel::LeavesOutEqual { key: Type::Long }));
        let of_floats = b"_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelINS2_10policy_hubIfNS0_8NullTypeE8equal_toIvEEi";
        assert_eq!(Kernel::of(of_floats), None);
    }

    #[test]
    fn a_known_vector_is_sorted_summed_and_freed_of_repetitions() {
        let run = |kernel: Kernel, places: &[usize]| {
            let (count, from, to) = (4_u32, 4096_u64, 8192_u64);
            let mut arguments = [(&raw const from).cast::<c_void>(); 9];
            arguments[places[0]] = (&raw const to).cast();
            arguments[places[1]] = (&raw const count).cast();
            let known = |at, size| (at == 4096 && size == 4).then(|| vec![3, 1, 3, 2]);
            // SAFETY: arguments as the kernels have them.
            unsafe { kernel.effects(arguments.as_ptr(), known) }
        };
        let key = Type::Byte;
        let written = |bytes: &[u8]| vec![Effect::Known(8192, bytes.to_vec())];
        assert_eq!(run(Kernel::Sorts { key, descending: false }, &[1, 4]), written(&[1, 2, 3, 3]));
        assert_eq!(run(Kernel::Sorts { key, descending: true }, &[1, 4]), written(&[3, 3, 2, 1]));
        assert_eq!(run(Kernel::SumsUp { from: key, to: key }, &[1, 6]), written(&[3, 4, 7, 9]));
        assert_eq!(run(Kernel::LeavesOutEqual { key }, &[2, 7]), written(&[3, 1, 3, 2]));
        assert_eq!(run(Kernel::Sorts { key: Type::Int, descending: false }, &[1, 4]), []);
    }
}
