//! Copies and fills, for the runtime and the driver alike: which side is the device is told by the
//! address, as unified addressing does.

use plimsoll_values::{ReadBack, Values};

use crate::launch::with_values;
use crate::machine;
use crate::machine::ghosts;
use crate::machine::report::{self, Read};

/// Copies `size` bytes between any two places.
///
/// # Safety
///
/// A host address must be valid for `size` bytes, for writing if it is `to`.
pub unsafe fn copy(to: u64, from: u64, size: u64) {
    if size == 0 {
        return;
    }
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    let mut read = None;
    {
        let Some(mut machine) = machine::lock() else { return };
        let target = machine.device_of(to).map(|it| it.0);
        let source = machine.device_of(from).map(|it| it.0);
        match (target, source) {
            (Some(target), Some(source)) if target == source => {
                machine.devices[target].contents.copy(to, from, size);
                with_values(|_, thread| Values::copied_within(thread, size));
            }
            (Some(target), Some(source)) => {
                machine.devices[target].contents.forget(to, size);
                if size <= 1 << 20 {
                    let mut bytes = vec![0; length];
                    if machine.devices[source].contents.read(from, &mut bytes) == 0 {
                        machine.devices[target].contents.write(to, &bytes);
                    }
                }
            }
            (Some(target), None) => {
                if ghosts::covers(from, size) {
                    with_values(|it, _| it.progress());
                    machine.devices[target].contents.forget(to, size);
                    return;
                }
                // SAFETY: the caller vouches for the host side.
                let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, length) };
                machine.devices[target].contents.write(to, bytes);
                with_values(|it, _| it.copied_to_device(bytes));
            }
            // Values that nobody asks for; the program is not told that they are unknown.
            (None, Some(_)) if ghosts::covers(to, size) => {}
            (None, Some(source))
                if !machine.devices[source].contents.knows_any(from, size)
                    && machine::Machine::host_range(&machine.pinned, to).is_some()
                    && zero_pages(to, size) =>
            {
                read = Some(ReadBack { unknown: size, is_answer: false });
            }
            (None, Some(source)) => {
                let pinned = machine::Machine::host_range(&machine.pinned, to).is_some();
                // SAFETY: the caller vouches for the host side.
                let bytes = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, length) };
                let contents = &mut machine.devices[source].contents;
                let told = with_values(|it, thread| it.read(from, bytes, pinned, thread, contents));
                read = Some(told);
            }
            (None, None) => {
                // SAFETY: the caller vouches for both; they may overlap.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, length) };
            }
        }
    }
    with_values(|it, _| it.copied(from, size));
    if let Some(ReadBack { unknown, is_answer }) = read {
        report::read(Read { to, size, unknown, is_answer });
    }
}

/// Makes pinned memory zeros by giving its pages back to the host, where there are many. `false` if
/// it did nothing.
///
/// Gradients and states that are offloaded fill buffers as large as a model, step after step.
fn zero_pages(at: u64, size: u64) -> bool {
    const PAGE: u64 = 4096;
    const MANY: u64 = 1 << 20;
    let (first, end) = (at.next_multiple_of(PAGE), (at + size) / PAGE * PAGE);
    if size < MANY || end <= first {
        return false;
    }
    let part = |from: u64, to: u64| (from as *mut libc::c_void, usize::try_from(to - from));
    let (start, Ok(length)) = part(first, end) else { return false };
    // SAFETY: whole pages that the program asks to be overwritten. Those of pinned memory are a file's in memory, and read as
    // zeros once they are out of it; those of memory that it registered are private, and do once they are given back.
    let is_done = unsafe {
        libc::madvise(start, length, libc::MADV_REMOVE) == 0
            || libc::madvise(start, length, libc::MADV_DONTNEED) == 0
    };
    if !is_done {
        return false;
    }
    for (start, length) in [part(at, first), part(end, at + size)] {
        // SAFETY: the rest of the range that is to be overwritten.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, length.unwrap_or(0)) };
    }
    true
}

/// Copies `rows` rows of `width` bytes whose starts are a pitch apart.
///
/// # Safety
///
/// As [`copy`], for every row.
pub unsafe fn copy_rows(to: u64, to_pitch: u64, from: u64, from_pitch: u64, width: u64, rows: u64) {
    for row in 0..rows {
        // SAFETY: the caller vouches for every row.
        unsafe { copy(to + row * to_pitch, from + row * from_pitch, width) };
    }
}

/// Sets `size` bytes to `value`.
///
/// # Safety
///
/// A host address must be valid for `size` bytes.
pub unsafe fn fill(at: u64, value: u8, size: u64) {
    let Some(mut machine) = machine::lock() else { return };
    match machine.device_of(at) {
        Some((device, ..)) => machine.devices[device].contents.fill(at, value, size),
        None if machine::Machine::host_range(&machine.pinned, at).is_some()
            || machine::Machine::host_range(&machine.managed, at).is_some() =>
        {
            let length = usize::try_from(size).unwrap_or(usize::MAX);
            // SAFETY: the address lies in memory that we gave the program; the size is its word.
            unsafe { std::ptr::write_bytes(at as *mut u8, value, length) };
        }
        None => {}
    }
}
