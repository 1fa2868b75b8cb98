//! Kernels whose results are known, one file for each family.

pub(crate) mod cat;
pub mod collective;
pub(crate) mod count;
pub(crate) mod elementwise;
pub(crate) mod family;
pub(crate) mod foreach;
pub(crate) mod functors;
pub(crate) mod histogram;
pub(crate) mod index;
pub(crate) mod matmul;
pub(crate) mod multinomial;
pub(crate) mod nonzero;
pub(crate) mod partly;
pub(crate) mod pooling;
pub(crate) mod random;
pub(crate) mod range;
pub(crate) mod reduce;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod search;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod step_count;
pub(crate) mod triangle;
pub(crate) mod unique;
