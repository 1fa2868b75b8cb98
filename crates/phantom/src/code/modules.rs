//! What programs register before they begin: the modules that their kernels are in, and variables.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use crate::code::cubin;
use crate::code::fatbin::{self, Wrapper};
use crate::machine::card::{self, Card};

/// Modules that were registered, as addresses of their [`Wrapper`]s. The first ones are enough: a
/// `PyTorch` is built for the same capabilities throughout.
static MODULES: Mutex<Vec<usize>> = Mutex::new(Vec::new());
const ENOUGH_MODULES: usize = 64;
/// Those of libraries that are not PyTorch's: of a serving engine, of attention.
static FOREIGN: RwLock<BTreeSet<usize>> = RwLock::new(BTreeSet::new());

/// The capability (86 for 8.6) whose machine code the kernels of this program run with on `card`;
/// `None` if they have none for it.
pub fn code_for(card: &Card) -> Option<i32> {
    static CODE: OnceLock<Option<i32>> = OnceLock::new();
    *CODE.get_or_init(|| {
        let modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut available = BTreeSet::new();
        for &module in modules.iter() {
            // SAFETY: the compiler's own wrappers, which live as long as their libraries.
            available.append(&mut unsafe { fatbin::architectures(module as *const Wrapper) });
        }
        if available.is_empty() {
            return Some(card.sm_version());
        }
        fatbin::best_for(card.sm_version(), &available)
    })
}

/// What a kernel makes the driver take, by its machine code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes of its parameters.
    pub parameters: u32,
    /// Bytes of local memory of a thread, with the functions that it calls.
    pub stack: u32,
    /// The kernel is of another library than PyTorch's, or made at run time where there is one.
    pub is_foreign: bool,
}

impl Needs {
    /// Those of this kernel.
    pub fn of(kernel: &cubin::Kernel) -> Needs {
        Needs { parameters: kernel.parameters, stack: kernel.stack, is_foreign: false }
    }
}

/// What the kernel called `name` of a registered `module` needs, by the machine code that runs on this process's card; nothing if
/// that has no such kernel. What a module has is read once.
pub(crate) fn needs(module: usize, name: &CStr) -> Needs {
    static READ: Mutex<BTreeMap<usize, BTreeMap<String, Needs>>> = Mutex::new(BTreeMap::new());
    let Some(capability) = card::current().and_then(code_for) else { return Needs::default() };
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let kernels = read.entry(module).or_insert_with(|| {
        // SAFETY: the compiler's own wrapper: what it registered is what `__cudaRegisterFatBinary` answered.
        let images = unsafe { fatbin::machine_code(module as *const Wrapper, capability) };
        let kernels = images.iter().flat_map(|it| cubin::kernels(it));
        kernels.map(|it| (it.name.clone(), Needs::of(&it))).collect()
    });
    name.to_str().ok().and_then(|it| kernels.get(it)).copied().unwrap_or_default()
}

/// A module of kernels: its handle is opaque to the compiler's code that asks for it.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinary(image: *mut c_void) -> *mut c_void {
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if modules.len() < ENOUGH_MODULES {
        modules.push(image as usize);
    }
    if is_outside_of_pytorch(image) {
        FOREIGN.write().unwrap_or_else(PoisonError::into_inner).insert(image as usize);
    }
    image
}

/// Whether a library that is not PyTorch's has registered kernels.
pub(crate) fn has_foreign() -> bool {
    !FOREIGN.read().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Whether this module is one of them.
pub(crate) fn is_foreign(module: usize) -> bool {
    FOREIGN.read().unwrap_or_else(PoisonError::into_inner).contains(&module)
}

/// Whether `address` lies in another library than PyTorch's. To be asked while that is loaded, because the loader's lock is taken.
fn is_outside_of_pytorch(address: *const c_void) -> bool {
    // SAFETY: all fields of the C structure may be zeros.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let is_there = unsafe { libc::dladdr(address, &raw mut found) } != 0;
    if !is_there || found.dli_fname.is_null() {
        return false;
    }
    // SAFETY: not null; the loader has a terminated name, for as long as the library is there.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes();
    let name = path.rsplit(|it| *it == b'/').next().unwrap_or_default();
    !name.starts_with(b"libtorch") && !name.starts_with(b"libc10")
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_module: *mut c_void) {}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaUnregisterFatBinary(_module: *mut c_void) {}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(_module: *mut c_void) -> c_char {
    1
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterVar(
    _module: *mut c_void,
    _host: *mut c_char,
    _device: *mut c_char,
    _name: *const c_char,
    _external: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
}

/// A managed variable is read and written by the host through this pointer: it gets zeroed memory
/// for good.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    _module: *mut c_void,
    host: *mut *mut c_void,
    _device: *mut c_char,
    _name: *const c_char,
    _external: c_int,
    size: usize,
    _constant: c_int,
    _global: c_int,
) {
    let memory: &'static mut [u8] = Box::leak(vec![0; size.max(1)].into_boxed_slice());
    if !host.is_null() {
        // SAFETY: not null; the compiler passes the variable's own pointer.
        unsafe { host.write(memory.as_mut_ptr().cast()) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterHostVar(
    _module: *mut c_void,
    _name: *const c_char,
    _host: *mut c_char,
    _size: usize,
) {
}
