//! NCCL: communicators whose other ranks need not exist. A collective moves nothing and is done at
//! once, as kernels are; small values that the program may steer by come back as if every rank held
//! what this one holds (see [`plimsoll_values::collective`]). What a communicator takes on the device is a measured fact.
//!
//! Types and numbers are those of `nccl.h` 2.28.

mod collectives;
mod communicators;

use std::ffi::{c_char, c_int, c_void};

use self::communicators::{Members, Refused};
use crate::border::installed;
use crate::machine;

const SUCCESS: i32 = 0;
const UNHANDLED_CUDA_ERROR: i32 = 1;
const INVALID_ARGUMENT: i32 = 4;
/// `NCCL_SPLIT_NOCOLOR`: the caller takes no part in the new communicator.
const NO_COLOR: c_int = -1;

/// `ncclUniqueId`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

/// Whether the calling thread is the one in which `PyTorch` looks every 100 ms for collectives that are
/// done, to let go of what they hold. When it looks, in terms of the training step, is a race on a real
/// device. Here it sees what is done when a training step is over, or a step later (see
/// `Machine::is_seen`), always; the agent waits for it then.
pub fn asked_by_watchdog() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: room for the 16 bytes of a thread's name.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.starts_with(b"pt_nccl_watchdg")
}

/// Whether there was ever a communicator of several ranks.
pub fn has_ranks() -> bool {
    communicators::has_ranks()
}

/// What other ranks take at most of device `ordinal` where this one takes less.
pub fn more_elsewhere(ordinal: usize) -> u64 {
    u32::try_from(ordinal).map_or(0, communicators::more_elsewhere)
}

/// Writes an answer where the caller wants it.
///
/// # Safety
///
/// `out` must be null or valid for a `T`.
unsafe fn answer<T>(out: *mut T, value: T) -> i32 {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { out.write(value) };
    SUCCESS
}

/// A new communicator in `out`.
///
/// # Safety
///
/// `out` must be null or valid.
unsafe fn join(out: *mut u64, ranks: c_int, rank: c_int) -> i32 {
    match communicators::create(ranks, rank, machine::current_device()) {
        // SAFETY: the caller's pointer, checked for null.
        Ok(handle) => unsafe { answer(out, handle) },
        Err(refused) => error(refused),
    }
}

/// What NCCL answers to a communicator that cannot be, or that there is no room for.
fn error(refused: Refused) -> i32 {
    match refused {
        Refused::Argument => INVALID_ARGUMENT,
        Refused::Full => UNHANDLED_CUDA_ERROR,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(version, installed::nccl()) }
}

/// Any bytes do, as long as two ids differ: nobody meets by them here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(out: *mut UniqueId) -> i32 {
    let mut id = UniqueId([0x50; 128]);
    id.0[..4].copy_from_slice(&std::process::id().to_le_bytes());
    id.0[8..16].copy_from_slice(&communicators::next_id().to_le_bytes());
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, id) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    out: *mut u64,
    ranks: c_int,
    _id: UniqueId,
    rank: c_int,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { join(out, ranks, rank) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    out: *mut u64,
    ranks: c_int,
    _id: UniqueId,
    rank: c_int,
    _config: *const c_void,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { join(out, ranks, rank) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankScalable(
    out: *mut u64,
    ranks: c_int,
    rank: c_int,
    _n_ids: c_int,
    _ids: *const UniqueId,
    _config: *const c_void,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { join(out, ranks, rank) }
}

/// All devices of one process: `nn.DataParallel` and `torch.cuda.comm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitAll(
    out: *mut u64,
    n_devices: c_int,
    devices: *const c_int,
) -> i32 {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    for rank in 0..n_devices {
        let at = usize::try_from(rank).unwrap_or(0);
        // SAFETY: a list of `n_devices` numbers, if there is one.
        let device = if devices.is_null() { rank } else { unsafe { devices.add(at).read() } };
        let Ok(device) = u32::try_from(device) else { return INVALID_ARGUMENT };
        match communicators::create(n_devices, rank, device) {
            // SAFETY: the caller has room for `n_devices` communicators.
            Ok(handle) => unsafe { out.add(at).write(handle) },
            Err(refused) => return error(refused),
        }
    }
    SUCCESS
}

/// A part of a communicator. How many ranks chose this color is the others' knowledge; the agent, which
/// sees the list that the color was made of, has told us, or it is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    parent: u64,
    color: c_int,
    key: c_int,
    out: *mut u64,
    _config: *const c_void,
) -> i32 {
    if color == NO_COLOR {
        // SAFETY: the caller's pointer, checked for null.
        return unsafe { answer(out, 0) };
    }
    match communicators::split(parent, color, key) {
        // SAFETY: the caller's pointer, checked for null.
        Ok(handle) => unsafe { answer(out, handle) },
        Err(refused) => error(refused),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommShrink(
    parent: u64,
    _excluded: *const c_int,
    n_excluded: c_int,
    out: *mut u64,
    _config: *const c_void,
    _flags: c_int,
) -> i32 {
    let Some(it) = communicators::find(parent) else { return INVALID_ARGUMENT };
    let ranks = c_int::try_from(it.ranks).unwrap_or(1).saturating_sub(n_excluded).max(1);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { join(out, ranks, it.rank.min(ranks - 1)) }
}

/// The agent says that `color`, as given to `ncclCommSplit`, is of a group of `ranks`, of which `near` are on this machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_phantom_group(
    color: c_int,
    ranks: c_int,
    near: *const c_int,
    n_near: c_int,
) {
    // SAFETY: the same contract.
    if let Some(members) = unsafe { members(ranks, near, n_near) } {
        communicators::learn(color, members);
    }
}

/// The agent says who is in the next communicator that this thread makes; no ranks: nobody knows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_phantom_next_group(
    ranks: c_int,
    near: *const c_int,
    n_near: c_int,
) {
    // SAFETY: the same contract.
    communicators::expect(unsafe { members(ranks, near, n_near) });
}

