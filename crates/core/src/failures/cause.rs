//! What the numbers of a message say about the cause. Arithmetic only: whether memory grew, and what it
//! was for, no message says.

use crate::{
    failures::{Backend, Failure, Kind},
    units::Bytes,
};

/// Why it did not fit, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The program needs more than there is.
    Size,
    /// More and more is kept, step by step.
    Leak,
    /// Enough was free, in pieces.
    Fragmentation,
    /// A limit that the process set itself.
    Limit,
    /// Somebody else has the memory.
    OtherProcess,
    /// CUDA graphs or a `MemPool` hold it.
    PrivatePools,
    /// Not the GPU's memory.
    Host,
    /// The numbers do not say.
    Unknown,
}

impl Cause {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Size => "size",
            Cause::Leak => "leak",
            Cause::Fragmentation => "fragmentation",
            Cause::Limit => "limit",
            Cause::OtherProcess => "other_process",
            Cause::PrivatePools => "private_pools",
            Cause::Host => "host",
            Cause::Unknown => "unknown",
        }
    }
}

/// A cause with the sentences that lead to it and away from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// Why we think so, with the numbers.
    pub why: String,
    /// What to try, the most promising first.
    pub remedies: Vec<String>,
}

impl Failure {
    /// The cause, as far as the numbers say.
    pub fn verdict(&self) -> Verdict {
        match self.kind {
            Kind::HostOutOfMemory => self.host(),
            Kind::Warning => verdict(
                Cause::Unknown,
                "the line says itself that nothing failed: the library asked for scratch memory, did not get it, and went on with less",
                &["nothing has to be done, unless an error follows it"],
            ),
            Kind::NotMemory => verdict(
                Cause::Unknown,
                "a kernel wants more shared memory than a multiprocessor has; that is fast memory inside the chip, not the GPU's memory, and no batch size changes it",
                &[
                    "smaller block sizes or fewer `num_stages` in the kernel",
                    "a newer version of the library that owns the kernel: its defaults are made for another GPU",
                ],
            ),
            Kind::Perhaps => self.perhaps(),
            Kind::OutOfMemory => self.device(),
        }
    }

    fn host(&self) -> Verdict {
        if self.text.contains("shared memory") {
            return verdict(
                Cause::Host,
                "the host's shared memory (`/dev/shm`), through which DataLoader workers hand over batches, is full; the GPU is not involved",
                &[
                    "in a container: `docker run --shm-size=8g`, or `--ipc=host`; in Kubernetes an `emptyDir` with `medium: Memory` at /dev/shm",
                    "fewer DataLoader workers, or a smaller `prefetch_factor`",
                    "`torch.multiprocessing.set_sharing_strategy('file_system')`, where it cannot be made larger",
                ],
            );
        }
        let asked = self.requested.map_or(String::new(), |it| format!(", asked for {it}"));
        verdict(
            Cause::Host,
            format!("the host's memory (RAM) ran out{asked}; the GPU is not involved"),
            &[
                "fewer DataLoader workers, a smaller `prefetch_factor`, no `pin_memory` for large batches",
                "load weights with `torch.load(..., mmap=True)` or from safetensors, and onto the device at once (`map_location`)",
                "raise the container's memory limit, or look for another process with `free -h` and `top`",
            ],
        )
    }

