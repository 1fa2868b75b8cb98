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
                "cuBLAS could not start, mostly because PyTorch's cache or another process holds all memory. An index out of range in an earlier kernel gives the same error",
                &[
                    "check with `nvidia-smi`, while it fails, whether the card is full",
                    "try a smaller batch; if it still fails, run with CUDA_LAUNCH_BLOCKING=1 or on the CPU to see an index error (labels, vocabulary)",
                ],
            ),
            Backend::Cudnn => (
                "cuDNN found no algorithm or got no memory, mostly because the card is full. A build of torch without support for the GPU gives the same error",
                &[
                    "try a smaller batch: if it helps, memory was the cause",
                    "set `torch.backends.cudnn.benchmark = False`, so that cuDNN tries no large workspaces",
                    "check that this torch supports this GPU: `torch.cuda.get_arch_list()`",
                ],
            ),
            Backend::Hip => (
                "hipBLAS or rocBLAS could not start or got no workspace memory, mostly because PyTorch's cache or another process holds all memory",
                &[
                    "check with `rocm-smi --showpids`, while it fails, whether the card is full",
                    "try a smaller batch",
                ],
            ),
            Backend::Cusolver | Backend::Cusparse => (
                "the library could not start or got no workspace memory, mostly because PyTorch's cache or another process holds all memory",
                &[
                    "check with `nvidia-smi`, while it fails, whether the card is full",
                    "call `torch.cuda.empty_cache()` before the first use of the library, or use the library once at the program's start",
                    "try a smaller batch, or fewer matrices at a time",
                ],
            ),
            Backend::Cufft if self.text.contains("INTERNAL_ERROR") => (
                "cuFFT failed to make a plan. A full card gives this message; so does a cuFFT that is older than the card (CUDA 11.7 and before on Ada)",
                &[
                    "try a smaller batch, or `torch.cuda.empty_cache()` before the first transform: if it helps, memory was the cause",
                    "if it fails on an empty card, install a torch built for a newer CUDA",
                ],
            ),
            Backend::Cufft => (
                "cuFFT got no memory for a plan, mostly because the card is full. PyTorch caches a plan for each size, with its memory",
                &[
                    "if inputs have many lengths: `torch.backends.cuda.cufft_plan_cache[0].clear()`, or a smaller `max_size`",
                    "try a smaller batch; lengths that are a power of two need less",
                ],
            ),
            Backend::CudaRuntime => (
                "CUDA could not start: the driver answered \"out of memory\" when it was asked for the devices, before the program had used one. Mostly another process has filled the card; under WSL, in containers and with a driver that does not match, the host has too little memory for CUDA's own",
                &[
                    "check with `nvidia-smi` whether another process fills the card, and whether `nvidia-smi` itself works",
                    "under WSL: `wsl --shutdown`, a larger `memory=` in .wslconfig, and a current driver of Windows; none of NVIDIA's drivers inside of WSL",
                    "in a container: check `ulimit -v`, `ulimit -l` and the memory limit",
                ],
            ),
            Backend::Ggml => (
                "the process that runs the model ended without an error of its own. Mostly memory ran out, of the GPU or of the host; a crash inside of it looks the same",
                &[
                    "read the server's own log (`journalctl -u ollama`, `~/.ollama/logs/server.log`): it says what was requested",
                    "fewer layers on the GPU (`num_gpu`), a shorter context (`num_ctx`), or a smaller model",
                ],
            ),
            Backend::Neuron => (
                "the Neuron runtime had too little of something to load a model, mostly of the device's memory. Too few free cores give the same code",
                &[
                    "see with `neuron-top` and `neuron-ls` what the cores have, and end processes that are not needed",
                    "fewer models or workers at a time, or the model spread over more cores",
                ],
            ),
            Backend::Host => return self.host_perhaps(),
            Backend::Xpu if self.text.contains("DEVICE_LOST") => (
                "the driver lost the device. Intel's driver does so where memory runs out; a kernel that hangs or a fault of the driver gives the same error",
                &[
                    "check with `xpu-smi ps`, while it fails, whether the card is full",
                    "try a smaller batch: if it helps, memory was the cause",
                    "if it fails at any size, install a newer driver",
                ],
            ),
            Backend::Xpu => (
                "Intel's driver is out of resources, mostly out of memory. A kernel that needs too many registers or too much local memory gets the same error",
                &[
                    "check with `xpu-smi ps`, while it fails, whether the card is full",
                    "try a smaller batch: if it helps, memory was the cause",
                    "if it fails at any size, install a newer driver and library",
                ],
            ),
            Backend::Other if self.text.contains("meta tensor") => (
                "some weights have no data on any device. Mostly `device_map=\"auto\"` put them into the host's memory or onto the disk, because the GPU was too full, and the script then moves the model. A model that was made on the device `meta` gives the same error",
                &[
                    "free the GPU first (`nvidia-smi` shows who has its memory), and load in 4 or 8 bits",
                    "remove `.to(\"cuda\")` after `from_pretrained(..., device_map=...)`; with `device_map={\"\": 0}` the error is an out-of-memory error with numbers",
                    "if the script makes the model on `meta` itself: `to_empty(device=...)`, then load the weights",
                ],
            ),
            Backend::TensorFlow => (
                "a copy to the card failed, mostly because the card was full before the program began (TensorFlow takes nearly all of it at once)",
                &[
                    "check with `nvidia-smi` for another process, such as a notebook that still runs",
                    "`tf.config.experimental.set_memory_growth(gpu, True)` in each program that shares the card",
                ],
            ),
            Backend::Cuda if self.text.contains("NVML_SUCCESS") => (
                "PyTorch's allocator ran out and asked NVML about other processes, but NVML did not answer (a container, a MIG slice, a Jetson, a driver that was updated meanwhile)",
                &[
                    "treat it as out of memory: try a smaller batch. Where `nvidia-smi` works, PyTorch prints its usual message, with numbers",
                ],
            ),
            Backend::Cuda => (
                "an assertion in PyTorch's allocator failed; it fails when the driver has no more memory to map",
                &[
                    "treat it as out of memory; without expandable_segments PyTorch prints its usual message, with numbers",
                ],
            ),
            _ => (
                "the driver is out of resources, mostly out of memory. A kernel that needs too many registers or too much local memory gets the same error",
                &[
                    "try a smaller batch: if it helps, memory was the cause",
                    "if it fails at any size, install a newer driver and library",
                ],
            ),
        };
        verdict(Cause::Unknown, why, remedies)
    }
}
