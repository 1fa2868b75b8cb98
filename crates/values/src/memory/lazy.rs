//! Large tensors that are computed where somebody reads them, and nowhere else. A mask for attention has millions of elements,
//! and a program looks at a row of it, or at none: what is kept is how it is made, and of what.

use std::cell::Cell;
use std::sync::Arc;

use crate::numbers::formula::{Buffers, Formula};
use crate::numbers::offsets::Walk;
use crate::numbers::rows;

/// One is made of another, and so on: at most so often.
const MOST_STEPS: u32 = 16;
/// What a result is made of may have that many bytes, where these are not computed later themselves.
const MOST_HELD: u64 = 4 << 20;

/// To compute a few elements takes as long as to compute that many.
const LEAST: usize = 32;

/// What is known of memory.
#[derive(Clone, Debug)]
pub(crate) enum Span {
    Bytes(Vec<u8>),
    /// One element again and again, from so many bytes behind its beginning on.
    Same {
        element: Element,
        from: u64,
        size: u64,
    },
    /// A part of what is computed later.
    Lazy {
        of: Arc<Lazy>,
        from: u64,
        size: u64,
    },
}

/// What a tensor is filled with: the bytes of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    bytes: [u8; 8],
    width: u8,
}

impl Element {
    /// Of one to eight bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Element> {
        let mut element = Element { bytes: [0; 8], width: u8::try_from(bytes.len()).ok()? };
        element.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(element)
    }

    /// Fills `out` with it, from so many bytes behind its beginning on.
    pub(crate) fn repeat(&self, from: u64, out: &mut [u8]) {
        let bytes = &self.bytes[..usize::from(self.width)];
        let skipped = narrow(from % u64::from(self.width));
        if bytes.iter().all(|&it| it == bytes[0]) {
            return out.fill(bytes[0]);
        }
        let (head, rest) = out.split_at_mut((bytes.len() - skipped).min(out.len()));
        head.copy_from_slice(&bytes[skipped..skipped + head.len()]);
        rest.chunks_mut(bytes.len()).for_each(|it| it.copy_from_slice(&bytes[..it.len()]));
    }
}

impl Span {
    pub(crate) fn size(&self) -> u64 {
        match self {
            Span::Bytes(bytes) => wide(bytes.len()),
            Span::Same { size, .. } | Span::Lazy { size, .. } => *size,
        }
    }

    /// What it costs on the host.
    pub(crate) fn held(&self) -> u64 {
        match self {
            Span::Bytes(bytes) => wide(bytes.len()),
            Span::Same { .. } => 0,
            Span::Lazy { of, size, .. } => of.held.min(*size),
        }
    }

    /// What lies between two places in it.
    pub(crate) fn part(&self, begin: u64, end: u64) -> Span {
        match self {
            Span::Bytes(bytes) => Span::Bytes(bytes[narrow(begin)..narrow(end)].to_vec()),
            Span::Same { element, from, .. } => {
                Span::Same { element: *element, from: from + begin, size: end - begin }
            }
            Span::Lazy { of, from, .. } => {
                Span::Lazy { of: Arc::clone(of), from: from + begin, size: end - begin }
            }
        }
    }

    /// Reads what lies there from `at` on. `left` is how many elements may still be computed.
    pub(crate) fn read(&self, at: u64, out: &mut [u8], left: &Cell<u64>) -> Option<()> {
        match self {
            Span::Bytes(bytes) => {
                let at = narrow(at);
                out.copy_from_slice(bytes.get(at..at.checked_add(out.len())?)?);
                Some(())
            }
            Span::Same { element, from, size } => {
                let fits = at.checked_add(wide(out.len()))? <= *size;
                fits.then(|| element.repeat(from + at, out))
            }
            Span::Lazy { of, from, .. } => of.read(from + at, out, left),
        }
    }
}

/// What an operand was when the kernel was launched: pieces that lie one after the other, each with where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Source(pub Vec<(u64, Span)>);

impl Source {
    fn read(&self, mut at: u64, mut out: &mut [u8], left: &Cell<u64>) -> Option<()> {
        let mut i = self.0.partition_point(|it| it.0 <= at).checked_sub(1)?;
        while !out.is_empty() {
            let (begin, span) = self.0.get(i)?;
            let here = narrow((begin + span.size()).checked_sub(at)?).min(out.len());
            let (now, rest) = std::mem::take(&mut out).split_at_mut(here);
            span.read(at - begin, now, left)?;
            (at, out, i) = (at + wide(here), rest, i + 1);
        }
        Some(())
    }

    /// Reads a row, of elements that take `width` bytes each, so that they lie one after the other.
    fn row(
        &self,
        at: u64,
        stride: u64,
        width: usize,
        out: &mut [u8],
        left: &Cell<u64>,
    ) -> Option<()> {
        if stride == wide(width) {
            return self.read(at, out, left);
        }
        if stride == 0 {
            let (first, rest) = out.split_at_mut_checked(width)?;
            self.read(at, first, left)?;
            rest.chunks_exact_mut(width).for_each(|it| it.copy_from_slice(first));
            return Some(());
        }
        (0..)
            .zip(out.chunks_exact_mut(width))
            .try_for_each(|(i, it)| self.read(at + stride * i, it, left))
    }

