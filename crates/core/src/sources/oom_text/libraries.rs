//! What is said by other frameworks and by libraries, down to the CUDA runtime.

use Backend::{
    Accelerate, Bitsandbytes, Ctranslate2, Cublas, Cuda, CudaRuntime, Cudnn, Cufft, Cusolver,
    Cusparse, DirectMl, Exllama, Ggml, Hami, Hip, Neuron, Other, Paddle, TensorFlow, Unsloth, Xla,
};
use Kind::MaybeOutOfMemory;
use Number::{Device, Free, FreeBefore, Requested};

use crate::{
    failures::{Backend, Kind},
    sources::oom_text::{
        form::{Form, Number, asks_for_memory, device, form, host, is_exception},
        readers,
    },
};

/// After what hosts say in clear words.
pub(super) const FORMS: &[Form] = &[
    // XLA and TensorFlow.
    device(
        Xla,
        &["out of memory while trying to allocate", "out of memory allocating"],
        &[(Requested, "trying to allocate"), (Requested, "memory allocating")],
    )
    .long()
    .plain()
    .read(readers::xla),
    device(Xla, &["failed to allocate request for"], &[(Device, "device ordinal")])
        .plain()
        .read(readers::xla_request),
    device(Xla, &["ran out of memory in memory space"], &[]).long().read(readers::xla_space),
    device(
        Xla,
        &["attempting to reserve"],
        &[(Requested, "attempting to reserve"), (FreeBefore, " free")],
    )
    .also(&["resource_exhausted", "bottom of memory"])
    .long(),
    device(
        Xla,
        &["error allocating device buffer"],
        &[(Requested, "attempting to allocate"), (FreeBefore, " free")],
    ),
    device(Xla, &["for new constant"], &[(Requested, "failed to allocate")])
        .also(&["failed to allocate"]),
    device(Xla, &["from device: cuda_error_out_of_memory"], &[(Requested, "failed to allocate")])
        .also(&["external/xla", "xla/stream_executor"]),
    device(TensorFlow, &["oom when allocating tensor"], &[(Device, "device:gpu:")])
        .long()
        .read(readers::tensorflow_shape),
    // Both have the same allocator; TensorFlow's copy of it is `local_xla`.
    device(
        Xla,
        &["ran out of memory trying to allocate"],
        &[(Requested, "(rounded to"), (Requested, "trying to allocate"), (Device, "(gpu_")],
    )
    .also(&["external/xla"]),
    device(
        TensorFlow,
        &[
            "failed to allocate memory from device",
            "ran out of memory trying to allocate",
            "from device: cuda_error_out_of_memory",
            "from device: hip_error_outofmemory",
            "from device: hiperror_t(1002)",
        ],
        &[
            (Requested, "(rounded to"),
            (Requested, "trying to allocate"),
            (Requested, "failed to allocate"),
            (Device, "(gpu_"),
        ],
    )
    .also(&["tensorflow", "bfc", "stream_executor"]),
    form(MaybeOutOfMemory, TensorFlow, &["dst tensor is not initialized"], &[]),
    device(
        Paddle,
        &["out of memory error on gpu"],
        &[
            (Device, "on gpu"),
            (Requested, "cannot allocate"),
            (Free, "available memory is only"),
            (Free, "available memory is"),
        ],
    )
    .plain()
    .read(readers::paddle),
    device(Paddle, &["enforce allocating <= available failed"], &[]).read(readers::paddle_enforce),
    // Libraries of NVIDIA.
    form(
        MaybeOutOfMemory,
        Cublas,
        &["cublas_status_alloc_failed", "cublas runtime error : resource allocation failed"],
        &[],
    ),
    form(
        MaybeOutOfMemory,
        Hip,
        &["hipblas_status_alloc_failed", "rocblas_status_memory_error"],
        &[],
    ),
    // A handle needs memory, and nothing else that could be missing once others have worked.
    form(
        MaybeOutOfMemory,
        Cublas,
        &["cublas_status_not_initialized", "cublas_status_internal_error"],
        &[],
    )
    .also(&["cublascreate"]),
    form(
        MaybeOutOfMemory,
        Cusolver,
        &["cusolver_status_internal_error", "failed to create cusolverdn instance"],
        &[],
    )
    .also(&["cusolverdncreate"]),
    device(
        Cudnn,
        &["cudnn_status_alloc_failed", "cudnn_status_internal_error_device_allocation_failed"],
        &[],
    ),
    host(&["cudnn_status_internal_error_host_allocation_failed"], &[]),
    form(
        MaybeOutOfMemory,
        Cudnn,
        &[
            "unable to find a valid cudnn algorithm",
            "no valid convolution algorithms available in cudnn",
            "could not create cudnn handle",
            "unable to find an engine to execute this computation",
        ],
        &[],
    ),
    form(MaybeOutOfMemory, Cusolver, &["cusolver_status_alloc_failed"], &[]),
    form(MaybeOutOfMemory, Cusparse, &["cusparse_status_alloc_failed"], &[]),
    form(MaybeOutOfMemory, Cufft, &["cufft_alloc_failed", "cufft_internal_error"], &[]),
    device(
        CudaRuntime,
        &["failed to allocate cuda memory with byte size"],
        &[(Requested, "byte size")],
    ),
    // ggml.
    device(
        Ggml,
        &[
            "cudamalloc failed: out of memory",
            "failed to allocate cuda",
            "failed to allocate rocm",
            "failed to allocate vulkan",
        ],
        &[(Device, "on device"), (Requested, "buffer of size"), (Requested, "allocating ")],
    )
    .long()
    .read(readers::ggml),
    device(
        Ggml,
        &[
            "ggml_vulkan: device memory allocation of size",
            "ggml_vulkan: requested buffer size exceeds",
        ],
        &[(Requested, "allocation of size"), (Requested, "buffer of size")],
    )
    .long(),
    device(
        Ggml,
        &["unable to allocate cuda", "unable to allocate rocm", "unable to allocate vulkan"],
        &[(Device, "allocate cuda"), (Device, "allocate rocm"), (Device, "allocate vulkan")],
    )
    .also(&[" buffer"]),
    device(Ggml, &["cuda error: out of memory"], &[(Device, "current device:")])
        .also(&["ggml"])
        .long(),
    device(Ggml, &["cuda error 2 at ggml-cuda"], &[(Device, "current device:")])
        .also(&["out of memory"])
        .long(),
    device(Bitsandbytes, &["error out of memory at line"], &[]),
    // The first call of a program.
    form(MaybeOutOfMemory, CudaRuntime, &["error from cudagetdevicecount"], &[])
        .also(&["out of memory"])
        .plain(),
    // Accelerate, transformers and PEFT, where a device map put a part of the weights elsewhere.
    device(
        Accelerate,
        &[
            "modules are dispatched on the cpu or the disk",
            "we need an `offload_dir` to dispatch this model",
            "please provide an `offload_folder` for them",
            "please pass along an `offload_folder`",
            "precision with cpu or disk offload",
            "some modules offloaded to cpu or disk",
        ],
        &[],
    )
    .plain(),
    form(MaybeOutOfMemory, Other, &["cannot copy out of meta tensor"], &[]),
    device(Unsloth, &["no or negligible gpu memory available for fused cross entropy"], &[])
        .plain(),
    // FAISS; its own words, which say more than the runtime's.
    device(
        CudaRuntime,
        &["standardgpuresources: alloc fail", "failed to cudamalloc"],
        &[
            (Requested, "failed to cudamalloc"),
            (Requested, " size "),
            (Device, "on device"),
            (Device, " dev "),
        ],
    )
    .also(&["out of memory"])
    .long(),
    device(Other, &["out of gpu memory trying to allocate"], &[(Requested, "trying to allocate")])
        .long()
        .read(readers::julia),
    device(
        Other,
        &[
            "is out of gpu memory",
            "is out of gpu and shared host memory",
            "ran out of gpu memory",
            "out of video memory",
            "out of memory on device. to view",
        ],
        &[],
    )
    .plain(),
    // PhysX.
    device(Other, &["fail to allocate memory"], &[(Requested, "allocate memory")])
        .also(&["cuda", "gpu"]),
    device(Neuron, &["nrt_tensor_allocate"], &[]).also(&["allocation failure"]),
    device(
        Neuron,
        &["process_nrtd_response", "failed to alloc device memory:"],
        &[(Requested, "device memory")],
    )
    .also(&["failed to alloc device memory:"])
    .long(),
    device(Neuron, &["[tdrv:"], &[(Requested, "of size")]).also(&["failed to alloc"]),
    form(MaybeOutOfMemory, Neuron, &["failure: nrt_resource"], &[]),
    device(
        Exllama,
        &["insufficient vram in split for model", "insufficient vram for model and cache"],
        &[],
    )
    .plain(),
    device(Hami, &["[hami-core"], &[]).also(&[" oom "]).read(readers::hami),
    // Thrust's, whose exception is a `MemoryError` in Python.
    device(CudaRuntime, &["get_temporary_buffer failed"], &[]),
    form(MaybeOutOfMemory, Other, &["could not create a memory object"], &[]),
    device(Other, &["device lost"], &[]).also(&["out of memory"]),
    device(Other, &["mem_object_allocation_failure"], &[]),
    device(
        DirectMl,
        &["there is not enough gpu video memory available"],
        &[(Requested, "could not allocate tensor with")],
    ),
    // The runtimes and drivers, whoever called them.
    device(Ctranslate2, &["cuda failed with error out of memory"], &[]).plain(),
    device(
        Hip,
        &[
            "hip error: out of memory",
            "hiperroroutofmemory",
            "hip_error_outofmemory",
            "triton error [hip]: out of memory",
        ],
        &[(Device, "current device:")],
    ),
    device(Hip, &["failed: out of memory", "failed with error: out of memory"], &[])
        .also(&["hipmalloc"]),
    device(
        CudaRuntime,
        &[
            "cuda error: out of memory",
            "cuda: out of memory",
            "[cuda] out of memory",
            "cuda driver error: out of memory",
            "gpuassert: out of memory",
            "cumemalloc failed: out of memory",
            "cuda runtime error (2) : out of memory",
            "cuda runtime error (2): out of memory",
            "error=2 : out of memory",
            "cuda_error_out_of_memory",
            "cudaerrormemoryallocation",
            "cuda failure 'out of memory'",
            "cuda failure 2: out of memory",
            "cuda failure 2 'out of memory'",
            "cuda error 2: out of memory",
        ],
        &[
            (Requested, "failed to alloc "),
            (Requested, "allocation of size"),
            (Requested, "failed to allocate "),
            (Requested, "requested memory:"),
            (Free, "free memory:"),
            (Device, "current device:"),
        ],
    ),
    device(
        CudaRuntime,
        &["cuda error 2", "cuda error: 2", "cuda error code=2(", "cuda runtime error in"],
        &[],
    )
    .also(&["out of memory", "memoryallocation"]),
    device(CudaRuntime, &["failed: out of memory", "failed with error: out of memory"], &[])
        .also(&["cudamalloc", "cuda"]),
    device(CudaRuntime, &["curesult error result=2 "], &[]),
    // Triton as it loads a kernel; OpenCV.
    device(
        CudaRuntime,
        &["triton error [cuda]: out of memory", "gpu api call) out of memory"],
        &[],
    ),
    // NVIDIA Warp, MLX.
    device(
        CudaRuntime,
        &["bytes on device 'cuda:"],
        &[(Requested, "failed to allocate"), (Device, "'cuda:")],
    )
    .also(&["failed to allocate"]),
    device(
        Other,
        &["[malloc] unable to allocate", "[malloc_or_wait] unable to allocate"],
        &[(Requested, "unable to allocate")],
    ),
    device(Other, &["erroroutofdevicememory", "vk_error_out_of_device_memory"], &[]),
    // What is left of messages whose beginning is lost, or was typed by hand.
    device(
        Cuda,
        &[
            "total capacity;",
            "has a total capac",
            "already allocated;",
            "reserved in total by pytorch",
            "is reserved by pytorch but unallocated",
        ],
        &[],
    )
    .long()
    .read(readers::torch),
    device(Cuda, &["tried to allocate"], &[])
        .also(&[" out of "])
        .if_holds(asks_for_memory)
        .read(readers::torch),
    device(
        Cuda,
        &[
            "cuda out of memory",
            "hip out of memory",
            "xpu out of memory",
            "npu out of memory",
            "outofmemoryerror",
        ],
        &[],
    )
    .if_holds(is_exception)
    .read(readers::torch),
];
