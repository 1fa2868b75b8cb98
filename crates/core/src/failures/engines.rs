//! What engines, loaders and trainers count themselves before anything is taken, and say in words of their own: a share of the card, the
//! key-value cache, weights that a device map puts elsewhere.

use crate::{
    failures::{
        Failure,
        verdict::{Cause, Verdict, verdict},
    },
    units::Bytes,
};

/// The largest CUDA context of the catalogue's cards is smaller; a program of somebody else's has a context, too, and something beside it.
const OF_A_CONTEXT: Bytes = Bytes::gib(1);
/// The name of the number that the person set for the cache, so that the engine computed none.
pub(crate) const SET_CACHE: &str = "kv_cache_memory_bytes";

impl Failure {
    /// vLLM wants a share of the whole card, and knows how much of it is free.
    pub(super) fn share_too_large(&self, capacity: Bytes, free: Bytes) -> Verdict {
        let taken = capacity.saturating_sub(free);
        let mut res = if taken <= OF_A_CONTEXT {
            let why = format!(
                "the engine's `gpu_memory_utilization` asks for more than the {free} of {capacity} that are free when it starts; the other {taken} are about what its own CUDA context takes"
            );
            verdict(Cause::Limit, why, &[])
        } else {
            self.others_have(taken)
        };
        let percent = (free.0.saturating_mul(100) / capacity.0.max(1)).min(99);
        res.remedies.insert(
            0,
            format!(
                "set `gpu_memory_utilization=0.{percent:02}` or less: that share is free, if it is enough for the model"
            ),
        );
        res
    }

    /// The whole number behind `words`, which are in lower case; thousands may be parted by commas.
    pub(super) fn number_after(&self, words: &str) -> Option<String> {
        let lower = self.text.to_ascii_lowercase();
        let (_, rest) = lower.split_once(words)?;
        let mut digits: String =
            rest.chars().take_while(|it| it.is_ascii_digit() || *it == ',').collect();
        digits.retain(|it| it != ',');
        (!digits.is_empty()).then_some(digits)
    }

    /// vLLM says how long a sequence may be for the keys and values that it has room for.
    pub(super) fn cache_too_small(&self, requested: Bytes, free: Bytes) -> Verdict {
        let shorter = match self.number_after("maximum model length is ") {
            None => "a smaller `max_model_len`".to_owned(),
            Some(len) => format!("set `max_model_len={len}` or less: vLLM reports that this fits"),
        };
        verdict(
            Cause::Size,
            format!(
                "the key-value cache of one full-length sequence needs {requested}, and {free} are free beside the weights and a forward pass"
            ),
            &[
                &shorter,
                if self.numbers.iter().any(|(name, _)| name == SET_CACHE) {
                    "set a larger `kv_cache_memory_bytes` (`--kv-cache-memory-bytes`), or leave it out: vLLM then takes what `gpu_memory_utilization` allows"
                } else {
                    "set a higher `gpu_memory_utilization`, if no other process needs the card"
                },
                "set `kv_cache_dtype=\"fp8\"`, which halves the cache, or `tensor_parallel_size`, which spreads it over cards",
            ],
        )
    }

    /// Versions that count it in tokens.
    pub(super) fn longer_than_the_cache(&self) -> Verdict {
        let shorter = match self.number_after("stored in kv cache (") {
            None => "a smaller `max_model_len`".to_owned(),
            Some(len) => format!("set `max_model_len={len}` or less: that many tokens fit"),
        };
        verdict(
            Cause::Size,
            "a request of the model's full length has more tokens than the key-value cache holds beside the weights and a forward pass",
            &[
                &shorter,
                "set a higher `gpu_memory_utilization`, if no other process needs the card",
                "set `kv_cache_dtype=\"fp8\"`, which halves the cache, or `tensor_parallel_size`, which spreads it over cards",
            ],
        )
    }

    /// SGLang plans its cache before any pass, from what the weights leave of its share.
    pub(super) fn no_cache_in_sglang(&self) -> Verdict {
        let share = "`--mem-fraction-static`";
        let text = self.text.to_ascii_lowercase();
        let above = text.split_once("raise --mem-fraction-static above ").and_then(|it| {
            let end = it.1.find(|it: char| !it.is_ascii_digit() && it != '.');
            it.1.get(..end.unwrap_or(it.1.len()))
        });
        let above = above.map_or_else(String::new, |it| {
            format!(": SGLang reports that the weights alone take {it}")
        });
        let states = if text.contains("hybrid") { " and for the states of requests" } else { "" };
        verdict(
            Cause::Size,
            format!(
                "the weights take all of the share of the card that {share} gives the engine: no memory remains for the key-value cache{states}"
            ),
            &[
                &format!(
                    "set a larger {share}{above}; what remains of the card is for passes and CUDA graphs"
                ),
                "put fewer weights on this card: a quantized model, or several cards (`--tp-size`)",
                "a smaller `--context-length` helps once there is a cache",
            ],
        )
    }

