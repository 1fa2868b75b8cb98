//! What a call stack says about an allocation without anybody else's notes: whether it comes from
//! the optimizer, from `backward()`, from a module, and which line of the user's own code it is.
//!
//! It knows PyTorch's file and function names, which are stable since 2.0, and nothing of Python.

use std::collections::BTreeMap;

use crate::{
    recording::is_users_code,
    trace::{Frame, FrameId, StackId, Trace},
};

/// One bit for each thing that a frame on the stack says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs(u32);

impl Signs {
    /// Inside `optimizer.step()`.
    pub(crate) const OPTIMIZER: Signs = Signs(1);
    /// The thread that called `backward()` or `torch.autograd.grad()`, inside it.
    pub(crate) const BACKWARD: Signs = Signs(1 << 1);
    /// Of these two, the second.
    pub(crate) const GRAD: Signs = Signs(1 << 10);
    /// Inside `zero_grad()`.
    pub(crate) const ZERO_GRAD: Signs = Signs(1 << 2);
    /// Gradient checkpointing computes a part of the forward pass again.
    pub(crate) const RECOMPUTE: Signs = Signs(1 << 3);
    /// Inside a module's call.
    pub(crate) const MODULE: Signs = Signs(1 << 4);
    /// `module.to()`, `.cuda()`, `.half()`: parameters and buffers are converted one by one.
    pub(crate) const APPLY: Signs = Signs(1 << 5);
    /// A module's constructor makes its weights where they are to be.
    pub(crate) const BUILT: Signs = Signs(1 << 7);
    /// In a thread of autograd's engine, as C++ frames say.
    pub(crate) const ENGINE: Signs = Signs(1 << 8);
    /// A thread of autograd's engine calls the `backward()` of a function that is written in Python.
    pub(crate) const ENGINE_CALLS: Signs = Signs(1 << 23);
    /// An operation that cuDNN serves and may want scratch memory for.
    pub(crate) const CUDNN: Signs = Signs(1 << 6);

    /// Named after a loss.
    pub(crate) const LOSS: Signs = Signs(1 << 11);
    /// Named after what a loss is made of: the scores of a vocabulary.
    pub(crate) const SCORES: Signs = Signs(1 << 12);
    /// Inside `copy.deepcopy()`.
    pub(crate) const DEEPCOPY: Signs = Signs(1 << 13);
    /// Inside `torch.load()`.
    pub(crate) const LOADED: Signs = Signs(1 << 14);
    /// Named after a cache of keys and values.
    pub(crate) const CACHE: Signs = Signs(1 << 15);
    /// Inside the part of Hugging Face's Trainer that collects what an evaluation gives.
    pub(crate) const COLLECTED: Signs = Signs(1 << 16);
    /// Inside what gathers the weights that ranks share.
    pub(crate) const GATHERED: Signs = Signs(1 << 17);

    /// Named after CUDA graphs.
    pub(crate) const GRAPH: Signs = Signs(1 << 18);

    /// Inside the attention of `nn.MultiheadAttention`.
    pub(crate) const MULTIHEAD: Signs = Signs(1 << 19);
    /// Inside the attention of Hugging Face that is written out.
    pub(crate) const EAGER: Signs = Signs(1 << 20);

    /// Inside a cross-entropy, whose input are scores of classes.
    pub(crate) const CROSS_ENTROPY: Signs = Signs(1 << 21);

    /// Inside L-BFGS, which keeps vectors of all weights.
    pub(crate) const HISTORY: Signs = Signs(1 << 22);

    /// Inside what computes a weight that has a parametrization.
    pub(crate) const PARAMETRIZED: Signs = Signs(1 << 24);

    /// Inside `vmap`, which computes many rows at once.
    pub(crate) const VMAP: Signs = Signs(1 << 25);

    /// What names say, each in lower case.
    const WORDS: [(&str, Signs); 23] = [
        ("loss", Signs::LOSS),
        ("cross_entropy", Signs::LOSS),
        ("cross_entropy", Signs::CROSS_ENTROPY),
        ("log_softmax", Signs::SCORES),
        ("lm_head", Signs::SCORES),
        ("logits", Signs::SCORES),
        ("deepcopy", Signs::DEEPCOPY),
        ("serialization.py", Signs::LOADED),
        ("cache_utils", Signs::CACHE),
        ("kv_cache", Signs::CACHE),
        ("kvcache", Signs::CACHE),
        ("past_key", Signs::CACHE),
        ("update_cache", Signs::CACHE),
        ("append_kv", Signs::CACHE),
        ("cudagraph", Signs::GRAPH),
        ("cuda_graph", Signs::GRAPH),
        ("nested_concat", Signs::COLLECTED),
        ("_fully_shard", Signs::GATHERED),
        ("fsdp_param", Signs::GATHERED),
        ("flat_param", Signs::GATHERED),
        ("partition_parameters.py", Signs::GATHERED),
        ("multi_head_attention_forward", Signs::MULTIHEAD),
        ("eager_attention", Signs::EAGER),
    ];

