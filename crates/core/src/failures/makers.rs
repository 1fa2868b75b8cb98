//! What differs from maker to maker: the command that shows who has a device's memory, the variables that
//! choose devices and set up PyTorch's allocator, and what a library offers against its own failures.

use crate::failures::{Backend, Failure};

impl Failure {
    /// The command that shows who has the device's memory; a library of several makers' devices names them in its message.
    pub fn monitor(&self) -> &'static str {
        let lower = self.text.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|it| lower.contains(it));
        if has(&["rocm", "hip_error", "hip error", "hiperror", "hipmalloc"]) {
            Backend::Hip.monitor()
        } else if has(&["ggml_metal", "kiogpu"]) {
            Backend::Mps.monitor()
        } else if self.is_tpu() {
            "tpu-info"
        } else if has(&["device:dml", "dmlexecutionprovider"]) {
            Backend::DirectMl.monitor()
        } else if has(&["nvmap"]) {
            "tegrastats"
        } else if has(&["vulkan"]) {
            "nvtop"
        } else {
            self.backend.monitor()
        }
    }

    /// What the library that failed offers itself.
    pub(super) fn offers(&self) -> &'static [&'static str] {
        match self.backend {
            _ if self.is_tpu() => TPU,
            _ if self.text.contains("[TM]") => TURBOMIND,
            _ if self.text.contains("text_embeddings") => EMBEDDINGS,
            Backend::Mps if self.text.contains("ggml") => Backend::Ggml.offers(),
            it => it.offers(),
        }
    }

    fn is_tpu(&self) -> bool {
        let lower = self.text.to_ascii_lowercase();
        self.backend == Backend::Xla
            && ["xla:tpu", "memory space hbm", "bottom of memory"]
                .iter()
                .any(|it| lower.contains(it))
    }
}

const TPU: &[&str] = &[
    "use a smaller batch, `jax.checkpoint`, or `donate_argnums` for arguments that a step replaces",
    "spread the model over more chips: shard parameters and optimizer state",
    "free the chip of earlier programs: restart the notebook or the process that uses it",
];

/// LMDeploy's engine.
const TURBOMIND: &[&str] = &[
    "a smaller share for keys and values, of what is free beside the weights: `--cache-max-entry-count 0.4` (0.8 is usual); what a pass needs has to be free beside it",
    "a smaller pass: `--max-prefill-token-num`, `--max-batch-size`, `--session-len`; keys and values in 8 bits (`--quant-policy 8`), or more GPUs (`--tp`)",
];
/// text-embeddings-inference.
const EMBEDDINGS: &[&str] = &[
    "a smaller `--max-batch-tokens`: its warm-up makes one batch of that size; then fewer of `--max-batch-requests`",
    "a smaller type (`--dtype float16`), or a shorter longest text (`--auto-truncate`)",
];

