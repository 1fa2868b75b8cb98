//! What a message says about a request for memory that failed: who refused, the numbers that stand in
//! the text, and what follows from them by arithmetic. The texts themselves are `sources`' to know.
//!
//! A text never says what the memory was used for, nor whether it grew; `Cause` claims neither.

mod ambiguous;
mod cause;
mod engines;
mod host;
mod instead;
mod makers;
mod others;
mod program;
mod verdict;

pub(crate) use cause::{NO_CARD_HAS, SHAPES};
pub(crate) use engines::SET_CACHE;
pub use host::HostMemory;
pub use instead::Instead;
pub(crate) use program::{GROWS, SMALLER};
pub use verdict::{Cause, Verdict};

use crate::{
    recording::{CodeLine, Phase},
    units::Bytes,
};

/// Who refused the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// PyTorch's caching allocator on CUDA.
    #[default]
    Cuda,
    /// The same on ROCm.
    Hip,
    /// PyTorch on Intel's GPUs.
    Xpu,
    /// PyTorch on Apple's GPUs.
    Mps,
    /// PyTorch on Ascend.
    Npu,
    /// `cudaMallocAsync` behind PyTorch.
    CudaMallocAsync,
    /// A call of the CUDA runtime or driver, not of an allocator.
    CudaRuntime,
    /// cuBLAS, which could not have its handle or workspace.
    Cublas,
    /// cuDNN, likewise.
    Cudnn,
    /// NCCL.
    Nccl,
    /// JAX, or XLA below it.
    Xla,
    /// TensorFlow.
    TensorFlow,
    /// ONNX Runtime.
    OnnxRuntime,
    /// vLLM's own accounting.
    Vllm,
    /// bitsandbytes.
    Bitsandbytes,
    /// Accelerate, and what transformers and PEFT say of its device maps.
    Accelerate,
    /// unsloth.
    Unsloth,
    /// ggml, as in llama.cpp.
    Ggml,
    /// `CuPy`, and Chainer on it.
    Cupy,
    /// `PaddlePaddle`.
    Paddle,
    /// PyTorch on Cambricon.
    Mlu,
    /// PyTorch on Moore Threads.
    Musa,
    /// cuSOLVER, like cuBLAS.
    Cusolver,
    /// cuSPARSE, like cuBLAS.
    Cusparse,
    /// cuFFT, like cuBLAS.
    Cufft,
    /// `TensorRT`.
    TensorRt,
    /// `TensorRT-LLM`'s executor.
    TensorRtLlm,
    /// `CTranslate2`, as in faster-whisper.
    Ctranslate2,
    /// MLX on Apple's GPUs.
    Mlx,
    /// `MXNet`.
    Mxnet,
    /// RAPIDS' memory manager.
    Rmm,
    /// UCX, which moves data between processes and machines.
    Ucx,
    /// Text Generation Inference's own accounting.
    Tgi,
    /// `SGLang`'s own accounting.
    Sglang,
    /// Triton.
    Triton,
    /// ExLlama's own accounting.
    Exllama,
    /// PyTorch on Intel's Gaudi.
    Hpu,
    /// AWS Neuron.
    Neuron,
    /// DirectML, on any maker's GPU under Windows.
    DirectMl,
    /// HAMi, which shares a GPU among the pods of Kubernetes.
    Hami,
    /// The host's memory.
    Host,
    /// Nobody that we know.
    Other,
}

/// Whether something failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Device memory ran out.
    #[default]
    OutOfMemory,
    /// Memory of the host ran out, not of the GPU.
    HostOutOfMemory,
    /// An error that has often this cause, and sometimes another.
    MaybeOutOfMemory,
    /// Device memory ran out, and the program went on without what it was for.
    Caught,
    /// A line that says itself that it is no failure.
    Warning,
    /// It was not memory.
    NotMemory(Instead),
}

