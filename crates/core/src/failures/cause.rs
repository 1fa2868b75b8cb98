//! What the numbers of a message say about the cause. Arithmetic only: whether memory grew, and what it
//! was for, no message says.

use crate::{
    failures::{
        Backend, Failure, Kind, OfCheckpoint, Program,
        engines::{asleep, dispatched, no_cache, no_logits, offloaded},
        host::PINNED,
        program::SMALLER,
        verdict::{Cause, Verdict, verdict},
    },
    replay::{Config, TorchVersion, rounding},
    units::Bytes,
};

/// What to look at where one request is too large.
pub(crate) const SHAPES: &str = "check the shapes at that line: a squared sequence length, a vocabulary times a batch, a size in the wrong unit, a wrong broadcast axis";
/// Where `torch.load` itself ran out.
const MAP_LOCATION: &str = "load to the host first: `torch.load(path, map_location=\"cpu\")`. Without it, `torch.load` puts each tensor onto the GPU that it was saved from, mostly GPU 0, and every rank does so";

/// Where the whole state of a split model is gathered on the GPU.
const ON_THE_HOST: &str = "gather the state in the host's memory: `StateDictOptions(full_state_dict=True, cpu_offload=True)` of torch.distributed.checkpoint.state_dict, with FSDP's older functions `FullStateDictConfig(offload_to_cpu=True, rank0_only=True)`";
/// And where it need not be.
const IN_PIECES: &str = "or store each rank's part: `torch.distributed.checkpoint.save` (in the Trainer and in accelerate `fsdp_state_dict_type: SHARDED_STATE_DICT`), and put the parts together later, on a machine with more memory";
/// 16 TiB are more than any card has.
pub(crate) const NO_CARD_HAS: Bytes = Bytes(1 << 44);
/// What a compiled extension asks for that was built for another GPU.
const REBUILD: &str = "if an extension in C++ or CUDA asks for it: build it anew for this GPU (TORCH_CUDA_ARCH_LIST, without its `build` folder); built for another one, it computes such sizes from garbage";

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
                match self.checkpoint {
                    Some(OfCheckpoint::Load) => res.remedies.insert(0, MAP_LOCATION.to_owned()),
                    Some(OfCheckpoint::Gather) => {
                        res.remedies = [ON_THE_HOST, IN_PIECES].map(str::to_owned).to_vec();
                    }
                    None => {}
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
            "if it happens often, use a smaller batch or limit the longest inputs: a skipped batch trains nothing and has no result"
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
            match self.is_of_an_extension() {
                true => &[REBUILD, SHAPES],
                false => &[SHAPES, "compute the result in chunks, or in a smaller type"],
            },
        )
    }

    /// Whether the innermost line calls a compiled module.
    fn is_of_an_extension(&self) -> bool {
        let calls = ["_C.", "_ext.", "_cuda."];
        self.innermost.as_ref().is_some_and(|it| calls.iter().any(|call| it.text.contains(call)))
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
                REBUILD,
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
                Backend::Hami => "HAMi's, which shares a GPU among pods: `nvidia.com/gpumem`",
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

    fn fragmented(&self, requested: Bytes, slack: Bytes) -> Verdict {
        let segments = format!("set {} before Python starts", self.backend.expandable_segments());
        let others = match self.program {
            Program::Unknown => vec![
                "use the same shapes in every step: pad to a few lengths; run the largest batch first",
                "call torch.cuda.empty_cache() between training and evaluation, not in every step",
            ],
            _ => self.smaller(),
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
            Program::Unknown | Program::NotTorch => res,
            _ => {
                Verdict { remedies: self.smaller().into_iter().map(str::to_owned).collect(), ..res }
            }
        }
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
            Backend::CudaRuntime if self.checkpoint == Some(OfCheckpoint::Load) => {
                "the card was full while `torch.load` read a checkpoint, in a call outside PyTorch's allocator, so there are no numbers. Without `map_location` each tensor goes onto the GPU that it was saved from, which another program or another rank may fill"
            }
            Backend::Bitsandbytes => {
                "bitsandbytes got no memory outside of PyTorch's allocator, so there are no numbers. A paged optimizer takes its state from the driver, and none was free on the card or in the host's memory"
            }
            Backend::Ggml => {
                "the card is full: the program got no buffer for weights, cache or a pass, and its message has no size"
            }
            Backend::Unsloth => return no_logits(),
            _ if self.program == Program::NotTorch => {
                "the driver had no memory for the program, whose message has no numbers"
            }
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
            Backend::Vllm => return no_cache(),
            Backend::Sglang if self.text.to_ascii_lowercase().contains("lower your batch size") => {
                return self.no_place_in_the_cache();
            }
            Backend::Sglang if self.text.to_ascii_lowercase().contains("mem-fraction-static") => {
                return self.no_cache_in_sglang();
            }
            Backend::Exllama => {
                "the weights and the cache do not fit the memory of the GPUs that the loader may use; its message has no sizes"
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
        if self.program == Program::NotTorch {
            return res.or_offered(&[smaller]);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::oom_text;

    fn verdict_of(text: &str) -> Verdict {
        oom_text::read(text).remove(0).verdict()
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
    fn a_collective_that_timed_out_decides_where_a_size_is_none() {
        let size = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.";
        let timeout = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1201, OpType=BROADCAST) ran for 1800531 milliseconds before timing out.";
        assert!(verdict_of(&format!("{timeout}\n{size}")).why.contains("timed out before this"));
        for text in [size.to_owned(), format!("{size}\n{timeout}")] {
            assert!(oom_text::read(&text)[0].verdict().why.contains("computed wrongly"), "{text}");
        }
    }
}
