//! The table: a row for each remedy.

use crate::{
    kind::{Bears, Devices, Kind, Layer, Numbers, Offer, Role, Untrained, Use},
    parameter::{AFTER, BLOCKS, CHUNK, FIRST, GPUS, MEASURE, PARTS, SEGMENTS, SETTINGS, SMALLEST},
};

/// A row is the name in Rust, the id, role, numbers, layer, what else is so of it, and the sentence that people read.
macro_rules! remedies {
    ($($name:ident = $id:literal, $role:ident, $numbers:ident, $layer:ident $({ $($more:ident: $is:expr),* })?: $what:literal;)*) => {
        $(
            #[doc = concat!("Its id: ", $what, ".")]
            pub const $name: &str = $id;
        )*

        /// Every remedy, the cheapest in time first as far as that can be said of all programs. What one really costs is
        /// counted on the phantom.
        pub const CATALOGUE: &[Kind] = &[$(
            Kind {
                role: Role::$role,
                offer: Role::$role.offer(),
                numbers: Numbers::$numbers,
                layer: Layer::$layer,
                $($($more: $is,)*)?
                ..plain($name, $what, include_str!(concat!("pages/", $id, ".md")))
            },
        )*];
    };
}

/// What is so of a remedy of which nothing is said.
const fn plain(id: &'static str, what: &'static str, page: &'static str) -> Kind {
    Kind {
        id,
        what,
        numbers: Numbers::Same,
        role: Role::ByHand,
        offer: Offer::ByHand,
        layer: Layer::Outside,
        devices: Devices::One,
        bears: Bears::Devices,
        of: Use::Every,
        untrained: Untrained::Nothing,
        beside: None,
        takes: &[],
        page,
    }
}

