//! Streams, events and launches through the driver.

use std::ffi::{c_float, c_int, c_uint, c_void};

use super::context;
use crate::border::runtime::{self, INVALID_VALUE, LaunchConfig, answer, launched};
use crate::machine::current_device;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut u64, _flags: c_uint) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaStreamCreate(stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut u64,
    flags: c_uint,
    priority: c_int,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaStreamCreateWithPriority(stream, flags, priority) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: u64) -> i32 {
    runtime::cudaStreamDestroy(stream)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(_stream: u64, out: *mut u64) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, context(current_device())) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint) -> i32 {
    runtime::cudaStreamWaitEvent(stream, event, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: u64, status: *mut c_int) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaStreamIsCapturing(stream, status) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut u64, _flags: c_uint) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaEventCreate(event) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: u64) -> i32 {
    runtime::cudaEventDestroy(event)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: u64, stream: u64) -> i32 {
    runtime::cudaEventRecord(event, stream)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(millis: *mut c_float, from: u64, to: u64) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaEventElapsedTime(millis, from, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: u64,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: u64,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller's arguments; they are looked at for kernels that were noted by their names.
    unsafe { launched(function, arguments, stream) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchCooperativeKernel(
    function: u64,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: u64,
    _arguments: *mut *mut c_void,
) -> i32 {
    // SAFETY: no arguments are looked at.
    unsafe { launched(function, std::ptr::null_mut(), stream) }
}

/// `CUlaunchConfig`, as far as we read it: seven 32-bit sizes, then the stream.
#[repr(C)]
pub struct DriverLaunchConfig {
    sizes: [c_uint; 7],
    stream: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const DriverLaunchConfig,
    function: u64,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> i32 {
    if config.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null; the caller passes a `CUlaunchConfig`. No arguments are looked at.
    unsafe { launched(function, std::ptr::null_mut(), (*config).stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(
    stream: u64,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaLaunchHostFunc(stream, function, data) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: u64,
    threads: c_int,
    shared: usize,
) -> i32 {
    // SAFETY: the same contract.
    unsafe {
        runtime::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxPotentialClusterSize(
    size: *mut c_int,
    function: u64,
    config: *const LaunchConfig,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaOccupancyMaxPotentialClusterSize(size, function, config) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    function: u64,
    config: *const LaunchConfig,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { runtime::cudaOccupancyMaxActiveClusters(clusters, function, config) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: u64) -> i32 {
    runtime::cudaStreamSynchronize(stream)
}
