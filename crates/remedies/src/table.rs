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
        "the optimizer updates one parameter at a time and needs no temporaries of the size of all parameters";
    SET_TO_NONE = "set-to-none", Free, Same, Options:
        "zero_grad frees gradients instead of filling them with zeros";
    CHUNKED_LOSS = "chunked-loss", Free, Same, Functions { takes: &[SMALLEST] }:
        "cross-entropy over many classes is computed a few rows at a time";
    INPLACE_ACTIVATIONS = "inplace-activations", Free, Same, Forward { of: Use::SomeModels }:
        "activations and dropout write into their input";
    ATTENTION = "attention", Free, Statistics, Model { of: Use::SomeModels }:
        "transformers models use PyTorch's fused attention";
    CHANNELS_LAST = "channels-last", Rung, Same, Input { of: Use::SomeModels }:
        "convolutions use the channels-last memory format";
    AUTOCAST = "autocast", Rung, Precision, Forward { untrained: Untrained::Something }:
        "the forward pass runs in mixed precision";
    AUTOCAST_FP16 = "autocast-fp16", Rung, Precision, Forward { bears: Bears::NoShares, untrained: Untrained::Something }:
        "the forward pass runs in mixed precision with float16, and the loss is scaled";
    BUCKET_VIEW = "bucket-view", Free, Same, Options:
        "DistributedDataParallel holds gradients once, as views of its communication buckets";
    NO_GRAD_EVALUATION = "no-grad-evaluation", Asked, Same, Loop { untrained: Untrained::Something }:
        "evaluation keeps no activations";
    DETACH_LOSSES = "detach-losses", Asked, Same, Functions:
        "losses free their autograd graph after the backward pass";
    ZERO1 = "zero1", Rung, Statistics, Devices { devices: Devices::Shares, takes: &[GPUS] }:
        "each device has a part of the batch and of the optimizer's state";
    FSDP2 = "fsdp2", Rung, Statistics, Devices { devices: Devices::Shares, takes: &[GPUS] }:
        "each device has a part of the batch, the weights, the gradients and the optimizer's state";
    MODEL_PARALLEL = "model-parallel", Rung, Same, Devices { devices: Devices::InTurn, takes: &[GPUS, FIRST] }:
        "the model's blocks are on several devices, which work one after the other";
    OPTIMIZER_IN_BACKWARD = "optimizer-in-backward", Rung, Same, Step { bears: Bears::NoShares }:
        "the optimizer updates each parameter as soon as its gradient is complete";
    MICRO_BATCHES = "micro-batches", Rung, Statistics, Batch { takes: &[PARTS], untrained: Untrained::Something }:
        "the batch goes through the model in parts (gradient accumulation); still one optimizer step for the whole batch";
    OPTIMIZER_8BIT = "optimizer-8bit", Rung, Precision, Optimizer { bears: Bears::NoShares, of: Use::SomeOptimizers }:
        "the optimizer keeps its state in 8 bits";
    CHECKPOINT = "checkpoint", Rung, Same, Blocks { takes: &[BLOCKS, SEGMENTS, MEASURE], untrained: Untrained::NothingSaid }:
        "blocks keep only their input, and run again in the backward pass (activation checkpointing)";
    OPTIMIZER_OFFLOAD = "optimizer-offload", Rung, Same, Optimizer { bears: Bears::NoShares, takes: &[CHUNK], untrained: Untrained::NothingSaid }:
        "the optimizer's state is in host memory between steps";
    OFFLOAD = "offload", Rung, Same, Saved { takes: &[SMALLEST], untrained: Untrained::NothingSaid }:
        "activations are in host memory between the forward and the backward pass";
    PARAMETER_OFFLOAD = "parameter-offload", Rung, Same, Blocks { bears: Bears::OneDevice, takes: &[CHUNK], untrained: Untrained::Something }:
        "the weights of blocks are in host memory, and on the device only while their block runs";
    PURE_BF16 = "pure-bf16", Asked, Precision, Weights:
        "weights, gradients and the optimizer's state are in bfloat16";
    ADAFACTOR = "adafactor", Asked, Training, Optimizer { bears: Bears::NoShares }:
        "the optimizer is Adafactor, which stores one row and one column for each matrix";
    SGD = "sgd", Asked, Training, Optimizer:
        "the optimizer is plain SGD, which has no state";
    EMPTY_CACHE = "empty-cache", Tuned, Same, Loop { takes: &[AFTER], untrained: Untrained::Something }:
        "the allocator returns unused memory to the driver at one line of the loop";
    METRICS_ON_CPU = "metrics-on-cpu", ByHand, Same, Outside:
        "the script stores outputs and metrics on the CPU";
    SHORTER_SEQUENCE = "shorter-sequence", Advice, Training, Outside:
        "batches are half as long";
    SMALLER_BATCH = "smaller-batch", Advice, Training, Outside:
        "batches have half as many samples";
    SMALLER_IMAGES = "smaller-images", Advice, Training, Outside:
        "images are half as high and half as wide";
    LORA = "lora", Advice, Training, Model:
        "the model is frozen and low-rank adapters are trained";
    QUANTIZATION = "quantization", Advice, Training, Model { beside: Some(LORA) }:
        "frozen linear layers are stored as 8-bit integers";
    SMALLER_MODEL = "smaller-model", Advice, Training, Model:
        "the model has half of its blocks";
    DEPTHWISE = "depthwise", Advice, Training, Model:
        "dense convolutions become depthwise-separable: one kernel for each channel, then a mix of the channels";
    PRUNING = "pruning", Advice, Training, Model:
        "half of the weights are pruned, which needs more memory in training";
    ALLOCATOR = "allocator", Tuned, Same, Outside { takes: &[SETTINGS], untrained: Untrained::Something }:
        "settings of PyTorch's allocator";
    TF32 = "tf32", Asked, Precision, Functions:
        "float32 matrix products run on tensor cores (saves time, not memory)";
}
