//! Devices: how many, which, their properties.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::{INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, SUCCESS, answer, fail, machine};
use crate::border::installed;
use crate::machine::card::{self, Card};
use crate::machine::{self as machines, PRIORITIES};

/// Device `ordinal` as a `cudaDeviceProp`: the members that both CUDA 12 and 13 have, which stand in other places.
macro_rules! properties {
    ($Type:ty, $card:expr, $ordinal:expr) => {{
        let (card, ordinal): (&Card, u32) = ($card, $ordinal);
        let attribute = |code| card.attribute(code, ordinal).unwrap_or(0);
        let size = |code| usize::try_from(attribute(code)).unwrap_or(0);
        let name = card.name.as_bytes();
        let length = name.len().min(255);
        // SAFETY: the struct is integers and arrays of them, for which zero is a value.
        let mut it: $Type = unsafe { std::mem::zeroed() };
        it.name[..length].copy_from_slice(&name[..length]);
        it.uuid = uuid(ordinal);
        it.total_global_mem = usize::try_from(card.total_bytes).unwrap_or(usize::MAX);
        it.shared_mem_per_block = size(8);
        it.regs_per_block = attribute(12);
        it.warp_size = attribute(10);
        it.mem_pitch = size(11);
        it.max_threads_per_block = attribute(1);
        it.max_threads_dim = [attribute(2), attribute(3), attribute(4)];
        it.max_grid_size = [attribute(5), attribute(6), attribute(7)];
        it.total_const_mem = size(9);
        (it.major, it.minor) = card.compute_capability;
        it.texture_alignment = size(14);
        it.texture_pitch_alignment = size(51);
        it.multi_processor_count = attribute(16);
        it.can_map_host_memory = attribute(19);
        it.textures_and_surfaces.fill(16_384);
        it.surface_alignment = size(30);
        it.concurrent_kernels = attribute(31);
        it.pci_bus_id = attribute(33);
        it.async_engine_count = attribute(40);
        it.unified_addressing = attribute(41);
        it.memory_bus_width = attribute(37);
        it.l2_cache_size = attribute(38);
        it.persisting_l2_cache_max_size = attribute(108);
        it.max_threads_per_multi_processor = attribute(39);
        it.stream_priorities_supported = attribute(78);
        it.global_l1_cache_supported = attribute(79);
        it.local_l1_cache_supported = attribute(80);
        it.shared_mem_per_multiprocessor = size(81);
        it.regs_per_multiprocessor = attribute(82);
        it.managed_memory = attribute(83);
        it.concurrent_managed_access = attribute(89);
        it.compute_preemption_supported = attribute(90);
        it.can_use_host_pointer_for_registered_mem = attribute(91);
        it.cooperative_launch = attribute(95);
        it.shared_mem_per_block_optin = size(97);
        it.max_blocks_per_multi_processor = attribute(106);
        it.access_policy_max_window_size = attribute(109);
        it.reserved_shared_mem_per_block = size(111);
        it.host_register_supported = attribute(99);
        it.host_register_read_only_supported = attribute(113);
        it.timeline_semaphore_interop_supported = attribute(114);
        it.memory_pools_supported = attribute(115);
        it.memory_pool_supported_handle_types = 1;
        it.deferred_mapping_cuda_array_supported = attribute(121);
        it.ipc_event_supported = attribute(125);
        it.cluster_launch = attribute(120);
        it
    }};
}

mod cuda12;