    /// The closure that `optimizer.step(closure)` calls.
    const CLOSURE: Signs = Signs(1 << 9);
    /// What only a closure calls from within an optimizer.
    const OF_CLOSURES: Signs =
        Signs(Self::CLOSURE.0 | Self::MODULE.0 | Self::BACKWARD.0 | Self::ZERO_GRAD.0);

    fn without(self, other: Signs) -> Signs {
        Signs(self.0 & !other.0)
    }

    pub(crate) fn has(self, sign: Signs) -> bool {
        self.0 & sign.0 != 0
    }

    fn with(self, other: Signs) -> Signs {
        Signs(self.0 | other.0)
    }
}

/// What each stack of a trace says, by [`StackId`].
pub(crate) struct Stacks {
    signs: Vec<Signs>,
    user_frames: Vec<Option<FrameId>>,
    /// The part of each stack that called the outermost module.
    outsides: Vec<StackId>,
    /// The first stack that differs only in how often a notebook's cell had run; none where there is no such cell.
    alike: Vec<StackId>,
    /// Whether the recorder kept stacks at all: only then does an empty one say anything.
    pub(crate) recorded: bool,
}

impl Stacks {
    pub(crate) fn of(trace: &Trace) -> Stacks {
        let table = &trace.stacks;
        let by_frame: Vec<(Signs, bool)> = (0..table.n_frames())
            .map(|it| FrameId(u32::try_from(it).unwrap_or(u32::MAX)))
            .map(|it| judge(trace, table.frame_of(it)))
            .collect();
        let mut signs = vec![Signs::default(); table.n_nodes()];
        let mut user_frames = vec![None; table.n_nodes()];
        let mut outsides = vec![StackId::EMPTY; table.n_nodes()];
        // Callers come before their callees, so one pass is enough.
        for node in 1..table.n_nodes() {
            let id = StackId(u32::try_from(node).unwrap_or(u32::MAX));
            let caller = table.caller(id).index();
            if let Some(frame) = table.frame_ids(id).next() {
                let (own, is_users) = by_frame[frame.index()];
                // What an optimizer's closure runs is the step's, and no longer the optimizer's.
                let is_closure = own.0 & Signs::OF_CLOSURES.0 != 0;
                let outer = if is_closure {
                    signs[caller].without(Signs::OPTIMIZER)
                } else {
                    signs[caller]
                };
                signs[node] = outer.with(own).without(Signs::CLOSURE);
                if caller == StackId::EMPTY.index() && is_function_call(trace, frame) {
                    signs[node] = signs[node].with(Signs::ENGINE_CALLS);
                }
                user_frames[node] = if is_users { Some(frame) } else { user_frames[caller] };
                outsides[node] = if signs[node].has(Signs::MODULE) { outsides[caller] } else { id };
            }
        }
        let recorded = 1 < table.n_nodes();
        Stacks { signs, user_frames, outsides, alike: alike(trace), recorded }
    }

    pub(crate) fn signs(&self, stack: StackId) -> Signs {
        self.signs[stack.index()]
    }

    /// One stack for all that are the same lines: IPython counts in the name of a cell how many cells have run.
    pub(crate) fn alike(&self, stack: StackId) -> StackId {
        self.alike.get(stack.index()).copied().unwrap_or(stack)
    }

    /// Whether a thread of autograd has `stack`, and no line of the user's is on it: it has no frame, C++ frames only, or those of a
    /// library's (or our) own function.
    pub(crate) fn is_autograds(&self, stack: StackId) -> bool {
        let signs = self.signs(stack);
        let in_library = || signs.has(Signs::ENGINE_CALLS) && self.user_frame(stack).is_none();
        stack == StackId::EMPTY
            || signs.has(Signs::ENGINE) && !signs.has(Signs::BACKWARD)
            || in_library()
    }

    /// The part of `stack` that called the outermost module; all of it where no line of the user's did.
    pub(crate) fn outside(&self, stack: StackId) -> StackId {
        let outer = self.outsides[stack.index()];
        if self.user_frame(outer).is_some() { outer } else { stack }
    }

    /// The innermost frame in the user's own code.
    pub(crate) fn user_frame(&self, stack: StackId) -> Option<FrameId> {
        self.user_frames[stack.index()]
    }
}

/// Whether a layer of `torch.nn` asked for it itself: its innermost line in Python is there.
pub(crate) fn is_of_a_layer(trace: &Trace, stack: StackId) -> bool {
    let files = trace.stacks.frame_ids(stack).map(|it| trace.text(trace.stacks.frame_of(it).file));
    let innermost = files.into_iter().find(|it| it.ends_with(".py"));
    innermost.is_some_and(|it| it.replace('\\', "/").contains("/torch/nn/"))
}

