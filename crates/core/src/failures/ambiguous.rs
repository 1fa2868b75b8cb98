//! Errors that have often this cause, and sometimes another.

use crate::failures::{
    Backend, Failure,
    verdict::{Cause, Verdict, verdict},
};

impl Failure {
    /// An error that has other causes as well; a word of advice for each that is not memory.
    pub(super) fn ambiguous(&self) -> Verdict {
        let (why, remedies): (&str, &[&str]) = match self.backend {
            Backend::Cublas => (
                "cuBLAS could not start: most often because PyTorch's cache or another process left it no memory; an index out of range in an earlier kernel gives the same error",
                &[
                    "look at `nvidia-smi` while it fails: is the card full?",
                    "a smaller batch; if it still fails, run with CUDA_LAUNCH_BLOCKING=1 or on the CPU to see an index error (labels, vocabulary)",
                ],
            ),
            Backend::Cudnn => (
                "cuDNN found no algorithm, or got no memory: most often because the card is full; a build of torch that does not suit the GPU gives the same error",
                &[
                    "a smaller batch: if that helps, it was memory",
                    "`torch.backends.cudnn.benchmark = False`, so that no large workspaces are tried",
                    "check that this torch was built for this GPU: `torch.cuda.get_arch_list()`",
                ],
            ),
            Backend::Cusolver | Backend::Cusparse | Backend::Hip => (
                "the library could not start, or got no memory to work in: most often because PyTorch's cache or another process left the card no memory",
                &[
                    "look at `nvidia-smi` (`rocm-smi`) while it fails: is the card full?",
                    "`torch.cuda.empty_cache()` before the first use of the library, or its first use at the program's beginning",
                    "a smaller batch, or fewer matrices at a time",
                ],
            ),
            Backend::Cufft if self.text.contains("INTERNAL_ERROR") => (
                "cuFFT failed while it made a plan. A full card gives no clearer message than this; a cuFFT that is older than the card (CUDA 11.7 and before on Ada) gives the same one",
                &[
                    "a smaller batch, or `torch.cuda.empty_cache()` before the first transform: if that helps, it was memory",
                    "if it fails on an empty card: a torch built for a newer CUDA",
                ],
            ),
            Backend::Cufft => (
                "cuFFT got no memory for a plan: most often because the card is full; PyTorch keeps plans of all sizes that it has met, with what each of them took",
                &[
                    "`torch.backends.cuda.cufft_plan_cache[0].clear()`, or a smaller `max_size`, where inputs have many lengths",
                    "a smaller batch; lengths that are a power of two need less",
                ],
            ),
            Backend::Host => (
                "a process was ended by signal 9, which no program sends itself: most often the kernel or a container's limit, because the host's memory (RAM) ran out; a batch system's time limit and `kill -9` look the same. A GPU that is full raises an error instead",
                &[
                    "who it was: `dmesg -T | grep -i killed`, `kubectl describe pod`, `sacct -j JOB --format=State,MaxRSS`",
                    "if it was memory: fewer DataLoader workers, a smaller `prefetch_factor`, weights by `torch.load(..., mmap=True)` or from safetensors",
                    "a larger memory limit of the container or the job",
                ],
            ),
            Backend::TensorFlow => (
                "a copy to the card had nowhere to go: most often because the card was full before the program began (TensorFlow takes nearly all of it at once)",
                &[
                    "`nvidia-smi`: is there another process, such as a notebook that still runs?",
                    "`tf.config.experimental.set_memory_growth(gpu, True)` in each program that shares the card",
                ],
            ),
            Backend::Cuda if self.text.contains("NVML_SUCCESS") => (
                "PyTorch's allocator ran out and asked NVML who else has memory, but NVML did not answer (a container, a MIG slice, a Jetson, a driver that was updated under way)",
                &[
                    "treat it as out of memory: a smaller batch; if `nvidia-smi` works where this runs, the ordinary message comes, with numbers",
                ],
            ),
            Backend::Cuda => (
                "an assertion inside the allocator, which fails when the driver has no memory left to map",
                &[
                    "treat it as out of memory; without expandable_segments the ordinary message comes, with numbers",
                ],
            ),
            _ => (
                "the driver is out of resources. Most often that is memory; a kernel that wants too many registers or too much local memory gets the same error",
                &[
                    "a smaller batch: if that helps, it was memory",
                    "a newer driver and library, if it fails at any size",
                ],
            ),
        };
        verdict(Cause::Unknown, why, remedies)
    }
}
