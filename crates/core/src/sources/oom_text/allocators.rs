//! What is said by who was to give memory of a device: PyTorch's allocators, and the programs that count
//! the card's memory themselves.

use Backend::{
    Accelerate, Cuda, CudaMallocAsync, CudaRuntime, Cupy, Ggml, Hpu, Mlx, Mps, Mxnet, Nccl, Npu,
    OnnxRuntime, Other, Rmm, Sglang, TensorFlow, TensorRt, TensorRtLlm, Tgi, Triton, Ucx, Vllm,
    Xla, Xpu,
};
use Kind::{Caught, MaybeOutOfMemory, NotMemory, Warning};
use Number::{Allocated, Capacity, Device, Free, FreeBefore, Limit, Requested, RequestedBefore};

use crate::{
    failures::{Backend, Instead, Kind},
    sources::oom_text::{
        form::{Form, Number, Place, device, form},
        readers,
    },
};

/// Looked for before all others.
pub(super) const FORMS: &[Form] = &[
    // An assertion decides: whatever else fails after it, fails because of it.
    form(NotMemory(Instead::Index), CudaRuntime, &["assertion `"], &[])
        .also(&[": block: ["])
        .if_holds(is_failed_assertion),
    form(NotMemory(Instead::Index), CudaRuntime, &["device-side assert triggered"], &[]),
    form(
        NotMemory(Instead::DriverCall),
        CudaRuntime,
        &["cuda driver error: operation not supported"],
        &[],
    ),
    form(
        NotMemory(Instead::EncoderSessions),
        CudaRuntime,
        &["openencodesessionex failed: out of memory"],
        &[],
    ),
    form(
        NotMemory(Instead::NotLoaded),
        Other,
        &["model loading was stopped due to insufficient system resources"],
        &[],
    )
    .plain(),
    form(
        NotMemory(Instead::BrowserHeap),
        Other,
        &["failed to allocate a buffer of size"],
        &[(Requested, "of size")],
    )
    .also(&["can't create a session", "ort.", "wasm"])
    .long(),
    form(
        NotMemory(Instead::LaunchShape),
        CudaRuntime,
        &["invalid configuration argument", "cudaerrorinvalidconfiguration"],
        &[],
    ),
    form(
        NotMemory(Instead::LaunchResources),
        CudaRuntime,
        &["too many resources requested for launch"],
        &[],
    ),
    form(
        NotMemory(Instead::TriedKernel),
        Triton,
        &["out of resource: ", "outofresources"],
        &[(Requested, "required"), (Limit, "hardware limit")],
    )
    .also(&["ignoring this choice", "for benchmark choice"])
    .long(),
    form(
        NotMemory(Instead::KernelSharedMemory),
        Triton,
        &["out of resource: ", "outofresources"],
        &[(Requested, "required"), (Limit, "hardware limit")],
    ),
    form(
        NotMemory(Instead::CoreMemory),
        Xla,
        &["ran out of memory in memory space vmem", "ran out of memory in memory space smem"],
        &[],
    )
    .long()
    .read(readers::xla_space),
    form(
        NotMemory(Instead::Workspace),
        Other,
        &[
            "overflow when allocating memory for",
            "failed to allocate memory for",
            "out of workspace memory in alignedallo",
        ],
        &[(Requested, "with size"), (FreeBefore, " available in alignedallo")],
    )
    .also(&["alignedallo"]),
    // Its own words stand before those of the driver.
    device(Ucx, &[" ucx error"], &[(Requested, "of length"), (Requested, "failed to allocate")])
        .also(&["out of memory", "unable to allocate cuda memory"])
        .long(),
    // Forge shows on one line what it counted, and what the runtime said then.
    device(CudaRuntime, &["model require:"], &[(Requested, "model require:"), (Free, "free gpu:")])
        .also(&["out of memory"]),
    // Said before anything else about the same failure.
    device(
        Nccl,
        &["nccl error in", "nccl warn cuda failure", "nccl warn failed to cuda"],
        &[
            (Requested, "failed to cuda malloc"),
            (Requested, "failed to cuda calloc async"),
            (Requested, "failed to cuda calloc"),
        ],
    )
    .also(&["out of memory", "failed to cuda malloc", "failed to cuda calloc"])
    .long(),
    device(
        CudaRuntime,
        &["nvmapmemallocinternaltagged", "nvmapmemhandlealloc", "nvmapmemalloc"],
        &[],
    ),
    device(Rmm, &["rmm failure at", "/rmm/mr/"], &[(Requested, "failed to allocate")]),
    device(Mxnet, &["cudamalloc retry failed: out of memory", "pooled_storage_manager.h"], &[])
        .also(&["cudamalloc"]),
    device(
        OnnxRuntime,
        &[
            "is smaller than requested bytes of",
            "failed to allocate memory for requested buffer of size",
        ],
        &[(Requested, "requested bytes of"), (Requested, "of size"), (Free, "available memory of")],
    )
    .read(readers::onnxruntime),
    device(OnnxRuntime, &["not enough memory resources are available"], &[])
        .also(&["onnxruntime", "dmlexecutionprovider"]),
    device(OnnxRuntime, &["cuda failure 2: out of memory"], &[(Device, "gpu=")])
        .also(&["onnxruntime"]),
    device(TensorRtLlm, &["executor creation failed due to insufficient gpu memory"], &[]).plain(),
    form(
        Warning,
        TensorRt,
        &["device memory is insufficient to use tactic", "skipping tactic"],
        &[
            (Requested, "tactic device request"),
            (Requested, "on requested size of"),
            (Free, "available"),
        ],
    )
    .also(&["insufficient", "insuficient"]),
    device(
        TensorRt,
        &[
            "cuda runtime (out of memory)",
            "error code 2: outofmemory",
            "cuda error in allocate: 2 (out of memory)",
            "requested amount of gpu memory (",
        ],
        &[(Requested, "requested amount of gpu memory"), (Requested, "requested size was")],
    )
    .long()
    .read(readers::tensorrt),
    device(
        Vllm,
        &[
            "cuda out of memory occurred when warming up",
            "no available memory for the cache blocks",
            "maximum number of tokens that can be stored in kv cache",
        ],
        &[],
    )
    .plain(),
    // Its sleep mode.
    device(Vllm, &["cumem_allocator.cpp"], &[]).also(&["out of memory"]),
    device(
        Vllm,
        &["larger than the available kv cache memory"],
        &[(RequestedBefore, " kv cache is needed"), (Free, "available kv cache memory")],
    ),
    device(Vllm, &["less than desired gpu memory utilization"], &[]).read(readers::vllm_free),
    device(
        Sglang,
        &[
            "not enough memory. please try to increase --mem-fraction-static",
            "please try to increase --mem-fraction-static",
            "loaded weights leave no gpu memory for the kv cache",
            "not enough gpu memory for hybrid",
            "state cache is too small to serve any requests",
            "prefill out of memory. try to lower your batch size",
            "decode out of memory. try to lower your batch size",
        ],
        &[],
    )
    .plain(),
    device(Tgi, &["not enough memory to handle"], &[]).also(&["tokens"]).plain(),
    device(Accelerate, &["no executable batch size found"], &[]),
    device(
        Cupy,
        &["out of memory allocating", "out of memory to allocate"],
        &[
            (Requested, "memory allocating"),
            (Requested, "to allocate"),
            (Allocated, "allocated so far"),
            (Allocated, "(total"),
            (Limit, "limit set to"),
        ],
    )
    .also(&["cupy", "so far", "(total"]),
    // PyTorch.
    device(
        Mps,
        &["mps backend out of memory"],
        &[(Requested, "tried to allocate"), (Allocated, "mps allocated:"), (Limit, "max allowed:")],
    )
    .long()
    .plain()
    .read(readers::mps),
    device(Mps, &["invalid buffer size:"], &[(Requested, "invalid buffer size")]),
    form(NotMemory(Instead::MetalBuffers), Mlx, &["[metal::malloc] resource limit"], &[]),
    device(
        Mlx,
        &["[metal::malloc]"],
        &[(Requested, "attempting to allocate"), (Limit, "buffer size of")],
    ),
    device(Mlx, &["[metal] command buffer"], &[])
        .also(&["kiogpucommandbuffercallbackerroroutofmemory", "insufficient memory"]),
    device(Mps, &["command buffer"], &[])
        .also(&["kiogpucommandbuffercallbackerroroutofmemory"])
        .long(),
    device(Mps, &["kiogpucommandbuffercallbackerroroutofmemory"], &[]),
    device(
        CudaMallocAsync,
        &["would exceed allowed memory"],
        &[
            (Device, "on device"),
            (Allocated, "currently allocated"),
            (Requested, "requested"),
            (Capacity, "device limit"),
            (Free, "free (according to cuda)"),
        ],
    )
    .long()
    .read(readers::malloc_async),
    device(CudaMallocAsync, &["outofmemoryerror: allocation on device"], &[(Device, "on device")]),
    device(CudaMallocAsync, &["allocation on device"], &[]).also(&["got an oom"]).long(),
    device(CudaMallocAsync, &["allocation on device"], &[])
        .also(&["ran out of memory on your gpu", "exception during processing"])
        .long(),
    // A report of ComfyUI.
    device(
        CudaMallocAsync,
        &[
            "exception type:** torch.outofmemoryerror",
            "exception type:** torch.cuda.outofmemoryerror",
        ],
        &[],
    ),
    device(Cuda, &["tried to allocate more than 1eb"], &[]).read(readers::exabyte),
    device(Cuda, &["allocation was preemptively rejected"], &[(Requested, "requested size")]),
    form(
        Warning,
        Cuda,
        &[
            "memory allocation failed with oom on device",
            "memory mapping failed with oom on device",
        ],
        &[
            (Device, "on device"),
            (Requested, "trying to allocate"),
            (Free, "free:"),
            (Capacity, "total:"),
        ],
    ),
    form(Caught, Other, &["ran out of memory when regular"], &[]).also(&["retrying"]).plain(),
    form(
        Caught,
        Other,
        &[
            "to cpu due to cuda oom",
            "ran out of memory, skipping",
            "cuda out of memory with batch=",
        ],
        &[],
    )
    .plain(),
    form(Warning, Other, &["because they were offloaded to the"], &[]),
    form(
        Warning,
        TensorFlow,
        &["the caller indicates that this is not a failure"],
        &[(Requested, "trying to allocate"), (Device, "(gpu_")],
    ),
    device(
        Cuda,
        &["out of memory. tried to allocate", "can not allocate memory block with size larger"],
        &[],
    )
    .long()
    .plain()
    .read(readers::torch),
    // NVML is asked for the processes that an out-of-memory message names, and for nothing else.
    form(MaybeOutOfMemory, Cuda, &["cudacachingallocator.cpp"], &[]).if_holds(|form| {
        let asserts = ["handles_", "nvml_success =="];
        form.lower.contains("internal assert failed")
            && asserts.iter().any(|one| form.lower.contains(one))
    }),
    device(Xpu, &["ur_result_error_out_of_device_memory", "pi_error_out_of_device_memory"], &[]),
    form(
        MaybeOutOfMemory,
        Xpu,
        &[
            "ur_result_error_out_of_resources",
            "pi_error_out_of_resources",
            "ur_result_error_device_lost",
            "pi_error_device_lost",
        ],
        &[],
    ),
    form(MaybeOutOfMemory, Other, &["status_error_out_of_resources", "cl_out_of_resources"], &[]),
    form(MaybeOutOfMemory, Other, &[": out_of_resources"], &[])
        .also(&["opencl", "failed: out_of_res"]),
    device(
        Other,
        &["memory not available to allocate buffer"],
        &[(Requested, "to allocate buffer")],
    ),
    device(Other, &["failed to allocate a buffer"], &[(Requested, " size ")])
        .also(&["amdgpu", "radeon"])
        .long(),
    device(Other, &["no memory is available"], &[(Requested, "cannot allocate")])
        .also(&["cannot allocate"]),
    device(
        Npu,
        &["malloc device memory failed"],
        &[(Requested, "size["), (Capacity, "size:"), (Free, "free size:"), (Device, "device ")],
    ),
    device(Npu, &["el0004"], &[(Requested, "size:"), (Device, "device_id:")])
        .also(&["allocate memory"])
        .long(),
    device(
        Hpu,
        &["device out of memory. allocation failed", "pt_devmem allocation failed"],
        &[(Requested, "for size::")],
    ),
    device(
        Ggml,
        &["llama runner process has terminated"],
        &[(Device, "current device:"), (Requested, "failed to alloc "), (Requested, "allocating ")],
    )
    .also(&["out of memory"])
    .long(),
    form(MaybeOutOfMemory, Ggml, &["llama runner exited, you may not have enough"], &[]),
    // tinygrad: `MemoryError: Allocation of 4.29 GB failed on CUDA. Used: 20.10 GB`.
    device(Other, &["allocation of "], &[(Requested, "allocation of"), (Allocated, "used:")]).also(
        &[
            " failed on cuda",
            " failed on nv",
            " failed on amd",
            " failed on hip",
            " failed on metal",
            " failed on gpu",
            " failed on cl",
        ],
    ),
];

/// `Indexing.cu:1292: ... block: [212,0,0], thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed.`
fn is_failed_assertion(place: &Place<'_>) -> bool {
    place.lower.get(place.end..place.first).is_some_and(|it| it.contains("` failed"))
}
