//! Messages of programs that nobody here knows: that something failed, on a device, for want of memory.

use Number::{Allocated, Capacity, Free, Limit, Requested};

use crate::{
    failures::{Backend, Failure},
    sources::oom_text::form::{Form, Number, Place, device, is_code, is_sentence},
    units::Bytes,
};

/// Looked for after all others.
pub(super) const FORMS: &[Form] = &[
    device(
        Backend::Other,
        &[
            "out of memory",
            "out-of-memory",
            "outofmemory",
            "out_of_memory",
            "memory isn't enough",
            "memory is not enough",
            "memory exhausted",
            "not enough memory",
            "not enough device memory",
            "not enough gpu memory",
            "not enough gpu ram",
            "not enough vram",
            "insufficient memory",
            "insufficient device memory",
            "insufficient gpu memory",
            "insufficient vram",
        ],
        NUMBERS,
    )
    .long()
    .if_holds(is_failure_on_a_device)
    .read(plausible),
    device(
        Backend::Other,
        &[
            "failed to alloc",
            "unable to alloc",
            "cannot alloc",
            "can not alloc",
            "could not alloc",
            "alloc failed",
            "allocation failed",
            "allocation failure",
            "max size of memory object allocation",
        ],
        NUMBERS,
    )
    .if_holds(is_size_on_a_device)
    .read(plausible),
    // Clear by themselves: of hashcat, of ncnn (-2 is the device's memory), of CubeCL and wgpu.
    device(
        Backend::Other,
        &[
            "not enough allocatable device memory",
            "vkallocatememory failed -2",
            "no pool handles allocation of size",
            "cacheallocationfailure: failed to allocate",
        ],
        NUMBERS,
    )
    .read(plausible),
    device(Backend::Other, &["device::create_buffer", "device::create_texture"], NUMBERS)
        .also(&["not enough memory"])
        .long()
        .read(plausible),
    device(Backend::Other, &["terminate called after throwing"], NUMBERS)
        .also(&["out of memory", "out_of_memory", "outofmemory"])
        .long()
        .if_holds(is_of_a_device)
        .read(plausible),
];

/// Whether an exception of C++ that nobody caught, of which the runtime tells in several lines, says so.
fn is_of_a_device(place: &Place<'_>) -> bool {
    names_device(place.lower)
}

/// The words that most writers put before their numbers.
const NUMBERS: &[(Number, &str)] = &[
    (Requested, "to allocate"),
    (Requested, "to alloc"),
    (Requested, "cannot allocate"),
    (Requested, "could not allocate"),
    (Requested, "can not allocate"),
    (Requested, "allocating"),
    (Requested, "alloc size"),
    (Requested, "request memory size"),
    (Requested, "requested size"),
    (Requested, "requestedspace:"),
    (Free, "totalfreespace:"),
    (Requested, "requested"),
    (Requested, "of size"),
    (Requested, "for size::"),
    (Requested, "size"),
    (Capacity, "hbm memory size"),
    (Capacity, "device memory size"),
    (Capacity, "total memory"),
    (Capacity, "capacity"),
    (Free, "free memory"),
    (Free, "available memory"),
    (Free, "available"),
    (Allocated, "used memory size"),
    (Allocated, "used memory"),
    (Limit, "supported by device is"),
];

/// Names of memory that is not the host's; the short ones have to stand alone.
const DEVICES: &[&str] = &[
    "cuda", "gpu", "device", "devmem", "vram", "rocm", "vulkan", "opencl", "optix", "directml",
    "neuron",
];
const SHORT: &[&str] =
    &["hip", "npu", "hpu", "tpu", "xpu", "mps", "metal", "hbm", "cl", "nv", "amd"];

fn names_device(line: &str) -> bool {
    DEVICES.iter().any(|it| line.contains(it))
        || line.split(|it: char| !it.is_ascii_alphanumeric()).any(|it| SHORT.contains(&it))
}

/// Whether the line tells of a failure, and goes not on to say how it was helped.
fn is_failure_on_a_device(place: &Place<'_>) -> bool {
    let line = &place.lower[..place.first];
    let is_failure =
        ["error", "fatal", "fail", "exception", "panic", "abort", "terminat", "assert"]
            .iter()
            .any(|it| line.contains(it));
    let is_helped = [
        "retry",
        "fallback",
        "falling back",
        "fall back",
        "skipping",
        "warn",
        "instead",
        "no error",
    ]
    .iter()
    .any(|it| line.contains(it));
    let is_talk = is_code(&line[..place.at]) || is_sentence(&place.lower[place.end..]);
    // PyTorch's own are known: what was not taken for one is none.
    let is_known = ["outofmemoryerror", "cuda out of memory", "hip out of memory"]
        .iter()
        .any(|it| line.contains(it));
    is_failure && !is_helped && !is_talk && !is_known && names_device(line)
}

/// And says how much it was.
fn is_size_on_a_device(place: &Place<'_>) -> bool {
    let line = &place.lower[..place.first];
    is_failure_on_a_device(place)
        && ["byte", "kib", "mib", "gib", "kb", "mb", "gb", "::"].iter().any(|it| line.contains(it))
}

/// A number that is too small for a size counted something else.
fn plausible(it: &mut Failure, _: &str, _: &str) {
    const LEAST: Bytes = Bytes(256);
    for number in
        [&mut it.requested, &mut it.capacity, &mut it.free, &mut it.allocated, &mut it.limit]
    {
        *number = number.filter(|it| LEAST <= *it);
    }
}