remedies! {
    FUSED = "fused", Free, Same, Options:
        "the optimizer updates many parameters in one kernel and needs no temporaries of their size";
    FOREACH = "foreach", Free, Same, Options:
        "the optimizer updates one parameter at a time and needs no temporaries of the size of all";
    SET_TO_NONE = "set-to-none", Free, Same, Options:
        "zero_grad gives gradients back instead of filling them with zeros";
    CHUNKED_LOSS = "chunked-loss", Free, Same, Functions { takes: &[SMALLEST] }:
        "cross-entropy of many classes is computed some rows at a time";
    INPLACE_ACTIVATIONS = "inplace-activations", Free, Same, Forward { of: Use::SomeModels }:
        "activations and dropout write into their input";
    ATTENTION = "attention", Free, Statistics, Model { of: Use::SomeModels }:
        "attention of transformers' models is PyTorch's fused one";
    CHANNELS_LAST = "channels-last", Rung, Same, Input { of: Use::SomeModels }:
        "convolutions have their channels last in memory";
    AUTOCAST = "autocast", Rung, Precision, Forward { untrained: Untrained::Something }:
        "the forward pass runs in mixed precision";
    AUTOCAST_FP16 = "autocast-fp16", Rung, Precision, Forward { bears: Bears::NoShares, untrained: Untrained::Something }:
        "the forward pass runs in mixed precision with float16, the loss is scaled";
    BUCKET_VIEW = "bucket-view", Free, Same, Options:
        "DistributedDataParallel keeps gradients once, as views of what it sends";
    NO_GRAD_EVALUATION = "no-grad-evaluation", Asked, Same, Loop { untrained: Untrained::Something }:
        "evaluation keeps no activations";
    DETACH_LOSSES = "detach-losses", Asked, Same, Functions:
        "losses give their graph back once backward has used it";
    ZERO1 = "zero1", Rung, Statistics, Devices { devices: Devices::Shares, takes: &[GPUS] }:
        "each device has a share of the batch and of the optimizer's state";
    FSDP2 = "fsdp2", Rung, Statistics, Devices { devices: Devices::Shares, takes: &[GPUS] }:
        "each device has a share of the batch, the weights, the gradients and the optimizer's state";
    MODEL_PARALLEL = "model-parallel", Rung, Same, Devices { devices: Devices::InTurn, takes: &[GPUS, FIRST] }:
        "the blocks of the model are on several devices, which work one after the other";
    OPTIMIZER_IN_BACKWARD = "optimizer-in-backward", Rung, Same, Step { bears: Bears::NoShares }:
        "each parameter is updated as soon as its gradient is complete";
    MICRO_BATCHES = "micro-batches", Rung, Statistics, Batch { takes: &[PARTS], untrained: Untrained::Something }:
        "the batch goes through the model in parts; one step for the whole batch, as before";
    OPTIMIZER_8BIT = "optimizer-8bit", Rung, Precision, Optimizer { bears: Bears::NoShares, of: Use::SomeOptimizers }:
        "the optimizer keeps its state in 8 bits";
    CHECKPOINT = "checkpoint", Rung, Same, Blocks { takes: &[BLOCKS, SEGMENTS, MEASURE], untrained: Untrained::NothingSaid }:
        "blocks keep their input only, and run again when backward reaches them";
    OPTIMIZER_OFFLOAD = "optimizer-offload", Rung, Same, Optimizer { bears: Bears::NoShares, takes: &[CHUNK], untrained: Untrained::NothingSaid }:
        "the optimizer's state waits in the host's memory";
    OFFLOAD = "offload", Rung, Same, Saved { takes: &[SMALLEST], untrained: Untrained::NothingSaid }:
        "activations wait in the host's memory between forward and backward";
    PARAMETER_OFFLOAD = "parameter-offload", Rung, Same, Blocks { bears: Bears::OneDevice, takes: &[CHUNK], untrained: Untrained::Something }:
        "the weights of blocks wait in the host's memory, and are there while a block runs";
    PURE_BF16 = "pure-bf16", Asked, Precision, Weights:
        "weights, gradients and the optimizer's state are bfloat16";
    ADAFACTOR = "adafactor", Asked, Training, Optimizer { bears: Bears::NoShares }:
        "the optimizer is Adafactor, which keeps one row and one column for each matrix";
    SGD = "sgd", Asked, Training, Optimizer:
        "the optimizer is plain SGD, which keeps nothing";
    EMPTY_CACHE = "empty-cache", Tuned, Same, Loop { takes: &[AFTER], untrained: Untrained::Something }:
        "the allocator gives unused memory back at one point of the loop";
    METRICS_ON_CPU = "metrics-on-cpu", ByHand, Same, Outside:
        "outputs and metrics that are kept are kept on the CPU";
    SHORTER_SEQUENCE = "shorter-sequence", Advice, Training, Outside:
        "batches are half as long";
    SMALLER_BATCH = "smaller-batch", Advice, Training, Outside:
        "batches have half as many samples";
    SMALLER_IMAGES = "smaller-images", Advice, Training, Outside:
        "images are half as high and half as wide";
    LORA = "lora", Advice, Training, Model:
        "the model is frozen and low-rank adapters are trained";
    QUANTIZATION = "quantization", Advice, Training, Model { beside: Some(LORA) }:
        "frozen linear layers are whole numbers of 8 bits";
    SMALLER_MODEL = "smaller-model", Advice, Training, Model:
        "the model has half of its blocks";
    DEPTHWISE = "depthwise", Advice, Training, Model:
        "dense convolutions are one kernel for each channel, then a mix of the channels";
    PRUNING = "pruning", Advice, Training, Model:
        "half of the weights are pruned, which takes memory in training";
    ALLOCATOR = "allocator", Tuned, Same, Outside { takes: &[SETTINGS], untrained: Untrained::Something }:
        "settings of PyTorch's allocator";
    TF32 = "tf32", Asked, Precision, Functions:
        "matrix products of float32 run on tensor cores; time only";
}
