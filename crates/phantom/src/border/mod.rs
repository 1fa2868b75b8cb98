//! The functions that programs call, in C: those of NVIDIA's libraries, of the dynamic loader, of PyTorch's allocator, and those
//! that our agent calls.

mod agent;
mod allocator;
mod blas;
mod cupti;
mod dnn;
mod driver;
mod fft;
mod installed;
mod loader;
mod nccl;
mod nvml;
mod runtime;
mod solver;
mod sparse;
mod table;
