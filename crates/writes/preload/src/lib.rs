//! Steps between libc and each program of a run on the phantom: zeros that it writes take no disk, and whom it reaches over the network
//! is written down. What it sees of its calls is as ever.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(unsafe_code, reason = "a C function is given raw pointers")]
#![expect(unreachable_pub, reason = "a C function is reached by its symbol, not by its path")]

mod address;
mod holes;
mod reach;
mod table;
