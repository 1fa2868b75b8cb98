//! The words of the reports, each in a sentence or two that need no other.

use std::fmt::{self, Display};

use crate::views::{style::Styles, wrap};

/// A word, the same in other words, and what it means.
pub const WORDS: &[(&str, &[&str], &str)] = &[
    (
        "activations",
        &["activation", "saved tensors"],
        "Results that layers compute on the way to the loss and keep for the backward pass. They grow with the batch and the length of its inputs, and go when the backward pass has used them.",
    ),
    (
        "allocated",
        &["allocated memory", "memory_allocated"],
        "The memory of all tensors; `torch.cuda.memory_allocated()` prints it. PyTorch holds more than that (reserved), and nvidia-smi shows still more.",
    ),
    (
        "allocator",
        &["caching allocator"],
        "The part of PyTorch that gives tensors their memory. It takes large pieces from the GPU's driver, cuts them up, and keeps what tensors give back, because asking the driver is slow.",
    ),
    (
        "autocast",
        &["amp", "mixed precision", "bf16", "fp16"],
        "Layers compute in numbers of two bytes instead of four. What they keep for the backward pass is half as large; the weights stay as they are.",
    ),
    (
        "buffers",
        &["buffer"],
        "Tensors of a model that are no weights: running means of batch norm, masks, position tables.",
    ),
    (
        "checkpointing",
        &["gradient checkpointing", "activation checkpointing"],
        "A block of layers keeps only its input and computes the rest again in the backward pass: less memory, about a third more time.",
    ),
    (
        "context",
        &["cuda context"],
        "Memory that the driver takes for a process before any tensor is made: its tables, loaded kernels, handles of cuBLAS and cuDNN. Some hundred MiB that PyTorch does not count.",
    ),
    (
        "device",
        &["device memory"],
        "The GPU, and its memory. A process takes three parts of it: PyTorch's, the context's, and other libraries'.",
    ),
    (
        "expandable segments",
        &["expandable_segments"],
        "A setting of PyTorch's allocator (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True): its pieces can grow, so free memory can be used as one piece. It helps against fragmentation and against nothing else.",
    ),
    (
        "fragmentation",
        &["pieces"],
        "Enough is free, but in pieces between tensors, and none of them is large enough for the request. It comes from sizes that change from step to step.",
    ),
    (
        "gradients",
        &["gradient", "grad"],
        "The backward pass computes one number for each weight, so gradients are as large as the weights. `optimizer.zero_grad()` gives them back until the next backward pass.",
    ),
    (
        "graph",
        &["autograd graph", "computation graph"],
        "PyTorch's notes on a forward pass, with which it can go back. They hold the activations. A list that keeps a loss or an output, not detached, keeps its whole graph.",
    ),
    (
        "inputs",
        &["input", "batch"],
        "The batch and its labels, which the script feeds to the model.",
    ),
    (
        "kept",
        &["kept by the script"],
        "Results of a line of the script that nothing has given back since: outputs in a list, a cache, copies of the model, data that was put on the GPU before training.",
    ),
    (
        "key-value cache",
        &["kv cache", "kv-cache"],
        "Numbers that a language model keeps for each word it has read or written, so that it need not read it again. It grows with the length of the text and with the number of texts.",
    ),
    (
        "leak",
        &["growth", "grows"],
        "Each step leaves something behind that no later step needs. The run ends at some step, however large the card is.",
    ),
    (
        "limit",
        &["set_per_process_memory_fraction"],
        "A share of the card that the process gave itself, or was given. Memory runs out there although the card has more.",
    ),
    (
        "micro-batch",
        &["gradient accumulation", "accumulation"],
        "A batch in parts: each part has its forward and backward pass, and the optimizer steps once. The result is the same but for batch norm and rounding; the activations are those of one part.",
    ),
    (
        "no_grad",
        &["inference_mode"],
        "`with torch.no_grad():` - no graph is made, so nothing is kept for a backward pass. Evaluation and generation need it; `model.eval()` is something else.",
    ),
    (
        "optimizer state",
        &["optimizer_state", "moments"],
        "Numbers that the optimizer keeps for each weight. Adam keeps two: twice the size of the weights. They are made in the first optimizer step, so many runs end there.",
    ),
    (
        "other libraries",
        &["other"],
        "Memory that libraries take by themselves, without PyTorch's allocator: NCCL, cuSOLVER, other programs' kernels.",
    ),
    (
        "parameters",
        &["parameter", "weights", "weight"],
        "The numbers that are trained. A model of a billion has 4 GB of them in fp32, 2 GB in bf16.",
    ),
    (
        "peak",
        &["maximum"],
        "The moment at which most was allocated. The card has to have room for it, however short it is.",
    ),
    (
        "phantom",
        &["phantom gpu"],
        "A GPU that is not there: libraries of ours that answer as CUDA does and compute almost nothing. The script and PyTorch are real, and so is all that they ask for.",
    ),
    (
        "pinned memory",
        &["pin_memory", "pinned"],
        "Memory of the host that cannot be swapped out, so that the GPU can copy from it by itself. It is RAM, not the GPU's, and too much of it slows the whole machine.",
    ),
    (
        "plan",
        &["remedy", "remedies"],
        "Changes to a run that make it fit: smaller parts of a batch, checkpointing, another optimizer. `plimsoll fit` looks for them, `plimsoll run --plan` applies them.",
    ),
    (
        "rank",
        &["ranks", "world size"],
        "One of several processes that train together, usually one for each GPU. Rank 0 is the first.",
    ),
    (
        "replayed",
        &["replay"],
        "Tried on our model of PyTorch's allocator, with the events of the recording: whether a request would have been served without some blocks, or under other settings.",
    ),
    (
        "reserved",
        &["reserved memory", "memory_reserved", "held"],
        "The GPU memory that PyTorch's allocator holds: that of tensors (allocated), and the rest that it keeps to hand out again. nvidia-smi shows this and the context.",
    ),
    (
        "shared memory",
        &["/dev/shm", "shm"],
        "A part of the host's RAM through which DataLoader workers hand over batches. Containers have 64 MiB of it unless they are told otherwise (--shm-size).",
    ),
    (
        "slack",
        &["unused", "allocator slack", "cache"],
        "Memory that PyTorch holds and no tensor uses. PyTorch hands it out again; other programs cannot have it.",
    ),
    (
        "steady state",
        &["steady"],
        "From some step on all steps are alike: each takes as much as the one before. The first step differs, because the optimizer's state is made in it.",
    ),
    (
        "step",
        &["optimizer step", "iteration"],
        "One update of the weights: forward pass, backward pass, optimizer. With accumulation several forward passes.",
    ),
    (
        "temporaries",
        &["temporary"],
        "Made and given back within one pass: sums on the way to a result, copies in another type.",
    ),
    (
        "unknown",
        &[],
        "Allocated, and nothing says what for: there is no name, no line of the script, no lifetime that tells.",
    ),
    (
        "workspaces",
        &["workspace", "scratch memory"],
        "Room that cuBLAS and cuDNN compute in. It is PyTorch's memory; cuDNN gives it back after each operation, cuBLAS keeps it.",
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
    const HARD: [&str; 11] = [
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
        assert_eq!(line_of("nothing here"), None);
    }
}