    /// An error that has other causes as well; a word of advice for each that is not memory.
    fn perhaps(&self) -> Verdict {
        let (why, remedies): (&str, &[&str]) = match self.backend {
            Backend::Cublas => (
                "cuBLAS could not have its handle: most often because PyTorch's cache or another process left it no memory; an index out of range in an earlier kernel gives the same error",
                &[
                    "look at `nvidia-smi` while it fails: is the card full?",
                    "a smaller batch; if it still fails, run with CUDA_LAUNCH_BLOCKING=1 or on the CPU to see an index error (labels, vocabulary)",
                ],
            ),
            Backend::Cudnn => (
                "cuDNN found no algorithm, or could not have its memory: most often because the card is full; a build of torch that does not suit the GPU gives the same error",
                &[
                    "a smaller batch: if that helps, it was memory",
                    "`torch.backends.cudnn.benchmark = False`, so that no large workspaces are tried",
                    "check that this torch was built for this GPU: `torch.cuda.get_arch_list()`",
                ],
            ),
            Backend::Cusolver | Backend::Cusparse | Backend::Hip => (
                "the library could not have its handle or its work area: most often because PyTorch's cache or another process left the card no memory",
                &[
                    "look at `nvidia-smi` while it fails: is the card full?",
                    "`torch.cuda.empty_cache()` before the first use of the library, or its first use at the program's beginning",
                    "a smaller batch, or fewer matrices at a time",
                ],
            ),
            Backend::Cufft => (
                "cuFFT could not have the work area of a plan: most often because the card is full; PyTorch keeps plans of all sizes that it has met, with what each of them took",
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
                "an assertion inside the allocator, which asks NVML who else has memory while it writes that there is none: NVML did not answer (a container, a MIG slice, a Jetson, a driver that was updated under way)",
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
                "the driver is out of resources: its memory most often, but a kernel that wants too many registers or too much local memory is told the same",
                &[
                    "a smaller batch: if that helps, it was memory",
                    "a newer driver and library, if it fails at any size",
                ],
            ),
        };
        verdict(Cause::Unknown, why, remedies)
    }

    fn device(&self) -> Verdict {
        let Some(requested) = self.requested else { return self.without_request() };
        if let Some(capacity) = self.capacity.filter(|it| *it < requested) {
            return self.larger_than(requested, capacity, "the whole card has");
        }
        if let Some(limit) = self.limit {
            if limit < requested {
                return self.larger_than(requested, limit, "this process is allowed");
            }
            // It is asked for before the driver is (`allowed_memory_maximum` in `alloc_block`).
            let held = self.reserved.unwrap_or_default();
            if self.free.is_none_or(|it| requested <= it) || limit < held + requested {
                return self.limited(limit);
            }
        }
        if self.text.contains("preemptively rejected") {
            return self.limited(Bytes::ZERO);
        }
        if self.backend == Backend::Vllm
            && let (Some(capacity), Some(free)) = (self.capacity, self.free)
        {
            // It counts before it takes anything.
            return self.others_have(capacity.saturating_sub(free));
        }
        if self.backend == Backend::Vllm
            && let Some(free) = self.free.filter(|it| *it < requested)
        {
            return self.cache_too_small(requested, free);
        }
        let free = self.free.unwrap_or_default();
        if let Some(others) = self.others() {
            let large = self.capacity.map_or(Bytes::gib(1), |it| {
                Bytes((it.0 / 10).clamp(Bytes::mib(512).0, Bytes::gib(2).0))
            });
            if large <= others && requested <= free + others && free < requested {
                return self.others_have(others);
            }
        }
        if let Some(pools) = self.private_pools
            && requested <= free + pools
            && self.slack.is_none_or(|it| it < pools)
        {
            return verdict(
                Cause::PrivatePools,
                format!(
                    "{pools} sit unused in private pools (CUDA graphs or a MemPool), which serve nobody else; {requested} would have fitted into them"
                ),
                &[
                    "capture fewer graphs or fewer batch sizes; share one pool between graphs (`pool=`)",
                    "delete graphs that are not replayed any more",
                ],
            );
        }
        if let Some(slack) = self.slack
            && free < requested
            && requested <= free + slack
            && self.is_large(slack)
        {
            return self.fragmented(requested, slack);
        }
        if self.free.is_some() && requested <= free {
            return verdict(
                Cause::Unknown,
                format!(
                    "{requested} were asked for and the device says that {free} are free; so either something was given back between the failure and the message, or the driver refuses for a reason of its own (another process in the same moment, a job's memory limit, WSL or Windows, an old driver)"
                ),
                &[
                    "run `nvidia-smi` beside it, to see who comes and goes",
                    "on Windows and WSL: a reboot, and a larger page file; in a container: `ulimit -v` and the job's memory limit",
                ],
            );
        }
        if self.allocated.is_none() && self.reserved.is_none() {
            return self.only_request(requested);
        }
        self.too_much(requested, free)
    }

