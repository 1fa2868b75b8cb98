//! `dlopen`, for what cuDNN opens by name: cublasLt, on which it builds its matrix-product engines, and
//! which has no answer without a device; and NVRTC, with which it compiles attention, at the better part
//! of a second for each shape, though nothing will be launched. cuDNN gets ours. So does Python, whose `ctypes` finds
//! functions in the library that it opened, and not in ours before it: serving engines call NCCL and the runtime so, between
//! the ranks of one model. Every other request, of whichever library, goes to the real `dlopen` as if we were not there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where `ctypes` is: a module of its own, or within Python.
const OF_PYTHON: &[&[u8]] = &[b"_ctypes", b"libpython", b"python"];

/// The real `dlopen`, as an address; found at the first call.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// Goes to [`decide`] with the caller's return address, and on to the real function unless that had
/// an answer. A jump, not a call: the real `dlopen` looks at who called it to find `RUNPATH`.
///
/// # Safety
///
/// As `dlopen`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(_name: *const c_char, _flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "mov rdx, [rsp + 16]",
        "sub rsp, 8",
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "mov rax, [rip + {real}@GOTPCREL]",
        "jmp [rax]",
        "2:",
        "ret",
        decide = sym decide,
        real = sym REAL,
    )
}

/// A handle to a library of ours if cuDNN asks for what it stands for, null for "ask the real one".
extern "C" fn decide(name: *const c_char, _flags: c_int, caller: *const c_void) -> *mut c_void {
    let real = real();
    if name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: not null; `dlopen` asks for a terminated string.
    let wanted = unsafe { CStr::from_ptr(name) }.to_bytes();
    let base = wanted.rsplit(|&it| it == b'/').next().unwrap_or(wanted);
    // This library is loaded, under its soname; the other lies beside it, where the loader looks.
    let this = (c"libcuda.so.1", libc::RTLD_NOW | libc::RTLD_NOLOAD);
    let of_dnn: &[&[u8]] = &[b"libcudnn"];
    let ((ours, flags), callers) = if base.starts_with(b"libcublasLt.so") {
        (this, of_dnn)
    } else if base.starts_with(b"libnvrtc.so") {
        ((c"libplimsoll_nvrtc.so", libc::RTLD_NOW), of_dnn)
    } else if is_called(base, b"libnccl") || is_called(base, b"libcudart") {
        (this, OF_PYTHON)
    } else {
        return std::ptr::null_mut();
    };
    if !callers.iter().any(|it| belongs_to(caller, it)) {
        return std::ptr::null_mut();
    }
    // SAFETY: the real `dlopen`.
    unsafe { real(ours.as_ptr(), flags) }
}

/// Whether a file is this library. A wheel that brings a library gives it a name of its own, as in `libcudart.faf08d9a.so.13`, and who looks for
/// the runtime among all that is loaded may find that one.
fn is_called(file: &[u8], library: &[u8]) -> bool {
    let Some(rest) = file.strip_prefix(library) else { return false };
    let of_wheel = match rest {
        [b'.' | b'-', hash @ ..] => {
            hash.split_at_checked(8).filter(|it| it.0.iter().all(u8::is_ascii_hexdigit))
        }
        _ => None,
    };
    of_wheel.map_or(rest, |it| it.1).starts_with(b".so")
}

fn real() -> unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void {
    let mut address = REAL.load(Ordering::Acquire);
    if address == 0 {
        // SAFETY: asks for the next definition of a name.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) } as usize;
        REAL.store(address, Ordering::Release);
    }
    // SAFETY: the address of `dlopen`, which libc always has.
    unsafe { std::mem::transmute(address) }
}

/// Whether one of the innermost callers is in a library whose name begins so.
pub fn called_by(library: &[u8]) -> bool {
    /// Ourselves, the function that was called, and who called it.
    const INNERMOST: usize = 4;
    let mut callers = [std::ptr::null_mut(); INNERMOST];
    // SAFETY: room for as many addresses as we say.
    let count = unsafe { libc::backtrace(callers.as_mut_ptr(), 4) };
    let count = usize::try_from(count).unwrap_or(0);
    callers.iter().take(count).any(|&it| belongs_to(it, library))
}

/// Whether the code at `address` is in a library whose name begins so.
fn belongs_to(address: *const c_void, library: &[u8]) -> bool {
    // SAFETY: plain data, for which zeros are a value; `dladdr` fills it for any address.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: not null; a terminated string that lives as long as the library.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    path.rsplit(|&it| it == b'/').next().is_some_and(|it| it.starts_with(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_wheels_have_names_of_their_own() {
        let is_runtime = |it: &str| is_called(it.as_bytes(), b"libcudart");
        for it in ["libcudart.so.13", "libcudart.faf08d9a.so.13", "libcudart-d0da41ae.so.11.0"] {
            assert!(is_runtime(it), "{it}");
        }
        for it in ["libcudart_static.a", "libcudart.py", "libcudart.faf08d9a", "libcudart-net.so"] {
            assert!(!is_runtime(it), "{it}");
        }
    }
}
