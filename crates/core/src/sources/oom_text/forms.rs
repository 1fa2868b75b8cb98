//! Every kind of message that is known: its words, who says it, and beside which words its numbers stand.
//! What takes more than that to read is in `readers`.

use Backend::{
    Bitsandbytes, Cublas, Cuda, CudaMallocAsync, CudaRuntime, Cudnn, Cufft, Cupy, Cusolver,
    Cusparse, Ggml, Hip, Mps, Mxnet, Nccl, Npu, OnnxRuntime, Other, Paddle, Rmm, Sglang,
    TensorFlow, TensorRt, Triton, Vllm, Xla, Xpu,
};
use Kind::{NotMemory, Perhaps, Warning};
use Number::{Allocated, Capacity, Device, Free, FreeBefore, Limit, Requested, RequestedBefore};

use crate::{
    failures::{Backend, Kind},
    sources::oom_text::{
        form::{Form, Number, device, form, host, is_exception},
        hosts, readers, strangers,
    },
};

/// All of them; of several that are in one line, the first is meant.
pub(super) const FORMS: &[&[Form]] =
    &[DEVICES, hosts::CLEAR, AFTER_HOSTS, hosts::SHARED, strangers::FORMS];

/// What is said by who was to give memory of a device.
const DEVICES: &[Form] = &[
    form(
        NotMemory,
        Triton,
        &["out of resource: ", "outofresources"],
        &[(Requested, "required"), (Limit, "hardware limit")],
    ),
    // Said before anything else about the same failure.
    device(
        Nccl,
        &["nccl error in", "nccl warn cuda failure"],
        &[
            (Requested, "failed to cuda malloc"),
            (Requested, "failed to cuda calloc async"),
            (Requested, "failed to cuda calloc"),
        ],
    )
    .also(&["out of memory", "failed to cuda malloc", "failed to cuda calloc"])
    .long(),
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
    ),
    device(OnnxRuntime, &["not enough memory resources are available"], &[])
        .also(&["onnxruntime", "dmlexecutionprovider"]),
    device(OnnxRuntime, &["cuda failure 2: out of memory"], &[(Device, "gpu=")])
        .also(&["onnxruntime"]),
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
            "prefill out of memory. try to lower your batch size",
            "decode out of memory. try to lower your batch size",
        ],
        &[],
    )
    .plain(),
    device(Other, &["no executable batch size found"], &[]),
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
    device(Mps, &["kiogpucommandbuffercallbackerroroutofmemory"], &[]),
    device(
        Mps,
        &["[metal::malloc]"],
        &[(Requested, "attempting to allocate"), (Limit, "buffer size of")],
    ),
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
    form(Warning, Other, &["ran out of memory when regular"], &[]).also(&["retrying"]),
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
    form(Perhaps, Cuda, &["cudacachingallocator.cpp"], &[]).if_holds(|it| {
        let asserts = ["handles_", "nvml_success =="];
        it.lower.contains("internal assert failed")
            && asserts.iter().any(|one| it.lower.contains(one))
    }),
    device(Xpu, &["ur_result_error_out_of_device_memory", "pi_error_out_of_device_memory"], &[]),
    form(Perhaps, Xpu, &["ur_result_error_out_of_resources", "pi_error_out_of_resources"], &[]),
    form(Perhaps, Other, &["status_error_out_of_resources", "cl_out_of_resources"], &[]),
    form(Perhaps, Other, &[": out_of_resources"], &[]).also(&["opencl", "failed: out_of_res"]),
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
    device(Npu, &["el0004:"], &[]).also(&["allocate memory"]).long(),
    device(Other, &["device out of memory. allocation failed"], &[(Requested, "for size::")]),
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

