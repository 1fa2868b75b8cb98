//! What the agent in the training process calls: see `docs/recording-format.md`.

use std::ffi::{c_char, c_int};

use crate::counts;
use crate::machine;
use crate::report;

/// The version of this interface.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_abi() -> c_int {
    1
}

/// Writes the report as JSON into `out`, at most `room` bytes, and returns its whole length.
///
/// # Safety
///
/// `out` must be valid for `room` bytes, or `room` zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_phantom_report(out: *mut c_char, room: usize) -> usize {
    let devices = machine::lock().map(|it| it.report()).unwrap_or_default();
    let json = report::json(&devices);
    if !out.is_null() {
        let length = json.len().min(room);
        // SAFETY: at most `room` bytes, which the caller vouches for.
        unsafe { std::ptr::copy_nonoverlapping(json.as_ptr(), out.cast::<u8>(), length) };
    }
    json.len()
}

/// The program has finished `steps` more training steps; very many when it ends.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_steps(steps: u64) {
    machine::finish_steps(steps);
}

/// Sets the function that is called, on the reading thread, when the program copies bytes to the
/// host that are not known. Null for none.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_on_unknown_read(callback: Option<extern "C" fn(u64, u64)>) {
    report::on_unknown_read(callback);
}

/// From now on, filters of unknown values let this share through on this thread, in millionths; a negative
/// one: what they always do.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_keep(millionths: c_int) {
    counts::keep(u64::try_from(millionths).ok());
}
