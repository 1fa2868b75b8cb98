//! Where the elements of tensors lie that are not laid out one after the other, as PyTorch's kernels are told
//! it (`aten/src/ATen/cuda/detail/OffsetCalculator.cuh`).

/// `OffsetCalculator<N>`: `{ int dims; { divisor, m1, shift } sizes[25]; int strides[25][N] }`, whose first
/// dimension is the fastest.
pub(crate) struct Offsets {
    /// Where it stands among a kernel's arguments.
    pub(crate) at: usize,
    /// N, at most [`MOST_TENSORS`].
    pub(crate) tensors: usize,
}

/// More tensors than a kernel that we follow has.
pub(crate) const MOST_TENSORS: usize = 4;

impl Offsets {
    const DIMENSIONS: usize = 25;

    fn strides(&self) -> usize {
        self.at + 4 + Self::DIMENSIONS * 12
    }

    /// Where it ends.
    pub(crate) fn end(&self) -> usize {
        self.strides() + Self::DIMENSIONS * self.tensors * 4
    }

    /// The offsets in bytes of the element that is the `index`th, for each tensor; `None` if the layout
    /// makes no sense. `number` reads four bytes of the arguments.
    pub(crate) fn of(
        &self,
        mut index: usize,
        number: impl Fn(usize) -> Option<u32>,
    ) -> Option<[u64; MOST_TENSORS]> {
        let mut offsets = [0; MOST_TENSORS];
        let dims = usize::try_from(number(self.at)?).ok().filter(|&it| it <= Self::DIMENSIONS)?;
        for dim in 0..dims {
            let size =
                usize::try_from(number(self.at + 4 + 12 * dim)?).ok().filter(|&it| 0 < it)?;
            for (i, offset) in offsets.iter_mut().enumerate().take(self.tensors) {
                let stride = u64::from(number(self.strides() + 4 * (self.tensors * dim + i))?);
                *offset += stride * u64::try_from(index % size).ok()?;
            }
            index /= size;
        }
        (index == 0).then_some(offsets)
    }

    /// The offsets in bytes of the first `count` elements, one after the other. `None` as in [`Offsets::of`].
    pub(crate) fn walk(&self, count: usize, number: impl Fn(usize) -> Option<u32>) -> Option<Walk> {
        self.of(count.checked_sub(1)?, &number)?;
        let dims = usize::try_from(number(self.at)?).ok()?;
        let dimension = |dim: usize| {
            let mut strides = [0; MOST_TENSORS];
            for (i, stride) in strides.iter_mut().enumerate().take(self.tensors) {
                *stride = u64::from(number(self.strides() + 4 * (self.tensors * dim + i))?);
            }
            Some(Dimension { size: number(self.at + 4 + 12 * dim)?, at: 0, strides })
        };
        Some(Walk::of((0..dims).map(dimension).collect::<Option<_>>()?, count))
    }

    /// Likewise for two tensors, of an `OffsetCalculator` whose strides may be negative.
    pub(crate) fn signed(
        &self,
        mut index: usize,
        number: impl Fn(usize) -> Option<u32>,
    ) -> Option<[i64; 2]> {
        let mut offsets = [0; 2];
        let dims = usize::try_from(number(self.at)?).ok().filter(|&it| it <= Self::DIMENSIONS)?;
        for dim in 0..dims {
            let size =
                usize::try_from(number(self.at + 4 + 12 * dim)?).ok().filter(|&it| 0 < it)?;
            for (i, offset) in offsets.iter_mut().enumerate() {
                let stride = number(self.strides() + 4 * (self.tensors * dim + i))?.cast_signed();
                *offset += i64::from(stride) * i64::try_from(index % size).ok()?;
            }
            index /= size;
        }
        (index == 0).then_some(offsets)
    }
}

/// Goes through the elements of tensors, in the order in which a kernel counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    dims: Vec<Dimension>,
    now: [u64; MOST_TENSORS],
    left: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Dimension {
    size: u32,
    at: u32,
    strides: [u64; MOST_TENSORS],
}

impl Walk {
    fn of(dims: Vec<Dimension>, count: usize) -> Walk {
        Walk { dims, now: [0; MOST_TENSORS], left: count }
    }

