//! NVML (`libnvidia-ml.so.1`): what `PyTorch` and monitoring read of the device. The file of that
//! name beside `libcuda.so.1` is a link to this library. Status numbers are those of `nvml.h`.

mod sensors;

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::border::runtime::{pci_bus_id, write_text};
use crate::machine;
use crate::machine::card;
use crate::machine::neighbours::{Holder, together};
use crate::machine::report;

const SUCCESS: i32 = 0;
const UNINITIALIZED: i32 = 1;
const INVALID_ARGUMENT: i32 = 2;
const NOT_SUPPORTED: i32 = 3;
const NOT_FOUND: i32 = 6;
const INSUFFICIENT_SIZE: i32 = 7;
const DRIVER_NOT_LOADED: i32 = 9;

/// A device's handle is this plus its ordinal in the machine: NVML does not know
/// `CUDA_VISIBLE_DEVICES`.
const HANDLE: u64 = 0x5200_0000_0000;

fn put<T>(out: *mut T, value: T) -> i32 {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null, and NVML asks the caller for room for a `T`.
    unsafe { out.write(value) };
    SUCCESS
}

fn devices() -> u32 {
    machine::installed()
}

fn ordinal(handle: u64) -> Option<u32> {
    u32::try_from(handle.checked_sub(HANDLE)?).ok().filter(|&it| it < devices())
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> i32 {
    if devices() == 0 { DRIVER_NOT_LOADED } else { SUCCESS }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> i32 {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> i32 {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(status: c_int) -> *const c_char {
    let text = match status {
        SUCCESS => c"Success",
        UNINITIALIZED => c"Uninitialized",
        INVALID_ARGUMENT => c"Invalid Argument",
        NOT_FOUND => c"Not Found",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        DRIVER_NOT_LOADED => c"Driver Not Loaded",
        _ => c"Not Supported",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> i32 {
    put(count, devices())
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount(count: *mut c_uint) -> i32 {
    put(count, devices())
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut u64) -> i32 {
    if devices() <= index {
        return INVALID_ARGUMENT;
    }
    put(handle, HANDLE + u64::from(index))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, handle: *mut u64) -> i32 {
    nvmlDeviceGetHandleByIndex_v2(index, handle)
}

/// The device whose name ends as `wanted` does.
fn by_name(wanted: *const c_char, name: impl Fn(u32) -> String) -> Option<u32> {
    if wanted.is_null() {
        return None;
    }
    // SAFETY: not null; NVML asks for a terminated string.
    let wanted = unsafe { CStr::from_ptr(wanted) }.to_string_lossy().to_ascii_lowercase();
    (0..devices()).find(|&it| wanted.ends_with(&name(it).to_ascii_lowercase()))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(bus: *const c_char, handle: *mut u64) -> i32 {
    match by_name(bus, |it| pci_bus_id(it)[5..].to_owned()) {
        Some(it) => put(handle, HANDLE + u64::from(it)),
        None => NOT_FOUND,
    }
}

/// A UUID as `nvidia-smi` prints it.
fn uuid_text(ordinal: u32) -> String {
    if let Some(named) = machine::uuid_of(ordinal) {
        return named;
    }
    let hex: String =
        crate::border::runtime::uuid(ordinal).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, handle: *mut u64) -> i32 {
    match by_name(uuid, uuid_text) {
        Some(it) => put(handle, HANDLE + u64::from(it)),
        None => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(handle: u64, text: *mut c_char, length: c_uint) -> i32 {
    let Some(ordinal) = ordinal(handle) else { return INVALID_ARGUMENT };
    // SAFETY: the caller's buffer and its length.
    unsafe { write_text(text, c_int::try_from(length).unwrap_or(0), &uuid_text(ordinal)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(handle: u64, text: *mut c_char, length: c_uint) -> i32 {
    let (Some(_), Some(card)) = (ordinal(handle), card::current()) else {
        return INVALID_ARGUMENT;
    };
    // SAFETY: the caller's buffer and its length.
    unsafe { write_text(text, c_int::try_from(length).unwrap_or(0), &card.name) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetIndex(handle: u64, index: *mut c_uint) -> i32 {
    ordinal(handle).map_or(INVALID_ARGUMENT, |it| put(index, it))
}

/// Bytes in use on a device, and the card's total, as CUDA counts them.
fn used_and_total(ordinal: u32) -> Option<(u64, u64)> {
    // Who sees no device may ask all the same.
    let Some(machine) = machine::lock() else { return Some((0, card::current()?.total_bytes)) };
    let visible = machine.visible.iter().position(|it| it.ordinal == ordinal);
    let others = together(&machine.others(ordinal));
    let total = machine.card.total_bytes;
    let used = match visible.map(|it| &machine.devices[it]) {
        None => others,
        // Who only looks has no context.
        Some(device) if others != 0 && device.held() == 0 => others,
        // As `cudaMemGetInfo` has it, which is also what still fits.
        Some(device) => total.saturating_sub(device.free()),
    };
    Some((used.min(total), total))
}

/// What the firmware has of a card: NVML counts it, CUDA does not.
fn hidden() -> u64 {
    card::current().map_or(0, |it| it.hidden_bytes)
}

/// Who holds something on a device: this process first, if it sees the device.
fn holders(ordinal: u32) -> Option<Vec<Holder>> {
    let (used, _) = used_and_total(ordinal)?;
    let others = machine::lock().map(|it| it.others(ordinal)).unwrap_or_default();
    // What no process of this run holds is nobody's here.
    let elsewhere = together(&others) + card::current()?.beside_bytes;
    let own = Holder { pid: std::process::id(), bytes: used.saturating_sub(elsewhere) };
    let is_own = others.is_empty() || own.bytes != 0;
    Some(is_own.then_some(own).into_iter().chain(others).collect())
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo(handle: u64, out: *mut [u64; 3]) -> i32 {
    report::ask_size();
    match ordinal(handle).and_then(used_and_total) {
        Some((used, total)) => {
            let hidden = hidden();
            put(out, [total + hidden, total - used, used + hidden])
        }
        None => INVALID_ARGUMENT,
    }
}

/// `nvmlMemory_v2_t`: version, total, reserved, free, used.
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: u64, out: *mut MemoryV2) -> i32 {
    report::ask_size();
    match ordinal(handle).and_then(used_and_total) {
        Some((used, total)) => {
            let (version, reserved) = (0x0200_0028, hidden());
            let (total, free) = (total + reserved, total - used);
            put(out, MemoryV2 { version, total, reserved, free, used })
        }
        None => INVALID_ARGUMENT,
    }
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
pub struct ProcessInfo {
    pid: c_uint,
    used: u64,
}

/// `nvmlProcessInfo_t` since version 2.
#[repr(C)]
pub struct ProcessInfoV3 {
    pid: c_uint,
    used: u64,
    instances: [c_uint; 2],
}

fn running<T>(handle: u64, count: *mut c_uint, out: *mut T, info: impl Fn(Holder) -> T) -> i32 {
    let Some(holders) = ordinal(handle).and_then(holders) else { return INVALID_ARGUMENT };
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null; on input it is the room behind `out`.
    let room = usize::try_from(unsafe { count.read() }).unwrap_or(usize::MAX);
    put(count, c_uint::try_from(holders.len()).unwrap_or(c_uint::MAX));
    if out.is_null() || room < holders.len() {
        return INSUFFICIENT_SIZE;
    }
    for (i, it) in holders.into_iter().enumerate() {
        // SAFETY: there is room for as many.
        unsafe { out.add(i).write(info(it)) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    handle: u64,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> i32 {
    running(handle, count, out, |it| ProcessInfo { pid: it.pid, used: it.bytes })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: u64,
    count: *mut c_uint,
    out: *mut ProcessInfoV3,
) -> i32 {
    let instances = [u32::MAX; 2];
    running(handle, count, out, |it| ProcessInfoV3 { pid: it.pid, used: it.bytes, instances })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUtilizationRates(handle: u64, out: *mut [c_uint; 2]) -> i32 {
    ordinal(handle).map_or(INVALID_ARGUMENT, |_| put(out, [0; 2]))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCudaComputeCapability(
    handle: u64,
    major: *mut c_int,
    minor: *mut c_int,
) -> i32 {
    let (Some(_), Some(card)) = (ordinal(handle), card::current()) else {
        return INVALID_ARGUMENT;
    };
    put(major, card.compute_capability.0);
    put(minor, card.compute_capability.1)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> i32 {
    put(version, card::current().map_or(0, |it| it.driver_version))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> i32 {
    nvmlSystemGetCudaDriverVersion_v2(version)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) -> i32 {
    // SAFETY: the caller's buffer and its length.
    unsafe { write_text(text, c_int::try_from(length).unwrap_or(0), "580.65.06") }
}

/// No links to other devices are imitated.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(
    _handle: u64,
    _link: c_uint,
    _out: *mut c_int,
) -> i32 {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    _handle: u64,
    _link: c_uint,
    _out: *mut std::ffi::c_void,
) -> i32 {
    NOT_SUPPORTED
}
