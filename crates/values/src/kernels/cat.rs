//! Tensors joined by `torch.cat`: what is known of each is known in the result, and what was known at its place before
//! is not any more (`aten/src/ATen/native/cuda/Shape.cu`). Elements are moved as bytes.

use crate::arguments::{Arguments, Bytes, Structure};
use crate::memory::Known;
use crate::memory::writes::Write;
use crate::names::{self, position};

/// `CatArrayBatchedCopy` and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Bytes of an element.
    width: usize,
    dims: usize,
    /// The tensors of one launch at most.
    most: usize,
    /// Tensors have strides of their own.
    strided: bool,
    /// It counts in vectors of 16 bytes.
    vectors: bool,
}

/// The largest tensor of which the result is known, in bytes.
const MOST: usize = 1 << 20;
/// Likewise of elements of 64 bits, which may be indices.
const MOST_INDICES: usize = 1 << 24;
/// Runs that a tensor becomes, at most.
const MOST_RUNS: usize = 1 << 13;
/// Dimensions of `TensorSizeStride`, which has the sizes and then the strides.
const DIMENSIONS: usize = 4;

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        const OPAQUE: &[u8] = names::OPAQUE_TYPE_UNSIGNED;
        let kind = &name[position(name, names::CAT)?..];
        let mut rest = &kind[position(kind, OPAQUE)? + OPAQUE.len()..];
        let width = number(&mut rest)?;
        rest = rest.strip_prefix(b"EEEj")?;
        let mut next = || {
            rest = rest.strip_prefix(b"Li")?;
            let number = number(&mut rest)?;
            rest = rest.strip_prefix(b"E")?;
            Some(number)
        };
        let (dims, most, strides) = (next()?, next()?, next()?);
        let vectors = position(kind, names::CAT_VECTORIZED).is_some();
        let plausible = (1..=16).contains(&width) && (1..=DIMENSIONS).contains(&dims);
        plausible.then_some(Kernel { width, dims, most, strided: strides > 1, vectors })
    }

    /// What it writes, launched with so many blocks along the second dimension: where to, the tensors, the result's sizes and
    /// strides, the dimension, and what an element of it has.
    pub(crate) fn writes(
        self,
        blocks: u32,
        arguments: Arguments<'_>,
        known: Known<'_>,
    ) -> Option<Vec<Write>> {
        let to = arguments.address(0)?;
        let (dim, trailing) = (arguments.count(3)?, arguments.count(4)?);
        // `{ address[most]; u32 offset[most], size[most], elements[most]; bool dense[most]; shape[] }`
        let flags = (8 + 3 * 4) * self.most;
        let shapes = flags + self.most.next_multiple_of(4);
        let n_shapes = if self.strided { self.most } else { 1 };
        let size = shapes + 8 * DIMENSIONS * n_shapes;
        let tensors =
            arguments.structure(1, Structure { named: &["::CatArrInputTensorMetadata<"], size })?;
        let shape = Structure { named: &["::TensorSizeStride<unsigned int"], size: 8 * DIMENSIONS };
        let out = Shape::of(arguments.structure(2, shape)?)?;
        let count = usize::try_from(blocks).unwrap_or(0).min(self.most);
        let word = |which: usize, i: usize| {
            usize::try_from(tensors.u32(8 * self.most + 4 * (which * self.most + i))?).ok()
        };
        let (mut writes, mut unknown) = (Vec::new(), Vec::new());
        for i in 0..count {
            let from = tensors.u64(8 * i)?;
            let (offset, size, elements) = (word(0, i)?, word(1, i)?, word(2, i)?);
            let piece = Piece { from, offset, size, elements };
            let has_own = self.strided && tensors.u8(flags + i)? == 0;
            let own = match has_own {
                true => Some(Shape::of(tensors.from(shapes + 8 * DIMENSIONS * i)?)?),
                false => None,
            };
            let joined = self.joined(&piece, own.as_ref(), &out, (dim, trailing), known);
            for (at, size, bytes) in joined.into_iter().flatten() {
                match bytes {
                    Some(bytes) => writes.push(Write::Known(to + at, bytes)),
                    None => unknown.push((to + at, size)),
                }
            }
        }
        writes.extend(end_to_end(unknown).into_iter().map(|it| Write::Forgotten(it.0, it.1)));
        Some(writes)
    }

    /// The runs that a tensor becomes: where, how long, and what it is if that is known. `None` if there is nothing that
    /// we could say.
    fn joined(
        self,
        piece: &Piece,
        own: Option<&Shape>,
        out: &Shape,
        (dim, trailing): (usize, usize),
        known: Known<'_>,
    ) -> Option<Vec<Run>> {
        let Piece { from, offset, size, elements } = *piece;
        let run = size.checked_mul(trailing).filter(|&it| it != 0 && elements % it == 0)?;
        // From one run to the next in the result, in elements.
        let row = match dim.checked_sub(1) {
            None => 0,
            Some(before) if self.vectors => out.strides.get(before)? * (16 / self.width),
            Some(before) => *out.strides.get(before)?,
        };
        let runs = elements / run;
        let bytes = elements.checked_mul(self.width)?;
        let most = if self.width == 8 { MOST_INDICES } else { MOST };
        let source =
            if bytes <= most { self.source(from, elements, own, (dim, size), known) } else { None };
        let place = |i: usize| wide((i * row + offset * trailing) * self.width);
        let length = run * self.width;
        Some(if runs <= MOST_RUNS {
            let piece = |i: usize| source.as_ref().map(|it| it[i * length..][..length].to_vec());
            (0..runs).map(|i| (place(i), wide(length), piece(i))).collect()
        } else {
            vec![(place(0), wide((runs - 1) * row * self.width + length), None)]
        })
    }

    /// The elements of a tensor, one after the other.
    fn source(
        self,
        from: u64,
        elements: usize,
        own: Option<&Shape>,
        (dim, size): (usize, usize),
        known: Known<'_>,
    ) -> Option<Vec<u8>> {
        let Some(own) = own else { return known(from, elements * self.width) };
        let place = |mut index: usize| {
            let mut at = 0;
            for i in (1..self.dims).rev() {
                let size = if i == dim { size } else { own.sizes[i] }.max(1);
                at += index % size * own.strides[i];
                index /= size;
            }
            at + index * own.strides[0]
        };
        let last = own.last(elements, self.dims, (dim, size))?;
        let span = last.checked_add(1)?.checked_mul(self.width).filter(|&it| it <= MOST)?;
        let span = known(from, span)?;
        Some(
            (0..elements)
                .flat_map(|i| span[place(i) * self.width..][..self.width].to_vec())
                .collect(),
        )
    }
}