    fn steps(&self) -> u32 {
        let of = |span: &(u64, Span)| match &span.1 {
            Span::Bytes(_) | Span::Same { .. } => 0,
            Span::Lazy { of, .. } => of.steps,
        };
        self.0.iter().map(of).max().unwrap_or(0)
    }

    fn held(&self) -> u64 {
        let bytes = self.0.iter().filter(|it| matches!(it.1, Span::Bytes(_)));
        bytes.map(|it| it.1.size()).sum()
    }
}

/// What a kernel writes that is not computed now: elements that lie one after the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) formula: Formula,
    /// Where its elements, and those of its operands, lie.
    pub(crate) walk: Walk,
    pub(crate) count: usize,
    /// Where each operand begins, and how many bytes there are up to the end of its last element.
    pub(crate) operands: Vec<(u64, u64)>,
}

impl Open {
    pub(crate) fn size(&self) -> u64 {
        wide(self.count) * wide(self.formula.width(0))
    }
}

/// A product of matrices of floats, of which each element is a sum of few terms.
#[derive(Debug)]
pub(crate) struct Product {
    /// Rows of the result; they lie one after the other.
    pub(crate) rows: usize,
    pub(crate) terms: usize,
    /// The terms of each row,
    pub(crate) left: Vec<f32>,
    /// and those of each column.
    pub(crate) right: Vec<f32>,
}

impl Product {
    /// So many elements from the `first` on, written behind what is there.
    pub(crate) fn write(&self, first: usize, count: usize, out: &mut Vec<u8>) -> Option<()> {
        let of = |all: &'_ [f32], i: usize| {
            Some(i * self.terms..(i + 1) * self.terms).filter(|it| it.end <= all.len())
        };
        for i in first..first + count {
            let (row, column) = (i.checked_rem(self.rows)?, i / self.rows);
            let (left, right) = (of(&self.left, row)?, of(&self.right, column)?);
            let terms = self.left[left].iter().zip(&self.right[right]);
            let sum = terms.fold(0.0_f32, |sum, (a, b)| a.mul_add(*b, sum));
            out.extend_from_slice(&sum.to_le_bytes());
        }
        Some(())
    }

    fn held(&self) -> u64 {
        wide(size_of_val(&*self.left) + size_of_val(&*self.right))
    }
}

/// A result that is computed where it is read.
#[derive(Debug)]
pub(crate) struct Lazy {
    made: Made,
    steps: u32,
    held: u64,
}

/// How its elements are made.
#[derive(Debug)]
enum Made {
    /// Each of elements of others.
    Elements { open: Open, operands: Vec<Source> },
    /// Of floats.
    Product(Product),
}

impl Lazy {
    /// That of these operands, if it does not take too much.
    pub(crate) fn of(open: Open, operands: Vec<Source>) -> Option<Lazy> {
        let steps = 1 + operands.iter().map(Source::steps).max().unwrap_or(0);
        let held = operands.iter().map(Source::held).sum();
        let is_little = steps <= MOST_STEPS && held <= MOST_HELD;
        is_little.then_some(Lazy { made: Made::Elements { open, operands }, steps, held })
    }

    /// A product.
    pub(crate) fn product(it: Product) -> Lazy {
        let held = it.held();
        Lazy { made: Made::Product(it), steps: 1, held }
    }

    /// Computes what lies from the byte `from` on.
    fn read(&self, from: u64, out: &mut [u8], left: &Cell<u64>) -> Option<()> {
        let width = match &self.made {
            Made::Elements { open, .. } => open.formula.width(0),
            Made::Product(_) => size_of::<f32>(),
        };
        let (first, skipped) = (narrow(from) / width, narrow(from) % width);
        let count = (skipped + out.len()).div_ceil(width);
        left.set(left.get().checked_sub(wide(count.max(LEAST)))?);
        let mut bytes = Vec::with_capacity(count * width);
        match &self.made {
            Made::Product(it) => it.write(first, count, &mut bytes)?,
            Made::Elements { open, operands } => {
                Self::elements(open, operands, (first, count), &mut bytes, left)?;
            }
        }
        out.copy_from_slice(bytes.get(skipped..skipped + out.len())?);
        Some(())
    }

    /// Writes so many elements from the `first` on behind what is there.
    fn elements(
        open: &Open,
        operands: &[Source],
        (first, count): (usize, usize),
        bytes: &mut Vec<u8>,
        left: &Cell<u64>,
    ) -> Option<()> {
        let formula = &open.formula;
        let mut walk = open.walk.part(first, count);
        let mut buffers = Buffers::of(operands.len() + 1, count);
        let mut packed = [0; 8 * rows::LENGTH];
        while let Some(row) = walk.row(rows::LENGTH) {
            for (i, operand) in operands.iter().enumerate() {
                let width = formula.width(i + 1);
                let packed = packed.get_mut(..row.length * width)?;
                operand.row(row.at[i + 1], row.strides[i + 1], width, packed, left)?;
                buffers.read(formula, i + 1, packed, (0, wide(width)), row.length)?;
            }
            formula.row([true; 4], &mut buffers, row.length, bytes)?;
        }
        Some(())
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn narrow(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
