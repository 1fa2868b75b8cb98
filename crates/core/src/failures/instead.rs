//! Errors beside which memory is looked for, and that have another cause.

use crate::{
    failures::verdict::{Cause, Verdict, verdict},
    units::Bytes,
};

/// What was wrong, where it was not memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instead {
    /// A kernel wants more of a multiprocessor's shared memory than there is.
    KernelSharedMemory,
    /// The same of a kernel that a search for the fastest only tried.
    TriedKernel,
    /// A program for a TPU wants more of a core's own memory than there is.
    CoreMemory,
    /// A library's buffer of a fixed size is too small for a pass.
    Workspace,
    /// A kernel was launched with more blocks or threads than CUDA can count, or with none.
    LaunchShape,
    /// A disk has no space for a file.
    Disk,
    /// A kernel wants more registers or threads than a multiprocessor has.
    LaunchResources,
    /// An index is outside of a tensor, and every call of CUDA fails since.
    Index,
    /// The loader has no place for a library's thread-local storage.
    StaticTls,
    /// Too many threads or processes.
    Threads,
    /// Too many open files.
    OpenFiles,
    /// Metal counts the buffers of a program, and has a limit on their number.
    MetalBuffers,
    /// A GPU encodes only so many videos at a time.
    EncoderSessions,
    /// A program counted before it loaded a model, and did not load it.
    NotLoaded,
    /// A page of a browser may use so much and no more.
    BrowserHeap,
    /// The driver does not know a call, mostly that of expandable segments.
    DriverCall,
}

