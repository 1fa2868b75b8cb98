//! What the numbers of a message say about the cause. Arithmetic only: whether memory grew, and what it
//! was for, no message says.

use crate::{
    failures::{
        Backend, Failure, Kind, Program,
        host::PINNED,
        program::SMALLER,
        verdict::{Cause, Verdict, verdict},
    },
    replay::{Config, TorchVersion, rounding},
    units::Bytes,
};

/// What to look at where one request is too large.
pub(crate) const SHAPES: &str = "check the shapes at that line: a squared sequence length, a vocabulary times a batch, a size in the wrong unit, a wrong broadcast axis";
/// The largest CUDA context of the catalogue's cards is smaller; a program of somebody else's has a context, too, and something beside it.
const OF_A_CONTEXT: Bytes = Bytes::gib(1);
/// The name of the number that the person set for the cache, so that the engine computed none.
pub(crate) const SET_CACHE: &str = "kv_cache_memory_bytes";
/// Where `torch.load` itself ran out.
const MAP_LOCATION: &str = "load to the host first: `torch.load(path, map_location=\"cpu\")`. Without it, `torch.load` puts each tensor onto the GPU that it was saved from, mostly GPU 0, and every rank does so";

impl Failure {
    /// The cause, as far as the numbers say.
    pub fn verdict(&self) -> Verdict {
        match self.kind {
            Kind::HostOutOfMemory => self.host(),
            Kind::Warning => self.warning(),
            Kind::Caught => self.caught(),
            Kind::NotMemory(instead) => {
                instead.verdict(self.requested, self.capacity.or(self.free))
            }
            Kind::MaybeOutOfMemory => self.ambiguous(),
            Kind::OutOfMemory => {
                let mut res = self.device();
                if self.is_in_load {
                    res.remedies.insert(0, MAP_LOCATION.to_owned());
                }
                res
            }
        }
    }

    fn warning(&self) -> Verdict {
        if self.text.contains("offloaded to the") {
            return verdict(
                Cause::Unknown,
                "the weights did not fit the GPU, so Accelerate put the rest into the host's memory or onto the disk. The program runs, but slowly: these weights are copied to the GPU for every forward pass",
                &[
                    "load the model in a smaller type or quantized (4 or 8 bits), or use more or larger GPUs",
                    "free the GPU first: `nvidia-smi` shows who else has its memory",
                ],
            );
        }
        verdict(
            Cause::Unknown,
            "nothing failed: the library requested scratch memory, did not get it, and went on with less",
            &["do nothing, unless an error follows"],
        )
    }

    /// The cause is that of the error that was caught.
    fn caught(&self) -> Verdict {
        let device = self.device();
        let is_bare = self.requested.is_none() && self.capacity.is_none();
        let why = if is_bare { "memory ran out" } else { device.why.as_str() };
        let remedy = if self.text.to_ascii_lowercase().contains("skip") {
            "if it happens often, use a smaller batch or limit the longest inputs: the model does not train on skipped batches"
        } else {
            "if it happens often, use a smaller batch, image or input: the way around it is slower"
        };
        verdict(
            device.cause,
            format!("{why}. The log shows that the program caught the error and went on"),
            &[remedy],
        )
    }

