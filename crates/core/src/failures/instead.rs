//! Errors beside which memory is looked for, and that have another cause.

use crate::failures::verdict::{Cause, Verdict, verdict};

/// What was wrong, where it was not memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instead {
    /// A kernel wants more of a multiprocessor's shared memory than there is.
    KernelSharedMemory,
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
}

impl Instead {
    pub(super) fn verdict(self) -> Verdict {
        let (why, remedies): (&str, &[&str]) = match self {
            Instead::KernelSharedMemory => (
                "a kernel needs more shared memory than a multiprocessor has. That is fast memory inside the chip, not GPU memory; a smaller batch does not help",
                &[
                    "use smaller block sizes or fewer `num_stages` in the kernel",
                    "install a newer version of the library that owns the kernel: its defaults suit another GPU",
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
