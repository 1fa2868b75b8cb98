//! CUPTI, the profiler's library: not available, so that PyTorch profiles what the host does and leaves the GPU out. The
//! functions that PyTorch asks first are answered here, because CUPTI 13.2 that finds no driver of its own kind asks itself for
//! the text of that error, without end; the others stay the real ones, which nobody calls then.

use std::ffi::{c_char, c_int};

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 15;

/// The version of a profiler that cannot begin.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetVersion(version: *mut u32) -> c_int {
    if !version.is_null() {
        // SAFETY: the caller's pointer is for one number.
        unsafe { version.write(0) };
    }
    NOT_INITIALIZED
}

/// What a result means.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetResultString(result: c_int, text: *mut *const c_char) -> c_int {
    let said = if result == SUCCESS { c"CUPTI_SUCCESS" } else { c"no profiler on a phantom GPU" };
    if !text.is_null() {
        // SAFETY: the caller's pointer is for one address.
        unsafe { text.write(said.as_ptr()) };
    }
    SUCCESS
}
