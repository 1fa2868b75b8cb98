//! A CUDA device that is not there. The dynamic loader finds this library before NVIDIA's
//! (`LD_PRELOAD` for the runtime and the math libraries, its soname for the driver), so the real
//! `PyTorch` with its real caching allocator runs on it. Memory has addresses and capacity; streams, events and graphs
//! have an order; no kernel runs.
//!
//! `border` has the C signatures, a folder or a file for each of NVIDIA's libraries. What is answered how is one table,
//! `entry_points.txt`; what is `imitated` there is a function of that name in the border. It asks the `machine`, which is
//! safe Rust but for the addresses that it reserves; `code` reads the modules that the program loads; and what a program
//! launches and copies goes through `launch` and `copy`, which know the guest: what a kernel would have computed, and what
//! a byte is *for*, is the business of `plimsoll_values` alone.
#![expect(unreachable_pub, reason = "a C function is reached by its symbol, not by its path")]
#![cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64")),
    expect(unused, reason = "there is nothing to imitate elsewhere")
)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("plimsoll's phantom GPU exists for Linux on x86-64 only, as CUDA's wheels do");

pub use plimsoll_addresses as addresses;
mod border;
mod code;
mod copy;
mod launch;
mod machine;
mod pytorch;