    /// A sixteenth: every program has some slack, and a card that is full of tensors is full.
    fn is_large(&self, slack: Bytes) -> bool {
        let held = self.reserved.unwrap_or_default();
        held.0 / 16 < slack.0
    }

    fn larger_than(&self, requested: Bytes, most: Bytes, whose: &str) -> Verdict {
        verdict(
            Cause::Size,
            format!(
                "one request of {requested} is more than {whose} ({most}): it can never fit, whatever else is freed"
            ),
            &[
                "look at the shapes at that line: a sequence squared, a vocabulary times a batch, a size in the wrong unit, a wrong axis of a broadcast",
                "compute it in chunks, or in a smaller type",
            ],
        )
    }

    fn limited(&self, limit: Bytes) -> Verdict {
        let why = if limit == Bytes::ZERO {
            "PyTorch refused before it asked the driver: this process limits itself with set_per_process_memory_fraction (or per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF)".to_owned()
        } else {
            let free =
                self.free.map_or(String::new(), |it| format!(", while the device had {it} free"));
            format!(
                "this process may have {limit} and no more (set_per_process_memory_fraction){free}"
            )
        };
        verdict(
            Cause::Limit,
            why,
            &[
                "raise the limit, or remove it",
                "else the job has to shrink to it: a smaller batch, checkpointing, a smaller type",
            ],
        )
    }

    fn others_have(&self, others: Bytes) -> Verdict {
        let named: Vec<String> =
            self.processes.iter().map(|(pid, it)| format!("process {pid}: {it}")).collect();
        let named =
            if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
        let own = self
            .process
            .or(self.reserved)
            .map_or(String::new(), |it| format!("; this one has {it}"));
        let sure = if self.process.is_some() {
            ""
        } else {
            ", less what this process has outside PyTorch, which the message does not say"
        };
        verdict(
            Cause::OtherProcess,
            format!("{others} of the card belong to somebody else{named}{sure}{own}"),
            &[
                "`nvidia-smi` (or `fuser -v /dev/nvidia*`) shows who; a notebook or a dead run often still holds its memory: end it",
                "choose another card: CUDA_VISIBLE_DEVICES=1",
                "several ranks on one card by accident? each needs `torch.cuda.set_device(local_rank)` before it allocates",
            ],
        )
    }

