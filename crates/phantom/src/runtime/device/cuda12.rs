//! `cudaDeviceProp` of CUDA 12 (`driver_types.h`), for the programs that are built with it. CUDA 13 took
//! eight members out of it, so nearly all others stand elsewhere.

use std::ffi::{c_int, c_uint};

use super::{DeviceProp, INVALID_DEVICE, answer, fail, machine};
use crate::card::Card;

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

/// The same answers in CUDA 12's places, and the ones that CUDA 13 has no place for.
fn in_layout_of_cuda_12(card: &Card, ordinal: u32, it: &DeviceProp) -> DevicePropOfCuda12 {
    let attribute = |code| card.attribute(code, ordinal).unwrap_or(0);
    DevicePropOfCuda12 {
        name: it.name,
        uuid: it.uuid,
        luid: it.luid,
        luid_device_node_mask: it.luid_device_node_mask,
        total_global_mem: it.total_global_mem,
        shared_mem_per_block: it.shared_mem_per_block,
        regs_per_block: it.regs_per_block,
        warp_size: it.warp_size,
        mem_pitch: it.mem_pitch,
        max_threads_per_block: it.max_threads_per_block,
        max_threads_dim: it.max_threads_dim,
        max_grid_size: it.max_grid_size,
        clock_rate: attribute(13),
        total_const_mem: it.total_const_mem,
        major: it.major,
        minor: it.minor,
        texture_alignment: it.texture_alignment,
        texture_pitch_alignment: it.texture_pitch_alignment,
        device_overlap: attribute(15),
        multi_processor_count: it.multi_processor_count,
        kernel_exec_timeout_enabled: attribute(17),
        integrated: it.integrated,
        can_map_host_memory: it.can_map_host_memory,
        compute_mode: attribute(20),
        textures_and_surfaces: [16_384; 40],
        surface_alignment: it.surface_alignment,
        concurrent_kernels: it.concurrent_kernels,
        ecc_enabled: it.ecc_enabled,
        pci_bus_id: it.pci_bus_id,
        pci_device_id: it.pci_device_id,
        pci_domain_id: it.pci_domain_id,
        tcc_driver: it.tcc_driver,
        async_engine_count: it.async_engine_count,
        unified_addressing: it.unified_addressing,
        memory_clock_rate: attribute(36),
        memory_bus_width: it.memory_bus_width,
        l2_cache_size: it.l2_cache_size,
        persisting_l2_cache_max_size: it.persisting_l2_cache_max_size,
        max_threads_per_multi_processor: it.max_threads_per_multi_processor,
        stream_priorities_supported: it.stream_priorities_supported,
        global_l1_cache_supported: it.global_l1_cache_supported,
        local_l1_cache_supported: it.local_l1_cache_supported,
        shared_mem_per_multiprocessor: it.shared_mem_per_multiprocessor,
        regs_per_multiprocessor: it.regs_per_multiprocessor,
        managed_memory: it.managed_memory,
        is_multi_gpu_board: it.is_multi_gpu_board,
        multi_gpu_board_group_id: it.multi_gpu_board_group_id,
        host_native_atomic_supported: it.host_native_atomic_supported,
        single_to_double_precision_perf_ratio: attribute(87),
        pageable_memory_access: it.pageable_memory_access,
        concurrent_managed_access: it.concurrent_managed_access,
        compute_preemption_supported: it.compute_preemption_supported,
        can_use_host_pointer_for_registered_mem: it.can_use_host_pointer_for_registered_mem,
        cooperative_launch: it.cooperative_launch,
        cooperative_multi_device_launch: attribute(96),
        shared_mem_per_block_optin: it.shared_mem_per_block_optin,
        pageable_memory_access_uses_host_page_tables: it
            .pageable_memory_access_uses_host_page_tables,
        direct_managed_mem_access_from_host: it.direct_managed_mem_access_from_host,
        max_blocks_per_multi_processor: it.max_blocks_per_multi_processor,
        access_policy_max_window_size: it.access_policy_max_window_size,
        reserved_shared_mem_per_block: it.reserved_shared_mem_per_block,
        host_register_supported: it.host_register_supported,
        sparse_cuda_array_supported: it.sparse_cuda_array_supported,
        host_register_read_only_supported: it.host_register_read_only_supported,
        timeline_semaphore_interop_supported: it.timeline_semaphore_interop_supported,
        memory_pools_supported: it.memory_pools_supported,
        gpu_direct_rdma_supported: it.gpu_direct_rdma_supported,
        gpu_direct_rdma_flush_writes_options: it.gpu_direct_rdma_flush_writes_options,
        gpu_direct_rdma_writes_ordering: it.gpu_direct_rdma_writes_ordering,
        memory_pool_supported_handle_types: it.memory_pool_supported_handle_types,
        deferred_mapping_cuda_array_supported: it.deferred_mapping_cuda_array_supported,
        ipc_event_supported: it.ipc_event_supported,
        cluster_launch: it.cluster_launch,
        unified_function_pointers: it.unified_function_pointers,
        reserved: [0; 63],
    }
}

/// What CUDA 12's header calls `cudaGetDeviceProperties`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceProperties_v2(
    prop: *mut DevicePropOfCuda12,
    device: c_int,
) -> i32 {
    let machine = machine!();
    let Some(ordinal) = super::ordinal(&machine, device) else { return fail(INVALID_DEVICE) };
    let properties = super::properties(machine.card, ordinal);
    // SAFETY: the caller's pointer, checked for null; the layout is that of CUDA 12.
    unsafe { answer(prop, in_layout_of_cuda_12(machine.card, ordinal, &properties)) }
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
        let of_12 = in_layout_of_cuda_12(&card, 0, &of_13);
        assert_eq!((of_12.major, of_12.multi_processor_count), (9, 132));
        assert_eq!(of_12.max_blocks_per_multi_processor, of_13.max_blocks_per_multi_processor);
        assert_eq!((of_12.clock_rate, of_12.memory_clock_rate), (1_980_000, 3_201_000));
    }
}
