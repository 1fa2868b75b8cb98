//! The real library: the functions of cuDNN that we call, and its statuses.

use std::ffi::{CStr, c_int, c_ulonglong, c_void};
use std::sync::OnceLock;

pub(super) const SUCCESS: i32 = 0;
pub(super) const BAD_PARAM: i32 = 2000;
pub(super) const NOT_INITIALIZED: i32 = 1001;

pub(super) type Descriptor = *mut c_void;
type SetDropout =
    unsafe extern "C" fn(Descriptor, u64, f32, *mut c_void, usize, c_ulonglong) -> i32;
type TempSpaceSizes =
    unsafe extern "C" fn(u64, Descriptor, c_int, Descriptor, *mut usize, *mut usize) -> i32;
type SetAttribute = unsafe extern "C" fn(Descriptor, c_int, c_int, i64, *const c_void) -> i32;
type GetAttribute =
    unsafe extern "C" fn(Descriptor, c_int, c_int, i64, *mut i64, *mut c_void) -> i32;

/// The functions of the real library that we call.
pub(super) struct Real {
    pub(super) version: unsafe extern "C" fn() -> usize,
    pub(super) create: unsafe extern "C" fn(c_int, *mut Descriptor) -> i32,
    pub(super) set: SetAttribute,
    pub(super) get: GetAttribute,
    pub(super) finalize: unsafe extern "C" fn(Descriptor) -> i32,
    pub(super) set_dropout: SetDropout,
    pub(super) restore_dropout: SetDropout,
    pub(super) temp_space_sizes: TempSpaceSizes,
    pub(super) norms: Norms,
}

/// The real library, once it is loaded.
pub(super) fn real() -> Option<&'static Real> {
    static REAL: OnceLock<Option<Real>> = OnceLock::new();
    REAL.get_or_init(|| {
        // SAFETY: cuDNN is loaded, since somebody calls it; the names are those of its header, and
        // the types those of their declarations.
        unsafe {
            let name = c"libcudnn.so.9".as_ptr();
            let mut library = libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if library.is_null() {
                library = libc::dlopen(name, libc::RTLD_NOW);
            }
            if library.is_null() {
                return None;
            }
            let symbol = |name: &std::ffi::CStr| {
                let at = libc::dlsym(library, name.as_ptr());
                (!at.is_null()).then_some(at)
            };
            Some(Real {
                version: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(
                    symbol(c"cudnnGetVersion")?,
                ),
                create: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, *mut Descriptor) -> i32,
                >(symbol(c"cudnnBackendCreateDescriptor")?),
                set: std::mem::transmute::<*mut c_void, SetAttribute>(symbol(
                    c"cudnnBackendSetAttribute",
                )?),
                get: std::mem::transmute::<*mut c_void, GetAttribute>(symbol(
                    c"cudnnBackendGetAttribute",
                )?),
                finalize: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Descriptor) -> i32,
                >(symbol(c"cudnnBackendFinalize")?),
                set_dropout: std::mem::transmute::<*mut c_void, SetDropout>(symbol(
                    c"cudnnSetDropoutDescriptor",
                )?),
                restore_dropout: std::mem::transmute::<*mut c_void, SetDropout>(symbol(
                    c"cudnnRestoreDropoutDescriptor",
                )?),
                temp_space_sizes: std::mem::transmute::<*mut c_void, TempSpaceSizes>(symbol(
                    c"cudnnGetRNNTempSpaceSizes",
                )?),
                norms: Norms::of(symbol)?,
            })
        }
    })
    .as_ref()
}

type Forward = unsafe extern "C" fn(u64, c_int, c_int, u64, u64, u64, u64, u64, *mut usize) -> i32;
type Backward =
    unsafe extern "C" fn(u64, c_int, c_int, u64, u64, u64, u64, u64, u64, u64, *mut usize) -> i32;
type Reserve = unsafe extern "C" fn(u64, c_int, c_int, u64, u64, *mut usize) -> i32;
/// Those of batch normalization.
pub(super) struct Norms {
    pub(super) forward: Forward,
    pub(super) backward: Backward,
    pub(super) reserve: Reserve,
}

impl Norms {
    /// Those that `symbol` finds.
    ///
    /// # Safety
    ///
    /// What it finds must be cuDNN's function of that name.
    unsafe fn of(symbol: impl Fn(&CStr) -> Option<*mut c_void>) -> Option<Norms> {
        // SAFETY: the types are those of the header's declarations.
        unsafe {
            Some(Norms {
                forward: std::mem::transmute::<*mut c_void, Forward>(symbol(
                    c"cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize",
                )?),
                backward: std::mem::transmute::<*mut c_void, Backward>(symbol(
                    c"cudnnGetBatchNormalizationBackwardExWorkspaceSize",
                )?),
                reserve: std::mem::transmute::<*mut c_void, Reserve>(symbol(
                    c"cudnnGetBatchNormalizationTrainingExReserveSpaceSize",
                )?),
            })
        }
    }
}

/// Writes a size.
pub(super) fn size(out: *mut usize, value: usize) -> i32 {
    if out.is_null() {
        return BAD_PARAM;
    }
    // SAFETY: not null, and cuDNN asks the caller for room for a `size_t`.
    unsafe { out.write(value) };
    SUCCESS
}
