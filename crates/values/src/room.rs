//! What a kernel makes the driver take beside its result, which its name tells.

use crate::names::{self, has};

/// What else a kernel makes the driver take when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing: it draws random numbers, as `randn` and `randint` do.
    Less,
    /// More local memory than a new context has.
    Usual,
    /// That, and the device's own heap: it could fail an assertion about an index or in a reduction.
    Asserting,
}

impl Room {
    /// That of a kernel of this (mangled) name, as an H200's driver took it when PyTorch launched one.
    pub(crate) fn of(name: &[u8]) -> Room {
        // Not every name with "index" in it: `arange` launches an `elementwise_kernel_with_index`.
        const ASSERTING: [&[u8]; 10] = [
            names::REDUCE_KERNEL,
            names::INDEX_ELEMENTWISE,
            names::INDEX_SELECT,
            names::INDEX_FUNC,
            names::EMBEDDING,
            names::NLL_LOSS,
            names::ANY_GATHER,
            names::ANY_SCATTER,
            names::ROWWISE_MOMENTS,
            names::LAYER_NORM,
        ];
        if has(name, names::DISTRIBUTION) {
            Room::Less
        } else if ASSERTING.iter().any(|it| has(name, it)) {
            Room::Asserting
        } else {
            Room::Usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_fail_an_assertion_takes_the_device_s_heap() {
        let arange = b"_ZN2at6native60_GLOBAL__N__57a6c4a5_15_RangeFactories_cu_38772b0d_5148529elementwise_kernel_with_indexIlZZZZNS0_15arange_cuda_out";
        assert_eq!(Room::of(arange), Room::Usual);
        let index = b"_ZN2at6native24index_elementwise_kernelILi128ELi4E";
        assert_eq!(Room::of(index), Room::Asserting);
        let select = b"_ZN2at6native47_GLOBAL__N__21indexSelectSmallIndexIfljLi2ELi2ELin2EEEv";
        assert_eq!(Room::of(select), Room::Asserting);
        let draws = b"_ZN2at6native54_GLOBAL__N_43distribution_elementwise_grid_stride_kernelI";
        assert_eq!(Room::of(draws), Room::Less);
    }
}