/// A kind of program that is known by its frames or its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Program {
    /// The log does not show it.
    #[default]
    Unknown,
    /// vLLM's engine.
    Vllm,
    /// `SGLang`'s engine.
    Sglang,
    /// `ComfyUI`, or a pipeline of diffusers.
    Pictures,
    /// One of another language or library, which PyTorch is no part of.
    NotTorch,
}

/// What is done to a checkpoint, as the frames of a traceback show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfCheckpoint {
    /// `torch.load` reads it.
    Load,
    /// The whole state of a model whose parameters are in pieces is gathered, to store it or to fill it in.
    Gather,
}

/// One failure, as a text tells it. A number that does not stand there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    /// Whether something failed.
    pub kind: Kind,
    /// Who says so.
    pub backend: Backend,
    /// The exception's class, as it stands there.
    pub exception: Option<String>,
    /// The device index.
    pub device: Option<u32>,
    /// What was asked for.
    pub requested: Option<Bytes>,
    /// What the device has.
    pub capacity: Option<Bytes>,
    /// What the device had left.
    pub free: Option<Bytes>,
    /// What PyTorch's tensors had.
    pub allocated: Option<Bytes>,
    /// What PyTorch's allocator held, allocated or not.
    pub reserved: Option<Bytes>,
    /// Reserved and not allocated.
    pub slack: Option<Bytes>,
    /// Of the allocated, what sits in private pools (CUDA graphs).
    pub private_pools: Option<Bytes>,
    /// What this process had on the device, everything counted.
    pub process: Option<Bytes>,
    /// Other processes that the message names, by process id.
    pub processes: Vec<(u32, Bytes)>,
    /// The limit that was set for this process.
    pub limit: Option<Bytes>,
    /// Every other number with what stands before it.
    pub numbers: Vec<(String, Bytes)>,
    /// The rank whose line it is.
    pub rank: Option<u32>,
    /// The program whose line it is, where a log has several: what stands before `|`.
    pub writer: Option<String>,
    /// The process id in the line's prefix.
    pub pid: Option<u32>,
    /// The line of the text, from 1.
    pub at: usize,
    /// The line of the text that its traceback begins at; its own, if it has none.
    pub began: usize,
    /// How often it is there, this time included.
    pub times: u64,
    /// The message ends in the middle.
    pub clipped: bool,
    /// The message without prefixes, as one line.
    pub text: String,
    /// The innermost line of the traceback in the user's own code.
    pub user_frame: Option<CodeLine>,
    /// The innermost line of the traceback.
    pub innermost: Option<CodeLine>,
    /// The program that asked, where the log shows it.
    pub program: Program,
    /// A collective between the ranks timed out before.
    pub is_after_a_timeout: bool,
    /// What was done to a checkpoint at that time.
    pub checkpoint: Option<OfCheckpoint>,
    /// It was a compiler that was ended, while something was built.
    pub is_build: bool,
    /// The size that was requested is below zero, more than 64 bits can say, or more than any card has.
    pub is_no_size: bool,
    /// What the traceback says it was doing.
    pub phase: Option<Phase>,
    /// How far the run was, in the log's own words (`450/1000`).
    pub progress: Option<String>,
}

