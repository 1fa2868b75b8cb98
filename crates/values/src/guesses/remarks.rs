//! What the report is to say of guesses.

/// A sentence for people about an answer that is not what a real device would give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The sentence; the report counts how often it was said.
    pub sentence: &'static str,
    /// Whether the program takes the size of a tensor from what was assumed.
    pub decides_size: bool,
}

/// Remarks that nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Remarks(Vec<Remark>);

impl Remarks {
    /// An answer that is not what a real device would give.
    pub(crate) fn approximate(&mut self, sentence: &'static str) {
        self.0.push(Remark { sentence, decides_size: false });
    }

    /// A size that the program computes from values that were assumed.
    pub(crate) fn assume(&mut self, sentence: &'static str) {
        self.0.push(Remark { sentence, decides_size: true });
    }

    /// All of them, once.
    pub(crate) fn take(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.0)
    }
}
