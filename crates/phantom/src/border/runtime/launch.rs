//! Kernels: launched, never run. What a kernel looks like is answered from the card.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use super::{INVALID_VALUE, NO_DEVICE, OUT_OF_MEMORY, SUCCESS, answer, fail, machine};
use crate::border::driver::entry_point;
use crate::code::modules;
use crate::launch::{self, Configuration, Dim3};
use crate::machine::card;
use crate::machine::graphs::Node;
use crate::machine::report::LAUNCHES;

/// `cudaErrorNoKernelImageForDevice`
const NO_KERNEL_IMAGE: i32 = 209;
/// `cudaErrorInvalidConfiguration`
const INVALID_CONFIGURATION: i32 = 9;

/// `cudaLaunchConfig_t`, as far as we read it.
#[repr(C)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: u64,
}

/// The kernel `function` is queued on `stream` and done.
///
/// # Safety
///
/// `arguments` must be what the caller's stub passes for `function`, or null.
pub(crate) unsafe fn launched(function: u64, arguments: *mut *mut c_void, stream: u64) -> i32 {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let mut machine = machine!();
    // SAFETY: the caller's.
    let room = unsafe { launch::launched(function, arguments.cast_const().cast(), &mut machine) };
    if modules::code_for(machine.card).is_none() {
        return fail(NO_KERNEL_IMAGE);
    }
    let needs = launch::needs(function, machine.capture(stream).is_some());
    let resides = machine.current().reside(|it, addresses| {
        it.kernel(addresses, room);
        it.stack(addresses, u64::from(needs.stack));
        if needs.is_foreign {
            it.foreign_kernel();
        }
    });
    if resides.is_err() {
        return fail(OUT_OF_MEMORY);
    }
    machine.work(stream, Node::Kernel(needs.parameters));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
) -> c_uint {
    launch::configure(Configuration { grid, block, shared, stream });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared: *mut usize,
    stream: *mut u64,
) -> i32 {
    let Some(it) = launch::configured() else { return INVALID_CONFIGURATION };
    // SAFETY: the stub that the compiler made passes four valid pointers.
    unsafe {
        grid.write(it.grid);
        block.write(it.block);
        shared.write(it.shared);
        stream.write(it.stream);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    module: *mut c_void,
    stub: u64,
    _device_name: *const c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_dim: *mut c_void,
    _grid_dim: *mut c_void,
    _warp: *mut c_int,
) {
    if !name.is_null() {
        // SAFETY: not null; the compiler registers terminated names, of the library that the stub is in.
        launch::register(stub, unsafe { CStr::from_ptr(name) }, module as usize);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaGetKernel(kernel: *mut u64, function: u64) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(kernel, function) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaLaunchKernel(
    kernel: u64,
    _grid: Dim3,
    _block: Dim3,
    arguments: *mut *mut c_void,
    _shared: usize,
    stream: u64,
) -> i32 {
    // SAFETY: the stub's own arguments.
    unsafe { launched(kernel, arguments, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaLaunchKernel_ptsz(
    kernel: u64,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: u64,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { __cudaLaunchKernel(kernel, grid, block, arguments, shared, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaLaunchKernel(
    function: u64,
    _grid: Dim3,
    _block: Dim3,
    arguments: *mut *mut c_void,
    _shared: usize,
    stream: u64,
) -> i32 {
    // SAFETY: the stub's own arguments.
    unsafe { launched(function, arguments, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaLaunchCooperativeKernel(
    function: u64,
    _grid: Dim3,
    _block: Dim3,
    arguments: *mut *mut c_void,
    _shared: usize,
    stream: u64,
) -> i32 {
    // SAFETY: the stub's own arguments.
    unsafe { launched(function, arguments, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaLaunchKernelExC(
    config: *const LaunchConfig,
    function: u64,
    arguments: *mut *mut c_void,
) -> i32 {
    if config.is_null() {
        return fail(INVALID_VALUE);
    }
    // SAFETY: not null; the caller passes a `cudaLaunchConfig_t`, and its stub's own arguments.
    unsafe { launched(function, arguments, (*config).stream) }
}

/// `cudaFuncAttributes`, the same in CUDA 12 and 13.
#[repr(C)]
pub struct FuncAttributes {
    shared_bytes: usize,
    const_bytes: usize,
    local_bytes: usize,
    max_threads_per_block: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    max_dynamic_shared_bytes: c_int,
    preferred_shared_carveout: c_int,
    cluster: [c_int; 6],
    reserved: [c_int; 16],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFuncGetAttributes(out: *mut FuncAttributes, _function: u64) -> i32 {
    let Some(card) = card::current() else { return fail(NO_DEVICE) };
    let Some(code) = modules::code_for(card) else { return fail(NO_KERNEL_IMAGE) };
    let it = FuncAttributes {
        shared_bytes: 0,
        const_bytes: 0,
        local_bytes: 0,
        max_threads_per_block: 1024,
        registers: 32,
        ptx_version: code,
        binary_version: code,
        cache_mode: 0,
        max_dynamic_shared_bytes: 49_152,
        preferred_shared_carveout: -1,
        cluster: [0; 6],
        reserved: [0; 16],
    };
    // SAFETY: the caller's pointer, checked for null; the layout is that of both CUDAs.
    unsafe { answer(out, it) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaFuncSetAttribute(_function: u64, _attribute: c_int, _value: c_int) -> i32 {
    SUCCESS
}

/// How many blocks of `threads` fit on a multiprocessor, by its threads and blocks, and never more
/// than [`BOUND_BY_REGISTERS`] unless the kernel is known to need few.
fn blocks_per_sm(function: u64, threads: c_int) -> Option<c_int> {
    let card = card::current()?;
    let by_threads = card.max_threads_per_sm / threads.max(1);
    let by_registers = if launch::is_light(function) { c_int::MAX } else { BOUND_BY_REGISTERS };
    Some(by_threads.clamp(1, card.max_blocks_per_sm).min(by_registers))
}

/// What a kernel needs of registers and shared memory is not read from its code. With two blocks
/// every temporary whose size follows from occupancy (sorts and scans) has the size that it has in
/// the recordings from an H200.
const BOUND_BY_REGISTERS: c_int = 2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: u64,
    threads: c_int,
    _shared: usize,
) -> i32 {
    let Some(it) = blocks_per_sm(function, threads) else { return fail(NO_DEVICE) };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(blocks, it) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: u64,
    threads: c_int,
    shared: usize,
    _flags: c_uint,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _function: u64,
    _config: *const LaunchConfig,
) -> i32 {
    let sms = machine!().card.sm_count;
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(clusters, sms / 2) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxPotentialClusterSize(
    size: *mut c_int,
    _function: u64,
    _config: *const LaunchConfig,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(size, 8) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    _function: u64,
    blocks: c_int,
    _threads: c_int,
) -> i32 {
    let per_sm = usize::try_from(machine!().card.shared_per_sm).unwrap_or(0);
    let blocks = usize::try_from(blocks.max(1)).unwrap_or(1);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(bytes, per_sm / blocks) }
}

/// Driver functions by name: ours, in the newest form that we have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    function: *mut *mut c_void,
    _version: c_uint,
    _flags: u64,
    status: *mut c_int,
) -> i32 {
    if name.is_null() {
        return fail(INVALID_VALUE);
    }
    // SAFETY: not null; CUDA asks for a terminated string.
    let found = entry_point(unsafe { CStr::from_ptr(name) });
    // SAFETY: the caller's pointers; `status` may be null.
    unsafe {
        if !status.is_null() {
            // cudaDriverEntryPointSuccess or ...SymbolNotFound
            status.write(c_int::from(found.is_none()));
        }
        answer(function, found.unwrap_or(std::ptr::null_mut()))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    function: *mut *mut c_void,
    flags: u64,
    status: *mut c_int,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaGetDriverEntryPointByVersion(name, function, 0, flags, status) }
}
