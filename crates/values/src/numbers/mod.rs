//! What kernels do with numbers, and where the numbers lie.

pub(crate) mod arithmetic;
pub(crate) mod formula;
pub(crate) mod offsets;
pub(crate) mod rows;
