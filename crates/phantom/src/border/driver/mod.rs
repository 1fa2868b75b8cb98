//! The CUDA driver (`libcuda.so.1`), which `PyTorch`, cuDNN and Triton open by name: this library
//! has its soname, so it is what they find. A rim of C signatures over [`crate::machine`].
//!
//! `cuGetProcAddress` and `cuGetExportTable` fail on purpose: the copies of the runtime inside
//! NVIDIA's libraries then give up on the device instead of trusting tables that we do not have,
//! and everything that they would do with one is answered elsewhere.

mod memory;
mod modules;
mod streams;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::border::runtime::{INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, SUCCESS, answer};
use crate::machine as machines;
use crate::machine::card;

const NOT_FOUND: i32 = 500;
/// A context is this plus the number of its device.
const CONTEXT: u64 = 0x5300_0000_0000;

/// Our own function `name`, in its newest version.
pub(crate) fn entry_point(name: &CStr) -> Option<*mut c_void> {
    [b"_v2\0".as_slice(), b"\0"].into_iter().find_map(|version| {
        let versioned = [name.to_bytes(), version].concat();
        // SAFETY: a terminated string; the handle is that of a library that is already loaded.
        let found = unsafe {
            let library =
                libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if library.is_null() {
                return None;
            }
            libc::dlsym(library, versioned.as_ptr().cast())
        };
        (!found.is_null()).then_some(found)
    })
}

fn device_exists(device: c_int) -> Option<u32> {
    u32::try_from(device).ok().filter(|&it| it < machines::device_count())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> i32 {
    if machines::device_count() == 0 { NO_DEVICE } else { SUCCESS }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(version, card::current().map_or(0, |it| it.driver_version)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetExportTable(_table: *mut *const c_void, _id: *const c_void) -> i32 {
    NOT_FOUND
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetProcAddress(
    _name: *const c_char,
    _function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
) -> i32 {
    NOT_FOUND
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetProcAddress_v2(
    _name: *const c_char,
    _function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    _status: *mut c_int,
) -> i32 {
    NOT_FOUND
}

fn error_text(error: c_int) -> (&'static CStr, &'static CStr) {
    match error {
        SUCCESS => (c"CUDA_SUCCESS", c"no error"),
        INVALID_VALUE => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        NO_DEVICE => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        INVALID_DEVICE => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        NOT_FOUND => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported on the phantom GPU"),
        _ => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(text, error_text(error).1.as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: c_int, text: *mut *const c_char) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(text, error_text(error).0.as_ptr()) }
}

/// Lines of the driver's log, of which there are none: the handle is all that the caller gets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLogsRegisterCallback(
    _callback: *const c_void,
    _data: *mut c_void,
    handle: *mut u64,
) -> i32 {
    let Some(mut machine) = machines::lock() else { return INVALID_VALUE };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(handle, machine.handle()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> i32 {
    let devices = c_int::try_from(machines::device_count()).unwrap_or(0);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(count, devices) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> i32 {
    match device_exists(ordinal) {
        // SAFETY: the caller's pointer, checked for null.
        Some(_) => unsafe { answer(device, ordinal) },
        None => INVALID_DEVICE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    code: c_int,
    device: c_int,
) -> i32 {
    let (Some(card), Some(device)) = (card::current(), device_exists(device)) else {
        return INVALID_DEVICE;
    };
    match card.attribute(code, device) {
        // SAFETY: the caller's pointer, checked for null.
        Some(it) => unsafe { answer(value, it) },
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(text: *mut c_char, length: c_int, device: c_int) -> i32 {
    let (Some(card), Some(_)) = (card::current(), device_exists(device)) else {
        return INVALID_DEVICE;
    };
    // SAFETY: the caller's buffer and its length.
    unsafe { crate::border::runtime::write_text(text, length, &card.name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(
    text: *mut c_char,
    length: c_int,
    device: c_int,
) -> i32 {
    let Some(device) = device_exists(device) else { return INVALID_DEVICE };
    // SAFETY: the caller's buffer and its length.
    unsafe {
        crate::border::runtime::write_text(
            text,
            length,
            &crate::border::runtime::pci_bus_id(device),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> i32 {
    let Some(device) = device_exists(device) else { return INVALID_DEVICE };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(uuid, crate::border::runtime::uuid(device)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuDeviceGetUuid(uuid, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> i32 {
    let (Some(card), Some(_)) = (card::current(), device_exists(device)) else {
        return INVALID_DEVICE;
    };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(bytes, usize::try_from(card.total_bytes).unwrap_or(usize::MAX)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceComputeCapability(
    major: *mut c_int,
    minor: *mut c_int,
    device: c_int,
) -> i32 {
    let (Some(card), Some(_)) = (card::current(), device_exists(device)) else {
        return INVALID_DEVICE;
    };
    // SAFETY: the caller's pointers, each checked for null.
    unsafe {
        answer(major, card.compute_capability.0);
        answer(minor, card.compute_capability.1)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, a: c_int, b: c_int) -> i32 {
    if device_exists(a).is_none() || device_exists(b).is_none() {
        return INVALID_DEVICE;
    }
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(can, c_int::from(a != b)) }
}

fn context(device: u32) -> u64 {
    CONTEXT + (u64::from(device) + 1) * 0x1000
}

fn device_of_context(context: u64) -> Option<u32> {
    let index = (context.checked_sub(CONTEXT)? / 0x1000).checked_sub(1)?;
    u32::try_from(index).ok().filter(|&it| it < machines::device_count())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(out: *mut u64, device: c_int) -> i32 {
    match device_exists(device) {
        // SAFETY: the caller's pointer, checked for null.
        Some(it) => unsafe { answer(out, context(it)) },
        None => INVALID_DEVICE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> i32 {
    if device_exists(device).is_none() {
        return INVALID_DEVICE;
    }
    // SAFETY: the caller's pointers, each checked for null.
    unsafe {
        answer(flags, 0);
        answer(active, 1)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(out: *mut u64) -> i32 {
    if machines::device_count() == 0 {
        return NO_DEVICE;
    }
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, context(machines::current_device())) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: u64) -> i32 {
    if let Some(device) = device_of_context(context) {
        machines::set_current_device(device);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: u64) -> i32 {
    cuCtxSetCurrent(context)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent(context: u64) -> i32 {
    cuCtxSetCurrent(context)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(out: *mut u64) -> i32 {
    if out.is_null() {
        return SUCCESS;
    }
    // SAFETY: not null.
    unsafe { cuCtxGetCurrent(out) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent(out: *mut u64) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuCtxPopCurrent_v2(out) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> i32 {
    let it = c_int::try_from(machines::current_device()).unwrap_or(0);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(device, it) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetApiVersion(_context: u64, version: *mut c_uint) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(version, 13_000) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetFlags(flags: *mut c_uint) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(flags, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetLimit(value: *mut usize, limit: c_int) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { crate::border::runtime::cudaDeviceGetLimit(value, limit) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { crate::border::runtime::cudaDeviceGetStreamPriorityRange(least, greatest) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v2(out: *mut u64, _flags: c_uint, device: c_int) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuDevicePrimaryCtxRetain(out, device) }
}
