//! cuBLAS and cublasLt: every handle is its own (`PyTorch` keeps one workspace for each pair
//! of handle and stream, so a shared one would hide the second), questions about settings get the
//! defaults, and matrix products do nothing. What else these libraries have is in
//! `entry_points.txt`.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use plimsoll_values::Matrix;

use crate::border::installed;
use crate::border::runtime::{SUCCESS, answer};
use crate::launch::with_values;
use crate::machine::Machine;
use crate::machine::resident::Resident;

/// `CUBLAS_STATUS_NOT_INITIALIZED`
const NOT_INITIALIZED: i32 = 1;
/// `CUBLAS_STATUS_ALLOC_FAILED`
const ALLOC_FAILED: i32 = 3;

/// A new handle in `out`: the only answer of the functions that the table marks `handle`.
///
/// # Safety
///
/// `out` must be null or valid.
pub unsafe fn new_handle(out: *mut u64) -> i32 {
    match crate::machine::lock().map(|mut it| it.handle()) {
        // SAFETY: the caller's pointer, checked for null.
        Some(handle) => unsafe { answer(out, handle) },
        None => NOT_INITIALIZED,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(out: *mut u64) -> i32 {
    if let Some(mut machine) = crate::machine::lock()
        && machine.current().reside(Resident::blas).is_err()
    {
        return ALLOC_FAILED;
    }
    // SAFETY: the same contract.
    unsafe { new_handle(out) }
}

/// C functions `(handle, out *int)` that answer a setting's default.
macro_rules! settings {
    ($($name:ident = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_handle: u64, out: *mut c_int) -> i32 {
            // SAFETY: the caller's pointer, checked for null.
            unsafe { answer(out, $value) }
        }
    )*};
}

settings! {
    cublasGetVersion_v2 = installed::cublas();
    cublasGetPointerMode_v2 = 0;
    cublasGetMathMode = 0;
    cublasGetAtomicsMode = 0;
    cublasGetSmCountTarget = 0;
    cusparseGetPointerMode = 0;
    cusparseGetVersion = installed::cusparse();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetStream_v2(_handle: u64, stream: *mut u64) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(stream, 0) }
}

