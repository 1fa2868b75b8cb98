//! Operands and results of which some elements are known: what a program sets so that it is not chosen stays known where the rest is not.

use crate::memory::writes::Write;
use crate::memory::{Known, KnowsAny, known_among};

/// Of runs of elements that are known among others that are not.
const MOST_PARTS: usize = 1 << 18;

/// A result of which not all is known.
pub(super) struct Found {
    width: usize,
    bytes: Vec<u8>,
    is_known: Vec<bool>,
}

impl Found {
    /// Nothing of so many elements.
    pub(super) fn nothing(count: usize, width: usize) -> Found {
        Found { width, bytes: vec![0; count * width], is_known: vec![false; count] }
    }

    pub(super) fn set(&mut self, i: usize, element: &[u8]) {
        self.is_known[i] = true;
        self.bytes[i * self.width..][..self.width].copy_from_slice(element);
    }

    /// What is known, from `address` on.
    pub(super) fn runs(&self, address: u64) -> Vec<Write> {
        let mut res = Vec::new();
        let mut begin = 0;
        for run in self.is_known.chunk_by(|a, b| a == b) {
            let end = begin + run.len();
            if run[0] && res.len() < MOST_PARTS {
                let bytes = self.bytes[begin * self.width..end * self.width].to_vec();
                res.push(Write::Known(address + wide(begin * self.width), bytes));
            }
            begin = end;
        }
        res
    }
}

/// An operand of which not all may be known.
pub(super) struct Parts<'a> {
    pub(super) at: u64,
    pub(super) count: usize,
    pub(super) width: usize,
    pub(super) reads: (Known<'a>, KnowsAny<'a>),
    pub(super) is_lazy: bool,
}

impl Parts<'_> {
    pub(super) fn whole(&self) -> Option<Vec<u8>> {
        let (known, _) = self.reads;
        known(self.at, self.width)?;
        known(self.at, self.count * self.width)
    }

    /// Each element that is known. What is computed where it is read is known whole, or not asked for.
    pub(super) fn each(&self, mut take: impl FnMut(usize, &[u8])) {
        let (known, knows_any) = self.reads;
        if !knows_any(self.at, wide(self.count * self.width)) {
            return;
        }
        if let Some(all) = self.whole() {
            all.chunks_exact(self.width).enumerate().for_each(|(i, it)| take(i, it));
        } else if !self.is_lazy {
            let elements = (self.count, self.width);
            known_among(self.at, elements, known, knows_any).for_each(|(i, it)| take(i, &it));
        }
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
