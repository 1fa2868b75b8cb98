//! cuDNN: the real library chooses the algorithms and names their workspaces; nothing is executed.
//!
//! cuDNN 9 answers its backend questions for a *device property* descriptor (type 38), which can be
//! made from JSON (attribute 2702) without a device. `PyTorch` asks with a handle instead; so where
//! an attribute would take the handle, the description of the imagined card is set in its place. The
//! engines that are built on cublasLt are offered because cuDNN's own `dlopen` of it finds ours (see
//! `loader`).
//!
//! The older functions (recurrent networks, CTC, dropout, batch normalization) have no such
//! attribute. They get a handle that is as a new one would be, as far as a question about sizes
//! reads it: it begins with that same description, as cuDNN itself laid it out, and the rest, which
//! is for work on a device, is zeros. The sizes are then cuDNN's own: all 32,444 that an H200 gave
//! for recurrent networks without packed sequences, and 700 for CTC, come out equal
//! (`bench/instruments/library_facts.py`).
//!
//! cuDNN 9.1 and 9.5 have no such descriptor. They are asked with a handle as `PyTorch` does it, that of
//! `handles`.

mod handles;
mod library;
mod norms;
pub mod trials;

use std::ffi::{CString, c_int, c_ulonglong, c_void};
use std::sync::OnceLock;

use self::library::{BAD_PARAM, Descriptor, NOT_INITIALIZED, SUCCESS, real};
use crate::machine::card::{self, Card};
use crate::machine::report;
use crate::machine::resident::Resident;

/// Attributes of the backend API (`cudnn_graph.h`) that carry a handle, or stand for one.
mod attribute {
    /// `CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH`
    pub(super) const HEURISTIC_GRAPH: i32 = 201;
    /// `CUDNN_ATTR_ENGINEHEUR_DEVICEPROP`
    pub(super) const HEURISTIC_DEVICE: i32 = 204;
    /// `CUDNN_ATTR_EXECUTION_PLAN_HANDLE`
    pub(super) const PLAN_HANDLE: i32 = 400;
    /// `CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE`
    pub(super) const PLAN_WORKSPACE: i32 = 402;
    /// `CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP`
    pub(super) const PLAN_DEVICE: i32 = 407;
    /// `CUDNN_ATTR_OPERATIONGRAPH_HANDLE`
    pub(super) const GRAPH_HANDLE: i32 = 800;
    /// `CUDNN_ATTR_ENGINE_OPERATION_GRAPH`
    pub(super) const ENGINE_GRAPH: i32 = 1300;
    /// `CUDNN_ATTR_ENGINE_DEVICEPROP`
    pub(super) const ENGINE_DEVICE: i32 = 1307;
    /// `CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`
    pub(super) const DEVICE_JSON: i32 = 2702;
}
/// `CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR`
const DEVICE_DESCRIPTOR: c_int = 38;
/// `CUDNN_TYPE_INT64`, `CUDNN_TYPE_BACKEND_DESCRIPTOR` and `CUDNN_TYPE_CHAR`
const TYPE_INTEGER: c_int = 3;
const TYPE_DESCRIPTOR: c_int = 15;
const TYPE_CHAR: c_int = 24;

/// `CUDNN_STATUS_EXECUTION_FAILED_CUDART` of cuDNN 9.19, `CUDNN_STATUS_EXECUTION_FAILED` of 9.10.
const NO_RUNTIME: [i32; 2] = [5003, 5000];

/// Where a device descriptor of type 38 keeps `cudnnDeviceProp`: behind what all descriptors begin with.
const IN_DESCRIPTOR: usize = 0x18;

/// The layout of `cudnnDeviceProp` as far as we look at it, in a descriptor and at the start of a handle.
#[derive(Clone, Copy)]
struct Layout {
    /// `deviceVer`, 900 for compute capability 9.0.
    version: usize,
    /// Multiprocessors of each graphics processing cluster: 24 integers, which 9.26 has twice.
    skylines: [usize; 2],
    /// `deviceName`, 256 characters; the description ends with it.
    name: usize,
}

impl Layout {
    const NAME_SIZE: usize = 256;

    fn size(self) -> usize {
        self.name + Layout::NAME_SIZE
    }
}

/// Those of cuDNN 9.26, 9.19 and 9.10, as seen there. Another one is noticed by `deviceVer` and the name.
const LAYOUTS: [Layout; 3] = [
    Layout { version: 0x68, skylines: [0x74, 0xd4], name: 0x154 },
    Layout { version: 0x68, skylines: [0x70, 0x70], name: 0x110 },
    Layout { version: 0x60, skylines: [0x68, 0x68], name: 0xc8 },
];

/// Whether the real library can be told of a device without a handle: its version, if it cannot.
fn version_without_descriptors() -> Option<usize> {
    static VERSION: OnceLock<Option<usize>> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let real = real()?;
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the real functions with arguments as their header asks; a descriptor that is made stays.
        let (made, version) =
            unsafe { ((real.create)(DEVICE_DESCRIPTOR, &raw mut descriptor), (real.version)()) };
        (made != SUCCESS).then_some(version)
    })
}