/// `cudaDeviceProp` of CUDA 13 (`driver_types.h`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceProp {
    name: [u8; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    luid_device_node_mask: c_uint,
    total_global_mem: usize,
    shared_mem_per_block: usize,
    regs_per_block: c_int,
    warp_size: c_int,
    mem_pitch: usize,
    max_threads_per_block: c_int,
    max_threads_dim: [c_int; 3],
    max_grid_size: [c_int; 3],
    total_const_mem: usize,
    major: c_int,
    minor: c_int,
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    multi_processor_count: c_int,
    integrated: c_int,
    can_map_host_memory: c_int,
    textures_and_surfaces: [c_int; 39],
    surface_alignment: usize,
    concurrent_kernels: c_int,
    ecc_enabled: c_int,
    pci_bus_id: c_int,
    pci_device_id: c_int,
    pci_domain_id: c_int,
    tcc_driver: c_int,
    async_engine_count: c_int,
    unified_addressing: c_int,
    memory_bus_width: c_int,
    l2_cache_size: c_int,
    persisting_l2_cache_max_size: c_int,
    max_threads_per_multi_processor: c_int,
    stream_priorities_supported: c_int,
    global_l1_cache_supported: c_int,
    local_l1_cache_supported: c_int,
    shared_mem_per_multiprocessor: usize,
    regs_per_multiprocessor: c_int,
    managed_memory: c_int,
    is_multi_gpu_board: c_int,
    multi_gpu_board_group_id: c_int,
    host_native_atomic_supported: c_int,
    pageable_memory_access: c_int,
    concurrent_managed_access: c_int,
    compute_preemption_supported: c_int,
    can_use_host_pointer_for_registered_mem: c_int,
    cooperative_launch: c_int,
    shared_mem_per_block_optin: usize,
    pageable_memory_access_uses_host_page_tables: c_int,
    direct_managed_mem_access_from_host: c_int,
    max_blocks_per_multi_processor: c_int,
    access_policy_max_window_size: c_int,
    reserved_shared_mem_per_block: usize,
    host_register_supported: c_int,
    sparse_cuda_array_supported: c_int,
    host_register_read_only_supported: c_int,
    timeline_semaphore_interop_supported: c_int,
    memory_pools_supported: c_int,
    gpu_direct_rdma_supported: c_int,
    gpu_direct_rdma_flush_writes_options: c_uint,
    gpu_direct_rdma_writes_ordering: c_int,
    memory_pool_supported_handle_types: c_uint,
    deferred_mapping_cuda_array_supported: c_int,
    ipc_event_supported: c_int,
    cluster_launch: c_int,
    unified_function_pointers: c_int,
    device_numa_config: c_int,
    device_numa_id: c_int,
    mps_enabled: c_int,
    host_numa_id: c_int,
    gpu_pci_device_id: c_uint,
    gpu_pci_subsystem_id: c_uint,
    host_numa_multinode_ipc_supported: c_int,
    reserved: [c_int; 56],
}

/// The UUID of device `ordinal`: what the user's machine calls it, or one of ours, which is the same in every process and ends in the
/// ordinal.
pub(crate) fn uuid(ordinal: u32) -> [u8; 16] {
    if let Some(named) = machines::uuid_of(ordinal).and_then(|it| uuid_of_text(&it)) {
        return named;
    }
    let mut uuid = *b"plimsoll\0\0\0\0\0\0\0\0";
    uuid[12..].copy_from_slice(&ordinal.to_be_bytes());
    uuid
}

/// The bytes of a whole UUID, as `GPU-1a2b3c4d-...` writes it.
fn uuid_of_text(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.get(4..)?.chars().filter(|it| *it != '-').collect();
    (hex.len() == 32).then(|| u128::from_str_radix(&hex, 16).ok()).flatten().map(u128::to_be_bytes)
}

/// `0000:01:00.0` for the machine's first device.
pub(crate) fn pci_bus_id(ordinal: u32) -> String {
    format!("0000:{:02X}:00.0", ordinal + 1)
}

fn properties(card: &Card, ordinal: u32) -> DeviceProp {
    let mut it = properties!(DeviceProp, card, ordinal);
    let attribute = |code| card.attribute(code, ordinal).unwrap_or(0);
    it.device_numa_config = attribute(130);
    it.device_numa_id = attribute(131);
    it.host_numa_id = attribute(134);
    it
}

