//! The stable words for what is found and said: people search for them, programs compare them, and none changes its meaning.
//! Each stands here once, with what is so of every use of it; the order of a kind is the order in which it is listed or told.

use std::fmt;

/// An enum, a word for each of its values.
macro_rules! words {
    ($(#[$doc:meta])* $kind:ident { $($name:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $kind {
            $(#[doc = concat!("`", $word, "`")] $name,)*
        }

        impl $kind {
            /// All of them, in their order.
            pub const ALL: &[$kind] = &[$($kind::$name,)*];

            /// As it stands in JSON, in reports and in the manual.
            pub const fn word(self) -> &'static str {
                match self {
                    $($kind::$name => $word,)*
                }
            }

            /// The one with this word.
            pub fn of_word(word: &str) -> Option<$kind> {
                $kind::ALL.iter().copied().find(|it| it.word() == word)
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

/// The same, where files of other versions have words that this one does not know: they are kept as they are.
macro_rules! open_words {
    ($(#[$doc:meta])* $kind:ident { $($name:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $kind {
            $(#[doc = concat!("`", $word, "`")] $name,)*
            /// Any other.
            Other(String),
        }

        impl $kind {
            /// As it stands in the file.
            pub fn word(&self) -> &str {
                match self {
                    $($kind::$name => $word,)*
                    $kind::Other(word) => word,
                }
            }

            /// The one with this word.
            pub fn of_word(word: String) -> $kind {
                match word.as_str() {
                    $($word => $kind::$name,)*
                    _ => $kind::Other(word),
                }
            }
        }
    };
}

/// The codes of problems: a row is the family, the name, the word, what it is in a few words, and the manual page of one that a
/// rule finds.
macro_rules! problems {
    ($($family:ident $name:ident = $word:literal, $title:literal $(, $page:literal)?;)*) => {
        words! {
            /// What a run suffers from, or could do without: the code of a finding, or of a cause.
            ProblemCode {
                $($name = $word,)*
            }
        }

        impl ProblemCode {
            /// What it is, in a few words.
            pub const fn title(self) -> &'static str {
                match self {
                    $(ProblemCode::$name => $title,)*
                }
            }

            /// The manual page, in Markdown, of one that a rule looks for; the others are causes that no rule looks for.
            pub const fn page(self) -> Option<&'static str> {
                match self {
                    $(ProblemCode::$name => problems!(page $($page)?),)*
                }
            }

            /// What it is a kind of.
            pub const fn family(self) -> Family {
                match self {
                    $(ProblemCode::$name => Family::$family,)*
                }
            }
        }
    };
    (page $page:literal) => { Some(include_str!(concat!("findings/", $page))) };
    (page) => { None };
}

problems! {
    Leak GraphRetained = "leak/graph-retained", "autograd graphs stay allocated after their step", "graph_retained.md";
    Leak EvalWithoutNoGrad = "leak/eval-without-no-grad", "results of forward passes without no_grad stay allocated", "eval_without_no_grad.md";
    Other UnusedGraph = "evaluation/unused-graph", "forward passes without no_grad store a graph that no backward pass uses", "unused_graph.md";
    Leak ResultsKept = "leak/results-kept", "results of each step stay on the device", "results_kept.md";
    Leak TracebackKept = "leak/traceback-kept", "a caught error keeps the failed pass's memory allocated", "traceback_kept.md";
    Leak EarlierModels = "leak/earlier-models", "models of earlier experiments are still on the device", "earlier_models.md";
    Growth PerStep = "growth/per-step", "the same line leaves memory allocated in each step", "per_step.md";
    Growth KvCache = "growth/kv-cache", "a key-value cache that grows with each token", "kv_cache.md";
    Fragmentation Slack = "fragmentation/slack", "reserved memory in pieces too small for the requests", "fragmentation.md";
    Size OneAllocation = "size/one-allocation", "one allocation is far larger than the others", "one_allocation.md";
    Other ForeachTemporaries = "optimizer/foreach-temporaries", "the optimizer's temporaries make the peak", "foreach.md";
    Other IdleCheckpointing = "checkpointing/no-effect", "activation checkpointing is on and saves nothing", "idle_checkpointing.md";
    Other WrittenOutAttention = "attention/written-out", "attention stores its score matrices", "written_out_attention.md";
    Other RepeatedCasts = "casts/repeated", "the same weights are cast to another type again and again", "repeated_casts.md";
    Other CastCopies = "weights/cast-copies", "autocast stores copies of weights in 32 bits that are not trained", "cast_copies.md";
    Other MadeAgain = "weights/made-again", "each call of a layer makes its weights anew", "made_again.md";
    Other NoOptimizer = "gradients/no-optimizer", "parameters that no optimizer has get gradients", "no_optimizer.md";
    Other DenseTable = "gradients/dense-table", "an embedding table has a dense gradient", "dense_table.md";
    Other Unfolded = "copies/unfold", "windows that overlap are written out", "unfolded.md";
    Other Padding = "inputs/padding", "most of each batch is padding", "padding.md";
    Other LargeEvaluation = "evaluation/large-batch", "an evaluation's batch is much larger than a training batch", "large_evaluation.md";
    Other WholeVolume = "evaluation/whole-volume", "a whole volume or result stays on the device during an evaluation", "whole_volume.md";
    Other StepBefore = "outputs/step-before", "outputs of the step before are live in the next", "step_before.md";
    Other ManyPasses = "backward/many-passes", "one backward pass walks the graphs of several calls of a model", "many_passes.md";
    Other UnrolledLoop = "backward/unrolled-loop", "the results of each turn of a loop wait for one backward pass", "unrolled_loop.md";
    Other GradientsKept = "gradients/kept", "old gradients are live at the peak", "gradients_kept.md";
    Other DoubleBuffer = "copies/double-buffer", "the same data is on the device twice at the peak", "double_buffer.md";
    Other LoadedTwice = "weights/loaded-twice", "the weights are on the device twice, or in a larger form, while they are loaded", "loaded_twice.md";
    Other IdleWeights = "weights/idle", "weights are on the device that no step uses", "idle_weights.md";
    Other NotQuantized = "weights/not-quantized", "a quantized model has large weights that are not", "not_quantized.md";
    Other AllTrainable = "adapters/all-trainable", "the weights below adapters are trained too", "all_trainable.md";
    Other DynamicShapes = "inputs/dynamic-shapes", "the largest input makes the peak", "dynamic_shapes.md";
    Other AllOnDevice = "inputs/all-on-device", "all data, or all results of one line, are on the device before training begins", "all_on_device.md";
    Other PendingFrees = "streams/pending-frees", "blocks wait for another stream", "streams.md";
    Other IdleStreams = "streams/idle-cache", "free memory is cached for streams of the script", "idle_streams.md";
    Other IdlePools = "pools/idle-private", "a private pool holds memory that is idle", "idle_pools.md";
    Workspaces Workspaces = "workspace/libraries", "workspaces of cuBLAS and cuDNN at the peak", "workspaces.md";
    Other FirstGpu = "ranks/first-gpu", "ranks open a GPU that is not their own", "first_gpu.md";
    Other NotPytorch = "outside/not-pytorch", "memory outside PyTorch's allocator", "outside.md";
    Other FirstAgainstLater = "steps/first-against-later", "later steps need more than the first", "first_step.md";
    Host HostGrows = "host/grows", "the host's memory (RAM) grows with each step", "host_grows.md";
    Host HostNearlyFull = "host/nearly-full", "the host's memory (RAM) is nearly full", "host_nearly_full.md";
    Host HostSwaps = "host/swaps", "the host's memory is in its swap file", "host_swaps.md";
    Other PeakComposition = "peak/composition", "the peak by category", "peak.md";
    Other RingTooSmall = "recording/ring-too-small", "the recording lost its beginning", "ring.md";
    Other BeganLate = "recording/began-late", "recording began late", "began_late.md";
    Size ModelStates = "size/model-states", "parameters, gradients and optimizer states alone are too large";
    Size Activations = "size/activations", "the activations of one step are too large";
    Size TooLarge = "size/too-large", "the program needs more memory than the card has, of unknown purpose";
    Other ProcessLimit = "limit/process", "a limit that the process set itself";
    Other Host = "outside/host", "the host's memory (RAM) ran out, not the GPU's";
    Other PrivatePools = "pools/private", "private pools of CUDA graphs or a MemPool hold the memory";
    Other Unknown = "unknown", "the numbers do not show the cause";
}

impl ProblemCode {
    /// Whether it says what the blocks are that it is about, so that their size alone needs no finding.
    pub const fn names_its_blocks(self) -> bool {
        matches!(
            self,
            ProblemCode::WrittenOutAttention
                | ProblemCode::RepeatedCasts
                | ProblemCode::CastCopies
                | ProblemCode::MadeAgain
                | ProblemCode::NoOptimizer
                | ProblemCode::DenseTable
                | ProblemCode::Unfolded
                | ProblemCode::LargeEvaluation
                | ProblemCode::WholeVolume
                | ProblemCode::ManyPasses
                | ProblemCode::UnrolledLoop
        )
    }

    /// Whether an edit of the script by hand removes it, and no remedy does.
    pub const fn needs_an_edit(self) -> bool {
        self.names_its_blocks()
            || matches!(
                self,
                ProblemCode::GraphRetained
                    | ProblemCode::PerStep
                    | ProblemCode::ResultsKept
                    | ProblemCode::TracebackKept
                    | ProblemCode::EarlierModels
                    | ProblemCode::StepBefore
                    | ProblemCode::LoadedTwice
                    | ProblemCode::AllOnDevice
                    | ProblemCode::IdleWeights
                    | ProblemCode::UnusedGraph
                    | ProblemCode::DoubleBuffer
                    | ProblemCode::IdleCheckpointing
            )
    }
}

/// What problems have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// What no step needs again.
    Leak,
    /// What becomes more from step to step.
    Growth,
    /// Memory in pieces.
    Fragmentation,
    /// The program needs so much.
    Size,
    /// The host's memory, of which the device has nothing.
    Host,
    /// What libraries compute in.
    Workspaces,
    /// Each of its own kind.
    Other,
}

words! {
    /// What printed numbers say, the most telling first.
    StatementCode {
        VllmNoRoom = "vllm/no-room",
        LevelsGrow = "levels/grow",
        RanOut = "allocator/ran-out",
        CardFull = "card/full",
        RanksOnOneCard = "processes/ranks-on-one-card",
        SeveralProcesses = "processes/several",
        HiddenProcesses = "processes/hidden",
        ShmFull = "host/shm-full",
        HostNearlyFull = "host/nearly-full",
        HostSwaps = "host/swaps",
        UnevenCards = "cards/uneven",
        Unused = "levels/unused",
        Retries = "allocator/retries",
        VllmTakesTheRest = "vllm/takes-the-rest",
        Operators = "operators/most",
        Peak = "levels/peak",
        LevelsSteady = "levels/steady",
        NoSizes = "processes/no-sizes",
        CardIdle = "card/idle",
        CardUsed = "card/used",
    }
}

impl StatementCode {
    /// What people have to know first; what describes and says nothing is last, and in the order of the text.
    pub fn rank(self) -> StatementCode {
        self.min(StatementCode::NoSizes)
    }
}

words! {
    /// What a reader has to know to trust a prediction.
    NoteCode {
        Unsupported = "unsupported",
        NothingRecorded = "nothing-recorded",
        NoGpuUse = "no-gpu-use",
        ScriptFailed = "script-failed",
        Interrupted = "interrupted",
        WaitedInVain = "waited-in-vain",
        CutOff = "cut-off",
        Steps = "steps",
        NoSteps = "no-steps",
        AllSkipped = "all-skipped",
        NotSeen = "not-seen",
        NeverTrained = "never-trained",
        GrowsSlowly = "grows-slowly",
        OtherEndUnseen = "other-end-unseen",
        OomCaught = "oom-caught",
        Retries = "retries",
        SeveralProcesses = "several-processes",
        RanksAlike = "ranks-alike",
        OneExpert = "one-expert",
        RanksDiffer = "ranks-differ",
        RanksUnseen = "ranks-unseen",
        RankAlone = "rank-alone",
        AskedSize = "asked-size",
        VisibleDevices = "visible-devices",
        Together = "together",
        RanOutBeside = "ran-out-beside",
        UnknownReads = "unknown-reads",
        SizesUnknown = "sizes-unknown",
        NotImitated = "not-imitated",
        Approximated = "approximated",
        RecordingIncomplete = "recording-incomplete",
        Mismatches = "mismatches",
        NoPhases = "no-phases",
        MuchUnknown = "much-unknown",
        ContextDerived = "context-derived",
        Order = "order",
        Overflow = "overflow",
        CudnnBenchmark = "cudnn-benchmark",
        EverythingFound = "everything-found",
        Writes = "writes",
        Network = "network",
        Unread = "unread",
        MasksHalf = "masks-half",
        NoGpuChosen = "no-gpu-chosen",
        Cards = "cards",
        ReadOnly = "read-only",
        HostMemory = "host-memory",
        HostShared = "host-shared",
    }
}

open_words! {
    /// What a sentence of the agent is about. Those that something depends on have a name.
    RemarkCode {
        FailedLater = "failed-later",
        KeptOff = "kept-off",
        LargerSample = "larger-sample",
        RaisesLater = "raises-later",
        SampledStacks = "sampled-stacks",
        ServerReady = "server-ready",
        ServerRuns = "server-runs",
        ServerWithoutRequests = "server-without-requests",
        StepsByBackward = "steps-by-backward",
        StepsByForward = "steps-by-forward",
        ImaginedRanks = "imagined-ranks",
        IdleCheckpointing = "checkpointing-no-effect",
        LargestDraws = "largest-draws",
        WorstBatches = "worst-batches",
        CutByCheckpointing = "checkpointing-no-gradients",
        OpenAutocast = "autocast-open",
        RetainsGraph = "graph-retained",
        CreatesGraph = "gradient-graph",
        CollectsInputs = "inputs-collected",
    }
}

words! {
    /// What went wrong in a run that is watched.
    AlarmCode {
        Growth = "watch/growth",
        OverPlan = "watch/over-plan",
        Drift = "watch/drift",
        Neighbour = "watch/neighbour",
        Fragmentation = "watch/fragmentation",
    }
}

words! {
    /// What a search for plans came to: the `outcome` of `plimsoll fit`.
    FitCode {
        Fits = "fits",
        FitsWithPlan = "fits_with_plan",
        FitsWithRecipe = "fits_with_recipe",
        FitsSoFar = "fits_so_far",
        Depends = "depends",
        Grows = "grows",
        ScriptFailed = "script_failed",
        Interrupted = "interrupted",
        DoesNotFit = "does_not_fit",
    }
}
