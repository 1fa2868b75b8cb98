//! The words of the reports, each in a sentence or two that need no other.

use std::fmt::{self, Display};

use crate::views::{style::Styles, wrap};

/// A word, the same in other words, and what it means.
pub const WORDS: &[(&str, &[&str], &str)] = &[
    (
        "activations",
        &["activation", "saved tensors"],
        "Results of layers in the forward pass that stay allocated for the backward pass. They grow with the batch and the length of its inputs. The backward pass frees them after use.",
    ),
    (
        "allocated",
        &["allocated memory", "memory_allocated"],
        "The memory of all tensors; `torch.cuda.memory_allocated()` returns it. PyTorch holds more (reserved), and nvidia-smi shows still more.",
    ),
    (
        "allocator",
        &["caching allocator"],
        "The part of PyTorch that gives tensors their memory. It takes segments from the driver, splits them into blocks, and reuses freed blocks, because the driver is slow.",
    ),
    (
        "autocast",
        &["amp", "mixed precision", "bf16", "fp16"],
        "Layers compute in numbers of two bytes instead of four. Their activations are half as large; the weights do not change.",
    ),
    (
        "buffers",
        &["buffer"],
        "Tensors of a model that are not weights: running means of batch norm, masks, position tables.",
    ),
    (
        "checkpointing",
        &["gradient checkpointing", "activation checkpointing"],
        "A block of layers stores only its input and computes the rest again in the backward pass: less memory, up to a third more time.",
    ),
    (
        "context",
        &["cuda context"],
        "Memory that the driver takes for a process before it has any tensor: tables, loaded kernels, handles of cuBLAS and cuDNN. Some hundred MiB that PyTorch does not count.",
    ),
    (
        "device",
        &["device memory"],
        "The GPU and its memory. A process needs three parts: PyTorch's, the CUDA context's, and other libraries'.",
    ),
    (
        "expandable segments",
        &["expandable_segments"],
        "A setting of PyTorch's allocator (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True): segments can grow, so free memory forms one piece. It helps only against fragmentation.",
    ),
    (
        "fragmentation",
        &["pieces"],
        "Enough memory is free, but in pieces between tensors, each too small for the request. The cause is sizes that change from step to step.",
    ),
    (
        "gradients",
        &["gradient", "grad"],
        "The backward pass computes one number for each weight, so gradients are as large as the weights. `optimizer.zero_grad()` frees them until the next backward pass.",
    ),
    (
        "graph",
        &["autograd graph", "computation graph"],
        "PyTorch's record of a forward pass, for the backward pass. It holds the activations. A list with a loss or an output that is not detached holds the whole graph.",
    ),
    (
        "inputs",
        &["input", "batch"],
        "The batch and its labels, which the script passes to the model.",
    ),
    (
        "retained",
        &["kept"],
        "Results of a line of the script that stay allocated: outputs in a list, a cache, copies of the model, data on the GPU before training.",
    ),
    (
        "key-value cache",
        &["kv cache", "kv-cache"],
        "Numbers that a language model stores for each token, so that it does not process the token again. The cache grows with the length and the number of texts.",
    ),
    (
        "leak",
        &["growth", "grows"],
        "After each step, memory stays allocated that no later step needs. The run ends at some step on any card.",
    ),
    (
        "limit",
        &["set_per_process_memory_fraction"],
        "A share of the card that a process may use. Memory runs out at this limit although the card has more.",
    ),
    (
        "micro-batch",
        &["gradient accumulation", "accumulation"],
        "A batch in parts: each part has its forward and backward pass, and the optimizer steps once. Results differ by rounding, and by dropout and batch norm if the model has them; the activations are those of one part.",
    ),
    (
        "needs",
        &["need", "to spare"],
        "The most GPU memory that the process has at once: what PyTorch reserves, its free memory included, the CUDA context and other libraries. A card with as much fits the script; the rest of the card is to spare.",
    ),
    (
        "no_grad",
        &["inference_mode"],
        "`with torch.no_grad():` - PyTorch makes no graph, so no activations stay allocated. Evaluation and generation need it; `model.eval()` does not do this.",
    ),
    (
        "optimizer state",
        &["optimizer_state", "moments"],
        "Numbers that the optimizer stores for each weight. Adam stores two: twice the size of the weights. The first optimizer step allocates them, so many runs end there.",
    ),
    (
        "other libraries",
        &["other"],
        "Memory that libraries take outside PyTorch's allocator: NCCL, cuSOLVER, other programs' kernels.",
    ),
    (
        "parameters",
        &["parameter", "weights", "weight"],
        "The trained numbers. A billion of them are 4 GB in fp32, 2 GB in bf16.",
    ),
    (
        "peak",
        &["maximum"],
        "The time of the most allocated memory. The card must fit it, however short it is.",
    ),
    (
        "phantom",
        &["phantom gpu"],
        "An imaginary GPU: plimsoll's libraries answer as CUDA does and compute almost nothing. The script, PyTorch and all their requests are real.",
    ),
    (
        "pinned memory",
        &["pin_memory", "pinned"],
        "Host memory (RAM) that cannot be swapped out, so that the GPU can copy from it directly. Too much of it slows the whole machine.",
    ),
    (
        "plan",
        &["remedy", "remedies"],
        "Changes to a run that make it fit: smaller parts of a batch, checkpointing, another optimizer. `plimsoll fit` finds them, `plimsoll run --plan` applies them.",
    ),
    (
        "rank",
        &["ranks", "world size"],
        "One of several processes that train together, usually one for each GPU. Rank 0 is the first.",
    ),
    (
        "replayed",
        &["replay"],
        "Simulated with plimsoll's model of PyTorch's allocator and the events of the recording: whether a request fits without some blocks, or under other settings.",
    ),
    (
        "reserved",
        &["reserved memory", "memory_reserved", "held"],
        "The GPU memory that PyTorch's allocator holds: that of tensors (allocated), and free memory for later tensors. nvidia-smi shows this and the CUDA context.",
    ),
    (
        "safe size",
        &["safe", "safe_bytes", "to be safe", "request"],
        "The GPU memory to request from a scheduler. It is what the job needs, and a reserve for what a phantom cannot know exactly: the size of the CUDA context, the order in which threads free memory.",
    ),
    (
        "shared memory",
        &["/dev/shm", "shm"],
        "A part of the host's RAM through which DataLoader workers pass batches. Containers have 64 MiB by default (--shm-size sets more).",
    ),
    (
        "slack",
        &["unused", "allocator slack", "cache"],
        "Memory that PyTorch holds and no tensor uses. PyTorch reuses it; other programs cannot.",
    ),
    (
        "steady state",
        &["steady"],
        "All steps need as much memory as the one before. The first step differs, because it allocates the optimizer state.",
    ),
    (
        "step",
        &["optimizer step", "iteration"],
        "One update of the weights: forward pass, backward pass, optimizer. With accumulation several forward passes.",
    ),
    (
        "temporaries",
        &["temporary"],
        "Allocated and freed within one forward or backward pass: intermediate sums, copies in another type.",
    ),
    (
        "tight",
        &[],
        "A card with less than the safe size, where the script may run all the same: the tensors fit, and PyTorch gives free memory back to the driver when the card is full. `plimsoll predict --gpu CARD` runs the script with that limit. A plan is tight if larger batches than those seen may not fit.",
    ),
    (
        "unknown",
        &[],
        "Allocated for an unknown purpose: the recording has no name, line or lifetime that shows it.",
    ),
    (
        "workspaces",
        &["workspace", "scratch memory"],
        "Scratch memory of cuBLAS and cuDNN. PyTorch allocates it; cuDNN frees it after each operation, cuBLAS does not.",
    ),
];