impl Instead {
    /// Of a request for so much of something that had so much, where the text has these numbers.
    pub(super) fn verdict(self, requested: Option<Bytes>, had: Option<Bytes>) -> Verdict {
        let (why, remedies): (&str, &[&str]) = match self {
            Instead::KernelSharedMemory => (
                "a kernel needs more shared memory than a multiprocessor has. That is fast memory inside the chip, not GPU memory; a smaller batch does not help",
                &[
                    "use smaller block sizes or fewer `num_stages` in the kernel",
                    "install a newer version of the library that owns the kernel: its defaults suit another GPU",
                ],
            ),
            Instead::TriedKernel => (
                "autotuning tried a kernel that needs more shared memory than a multiprocessor has, dropped it, and goes on with others. That is fast memory inside the chip, not GPU memory, and nothing failed",
                &["do nothing, unless an error follows"],
            ),
            Instead::CoreMemory => {
                let (asked, most) = (requested.unwrap_or_default(), had.unwrap_or_default());
                return verdict(
                    Cause::Unknown,
                    format!(
                        "one operation of the compiled program needs {asked} of a TPU core's own memory (vmem or smem), which has {most}. That is fast memory inside the chip, not its HBM, and XLA should have stayed within it; a smaller batch need not help"
                    ),
                    &[
                        "write the operation at that line in another way, or smaller: fewer columns or operands at a time, in a Pallas kernel smaller blocks",
                        "allow more where the chip has more: LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=KIB",
                        "install a newer libtpu, jax or torch_xla",
                    ],
                );
            }
            Instead::Workspace => {
                let had = had.map_or(String::new(), |it| format!(", and has {it}"));
                return verdict(
                    Cause::Unknown,
                    format!(
                        "FlashInfer's workspace is too small: the pass needs {} of a buffer whose size was set at the start{had}. The GPU's memory did not run out",
                        requested.unwrap_or_default()
                    ),
                    &[
                        "set a larger workspace: in SGLang SGLANG_FLASHINFER_WORKSPACE_SIZE=BYTES, in your own code the buffer that the wrapper gets",
                        "or make a pass smaller: `--chunked-prefill-size` in SGLang, `max_num_batched_tokens` in vLLM",
                        "install a newer version of the engine, or choose another attention backend",
                    ],
                );
            }
            Instead::LaunchShape => (
                "a kernel was launched with more blocks or threads than CUDA can count, or with none: a grid may have 65535 blocks in its second and third dimension. GPU memory did not run out",
                &[
                    "compute the batch in parts: its size, times heads or windows, is mostly what the grid counts. In attention, move such a dimension to another place, or call `F.scaled_dot_product_attention`",
                    "check for a tensor without elements: a size of 0 gives the same error",
                    "install a newer version of the library that owns the kernel",
                ],
            ),
            Instead::Disk => (
                "a file could not be written whole: mostly the disk, or the quota of a user on it, is full. Memory did not run out",
                &[
                    "see with `df -h FOLDER` and `quota` what is free where the file was to be, and delete what nobody needs, such as older checkpoints",
                    "write fewer and smaller checkpoints: in the Trainer `save_total_limit`, and `save_only_model` where no training is resumed",
                ],
            ),
            Instead::LaunchResources => (
                "a kernel was launched with more threads than its registers allow on this GPU. GPU memory did not run out, and a smaller batch does not help",
                &[
                    "launch the kernel with fewer threads for each block, or compile it with `__launch_bounds__` or `-maxrregcount`",
                    "compile the extension for this GPU (TORCH_CUDA_ARCH_LIST), or install a newer version of it",
                ],
            ),
            Instead::Index => (
                "an index is out of range: a kernel's assertion failed, and since then every CUDA call of the process fails, cuBLAS with messages that look like missing memory",
                &[
                    "run with CUDA_LAUNCH_BLOCKING=1, or on the CPU, to see the line: the line in this traceback may be a later one",
                    "check that labels lie in 0..number of classes, token ids below the size of the embedding table (after tokens were added: `model.resize_token_embeddings`), and positions below the longest length",
                ],
            ),
            Instead::StaticTls => (
                "the dynamic loader has no space for a library's thread-local storage (static TLS). No memory ran out: the library was loaded too late",
                &[
                    "import the library that is named before torch and others, as the program's first import",
                    "or load it first: `LD_PRELOAD=/path/of/the/library.so python ...`, with the path in the message",
                    "a newer glibc (2.32 and later) or a newer wheel of the library does not need either",
                ],
            ),
            Instead::Threads => (
                "the process may start no more threads: a limit on threads or processes was reached. Memory did not run out",
                &[
                    "start fewer threads: OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1, and fewer DataLoader workers",
                    "raise the limit: `ulimit -u`, in a container `--pids-limit`",
                ],
            ),
            Instead::MetalBuffers => (
                "the program has more Metal buffers at a time than MLX allows: a limit on their number, not on bytes. Mostly the graph of operations that nothing evaluated became too long, or MLX's cache has many small buffers",
                &[
                    "free MLX's cache: `mx.clear_cache()` after each request or step",
                    "evaluate more often: `mx.eval` in each turn of a loop; process long prompts in smaller parts",
                ],
            ),
            Instead::DriverCall => (
                "the driver does not support a call that the program made. Memory did not run out. Mostly it is PyTorch's `expandable_segments:True`, which needs virtual memory management: many vGPUs, Jetsons and older drivers do not have it",
                &[
                    "take `expandable_segments:True` out of PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF. Some libraries set it themselves when they are imported (unsloth does): set the variable to another value after the import, before the first tensor is on the GPU",
                    "if it is not set: run with CUDA_LAUNCH_BLOCKING=1 to see which call fails, and install a newer driver",
                ],
            ),
            Instead::EncoderSessions => (
                "the GPU's video encoder got no session. The driver says so both where the encoder has as many sessions as it may have (consumer cards encode a few videos at a time, in all programs together) and where the card is full",
                &[
                    "run `nvidia-smi`: where the card has free memory, it is the number of sessions. End other programs that encode or record the screen, or encode fewer videos at a time",
                    "a newer driver allows more sessions; `-c:v libx264` encodes on the CPU",
                ],
            ),
            Instead::NotLoaded => (
                "nothing ran out: the program estimated that the model needs more memory than the computer has free, and did not load it",
                &[
                    "close other programs, unload other models, or choose a smaller or more quantized model",
                    "a shorter context, and fewer layers on the GPU, make the estimate smaller",
                    "if the estimate is wrong: relax the loading guardrails in the settings",
                ],
            ),
            Instead::BrowserHeap => {
                let asked = requested.map_or(String::new(), |it| format!(" of {it}"));
                return verdict(
                    Cause::Unknown,
                    format!(
                        "the page got no piece{asked} of the memory that a browser lets WebAssembly use (at most 4 GiB in 32 bits, of which the model's file takes its own size more than once while it is loaded). Neither the GPU nor the computer need be full"
                    ),
                    &[
                        "a smaller or more quantized model (`dtype: \"q4f16\"`), or one whose weights are in external data files",
                        "load one model at a time, in a page that has just been opened; `dispose()` those that are done",
                    ],
                );
            }
            Instead::OpenFiles => (
                "the process has too many open files; memory did not run out. Each tensor from a DataLoader worker keeps a file open until the tensor is freed",
                &[
                    "run `ulimit -n 65536` before the program starts",
                    "call `torch.multiprocessing.set_sharing_strategy('file_system')` at the program's start",
                    "do not store batches that workers made; store copies (`copy.deepcopy(batch)`)",
                ],
            ),
        };
        verdict(Cause::Unknown, why, remedies)
    }
}