/// Runs of which nothing is known, and where one ends where the next begins, one of both: three tensors that are joined row by
/// row leave nothing between their rows.
fn end_to_end(mut runs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    runs.sort_unstable();
    runs.dedup_by(|(at, size), (first, long)| {
        let follows = *first + *long == *at;
        if follows {
            *long += *size;
        }
        follows
    });
    runs
}

/// Where a run of bytes goes, how long it is, and what it is if that is known.
type Run = (u64, u64, Option<Vec<u8>>);

/// One of the tensors that are joined, in elements.
struct Piece {
    from: u64,
    offset: usize,
    size: usize,
    elements: usize,
}

/// `TensorSizeStride`.
struct Shape {
    sizes: [usize; DIMENSIONS],
    strides: [usize; DIMENSIONS],
}

impl Shape {
    fn of(it: Bytes<'_>) -> Option<Shape> {
        let mut numbers = [0; 2 * DIMENSIONS];
        for (i, number) in numbers.iter_mut().enumerate() {
            *number = usize::try_from(it.u32(4 * i)?).ok()?;
        }
        let (sizes, strides) = numbers.split_first_chunk()?;
        Some(Shape { sizes: *sizes, strides: *strides.first_chunk()? })
    }

    /// The place of its last element; `size` in the dimension in which tensors are joined.
    fn last(&self, elements: usize, dims: usize, (dim, size): (usize, usize)) -> Option<usize> {
        let (mut outer, mut last) = (elements, 0_usize);
        for i in (1..dims).rev() {
            let size = if i == dim { size } else { self.sizes[i] }.max(1);
            last = last.checked_add((size - 1).checked_mul(self.strides[i])?)?;
            outer /= size;
        }
        last.checked_add(outer.checked_sub(1)?.checked_mul(self.strides[0])?)
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The number that `text` begins with, which is taken away.
fn number(text: &mut &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|it| it.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &[u8] = b"_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c26CatArrayBatchedCopy_contigINS1_10OpaqueTypeILj8EEEjLi2ELi128ELi1EEEvPT_";
    const JOINS: Kernel = Kernel { width: 8, dims: 2, most: 128, strided: false, vectors: false };

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        assert_eq!(Kernel::of(NAME), Some(JOINS));
        let name = String::from_utf8_lossy(NAME);
        let strided = name
            .replace("26CatArrayBatchedCopy_contig", "19CatArrayBatchedCopy")
            .replace("Li128ELi1E", "Li64ELi64E");
        assert_eq!(
            Kernel::of(strided.as_bytes()),
            Some(Kernel { most: 64, strided: true, ..JOINS })
        );
        assert_eq!(Kernel::of(b"_ZN2at6native13reduce_kernelE"), None);
    }

    #[test]
    fn what_is_unknown_of_whole_rows_is_one_run() {
        let columns = [(0, 8), (24, 8), (48, 8), (8, 16), (32, 16)];
        assert_eq!(end_to_end(columns.to_vec()), [(0, 56)]);
        assert_eq!(end_to_end(vec![(48, 8), (0, 8), (32, 16)]), [(0, 8), (32, 24)]);
    }

    #[test]
    fn columns_are_joined_row_by_row() {
        // Two rows of one column go behind two columns.
        let out = Shape { sizes: [2, 3, 0, 0], strides: [3, 1, 0, 0] };
        let piece = Piece { from: 4096, offset: 2, size: 1, elements: 2 };
        let known = |_, size| Some(vec![7; size]);
        let joined = JOINS.joined(&piece, None, &out, (1, 1), &known).unwrap();
        assert_eq!(joined, [(16, 8, Some(vec![7; 8])), (40, 8, Some(vec![7; 8]))]);
        let unknown = JOINS.joined(&piece, None, &out, (1, 1), &|_, _| None).unwrap();
        assert_eq!(unknown, [(16, 8, None), (40, 8, None)]);
    }

    #[test]
    fn a_transposed_tensor_is_read_by_its_strides() {
        let narrow = Kernel { width: 1, strided: true, ..JOINS };
        let own = Shape { sizes: [2, 3, 0, 0], strides: [1, 2, 0, 0] };
        let known = |_, size: usize| Some((0..6).take(size).collect());
        assert_eq!(narrow.source(0, 6, Some(&own), (0, 2), &known), Some(vec![0, 2, 4, 1, 3, 5]));
        assert_eq!(own.last(6, 2, (0, 2)), Some(5));
        // Two of three columns are joined with others.
        assert_eq!(own.last(4, 2, (1, 2)), Some(3));
        assert_eq!(own.last(0, 2, (0, 0)), None);
    }
}