/// Those of a list; none of no ranks.
///
/// # Safety
///
/// `near` must be null or a list of `n_near` numbers.
unsafe fn members(ranks: c_int, near: *const c_int, n_near: c_int) -> Option<Members> {
    let ranks = u64::try_from(ranks).ok().filter(|it| *it != 0)?;
    let n = if near.is_null() { 0 } else { usize::try_from(n_near).unwrap_or(0) };
    // SAFETY: the caller's list.
    let near = (0..n).map(|at| unsafe { near.add(at).read() }).collect();
    Some(Members { ranks, near })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(communicator: u64) -> i32 {
    communicators::remove(communicator);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(communicator: u64) -> i32 {
    communicators::remove(communicator);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(_communicator: u64, error: *mut c_int) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(error, SUCCESS) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(communicator: u64, count: *mut c_int) -> i32 {
    let Some(it) = communicators::find(communicator) else { return INVALID_ARGUMENT };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(count, c_int::try_from(it.ranks).unwrap_or(c_int::MAX)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(communicator: u64, rank: *mut c_int) -> i32 {
    let Some(it) = communicators::find(communicator) else { return INVALID_ARGUMENT };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(rank, it.rank) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCuDevice(communicator: u64, device: *mut c_int) -> i32 {
    let Some(it) = communicators::find(communicator) else { return INVALID_ARGUMENT };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(device, c_int::try_from(it.device).unwrap_or(0)) }
}

/// NCCL's own texts.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    let text = match result {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// What went wrong last: here only the card can be full.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: u64) -> *const c_char {
    let text = if communicators::ran_out() { c"Cuda failure 2 'out of memory'" } else { c"" };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(out: *mut u64, size: usize) -> i32 {
    // SAFETY: the same contract.
    match unsafe { crate::border::runtime::cudaMalloc(out, size) } {
        SUCCESS => SUCCESS,
        _ => UNHANDLED_CUDA_ERROR,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(pointer: *mut c_void) -> i32 {
    match crate::border::runtime::cudaFree(pointer) {
        SUCCESS => SUCCESS,
        _ => UNHANDLED_CUDA_ERROR,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    _communicator: u64,
    buffer: *mut c_void,
    _size: usize,
    handle: *mut u64,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(handle, buffer as u64) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommWindowRegister(
    _communicator: u64,
    buffer: *mut c_void,
    _size: usize,
    window: *mut u64,
    _flags: c_int,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(window, buffer as u64) }
}

/// A number that no built-in operation has: what it makes of values is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    op: *mut c_int,
    _scalar: *const c_void,
    _datatype: c_int,
    _residence: c_int,
    _communicator: u64,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(op, 5) }
}

/// A simulation takes no time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupSimulateEnd(info: *mut c_void) -> i32 {
    /// Of `estimatedTime` in `ncclSimInfo_t`.
    const TIME: usize = 16;
    if !info.is_null() {
        // SAFETY: a `ncclSimInfo_t`, which has a float there.
        unsafe { info.cast::<u8>().add(TIME).cast::<f32>().write_unaligned(0.0) };
    }
    SUCCESS
}