    /// Through `count` of the same elements, from the `first` on. This one must not have gone anywhere yet.
    pub(crate) fn part(&self, first: usize, count: usize) -> Walk {
        let mut it = Walk { left: count.min(self.left.saturating_sub(first)), ..self.clone() };
        let mut rest = u64::try_from(first).unwrap_or(u64::MAX);
        for dim in &mut it.dims {
            let size = u64::from(dim.size.max(1));
            dim.at = u32::try_from(rest % size).unwrap_or(0);
            for (now, stride) in it.now.iter_mut().zip(dim.strides) {
                *now = now.wrapping_add(stride.wrapping_mul(rest % size));
            }
            rest /= size;
        }
        it
    }

    /// Whether the elements of the first tensor lie one after the other, each of `width` bytes.
    pub(crate) fn is_in_order(&self, width: u64) -> bool {
        let mut step = width;
        self.dims.iter().all(|dim| {
            let fits = dim.size == 1 || dim.strides[0] == step;
            step = step.saturating_mul(dim.size.into());
            fits
        })
    }

    /// Through elements that lie one after the other, of that many bytes each.
    pub(crate) fn dense(widths: [u64; MOST_TENSORS], count: usize) -> Walk {
        Walk::of(vec![Dimension { size: u32::MAX, at: 0, strides: widths }], count)
    }
}

/// Elements that lie evenly.
pub(crate) struct Row {
    /// Where the first ones are.
    pub(crate) at: [u64; MOST_TENSORS],
    /// From one to the next.
    pub(crate) strides: [u64; MOST_TENSORS],
    pub(crate) length: usize,
}

impl Walk {
    /// The next elements that lie evenly, at most so many.
    pub(crate) fn row(&mut self, most: usize) -> Option<Row> {
        let at = self.now;
        let Some(fast) = self.dims.first_mut() else {
            return self.next().map(|at| Row { at, strides: [0; MOST_TENSORS], length: 1 });
        };
        let rest = usize::try_from(fast.size - fast.at).unwrap_or(usize::MAX);
        let length = rest.min(self.left).min(most.max(1));
        // All but the last one of them, which is the step to whatever comes then.
        let before = u32::try_from(length.checked_sub(1)?).ok()?;
        fast.at += before;
        let strides = fast.strides;
        for (now, stride) in self.now.iter_mut().zip(strides) {
            *now = now.wrapping_add(stride * u64::from(before));
        }
        self.left -= length - 1;
        self.next().map(|_| Row { at, strides, length })
    }
}

impl Iterator for Walk {
    type Item = [u64; MOST_TENSORS];

    fn next(&mut self) -> Option<[u64; MOST_TENSORS]> {
        self.left = self.left.checked_sub(1)?;
        let here = self.now;
        for dim in &mut self.dims {
            dim.at += 1;
            let back = if dim.at < dim.size { 0 } else { u64::from(dim.at) };
            for (now, stride) in self.now.iter_mut().zip(dim.strides) {
                *now = now.wrapping_add(stride).wrapping_sub(stride * back);
            }
            if back == 0 {
                break;
            }
            dim.at = 0;
        }
        Some(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_and_a_column_meet_in_every_element() {
        // Two rows of three: the result is dense, one operand is a row, the other a column.
        let offsets = Offsets { at: 8, tensors: 3 };
        let number = |at: usize| {
            Some(match at {
                8 => 2,
                12 => 3,
                24 => 2,
                // Strides of the fast dimension, then of the slow one.
                312 => 1,
                316 | 332 => 4,
                324 => 3,
                _ => 0,
            })
        };
        assert_eq!(offsets.of(4, number), Some([4, 4, 4, 0]));
        assert_eq!(offsets.of(2, number), Some([2, 8, 0, 0]));
        assert_eq!(offsets.of(6, number), None, "there are six");
        let walk = offsets.walk(6, number).unwrap();
        assert!(walk.eq((0..6).map(|i| offsets.of(i, number).unwrap())), "one after the other");
        assert!(offsets.walk(7, number).is_none());
        let mut walk = offsets.walk(6, number).unwrap();
        let rows =
            std::iter::from_fn(|| walk.row(2).map(|it| (it.at[0], it.strides[0], it.length)));
        assert!(rows.eq([(0, 1, 2), (2, 1, 1), (3, 1, 2), (5, 1, 1)]), "and in rows");
        let walk = offsets.walk(6, number).unwrap();
        assert!((0..6).all(|i| walk.part(i, 9).eq(walk.clone().skip(i))), "from each on");
        assert!(walk.is_in_order(1) && !walk.is_in_order(4));
        assert_eq!(offsets.end(), 612);
    }
}
