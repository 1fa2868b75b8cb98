//! Programs, which are made, "compiled", asked for their code and thrown away.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

const SUCCESS: c_int = 0;
const INVALID_INPUT: c_int = 3;
const NAME_EXPRESSION_NOT_VALID: c_int = 9;
const PCH_NOT_ATTEMPTED: c_int = 13;

/// `nvrtcProgram`: names are all that has to be kept.
pub struct Program {
    names: Vec<CString>,
}

/// A 64-bit ELF header of a file for CUDA (machine 190) with no sections.
const CODE: [u8; 64] = {
    let mut header = [0; 64];
    let ident = *b"\x7fELF\x02\x01\x01\x33\x07";
    let mut i = 0;
    while i < ident.len() {
        header[i] = ident[i];
        i += 1;
    }
    header[0x10] = 2; // An executable
    header[0x12] = 190;
    header[0x14] = 1;
    header[0x28] = 64; // The section headers, of which there are none, would follow.
    header[0x34] = 64;
    header[0x36] = 56;
    header[0x3a] = 64;
    header
};

const PTX: &CStr = c".version 8.0\n.target sm_80\n.address_size 64\n";

/// Writes `value` where the caller wants it.
///
/// # Safety
///
/// `out` must be null or valid.
unsafe fn answer<T>(out: *mut T, value: T) -> c_int {
    if out.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { out.write(value) };
    SUCCESS
}

/// Copies `bytes` to where the caller has made room for them.
///
/// # Safety
///
/// `out` must be null or have room for `bytes`, as NVRTC asks of its callers.
unsafe fn copy(out: *mut c_char, bytes: &[u8]) -> c_int {
    if out.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    SUCCESS
}

type RuntimeVersion = unsafe extern "C" fn(*mut c_int) -> c_int;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// That of the CUDA runtime of this process: the two come out together, and cuDNN compares them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    let mut version = 0;
    // SAFETY: `RTLD_DEFAULT` is null; the type is that of the declaration in `cuda_runtime_api.h`.
    unsafe {
        let found = dlsym(std::ptr::null_mut(), c"cudaRuntimeGetVersion".as_ptr());
        if !found.is_null() {
            std::mem::transmute::<*mut c_void, RuntimeVersion>(found)(&raw mut version);
        }
    }
    if version == 0 {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's pointers, checked for null.
    unsafe { answer(major, version / 1000).max(answer(minor, version % 1000 / 10)) }
}

/// The source, its name and its headers follow; nothing is made of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(out: *mut *mut Program) -> c_int {
    if out.is_null() {
        return INVALID_INPUT;
    }
    let program = Box::into_raw(Box::new(Program { names: Vec::new() }));
    // SAFETY: not null.
    unsafe { answer(out, program) }
}

/// Not documented: cuDNN makes the programs of its attention with it, and the first argument is where the
/// program goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __nvrtcCPEx(out: *mut *mut Program) -> c_int {
    // SAFETY: the same contract.
    unsafe { nvrtcCreateProgram(out) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut Program) -> c_int {
    // SAFETY: the caller's pointer, to what `nvrtcCreateProgram` wrote.
    unsafe {
        if program.is_null() || (*program).is_null() {
            return INVALID_INPUT;
        }
        drop(Box::from_raw(program.replace(std::ptr::null_mut())));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvrtcCompileProgram(
    _program: *mut Program,
    _count: c_int,
    _options: *const *const c_char,
) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcAddNameExpression(
    program: *mut Program,
    name: *const c_char,
) -> c_int {
    if program.is_null() || name.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: not null; what `nvrtcCreateProgram` made, and a terminated string.
    unsafe { (&mut *program).names.push(CStr::from_ptr(name).to_owned()) };
    SUCCESS
}

/// A name stands for itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetLoweredName(
    program: *mut Program,
    name: *const c_char,
    out: *mut *const c_char,
) -> c_int {
    if program.is_null() || name.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: as above; the answer lives as long as the program, which is what NVRTC promises.
    unsafe {
        let wanted = CStr::from_ptr(name);
        match (&*program).names.iter().find(|it| it.as_c_str() == wanted) {
            Some(it) => answer(out, it.as_ptr()),
            None => NAME_EXPRESSION_NOT_VALID,
        }
    }
}

/// Pairs of functions: the size of a result, and the result.
macro_rules! results {
    ($($size:ident $get:ident $bytes:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $size(_program: *mut Program, out: *mut usize) -> c_int {
            // SAFETY: the caller's pointer, checked for null.
            unsafe { answer(out, $bytes.len()) }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(_program: *mut Program, out: *mut c_char) -> c_int {
            // SAFETY: the caller's pointer, checked for null, to as much room as was asked for above.
            unsafe { copy(out, &$bytes) }
        }
    )*};
}

results! {
    nvrtcGetCUBINSize nvrtcGetCUBIN CODE;
    nvrtcGetLTOIRSize nvrtcGetLTOIR CODE;
    nvrtcGetPTXSize nvrtcGetPTX PTX.to_bytes_with_nul();
    nvrtcGetProgramLogSize nvrtcGetProgramLog [0_u8];
}

/// Whether headers were compiled ahead, which nobody asked for.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetPCHCreateStatus(_program: *mut Program) -> c_int {
    PCH_NOT_ATTEMPTED
}

/// Capabilities from Turing to Blackwell.
const CAPABILITIES: [c_int; 9] = [75, 80, 86, 87, 89, 90, 100, 103, 120];
const COUNT: c_int = 9;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetNumSupportedArchs(out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, COUNT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetSupportedArchs(out: *mut c_int) -> c_int {
    if out.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: not null, with room for as many as were announced.
    unsafe { out.copy_from_nonoverlapping(CAPABILITIES.as_ptr(), CAPABILITIES.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(status: c_int) -> *const c_char {
    if status == SUCCESS { c"NVRTC_SUCCESS" } else { c"NVRTC_ERROR_INVALID_INPUT" }.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_compiles_to_code_without_kernels() {
        let mut program = std::ptr::null_mut();
        let (mut size, mut code) = (0, [0; 256]);
        let mut lowered = std::ptr::null();
        // SAFETY: pointers to what each function asks for.
        unsafe {
            assert_eq!(nvrtcCreateProgram(&raw mut program), SUCCESS);
            assert_eq!(nvrtcAddNameExpression(program, c"sum<float>".as_ptr()), SUCCESS);
            assert_eq!(nvrtcCompileProgram(program, 0, std::ptr::null()), SUCCESS);
            assert_eq!(nvrtcGetLoweredName(program, c"sum<float>".as_ptr(), &raw mut lowered), 0);
            assert_eq!(CStr::from_ptr(lowered), c"sum<float>");
            assert_ne!(nvrtcGetLoweredName(program, c"other".as_ptr(), &raw mut lowered), 0);
            assert_eq!(nvrtcGetCUBINSize(program, &raw mut size), SUCCESS);
            assert!(size <= code.len());
            assert_eq!(nvrtcGetCUBIN(program, code.as_mut_ptr()), SUCCESS);
            assert_eq!(code[..4], [0x7f, 0x45, 0x4c, 0x46], "an ELF file");
            assert_eq!(nvrtcDestroyProgram(&raw mut program), SUCCESS);
            assert!(program.is_null());
            assert_ne!(nvrtcDestroyProgram(&raw mut program), SUCCESS);
        }
    }
}