/// What `word` means, whatever its capitals; nothing if it is not among [`WORDS`].
pub fn find(word: &str) -> Option<&'static (&'static str, &'static [&'static str], &'static str)> {
    let wanted = word.trim().to_lowercase().replace('_', " ");
    let is_it = |it: &str| it.replace('_', " ") == wanted;
    WORDS.iter().find(|it| is_it(it.0) || it.1.iter().any(|it| is_it(it)))
}

/// Some words and what they mean, in lines of at most `width` columns.
pub fn text<'a>(
    words: impl IntoIterator<Item = &'a (&'a str, &'a [&'a str], &'a str)> + Clone + 'a,
    styles: Styles,
    width: usize,
) -> impl Display + 'a {
    fmt::from_fn(move |f| {
        for (n, (word, others, meaning)) in words.clone().into_iter().enumerate() {
            if 0 < n {
                writeln!(f)?;
            }
            let also = if others.is_empty() {
                String::new()
            } else {
                format!(" (also: {})", others.join(", "))
            };
            writeln!(f, "{}{also}", styles.heading.of(word))?;
            write!(f, "  ")?;
            wrap::wrapped(f, meaning, width, 2, 2)?;
        }
        Ok(())
    })
}

/// The line for the end of a report: those of its words that not everybody knows; none if it has none.
pub fn line_of(report: &str) -> Option<String> {
    const WIDTH: usize = 78;
    const HARD: [&str; 12] = [
        "tight",
        "activations",
        "graph",
        "slack",
        "workspaces",
        "fragmentation",
        "checkpointing",
        "optimizer state",
        "expandable segments",
        "reserved",
        "steady state",
        "key-value cache",
    ];
    let lower = report.to_lowercase().replace('_', " ");
    let mut used: Vec<&str> = HARD.into_iter().filter(|it| lower.contains(it)).collect();
    let first = quoted(used.first()?);
    // One line of a narrow terminal.
    let line = |others: &[&str]| match others {
        [] => format!("Glossary: plimsoll glossary {first}"),
        others => {
            format!("Glossary: plimsoll glossary {first} (also {})", others.join(", "))
        }
    };
    while 1 < used.len() && WIDTH < line(&used[1..]).len() {
        used.pop();
    }
    Some(line(&used[1..]))
}

fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("\"{word}\"") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_one_and_is_found() {
        let mut seen: Vec<&str> = Vec::new();
        for (word, others, meaning) in WORDS {
            for it in std::iter::once(word).chain(*others) {
                assert!(!seen.contains(it), "{it} twice");
                seen.push(it);
                assert_eq!(find(&it.to_uppercase()).unwrap().0, *word, "{it}");
            }
            assert!(meaning.ends_with(['.', ')']), "{word}");
        }
        assert_eq!(find("turtle"), None);
        let line = line_of("FITS\n 3 GiB of activations, allocator slack").unwrap();
        assert_eq!(line, "Glossary: plimsoll glossary activations (also slack)");
        assert_eq!(line_of("  tight  a100-40g").unwrap(), "Glossary: plimsoll glossary tight");
        assert_eq!(line_of("nothing here"), None);
    }
}
