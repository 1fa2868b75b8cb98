//! What is known before a program begins: the card, and what the user assumes.

/// How values are imitated in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether results are imitated at all. Without, a program reads what it copied to the device, and zeros.
    pub imitates: bool,
    /// What share of unknown elements `nonzero()` finds, in millionths; `None` if nobody said.
    pub nonzero_millionths: Option<u64>,
    /// And that `unique()` leaves.
    pub unique_millionths: Option<u64>,
    /// What share of tokens a router sends to its first expert, in millionths; `None` if nobody said.
    pub experts_millionths: Option<u64>,
    /// How many of the first steps of a gradient scaler find an overflow, and are skipped; `None` if nobody said.
    pub overflows: Option<u64>,
    /// Whether PyTorch's kernels over lists of tensors take long ones: `MultiTensorApply.cuh` since torch 2.12, for CUDA 13.
    pub long_lists: bool,
    /// Streaming multiprocessors of the card.
    pub multiprocessors: usize,
    /// Resident threads of one of them.
    pub threads_per_multiprocessor: usize,
}

impl Default for Settings {
    /// Nothing is assumed, on an H200.
    fn default() -> Settings {
        Settings {
            imitates: true,
            nonzero_millionths: None,
            unique_millionths: None,
            experts_millionths: None,
            overflows: None,
            long_lists: false,
            multiprocessors: 132,
            threads_per_multiprocessor: 2048,
        }
    }
}