    fn fragmented(&self, requested: Bytes, slack: Bytes) -> Verdict {
        verdict(
            Cause::Fragmentation,
            format!(
                "PyTorch held {slack} that no tensor used, and could not serve {requested} from it: it is in pieces that are too small, or in segments that are still partly used"
            ),
            &[
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF from torch 2.9 on), before Python starts",
                "the same shapes in every step: pad to a few lengths; run the largest batch first",
                "torch.cuda.empty_cache() between training and evaluation, not in every step",
            ],
        )
    }

    fn too_much(&self, requested: Bytes, free: Bytes) -> Verdict {
        let allocated = self.allocated.or(self.reserved).unwrap_or_default();
        let slack = self.slack.unwrap_or_default();
        let missing = requested.saturating_sub(free + slack);
        let capacity = self.capacity.map_or(String::new(), |it| format!(" of {it}"));
        let how_much = if missing == Bytes::ZERO {
            format!(
                "{free} free on the card and {slack} in pieces of what PyTorch holds are as much together, but no piece of it is: the card is as good as full"
            )
        } else {
            format!("at least {missing} too much, and nothing big is wasted")
        };
        verdict(
            Cause::Size,
            format!(
                "tensors have {allocated}{capacity}, and {requested} more were asked for: {how_much}. Whether it grew to that is not in the text"
            ),
            &[
                "did earlier steps run? Then see whether something grows: a list of losses or outputs, evaluation without no_grad, longer inputs",
                "a smaller micro-batch with gradient accumulation",
                "bf16 autocast, gradient checkpointing, an optimizer with less state",
            ],
        )
    }

    /// vLLM says how long a sequence may be for the keys and values that it has room for.
    fn cache_too_small(&self, requested: Bytes, free: Bytes) -> Verdict {
        let (_, rest) = self.text.split_once("maximum model length is ").unwrap_or_default();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let shorter = match digits.as_str() {
            "" => "a smaller `max_model_len`".to_owned(),
            len => format!("`max_model_len={len}` or less, which is what vLLM says would fit"),
        };
        verdict(
            Cause::Size,
            format!(
                "the keys and values of one sequence of the full length take {requested}, and {free} are left for them beside the weights and a forward pass"
            ),
            &[
                &shorter,
                "a higher `gpu_memory_utilization`, if nobody else needs the card",
                "`kv_cache_dtype=\"fp8\"`, which halves them; `tensor_parallel_size`, which spreads them over cards",
            ],
        )
    }

    fn only_request(&self, requested: Bytes) -> Verdict {
        let free = self.free.map_or(String::new(), |it| format!(" and {it} were free"));
        verdict(
            Cause::Unknown,
            format!("{requested} were asked for{free}; the text does not say who had the rest"),
            &[
                "`nvidia-smi` while it runs says whether it is this process",
                "record the run: see below",
            ],
        )
    }

    fn without_request(&self) -> Verdict {
        if self.limit.is_some()
            && self.reserved.zip(self.limit).is_some_and(|(held, limit)| limit.0 / 10 * 9 < held.0)
        {
            return self.limited(self.limit.unwrap_or_default());
        }
        if let (Some(capacity), Some(others)) = (self.capacity, self.others())
            && capacity.0 / 2 < others.0
        {
            return self.others_have(others);
        }
        let why = match self.backend {
            Backend::CudaRuntime | Backend::Bitsandbytes => {
                "a call of the CUDA runtime was refused, outside PyTorch's allocator, so there are no numbers: often the first call of a process on a card that others have filled, or a library that needs memory which PyTorch's cache holds"
            }
            Backend::Nccl => {
                "NCCL could not have its buffers: it takes memory outside PyTorch's allocator, and found none left"
            }
            Backend::Vllm => {
                "vLLM counted the card's memory and found too little for what it was told to take"
            }
            _ => "the text has no request, so nothing can be computed from it",
        };
        verdict(
            Cause::Unknown,
            why,
            &[
                "`nvidia-smi`: is the card full before this program starts?",
                "leave room beside PyTorch: set_per_process_memory_fraction(0.95), or `gpu_memory_utilization` in vLLM",
            ],
        )
    }
}

fn verdict(cause: Cause, why: impl Into<String>, remedies: &[&str]) -> Verdict {
    let remedies = remedies.iter().map(|it| (*it).to_owned()).collect();
    Verdict { cause, why: why.into(), remedies }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::oom_text;

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
        assert!(found.why.contains("16.00 GiB, and 7.34 GiB are left"), "{}", found.why);
        assert!(found.remedies[0].starts_with("`max_model_len=60096`"), "{:?}", found.remedies);
    }

    #[test]
    fn a_worker_without_shared_memory_is_told_from_one_without_memory() {
        let shared = verdict_of(
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that \
             dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        );
        assert!(shared.remedies[0].contains("--shm-size"), "{:?}", shared.remedies);
        let killed = verdict_of("slurmstepd: error: Detected 1 oom_kill event in StepId=918273.0.");
        assert_eq!(killed.why, "the host's memory (RAM) ran out; the GPU is not involved");
    }

    #[test]
    fn what_is_perhaps_memory_has_words_of_its_own() {
        for (text, words) in [
            ("process exited with exit code 137", "signal 9"),
            ("RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED", "cuFFT"),
            ("RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED", "its work area"),
            ("InternalError: Dst tensor is not initialized.", "nowhere to go"),
            ("RuntimeError: level_zero: UR_RESULT_ERROR_OUT_OF_RESOURCES", "out of resources"),
        ] {
            let found = verdict_of(text);
            assert!(found.why.contains(words), "{text}: {}", found.why);
        }
    }
}
