//! Which program asked for the memory, where its log shows that: what helps a training does not help an engine or a workflow
//! that makes pictures.

use crate::failures::{Backend, Failure, Kind, Program};

/// What a message cannot show.
pub(crate) const GROWS: &str = "if earlier steps ran, check what grows: a list of losses or outputs, evaluation without no_grad, longer inputs";
/// What helps a program that needs more than there is.
pub(crate) const SMALLER: [&str; 2] = [
    "use a smaller micro-batch with gradient accumulation",
    "use bf16 autocast, activation checkpointing, or an optimizer with less state",
];

/// Weights that are too large for the card.
const WEIGHTS: &str = "if the weights do not fit: a quantized model, more cards (`tensor_parallel_size`), or `cpu_offload_gb`";
/// What a pass of the engine takes.
const PASS: &str = "make a pass smaller: `max_num_batched_tokens`, `max_num_seqs`";
/// What graphs take.
const GRAPHS: &str =
    "capture fewer CUDA graphs: a shorter `cudagraph_capture_sizes`, or `enforce_eager=True`";
/// The cache takes the rest of the engine's share.
const SHARE: &str = "set a smaller `gpu_memory_utilization`: the key-value cache takes the rest of that share, and what the engine needs later has to be free beside it";

impl Failure {
    /// Whether CUDA did not even start.
    pub fn is_before_any_use(&self) -> bool {
        self.kind == Kind::MaybeOutOfMemory && self.backend == Backend::CudaRuntime
    }

    /// Whether `plimsoll` could run what failed, where its command is known: engines have a command of their own for that, and of a page of nodes
    /// there is none.
    pub fn is_of_a_script(&self, has_command: bool) -> bool {
        match self.program {
            Program::Unknown => true,
            Program::Pictures => has_command,
            Program::Vllm | Program::Sglang | Program::NotTorch => false,
        }
    }

    /// What makes a request of this program smaller, the likeliest first.
    pub(super) fn smaller(&self) -> Vec<&'static str> {
        match self.program {
            Program::Unknown => vec![GROWS, SMALLER[0], SMALLER[1]],
            Program::NotTorch => vec!["a smaller input, or fewer of them at a time"],
            Program::Vllm => self.smaller_in_vllm(),
            Program::Sglang => vec![
                "leave more memory beside weights and cache: a smaller `--mem-fraction-static`",
                "make a pass smaller: `--chunked-prefill-size`, `--max-running-requests`; capture fewer CUDA graphs: `--cuda-graph-max-bs`",
                "if the weights do not fit: a quantized model, or more cards (`--tp-size`)",
            ],
            Program::Pictures => vec![
                "decode in tiles: `pipe.vae.enable_tiling()`, in ComfyUI the node \"VAE Decode (Tiled)\"; a smaller picture, fewer frames or pictures at a time",
                "keep only the part that works on the GPU: `pipe.enable_model_cpu_offload()`, in ComfyUI `--lowvram`",
                "load the weights in a smaller type (fp8, GGUF)",
            ],
        }
    }

    fn smaller_in_vllm(&self) -> Vec<&'static str> {
        let innermost = self.innermost.as_ref();
        let is_at = |words: &[&str]| {
            innermost.is_some_and(|it| {
                words.iter().any(|word| it.function.contains(word) || it.text.contains(word))
            })
        };
        if is_at(&["load_model", "load_weights", "create_weights", "process_weights", "get_model"])
        {
            vec![WEIGHTS, "free the card first: another program may have its memory"]
        } else if is_at(&["profile_run", "determine_", "_dummy_run"]) {
            vec![PASS, WEIGHTS]
        } else if is_at(&["capture"]) {
            vec![SHARE, GRAPHS, PASS]
        } else {
            vec![SHARE, PASS, GRAPHS, WEIGHTS]
        }
    }
}
