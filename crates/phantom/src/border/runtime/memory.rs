//! Memory: device, pinned, managed; copies and fills; pools; what a pointer is.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use super::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, answer, fail, machine};
use crate::copy;
use crate::machine::graphs::Node;
use crate::machine::report::{self, Read};
use crate::machine::{Machine, current_device};

/// An address, as the machine counts them.
fn address(pointer: *const c_void) -> u64 {
    pointer as u64
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc(out: *mut u64, size: usize) -> i32 {
    if size == 0 {
        // SAFETY: the caller's pointer, checked for null.
        return unsafe { answer(out, 0) };
    }
    let allocated = machine!().current().allocate(size as u64);
    match allocated {
        // SAFETY: the caller's pointer, checked for null.
        Ok(at) => unsafe { answer(out, at) },
        Err(_) => {
            // SAFETY: as above; a failed request leaves a null pointer.
            unsafe { answer(out, 0) };
            fail(OUT_OF_MEMORY)
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaFree(pointer: *mut c_void) -> i32 {
    if pointer.is_null() {
        return SUCCESS;
    }
    let mut machine = machine!();
    let at = address(pointer);
    if let Some(size) = machine.managed.remove(&at) {
        unmap(at, size);
        return SUCCESS;
    }
    match machine.device_of(at) {
        Some((device, ..)) => match machine.devices[device].release(at) {
            Ok(()) => {
                machine.wait_for_all();
                SUCCESS
            }
            Err(_) => fail(INVALID_VALUE),
        },
        None => fail(INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocPitch(
    out: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> i32 {
    let Some(row) = width.checked_next_multiple_of(512) else { return fail(OUT_OF_MEMORY) };
    let Some(size) = row.checked_mul(height) else { return fail(OUT_OF_MEMORY) };
    // SAFETY: the caller's pointers, checked for null.
    match unsafe { answer(pitch, row) } {
        // SAFETY: as above.
        SUCCESS => unsafe { cudaMalloc(out, size) },
        error => error,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocAsync(out: *mut u64, size: usize, _stream: u64) -> i32 {
    report::approximate(
        "the phantom answers cudaMallocAsync with cudaMalloc, which has no pool: memory that the pool would hold is not counted",
    );
    // SAFETY: the same contract.
    unsafe { cudaMalloc(out, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocFromPoolAsync(
    out: *mut u64,
    size: usize,
    _pool: u64,
    stream: u64,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaMallocAsync(out, size, stream) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaFreeAsync(pointer: *mut c_void, _stream: u64) -> i32 {
    cudaFree(pointer)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> i32 {
    let mut machine = machine!();
    let all = usize::try_from(machine.card.total_bytes).unwrap_or(usize::MAX);
    let device = machine.current();
    device.begin();
    let left = usize::try_from(device.free()).unwrap_or(usize::MAX);
    // SAFETY: the caller's pointers; either may be null.
    unsafe {
        if !free.is_null() {
            free.write(left);
        }
        if !total.is_null() {
            total.write(all);
        }
    }
    SUCCESS
}

/// Anonymous host memory; zero if the host has none left.
fn map(size: usize) -> u64 {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED { 0 } else { at as u64 }
}

fn unmap(at: u64, size: u64) {
    // SAFETY: the range was made by `map` and has just left the table of live ones.
    unsafe { libc::munmap(at as *mut c_void, usize::try_from(size).unwrap_or(0)) };
}

/// Page-locked memory: a file of its own in memory, shared with forked children as the driver's is. The binary finds it by
/// this name among a process's mappings and counts all of it, as the driver does, though only what is written takes pages here.
/// Zero if the host has none left.
fn map_pinned(size: usize) -> u64 {
    // SAFETY: a terminated name; the descriptor that comes back is nobody else's.
    let file = unsafe {
        let fd = libc::memfd_create(c"plimsoll-pinned".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return map(size);
        }
        OwnedFd::from_raw_fd(fd)
    };
    let Ok(length) = libc::off_t::try_from(size) else { return 0 };
    // SAFETY: our own file, mapped at an address of the kernel's choice; the mapping keeps it.
    let at = unsafe {
        if libc::ftruncate(file.as_raw_fd(), length) != 0 {
            return map(size);
        }
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED { 0 } else { at as u64 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaHostAlloc(out: *mut u64, size: usize, _flags: c_uint) -> i32 {
    let at = map_pinned(size.max(1));
    if at == 0 {
        return fail(OUT_OF_MEMORY);
    }
    machine!().pinned.insert(at, size.max(1) as u64);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, at) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocHost(out: *mut u64, size: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaHostAlloc(out, size, 0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaFreeHost(pointer: *mut c_void) -> i32 {
    if pointer.is_null() {
        return SUCCESS;
    }
    let at = address(pointer);
    match machine!().pinned.remove(&at) {
        Some(size) => {
            unmap(at, size);
            SUCCESS
        }
        None => fail(INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaHostRegister(pointer: *mut c_void, size: usize, _flags: c_uint) -> i32 {
    machine!().pinned.insert(address(pointer), size as u64);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaHostUnregister(pointer: *mut c_void) -> i32 {
    machine!().pinned.remove(&address(pointer));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaHostGetDevicePointer(
    out: *mut u64,
    host: *mut c_void,
    _flags: c_uint,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, address(host)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaHostGetFlags(flags: *mut c_uint, _host: *mut c_void) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(flags, 0) }
}

/// Managed memory is host memory here, so the program can use it from both sides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocManaged(out: *mut u64, size: usize, _flags: c_uint) -> i32 {
    report::approximate("managed memory is on the host: it is not counted on the device");
    let at = map(size.max(1));
    if at == 0 {
        return fail(OUT_OF_MEMORY);
    }
    machine!().managed.insert(at, size.max(1) as u64);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, at) }
}

/// `cudaPointerAttributes` of CUDA 12. That of CUDA 13 goes on with eight reserved words, which no program
/// reads, and which must not be written into a program's shorter one.
#[repr(C)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaPointerGetAttributes(
    out: *mut PointerAttributes,
    pointer: *const c_void,
) -> i32 {
    let machine = machine!();
    let at = address(pointer);
    let (kind, device, device_pointer, host_pointer) =
        if let Some((device, ..)) = machine.device_of(at) {
            (2, c_int::try_from(device).unwrap_or(0), at, 0)
        } else if Machine::host_range(&machine.managed, at).is_some() {
            (3, 0, at, at)
        } else if Machine::host_range(&machine.pinned, at).is_some() {
            (1, c_int::try_from(current_device()).unwrap_or(0), at, at)
        } else {
            (0, -2, 0, at)
        };
    let it = PointerAttributes { kind, device, device_pointer, host_pointer };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, it) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    _kind: c_int,
) -> i32 {
    machine!().wait_for_stream(0);
    // SAFETY: CUDA asks the same of the caller.
    unsafe { copy::copy(address(to), address(from), size as u64) };
    SUCCESS
}

/// What a graph gets of a copy: a kernel, unless the host has one end of it.
fn copied(machine: &Machine, to: *const c_void, from: *const c_void) -> Node {
    let is_within = [to, from].iter().all(|it| machine.device_of(address(*it)).is_some());
    if is_within { Node::COPY } else { Node::Plain }
}

/// The host waits for a copy into its pageable memory, whatever the name says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    _kind: c_int,
    stream: u64,
) -> i32 {
    {
        let mut machine = machine!();
        let node = copied(&machine, to, from);
        machine.work(stream, node);
        if machine.device_of(address(to)).is_none()
            && Machine::host_range(&machine.pinned, address(to)).is_none()
        {
            machine.wait_for_stream(stream);
        }
    }
    // SAFETY: CUDA asks the same of the caller.
    unsafe { copy::copy(address(to), address(from), size as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyPeer(
    to: *mut c_void,
    _to_device: c_int,
    from: *const c_void,
    _from_device: c_int,
    size: usize,
) -> i32 {
    // SAFETY: CUDA asks the same of the caller.
    unsafe { copy::copy(address(to), address(from), size as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyPeerAsync(
    to: *mut c_void,
    _to_device: c_int,
    from: *const c_void,
    _from_device: c_int,
    size: usize,
    stream: u64,
) -> i32 {
    machine!().work(stream, Node::COPY);
    // SAFETY: CUDA asks the same of the caller.
    unsafe { copy::copy(address(to), address(from), size as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy2D(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    rows: usize,
    _kind: c_int,
) -> i32 {
    let (to, from) = (address(to), address(from));
    // SAFETY: CUDA asks the same of the caller.
    unsafe {
        copy::copy_rows(to, to_pitch as u64, from, from_pitch as u64, width as u64, rows as u64);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    rows: usize,
    kind: c_int,
    stream: u64,
) -> i32 {
    {
        let mut machine = machine!();
        let node = copied(&machine, to, from);
        machine.work(stream, node);
    }
    // SAFETY: the same contract.
    unsafe { cudaMemcpy2D(to, to_pitch, from, from_pitch, width, rows, kind) }
}

/// A symbol of a kernel's module: no kernel runs, so nothing reads it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyToSymbol(
    _symbol: *const c_void,
    _from: *const c_void,
    _size: usize,
    _offset: usize,
    _kind: c_int,
) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyToSymbolAsync(
    _symbol: *const c_void,
    _from: *const c_void,
    _size: usize,
    _offset: usize,
    _kind: c_int,
    _stream: u64,
) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyFromSymbol(
    to: *mut c_void,
    _symbol: *const c_void,
    size: usize,
    _offset: usize,
    _kind: c_int,
) -> i32 {
    if to.is_null() {
        return fail(INVALID_VALUE);
    }
    // SAFETY: not null; CUDA asks the caller for `size` bytes.
    unsafe { std::ptr::write_bytes(to.cast::<u8>(), 0, size) };
    let (to, size) = (to as u64, size as u64);
    report::read(Read { to, size, unknown: size, is_answer: false });
    SUCCESS
}

/// Kernels' global variables get an address that nothing else has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetSymbolAddress(out: *mut u64, symbol: *const c_void) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, address(symbol)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemset(at: *mut c_void, value: c_int, size: usize) -> i32 {
    // SAFETY: CUDA asks the same of the caller. Only the low byte counts.
    unsafe { copy::fill(address(at), value.to_le_bytes()[0], size as u64) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemsetAsync(
    at: *mut c_void,
    value: c_int,
    size: usize,
    stream: u64,
) -> i32 {
    // A large area is set by a kernel: more than 1,024 bytes, and at most 1,000,000.
    machine!().work(stream, if size <= 1024 { Node::Plain } else { Node::Kernel(0) });
    // SAFETY: the same contract.
    unsafe { cudaMemset(at, value, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemset2D(
    at: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    rows: usize,
) -> i32 {
    for row in 0..rows {
        let start = address(at) + (row * pitch) as u64;
        // SAFETY: CUDA asks the same of the caller.
        unsafe { copy::fill(start, value.to_le_bytes()[0], width as u64) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemset2DAsync(
    at: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    rows: usize,
    _stream: u64,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaMemset2D(at, pitch, value, width, rows) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetDefaultMemPool(pool: *mut u64, device: c_int) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(pool, 0x5400_0000_0000 + u64::from(device.unsigned_abs())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetMemPool(pool: *mut u64, device: c_int) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaDeviceGetDefaultMemPool(pool, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolCreate(pool: *mut u64, _properties: *const c_void) -> i32 {
    let handle = machine!().handle();
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(pool, handle) }
}

/// Attributes 3 and above are 64-bit byte counts, 1 and 2 and the threshold fit in them too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolGetAttribute(
    _pool: u64,
    attribute: c_int,
    value: *mut c_void,
) -> i32 {
    if attribute < 4 {
        // SAFETY: the first three are C ints; checked for null.
        return unsafe { answer(value.cast::<c_int>(), 1) };
    }
    let used = machine!().current().used();
    // SAFETY: the others are 64-bit; checked for null.
    unsafe { answer(value.cast::<u64>(), if attribute == 4 { 0 } else { used }) }
}
