//! NVRTC's functions for one caller, cuDNN, whose fused attention compiles a kernel for each new shape:
//! the better part of a second each, for kernels that the phantom never launches. Every program here
//! compiles at once, to a machine code file without kernels.
//!
//! It is a library of its own, and not a part of the phantom, because the phantom is preloaded: its
//! functions would win over those of the real NVRTC for everybody, and what `PyTorch` and `CuPy` compile
//! they keep on the disk, for real runs too. The phantom's `dlopen` hands this file to cuDNN alone.
#![expect(unreachable_pub, reason = "a C function is reached by its symbol, not by its path")]

mod programs;