impl Backend {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Backend::Cuda => "cuda",
            Backend::Hip => "hip",
            Backend::Xpu => "xpu",
            Backend::Mps => "mps",
            Backend::Npu => "npu",
            Backend::CudaMallocAsync => "cuda_malloc_async",
            Backend::CudaRuntime => "cuda_runtime",
            Backend::Cublas => "cublas",
            Backend::Cudnn => "cudnn",
            Backend::Nccl => "nccl",
            Backend::Xla => "xla",
            Backend::TensorFlow => "tensorflow",
            Backend::OnnxRuntime => "onnxruntime",
            Backend::Vllm => "vllm",
            Backend::Bitsandbytes => "bitsandbytes",
            Backend::Accelerate => "accelerate",
            Backend::Unsloth => "unsloth",
            Backend::Ggml => "ggml",
            Backend::Cupy => "cupy",
            Backend::Paddle => "paddle",
            Backend::Mlu => "mlu",
            Backend::Musa => "musa",
            Backend::Cusolver => "cusolver",
            Backend::Cusparse => "cusparse",
            Backend::Cufft => "cufft",
            Backend::TensorRt => "tensorrt",
            Backend::TensorRtLlm => "tensorrt_llm",
            Backend::Ctranslate2 => "ctranslate2",
            Backend::Mlx => "mlx",
            Backend::Mxnet => "mxnet",
            Backend::Rmm => "rmm",
            Backend::Ucx => "ucx",
            Backend::Tgi => "tgi",
            Backend::Sglang => "sglang",
            Backend::Triton => "triton",
            Backend::Exllama => "exllama",
            Backend::Hpu => "hpu",
            Backend::Neuron => "neuron",
            Backend::DirectMl => "directml",
            Backend::Hami => "hami",
            Backend::Host => "host",
            Backend::Other => "other",
        }
    }

    /// Its name among people.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Cuda => "PyTorch on CUDA",
            Backend::Hip => "PyTorch on ROCm",
            Backend::Xpu => "PyTorch on an Intel GPU",
            Backend::Mps => "PyTorch on Apple's GPU (MPS)",
            Backend::Npu => "PyTorch on an Ascend NPU",
            Backend::CudaMallocAsync => "PyTorch with cudaMallocAsync",
            Backend::CudaRuntime => "the CUDA runtime",
            Backend::Cublas => "cuBLAS",
            Backend::Cudnn => "cuDNN",
            Backend::Nccl => "NCCL",
            Backend::Xla => "JAX/XLA",
            Backend::TensorFlow => "TensorFlow",
            Backend::OnnxRuntime => "ONNX Runtime",
            Backend::Vllm => "vLLM",
            Backend::Bitsandbytes => "bitsandbytes",
            Backend::Accelerate => "Accelerate",
            Backend::Unsloth => "unsloth",
            Backend::Ggml => "ggml (llama.cpp)",
            Backend::Cupy => "CuPy",
            Backend::Paddle => "PaddlePaddle",
            Backend::Mlu => "PyTorch on a Cambricon MLU",
            Backend::Musa => "PyTorch on a Moore Threads GPU",
            Backend::Cusolver => "cuSOLVER",
            Backend::Cusparse => "cuSPARSE",
            Backend::Cufft => "cuFFT",
            Backend::TensorRt => "TensorRT",
            Backend::TensorRtLlm => "TensorRT-LLM",
            Backend::Ctranslate2 => "CTranslate2",
            Backend::Mlx => "MLX",
            Backend::Mxnet => "MXNet",
            Backend::Rmm => "RAPIDS (RMM)",
            Backend::Ucx => "UCX",
            Backend::Tgi => "Text Generation Inference",
            Backend::Sglang => "SGLang",
            Backend::Triton => "Triton",
            Backend::Exllama => "ExLlama",
            Backend::Hpu => "PyTorch on an Intel Gaudi (HPU)",
            Backend::Neuron => "AWS Neuron",
            Backend::DirectMl => "PyTorch with DirectML",
            Backend::Hami => "HAMi's limit for a pod",
            Backend::Host => "the host",
            Backend::Other => "an unknown library",
        }
    }
}

impl Kind {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::OutOfMemory => "out_of_memory",
            Kind::HostOutOfMemory => "host_out_of_memory",
            Kind::MaybeOutOfMemory => "perhaps_out_of_memory",
            Kind::Caught => "caught",
            Kind::Warning => "warning",
            Kind::NotMemory(_) => "not_device_memory",
        }
    }

    /// Whether memory ran out, of the device or of the host.
    pub fn is_oom(self) -> bool {
        matches!(
            self,
            Kind::OutOfMemory | Kind::HostOutOfMemory | Kind::MaybeOutOfMemory | Kind::Caught
        )
    }
}