/// The visible device `device`, as its ordinal in the machine.
fn ordinal(machine: &machines::Machine, device: c_int) -> Option<u32> {
    Some(machine.visible.get(usize::try_from(device).ok()?)?.ordinal)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> i32 {
    let devices = machines::device_count();
    // SAFETY: the caller's pointer, checked for null.
    let status = unsafe { answer(count, c_int::try_from(devices).unwrap_or(0)) };
    if devices == 0 { fail(NO_DEVICE) } else { status }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDevice(device: *mut c_int) -> i32 {
    if machines::device_count() == 0 {
        return fail(NO_DEVICE);
    }
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(device, c_int::try_from(machines::current_device()).unwrap_or(0)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDevice(device: c_int) -> i32 {
    match u32::try_from(device) {
        Ok(it) if it < machines::device_count() => {
            machines::set_current_device(it);
            SUCCESS
        }
        Ok(it) if it < 256 => {
            machines::ask_beyond(it);
            fail(INVALID_DEVICE)
        }
        _ => fail(INVALID_DEVICE),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaInitDevice(device: c_int, _flags: c_uint, _more: c_uint) -> i32 {
    cudaSetDevice(device)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaSetValidDevices(_devices: *const c_int, _count: c_int) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaChooseDevice(device: *mut c_int, _wanted: *const c_void) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(device, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceProperties(prop: *mut DeviceProp, device: c_int) -> i32 {
    let machine = machine!();
    let Some(ordinal) = ordinal(&machine, device) else { return fail(INVALID_DEVICE) };
    // SAFETY: the caller's pointer, checked for null; the layout is that of CUDA 13.
    unsafe { answer(prop, properties(machine.card, ordinal)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetAttribute(
    value: *mut c_int,
    code: c_int,
    device: c_int,
) -> i32 {
    let Some(card) = card::current() else { return fail(NO_DEVICE) };
    let Ok(device) = u32::try_from(device) else { return fail(INVALID_DEVICE) };
    if machines::device_count() <= device {
        return fail(INVALID_DEVICE);
    }
    match card.attribute(code, device) {
        // SAFETY: the caller's pointer, checked for null.
        Some(it) => unsafe { answer(value, it) },
        None => fail(INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetPCIBusId(
    text: *mut c_char,
    length: c_int,
    device: c_int,
) -> i32 {
    let machine = machine!();
    let Some(ordinal) = ordinal(&machine, device) else { return fail(INVALID_DEVICE) };
    // SAFETY: the caller's buffer and its length.
    unsafe { write_text(text, length, &pci_bus_id(ordinal)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> i32 {
    let machine = machine!();
    if text.is_null() {
        return fail(INVALID_VALUE);
    }
    // SAFETY: not null; CUDA asks for a terminated string.
    let wanted = unsafe { CStr::from_ptr(text) }.to_string_lossy().to_ascii_uppercase();
    let found =
        machine.visible.iter().position(|it| wanted.ends_with(&pci_bus_id(it.ordinal)[5..]));
    match found.and_then(|it| c_int::try_from(it).ok()) {
        // SAFETY: the caller's pointer, checked for null.
        Some(it) => unsafe { answer(device, it) },
        None => fail(INVALID_DEVICE),
    }
}

/// Writes `text` and its end into a buffer of `length` bytes.
///
/// # Safety
///
/// `out` must be null or valid for `length` bytes.
pub(crate) unsafe fn write_text(out: *mut c_char, length: c_int, text: &str) -> i32 {
    let Some(room) = usize::try_from(length).ok().filter(|&it| text.len() < it) else {
        return fail(INVALID_VALUE);
    };
    if out.is_null() || room == 0 {
        return fail(INVALID_VALUE);
    }
    // SAFETY: the text and its end fit into the buffer, which the caller vouches for.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), text.len());
        out.add(text.len()).write(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> i32 {
    let it = card::current().map_or(0, |it| it.driver_version);
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(version, it) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(version, installed::cuda()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceSynchronize() -> i32 {
    let mut machine = machine!();
    machine.current().begin();
    machine.wait_for_all();
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceReset() -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceFlags(flags: *mut c_uint) -> i32 {
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(flags, 0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDeviceFlags(_flags: c_uint) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetLimit(value: *mut usize, limit: c_int) -> i32 {
    // cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, and the rest.
    let it = match limit {
        0 => 1024,
        1 => 1 << 20,
        2 => 8 << 20,
        3 => 2,
        4 => 2048,
        _ => 0,
    };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(value, it) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceSetLimit(_limit: c_int, _value: usize) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> i32 {
    // SAFETY: the caller's pointers; either may be null.
    unsafe {
        if !least.is_null() {
            least.write(*PRIORITIES.end());
        }
        if !greatest.is_null() {
            greatest.write(*PRIORITIES.start());
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceCanAccessPeer(
    can: *mut c_int,
    device: c_int,
    peer: c_int,
) -> i32 {
    let count = c_int::try_from(machines::device_count()).unwrap_or(0);
    if !(0..count).contains(&device) || !(0..count).contains(&peer) {
        return fail(INVALID_DEVICE);
    }
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(can, c_int::from(device != peer)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, _flags: c_uint) -> i32 {
    match u32::try_from(peer) {
        Ok(it) if it < machines::device_count() => SUCCESS,
        _ => fail(INVALID_DEVICE),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceDisablePeerAccess(_peer: c_int) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetP2PAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
    peer: c_int,
) -> i32 {
    // 1 performance rank, 2 access, 3 native atomics, 4 arrays.
    let it = if attribute == 1 { 0 } else { c_int::from(device != peer) };
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(value, it) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_cuda_13() {
        // Offsets printed by a C program that includes CUDA 13.0's driver_types.h.
        assert_eq!(std::mem::offset_of!(DeviceProp, total_global_mem), 288);
        assert_eq!(std::mem::offset_of!(DeviceProp, multi_processor_count), 384);
        assert_eq!(std::mem::offset_of!(DeviceProp, l2_cache_size), 596);
        assert_eq!(std::mem::offset_of!(DeviceProp, shared_mem_per_block_optin), 672);
        assert_eq!(std::mem::offset_of!(DeviceProp, cluster_launch), 748);
        assert_eq!(std::mem::size_of::<DeviceProp>(), 1008);
    }
}
