//! Products of matrices of which each element is a sum of few terms, of known floats: the distances of points to each
//! other (`torch.cdist` multiplies rows of coordinates), boxes under a transformation. A layer's product has more terms, and is
//! no number that programs size a tensor by.

use crate::memory::contents::{Contents, KEEP_COMPUTED};
use crate::memory::lazy::Product;

/// Terms of an element at most: three coordinates, and what `cdist` puts beside them, in some more dimensions.
const MOST_TERMS: usize = 16;
/// Elements of a product that is computed at once; of more each is computed where somebody reads it. The distances of thousands of points
/// to each other mostly go to a `topk` that chooses from no more than it can read.
const MOST_AT_ONCE: usize = 1 << 20;

/// A matrix as cuBLAS is told it, one column after the other, `rows` of it apart.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Where it begins.
    pub address: u64,
    /// Whether its rows are meant where columns are asked for.
    pub is_transposed: bool,
    /// From one column to the next, in elements.
    pub step: usize,
}

impl Matrix {
    /// Where the element of this row and this column stands, once it is transposed if it is to be.
    fn place(self, row: usize, column: usize) -> usize {
        if self.is_transposed { row * self.step + column } else { column * self.step + row }
    }

    /// All of the first `rows` and `columns`, if that is known.
    fn known(self, rows: usize, columns: usize, contents: &Contents) -> Option<Vec<f32>> {
        let size = self.place(rows.checked_sub(1)?, columns.checked_sub(1)?).checked_add(1)?;
        let bytes = size.checked_mul(4).filter(|&it| usize_of(KEEP_COMPUTED) >= it)?;
        let bytes = contents.known(self.address, bytes)?;
        let (elements, _) = bytes.as_chunks::<4>();
        Some(elements.iter().map(|&it| f32::from_le_bytes(it)).collect())
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// `c = a b`, of so many rows, columns and terms, in `contents`, whose columns lie one after the other. Of what is not known in
/// full nothing is known.
pub(crate) fn multiply(
    contents: &mut Contents,
    [rows, columns, terms]: [usize; 3],
    a: Matrix,
    b: Matrix,
    c: u64,
) {
    let elements = rows.checked_mul(columns).and_then(|it| it.checked_mul(4));
    let Some(size) = elements.filter(|&it| 0 < it) else { return };
    let few = terms <= MOST_TERMS && size <= usize_of(KEEP_COMPUTED);
    let operands = || {
        let a_known = a.known(rows, terms, contents)?;
        Some((a_known, b.known(terms, columns, contents)?))
    };
    let Some((left, right)) = few.then(operands).flatten() else {
        contents.forget(c, u64::try_from(size).unwrap_or(u64::MAX));
        return;
    };
    let origin = contents.origin(a.address).max(contents.origin(b.address));
    let place = |of: usize| (0..of).flat_map(|i| (0..terms).map(move |term| (i, term)));
    let product = Product {
        rows,
        terms,
        left: place(rows).map(|(row, term)| left[a.place(row, term)]).collect(),
        right: place(columns).map(|(column, term)| right[b.place(term, column)]).collect(),
    };
    let count = rows * columns;
    if MOST_AT_ONCE < count {
        return contents.write_product(c, u64::try_from(size).unwrap_or(u64::MAX), product, origin);
    }
    let mut result = Vec::with_capacity(size);
    if product.write(0, count, &mut result).is_none() {
        return;
    }
    match origin {
        Some(origin) => contents.write_pattern(c, &result, origin),
        None => contents.write_computed(c, &result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(it: &[f32]) -> Vec<u8> {
        it.iter().flat_map(|it| it.to_le_bytes()).collect()
    }

    #[test]
    fn products_of_few_terms_are_known() {
        let mut contents = Contents::default();
        // Two rows of three, which cuBLAS takes for three rows of two, and one column.
        contents.write(4096, &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        contents.write(8192, &floats(&[1.0, 0.0, -1.0]));
        let a = Matrix { address: 4096, is_transposed: true, step: 3 };
        let b = Matrix { address: 8192, is_transposed: false, step: 3 };
        multiply(&mut contents, [2, 1, 3], a, b, 12288);
        assert_eq!(contents.known(12288, 8), Some(floats(&[-2.0, -2.0])));
        let longer = Matrix { address: 8196, ..b };
        multiply(&mut contents, [2, 1, 3], a, longer, 12288);
        assert_eq!(contents.known(12288, 8), None, "a term is not known");
    }

    #[test]
    fn of_a_large_product_elements_are_computed_where_they_are_read() {
        let mut contents = Contents::default();
        let points = 2048_u64;
        let coordinates: Vec<f32> = (0_u16..4096).map(f32::from).collect();
        contents.write(4096, &floats(&coordinates));
        let of = |is_transposed| Matrix { address: 4096, is_transposed, step: 2 };
        let to = 1 << 20;
        multiply(&mut contents, [2048, 2048, 2], of(true), of(false), to);
        assert!(contents.is_lazy(to));
        // Point 3 is (6, 7), point 5 is (10, 11).
        let at = to + 4 * (5 * points + 3);
        assert_eq!(contents.known(at, 4), Some(floats(&[6.0 * 10.0 + 7.0 * 11.0])));
        contents.forget(4096, 4);
        assert_eq!(
            contents.known(at, 4),
            Some(floats(&[137.0])),
            "it was made of what was there then"
        );
    }
}