/// The description of the imagined card, as a descriptor of the real library. All devices of the
/// machine are alike, so there is one.
fn device() -> Option<Descriptor> {
    static DEVICE: OnceLock<Option<usize>> = OnceLock::new();
    let made = DEVICE.get_or_init(|| {
        let card = card::current()?;
        let json = CString::new(card.cudnn_json.as_str()).ok().filter(|it| !it.is_empty())?;
        let real = real()?;
        let size = i64::try_from(json.as_bytes_with_nul().len()).ok()?;
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the real functions with arguments as their header asks.
        let made = unsafe {
            (real.create)(DEVICE_DESCRIPTOR, &raw mut descriptor) == SUCCESS
                && (real.set)(
                    descriptor,
                    attribute::DEVICE_JSON,
                    TYPE_CHAR,
                    size,
                    json.as_ptr().cast(),
                ) == SUCCESS
                && (real.finalize)(descriptor) == SUCCESS
        };
        if !made {
            report::approximate("cuDNN rejects plimsoll's description of this card");
        }
        made.then_some(descriptor as usize)
    });
    made.map(|it| it as Descriptor)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: Descriptor,
    name: c_int,
    kind: c_int,
    count: i64,
    values: *const c_void,
) -> i32 {
    let Some(real) = real() else { return NOT_INITIALIZED };
    if version_without_descriptors().is_some() {
        // SAFETY: the caller's own arguments.
        return unsafe { (real.set)(descriptor, name, kind, count, values) };
    }
    let set_device = |name| match device() {
        // SAFETY: a finalized descriptor of the real library, which copies the pointer.
        Some(it) => unsafe {
            (real.set)(descriptor, name, TYPE_DESCRIPTOR, 1, (&raw const it).cast())
        },
        None => NOT_INITIALIZED,
    };
    match name {
        attribute::GRAPH_HANDLE => SUCCESS,
        attribute::PLAN_HANDLE => set_device(attribute::PLAN_DEVICE),
        _ => {
            // SAFETY: the caller's own arguments.
            let status = unsafe { (real.set)(descriptor, name, kind, count, values) };
            if status == SUCCESS {
                match name {
                    attribute::HEURISTIC_GRAPH => return set_device(attribute::HEURISTIC_DEVICE),
                    attribute::ENGINE_GRAPH => return set_device(attribute::ENGINE_DEVICE),
                    _ => {}
                }
            }
            status
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendExecute(_handle: u64, plan: Descriptor, _pack: Descriptor) -> i32 {
    if let Some(workspace) = workspace(plan) {
        trials::executed(plan.addr(), workspace);
        if card::current().is_some_and(|it| it.tried_is_largest)
            && let Some(mut machine) = crate::machine::lock()
        {
            machine.spend(trials::time_of(workspace));
        }
    }
    SUCCESS
}

/// How much a plan needs, in bytes.
fn workspace(plan: Descriptor) -> Option<u64> {
    let (mut count, mut bytes) = (0_i64, 0_i64);
    // SAFETY: the caller's plan, and room for the one integer that is asked for.
    let status = unsafe {
        (real()?.get)(
            plan,
            attribute::PLAN_WORKSPACE,
            TYPE_INTEGER,
            1,
            &raw mut count,
            (&raw mut bytes).cast(),
        )
    };
    (status == SUCCESS && count == 1).then(|| u64::try_from(bytes).ok())?
}

/// What handles point to. Large enough for whatever cuDNN looks for behind the description.
#[repr(align(64))]
struct Handle([u8; 1 << 16]);

/// The handle, once for the process: it says what the card is, and nothing else.
fn handle() -> *const c_void {
    static HANDLE: OnceLock<Box<Handle>> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let mut handle = Box::new(Handle([0; 1 << 16]));
        if let (Some(version), Some(card)) = (version_without_descriptors(), card::current()) {
            let begin = handles::begin(version, card);
            handle.0[..begin.len()].copy_from_slice(&begin);
        } else if let Some(device) = device() {
            let start = device.cast::<u8>().wrapping_add(IN_DESCRIPTOR);
            let card = card::current();
            let described = card.and_then(|card| {
                LAYOUTS.iter().rev().find_map(|layout| {
                    // SAFETY: a finalized descriptor of the real library, whose description is that long in
                    // the shortest layout; a longer one is looked at when the shorter ones do not fit.
                    let it = unsafe { std::slice::from_raw_parts(start, layout.size()) };
                    describe(it, *layout, card)
                })
            });
            match described {
                Some(described) => handle.0[..described.len()].copy_from_slice(&described),
                None => report::approximate(
                    "plimsoll does not know how this version of cuDNN describes a device: the memory of recurrent networks may differ",
                ),
            }
        }
        handle
    });
    handle.0.as_ptr().cast()
}

/// The description for a handle, from that in a descriptor: the same, with the card's clusters. `None` if the
/// imagined card is not found where it has to be in this layout.
fn describe(descriptor: &[u8], layout: Layout, card: &Card) -> Option<Vec<u8>> {
    let mut described = descriptor.to_vec();
    let name = described.get(layout.name..)?.split(|&it| it == 0).next()?;
    let version = described.get(layout.version..layout.version + 4)?;
    if version != (card.sm_version() * 10).to_le_bytes() || name != card.name.as_bytes() {
        return None;
    }
    for skyline in layout.skylines {
        for (i, gpc) in card.gpcs.iter().take(24).enumerate() {
            let at = skyline + 4 * i;
            described.get_mut(at..at + 4)?.copy_from_slice(&gpc.to_le_bytes());
        }
    }
    Some(described)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreate(out: *mut *const c_void) -> i32 {
    if out.is_null() {
        return BAD_PARAM;
    }
    // A full card is what this answer mostly means.
    if let Some(mut machine) = crate::machine::lock()
        && machine.current().reside(Resident::dnn).is_err()
    {
        return NOT_INITIALIZED;
    }
    // SAFETY: not null.
    unsafe { out.write(handle()) };
    SUCCESS
}

/// The states of a dropout descriptor are written by a kernel; a descriptor whose states are there
/// already is the same without it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetDropoutDescriptor(
    descriptor: Descriptor,
    handle: u64,
    dropout: f32,
    states: *mut c_void,
    bytes: usize,
    seed: c_ulonglong,
) -> i32 {
    let Some(real) = real() else { return NOT_INITIALIZED };
    let set = if states.is_null() { real.set_dropout } else { real.restore_dropout };
    // SAFETY: the caller's own arguments; without states nothing is written.
    unsafe { set(descriptor, handle, dropout, states, bytes, seed) }
}

/// Workspace and reserve space of a recurrent network: the real library writes both, and then finds
/// that its runtime has no device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetRNNTempSpaceSizes(
    handle: u64,
    network: Descriptor,
    mode: c_int,
    input: Descriptor,
    workspace: *mut usize,
    reserve: *mut usize,
) -> i32 {
    const NOT_WRITTEN: usize = usize::MAX;
    let Some(real) = real() else { return NOT_INITIALIZED };
    let asked = [workspace, reserve].into_iter().filter(|it| !it.is_null());
    // SAFETY: the caller's own arguments, each of which may be null.
    unsafe {
        asked.clone().for_each(|it| it.write(NOT_WRITTEN));
        let status = (real.temp_space_sizes)(handle, network, mode, input, workspace, reserve);
        let are_written = asked.into_iter().all(|it| it.read() != NOT_WRITTEN);
        if are_written && NO_RUNTIME.contains(&status) { SUCCESS } else { status }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetStream(_handle: u64, stream: *mut u64) -> i32 {
    if stream.is_null() {
        return BAD_PARAM;
    }
    // SAFETY: not null.
    unsafe { stream.write(0) };
    SUCCESS
}

/// `bool mb_tools::hasValidVSL(std::array<int, 24> const &)` of `libcudnn_graph`: asked by cuDNN's
/// engines for Hopper and later before they read how many multiprocessors each graphics processing
/// cluster has, from which they plan stream-K, and with it the workspace.
///
/// With a handle cuDNN measures that list on the device; the JSON description has no member for it,
/// and cuDNN assumes one cluster of 18. The list is filled in here, where it is about to be read.
///
/// # Safety
///
/// `skyline` must be null or valid for 24 integers: it is the member of cuDNN's own device
/// description, which lives on the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZN8mb_tools11hasValidVSLERKSt5arrayIiLm24EE(
    skyline: *mut [c_int; 24],
) -> bool {
    if skyline.is_null() {
        return false;
    }
    let gpcs = card::current().map_or(&[][..], |it| &it.gpcs);
    // SAFETY: not null, and the caller vouches for the rest. The write is the same each time, so
    // threads that plan side by side agree.
    unsafe {
        if !gpcs.is_empty() {
            let mut filled = [0; 24];
            for (slot, &gpc) in filled.iter_mut().zip(gpcs) {
                *slot = gpc;
            }
            if skyline.read() != filled {
                skyline.write(filled);
            }
        }
        (*skyline)[0] != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_in_the_layout_of_each_cudnn_and_in_no_other() {
        let card = Card::h200();
        for (i, layout) in LAYOUTS.into_iter().enumerate() {
            let mut descriptor = vec![0; 0x254];
            descriptor[layout.version..layout.version + 4].copy_from_slice(&900_i32.to_le_bytes());
            descriptor[layout.skylines[0]] = 18;
            descriptor[layout.name..layout.name + 11].copy_from_slice(b"NVIDIA H200");
            for (j, tried) in LAYOUTS.into_iter().enumerate() {
                let described = describe(&descriptor[..tried.size()], tried, &card);
                assert_eq!(described.is_some(), i == j, "layout {i} read as {j}");
                if let Some(it) = described {
                    let clusters = it[layout.skylines[0]..].chunks(4).take(13).map(|it| it[0]);
                    assert!(clusters.eq([18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2, 0]));
                }
            }
        }
    }
}
