//! Memory and events of one process in another, as `torch.multiprocessing` shares tensors and as libraries
//! reach their peers. Whoever opens a handle gets addresses and nothing else: the memory is counted where it
//! was made, and what is in it is not known.

use std::ffi::c_uint;

use super::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, answer, fail, machine};

/// Begins every handle of ours.
const MARK: u64 = 0x706c_696d_736f_6c6c;

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`: 64 bytes that a program passes on as they are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    mark: u64,
    process: u64,
    /// The address or the event there.
    what: u64,
    /// Of memory.
    bytes: u64,
    unused: [u64; 4],
}

impl Handle {
    fn new(what: u64, bytes: u64) -> Handle {
        Handle { mark: MARK, process: std::process::id().into(), what, bytes, unused: [0; 4] }
    }

    /// Whether another process made it: one's own cannot be opened.
    fn is_foreign(&self) -> bool {
        self.mark == MARK && self.process != u64::from(std::process::id())
    }
}

/// The handle of the whole allocation that `pointer` lies in, as the driver's is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaIpcGetMemHandle(out: *mut Handle, pointer: u64) -> i32 {
    let range = machine!().device_of(pointer);
    match range {
        // SAFETY: the caller's pointer, checked for null.
        Some((_, at, bytes)) => unsafe { answer(out, Handle::new(at, bytes)) },
        None => fail(INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaIpcOpenMemHandle(out: *mut u64, handle: Handle, _: c_uint) -> i32 {
    if !handle.is_foreign() {
        return fail(INVALID_VALUE);
    }
    let opened = machine!().current().open_foreign(handle.process, handle.what, handle.bytes);
    match opened {
        // SAFETY: the caller's pointer, checked for null.
        Ok(at) => unsafe { answer(out, at) },
        Err(_) => fail(OUT_OF_MEMORY),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaIpcCloseMemHandle(pointer: u64) -> i32 {
    let mut machine = machine!();
    let closed = machine
        .device_of(pointer)
        .map(|(device, ..)| machine.devices[device].close_foreign(pointer));
    match closed {
        Some(Ok(())) => SUCCESS,
        _ => fail(INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaIpcGetEventHandle(out: *mut Handle, event: u64) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, Handle::new(event, 0)) }
}

/// The other process's work is done when it is asked for, as ours is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaIpcOpenEventHandle(out: *mut u64, handle: Handle) -> i32 {
    if !handle.is_foreign() {
        return fail(INVALID_VALUE);
    }
    let event = machine!().create_event();
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, event) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_as_large_as_cudas_and_of_others() {
        assert_eq!(size_of::<Handle>(), 64);
        let own = Handle::new(0x7000_0000_0000, 2 << 20);
        assert!(!own.is_foreign(), "a process cannot open what it made");
        assert!(Handle { process: own.process + 1, ..own }.is_foreign());
        assert!(!Handle { mark: 0, process: own.process + 1, ..own }.is_foreign());
    }
}
