//! What the agent in the training process calls: see `docs/recording-format.md`.

use std::ffi::{c_char, c_int};

use plimsoll_values::Values;

use crate::border::dnn::trials;
use crate::border::nccl;
use crate::launch;
use crate::machine;
use crate::machine::report::{self, Asked};

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
    let (mut devices, hurried, forgotten) =
        machine::lock().map(|it| (it.report(), it.hurried(), it.forgotten())).unwrap_or_default();
    for (ordinal, it) in devices.iter_mut().enumerate() {
        it.more_elsewhere = nccl::more_elsewhere(ordinal);
    }
    let hurried = if nccl::has_ranks() { hurried } else { 0 };
    let asked = Asked {
        devices: machine::asked_beyond(),
        visible: machine::remarkable_variable(),
        hurried,
        overflows: launch::with_values(|it, _| it.overflows_asked()),
        overflows_found: launch::with_values(|it, _| it.overflows_found()),
        trials: trials::count(),
    };
    let json = report::json(&devices, asked, forgotten);
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
    machine::steps::finish(steps);
    launch::with_values(|it, _| it.progress());
}

/// From now on something (the gradient buckets of `DistributedDataParallel`) holds memory until `PyTorch`'s
/// watchdog thread has seen that a collective is done.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_watchdog_holds() {
    machine::watchdog_holds();
}

/// How many collectives that thread has to look at now, if somebody is to let go of memory then.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_unseen() -> usize {
    machine::lock().map_or(0, |it| it.unseen())
}

/// Sets the function that is called, on the reading thread, when the program has copied bytes to the
/// host that are not known, or one number of 64 bits. Null for none.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_on_read(callback: Option<report::OnRead>) {
    report::on_read(callback);
}

/// From now on, filters of unknown values let this share through on this thread, in millionths; -1: what they always do;
/// -2: everything, and that is known. Returns what they did until now.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_keep(millionths: c_int) -> c_int {
    launch::with_values(|_, thread| Values::keep(thread, millionths))
}

/// From now on something is minimized on this thread whose losses have `width` bytes, and nothing if that is zero.
/// It goes on by every test, until it is `still`.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_descends(width: c_int, still: c_int) {
    let width = usize::try_from(width).unwrap_or(0);
    launch::with_values(|it, thread| it.descends(thread, width, still != 0));
}

/// Copies the `size` bytes at `address` of a device, or of pinned host memory that a device reads, to `out`. 0 if not all of them
/// are known.
///
/// # Safety
///
/// `out` must be valid for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_phantom_known(address: u64, size: usize, out: *mut u8) -> c_int {
    let Some(machine) = machine::lock() else { return 0 };
    if let Some((device, ..)) = machine.device_of(address) {
        let Some(bytes) = machine.devices[device].contents.known(address, size) else { return 0 };
        // SAFETY: as many bytes, which the caller vouches for.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, size) };
        return 1;
    }
    let end = u64::try_from(size).ok().and_then(|it| address.checked_add(it));
    let range = machine::Machine::host_range(&machine.pinned, address);
    let is_inside = range.zip(end).is_some_and(|((at, length), end)| end <= at + length);
    if is_inside {
        // SAFETY: inside memory that the program pinned and still has.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, out, size) };
    }
    c_int::from(is_inside)
}

/// A kernel has computed the `size` bytes at `address`: those at `from`; null if they are unknown from now on.
///
/// # Safety
///
/// `from` must be null or valid for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_phantom_computed(address: u64, size: usize, from: *const u8) {
    let Some(mut machine) = machine::lock() else { return };
    let Some((device, ..)) = machine.device_of(address) else { return };
    let contents = &mut machine.devices[device].contents;
    if from.is_null() {
        contents.forget(address, u64::try_from(size).unwrap_or(u64::MAX));
    } else {
        // SAFETY: as many bytes, which the caller vouches for.
        contents.write(address, unsafe { std::slice::from_raw_parts(from, size) });
    }
}