/// Major, minor and patch level of the installed library, out of its 130100 for 13.1.0.
fn property(kind: c_int) -> c_int {
    let version = installed::cublas();
    match kind {
        0 => version / 10_000,
        1 => version / 100 % 100,
        _ => version % 100,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetProperty(kind: c_int, out: *mut c_int) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, property(kind)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtGetProperty(kind: c_int, out: *mut c_int) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(out, property(kind)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasGetCudartVersion() -> usize {
    usize::try_from(installed::cuda()).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetCudartVersion() -> usize {
    cublasGetCudartVersion()
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    usize::try_from(installed::cublas()).unwrap_or(0)
}

/// `CUDA_R_16F`, `CUDA_R_16BF`
const HALVES: [c_int; 2] = [2, 14];

/// A product is queued: a kernel that has 1,720 bytes of parameters on Hopper (`nvjet_sm90_...`), and few on older cards.
fn product_queued(machine: &mut Machine, time: Duration) {
    let parameters = if machine.card.sm_version() < 90 { 0 } else { 1720 };
    machine.library_work(time, parameters);
}

/// Half-precision products whose rows do not begin at multiples of 16 bytes cannot use the tensor
/// cores' wide loads and take several times as long. Inductor times products with and without padding
/// (`torch/_inductor/fx_passes/pad_mm.py`) and allocates by what it finds.
fn product(kind: c_int, rows: [c_int; 3]) -> i32 {
    const MISALIGNED: Duration = Duration::from_millis(10);
    if let Some(mut machine) = crate::machine::lock() {
        let misaligned = HALVES.contains(&kind) && rows.iter().any(|it| it % 8 != 0);
        product_queued(&mut machine, if misaligned { MISALIGNED } else { crate::machine::LAUNCH });
    }
    SUCCESS
}

/// `CUDA_R_32F`, of each factor and of the result.
const SINGLE: [c_int; 3] = [0; 3];

/// Since 2.15 `PyTorch` asks this one for products of floats, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGemmEx(
    handle: u64,
    transpose_a: c_int,
    transpose_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    kind: c_int,
    step_a: c_int,
    b: u64,
    kind_b: c_int,
    step_b: c_int,
    beta: *const c_void,
    c: u64,
    kind_c: c_int,
    step_c: c_int,
    compute: c_int,
    algorithm: c_int,
) -> i32 {
    // SAFETY: the caller's own arguments; a batch of one.
    unsafe {
        cublasGemmStridedBatchedEx(
            handle,
            transpose_a,
            transpose_b,
            m,
            n,
            k,
            alpha,
            a,
            kind,
            step_a,
            0,
            b,
            kind_b,
            step_b,
            0,
            beta,
            c,
            kind_c,
            step_c,
            0,
            1,
            compute,
            algorithm,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGemmStridedBatchedEx(
    _handle: u64,
    transpose_a: c_int,
    transpose_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    kind: c_int,
    step_a: c_int,
    next_a: i64,
    b: u64,
    kind_b: c_int,
    step_b: c_int,
    next_b: i64,
    beta: *const c_void,
    c: u64,
    kind_c: c_int,
    step_c: c_int,
    next_c: i64,
    count: c_int,
    _compute: c_int,
    _algorithm: c_int,
) -> i32 {
    if [kind, kind_b, kind_c] == SINGLE {
        let it = Floats {
            transpose: [transpose_a, transpose_b],
            sizes: [m, n, k],
            alpha: alpha.cast(),
            beta: beta.cast(),
            addresses: [a, b, c],
            steps: [step_a, step_b, step_c],
            strides: [next_a, next_b, next_c],
            count,
        };
        // SAFETY: the caller's factors, floats as the elements are.
        unsafe { it.multiply() };
    }
    product(kind, [step_a, step_b, step_c])
}

/// What a product of floats is told, whose handle and types are left out.
struct Floats {
    transpose: [c_int; 2],
    /// Rows, columns, terms.
    sizes: [c_int; 3],
    alpha: *const f32,
    beta: *const f32,
    addresses: [u64; 3],
    /// From one column to the next, of each.
    steps: [c_int; 3],
    /// From one matrix of a batch to the next, of each.
    strides: [i64; 3],
    /// Matrices in the batch.
    count: c_int,
}

impl Floats {
    /// Computes the products, if they are plain ones of few terms.
    ///
    /// # Safety
    ///
    /// The factors must be on the host, or on a device.
    unsafe fn multiply(&self) {
        let Some(mut machine) = crate::machine::lock() else { return };
        let is_here = |it: *const f32| !it.is_null() && machine.device_of(it as u64).is_none();
        // SAFETY: not null, and on the host.
        let is = |it: *const f32, factor: f32| is_here(it) && unsafe { it.read() } == factor;
        let plain = is(self.alpha, 1.0) && is(self.beta, 0.0);
        let size = |it: c_int| usize::try_from(it).unwrap_or(0);
        let [a, b, c] = self.addresses;
        let contents = &mut machine.current().contents;
        if !plain || a == 0 || b == 0 || self.steps[2] != self.sizes[0] {
            contents.forget_span(c, u64::MAX);
            return;
        }
        for number in 0..i64::from(self.count) {
            let address =
                |i: usize| self.addresses[i].wrapping_add_signed(4 * number * self.strides[i]);
            let matrix = |i: usize| Matrix {
                address: address(i),
                is_transposed: self.transpose[i] != 0,
                step: size(self.steps[i]),
            };
            let sizes = self.sizes.map(size);
            with_values(|it, _| it.multiplied(contents, sizes, matrix(0), matrix(1), address(2)));
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSgemm_v2(
    handle: u64,
    transpose_a: c_int,
    transpose_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: u64,
    step_a: c_int,
    b: u64,
    step_b: c_int,
    beta: *const f32,
    c: u64,
    step_c: c_int,
) -> i32 {
    // SAFETY: the caller's own arguments; a batch of one.
    unsafe {
        cublasSgemmStridedBatched(
            handle,
            transpose_a,
            transpose_b,
            m,
            n,
            k,
            alpha,
            a,
            step_a,
            0,
            b,
            step_b,
            0,
            beta,
            c,
            step_c,
            0,
            1,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSgemmStridedBatched(
    _handle: u64,
    transpose_a: c_int,
    transpose_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: u64,
    step_a: c_int,
    next_a: i64,
    b: u64,
    step_b: c_int,
    next_b: i64,
    beta: *const f32,
    c: u64,
    step_c: c_int,
    next_c: i64,
    count: c_int,
) -> i32 {
    let it = Floats {
        transpose: [transpose_a, transpose_b],
        sizes: [m, n, k],
        alpha,
        beta,
        addresses: [a, b, c],
        steps: [step_a, step_b, step_c],
        strides: [next_a, next_b, next_c],
        count,
    };
    // SAFETY: the caller's factors.
    unsafe { it.multiply() };
    product(SINGLE[0], [step_a, step_b, step_c])
}

/// What the factors are is in descriptors.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmul(
    _handle: u64,
    _operation: u64,
    _alpha: u64,
    _a: u64,
    _layout_a: u64,
    _b: u64,
    _layout_b: u64,
    _beta: u64,
    _c: u64,
    _layout_c: u64,
    _d: u64,
    _layout_d: u64,
    _algorithm: u64,
    _workspace: u64,
    _workspace_bytes: usize,
    _stream: u64,
) -> i32 {
    if let Some(mut machine) = crate::machine::lock() {
        product_queued(&mut machine, crate::machine::LAUNCH);
    }
    SUCCESS
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
pub struct HeuristicResult {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// As many algorithms as are asked for, none of which needs a workspace of its own: `PyTorch` gives
/// cublasLt one of fixed size, and cuDNN's engines add this one to theirs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: u64,
    _operation: u64,
    _a: u64,
    _b: u64,
    _c: u64,
    _d: u64,
    _preference: u64,
    requested: c_int,
    results: *mut HeuristicResult,
    returned: *mut c_int,
) -> i32 {
    if !results.is_null() {
        for i in 0..usize::try_from(requested).unwrap_or(0) {
            let it = HeuristicResult {
                algorithm: [1; 8],
                workspace_bytes: 0,
                state: SUCCESS,
                waves: 1.0,
                reserved: [0; 4],
            };
            // SAFETY: not null; the caller has room for `requested` results.
            unsafe { results.add(i).write(it) };
        }
    }
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(returned, requested) }
}

/// Attributes read back are zeros, the defaults of nearly all.
macro_rules! attributes {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            _descriptor: u64,
            _attribute: c_int,
            out: *mut c_void,
            size: usize,
            written: *mut usize,
        ) -> i32 {
            // SAFETY: the caller's pointers, each checked for null.
            unsafe {
                if !written.is_null() {
                    written.write(size);
                }
                if !out.is_null() {
                    std::ptr::write_bytes(out.cast::<u8>(), 0, size);
                }
            }
            SUCCESS
        }
    )*};
}

attributes! {
    cublasLtMatmulDescGetAttribute
    cublasLtMatrixLayoutGetAttribute
    cublasLtMatmulPreferenceGetAttribute
    cublasLtMatrixTransformDescGetAttribute
}

/// Batched factorisations whose complaint about an argument goes to the host: there is none.
macro_rules! batched {
    ($($name:ident($($argument:ident),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: u64,)* info: *mut c_int) -> i32 {
            // SAFETY: the caller's pointer, checked for null; what follows it is not looked at.
            unsafe { answer(info, 0) }
        }
    )*};
}

batched! {
    cublasSgeqrfBatched(_handle, _m, _n, _a, _lda, _tau);
    cublasDgeqrfBatched(_handle, _m, _n, _a, _lda, _tau);
    cublasCgeqrfBatched(_handle, _m, _n, _a, _lda, _tau);
    cublasZgeqrfBatched(_handle, _m, _n, _a, _lda, _tau);
    cublasSgelsBatched(_handle, _op, _m, _n, _right, _a, _lda, _c, _ldc);
    cublasDgelsBatched(_handle, _op, _m, _n, _right, _a, _lda, _c, _ldc);
    cublasCgelsBatched(_handle, _op, _m, _n, _right, _a, _lda, _c, _ldc);
    cublasZgelsBatched(_handle, _op, _m, _n, _right, _a, _lda, _c, _ldc);
    cublasSgetrsBatched(_handle, _op, _n, _right, _a, _lda, _pivots, _b, _ldb);
    cublasDgetrsBatched(_handle, _op, _n, _right, _a, _lda, _pivots, _b, _ldb);
    cublasCgetrsBatched(_handle, _op, _n, _right, _a, _lda, _pivots, _b, _ldb);
    cublasZgetrsBatched(_handle, _op, _n, _right, _a, _lda, _pivots, _b, _ldb);
}
