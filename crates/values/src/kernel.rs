//! What is known of a kernel by its name.

use std::ffi::CStr;

use crate::kernels::family::Family;
use crate::kernels::{count, reduce};
use crate::names::{self, has};
use crate::questions::{self, Purpose};
use crate::room::Room;
use crate::signature::Signature;

/// A kernel, as far as its (mangled) name says what it is.
#[derive(Debug)]
pub struct Kernel {
    /// What it computes, of those whose results are known.
    pub(crate) family: Option<Family>,
    pub(crate) purpose: Option<Purpose>,
    room: Room,
    spills: bool,
    /// What it takes, of one that is looked at.
    signature: Option<Signature>,
}

impl Kernel {
    /// The one of this mangled name. Takes some microseconds for the few that are looked at.
    pub fn of(name: &[u8]) -> Kernel {
        let (family, purpose) = (Family::of(name), questions::purpose_of(name));
        let is_looked_at = family.is_some() || purpose.is_some();
        let signature = if name == reduce::PRODUCT.to_bytes() {
            Some(Signature::of_one(reduce::JIT))
        } else {
            is_looked_at.then(|| Signature::of(name)).flatten()
        };
        let (room, spills) = (Room::of(name), has(name, names::IGAMMA));
        Kernel { family, purpose, room, spills, signature }
    }

    /// The name of a kernel that a module has which was made at run time, if it is looked at.
    pub fn of_a_module(name: &CStr) -> Option<&'static CStr> {
        (name == reduce::PRODUCT).then_some(reduce::PRODUCT)
    }

    /// What it makes the driver take when it is loaded.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Whether it needs more local memory than a context has for each kernel. Of PyTorch's (all 448 modules of 2.11 for Hopper were read) these are
    /// `igamma`'s; FlashAttention's that also return the probabilities, for heads of 32, are not looked for.
    pub fn spills(&self) -> bool {
        self.spills
    }

    /// Whether it needs so few registers that a multiprocessor holds as many blocks of it as its threads allow.
    pub fn is_light(&self) -> bool {
        matches!(self.purpose, Some(Purpose::Counts(it)) if count::Kernel::is_light(it))
    }

    /// What it takes, by which its arguments are read; `None` if it is not looked at.
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::Launch;
    use crate::guesses::Guesses;
    use crate::memory::{IsLazy, Known, KnowsAny};

    /// What a kernel is for, in a word or two.
    fn drawn(kernel: &Kernel) -> String {
        let word = |it: String| it.split(['(', ' ']).next().unwrap_or_default().to_owned();
        let family = kernel.family.map(|it| word(format!("{it:?}")));
        let purpose = kernel.purpose.map(|it| word(format!("{it:?}")));
        family.into_iter().chain(purpose).collect::<Vec<_>>().join("+")
    }

    /// `tests/kernels-2.11.txt` has one kernel of each kind that libtorch_cuda.so of torch 2.11 registers and that is looked at:
    /// what it is for, and its name. `kernels-2.8.txt` has those that the CUB of CUDA 12 calls otherwise.
    #[test]
    fn kernels_of_torch_are_told_and_their_arguments_can_be_read() {
        let mut guesses = Guesses::new(<_>::default());
        let of_cuda_12 = include_str!("../tests/kernels-2.8.txt");
        for line in include_str!("../tests/kernels-2.11.txt").lines().chain(of_cuda_12.lines()) {
            let (what, name) = line.split_once(' ').unwrap();
            let kernel = Kernel::of(name.as_bytes());
            assert_eq!(drawn(&kernel), what, "{name}");
            let launch = Launch::of_name(name.as_bytes()).unwrap();
            let arguments = launch.arguments();
            if let Some(family) = kernel.family {
                let nothing: (Known<'_>, KnowsAny<'_>, IsLazy<'_>) =
                    (&|_, _| None, &|_, _| false, &|_| false);
                let writes = family.writes([1, 1], arguments, nothing, &mut guesses);
                assert!(writes.is_some(), "{name}");
            }
            if let Some(purpose) = kernel.purpose {
                assert!(questions::is_readable(purpose, arguments), "{name}");
            }
        }
    }
}
