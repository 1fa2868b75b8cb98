//! A CUDA device that is not there. The dynamic loader finds this library before NVIDIA's
//! (`LD_PRELOAD` for the runtime and the math libraries, its soname for the driver), so the real
//! `PyTorch` with its real caching allocator runs on it: memory has addresses, capacity and, where
//! small values were copied, bytes; kernels are launched and do nothing.
//!
//! What is answered how is one table, `entry_points.txt`; what is `imitated` there is a function of
//! that name in this crate. The C signatures are a thin rim over `machine`, `memory`, `addresses`
//! and `contents`, which are safe Rust. The crate knows nothing of what a byte is *for*.
#![expect(unreachable_pub, reason = "a C function is reached by its symbol, not by its path")]
#![cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64")),
    expect(unused, reason = "there is nothing to imitate elsewhere")
)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("plimsoll's phantom GPU exists for Linux on x86-64 only, as CUDA's wheels do");

pub use plimsoll_addresses as addresses;
mod agent;
mod blas;
mod blocks;
mod card;
mod completion;
mod copy;
mod cubin;
mod dnn;
mod driver;
mod fatbin;
mod fft;
mod ghosts;
mod installed;
mod launch;
mod loader;
mod machine;
mod memory;
mod modules;
mod nccl;
mod nvml;
mod report;
mod resident;
mod runtime;
mod solver;
mod sparse;
mod table;