    fn device(&self) -> Verdict {
        if self.is_no_size {
            return if self.is_after_a_timeout {
                no_size_after_a_timeout()
            } else {
                self.no_size()
            };
        }
        let Some(requested) = self.requested else { return self.without_request() };
        if let Some(too_large) = self.more_than_any(requested) {
            return too_large;
        }
        if let Some(limit) = self.limit {
            if limit < requested {
                return self.larger_than(requested, limit, "this process may use");
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
            return self.share_too_large(capacity, free);
        }
        if self.backend == Backend::Vllm
            && let Some(free) = self.free.filter(|it| *it < requested)
        {
            return self.cache_too_small(requested, free);
        }
        let free = self.free.unwrap_or_default();
        if let Some(others) = self.others() {
            let large = self.capacity.map_or(Bytes::gib(1), |total| {
                Bytes((total.0 / 10).clamp(Bytes::mib(512).0, Bytes::gib(2).0))
            });
            // A card that is as good as full has its last bytes in pieces, or the driver keeps them.
            let is_full =
                self.capacity.is_some_and(|it| free.0 < it.0 / 64 && it.0 / 6 <= others.0);
            let is_short = free < requested || is_full;
            if large <= others && requested <= free + others && is_short {
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
                    "private pools (CUDA graphs or a MemPool) hold {pools} that are free and serve no other request; the request for {requested} would have fitted"
                ),
                &[
                    "capture fewer graphs or fewer batch sizes; share one pool between graphs (`pool=`)",
                    "delete graphs that you no longer replay",
                ],
            );
        }
        if let Some(capacity) = self.capacity.filter(|it| self.is_share_of_the_ram(*it)) {
            return share_of_the_ram(capacity);
        }
        if let Some(slack) = self.slack
            && free < requested
            && requested <= free + slack
            && self.is_large(slack)
        {
            return self.fragmented(requested, slack);
        }
        if self.free.is_some() && self.taken_for(requested) <= free {
            return verdict(
                Cause::Unknown,
                format!(
                    "a request for {requested} failed although the device reports {free} free. Either a process freed memory between the failure and the message, or the driver refused for another reason ({}another process at the same moment, a memory limit of the batch system, WSL or Windows, an old driver)",
                    if self.is_of_one_block(requested) {
                        "as one block it is more than Intel's runtime gives, "
                    } else {
                        ""
                    }
                ),
                &[
                    &format!("run `{}` at the same time, to see other processes", self.monitor()),
                    "on Windows and WSL: reboot, and enlarge the page file; in a container: check `ulimit -v` and the memory limit",
                ],
            );
        }
        if self.allocated.is_none() && self.reserved.is_none() {
            return self.only_request(requested);
        }
        self.too_much(requested, free)
    }

    /// More than this card can ever give, however much of it is free.
    fn more_than_any(&self, requested: Bytes) -> Option<Verdict> {
        let used = self.allocated.max(self.reserved).unwrap_or_default();
        if let Some(capacity) = self.capacity.filter(|it| *it + Bytes::mib(64) < used) {
            return Some(self.beyond_the_card(requested, used, capacity));
        }
        if self.is_of_one_block(requested) && self.text.contains("larger than 4GB") {
            return Some(verdict(
                Cause::Size,
                format!(
                    "one block of {requested} is more than Intel's runtime gives in one piece (4 GiB on this platform), however much of the card is free"
                ),
                &[
                    "compute the result in parts, or in a smaller type, so that no tensor is larger than 4 GiB",
                    "a newer torch and driver allow larger blocks; on some platforms UR_L0_USE_RELAXED_ALLOCATION_LIMITS=1 does",
                ],
            ));
        }
        let capacity = self.capacity.filter(|it| *it < requested)?;
        if self.text.contains("in memory space") {
            let why =
                format!("the compiled program needs {requested}, and the device has {capacity}");
            return Some(verdict(Cause::Size, why, &[]).or_offered(self.offers()));
        }
        Some(self.larger_than(requested, capacity, "the whole card has"))
    }

    /// No card that ROCm supports has so little; a GPU inside of a processor has what the firmware gives it.
    fn is_share_of_the_ram(&self, capacity: Bytes) -> bool {
        self.backend == Backend::Hip && capacity <= Bytes::gib(2)
    }

    /// Whether Intel's runtime may refuse it for its size alone.
    fn is_of_one_block(&self, requested: Bytes) -> bool {
        self.backend == Backend::Xpu && Bytes::gib(4) <= requested
    }

    /// More in use than the card has: only Windows' driver does that.
    fn beyond_the_card(&self, requested: Bytes, used: Bytes, capacity: Bytes) -> Verdict {
        verdict(
            Cause::Size,
            format!(
                "the program already used {used}, and the card has {capacity}: under Windows and WSL the driver lends a program the host's memory instead of refusing, so the run was slow before it failed at a request for {requested}"
            ),
            &[
                SMALLER[0],
                SMALLER[1],
                "to fail at once instead of running slowly: NVIDIA Control Panel, Manage 3D settings, \"CUDA - Sysmem Fallback Policy\": Prefer No Sysmem Fallback",
            ],
        )
    }

