//! The remedies there are: what each is, what it changes, and what a person would write for it.

/// What a remedy does to the numbers that training computes; a later one does more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Numbers {
    /// The same, up to the rounding of sums in another order.
    Same,
    /// Others of the same kind: other random numbers, other batch statistics.
    Statistics,
    /// Less precision.
    Precision,
}

impl Numbers {
    /// In words.
    pub const fn shown(self) -> &'static str {
        match self {
            Numbers::Same => "same",
            Numbers::Statistics => "dropout, batch-norm",
            Numbers::Precision => "bfloat16",
        }
    }
}

/// One technique.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// How it is called, everywhere.
    pub id: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// What it does to the numbers.
    pub numbers: Numbers,
    /// What a person would write, in plain PyTorch.
    pub snippet: &'static str,
}

/// Every remedy, the cheapest in time first as far as that can be said of all programs; the order in which
/// they are tried. What one really costs is counted on the phantom.
pub const CATALOGUE: [Kind; 10] = [
    Kind {
        id: "fused",
        what: "the optimizer updates many parameters in one kernel and needs no temporaries of their size",
        numbers: Numbers::Same,
        snippet: "optimizer = torch.optim.AdamW(model.parameters(), ..., fused=True)",
    },
    Kind {
        id: "set-to-none",
        what: "zero_grad gives gradients back instead of filling them with zeros",
        numbers: Numbers::Same,
        snippet: "optimizer.zero_grad(set_to_none=True)",
    },
    Kind {
        id: "chunked-loss",
        what: "cross-entropy of many classes is computed some rows at a time",
        numbers: Numbers::Same,
        snippet: "\
# instead of F.cross_entropy(logits, targets): no copy of all log-probabilities is kept
def chunked_cross_entropy(logits, targets, rows=1024):
    def part(logits, targets):
        return F.cross_entropy(logits, targets, reduction=\"sum\")
    pieces = zip(logits.split(rows), targets.split(rows))
    total = sum(torch.utils.checkpoint.checkpoint(part, a, b, use_reentrant=False) for a, b in pieces)
    return total / (targets != -100).sum()",
    },
    Kind {
        id: "autocast",
        what: "the forward pass runs in mixed precision",
        numbers: Numbers::Precision,
        snippet: "\
with torch.autocast(\"cuda\", dtype=torch.bfloat16):
    loss = criterion(model(inputs), targets)
loss.backward()",
    },
    Kind {
        id: "foreach",
        what: "the optimizer updates one parameter at a time and needs no temporaries of the size of all",
        numbers: Numbers::Same,
        snippet: "optimizer = torch.optim.AdamW(model.parameters(), ..., foreach=False)",
    },
    Kind {
        id: "no-grad-evaluation",
        what: "evaluation keeps no activations",
        numbers: Numbers::Same,
        snippet: "\
model.eval()
with torch.no_grad():
    ...",
    },
    Kind {
        id: "optimizer-in-backward",
        what: "each parameter is updated as soon as its gradient is complete",
        numbers: Numbers::Same,
        snippet: "\
optimizers = {p: torch.optim.AdamW([p], ...) for p in model.parameters()}
def update(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
# and no optimizer.step() in the loop",
    },
    Kind {
        id: "micro-batches",
        what: "the batch goes through the model in parts; one step for the whole batch, as before",
        numbers: Numbers::Statistics,
        snippet: "\
optimizer.zero_grad()
for inputs_part, targets_part in zip(inputs.chunk(parts), targets.chunk(parts)):
    loss = criterion(model(inputs_part), targets_part)
    # a mean over parts of unequal size is weighted by their share of the batch
    (loss * len(inputs_part) / len(inputs)).backward()
optimizer.step()",
    },
    Kind {
        id: "checkpoint",
        what: "blocks keep their input only, and run again when backward reaches them",
        numbers: Numbers::Same,
        snippet: "\
from torch.utils.checkpoint import checkpoint
for i, block in enumerate(self.blocks):
    x = checkpoint(block, x, use_reentrant=False) if i in CHECKPOINTED else block(x)
# a transformers model: model.gradient_checkpointing_enable()",
    },
    Kind {
        id: "offload",
        what: "activations wait in the host's memory between forward and backward",
        numbers: Numbers::Same,
        snippet: "\
with torch.autograd.graph.save_on_cpu(pin_memory=True):
    loss = criterion(model(inputs), targets)
loss.backward()",
    },
];

/// Remedies that the search does not try among the others: settings of the allocator are not the script's, and TF32
/// saves time only.
const OTHERS: [Kind; 2] = [
    Kind {
        id: "allocator",
        what: "settings of PyTorch's allocator",
        numbers: Numbers::Same,
        snippet: "PYTORCH_CUDA_ALLOC_CONF=... python train.py",
    },
    Kind {
        id: "tf32",
        what: "matrix products of float32 run on tensor cores; time only",
        numbers: Numbers::Precision,
        snippet: "torch.set_float32_matmul_precision(\"high\")",
    },
];

/// The remedy called `id`.
pub fn find(id: &str) -> Option<Kind> {
    CATALOGUE.into_iter().chain(OTHERS).find(|it| it.id == id)
}
