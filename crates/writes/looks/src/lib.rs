//! Under tracing every call that names a file stops at the tracer, and an `import torch` makes some 60,000 that only look. As
//! long as nothing was written, what they see is the disk: then they leave through a gate that the filter knows, and do not
//! stop. The tracer says in a page that it shares with all its processes when that time is over, before the call that wrote goes
//! on, so that no look that comes after a write passes.
//!
//! The filter lets nothing through the gate that could write, whoever jumps there. A program without this library, and calls from within
//! libc, stop as they always did: they are slower, and not wrong.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(unsafe_code, reason = "C functions are given raw pointers")]

#[expect(dead_code, reason = "the filter's part")]
#[path = "../../src/gate.rs"]
mod gate;

use std::{
    ffi::CString,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use libc::{c_char, c_int, c_long, c_uint, c_void, mode_t, size_t, ssize_t, stat as Stat};

/// The shared page; null where calls stop as they always do. C's functions have no owner that could hold it.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Run by the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let _ = open_the_gate();
}

fn open_the_gate() -> Option<()> {
    let name = CString::new(gate::UNTOUCHED).ok()?;
    // SAFETY: the name ends in a zero byte, and no other thread runs yet that could change the environment.
    let path = unsafe { libc::getenv(name.as_ptr()) };
    if path.is_null() {
        return None;
    }
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let at = usize::try_from(gate::GATE).ok()? as *mut c_void;
    // SAFETY: new mappings, of which the second replaces nothing; what is written lies in it.
    unsafe {
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_CLOEXEC, 0);
        let file = c_int::try_from(file).ok().filter(|it| 0 <= *it)?;
        let page =
            libc::mmap(ptr::null_mut(), gate::PAGE, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        libc::syscall(libc::SYS_close, file);
        if page == libc::MAP_FAILED {
            return None;
        }
        let code = libc::mmap(at, gate::PAGE, libc::PROT_WRITE, private, -1, 0);
        if code != at {
            return None;
        }
        // syscall; ret
        ptr::copy_nonoverlapping([0x0F, 0x05, 0xC3].as_ptr(), code.cast::<u8>(), 3);
        if libc::mprotect(code, gate::PAGE, libc::PROT_READ | libc::PROT_EXEC) != 0 {
            return None;
        }
        PAGE.store(page.cast(), Ordering::Release);
    }
    Some(())
}

/// Whether what is looked at is the disk.
fn is_untouched() -> bool {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: it is null, or a page that stays mapped.
    !page.is_null() && unsafe { &*page }.load(Ordering::Acquire) == 1
}

/// A system call that looks at a file, with C's answer.
///
/// # Safety
/// As of the system call of this number.
unsafe fn look(number: c_long, a: usize, b: usize, c: usize, d: usize) -> c_long {
    if !is_untouched() {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(number, a, b, c, d) };
    }
    let res: c_long;
    // SAFETY: the gate is a system call and a return; the kernel changes rcx and r11 and what the call writes to.
    unsafe {
        std::arch::asm!(
            "call {gate}",
            gate = in(reg) gate::GATE,
            inlateout("rax") number => res,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            out("rcx") _,
            out("r11") _,
        );
    }
    if (-4095..0).contains(&res) {
        // SAFETY: the thread's own number.
        unsafe { *libc::__errno_location() = c_int::try_from(-res).unwrap_or(libc::EIO) };
        return -1;
    }
    res
}

fn number(it: c_int) -> usize {
    usize::from_ne_bytes(i64::from(it).to_ne_bytes())
}

fn answer(res: c_long) -> c_int {
    c_int::try_from(res).unwrap_or(-1)
}

fn only_looks(flags: c_int) -> bool {
    flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) == 0
}

/// # Safety
/// As of openat(2).
unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let (folder, path) = (number(folder), path as usize);
    if only_looks(flags) {
        // SAFETY: the caller's promise.
        return answer(unsafe { look(libc::SYS_openat, folder, path, number(flags), 0) });
    }
    let mode: c_uint = mode;
    // SAFETY: the caller's promise.
    answer(unsafe { libc::syscall(libc::SYS_openat, folder, path, number(flags), mode) })
}