    /// What the device is asked for: PyTorch's small requests take a segment of it, which is larger.
    pub fn taken_for(&self, requested: Bytes) -> Bytes {
        if matches!(self.backend, Backend::Cuda | Backend::Hip) {
            rounding::allocation_size(requested, &Config::of_torch(TorchVersion::NEWEST))
        } else {
            requested
        }
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
                "one request for {requested} is more than {whose} ({most}): freeing other memory does not help"
            ),
            &[SHAPES, "compute the result in chunks, or in a smaller type"],
        )
    }

    /// A size that no memory has.
    fn no_size(&self) -> Verdict {
        // The largest number of 64 bits is what a size below zero looks like.
        let size = match self.requested.filter(|it| it.0 < 1 << 62) {
            Some(requested) => {
                let free = self.free.map_or(String::new(), |it| format!(" ({it} are free)"));
                format!("{requested} were requested, and no card has as much: a size was computed wrongly. The card is not full{free}")
            }
            None => "the requested size is below zero, or more than 64 bits can count: a size was computed wrongly. The card is not full".to_owned(),
        };
        verdict(
            Cause::Size,
            format!("{size}, and more memory does not help"),
            &[
                "check the shapes at that line: a negative or overflowing dimension, a product of sizes in 32 bits, an uninitialized length, a count that was read from a file",
                "if it is a convolution in torch 1.4 or older, install a newer torch: its cuDNN workspace size overflowed",
            ],
        )
    }

    fn limited(&self, limit: Bytes) -> Verdict {
        let why = if limit == Bytes::ZERO {
            "this process limits itself, and PyTorch refused before it asked the driver: set_per_process_memory_fraction (or per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF)".to_owned()
        } else {
            let free =
                self.free.map_or(String::new(), |it| format!(", while the device had {it} free"));
            let setter = match self.backend {
                Backend::Mps => {
                    "a share of the computer's memory, as PYTORCH_MPS_HIGH_WATERMARK_RATIO says"
                }
                _ => "set_per_process_memory_fraction",
            };
            format!("this process may use at most {limit} ({setter}){free}")
        };
        verdict(
            Cause::Limit,
            why,
            &[
                "raise the limit, or remove it",
                "or make the run fit the limit: a smaller batch, activation checkpointing, a smaller type",
            ],
        )
        .or_offered(self.offers())
    }

    fn others_have(&self, others: Bytes) -> Verdict {
        let own_pid = self.own_named_pid();
        let mut processes: Vec<(u32, Bytes)> =
            self.processes.iter().filter(|(pid, _)| Some(*pid) != own_pid).copied().collect();
        processes.sort_by_key(|it| std::cmp::Reverse(it.1));
        // Ranks that open a card by accident have a context there each, and contexts are equally large.
        let is_of_ranks = 2 < processes.len()
            && processes.first().map(|it| it.1) == processes.last().map(|it| it.1);
        let named: Vec<String> =
            processes.iter().take(3).map(|(pid, it)| format!("process {pid}: {it}")).collect();
        let named = match processes.len() {
            0 => String::new(),
            n if is_of_ranks => format!(" ({n} other processes with {} each)", processes[0].1),
            n if n <= 3 => format!(" ({})", named.join(", ")),
            n => format!(" ({}, and {} more)", named.join(", "), n - 3),
        };
        let own = self
            .own_process()
            .or(self.reserved)
            .map_or(String::new(), |it| format!("; this process holds {it}"));
        let (about, sure) = if self.own_process().is_some() {
            ("", "")
        } else {
            ("about ", ". plimsoll inferred this: the message does not name them")
        };
        let find = format!(
            "find them with `{}`, and end those that you do not need: a notebook or a dead run often still holds memory",
            self.monitor()
        );
        let choose = format!("choose another card: {}=1", self.backend.visible_devices());
        let ranks = "if several ranks share a card by accident: each must call `torch.cuda.set_device(local_rank)` before it allocates";
        let why = format!("other processes hold {about}{others} of the card{named}{own}{sure}");
        let remedies = [ranks, &find, &choose];
        let n_first = usize::from(!is_of_ranks);
        let remedies = [&remedies[n_first..], &remedies[..n_first]].concat();
        verdict(Cause::OtherProcess, why, &remedies)
    }

    /// vLLM wants a share of the whole card, and knows how much of it is free.
    fn share_too_large(&self, capacity: Bytes, free: Bytes) -> Verdict {
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

    fn fragmented(&self, requested: Bytes, slack: Bytes) -> Verdict {
        let segments = format!("set {} before Python starts", self.backend.expandable_segments());
        let others = match self.program {
            Program::Unknown => vec![
                "use the same shapes in every step: pad to a few lengths; run the largest batch first",
                "call torch.cuda.empty_cache() between training and evaluation, not in every step",
            ],
            Program::Vllm | Program::Sglang | Program::Pictures => self.smaller(),
        };
        verdict(
            Cause::Fragmentation,
            if requested <= slack {
                format!(
                    "PyTorch's free memory was fragmented: {slack} were free, but no piece could serve a request for {requested}"
                )
            } else {
                format!(
                    "PyTorch's free memory was fragmented: {slack} were free in its cache and {} on the card. Together that is enough for {requested}, but the allocator cannot join them",
                    self.free.unwrap_or_default()
                )
            },
            &[&[segments.as_str()], others.as_slice()].concat(),
        )
    }

    fn too_much(&self, requested: Bytes, free: Bytes) -> Verdict {
        let allocated = self.allocated.or(self.reserved).unwrap_or_default();
        let slack = self.slack.unwrap_or_default();
        let missing = requested.saturating_sub(free + slack);
        let capacity = self.capacity.map_or(String::new(), |it| format!(" of {it}"));
        let fits_together = missing == Bytes::ZERO && Bytes::ZERO < slack;
        let mut remedies = self.smaller();
        let expandable = format!(
            "set {}: this may be just enough for this request, but then hardly any memory is free for the next",
            self.backend.expandable_segments()
        );
        if fits_together {
            remedies.push(&expandable);
        }
        let taken = self.taken_for(requested);
        let how_much = if requested <= free {
            format!(
                "PyTorch asks the driver for {taken} for a request of that size, and {free} are free. The card is full"
            )
        } else if missing == Bytes::ZERO {
            format!(
                "no free piece is that large: {free} are free on the card, and {slack} in pieces of PyTorch's cache. The card is full"
            )
        } else if allocated.0 / 10 < slack.0 {
            format!(
                "at least {missing} too much, even with the {slack} that PyTorch has reserved and no tensor uses"
            )
        } else {
            format!("at least {missing} too much, and no large amount is wasted")
        };
        verdict(
            Cause::Size,
            format!(
                "tensors use {allocated}{capacity}, and the program requested {requested} more: {how_much}{}",
                self.beside(free)
            ),
            &remedies,
        )
        .over_time()
    }

    /// What is neither free nor PyTorch's, where that is much of a small card.
    fn beside(&self, free: Bytes) -> String {
        let held = self.reserved.or(self.allocated);
        let Some((capacity, held)) = self.capacity.zip(held) else { return String::new() };
        let beside = capacity.saturating_sub(held + free);
        if self.own_process().is_some() || beside.0 < capacity.0 / 4 {
            return String::new();
        }
        format!(
            ". The other {beside} of the card are not PyTorch's: they are the program's CUDA context, and what other programs have"
        )
    }

    /// The whole number behind `words`, which are in lower case; thousands may be parted by commas.
    fn number_after(&self, words: &str) -> Option<String> {
        let lower = self.text.to_ascii_lowercase();
        let (_, rest) = lower.split_once(words)?;
        let mut digits: String =
            rest.chars().take_while(|it| it.is_ascii_digit() || *it == ',').collect();
        digits.retain(|it| it != ',');
        (!digits.is_empty()).then_some(digits)
    }

    /// vLLM says how long a sequence may be for the keys and values that it has room for.
    fn cache_too_small(&self, requested: Bytes, free: Bytes) -> Verdict {
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
    fn longer_than_the_cache(&self) -> Verdict {
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

    /// SGLang's cache has no place for the tokens of the next pass.
    fn no_place_in_the_cache(&self) -> Verdict {
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

    fn only_request(&self, requested: Bytes) -> Verdict {
        if self.text.contains("Model Require") {
            return self.weights_of_a_model(requested);
        }
        let free = self.free.map_or(String::new(), |it| format!(" and {it} were free"));
        let outside = match self.backend {
            Backend::Nccl => "; NCCL takes memory outside PyTorch's allocator",
            _ => "",
        };
        let monitor = format!(
            "run `{}` at the same time, to see whether this process holds it",
            self.monitor()
        );
        let res = verdict(
            Cause::Unknown,
            if self.text.contains("capacity of 0 bytes") {
                format!(
                    "a request for {requested} failed, and the driver gave PyTorch no numbers of the card (0 bytes): a driver that was updated while the program ran, a card that is lost, or a container or MIG slice without access"
                )
            } else {
                format!(
                    "a request for {requested} failed{free}{outside}; the text does not show who holds the rest"
                )
            },
            &[&monitor],
        )
        .or_offered(self.offers());
        match self.program {
            Program::Unknown => res,
            _ => {
                Verdict { remedies: self.smaller().into_iter().map(str::to_owned).collect(), ..res }
            }
        }
    }

    /// Forge counts before it loads a model, and shows what it counted.
    fn weights_of_a_model(&self, requested: Bytes) -> Verdict {
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
    fn executor(&self) -> Verdict {
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

    fn without_request(&self) -> Verdict {
        let innermost = self.innermost.as_ref();
        let pins = innermost.is_some_and(|frame| {
            frame.file.ends_with("pin_memory.py")
                || frame.text.contains("pin_memory(")
                || frame.text.contains("pin_memory=True")
        });
        if self.backend == Backend::CudaRuntime && pins {
            return verdict(
                Cause::Unknown,
                "PyTorch could not pin memory of the host. CUDA gives the same error in two cases: the host's pinned memory (RAM that cannot be swapped out) ran out, or the card is full, and the thread that pins needs a little of it",
                &[
                    &["run `nvidia-smi`: is the card full? If not, the host's memory is the cause"],
                    PINNED,
                ]
                .concat(),
            );
        }
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
            Backend::CudaRuntime if self.text.contains("THCStorage") => {
                "the CUDA runtime refused a request of PyTorch; versions before 1.0 print no numbers"
            }
            Backend::Hip => {
                "the HIP runtime refused a call outside PyTorch's allocator, so there are no numbers. Often it is a process's first call on a card that other processes fill"
            }
            Backend::CudaRuntime if self.text.to_ascii_lowercase().contains("nvmap") => {
                "the Jetson's memory ran out. CPU and GPU share it, so other programs and the desktop use it too"
            }
            Backend::CudaRuntime if self.is_in_load => {
                "the card was full while `torch.load` read a checkpoint, in a call outside PyTorch's allocator, so there are no numbers. Without `map_location` each tensor goes onto the GPU that it was saved from, which another program or another rank may fill"
            }
            Backend::Bitsandbytes => {
                "bitsandbytes got no memory outside of PyTorch's allocator, so there are no numbers. A paged optimizer takes its state from the driver, and none was free on the card or in the host's memory"
            }
            Backend::Ggml => {
                "the card is full: the program got no buffer for weights, cache or a pass, and its message has no size"
            }
            Backend::Unsloth => return no_logits(),
            Backend::Tgi => {
                "the server's warm-up found too little free memory for the tokens that its settings allow at a time"
            }
            Backend::Accelerate if self.text.contains("dispatched on the CPU") => {
                return dispatched();
            }
            Backend::Accelerate if self.text.contains("offload") => return offloaded(),
            Backend::Accelerate => {
                "every batch size failed, down to batch size 1: Accelerate halves it at each out-of-memory error. At batch size 1, the model, the optimizer or one long sample is too large; or memory of the failed tries stays allocated"
            }
            Backend::CudaRuntime => {
                "the CUDA runtime refused a call outside PyTorch's allocator, so there are no numbers. Often it is a process's first call on a card that other processes fill, or a library that needs memory which PyTorch's cache holds"
            }
            Backend::Nccl => {
                "NCCL got no memory for its buffers: it takes memory outside PyTorch's allocator, and none was free"
            }
            Backend::CudaMallocAsync => {
                let res = verdict(
                    Cause::Size,
                    "the card was full; PyTorch prints no numbers where cudaMallocAsync allocates",
                    &self.smaller(),
                );
                let other = format!(
                    "free the card of other programs first: `{}` shows them",
                    self.monitor()
                );
                return Verdict { remedies: [res.remedies, vec![other]].concat(), ..res };
            }
            Backend::Vllm if self.text.to_ascii_lowercase().contains("cumem_allocator") => {
                return asleep();
            }
            Backend::Vllm if self.text.to_ascii_lowercase().contains("warming up") => {
                "the sampler's warm-up found too little memory beside the weights and the key-value cache"
            }
            Backend::Vllm if self.text.to_ascii_lowercase().contains("number of tokens") => {
                return self.longer_than_the_cache();
            }
            Backend::Vllm => return no_cache("gpu_memory_utilization", "max_model_len"),
            Backend::Sglang if self.text.to_ascii_lowercase().contains("lower your batch size") => {
                return self.no_place_in_the_cache();
            }
            Backend::Sglang if self.text.to_ascii_lowercase().contains("mem-fraction-static") => {
                return no_cache("--mem-fraction-static", "--context-length");
            }
            Backend::TensorRtLlm => return self.executor(),
            _ => "the message has no numbers, so plimsoll can compute nothing from it",
        };
        let monitor = format!(
            "check with `{}` whether the card is full before this program starts",
            self.monitor()
        );
        let res = verdict(Cause::Unknown, why, &[&monitor]);
        if !self.offers().is_empty() {
            return res.or_offered(self.offers());
        }
        let smaller =
            "try a smaller batch or input: if it helps, this program's own memory was the cause";
        let room = "if a library beside PyTorch needs memory, limit PyTorch: torch.cuda.set_per_process_memory_fraction(0.95)";
        let more = [smaller, room].map(str::to_owned);
        Verdict { remedies: [res.remedies, more.to_vec()].concat(), ..res }
    }
}

/// A GPU inside of a processor, of which the driver sees only what the firmware set aside.
fn share_of_the_ram(capacity: Bytes) -> Verdict {
    verdict(
        Cause::Size,
        format!(
            "the GPU has {capacity} in all: it is one inside of a processor (APU), and that is the share of the computer's memory that its firmware set aside for it"
        ),
        &[
            "set aside more in the firmware's settings (BIOS: \"UMA Frame Buffer Size\", \"iGPU Memory\")",
            "or let the driver lend the GPU the rest of the memory, which newer kernels and ROCm versions do (GTT: `amdgpu.gttsize`, `ttm.pages_limit`)",
        ],
    )
}

/// What the ranks tell each other of sizes did not arrive.
fn no_size_after_a_timeout() -> Verdict {
    verdict(
        Cause::Size,
        "a collective between the ranks timed out before this, so a size that one rank was to receive never arrived, and what stood in its place was requested as memory. The card is not full: the timeout is the error to look for",
        &[
            "find the rank that did not come to the collective: the first error in time of all ranks' logs, or a rank that still computed, saved or loaded",
            "if that rank only needed longer: `init_process_group(timeout=...)`",
        ],
    )
}

/// Weights and a pass leave nothing of an engine's `share` of the card for keys and values; `length` is its setting for the longest request.
fn no_cache(share: &str, length: &str) -> Verdict {
    verdict(
        Cause::Size,
        format!(
            "the weights and a forward pass take all of the share of the card that `{share}` gives the engine: no memory remains for the key-value cache"
        ),
        &[
            &format!("set a larger `{share}`, if no other process needs the card"),
            "put fewer weights on this card: a quantized model, or several cards (tensor parallel)",
            &format!(
                "make a forward pass smaller: fewer tokens and requests at a time; a smaller `{length}` helps once there is a cache"
            ),
        ],
    )
}

/// vLLM's sleep mode takes weights and cache from the driver again.
fn asleep() -> Verdict {
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
fn dispatched() -> Verdict {
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
fn offloaded() -> Verdict {
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
fn no_logits() -> Verdict {
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
    fn a_card_that_is_full_and_somebody_elses_is_named_so_beside_its_last_bytes() {
        let card = |others: &str| {
            verdict_of(&format!(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 60.00 MiB is free. Process 17 has {others} memory in use. Including non-PyTorch memory, this process has 8.04 GiB memory in use. Of the allocated memory 7.63 GiB is allocated by PyTorch, and 40.11 MiB is reserved by PyTorch but unallocated."
            ))
        };
        assert_eq!(card("15.54 GiB").cause, Cause::OtherProcess);
    }

    #[test]
    fn a_small_request_wants_a_segment_of_the_card() {
        let free = |free: &str| {
            verdict_of(&format!(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 MiB. GPU 0 has a total capacity of 2.00 GiB of which {free} is free. Including non-PyTorch memory, this process has 1.98 GiB memory in use. Of the allocated memory 1.24 GiB is allocated by PyTorch, and 2.90 MiB is reserved by PyTorch but unallocated."
            ))
        };
        let found = free("16.00 MiB");
        assert_eq!(found.cause, Cause::Size);
        let why = "PyTorch asks the driver for 20.0 MiB for a request of that size, and 16.0 MiB are free";
        assert!(found.why.contains(why), "{}", found.why);
        assert_eq!(free("24.00 MiB").cause, Cause::Unknown, "that would have been enough");
    }

    #[test]
    fn pieces_that_are_less_than_the_request_are_told_with_what_is_free() {
        let found = verdict_of(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.22 GiB. GPU 0 has a total capacity of 15.69 GiB of which 3.71 GiB is free. Including non-PyTorch memory, this process has 11.14 GiB memory in use. Of the allocated memory 10.14 GiB is allocated by PyTorch, and 771.43 MiB is reserved by PyTorch but unallocated.",
        );
        assert_eq!(found.cause, Cause::Fragmentation);
        assert!(found.why.contains("3.71 GiB on the card"), "{}", found.why);
    }

    #[test]
    fn each_maker_has_its_own_next_command() {
        for (text, words) in [
            (
                "EL0004: Failed to allocate memory. Call rtMalloc fail, size:3221291008",
                "npu-smi info",
            ),
            (
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes.",
                "jax.checkpoint",
            ),
            (
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8.00 MiB on device 0: cudaMalloc failed: out of memory",
                "--n-gpu-layers",
            ),
            (
                "RuntimeError: cuda runtime error (2) : out of memory at THC/generic/THCStorage.cu:58",
                "smaller batch",
            ),
        ] {
            let found = verdict_of(text);
            assert!(
                found.remedies.iter().any(|it| it.contains(words)),
                "{text}: {:?}",
                found.remedies
            );
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
            ("RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR", "older than the card"),
            ("RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED", "no workspace memory"),
            ("InternalError: Dst tensor is not initialized.", "a copy to the card failed"),
            ("RuntimeError: level_zero: UR_RESULT_ERROR_OUT_OF_RESOURCES", "out of resources"),
        ] {
            let found = verdict_of(text);
            assert!(found.why.contains(words), "{text}: {}", found.why);
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

    #[test]
    fn a_collective_that_timed_out_decides_where_a_size_is_none() {
        let size = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.";
        let timeout = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1201, OpType=BROADCAST) ran for 1800531 milliseconds before timing out.";
        assert!(verdict_of(&format!("{timeout}\n{size}")).why.contains("timed out before this"));
        for text in [size.to_owned(), format!("{size}\n{timeout}")] {
            assert!(oom_text::read(&text)[0].verdict().why.contains("computed wrongly"), "{text}");
        }
    }
}
