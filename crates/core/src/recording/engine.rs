//! A serving engine that a script started: its own numbers, and the names that its users know for what it may be told.

use crate::units::Bytes;

/// The words of an engine's users. What is not known is called as in vLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineWords {
    /// As recordings name it, and its package.
    pub id: &'static str,
    /// As people call it.
    pub name: &'static str,
    /// The share of the card that it may use.
    pub share: &'static str,
    /// The longest request.
    pub length: &'static str,
    /// Requests at once.
    pub at_once: &'static str,
    /// The type of keys and values.
    pub dtype: &'static str,
    /// And its value for 8 bits.
    pub eight_bits: &'static str,
    /// The switch for no CUDA graphs.
    pub eager: &'static str,
    /// Tokens of one pass.
    pub batched: &'static str,
    /// Cards for one model.
    pub ranks: &'static str,
    /// How a script of one's own starts it.
    pub call: &'static str,
    /// What it calls that which is neither weights nor cache nor graphs.
    pub passes: &'static str,
}

/// All that are known; the first is meant where none is named.
pub const ENGINES: [EngineWords; 2] = [
    EngineWords {
        id: "vllm",
        name: "vLLM",
        share: "gpu_memory_utilization",
        length: "max_model_len",
        at_once: "max_num_seqs",
        dtype: "kv_cache_dtype",
        eight_bits: "fp8",
        eager: "enforce_eager",
        batched: "max_num_batched_tokens",
        ranks: "tensor_parallel_size",
        call: "LLM",
        passes: "a forward pass",
    },
    EngineWords {
        id: "sglang",
        name: "SGLang",
        share: "mem_fraction_static",
        length: "context_length",
        at_once: "max_running_requests",
        dtype: "kv_cache_dtype",
        eight_bits: "fp8_e5m2",
        eager: "disable_cuda_graph",
        batched: "chunked_prefill_size",
        ranks: "tp_size",
        call: "sgl.Engine",
        passes: "buffers of passes",
    },
];

/// A serving engine's own numbers. What it did not report is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineNote {
    /// Which engine: the `id` of its words.
    pub name: String,
    /// The memory of the card.
    pub total: Option<Bytes>,
    /// The share of it that the engine may use.
    pub share: Option<f64>,
    /// The weights.
    pub weights: Option<Bytes>,
    /// The largest forward pass beside them; of an engine that plans without one, what it holds for passes once it is ready.
    pub forward: Option<Bytes>,
    /// What grew outside PyTorch meanwhile.
    pub beside: Option<Bytes>,
    /// What the engine expects CUDA graphs to take.
    pub graphs: Option<Bytes>,
    /// States that its requests have beside keys and values: of layers of Mamba, say.
    pub states: Option<Bytes>,
    /// What is free for keys and values; zero where it is less.
    pub available: Option<Bytes>,
    /// The longest request that the engine is to serve, in tokens.
    pub longest_asked: Option<u64>,
    /// Of keys and values; `auto` for that of the model.
    pub dtype: Option<String>,
    /// Tokens of one forward pass at most.
    pub batched_tokens: Option<u64>,
    /// No CUDA graphs.
    pub eager: bool,
    /// How much a request of so many tokens needs for its keys and values, by the engine's own rule; the shortest first.
    pub needs: Vec<(u64, Bytes)>,
    /// And one token, where the engine chooses the longest request by what its cache holds: it starts with a cache for that.
    pub shortest: Option<Bytes>,
    /// Blocks of the key-value cache.
    pub blocks: Option<u64>,
    /// Their bytes.
    pub cache: Option<Bytes>,
    /// The tokens that they hold.
    pub tokens: Option<u64>,
    /// Why it refused to start, if it did.
    pub refused: Option<Refusal>,
    /// What was free on the card when it began, beside its own context.
    pub free_at_start: Option<Bytes>,
    /// How many requests it computes at once at most.
    pub at_once: Option<u64>,
    /// Of what a search asked: of how many tokens each the cache holds its users.
    pub longest: Option<u64>,
    /// And how many users of its context.
    pub users: Option<u64>,
    /// It has warmed up, and captured its graphs.
    pub is_ready: bool,
    /// What was free on the card then.
    pub free_when_ready: Option<Bytes>,
    /// The smallest share with which its own function plans a cache.
    pub least: Option<f64>,
    /// And with which that holds the longest request, where it starts without.
    pub least_for_longest: Option<f64>,
    /// Tokens of its longest pass that was run, where it plans without one.
    pub longest_pass: Option<u64>,
    /// What its own functions plan with other flags.
    pub instead: Vec<OtherFlag>,
    /// The engine chose its share by itself, from the size of the card.
    pub is_own_share: bool,
}

