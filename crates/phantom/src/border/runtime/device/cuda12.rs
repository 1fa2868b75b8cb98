//! `cudaDeviceProp` of CUDA 12 (`driver_types.h`), for the programs that are built with it. CUDA 13 took
//! eight members out of it, so nearly all others stand elsewhere.

use std::ffi::{c_int, c_uint};

use super::{INVALID_DEVICE, answer, fail, machine, uuid};
use crate::machine::card::Card;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DevicePropOfCuda12 {
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
    clock_rate: c_int,
    total_const_mem: usize,
    major: c_int,
    minor: c_int,
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    device_overlap: c_int,
    multi_processor_count: c_int,
    kernel_exec_timeout_enabled: c_int,
    integrated: c_int,
    can_map_host_memory: c_int,
    compute_mode: c_int,
    textures_and_surfaces: [c_int; 40],
    surface_alignment: usize,
    concurrent_kernels: c_int,
    ecc_enabled: c_int,
    pci_bus_id: c_int,
    pci_device_id: c_int,
    pci_domain_id: c_int,
    tcc_driver: c_int,
    async_engine_count: c_int,
    unified_addressing: c_int,
    memory_clock_rate: c_int,
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
    single_to_double_precision_perf_ratio: c_int,
    pageable_memory_access: c_int,
    concurrent_managed_access: c_int,
    compute_preemption_supported: c_int,
    can_use_host_pointer_for_registered_mem: c_int,
    cooperative_launch: c_int,
    cooperative_multi_device_launch: c_int,
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
    reserved: [c_int; 63],
}

fn properties_of_cuda_12(card: &Card, ordinal: u32) -> DevicePropOfCuda12 {
    let mut it = properties!(DevicePropOfCuda12, card, ordinal);
    let attribute = |code| card.attribute(code, ordinal).unwrap_or(0);
    it.clock_rate = attribute(13);
    it.device_overlap = attribute(15);
    it.kernel_exec_timeout_enabled = attribute(17);
    it.compute_mode = attribute(20);
    it.memory_clock_rate = attribute(36);
    it.single_to_double_precision_perf_ratio = attribute(87);
    it.cooperative_multi_device_launch = attribute(96);
    it
}

/// What CUDA 12's header calls `cudaGetDeviceProperties`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceProperties_v2(
    prop: *mut DevicePropOfCuda12,
    device: c_int,
) -> i32 {
    let machine = machine!();
    let Some(ordinal) = super::ordinal(&machine, device) else { return fail(INVALID_DEVICE) };
    // SAFETY: the caller's pointer, checked for null; the layout is that of CUDA 12.
    unsafe { answer(prop, properties_of_cuda_12(machine.card, ordinal)) }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::DevicePropOfCuda12 as Prop;
    use super::*;

    #[test]
    fn the_layout_is_that_of_cuda_12() {
        // Offsets printed by a C program that includes CUDA 12.8's driver_types.h.
        assert_eq!(offset_of!(Prop, total_global_mem), 288);
        assert_eq!(offset_of!(Prop, clock_rate), 348);
        assert_eq!(offset_of!(Prop, total_const_mem), 352);
        assert_eq!(offset_of!(Prop, major), 360);
        assert_eq!(offset_of!(Prop, multi_processor_count), 388);
        assert_eq!(offset_of!(Prop, textures_and_surfaces), 408);
        assert_eq!(offset_of!(Prop, surface_alignment), 568);
        assert_eq!(offset_of!(Prop, memory_clock_rate), 608);
        assert_eq!(offset_of!(Prop, l2_cache_size), 616);
        assert_eq!(offset_of!(Prop, shared_mem_per_multiprocessor), 640);
        assert_eq!(offset_of!(Prop, single_to_double_precision_perf_ratio), 668);
        assert_eq!(offset_of!(Prop, cooperative_launch), 688);
        assert_eq!(offset_of!(Prop, shared_mem_per_block_optin), 696);
        assert_eq!(offset_of!(Prop, reserved_shared_mem_per_block), 720);
        assert_eq!(offset_of!(Prop, cluster_launch), 772);
        assert_eq!(size_of::<Prop>(), 1032);
    }

    #[test]
    fn what_cuda_13_has_too_says_the_same_and_the_rest_is_answered() {
        let card = Card::h200();
        let of_13 = super::super::properties(&card, 0);
        let of_12 = properties_of_cuda_12(&card, 0);
        assert_eq!(
            (of_12.name, of_12.uuid, of_12.l2_cache_size),
            (of_13.name, of_13.uuid, of_13.l2_cache_size)
        );
        assert_eq!((of_12.major, of_12.multi_processor_count), (9, 132));
        assert_eq!(of_12.max_blocks_per_multi_processor, of_13.max_blocks_per_multi_processor);
        assert_eq!((of_12.clock_rate, of_12.memory_clock_rate), (1_980_000, 3_201_000));
    }
}
