//! Blocks of `PyTorch`'s caching allocator that change hands. Bytes that we know belong to the tensor
//! that they were copied to; when its block goes to another one, whose values no kernel computes,
//! they must not be read as that one's.
//!
//! The allocator tells its profiler of every block, by a function of another library (`libc10.so`),
//! which is how we hear of it: `c10::reportMemoryUsageToProfiler` in `c10/core/Allocator.cpp`.

use std::ffi::c_void;
use std::sync::OnceLock;

use crate::machine;

/// `c10::DeviceType::CUDA`
const CUDA: u8 = 1;

type Report = unsafe extern "C" fn(*mut c_void, i64, usize, usize, u16);

/// `void c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device)`: a block of
/// `size` bytes was handed out, or taken back if `size` is negative. `device` is its type and index,
/// a byte each.
///
/// # Safety
///
/// As the function that it stands before: `block` is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(
    block: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    device: u16,
) {
    if device.to_le_bytes()[0] == CUDA
        && let Some(mut machine) = machine::lock()
        && let Some((device, ..)) = machine.device_of(block as u64)
    {
        let memory = &mut machine.devices[device];
        memory.contents.forget(block as u64, size.unsigned_abs());
        memory.allocator_holds(reserved as u64);
    }
    if let Some(real) = real() {
        // SAFETY: the real function with the arguments that it was called with.
        unsafe { real(block, size, allocated, reserved, device) };
    }
}

fn real() -> Option<Report> {
    static REAL: OnceLock<Option<Report>> = OnceLock::new();
    *REAL.get_or_init(|| {
        // SAFETY: asks for a library that is loaded, since its allocator calls us, and a name in it.
        unsafe {
            let library = libc::dlopen(c"libc10.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if library.is_null() {
                return None;
            }
            let name = c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
            let symbol = libc::dlsym(library, name.as_ptr());
            (!symbol.is_null()).then(|| std::mem::transmute::<*mut c_void, Report>(symbol))
        }
    })
}
