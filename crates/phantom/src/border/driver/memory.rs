//! Memory through the driver: what Triton and extensions call, and the virtual memory management
//! that expandable segments are made of.

use std::ffi::{c_int, c_uint, c_void};

use crate::addresses::GRANULE;
use crate::border::runtime::{
    self, INVALID_VALUE, NO_DEVICE, OUT_OF_MEMORY, SUCCESS, answer, machine,
};
use crate::copy;
use crate::machine::{self, Machine};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(out: *mut u64, size: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaMalloc(out, size) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(at: u64) -> i32 {
    runtime::cudaFree(at as *mut c_void)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaMemGetInfo(free, total) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(out: *mut u64, size: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaMallocHost(out, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(out: *mut u64, size: usize, flags: c_uint) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaHostAlloc(out, size, flags) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(at: *mut c_void) -> i32 {
    runtime::cudaFreeHost(at)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(out: *mut u64, size: usize, flags: c_uint) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaMallocManaged(out, size, flags) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(at: *mut c_void, size: usize, flags: c_uint) -> i32 {
    runtime::cudaHostRegister(at, size, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(at: *mut c_void) -> i32 {
    runtime::cudaHostUnregister(at)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut u64,
    size: *mut usize,
    address: u64,
) -> i32 {
    let Some((_, at, bytes)) = machine!().device_of(address) else { return INVALID_VALUE };
    // SAFETY: the caller's pointers; either may be null.
    unsafe {
        if !base.is_null() {
            base.write(at);
        }
        if !size.is_null() {
            size.write(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }
    SUCCESS
}

/// The attributes that are asked for: memory type 2, device pointer 3, host pointer 4, device
/// ordinal 9, range start 11, range size 12, mapped 13.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: c_int,
    address: u64,
) -> i32 {
    let machine = machine!();
    let Some((device, at, size)) = machine.device_of(address) else {
        let host = Machine::host_range(&machine.pinned, address).is_some();
        // SAFETY: the caller's pointer, checked for null; the types are those of `cuda.h`.
        return unsafe {
            match attribute {
                2 if host => answer(data.cast::<c_uint>(), 1),
                3 | 4 if host => answer(data.cast::<u64>(), address),
                _ => INVALID_VALUE,
            }
        };
    };
    // SAFETY: as above.
    unsafe {
        match attribute {
            2 => answer(data.cast::<c_uint>(), 2),
            3 => answer(data.cast::<u64>(), address),
            7 => answer(data.cast::<u64>(), at),
            9 => answer(data.cast::<c_int>(), c_int::try_from(device).unwrap_or(0)),
            11 => answer(data.cast::<u64>(), at),
            12 => answer(data.cast::<u64>(), size),
            13 => answer(data.cast::<u8>(), 1),
            _ => INVALID_VALUE,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, size: usize) -> i32 {
    // SAFETY: CUDA asks the same of the caller.
    unsafe { copy::copy(to, from as u64, size as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    size: usize,
    _stream: u64,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuMemcpyHtoD_v2(to, from, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, size: usize) -> i32 {
    // SAFETY: CUDA asks the same of the caller.
    unsafe { copy::copy(to as u64, from, size as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    size: usize,
    _stream: u64,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuMemcpyDtoH_v2(to, from, size) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) -> i32 {
    // SAFETY: both are device addresses; one that is not is a mistake that a real driver would
    // answer with an error, so only device ranges are copied.
    let on_device = machine::lock()
        .is_some_and(|it| it.device_of(to).is_some() && it.device_of(from).is_some());
    if !on_device {
        return INVALID_VALUE;
    }
    // SAFETY: no host address is involved.
    unsafe { copy::copy(to, from, size as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, _stream: u64) -> i32 {
    cuMemcpyDtoD_v2(to, from, size)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy(to: u64, from: u64, size: usize) -> i32 {
    // SAFETY: CUDA asks the same of the caller.
    unsafe { copy::copy(to, from, size as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, size: usize, _stream: u64) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuMemcpy(to, from, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(at: u64, value: u8, count: usize) -> i32 {
    // SAFETY: CUDA asks the same of the caller.
    unsafe { copy::fill(at, value, count as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(at: u64, value: u8, count: usize, _stream: u64) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuMemsetD8_v2(at, value, count) }
}

/// Writes a pattern of two or four bytes; only what repeats one byte is known afterwards.
fn fill_pattern(at: u64, pattern: &[u8], count: usize) -> i32 {
    let size = (count * pattern.len()) as u64;
    let Some(mut machine) = machine::lock() else { return NO_DEVICE };
    let Some((device, ..)) = machine.device_of(at) else { return INVALID_VALUE };
    let contents = &mut machine.devices[device].contents;
    match pattern.first() {
        Some(&byte) if pattern.iter().all(|&it| it == byte) => contents.fill(at, byte, size),
        _ => contents.forget(at, size),
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD16_v2(at: u64, value: u16, count: usize) -> i32 {
    fill_pattern(at, &value.to_ne_bytes(), count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD16Async(at: u64, value: u16, count: usize, _stream: u64) -> i32 {
    fill_pattern(at, &value.to_ne_bytes(), count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32_v2(at: u64, value: u32, count: usize) -> i32 {
    fill_pattern(at, &value.to_ne_bytes(), count)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(at: u64, value: u32, count: usize, _stream: u64) -> i32 {
    fill_pattern(at, &value.to_ne_bytes(), count)
}

/// `CUmemAllocationProp`, as far as we read it.
#[repr(C)]
pub struct AllocationProp {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    _prop: *const AllocationProp,
    _option: c_int,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(granularity, usize::try_from(GRANULE).unwrap_or(0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    out: *mut u64,
    size: usize,
    alignment: usize,
    _wanted: u64,
    _flags: u64,
) -> i32 {
    let alignment = (alignment as u64).max(GRANULE);
    let Some(room) = (size as u64).checked_add(alignment) else { return OUT_OF_MEMORY };
    let start = machine::reserve_addresses(room).next_multiple_of(alignment);
    machine!().reserved.insert(start, size as u64);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, start) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(at: u64, _size: usize) -> i32 {
    // The reservation costs nothing and stays: an address that was a device's must not become a
    // host's while somebody may still hold it.
    match machine!().reserved.remove(&at) {
        Some(_) => SUCCESS,
        None => INVALID_VALUE,
    }
}

/// A handle says which device it belongs to in its upper half.
fn on_device(handle: u64) -> (usize, u64) {
    (usize::try_from((handle >> 32) & 0xff).unwrap_or(0), handle & 0xffff_ffff)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    size: usize,
    prop: *const AllocationProp,
    _flags: u64,
) -> i32 {
    let mut machine = machine!();
    if prop.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null; the caller passes a `CUmemAllocationProp`.
    let device = usize::try_from(unsafe { (*prop).location }).unwrap_or(0);
    let Some(memory) = machine.devices.get_mut(device) else { return INVALID_VALUE };
    match memory.create(size as u64) {
        // SAFETY: the caller's pointer, checked for null.
        Ok(it) => unsafe { answer(handle, it | ((device as u64) << 32)) },
        Err(_) => OUT_OF_MEMORY,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> i32 {
    let (device, handle) = on_device(handle);
    match machine!().devices.get_mut(device).map(|it| it.release_handle(handle)) {
        Some(Ok(())) => SUCCESS,
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(at: u64, size: usize, _offset: usize, handle: u64, _flags: u64) -> i32 {
    let (device, handle) = on_device(handle);
    match machine!().devices.get_mut(device).map(|it| it.map(at, size as u64, handle)) {
        Some(Ok(())) => SUCCESS,
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(at: u64, size: usize) -> i32 {
    let mut machine = machine!();
    let Some((device, ..)) = machine.device_of(at) else { return INVALID_VALUE };
    match machine.devices[device].unmap(at, size as u64) {
        Ok(()) => SUCCESS,
        Err(_) => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemSetAccess(
    _at: u64,
    _size: usize,
    _access: *const c_void,
    _count: usize,
) -> i32 {
    SUCCESS
}