/// After what hosts say in clear words.
const AFTER_HOSTS: &[Form] = &[
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
    device(
        TensorFlow,
        &[
            "failed to allocate memory from device",
            "ran out of memory trying to allocate",
            "from device: cuda_error_out_of_memory",
        ],
        &[
            (Requested, "(rounded to"),
            (Requested, "trying to allocate"),
            (Requested, "failed to allocate"),
            (Device, "(gpu_"),
        ],
    )
    .also(&["tensorflow", "bfc", "stream_executor"]),
    form(Perhaps, TensorFlow, &["dst tensor is not initialized"], &[]),
    device(
        Paddle,
        &["out of memory error on gpu"],
        &[(Device, "on gpu"), (Requested, "cannot allocate"), (Free, "available memory is only")],
    )
    .plain()
    .read(readers::paddle),
    device(Paddle, &["enforce allocating <= available failed"], &[]).read(readers::paddle_enforce),
    // Libraries of NVIDIA.
    form(
        Perhaps,
        Cublas,
        &["cublas_status_alloc_failed", "cublas runtime error : resource allocation failed"],
        &[],
    ),
    form(Perhaps, Hip, &["hipblas_status_alloc_failed", "rocblas_status_memory_error"], &[]),
    form(Perhaps, Cublas, &["cublas_status_not_initialized"], &[]).also(&["cublascreate"]),
    device(
        Cudnn,
        &["cudnn_status_alloc_failed", "cudnn_status_internal_error_device_allocation_failed"],
        &[],
    ),
    host(&["cudnn_status_internal_error_host_allocation_failed"], &[]),
    form(
        Perhaps,
        Cudnn,
        &[
            "unable to find a valid cudnn algorithm",
            "no valid convolution algorithms available in cudnn",
            "could not create cudnn handle",
            "unable to find an engine to execute this computation",
        ],
        &[],
    ),
    form(Perhaps, Cusolver, &["cusolver_status_alloc_failed"], &[]),
    form(Perhaps, Cusparse, &["cusparse_status_alloc_failed"], &[]),
    form(Perhaps, Cufft, &["cufft_alloc_failed"], &[]),
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
    device(Ggml, &["cuda error 2 at ggml-cuda"], &[(Device, "current device:")])
        .also(&["out of memory"])
        .long(),
    device(Bitsandbytes, &["error out of memory at line"], &[]),
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
    device(Other, &["out of gpu memory trying to allocate"], &[(Requested, "trying to allocate")]),
    device(Other, &["is out of gpu memory", "ran out of gpu memory", "out of video memory"], &[]),
    device(Other, &["nrt_tensor_allocate"], &[]).also(&["allocation failure"]),
    form(Perhaps, Other, &["could not create a memory object"], &[]),
    device(Other, &["device lost"], &[]).also(&["out of memory"]),
    device(Other, &["mem_object_allocation_failure"], &[]),
    device(
        Other,
        &["there is not enough gpu video memory available"],
        &[(Requested, "could not allocate tensor with")],
    ),
    // The CUDA runtime and driver, whoever called them.
    device(
        CudaRuntime,
        &[
            "cuda error: out of memory",
            "cuda: out of memory",
            "[cuda] out of memory",
            "cuda driver error: out of memory",
            "hip error: out of memory",
            "gpuassert: out of memory",
            "cumemalloc failed: out of memory",
            "hiperroroutofmemory",
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
        .also(&["cudamalloc", "cuda", "hipmalloc"]),
    // Triton as it loads a kernel; OpenCV.
    device(
        CudaRuntime,
        &[
            "triton error [cuda]: out of memory",
            "triton error [hip]: out of memory",
            "gpu api call) out of memory",
        ],
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
    // What is left of messages whose beginning is lost.
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

/// Some word of each form's words, so that most lines of a log need not be looked at twice.
pub(super) const TRIGGERS: &[&str] = &[
    "memor",
    "pytorch",
    "rmm",
    "storage",
    "requested bytes",
    "bus error",
    "shm",
    "</torch_",
    "mmap",
    "alloc",
    "capac",
    "cudnn",
    "nccl",
    "cuda",
    "kill",
    "137",
    "resource",
    "oom",
    "error",
    "-9",
    "dst tensor",
    "convolution",
    "batch size",
    "engine to execute",
    "mem-fraction",
    "new constant",
    "number of tokens",
    "cublas",
    "el0004",
    "not a failure",
    "buffer size",
    "available ram",
    "memlimit",
    "device lost",
    "errno",
    "sigterm",
    "signal 9",
    "paging file",
    "not enough",
    "vram",
    "out_of_me",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::oom_text::form::is_worth;

    #[test]
    fn every_word_is_worth_a_look() {
        for words in FORMS.iter().copied().flatten().flat_map(|it| it.words) {
            assert!(is_worth(words), "{words}");
            assert_eq!(*words, words.to_ascii_lowercase());
        }
    }
}
