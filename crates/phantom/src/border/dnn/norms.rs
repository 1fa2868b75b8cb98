//! What batch normalization needs beside its results, forward, backward, and from one to the other. Sizes are the real
//! library's: channels-last inputs of halves have some, by the number of multiprocessors.

use std::ffi::c_int;

use super::library::{NOT_INITIALIZED, Norms, SUCCESS, real, size};
use crate::machine::report;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    handle: u64,
    mode: c_int,
    operations: c_int,
    x: u64,
    z: u64,
    y: u64,
    scale: u64,
    activation: u64,
    out: *mut usize,
) -> i32 {
    // SAFETY: the caller's own arguments.
    told(out, |functions| unsafe {
        (functions.forward)(handle, mode, operations, x, z, y, scale, activation, out)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    handle: u64,
    mode: c_int,
    operations: c_int,
    x: u64,
    y: u64,
    dy: u64,
    dz: u64,
    dx: u64,
    scale: u64,
    activation: u64,
    out: *mut usize,
) -> i32 {
    // SAFETY: the caller's own arguments.
    told(out, |functions| unsafe {
        (functions.backward)(handle, mode, operations, x, y, dy, dz, dx, scale, activation, out)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    handle: u64,
    mode: c_int,
    operations: c_int,
    activation: u64,
    x: u64,
    out: *mut usize,
) -> i32 {
    // SAFETY: the caller's own arguments.
    told(out, |it| unsafe { (it.reserve)(handle, mode, operations, activation, x, out) })
}

/// A size as the real library writes it; nothing, and a note, if it has none for this handle.
fn told(out: *mut usize, ask: impl FnOnce(&Norms) -> i32) -> i32 {
    let Some(real) = real() else { return NOT_INITIALIZED };
    if ask(&real.norms) != SUCCESS {
        report::approximate(
            "this version of cuDNN did not report the workspaces of batch normalization: they are not counted",
        );
        return size(out, 0);
    }
    SUCCESS
}
