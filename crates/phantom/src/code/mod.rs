//! The code that a program loads, as far as it is read: for which cards it is, and what its kernels need of one.

pub mod cubin;
pub mod fatbin;
pub mod modules;
