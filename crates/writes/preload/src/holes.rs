//! Zeros that a program writes become holes: what is read back is the same, and it takes neither disk nor the time to
//! write it. On a phantom all tensors are zeros, so a checkpoint of 14 GB is 14 GB of them.
//!
//! `write`, `pwrite` and `writev` are how `torch.save` (libstdc++), Python's files and Rust's reach the kernel. What
//! does not come through here (`fwrite` of large arrays, memory maps) is written as it is, and freed later by the layer's
//! own looks at its files.

use std::mem::MaybeUninit;

use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// Less is not worth asking the kernel about the file, in bytes.
const WORTH_IT: usize = 64 << 10;

/// write(2).
///
/// # Safety
/// As of write(2): `buffer` has `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, n: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    if WORTH_IT <= n && unsafe { is_zeros(buffer, n) } && make_hole(fd, n) {
        return n.cast_signed();
    }
    // SAFETY: the caller's promise, handed on.
    signed(unsafe { libc::syscall(libc::SYS_write, fd, buffer, n) })
}

/// writev(2).
///
/// # Safety
/// As of writev(2): `pieces` has `n_pieces` pieces, and each the bytes that it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, pieces: *const iovec, n_pieces: c_int) -> ssize_t {
    let count = usize::try_from(n_pieces).unwrap_or(0);
    // libstdc++ writes what it has kept, then a large piece: two writes where the second is zeros.
    if (1..=2).contains(&count) {
        // SAFETY: the caller's promise.
        let last = unsafe { *pieces.add(count - 1) };
        // SAFETY: the caller's promise.
        if WORTH_IT <= last.iov_len && unsafe { is_zeros(last.iov_base, last.iov_len) } {
            let before = if count == 2 {
                // SAFETY: the caller's promise.
                let first = unsafe { *pieces };
                // SAFETY: the caller's promise, for the first piece.
                let n =
                    unsafe { libc::syscall(libc::SYS_write, fd, first.iov_base, first.iov_len) };
                if n < 0 || usize::try_from(n).is_ok_and(|it| it < first.iov_len) {
                    return signed(n);
                }
                signed(n)
            } else {
                0
            };
            // SAFETY: the caller's promise, for the last piece.
            let rest = unsafe { write(fd, last.iov_base, last.iov_len) };
            return if rest < 0 && before == 0 { rest } else { before + rest.max(0) };
        }
    }
    // SAFETY: the caller's promise, handed on.
    signed(unsafe { libc::syscall(libc::SYS_writev, fd, pieces, n_pieces) })
}

/// pwrite(2).
///
/// # Safety
/// As of pwrite(2): `buffer` has `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, buffer: *const c_void, n: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    if WORTH_IT <= n && 0 <= at && unsafe { is_zeros(buffer, n) } && hole_at(fd, at, n) {
        return n.cast_signed();
    }
    // SAFETY: the caller's promise, handed on.
    signed(unsafe { libc::syscall(libc::SYS_pwrite64, fd, buffer, n, at) })
}

/// The same, by its other name.
///
/// # Safety
/// As of pwrite(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    n: size_t,
    at: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise, handed on.
    unsafe { pwrite(fd, buffer, n, at) }
}

fn signed(answer: libc::c_long) -> ssize_t {
    isize::try_from(answer).unwrap_or(-1)
}

/// # Safety
/// `buffer` has `n` bytes, and `n` is not 0.
unsafe fn is_zeros(buffer: *const c_void, n: usize) -> bool {
    let bytes = buffer.cast::<u8>();
    // SAFETY: all that is looked at lies within the `n` bytes. Each byte is compared with the next one.
    unsafe {
        *bytes == 0
            && *bytes.add(n - 1) == 0
            && libc::memcmp(buffer, bytes.add(1).cast(), n - 1) == 0
    }
}

/// Where the file is, and it goes on behind.
fn make_hole(fd: c_int, n: usize) -> bool {
    // SAFETY: takes numbers.
    let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    if at < 0 || !hole_at(fd, at, n) {
        return false;
    }
    let Ok(length) = off_t::try_from(n) else { return false };
    // SAFETY: takes numbers.
    unsafe { libc::lseek(fd, at + length, libc::SEEK_SET) == at + length }
}

/// Whether `fd` is a file that reads as zeros from `at` on now. `errno` is left alone.
fn hole_at(fd: c_int, at: off_t, n: usize) -> bool {
    // SAFETY: the thread's own number.
    let errno = unsafe { *libc::__errno_location() };
    let res = try_hole(fd, at, n).is_some();
    if !res {
        // SAFETY: the thread's own number.
        unsafe { *libc::__errno_location() = errno };
    }
    res
}

fn try_hole(fd: c_int, at: off_t, n: usize) -> Option<()> {
    let length = off_t::try_from(n).ok()?;
    let end = at.checked_add(length)?;
    let mut looks = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills what is read only if it says so.
    let looks = unsafe {
        if libc::fstat(fd, looks.as_mut_ptr()) != 0 {
            return None;
        }
        looks.assume_init()
    };
    // SAFETY: takes numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let is_file = looks.st_mode & libc::S_IFMT == libc::S_IFREG;
    let is_written = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if !is_file || flags < 0 || !is_written || flags & libc::O_APPEND != 0 {
        return None;
    }
    if at < looks.st_size {
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let inside = length.min(looks.st_size - at);
        // SAFETY: takes numbers.
        if unsafe { libc::fallocate(fd, how, at, inside) } != 0 {
            return None;
        }
    }
    // SAFETY: takes numbers.
    if looks.st_size < end && unsafe { libc::ftruncate(fd, end) } != 0 {
        return None;
    }
    Some(())
}