/// For each stack the first one that is the same but for the numbers of cells, as in `<ipython-input-7-af0222c0>`.
fn alike(trace: &Trace) -> Vec<StackId> {
    const CELL: &str = "<ipython-input-";
    let table = &trace.stacks;
    if !table.all_frames().any(|it| trace.text(it.file).starts_with(CELL)) {
        return Vec::new();
    }
    let mut first: BTreeMap<(StackId, &str, &str, u32), StackId> = BTreeMap::new();
    let mut res = vec![StackId::EMPTY];
    for node in 1..table.n_nodes() {
        let id = StackId(u32::try_from(node).unwrap_or(u32::MAX));
        let frame = table.innermost(id).unwrap_or_default();
        let file = trace.text(frame.file);
        let contents = file.strip_prefix(CELL).and_then(|it| it.split_once('-'));
        let file = contents.map_or(file, |it| it.1);
        let key = (res[table.caller(id).index()], file, trace.text(frame.function), frame.line);
        res.push(*first.entry(key).or_insert(id));
    }
    res
}

/// Whether `frame` calls a method of an `autograd.Function`: the outermost frame where autograd does.
fn is_function_call(trace: &Trace, frame: FrameId) -> bool {
    let Frame { file, function, .. } = trace.stacks.frame_of(frame);
    let file = trace.text(file).replace('\\', "/");
    file.ends_with("/torch/autograd/function.py") && trace.text(function) == "apply"
}

/// What one frame says, and whether it is the user's own code.
fn judge(trace: &Trace, frame: Frame) -> (Signs, bool) {
    let file = trace.text(frame.file).replace('\\', "/");
    let function = trace.text(frame.function);
    let none = Signs::default();
    let signs = if function.contains("torch::autograd::Engine::thread_") {
        Signs::ENGINE
    } else if function == "closure" || file.ends_with("/closure.py") {
        Signs::CLOSURE
    } else if file.ends_with("/torch/nn/utils/parametrize.py")
        || file.ends_with("/torch/nn/utils/weight_norm.py")
    {
        Signs::PARAMETRIZED
    } else if file.ends_with("/torch/_functorch/vmap.py")
        || file.ends_with("/torch/_vmap_internals.py")
    {
        Signs::VMAP
    } else if file.contains("/torch/optim/") {
        match function {
            "zero_grad" => Signs::ZERO_GRAD,
            _ if file.ends_with("/lbfgs.py") => Signs::OPTIMIZER.with(Signs::HISTORY),
            _ => Signs::OPTIMIZER,
        }
    } else if function == "step" && file.contains("/optim") && !is_users_code(&file, frame.line) {
        // apex, bitsandbytes, transformers: each has its own `optim*/` or `optimization.py`.
        Signs::OPTIMIZER
    } else if file.ends_with("/safetensors/torch.py") && function == "load_file" {
        Signs::LOADED
    } else if file.ends_with("/continuous_batching/cache.py") {
        // Of transformers: its pages are made by an `__init__`.
        Signs::CACHE
    } else if file.ends_with("/torch/autograd/__init__.py") {
        if function == "grad" { Signs::BACKWARD.with(Signs::GRAD) } else { Signs::BACKWARD }
    } else if file.ends_with("/torch/utils/checkpoint.py") {
        match function {
            "unpack_hook" | "recompute_fn" | "backward" => Signs::RECOMPUTE,
            _ => none,
        }
    } else if file.ends_with("/torch/nn/modules/module.py") {
        match function {
            "_call_impl" | "_wrapped_call_impl" => Signs::MODULE,
            "_apply" => Signs::APPLY,
            "load_state_dict" => Signs::BUILT,
            "zero_grad" => Signs::ZERO_GRAD,
            _ => none,
        }
    } else if function == "reset_parameters"
        || function == "__init__" && file.contains("/torch/nn/modules/")
    {
        Signs::BUILT
    } else if file.ends_with("/torch/nn/modules/conv.py")
        || file.ends_with("/torch/nn/modules/rnn.py")
        || file.ends_with("/torch/nn/modules/batchnorm.py")
    {
        Signs::CUDNN
    } else if file.ends_with("/torch/nn/functional.py") {
        match function {
            "batch_norm" | "scaled_dot_product_attention" | "ctc_loss" => Signs::CUDNN,
            _ => none,
        }
    } else if file.contains("/torchvision/") && function == "forward" {
        // Their models call convolutions of `torch.nn`, whose frames say so themselves.
        none
    } else {
        none
    };
    (signs.with(named(&file, function)), is_users_code(&file, frame.line))
}

/// What the names of a function and of its file say.
fn named(file: &str, function: &str) -> Signs {
    // The top level of a script runs everything, whatever the file is called.
    let file = if function == "<module>" { "" } else { file };
    let file = file.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let function = function.to_ascii_lowercase();
    let said = Signs::WORDS.iter().filter(|(it, _)| function.contains(it) || file.contains(it));
    said.fold(Signs::default(), |all, (_, it)| all.with(*it))
}
