//! Which versions of NVIDIA's libraries the program has, as they say themselves: the questions below are
//! answered with constants and need no device.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `cudaRuntimeGetVersion`: 13000 is CUDA 13.0, 12080 is 12.8. Programs are built for one of the two, and some
/// functions take other arguments in the other.
pub fn cuda() -> c_int {
    static VERSION: OnceLock<c_int> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let found = [c"libcudart.so.13", c"libcudart.so.12"]
            .into_iter()
            .find_map(|it| written(symbol(it, c"cudaRuntimeGetVersion")?));
        found.unwrap_or(13_000)
    })
}

/// `cublasLtGetVersion`: 130100 is 13.1.0.
pub fn cublas() -> c_int {
    static VERSION: OnceLock<c_int> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let found = [c"libcublasLt.so.13", c"libcublasLt.so.12"]
            .into_iter()
            .find_map(|it| symbol(it, c"cublasLtGetVersion"));
        let Some(found) = found else { return 130_100 };
        // SAFETY: the real function, with the type of its declaration.
        let version =
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(found)() };
        c_int::try_from(version).unwrap_or(130_100)
    })
}

/// `cusparseGetVersion`: 12603 is 12.6.3.
pub fn cusparse() -> c_int {
    static VERSION: OnceLock<c_int> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let Some(found) = symbol(c"libcusparse.so.12", c"cusparseGetProperty") else {
            return 12_603;
        };
        // SAFETY: the real function, with the type of its declaration.
        let property = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(
                found,
            )
        };
        let part = |kind| {
            let mut value = 0;
            // SAFETY: a place for the answer.
            unsafe { property(kind, &raw mut value) };
            value
        };
        part(0) * 1000 + part(1) * 100 + part(2)
    })
}

/// `ncclGetVersion`: 22809 is NCCL 2.28.9.
pub fn nccl() -> c_int {
    static VERSION: OnceLock<c_int> = OnceLock::new();
    *VERSION.get_or_init(|| {
        symbol(c"libnccl.so.2", c"ncclGetVersion").and_then(written).unwrap_or(22_809)
    })
}

/// What `cudaGetErrorString` or `cudaGetErrorName`, one of which `name` is, says of an error.
pub fn cuda_error(name: &CStr, error: c_int) -> *const c_char {
    let found =
        [c"libcudart.so.13", c"libcudart.so.12"].into_iter().find_map(|it| symbol(it, name));
    let Some(found) = found else { return c"unrecognized error code".as_ptr() };
    // SAFETY: the real function, with the type of its declaration.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(found)(
            error,
        )
    }
}

/// What a function of the type `int f(int *out)` writes, if that is a version.
fn written(function: *mut c_void) -> Option<c_int> {
    let mut version = 0;
    // SAFETY: the real `cudaRuntimeGetVersion` or `ncclGetVersion`, both of that type.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(function)(
            &raw mut version,
        );
    }
    (0 < version).then_some(version)
}

/// The real function of a library that the program has loaded.
fn symbol(library: &CStr, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: asks for a library only if it is loaded, and for a name in it.
    unsafe {
        let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let symbol = libc::dlsym(library, name.as_ptr());
        (!symbol.is_null()).then_some(symbol)
    }
}
