//! What the weights of a model were when it was first called.

use crate::units::Bytes;

/// The weights of one model: packed into few bits, in 16 or 32 bits, adapted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightsNote {
    /// The model, as its class is called.
    pub model: String,
    /// What packed weights take: whole numbers, or floats of 8 bits and fewer.
    pub packed: Bytes,
    /// How many modules have such weights.
    pub packed_modules: u64,
    /// Matrices that nobody trains and that are not packed, by place in the model, the largest first.
    pub wide: Vec<WideWeights>,
    /// What the parameters of adapters take.
    pub adapters: Bytes,
    /// What models in 16 or 32 bits take that were loaded from the same place as this packed one, and that no step called.
    pub uncalled: Bytes,
    /// Weights of adapted layers that want a gradient themselves.
    pub unfrozen: Unfrozen,
}

/// Weights of one kind that are not packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WideWeights {
    /// The parameter, as in `model.layers.*.mlp.experts.down_proj`: one name for all layers.
    pub name: String,
    /// The class of the module that has it.
    pub class: String,
    /// Bits of one number.
    pub bits: u32,
    /// An embedding, or the head that has its shape: what quantization leaves out on purpose.
    pub is_table: bool,
    /// How many tensors.
    pub tensors: u64,
    /// What they take together.
    pub bytes: Bytes,
    /// The list of modules to skip that has them, if one does.
    pub skip: Option<Skip>,
}

/// A list of modules that are not to be quantized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skip {
    /// The setting: `llm_int8_skip_modules`.
    pub list: String,
    /// It came with a checkpoint that was quantized already; else the script gave it.
    pub is_of_checkpoint: bool,
    /// Its entries that name these weights, a few of them at most.
    pub entries: Vec<String>,
}

/// Weights below adapters that are trained too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfrozen {
    /// How many tensors.
    pub tensors: u64,
    /// What they take together.
    pub bytes: Bytes,
    /// The name of one.
    pub first: Option<String>,
}