impl Backend {
    /// The command that shows who has the device's memory.
    fn monitor(self) -> &'static str {
        match self {
            Backend::Hip => "rocm-smi --showpids",
            Backend::Xpu => "xpu-smi ps",
            Backend::Npu => "npu-smi info",
            Backend::Mlu => "cnmon",
            Backend::Musa => "mthreads-gmi",
            Backend::Mps | Backend::Mlx => "footprint -a",
            Backend::Hpu => "hl-smi",
            Backend::Neuron => "neuron-top",
            Backend::DirectMl => "taskmgr",

            _ => "nvidia-smi",
        }
    }

    /// The variable that chooses which devices a process sees, if there is one that we know.
    pub(super) fn visible_devices(self) -> &'static str {
        match self {
            Backend::Hip => "HIP_VISIBLE_DEVICES",
            Backend::Xpu => "ZE_AFFINITY_MASK",
            Backend::Npu => "ASCEND_RT_VISIBLE_DEVICES",
            Backend::Mlu => "MLU_VISIBLE_DEVICES",
            Backend::Musa => "MUSA_VISIBLE_DEVICES",
            _ => "CUDA_VISIBLE_DEVICES",
        }
    }

    /// The setting against pieces, as this build of PyTorch reads it.
    pub(super) fn expandable_segments(self) -> &'static str {
        match self {
            Backend::Hip => {
                "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF from torch 2.9 on)"
            }
            Backend::Npu => "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
            Backend::Mlu => "PYTORCH_MLU_ALLOC_CONF=expandable_segments:True",
            Backend::Musa => "PYTORCH_MUSA_ALLOC_CONF=expandable_segments:True",
            Backend::Xpu => "PYTORCH_ALLOC_CONF=expandable_segments:True (from torch 2.9 on)",
            _ => {
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF from torch 2.9 on)"
            }
        }
    }

    /// What it offers itself.
    fn offers(self) -> &'static [&'static str] {
        match self {
            Backend::Xla => &[
                "use a smaller batch, `jax.checkpoint`, or `donate_argnums` for arguments that a step replaces",
                "set XLA_PYTHON_CLIENT_PREALLOCATE=false where another program shares the card: JAX takes three quarters of it at its start",
            ],
            Backend::TensorFlow => &[
                "a smaller batch or input",
                "`tf.config.experimental.set_memory_growth(gpu, True)` in each program that shares the card: TensorFlow takes nearly all of it at its start",
            ],
            Backend::Ggml => &[
                "fewer layers on the GPU: `--n-gpu-layers`, in Ollama `num_gpu`",
                "a shorter context (`-c`, `num_ctx`), or keys and values in 8 bits (`--cache-type-k q8_0 --cache-type-v q8_0`)",
            ],
            Backend::OnnxRuntime => &[
                "a smaller batch or input; fewer sessions and threads at a time",
                "set `arena_extend_strategy=kSameAsRequested` for the CUDA provider: its arena doubles otherwise",
            ],
            Backend::TensorRt => &[
                "a smaller workspace limit, a smaller largest shape in the profile",
                "TensorRT skips tactics that do not fit; only the end of the log shows whether it built the engine",
            ],
            Backend::TensorRtLlm => &[
                "a smaller share of what is free for the cache: `KvCacheConfig(free_gpu_memory_fraction=0.8)`, `--kv_cache_free_gpu_memory_fraction`",
                "a smaller pass: `--max_num_tokens`, `--max_batch_size`, `--max_seq_len`; quantized weights, or more GPUs (`--tp_size`)",
            ],
            Backend::Exllama => &[
                "a shorter `max_seq_len`, or a cache in fewer bits (`cache_mode` Q8, Q6 or Q4): the cache is taken whole when the model is loaded",
                "a model in fewer bits a weight, or more of it elsewhere: another GPU (`gpu_split`), in ExLlamaV3 experts in the host's memory (`cpu_moe_offload_layers`)",
                "less memory held back for each GPU (`autosplit_reserve`)",
            ],
            Backend::Hpu => &["a smaller batch or input"],
            Backend::Neuron => &[
                "fewer models and workers at a time on one core, a smaller batch or sequence, or the model spread over more cores (tensor parallel)",
                "end processes that still have cores: `neuron-ls` names them",
            ],
            Backend::DirectMl => &[
                "a smaller batch or picture; close other programs that draw on this GPU",
                "if memory stays full after a job, end the program and start it again for the next",
            ],
            Backend::Hami => &["ask for more in the pod: `nvidia.com/gpumem`"],
            Backend::Ctranslate2 => &[
                "a smaller type: `compute_type=\"int8_float16\"` or `\"int8\"`, or a smaller model",
                "`beam_size=1` and a smaller `batch_size`; of one model several workers (`num_workers`) take more",
                "CT2_CUDA_ALLOCATOR=cub_caching, where the driver's own pool refuses although memory is free",
            ],
            Backend::Mlx => &[
                "the GPU shares the computer's memory: close other programs, use a smaller or quantized model, a shorter context, smaller prompts at a time",
                "free MLX's cache: `mx.clear_cache()`, `mx.set_cache_limit(BYTES)`; evaluate long loops in steps (`mx.eval`)",
                "let the GPU have a larger share of the memory: `sudo sysctl iogpu.wired_limit_mb=MB`",
            ],
            Backend::Vllm => &[
                "a smaller `max_model_len` or `max_num_seqs`; `enforce_eager=True` saves the memory of CUDA graphs",
                "another `gpu_memory_utilization`: higher, if no other process needs the card; the lines before show what weights and a forward pass need",
            ],
            Backend::Sglang => &[
                "another `--mem-fraction-static`: higher for weights and cache, lower for a forward pass",
                "a smaller `--chunked-prefill-size`, `--cuda-graph-max-bs` or `--max-running-requests`",
            ],
            Backend::Tgi => &[
                "a smaller `--max-batch-prefill-tokens`, then a smaller `--max-input-tokens` and `--max-total-tokens`",
                "a quantized model (`--quantize`), or more GPUs (`--num-shard`)",
            ],
            Backend::Cupy => &[
                "smaller arrays at a time; `cupy.get_default_memory_pool().free_all_blocks()` between phases",
            ],
            Backend::Rmm => &[
                "`rmm.reinitialize(managed_memory=True)`: data may be larger than the card, but is slower",
                "smaller partitions, and spilling (`CUDF_SPILL=on`)",
            ],
            Backend::Ucx => &[
                "leave memory free beside the application's pool: UCX takes its buffers from the driver (a smaller `rmm_pool_size`, or a pool that grows)",
                "put UCX's own buffers into the host's memory: UCX_RNDV_FRAG_MEM_TYPE=host",
            ],
            Backend::Paddle => &[
                "a smaller batch",
                "FLAGS_allocator_strategy=auto_growth and a smaller FLAGS_fraction_of_gpu_memory_to_use, where others share the card",
            ],
            Backend::Mxnet => {
                &["a smaller batch; MXNET_GPU_MEM_POOL_TYPE=Round against fragmentation"]
            }
            Backend::Mps => &[
                "a smaller batch; the GPU shares the computer's memory, so close other programs",
                "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 removes the limit, but the system may stall",
            ],
            Backend::Nccl => &[
                "limit PyTorch, so that memory is free for NCCL: torch.cuda.set_per_process_memory_fraction(0.95)",
                "fewer and smaller buffers: NCCL_BUFFSIZE, NCCL_MAX_NCHANNELS; no more process groups than needed",
            ],
            _ => &[],
        }
    }

    /// What it is called, if it is a framework of its own, so that nothing of PyTorch was in it.
    pub fn instead_of_torch(self) -> Option<&'static str> {
        match self {
            Backend::Xla => Some("JAX (XLA)"),
            Backend::TensorFlow => Some("TensorFlow"),
            Backend::Ggml => Some("llama.cpp's library ggml, which Ollama uses, too"),
            Backend::Paddle => Some("PaddlePaddle"),
            Backend::Mxnet => Some("MXNet"),
            Backend::Mlx => Some("MLX"),
            _ => None,
        }
    }

    /// Whether a run of PyTorch on CUDA can be what failed, so that it can be run on a phantom.
    pub fn may_be_torch_on_cuda(self) -> bool {
        matches!(
            self,
            Backend::Cuda
                | Backend::CudaMallocAsync
                | Backend::CudaRuntime
                | Backend::Cublas
                | Backend::Cudnn
                | Backend::Cusolver
                | Backend::Cusparse
                | Backend::Cufft
                | Backend::Nccl
                | Backend::Bitsandbytes
                | Backend::Accelerate
                | Backend::Unsloth
                | Backend::Triton
                | Backend::Other
        )
    }
}