/// # Safety
/// As of fstatat(2).
unsafe fn stat_at(folder: c_int, path: *const c_char, buffer: *mut Stat, flags: c_int) -> c_int {
    let (path, buffer) = (path as usize, buffer as usize);
    // SAFETY: the caller's promise.
    answer(unsafe { look(libc::SYS_newfstatat, number(folder), path, buffer, number(flags)) })
}

/// # Safety
/// As of fstat(2).
unsafe fn stat_open(file: c_int, buffer: *mut Stat) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { look(libc::SYS_fstat, number(file), buffer as usize, 0, 0) })
}

/// The functions of libc under their names, which have two each; the older four say a version first.
macro_rules! functions {
    ($($names:ident/$also:ident ( $($arg:ident: $type:ty),* ) -> $res:ty = $body:expr;)*) => { $(
        /// # Safety
        /// As of libc's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $names($($arg: $type),*) -> $res {
            // SAFETY: the caller's promise, handed on.
            unsafe { $body }
        }

        /// # Safety
        /// As of libc's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $also($($arg: $type),*) -> $res {
            // SAFETY: the caller's promise, handed on.
            unsafe { $body }
        }
    )* };
}

const HERE: c_int = libc::AT_FDCWD;
const NO_LINK: c_int = libc::AT_SYMLINK_NOFOLLOW;

functions! {
    open/open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = open_at(HERE, path, flags, mode);
    openat/openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = open_at(folder, path, flags, mode);
    stat/stat64(path: *const c_char, buffer: *mut Stat) -> c_int = stat_at(HERE, path, buffer, 0);
    lstat/lstat64(path: *const c_char, buffer: *mut Stat) -> c_int = stat_at(HERE, path, buffer, NO_LINK);
    fstat/fstat64(file: c_int, buffer: *mut Stat) -> c_int = stat_open(file, buffer);
    fstatat/fstatat64(folder: c_int, path: *const c_char, buffer: *mut Stat, flags: c_int) -> c_int
        = stat_at(folder, path, buffer, flags);
    __xstat/__xstat64(_version: c_int, path: *const c_char, buffer: *mut Stat) -> c_int
        = stat_at(HERE, path, buffer, 0);
    __lxstat/__lxstat64(_version: c_int, path: *const c_char, buffer: *mut Stat) -> c_int
        = stat_at(HERE, path, buffer, NO_LINK);
    __fxstat/__fxstat64(_version: c_int, file: c_int, buffer: *mut Stat) -> c_int = stat_open(file, buffer);
    __fxstatat/__fxstatat64(_version: c_int, folder: c_int, path: *const c_char, buffer: *mut Stat, flags: c_int) -> c_int
        = stat_at(folder, path, buffer, flags);
}

/// access(2).
///
/// # Safety
/// As of access(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's promise, handed on.
    answer(unsafe { look(libc::SYS_access, path as usize, number(mode), 0, 0) })
}

/// readlink(2).
///
/// # Safety
/// As of readlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, buffer: *mut c_char, n: size_t) -> ssize_t {
    // SAFETY: the caller's promise, handed on.
    let res = unsafe { look(libc::SYS_readlink, path as usize, buffer as usize, n, 0) };
    isize::try_from(res).unwrap_or(-1)
}

/// opendir(3). Python lists each folder that it imports from, and libc's own opens it from within.
///
/// # Safety
/// As of opendir(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the caller's promise, handed on.
    let file = unsafe { open_at(HERE, path, flags, 0) };
    if file < 0 {
        return ptr::null_mut();
    }
    // SAFETY: a folder that was just opened, and that nobody else knows of.
    let folder = unsafe { libc::fdopendir(file) };
    if folder.is_null() {
        // SAFETY: as above; closing it must not hide why it failed.
        unsafe {
            let why = *libc::__errno_location();
            libc::close(file);
            *libc::__errno_location() = why;
        }
    }
    folder
}