    /// SGLang's cache has no place for the tokens of the next pass.
    pub(super) fn no_place_in_the_cache(&self) -> Verdict {
        let (asked, free) =
            (self.number_after("try to allocate "), self.number_after("available tokens: "));
        let counted = match (asked, free) {
            (Some(asked), Some(free)) => format!(
                ": a pass asked for {asked} tokens, and {free} are available. A request takes whole pages, so that more of them may be needed than tokens"
            ),
            _ => String::new(),
        };
        verdict(
            Cause::Size,
            format!(
                "the server's key-value cache is full{counted}. The card itself need not be full: the cache has the size that the server gave it when it started"
            ),
            &[
                "serve fewer requests at a time: a smaller `--max-running-requests`, or a larger `--schedule-conservativeness`",
                "make the cache larger: another `--mem-fraction-static` (higher, if a forward pass still fits), `--kv-cache-dtype fp8_e5m2`, or more GPUs (`--tp-size`)",
                "set `--page-size 1`, or install a newer version: the scheduler should hold requests back before this happens",
            ],
        )
    }

    /// Forge counts before it loads a model, and shows what it counted.
    pub(super) fn weights_of_a_model(&self, requested: Bytes) -> Verdict {
        let free =
            self.free.map_or(String::new(), |it| format!(", and {it} of the card were free"));
        verdict(
            Cause::Size,
            format!(
                "the model's weights need {requested}{free}; the rest goes into the host's memory, from where a part is loaded for each layer"
            ),
            &[
                "set a smaller \"GPU Weights\", so that more of the card is free for computing, and \"Swap Location\" CPU instead of Shared",
                "load the model in a smaller type: NF4, GGUF or fp8",
                "a smaller picture, or one picture at a time",
            ],
        )
    }

    /// TensorRT-LLM's executor is made of parts, and names the one that found no room.
    pub(super) fn executor(&self) -> Verdict {
        let (_, part) = self.text.rsplit_once("memory.").unwrap_or_default();
        let part = match part.trim() {
            "" => "a part of it",
            part => part,
        };
        let had = match (self.free, self.capacity) {
            (Some(free), Some(capacity)) => {
                format!(": {free} of {capacity} were free before, which was not enough")
            }
            _ => String::new(),
        };
        let why =
            format!("TensorRT-LLM could not make its executor, for want of memory for {part}{had}");
        verdict(Cause::Size, why, self.offers())
    }
}

/// Weights and a pass leave nothing of vLLM's share of the card for keys and values.
pub(super) fn no_cache() -> Verdict {
    let share = "gpu_memory_utilization";
    verdict(
        Cause::Size,
        format!(
            "the weights and a forward pass take all of the share of the card that `{share}` gives the engine: no memory remains for the key-value cache"
        ),
        &[
            &format!("set a larger `{share}`, if no other process needs the card"),
            "put fewer weights on this card: a quantized model, or several cards (tensor parallel)",
            "make a forward pass smaller: fewer tokens and requests at a time; a smaller `max_model_len` helps once there is a cache",
        ],
    )
}

/// vLLM's sleep mode takes weights and cache from the driver again.
pub(super) fn asleep() -> Verdict {
    verdict(
        Cause::Unknown,
        "vLLM's sleep mode asked the driver for memory and got none. Mostly that is `wake_up`, which takes back the weights and the key-value cache: the training beside it, or another process, holds what `sleep` had given away",
        &[
            "before `wake_up`, give the training's memory back: delete what is not needed, move its optimizer and weights to the CPU, then torch.cuda.empty_cache()",
            "set a smaller `gpu_memory_utilization` (in TRL `vllm_gpu_memory_utilization`), so that engine and training fit together",
            "check with `nvidia-smi` whether another process holds memory of the card",
        ],
    )
}

/// A quantized model that did not fit where it was to be.
pub(super) fn dispatched() -> Verdict {
    verdict(
        Cause::Size,
        "the quantized model does not fit the free memory of the GPUs: `device_map=\"auto\"` put a part of it onto the CPU or the disk, where bitsandbytes cannot quantize",
        &[
            "free the GPU first (`nvidia-smi` shows who has its memory; in a notebook restart the kernel), or use a larger GPU or several",
            "load in 4 bits instead of 8, or a smaller model",
            "`llm_int8_enable_fp32_cpu_offload=True` with a `device_map` of your own runs, but the modules on the CPU stay in 32 bits and are slow",
        ],
    )
}

