//! cuSPARSELt: products of matrices of which two of four elements are zero. They do nothing. Descriptors are
//! the caller's own memory; of one that is sparse we keep how long it is when compressed: half of its
//! elements, and two bits for each of these. What else the library takes for a moment (a buffer to
//! compress in, a work area) nobody measured, and the report says so.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use crate::border::runtime::answer;
use crate::machine::report;

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

/// Bytes of compressed matrices, by where the caller has their descriptors.
static COMPRESSED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

#[unsafe(no_mangle)]
pub extern "C" fn cusparseLtStructuredDescriptorInit(
    _handle: Opaque,
    matrix: Opaque,
    rows: i64,
    columns: i64,
    _leading: i64,
    _alignment: c_uint,
    kind: c_int,
    _order: c_int,
    _sparsity: c_int,
) -> i32 {
    let width = match kind {
        3 | 8 | 28 | 29 => 1, // Bytes and 8-bit floats.
        2 | 14 => 2,          // Half, bfloat16.
        _ => 4,
    };
    let elements = usize::try_from(rows.saturating_mul(columns)).unwrap_or(0);
    let bytes = elements.saturating_mul(width) / 2 + elements / 8;
    let mut all = COMPRESSED.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(matrix.addr(), bytes);
    0
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
    matrix: Opaque,
    size: *mut usize,
    buffer: *mut usize,
) -> i32 {
    unmeasured();
    let all = COMPRESSED.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = all.get(&matrix.addr()).copied().unwrap_or(0);
    // SAFETY: the caller's pointers, checked for null.
    unsafe { answer(size, bytes).max(answer(buffer, 0)) }
}

fn unmeasured() {
    report::approximate("cuSPARSELt's workspaces were not measured and are not counted");
}
