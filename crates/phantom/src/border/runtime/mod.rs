//! The CUDA runtime (`libcudart`) as `PyTorch` calls it: a thin rim of C signatures over
//! [`crate::machine`]. Error numbers are those of `cudaError_t`, layouts those of `driver_types.h` in CUDA 13,
//! and in CUDA 12 where that has the same function under another name. What is not here is in the table of `entry_points.txt`, or left to the real
//! library because it needs no device (registration of kernels).

mod device;
mod graph_objects;
mod ipc;
mod launch;
mod memory;
mod streams;

use std::{cell::Cell, ffi::c_char};

use super::installed;
pub(crate) use device::*;
pub(crate) use launch::*;
pub(crate) use memory::*;
pub(crate) use streams::*;

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const INVALID_HANDLE: i32 = 400;
pub(crate) const NOT_READY: i32 = 600;

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(SUCCESS) };
}

/// Remembers an error for `cudaGetLastError`, and passes it on.
pub(crate) fn fail(error: i32) -> i32 {
    LAST_ERROR.set(error);
    error
}

/// Writes an answer where the caller wants it.
///
/// # Safety
///
/// `out` must be null or valid for a `T`.
pub(crate) unsafe fn answer<T>(out: *mut T, value: T) -> i32 {
    if out.is_null() {
        return fail(INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { out.write(value) };
    SUCCESS
}

/// The machine, or the runtime's error for there being none.
macro_rules! machine {
    () => {
        match $crate::machine::lock() {
            Some(machine) => machine,
            None => return $crate::border::runtime::fail($crate::border::runtime::NO_DEVICE),
        }
    };
}
pub(crate) use machine;

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> i32 {
    LAST_ERROR.replace(SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST_ERROR.get()
}

/// The real library's text: who opened the runtime through `ctypes` has this library, and looks for it here.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(error: i32) -> *const c_char {
    installed::cuda_error(c"cudaGetErrorString", error)
}

/// The real library's name for it, likewise.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(error: i32) -> *const c_char {
    installed::cuda_error(c"cudaGetErrorName", error)
}
