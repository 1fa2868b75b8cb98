//! Modules, libraries, kernels and links: code is taken, never looked at.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::card;
use crate::runtime::{NO_DEVICE, answer, machine};

/// A new handle in `out`.
///
/// # Safety
///
/// `out` must be null or valid.
unsafe fn new_handle(out: *mut u64) -> i32 {
    let handle = machine!().handle();
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, handle) }
}

/// C functions whose only answer is a handle in their first argument.
macro_rules! first_argument_is_a_handle {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(out: *mut u64) -> i32 {
            // SAFETY: the caller's pointer, checked for null.
            unsafe { new_handle(out) }
        }
    )*};
}

first_argument_is_a_handle! {
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleGetFunction
    cuLibraryLoadData cuLibraryLoadFromFile cuLibraryGetKernel cuLibraryGetModule
    cuKernelGetFunction cuFuncGetModule cuModuleGetTexRef
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetGlobal_v2(
    at: *mut u64,
    size: *mut usize,
    _module: u64,
    _name: *const c_char,
) -> i32 {
    if !size.is_null() {
        // SAFETY: not null.
        unsafe { size.write(4096) };
    }
    // SAFETY: the caller's pointer, checked for null.
    unsafe { new_handle(at) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetGlobal(
    at: *mut u64,
    size: *mut usize,
    library: u64,
    name: *const c_char,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuModuleGetGlobal_v2(at, size, library, name) }
}

/// `CUfunction_attribute`: 0 most threads of a block, 1 shared, 2 constant, 3 local bytes, 4
/// registers, 5 and 6 code versions.
fn function_attribute(attribute: c_int) -> Option<c_int> {
    let card = card::current()?;
    Some(match attribute {
        0 => 1024,
        4 => 32,
        5 | 6 => card.sm_version(),
        8 => card.shared_per_block_optin,
        _ => 0,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    _function: u64,
) -> i32 {
    match function_attribute(attribute) {
        // SAFETY: the caller's pointer, checked for null.
        Some(it) => unsafe { answer(value, it) },
        None => NO_DEVICE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    kernel: u64,
    _device: c_int,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuFuncGetAttribute(value, attribute, kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate_v2(
    _count: c_uint,
    _options: *mut c_void,
    _values: *mut *mut c_void,
    out: *mut u64,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { new_handle(out) }
}

/// The image is one that no loader of ours looks into.
static IMAGE: [u8; 64] =
    *b"\x7fELF a phantom's kernel: nothing will be launched\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkComplete(
    _state: u64,
    image: *mut *const c_void,
    size: *mut usize,
) -> i32 {
    // SAFETY: the caller's pointers; either may be null.
    unsafe {
        if !size.is_null() {
            size.write(IMAGE.len());
        }
        answer(image, IMAGE.as_ptr().cast())
    }
}