/// A model that did not fit where it was to be, and that something can only use there.
pub(super) fn offloaded() -> Verdict {
    verdict(
        Cause::Size,
        "the weights do not fit the free memory of the GPU: `device_map=\"auto\"` put a part of them into the host's memory or onto the disk, and they cannot be trained or moved from there",
        &[
            "free the GPU first (`nvidia-smi` shows who has its memory; in a notebook restart the kernel); after a training, delete the trained model before the base model is loaded again",
            "load in 4 bits: `quantization_config=BitsAndBytesConfig(load_in_4bit=True)`, or a smaller model",
            "`device_map={\"\": 0}` keeps all of it on the GPU, and shows with numbers where that runs out",
            "only to merge an adapter: load the base model with `device_map=\"cpu\"`",
        ],
    )
}

/// Unsloth computes logits in chunks, each as large as the free memory allows.
pub(super) fn no_logits() -> Verdict {
    verdict(
        Cause::Size,
        "the card is full before the loss: unsloth computes the logits in chunks of the free memory, and found none free",
        &[
            "a smaller `per_device_train_batch_size` or `max_seq_length`",
            "`use_gradient_checkpointing=\"unsloth\"` in `get_peft_model`, which moves the layers' inputs into the host's memory",
            "free the GPU first: `nvidia-smi` shows who else has its memory",
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{failures::Backend, sources::oom_text};

    fn verdict_of(text: &str) -> Verdict {
        oom_text::read(text).remove(0).verdict()
    }

    #[test]
    fn vllm_without_room_for_one_sequence_is_told_how_long_one_may_be() {
        let found = verdict_of(
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is \
             needed, which is larger than the available KV cache memory (7.34 GiB). Based on the available memory, the \
             estimated maximum model length is 60096. Try increasing `gpu_memory_utilization` or decreasing \
             `max_model_len` when initializing the engine.",
        );
        assert_eq!(found.cause, Cause::Size);
        assert!(found.why.contains("16.00 GiB, and 7.34 GiB are free"), "{}", found.why);
        assert!(found.remedies[0].starts_with("set `max_model_len=60096`"), "{:?}", found.remedies);
    }

    #[test]
    fn a_share_of_the_card_that_is_not_free_is_made_smaller() {
        let text = "ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB).";
        assert_eq!(oom_text::read(text)[0].device, None);
        for (text, share) in [(text.to_owned(), "0.80"), (text.replace("3.22/", "4.0/"), "0.99")] {
            let found = verdict_of(&text);
            let expected = format!("set `gpu_memory_utilization={share}`");
            assert!(found.remedies[0].starts_with(&expected), "{:?}", found.remedies);
        }
    }

    #[test]
    fn weights_that_a_device_map_put_elsewhere_are_told_as_too_large() {
        for (text, words) in [
            (
                "ValueError: We need an `offload_dir` to dispatch this model according to this `device_map`, the following submodules need to be offloaded: model.layers.20.",
                "do not fit the free memory",
            ),
            (
                "ValueError: The current `device_map` had weights offloaded to the disk. Please provide an `offload_folder` for them.",
                "do not fit the free memory",
            ),
            (
                "ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision with CPU or disk offload.",
                "do not fit the free memory",
            ),
            (
                "RuntimeError: You can't move a model that has some modules offloaded to cpu or disk.",
                "do not fit the free memory",
            ),
            (
                "NotImplementedError: Cannot copy out of meta tensor; no data!",
                "no data on any device",
            ),
            (
                "RuntimeError: Unsloth: No or negligible GPU memory available for fused cross entropy.",
                "before the loss",
            ),
            (
                "Error out of memory at line 351 in file /home/developer/bitsandbytes/csrc/pythonInterface.c",
                "A paged optimizer",
            ),
        ] {
            let found = verdict_of(text);
            assert!(found.why.contains(words), "{text}: {}", found.why);
        }
    }

    #[test]
    fn what_accelerate_and_unsloth_say_is_theirs() {
        for (text, backend, words) in [
            (
                "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.",
                Backend::Accelerate,
                "device_map",
            ),
            (
                "ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision with CPU or disk offload.",
                Backend::Accelerate,
                "do not fit the free memory",
            ),
            (
                "RuntimeError: No executable batch size found, reached zero.",
                Backend::Accelerate,
                "every batch size failed",
            ),
            (
                "RuntimeError: Unsloth: No or negligible GPU memory available for fused cross entropy.",
                Backend::Unsloth,
                "before the loss",
            ),
        ] {
            let found = &oom_text::read(text)[0];
            assert_eq!(found.backend, backend, "{text}");
            let verdict = verdict_of(text);
            assert!(verdict.why.contains(words), "{text}: {}", verdict.why);
        }
    }

    #[test]
    fn an_engine_that_has_no_cache_is_told_what_took_its_share() {
        for (text, words, remedy) in [
            (
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
                "no memory remains for the key-value cache",
                "set a larger `gpu_memory_utilization`",
            ),
            (
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
                "no memory remains for the key-value cache",
                "set a larger `--mem-fraction-static`",
            ),
            (
                "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.13. Raise --mem-fraction-static above 0.138 (minimum viable = 1 - available/pre = 0.1376). If using speculative decoding, draft weights are now counted.",
                "the weights take all of the share",
                "set a larger `--mem-fraction-static`: SGLang reports that the weights alone take 0.138;",
            ),
            (
                "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed max_mamba_cache_size=0 (total_rest_memory=0.01 GB, mamba_cache_per_req=24.10 MB). Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or (4) use GPUs with more memory.",
                "for the states of requests",
                "set a larger `--mem-fraction-static`",
            ),
            (
                "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (60096).",
                "more tokens than the key-value cache holds",
                "set `max_model_len=60096`",
            ),
            (
                "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
                "sleep mode",
                "before `wake_up`",
            ),
        ] {
            let found = verdict_of(text);
            assert!(found.why.contains(words), "{text}: {}", found.why);
            assert!(found.remedies[0].starts_with(remedy), "{text}: {:?}", found.remedies);
        }
    }

    #[test]
    fn advice_is_for_the_program_that_asked() {
        let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.14 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the allocated memory 74.44 GiB is allocated by PyTorch, and 61.30 MiB is reserved by PyTorch but unallocated.";
        let frame = |file: &str, function: &str| {
            format!(
                "Traceback (most recent call last):\n  File \"{file}\", line 5, in {function}\n{message}"
            )
        };
        for (file, function, remedy) in [
            (
                "/lib/vllm/v1/worker/gpu_model_runner.py",
                "capture_model",
                "set a smaller `gpu_memory_utilization`",
            ),
            ("/lib/vllm/v1/worker/gpu_model_runner.py", "load_model", "if the weights do not fit"),
            ("/lib/vllm/v1/worker/gpu_model_runner.py", "profile_run", "make a pass smaller"),
            (
                "/lib/sglang/srt/model_executor/model_runner.py",
                "forward",
                "leave more memory beside",
            ),
            ("/home/u/ComfyUI/nodes.py", "decode", "decode in tiles"),
            ("/home/u/train.py", "main", "if earlier steps ran"),
        ] {
            let found = verdict_of(&frame(file, function));
            assert!(
                found.remedies[0].starts_with(remedy),
                "{file} {function}: {:?}",
                found.remedies
            );
        }
        let report = "- **Node Type:** VAEDecodeTiled\n- **Exception Type:** torch.OutOfMemoryError\n- **Exception Message:** Allocation on device \n## Stack Trace\n\n  File \"C:\\ComfyUI\\execution.py\", line 327, in execute\n";
        assert!(verdict_of(report).remedies[0].starts_with("decode in tiles"));
        assert_eq!(oom_text::read(report).len(), 1);
    }

    #[test]
    fn a_training_beside_an_engine_is_a_training() {
        let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.14 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the allocated memory 74.44 GiB is allocated by PyTorch, and 61.30 MiB is reserved by PyTorch but unallocated.";
        let log = |file: &str| {
            format!(
                "INFO 05-07 02:13:52 [gpu_worker.py:298] Sleep mode freed 35.43 GiB memory.\nTraceback (most recent call last):\n  File \"{file}\", line 5, in step\n{message}\nINFO 05-07 02:13:53 [core.py:1] Shutting down."
            )
        };
        let first = |file: &str| verdict_of(&log(file)).remedies[0].clone();
        assert!(first("/home/u/grpo.py").starts_with("if earlier steps ran"));
        assert!(first("/lib/vllm/v1/worker/gpu_worker.py").contains("gpu_memory_utilization"));
        let piece = message.replace("61.30 MiB", "11.30 GiB").replace("74.44", "63.20");
        let found = verdict_of(&log("/lib/vllm/v1/worker/gpu_worker.py").replace(message, &piece));
        assert_eq!(found.cause, Cause::Fragmentation);
        assert!(found.remedies.iter().all(|it| !it.contains("training")), "{:?}", found.remedies);
    }
}
