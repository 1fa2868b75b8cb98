//! cuSPARSE: products do nothing. What a work area depends on is kept of each matrix; the sizes are
//! those of the library's own partition of a matrix, which every one that an H200 gave follows
//! (`bench/instruments/library_facts.py`, 24 shapes). Of the product of two sparse matrices nobody knows how many elements
//! it has: their elements are assumed to be spread evenly. Triangular solves are refused, and named in the report.

mod products;
mod structured;

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::border::runtime::answer;
use crate::machine::report;

/// `CUSPARSE_STATUS_INVALID_VALUE`
const INVALID_VALUE: i32 = 3;

/// A descriptor, by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matrix {
    /// How large it is, elements that are stored, bytes of one, and bytes of an offset of a row.
    Csr {
        rows: u64,
        columns: u64,
        stored: u64,
        width: u64,
        offset_bytes: u64,
    },
    Coo,
    /// Columns, and whether rows are contiguous.
    Dense {
        columns: u64,
        by_rows: bool,
    },
}

static MATRICES: Mutex<BTreeMap<u64, Matrix>> = Mutex::new(BTreeMap::new());

fn keep(out: *mut u64, matrix: Matrix) -> i32 {
    // SAFETY: the caller's pointer, checked for null there and here.
    let status = unsafe { crate::border::blas::new_handle(out) };
    if status == 0 && !out.is_null() {
        // SAFETY: not null, and just written.
        let handle = unsafe { out.read() };
        MATRICES.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, matrix);
    }
    status
}

fn find(handle: u64) -> Option<Matrix> {
    MATRICES.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).copied()
}

fn forget(handle: u64) -> i32 {
    MATRICES.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    0
}

/// Bytes of a `cudaDataType`.
fn width(kind: c_int) -> u64 {
    match kind {
        2 | 14 => 2, // Half, bfloat16.
        1 | 4 => 8,  // Double, a pair of floats.
        5 => 16,
        _ => 4,
    }
}

/// Creates a descriptor that is read for its size only.
macro_rules! csr {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            out: *mut u64,
            rows: i64,
            columns: i64,
            stored: i64,
            _offsets: *const c_void,
            _indices: *const c_void,
            _values: *const c_void,
            offset_type: c_int,
            _index_type: c_int,
            _base: c_int,
            value_type: c_int,
        ) -> i32 {
            let width = width(value_type);
            // CUSPARSE_INDEX_64I is 3.
            let offset_bytes = if offset_type == 3 { 8 } else { 4 };
            let [rows, columns, stored] =
                [rows, columns, stored].map(|it| u64::try_from(it).unwrap_or(0));
            keep(out, Matrix::Csr { rows, columns, stored, width, offset_bytes })
        }
    )*};
}
csr! { cusparseCreateCsr cusparseCreateConstCsr }

#[unsafe(no_mangle)]
pub extern "C" fn cusparseCreateCoo(out: *mut u64) -> i32 {
    keep(out, Matrix::Coo)
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseCreateDnMat(
    out: *mut u64,
    _rows: i64,
    columns: i64,
    _leading: i64,
    _values: *const c_void,
    _value_type: c_int,
    order: c_int,
) -> i32 {
    // CUSPARSE_ORDER_ROW is 2.
    let columns = u64::try_from(columns).unwrap_or(0);
    keep(out, Matrix::Dense { columns, by_rows: order == 2 })
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroySpMat(matrix: u64) -> i32 {
    forget(matrix)
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroyDnMat(matrix: u64) -> i32 {
    forget(matrix)
}

/// The work area of a product: one row number for each part that the stored elements are cut into,
/// and up to the next whole one.
fn parts(stored: u64, elements_of_a_part: u64, one_more: u64, offset_bytes: u64) -> u64 {
    (stored.div_ceil(elements_of_a_part) + one_more + 1) * offset_bytes - 1
}

/// Of a sparse matrix with a vector.
fn vector_product(stored: u64, offset_bytes: u64) -> u64 {
    parts(stored, if offset_bytes == 8 { 3072 } else { 4096 }, 1, offset_bytes)
}

/// Of a sparse matrix with a dense one.
fn product(sparse: Matrix, dense: Matrix) -> Option<u64> {
    match (sparse, dense) {
        (Matrix::Csr { stored, offset_bytes, .. }, Matrix::Dense { columns, by_rows }) => {
            Some(if columns <= 1 {
                vector_product(stored, offset_bytes)
            } else if by_rows {
                parts(stored, 24, 0, offset_bytes)
            } else {
                parts(stored, 256, 1, offset_bytes)
            })
        }
        (Matrix::Coo, Matrix::Dense { columns, .. }) => Some(if columns <= 1 { 572 } else { 0 }),
        _ => None,
    }
}

fn size(out: *mut usize, bytes: Option<u64>) -> i32 {
    let Some(bytes) = bytes.and_then(|it| usize::try_from(it).ok()) else { return INVALID_VALUE };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMM_bufferSize(
    _handle: u64,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: *const c_void,
    sparse: u64,
    dense: u64,
    _beta: *const c_void,
    _result: u64,
    _compute: c_int,
    algorithm: c_int,
    bytes: *mut usize,
) -> i32 {
    // CUSPARSE_SPMM_ALG_DEFAULT and CUSPARSE_SPMM_CSR_ALG1 are one.
    if algorithm != 0 && algorithm != 4 {
        report::approximate(
            "cuSPARSE's workspace of a product is assumed to be that of the default algorithm",
        );
    }
    size(bytes, find(sparse).zip(find(dense)).and_then(|(a, b)| product(a, b)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMV_bufferSize(
    _handle: u64,
    _op: c_int,
    _alpha: *const c_void,
    sparse: u64,
    _x: u64,
    _beta: *const c_void,
    _y: u64,
    _compute: c_int,
    _algorithm: c_int,
    bytes: *mut usize,
) -> i32 {
    let needed = find(sparse).and_then(|matrix| match matrix {
        Matrix::Csr { stored, offset_bytes, .. } => Some(vector_product(stored, offset_bytes)),
        Matrix::Coo => Some(572),
        Matrix::Dense { .. } => None,
    });
    size(bytes, needed)
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseSDDMM_bufferSize(
    _handle: u64,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: *const c_void,
    _a: u64,
    _b: u64,
    _beta: *const c_void,
    _result: u64,
    _compute: c_int,
    _algorithm: c_int,
    bytes: *mut usize,
) -> i32 {
    size(bytes, Some(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_areas_are_those_of_an_h200() {
        let csr = |stored, offset_bytes| Matrix::Csr {
            rows: 9,
            columns: 9,
            stored,
            width: 4,
            offset_bytes,
        };
        let dense = |columns, by_rows| Matrix::Dense { columns, by_rows };
        for (stored, wide, by_rows, columns, bytes) in [
            (20, 4, true, 4, 7),
            (5000, 4, true, 64, 839),
            (1_000_000, 4, true, 64, 166_671),
            (1_166_243, 8, true, 128, 388_759),
            (50_000, 4, false, 128, 791),
            (1_000_000, 8, false, 64, 31_271),
            (5000, 4, true, 1, 15),
            (65_536, 8, true, 300, 21_855),
        ] {
            let asked = product(csr(stored, wide), dense(columns, by_rows));
            assert_eq!(asked, Some(bytes), "{stored} {wide} {columns}");
        }
        assert_eq!(vector_product(1_000_000, 4), 987);
        assert_eq!(vector_product(50_000, 8), 151);
        assert_eq!(product(dense(2, true), dense(2, true)), None);
    }
}
