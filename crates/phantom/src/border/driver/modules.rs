//! Modules, libraries, kernels and links: code is taken, and no more is read of it than what kernels
//! need of the card.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use crate::border::runtime::{NO_DEVICE, answer, machine};
use crate::code::cubin::{self, Kernel};
use crate::code::modules::Needs;
use crate::launch;
use crate::machine::card;

/// The kernels of loaded modules, by the module's handle, and kernels that were asked for, by theirs.
static MODULES: Mutex<BTreeMap<u64, Vec<Kernel>>> = Mutex::new(BTreeMap::new());
static KERNELS: Mutex<BTreeMap<u64, Kernel>> = Mutex::new(BTreeMap::new());

/// Loads the code at `image`.
///
/// # Safety
///
/// `out` must be null or valid; `image` must be null, text, or machine code.
unsafe fn load(out: *mut u64, image: *const u8) -> i32 {
    let module = machine!().handle();
    const MAGIC: &[u8; 4] = b"\x7fELF";
    // SAFETY: an image begins with four bytes at least, which say whether a header follows, and the
    // header says how long the whole is.
    let kernels = unsafe {
        if image.is_null() || !(0..4).all(|i| image.add(i).read() == MAGIC[i]) {
            Vec::new()
        } else {
            let length = cubin::length(std::slice::from_raw_parts(image, 64)).unwrap_or(0);
            cubin::kernels(std::slice::from_raw_parts(image, length))
        }
    };
    MODULES.lock().unwrap_or_else(PoisonError::into_inner).insert(module, kernels);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, module) }
}

/// The kernel called `name` of `module`.
///
/// # Safety
///
/// `out` and `name` must be null or valid.
unsafe fn kernel(out: *mut u64, module: u64, name: *const c_char) -> i32 {
    let handle = machine!().handle();
    // SAFETY: a terminated name, if there is one.
    let name = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
    let modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = modules
        .get(&module)
        .and_then(|it| it.iter().find(|it| it.name.as_bytes() == name.to_bytes()));
    if let Some(found) = found {
        KERNELS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, found.clone());
    }
    launch::found(handle, name, found.map(Needs::of).unwrap_or_default());
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(out: *mut u64, image: *const u8) -> i32 {
    // SAFETY: the caller's pointers.
    unsafe { load(out, image) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    out: *mut u64,
    image: *const u8,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller's pointers.
    unsafe { load(out, image) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryLoadData(
    out: *mut u64,
    image: *const u8,
    _options: *mut c_int,
    _values: *mut *mut c_void,
    _count: c_uint,
    _library_options: *mut c_int,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> i32 {
    // SAFETY: the caller's pointers.
    unsafe { load(out, image) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    out: *mut u64,
    module: u64,
    name: *const c_char,
) -> i32 {
    // SAFETY: the caller's pointers.
    unsafe { kernel(out, module, name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetKernel(
    out: *mut u64,
    library: u64,
    name: *const c_char,
) -> i32 {
    // SAFETY: the caller's pointers.
    unsafe { kernel(out, library, name) }
}

/// A kernel of a library, as a function of the current context: the same handle serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetFunction(out: *mut u64, kernel: u64) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, kernel) }
}

/// A new handle in `out`.
///
/// # Safety
///
/// `out` must be null or valid.
unsafe fn new_handle(out: *mut u64) -> i32 {
    let handle = machine!().handle();
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, handle) }
}

/// C functions whose only answer is a handle in their first argument.
macro_rules! first_argument_is_a_handle {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(out: *mut u64) -> i32 {
            // SAFETY: the caller's pointer, checked for null.
            unsafe { new_handle(out) }
        }
    )*};
}

first_argument_is_a_handle! {
    cuModuleLoad cuModuleLoadFatBinary cuLibraryLoadFromFile cuLibraryGetModule cuFuncGetModule
    cuModuleGetTexRef
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetGlobal_v2(
    at: *mut u64,
    size: *mut usize,
    _module: u64,
    _name: *const c_char,
) -> i32 {
    if !size.is_null() {
        // SAFETY: not null.
        unsafe { size.write(4096) };
    }
    // SAFETY: the caller's pointer, checked for null.
    unsafe { new_handle(at) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetGlobal(
    at: *mut u64,
    size: *mut usize,
    library: u64,
    name: *const c_char,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuModuleGetGlobal_v2(at, size, library, name) }
}

/// `CUfunction_attribute`: 0 most threads of a block, 1 shared, 2 constant, 3 local bytes, 4
/// registers, 5 and 6 code versions.
fn function_attribute(attribute: c_int, function: u64) -> Option<c_int> {
    let card = card::current()?;
    let kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |number: fn(&Kernel) -> u32| c_int::try_from(number(kernels.get(&function)?)).ok();
    Some(match attribute {
        0 => 1024,
        3 => of(|it| it.local).unwrap_or(0),
        4 => of(|it| it.registers).unwrap_or(32),
        5 | 6 => card.sm_version(),
        8 => card.shared_per_block_optin,
        _ => 0,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    function: u64,
) -> i32 {
    match function_attribute(attribute, function) {
        // SAFETY: the caller's pointer, checked for null.
        Some(it) => unsafe { answer(value, it) },
        None => NO_DEVICE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    kernel: u64,
    _device: c_int,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cuFuncGetAttribute(value, attribute, kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate_v2(
    _count: c_uint,
    _options: *mut c_void,
    _values: *mut *mut c_void,
    out: *mut u64,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { new_handle(out) }
}

/// The image is one that no loader of ours looks into.
static IMAGE: [u8; 64] =
    *b"\x7fELF a phantom's kernel: nothing will be launched\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkComplete(
    _state: u64,
    image: *mut *const c_void,
    size: *mut usize,
) -> i32 {
    // SAFETY: the caller's pointers; either may be null.
    unsafe {
        if !size.is_null() {
            size.write(IMAGE.len());
        }
        answer(image, IMAGE.as_ptr().cast())
    }
}
