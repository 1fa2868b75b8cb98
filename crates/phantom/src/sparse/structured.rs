//! cuSPARSELt: products of matrices of which two of four elements are zero. They do nothing. Descriptors are
//! the caller's own memory, and nothing is read of them again. `PyTorch` computes how long a compressed
//! matrix is; what else the library takes for a moment (a buffer to compress in, a work area) nobody
//! measured, and the report says so.

use std::ffi::{c_int, c_uint, c_void};

use crate::report;
use crate::runtime::answer;

/// C functions that have nothing to answer.
macro_rules! succeeds {
    ($($name:ident($($kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $kind),*) -> i32 {
            0
        }
    )*};
}

type Opaque = *const c_void;

succeeds! {
    cusparseLtInit(Opaque);
    cusparseLtDestroy(Opaque);
    cusparseLtDenseDescriptorInit(Opaque, Opaque, i64, i64, i64, c_uint, c_int, c_int);
    cusparseLtStructuredDescriptorInit(Opaque, Opaque, i64, i64, i64, c_uint, c_int, c_int, c_int);
    cusparseLtMatDescriptorDestroy(Opaque);
    cusparseLtMatDescSetAttribute(Opaque, Opaque, c_int, Opaque, usize);
    cusparseLtMatmulDescriptorInit(Opaque, Opaque, c_int, c_int, Opaque, Opaque, Opaque, Opaque, c_int);
    cusparseLtMatmulDescSetAttribute(Opaque, Opaque, c_int, Opaque, usize);
    cusparseLtMatmulAlgSelectionInit(Opaque, Opaque, Opaque, c_int);
    cusparseLtMatmulAlgSetAttribute(Opaque, Opaque, c_int, Opaque, usize);
    cusparseLtMatmulPlanInit(Opaque, Opaque, Opaque, Opaque);
    cusparseLtMatmulPlanDestroy(Opaque);
    cusparseLtMatmul(Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, c_int);
    cusparseLtMatmulSearch(Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, c_int);
    cusparseLtSpMMACompress2(Opaque, Opaque, c_int, c_int, Opaque, Opaque, Opaque, Opaque);
}

/// Every attribute of an algorithm is the first choice, 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgGetAttribute(
    _handle: Opaque,
    _selection: Opaque,
    _attribute: c_int,
    out: *mut u8,
    size: usize,
) -> i32 {
    if !out.is_null() {
        // SAFETY: not null, and the caller says how much room there is.
        unsafe { out.write_bytes(0, size) };
    }
    0
}

/// # Safety
///
/// `size` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulGetWorkspace(
    _handle: Opaque,
    _plan: Opaque,
    size: *mut usize,
) -> i32 {
    unmeasured();
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(size, 0) }
}

/// # Safety
///
/// `size` and `buffer` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMACompressedSize2(
    _handle: Opaque,
    _matrix: Opaque,
    size: *mut usize,
    buffer: *mut usize,
) -> i32 {
    unmeasured();
    // SAFETY: the caller's pointers, checked for null.
    unsafe { answer(size, 0).max(answer(buffer, 0)) }
}

fn unmeasured() {
    report::approximate("cuSPARSELt's work areas were not measured and are left out");
}
