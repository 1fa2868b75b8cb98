//! `triu` and `tril` of what is known: a causal mask, the pairs of which each is asked for once
//! (`aten/src/ATen/native/cuda/TriangularOps.cu`).

use crate::arguments::{Arguments, TensorInfo};
use crate::memory::Known;
use crate::memory::writes::Write;
use crate::names::{self, position};
use crate::types::number_after;

/// `triu_tril_kernel`, of elements of so many bytes, with positions of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    width: usize,
    upper: bool,
}

/// Bytes that are looked at, at most.
const MOST: usize = 1 << 24;

/// A tensor; strides are in elements.
struct Tensor {
    address: u64,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        const NAME: &[u8] = names::TRIU_TRIL;
        let element = number_after(name, NAME)?;
        let rest = name.get(position(name, NAME)? + NAME.len() + 1..)?;
        let upper = rest.starts_with(b"iLb1E");
        (upper || rest.starts_with(b"iLb0E")).then_some(Kernel { width: element.width(), upper })
    }

    /// What it writes: the result, the tensor, and the diagonal.
    pub(crate) fn writes(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Vec<Write>> {
        let tensor = |i: usize| Tensor::of(arguments.tensor(i)?);
        let (to, from, diagonal) = (tensor(0)?, tensor(1)?, arguments.whole(2)?);
        let unknown = Write::Unknown(to.address, u64::MAX);
        Some(vec![self.cut(&to, &from, diagonal, known).unwrap_or(unknown)])
    }

    fn cut(self, to: &Tensor, from: &Tensor, diagonal: i64, known: Known<'_>) -> Option<Write> {
        let count = from.sizes.iter().try_fold(1_usize, |a, &b| a.checked_mul(b))?;
        let bytes = count.checked_mul(self.width).filter(|it| (1..=MOST).contains(it))?;
        let [.., rows, columns] = from.sizes[..] else { return None };
        (to.sizes == from.sizes && to.is_dense()).then_some(())?;
        let source = known(from.address, (from.last()? + 1).checked_mul(self.width)?)?;
        let mut result = vec![0; bytes];
        for (i, element) in result.chunks_exact_mut(self.width).enumerate() {
            let (row, column) = (i / columns % rows, i % columns);
            let above = i64::try_from(column).ok()? - i64::try_from(row).ok()?;
            let stays = if self.upper { diagonal <= above } else { above <= diagonal };
            if stays {
                let at = from.place(i) * self.width;
                element.copy_from_slice(source.get(at..at + self.width)?);
            }
        }
        Some(Write::Pattern(to.address, result))
    }
}

impl Tensor {
    fn of(it: TensorInfo<'_>) -> Option<Tensor> {
        let wide = |it: u32| usize::try_from(it).ok();
        let dims = it.dims()?;
        Some(Tensor {
            address: it.address()?,
            sizes: (0..dims).map(|i| it.size(i).and_then(wide)).collect::<Option<_>>()?,
            strides: (0..dims).map(|i| it.stride(i).and_then(wide)).collect::<Option<_>>()?,
        })
    }

    /// Where the `index`th element lies, in elements.
    fn place(&self, mut index: usize) -> usize {
        let mut at = 0;
        for (&size, stride) in self.sizes.iter().zip(&self.strides).rev() {
            at += index % size.max(1) * stride;
            index /= size.max(1);
        }
        at
    }

    fn last(&self) -> Option<usize> {
        let ends = self.sizes.iter().zip(&self.strides);
        ends.map(|(&size, stride)| Some(size.checked_sub(1)? * stride)).sum()
    }

    fn is_dense(&self) -> bool {
        let mut step = 1;
        self.sizes.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == step;
            step *= size;
            fits
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_diagonal_is_cut_off() {
        let name = b"_ZN2at6native16triu_tril_kernelIbiLb1ELi8ELb0EEEvNS_4cuda6detail10TensorInfoIT_T0_EENS4_IKS5_S6_EEllS6_";
        let kernel = Kernel { width: 1, upper: true };
        assert_eq!(Kernel::of(name), Some(kernel));
        let tensor = |address, strides: [usize; 2]| Tensor {
            address,
            sizes: vec![2, 3],
            strides: strides.to_vec(),
        };
        let (to, from) = (tensor(64, [3, 1]), tensor(128, [1, 2]));
        let known = |at, size| (at == 128).then(|| (1..=6).take(size).collect());
        let upper = kernel.cut(&to, &from, 1, &known);
        assert_eq!(upper, Some(Write::Pattern(64, vec![0, 3, 5, 0, 0, 6])));
        let lower = Kernel { upper: false, ..kernel }.cut(&to, &from, 0, &known);
        assert_eq!(lower, Some(Write::Pattern(64, vec![1, 0, 0, 2, 4, 0])));
        assert_eq!(kernel.cut(&from, &to, 1, &known), None, "not one after the other");
    }
}
