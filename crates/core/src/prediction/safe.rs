//! What to give a job so that it runs: the predicted peak, and an allowance for what a phantom cannot know. Each part
//! of it has a cause, and is there only where the cause is; `bench/instruments/accuracy.py` measures how often the sum was
//! enough.

use crate::{
    cards::{Card, Knowledge},
    prediction::{Peaks, device_run::DeviceRun},
    units::Bytes,
};

/// What a prediction rests on that may turn out otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Unknowns {
    /// By how much more the card's context may be than was counted; nothing if it was measured.
    pub context_range: Bytes,
    /// Whether cuDNN was told what a real card says of itself.
    pub cudnn: Knowledge,
    /// The largest block of the run that was there for less than a phase.
    pub largest_scratch: Bytes,
    /// Whether the program has cuDNN try algorithms: it leaves out those whose workspaces do not fit.
    pub tries_algorithms: bool,
    /// What libraries took outside of PyTorch's allocator.
    pub other: Bytes,
    /// Whether some ranks of the job are on other machines than this one.
    pub has_several_machines: bool,
    /// What the same libraries take on another rank of the job where this one takes less.
    pub more_elsewhere: Bytes,
    /// Whether sizes follow from values that were assumed.
    pub has_assumed_sizes: bool,
    /// Whether there are CUDA graphs.
    pub has_graphs: bool,
}

impl Unknowns {
    pub(super) fn of(run: &DeviceRun<'_>, card: &Card, largest_scratch: Bytes) -> Unknowns {
        let phantom = run.recording.phantom.as_ref();
        Unknowns {
            context_range: card.context_range,
            cudnn: card.provenance.cudnn,
            largest_scratch,
            tries_algorithms: phantom.is_some_and(|it| it.trials != 0),
            other: run.other(card),
            has_several_machines: run.has_several_machines(),
            more_elsewhere: run.more_elsewhere(),
            has_assumed_sizes: phantom.is_some_and(|it| it.assumed_sizes != 0),
            has_graphs: run.trace.pools.iter().any(|it| *it != (0, 0)),
        }
    }
}

/// A bound that errs to one side only. The allowance is the sum of:
///
/// - 8 MiB for the kernels that a program happens to load: 105 programs on an H200 took 630 to 838 MiB beside
///   what PyTorch reserved, at most 6 more than what the handles of each are counted with. Where the context was derived
///   from other cards, its range (80 MiB) comes on top.
/// - 1.25 % of what PyTorch reserves, and at least 16 MiB: which of several equal free blocks it takes depends on the
///   driver's addresses, so segments are split a little differently now and then.
/// - 5 % more where sizes follow from values that were assumed (masks, routers, boxes).
/// - 16 MiB where there are CUDA graphs, which the driver keeps on the device: one of 500 kernels took 4.
/// - 64 MiB where libraries take memory of their own: NCCL loads kernels by what it is asked for, 58 MiB with its
///   first message, and no process of the jobs of two and four H200s in bench/results/distributed.md took more than 12 over what
///   is counted. 256 MiB where ranks are on several machines: what NCCL takes to reach another one was not measured.
/// - what NCCL takes on another rank of the same job where it takes less on this one: its buffers to receive are
///   larger than those to send, 256 MiB for a weight that one rank scatters to one other.
/// - unless the card was measured, the largest scratch block of the whole run, once more: cuDNN plans workspaces by
///   the device, and was told what data sheets say of this one. It is the one size that a phantom may get wrong by a
///   multiple, and what it takes stays reserved. Not where the program has cuDNN try algorithms (`cudnn.benchmark`): those
///   that do not fit are left out, so a larger workspace never ends it.
pub fn safe_bytes(peak: Peaks, unknowns: &Unknowns) -> Bytes {
    let when = |cause: bool, bytes: Bytes| if cause { bytes } else { Bytes::ZERO };
    let allowance = Bytes::mib(8)
        + unknowns.context_range
        + allowance_for_addresses(peak.reserved)
        + when(unknowns.has_assumed_sizes, Bytes(peak.reserved.0 / 20))
        + when(unknowns.has_graphs, Bytes::mib(16))
        + when(unknowns.other != Bytes::ZERO, Bytes::mib(64))
        + when(unknowns.has_several_machines, Bytes::mib(192))
        + unknowns.more_elsewhere
        + when(
            unknowns.cudnn != Knowledge::Measured && !unknowns.tries_algorithms,
            unknowns.largest_scratch,
        );
    (peak.device + allowance).round_up_to(Bytes::mib(2))
}

/// How much more or less the allocator may hold where the driver places segments otherwise, of what it reserves.
pub fn allowance_for_addresses(reserved: Bytes) -> Bytes {
    Bytes(reserved.0 / 80).max(Bytes::mib(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_part() {
        let peak = Peaks { reserved: Bytes::gib(8), device: Bytes::gib(9), ..Peaks::default() };
        let nothing = Unknowns {
            context_range: Bytes::ZERO,
            cudnn: Knowledge::Measured,
            largest_scratch: Bytes::mib(500),
            tries_algorithms: false,
            other: Bytes::ZERO,
            has_several_machines: false,
            more_elsewhere: Bytes::ZERO,
            has_assumed_sizes: false,
            has_graphs: false,
        };
        let more = |unknowns: Unknowns| safe_bytes(peak, &unknowns) - safe_bytes(peak, &nothing);
        assert_eq!(safe_bytes(peak, &nothing), Bytes::gib(9) + Bytes::mib(112));
        assert_eq!(more(Unknowns { context_range: Bytes::mib(80), ..nothing }), Bytes::mib(80));
        assert_eq!(more(Unknowns { cudnn: Knowledge::Derived, ..nothing }), Bytes::mib(500));
        let tries = Unknowns { cudnn: Knowledge::Derived, tries_algorithms: true, ..nothing };
        assert_eq!(more(tries), Bytes::ZERO);
        assert_eq!(more(Unknowns { other: Bytes(1), ..nothing }), Bytes::mib(64));
        assert_eq!(more(Unknowns { has_several_machines: true, ..nothing }), Bytes::mib(192));
        assert_eq!(more(Unknowns { more_elsewhere: Bytes::mib(10), ..nothing }), Bytes::mib(10));
        assert_eq!(more(Unknowns { has_graphs: true, ..nothing }), Bytes::mib(16));
        assert_eq!(more(Unknowns { has_assumed_sizes: true, ..nothing }), Bytes::mib(408));
        let small = Peaks { reserved: Bytes::mib(20), device: Bytes::mib(780), ..peak };
        assert_eq!(
            safe_bytes(small, &nothing),
            Bytes::mib(804),
            "small programs depend on addresses, too"
        );
    }
}
