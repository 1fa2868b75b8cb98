//! Host memory for tensors whose values nobody needs: the weights of a model that is larger than the
//! host. Any range of it is the same few pages mapped again and again, so that even a program that
//! writes all of it fills no more than those; copies to and from the device leave it alone.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The pages that there are. The kernel allows 65,530 mappings a process: enough for 4 TB of these.
const WINDOW: usize = 64 << 20;

/// Ghosts that are alive: address to length.
static ALIVE: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A file of [`WINDOW`] bytes in memory, made at the first call; `None` if the kernel has none for us.
fn pages() -> Option<c_int> {
    static FILE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        // SAFETY: a terminated name; the descriptor that comes back is nobody else's.
        let file = unsafe {
            let fd = libc::memfd_create(c"plimsoll-ghosts".as_ptr(), libc::MFD_CLOEXEC);
            (0 <= fd).then(|| OwnedFd::from_raw_fd(fd))?
        };
        let length = libc::off_t::try_from(WINDOW).ok()?;
        // SAFETY: our own file.
        (unsafe { libc::ftruncate(file.as_raw_fd(), length) } == 0).then_some(file)
    });
    file.as_ref().map(|it| it.as_raw_fd())
}

/// Maps `length` bytes, whole pages, or nothing.
fn map(length: usize) -> Option<usize> {
    let file = pages()?;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    for offset in (0..length).step_by(WINDOW) {
        let part = WINDOW.min(length - offset);
        // SAFETY: within the range that was mapped above, which nobody has seen yet.
        let at = unsafe {
            libc::mmap(
                start.wrapping_byte_add(offset),
                part,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                file,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            // SAFETY: the same range, given back whole.
            unsafe { libc::munmap(start, length) };
            return None;
        }
    }
    Some(start as usize)
}

/// Whether all `size` bytes at `address` belong to one ghost.
pub fn covers(address: u64, size: u64) -> bool {
    let (Ok(address), Ok(size)) = (usize::try_from(address), usize::try_from(size)) else {
        return false;
    };
    let alive = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((&start, &length)) = alive.range(..=address).next_back() else { return false };
    address.saturating_add(size) <= start + length
}

/// For the agent: memory for a ghost of `size` bytes, null if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_ghost(size: usize) -> *mut c_void {
    const PAGE: usize = 4096;
    let Some(length) = size.max(1).checked_next_multiple_of(PAGE) else {
        return std::ptr::null_mut();
    };
    let Some(start) = map(length) else { return std::ptr::null_mut() };
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner).insert(start, length);
    start as *mut c_void
}

/// For the agent: the ghost at `start` is gone.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_phantom_ghost_gone(start: *mut c_void) {
    let gone = ALIVE.lock().unwrap_or_else(PoisonError::into_inner).remove(&(start as usize));
    if let Some(length) = gone {
        // SAFETY: a range that `map` made and that has just left the table of live ones.
        unsafe { libc::munmap(start, length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_larger_than_its_pages_can_be_written_and_goes() {
        let size = 2 * WINDOW + 5000;
        let start = plimsoll_phantom_ghost(size);
        assert!(!start.is_null());
        let bytes = start.cast::<u8>();
        // SAFETY: within the ghost.
        unsafe {
            bytes.add(7).write(1);
            bytes.add(size - 1).write(2);
            assert_eq!(bytes.add(WINDOW + 7).read(), 1, "the same page");
        }
        let at = start as u64;
        assert!(covers(at + 100, WINDOW as u64));
        assert!(!covers(at + 100, size as u64 * 2), "beyond its end");
        plimsoll_phantom_ghost_gone(start);
        assert!(!covers(at, 1));
    }
}