/// Another flag of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherFlag {
    /// As it is given, with its value.
    pub flag: String,
    /// What the cache then holds; zero where the engine refuses.
    pub tokens: u64,
    /// How much less the engine then takes beside its cache, where its own functions say that.
    pub freed: Bytes,
}

/// A refusal that an engine put into words, read as `explain` reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Why, with its numbers.
    pub why: String,
    /// What to change, the most promising first.
    pub remedies: Vec<String>,
}

impl EngineNote {
    /// These numbers, and those of `later` where it has some.
    pub fn and(self, later: EngineNote) -> EngineNote {
        EngineNote {
            name: later.name,
            total: later.total.or(self.total),
            share: later.share.or(self.share),
            weights: later.weights.or(self.weights),
            forward: later.forward.or(self.forward),
            beside: later.beside.or(self.beside),
            graphs: later.graphs.or(self.graphs),
            states: later.states.or(self.states),
            available: later.available.or(self.available),
            longest_asked: later.longest_asked.or(self.longest_asked),
            dtype: later.dtype.or(self.dtype),
            batched_tokens: later.batched_tokens.or(self.batched_tokens),
            eager: later.eager || self.eager,
            needs: if later.needs.is_empty() { self.needs } else { later.needs },
            shortest: later.shortest.or(self.shortest),
            blocks: later.blocks.or(self.blocks),
            cache: later.cache.or(self.cache),
            tokens: later.tokens.or(self.tokens),
            refused: later.refused.or(self.refused),
            free_at_start: later.free_at_start.or(self.free_at_start),
            at_once: later.at_once.or(self.at_once),
            longest: later.longest.or(self.longest),
            users: later.users.or(self.users),
            is_ready: later.is_ready || self.is_ready,
            free_when_ready: later.free_when_ready.or(self.free_when_ready),
            least: later.least.or(self.least),
            least_for_longest: later.least_for_longest.or(self.least_for_longest),
            longest_pass: later.longest_pass.or(self.longest_pass),
            instead: if later.instead.is_empty() { self.instead } else { later.instead },
            is_own_share: later.is_own_share || self.is_own_share,
        }
    }

    /// What its users call things.
    pub fn words(&self) -> &'static EngineWords {
        let [first, ..] = &ENGINES;
        ENGINES.iter().find(|it| it.id == self.name).unwrap_or(first)
    }

    /// Whether it plans its cache without a forward pass, from what is free once the weights are loaded; then it starts with a cache that
    /// does not hold its longest request.
    pub fn plans_without_a_pass(&self) -> bool {
        self.words().id == "sglang"
    }

    /// Whether it is ready, and its passes may be longer than any that was run: a longer one may take more.
    pub fn has_longer_passes(&self) -> bool {
        let run = self.longest_pass.unwrap_or_default();
        self.is_ready
            && self.plans_without_a_pass()
            && self.batched_tokens.is_some_and(|it| run < it)
    }

    /// The bytes of which the engine takes its share: the card's, or what was free when it began.
    pub fn shared(&self) -> Option<Bytes> {
        if self.plans_without_a_pass() { self.free_at_start } else { self.total }
    }
}
