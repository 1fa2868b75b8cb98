//! Streams, events, captures and graphs. Work is done the moment it is queued.

use std::ffi::{c_float, c_int, c_uint, c_void};
use std::ptr::null_mut;

use super::{
    INVALID_HANDLE, INVALID_VALUE, NOT_READY, OUT_OF_MEMORY, SUCCESS, answer, fail, graph_objects,
    machine,
};
use crate::border::installed;
use crate::border::loader;
use crate::border::nccl;
use crate::machine::Machine;
use crate::machine::report;

/// `cudaErrorStreamCaptureUnsupported`, `...Invalidated` and relatives begin here; 900 says that the
/// stream cannot be captured now.
const CAPTURE_UNSUPPORTED: i32 = 900;
/// `cudaStreamPerThread`; before it, 0 and `cudaStreamLegacy` are the default stream, too.
const PER_THREAD_DEFAULT: u64 = 2;
/// `cudaErrorStreamCaptureUnmatched`: ended on a stream that did not begin it.
const CAPTURE_UNMATCHED: i32 = 903;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreate(stream: *mut u64) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaStreamCreateWithPriority(stream, 0, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreateWithFlags(stream: *mut u64, _flags: c_uint) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaStreamCreate(stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreateWithPriority(
    stream: *mut u64,
    _flags: c_uint,
    priority: c_int,
) -> i32 {
    let Ok(handle) = machine!().create_stream(priority) else { return fail(OUT_OF_MEMORY) };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(stream, handle) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamDestroy(stream: u64) -> i32 {
    machine!().destroy_stream(stream);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamQuery(stream: u64) -> i32 {
    if machine!().is_idle(stream) { SUCCESS } else { NOT_READY }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSynchronize(stream: u64) -> i32 {
    let mut machine = machine!();
    // The default stream is the current device's, and waiting for it makes a context there.
    if stream <= PER_THREAD_DEFAULT {
        machine.current().begin();
    }
    machine.wait_for_stream(stream);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) -> i32 {
    machine!().wait(stream, event);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetPriority(stream: u64, priority: *mut c_int) -> i32 {
    let it = machine!().priority(stream);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(priority, it) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetFlags(_stream: u64, flags: *mut c_uint) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(flags, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetId(stream: u64, id: *mut u64) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(id, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetDevice(_stream: u64, device: *mut c_int) -> i32 {
    let it = c_int::try_from(crate::machine::current_device()).unwrap_or(0);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(device, it) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSetAttribute(_stream: u64, _id: c_int, _value: *const c_void) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamAddCallback(
    stream: u64,
    callback: Option<unsafe extern "C" fn(u64, i32, *mut c_void)>,
    data: *mut c_void,
    _flags: c_uint,
) -> i32 {
    let Some(callback) = callback else { return fail(INVALID_VALUE) };
    // SAFETY: the caller's own function and data; all work before it is done.
    unsafe { callback(stream, SUCCESS, data) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaLaunchHostFunc(
    _stream: u64,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> i32 {
    let Some(function) = function else { return fail(INVALID_VALUE) };
    // SAFETY: the caller's own function and data; all work before it is done.
    unsafe { function(data) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventCreate(event: *mut u64) -> i32 {
    let handle = machine!().create_event();
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(event, handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventCreateWithFlags(event: *mut u64, _flags: c_uint) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaEventCreate(event) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaEventDestroy(event: u64) -> i32 {
    machine!().destroy_event(event);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaEventRecord(event: u64, stream: u64) -> i32 {
    match machine!().record(event, stream) {
        Ok(()) => SUCCESS,
        Err(_) => fail(INVALID_HANDLE),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaEventRecordWithFlags(event: u64, stream: u64, _flags: c_uint) -> i32 {
    cudaEventRecord(event, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaEventQuery(event: u64) -> i32 {
    let by_watchdog = nccl::asked_by_watchdog();
    // PyTorch's allocator of host memory asks as well, and no device's memory depends on its answer.
    let matters = !by_watchdog && loader::called_by(b"libc10_cuda");
    let mut machine = machine!();
    let is_done =
        if by_watchdog { machine.is_seen(event) } else { machine.is_done(event, matters) };
    if is_done { SUCCESS } else { NOT_READY }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaEventSynchronize(event: u64) -> i32 {
    machine!().wait_for_event(event);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventElapsedTime(millis: *mut c_float, from: u64, to: u64) -> i32 {
    report::approximate(
        "times between CUDA events are host times: kernels take no time on a phantom",
    );
    crate::border::dnn::trials::timed();
    match machine!().elapsed_millis(from, to) {
        // SAFETY: the caller's pointer, checked for null.
        Ok(it) => unsafe { answer(millis, it) },
        Err(_) => fail(INVALID_HANDLE),
    }
}

/// CUDA 12's name of what is `cudaEventElapsedTime` in CUDA 13.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventElapsedTime_v2(millis: *mut c_float, from: u64, to: u64) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaEventElapsedTime(millis, from, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamIsCapturing(stream: u64, status: *mut c_int) -> i32 {
    let it = c_int::from(machine!().capture(stream).is_some());
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(status, it) }
}

/// Where a caller wants to know about a capture; each but the status may be null.
struct CaptureInfo {
    status: *mut c_int,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut *const u64,
    edges: *mut *const c_void,
    count: *mut usize,
}

/// # Safety
///
/// Every pointer must be null or valid.
unsafe fn capture_info(stream: u64, out: CaptureInfo) -> i32 {
    let capture = machine!().capture(stream);
    // SAFETY: the caller's.
    unsafe {
        if !out.id.is_null() {
            out.id.write(capture.map_or(0, |it| it.id));
        }
        if !out.graph.is_null() {
            out.graph.write(capture.map_or(0, |it| it.graph));
        }
        if !out.dependencies.is_null() {
            out.dependencies.write(std::ptr::null());
        }
        if !out.edges.is_null() {
            out.edges.write(std::ptr::null());
        }
        if !out.count.is_null() {
            out.count.write(0);
        }
        answer(out.status, c_int::from(capture.is_some()))
    }
}

/// With the first three arguments in CUDA 12; what stands behind them is then nobody's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetCaptureInfo(
    stream: u64,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut *const u64,
    edges: *mut *const c_void,
    count: *mut usize,
) -> i32 {
    if installed::cuda() < 13_000 {
        // SAFETY: the same contract.
        return unsafe {
            cudaStreamGetCaptureInfo_v2(stream, status, id, null_mut(), null_mut(), null_mut())
        };
    }
    // SAFETY: the same contract.
    unsafe { cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count) }
}

/// CUDA 12's, without edges.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetCaptureInfo_v2(
    stream: u64,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut *const u64,
    count: *mut usize,
) -> i32 {
    let edges = null_mut();
    // SAFETY: the caller's pointers; all but the first may be null.
    unsafe { capture_info(stream, CaptureInfo { status, id, graph, dependencies, edges, count }) }
}

/// CUDA 12's name of what is `cudaStreamGetCaptureInfo` in CUDA 13.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetCaptureInfo_v3(
    stream: u64,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut *const u64,
    edges: *mut *const c_void,
    count: *mut usize,
) -> i32 {
    // SAFETY: the caller's pointers; all but the first may be null.
    unsafe { capture_info(stream, CaptureInfo { status, id, graph, dependencies, edges, count }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaThreadExchangeStreamCaptureMode(_mode: *mut c_int) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamBeginCapture(stream: u64, _mode: c_int) -> i32 {
    if stream == 0 {
        return fail(CAPTURE_UNSUPPORTED);
    }
    match machine!().begin_capture(stream) {
        Ok(()) => SUCCESS,
        Err(_) => fail(CAPTURE_UNSUPPORTED),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamEndCapture(stream: u64, graph: *mut u64) -> i32 {
    match machine!().end_capture(stream) {
        // SAFETY: the caller's pointer, checked for null.
        Ok(it) => unsafe { answer(graph, it) },
        Err(_) => fail(CAPTURE_UNMATCHED),
    }
}

fn new_graph() -> Option<u64> {
    crate::machine::lock().map(|mut it: std::sync::MutexGuard<'_, Machine>| it.handle())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphCreate(graph: *mut u64, _flags: c_uint) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(graph, new_graph().unwrap_or(0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphInstantiate(exec: *mut u64, graph: u64, _flags: u64) -> i32 {
    let Ok(made) = machine!().instantiate(graph) else { return fail(OUT_OF_MEMORY) };
    graph_objects::instantiated(made, graph);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(exec, made) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphInstantiateWithFlags(
    exec: *mut u64,
    graph: u64,
    flags: u64,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { cudaGraphInstantiate(exec, graph, flags) }
}

/// Without a place for the nodes it says how many there are, as CUDA does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) -> i32 {
    let n = usize::try_from(machine!().graph_nodes(graph)).unwrap_or(0);
    if nodes.is_null() {
        // SAFETY: the caller's pointer, checked for null.
        return unsafe { answer(count, n) };
    }
    if count.is_null() {
        return fail(INVALID_VALUE);
    }
    // SAFETY: not null; on input it holds the room behind `nodes`.
    unsafe {
        let room = count.read();
        for i in 0..room {
            nodes.add(i).write(if i < n { graph + 1 + i as u64 } else { 0 });
        }
        count.write(n.min(room));
    }
    SUCCESS
}

/// No node has any. CUDA 12 has no edges here, and its count in their place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphNodeGetDependencies(
    _node: u64,
    _dependencies: *mut u64,
    edges: *mut usize,
    count: *mut usize,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(if installed::cuda() < 13_000 { edges } else { count }, 0) }
}

/// CUDA 12's name of what is `cudaGraphNodeGetDependencies` in CUDA 13.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphNodeGetDependencies_v2(
    _node: u64,
    _dependencies: *mut u64,
    _edges: *mut c_void,
    count: *mut usize,
) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(count, 0) }
}
