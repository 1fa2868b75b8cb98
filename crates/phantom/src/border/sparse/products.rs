//! The product of two sparse matrices (`cusparseSpGEMM_*`): how many elements it has, and what it needs.
//!
//! Where elements stand is on the device, and nobody computed it. They are assumed to be spread evenly, as
//! those of a random graph are.

use std::ffi::{c_int, c_void};
use std::sync::PoisonError;

use super::{INVALID_VALUE, MATRICES, Matrix, find, size};
use crate::border::runtime::answer;
use crate::machine::report;

/// What a product of two matrices is like.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Product {
    /// Elements of the first matrix.
    stored: u64,
    /// Rows of the first matrix.
    rows: u64,
    /// Pairs of elements that are multiplied.
    pairs: u64,
    /// Elements of the result.
    result: u64,
    /// Bytes of an element.
    width: u64,
}

impl Product {
    fn of(a: Matrix, b: Matrix) -> Option<Product> {
        let (
            Matrix::Csr { rows, columns: inner, stored, width, .. },
            Matrix::Csr { columns, stored: other, .. },
        ) = (a, b)
        else {
            return None;
        };
        let pairs = stored.checked_mul(other)?.checked_div(inner).unwrap_or(0);
        Some(Product {
            stored,
            rows,
            pairs,
            result: distinct(pairs, rows.checked_mul(columns)?),
            width,
        })
    }
}

/// How many of `places` are hit by `pairs` that fall evenly.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an expectation; it is between zero and `places`"
)]
fn distinct(pairs: u64, places: u64) -> u64 {
    if places <= 1 {
        return places.min(pairs);
    }
    let missed_by_one = (-1.0 / places as f64).ln_1p();
    let hit = -(pairs as f64 * missed_by_one).exp_m1() * places as f64;
    (hit.round() as u64).min(pairs).min(places)
}

/// Answers with a work area's size, or does the work, which is nothing.
fn work_area(
    (a, b): (u64, u64),
    bytes: *mut usize,
    area: u64,
    needed: impl Fn(Product) -> u64,
) -> i32 {
    let Some(product) = find(a).zip(find(b)).and_then(|(a, b)| Product::of(a, b)) else {
        return INVALID_VALUE;
    };
    if area == 0 { size(bytes, Some(needed(product))) } else { 0 }
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpGEMM_workEstimation(
    _handle: u64,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: *const c_void,
    a: u64,
    b: u64,
    _beta: *const c_void,
    _c: u64,
    _compute: c_int,
    _algorithm: c_int,
    _product: u64,
    bytes: *mut usize,
    area: u64,
) -> i32 {
    work_area((a, b), bytes, area, estimation)
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpGEMM_compute(
    _handle: u64,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: *const c_void,
    a: u64,
    b: u64,
    _beta: *const c_void,
    c: u64,
    _compute: c_int,
    _algorithm: c_int,
    _product: u64,
    bytes: *mut usize,
    area: u64,
) -> i32 {
    let status = work_area((a, b), bytes, area, computation);
    if status == 0 && area != 0 {
        report::assume(
            "plimsoll assumed that the elements of the product of two sparse matrices are spread evenly",
        );
        let result = find(a).zip(find(b)).and_then(|(a, b)| Product::of(a, b)).map(|it| it.result);
        let mut matrices = MATRICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((Matrix::Csr { stored, .. }, result)) = matrices.get_mut(&c).zip(result) {
            *stored = result;
        }
    }
    status
}

#[unsafe(no_mangle)]
pub extern "C" fn cusparseSpMatGetSize(
    matrix: u64,
    rows: *mut i64,
    columns: *mut i64,
    stored: *mut i64,
) -> i32 {
    let Some(Matrix::Csr { rows: r, columns: c, stored: s, .. }) = find(matrix) else {
        return INVALID_VALUE;
    };
    for (out, number) in [(rows, r), (columns, c), (stored, s)] {
        // SAFETY: the caller's pointer, checked for null.
        if unsafe { answer(out, i64::try_from(number).unwrap_or(i64::MAX)) } != 0 {
            return INVALID_VALUE;
        }
    }
    0
}

/// Where the library's scans keep the state of each tile: 32 more than there are, of so many bytes.
fn tiles(items: u64, items_of_a_tile: u64, bytes: u64) -> u64 {
    (bytes * (items.div_ceil(items_of_a_tile) + 32)).next_multiple_of(256)
}

/// The first work area: a length and an offset for each element of the first matrix, and a scan over them.
fn estimation(product: Product) -> u64 {
    12 * product.stored + tiles(product.stored, 896, 16) + 311
}

/// The second one: for each pair its place and value, before and after they are sorted; then what counts those that
/// differ, or what sorts the rows, whichever is more. All 57 that an H200 gave follow, but for 256 bytes where there are a million rows.
fn computation(product: Product) -> u64 {
    /// From so many rows on they are sorted by more than one block; with 300 they were not, with 4000 they were.
    const MANY_ROWS: u64 = 1024;
    let Product { rows, pairs, width, .. } = product;
    let offsets = (4 * pairs).max(8 * (rows + 1));
    let differing = tiles(pairs, 768, 16) + 4391;
    let more = if rows < MANY_ROWS { 0 } else { 5376 + tiles(rows, 1152, 8) };
    let by_rows = 2 * (4 * rows).next_multiple_of(256) + 15 + more;
    (12 + 2 * width) * pairs + offsets + differing.max(by_rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_areas_are_those_of_an_h200() {
        for (rows, stored, pairs, width, first, second) in [
            (1, 1, 1, 4, 1091, 5195),
            (1, 1, 1, 8, 1091, 5203),
            (64, 62, 66, 4, 1823, 6999),
            (64, 62, 72, 8, 1823, 7695),
            (300, 893, 4088, 4, 11_795, 103_271),
            (100, 4979, 50_096, 4, 60_827, 1_208_487),
            (5000, 49_951, 49_906, 4, 601_259, 1_244_095),
            (8000, 39_985, 199_908, 4, 481_411, 4_867_695),
            (8000, 79_946, 798_915, 8, 961_711, 25_635_183),
            (8000, 159_817, 3_193_841, 4, 1_921_699, 76_723_647),
            (1000, 299_544, 897_626, 4, 3_600_727, 21_566_871),
            (512, 53_593, 5_603_675, 4, 644_963, 134_610_095),
            (20_000, 20_000, 20_016, 4, 241_335, 726_487),
            (20_000, 19_999, 20_189, 8, 241_323, 891_459),
            (100_000, 399_995, 1_600_971, 4, 4_807_931, 39_229_975),
            (4000, 163_580, 6_695_300, 4, 1_966_855, 160_831_623),
        ] {
            let product = Product { stored, rows, pairs, result: 0, width };
            assert_eq!((estimation(product), computation(product)), (first, second), "{rows}");
        }
    }

    #[test]
    fn a_random_graph_has_as_many_pairs_of_steps_as_an_h200_counted() {
        let square = |size, stored, width| {
            let matrix = Matrix::Csr { rows: size, columns: size, stored, width, offset_bytes: 4 };
            Product::of(matrix, matrix).unwrap()
        };
        // Measured: 199,908 pairs and 199,572 elements; 5,606,030 and all places.
        let it = square(8000, 39_984, 4);
        assert_eq!((it.pairs, it.result), (199_840, 199_528));
        assert_eq!(square(512, 53_569, 4).result, 512 * 512);
        assert_eq!(square(8000, 0, 4).result, 0);
        assert_eq!(distinct(7, 0), 0);
        assert_eq!(distinct(7, 1), 1);
    }
}
