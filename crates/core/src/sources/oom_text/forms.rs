//! Every kind of message that is known, in the order in which they are looked for: of several that are
//! in one line, the first is meant. Each is its words, who says it, and beside which words its numbers
//! stand; what takes more than that to read is in `readers`.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use crate::sources::oom_text::{
    allocators,
    form::{Form, Found, is_talk},
    hosts, libraries, unknown_programs,
};

/// All of them.
const FORMS: &[&[Form]] =
    &[allocators::FORMS, hosts::CLEAR, libraries::FORMS, hosts::SHARED, unknown_programs::FORMS];

/// Some word of each form's words, so that most lines of a log need not be looked at twice.
const TRIGGERS: &[&str] = &[
    "memor",
    "pytorch",
    "rmm",
    "storage",
    "requested bytes",
    "bus error",
    "shm",
    "</torch_",
    "mmap",
    "alloc",
    "capac",
    "cudnn",
    "nccl",
    "cuda",
    "kill",
    "137",
    "resource",
    "oom",
    "error",
    "-9",
    "dst tensor",
    "convolution",
    "batch size",
    "assert",
    "sigbus",
    "signal 7",
    "thread",
    "exitcode",
    "exit code",
    "dispatched on",
    "offload",
    "meta tensor",
    "command buffer",
    "to reserve",
    "nvmap",
    "static tls",
    "engine to execute",
    "mem-fraction",
    "state cache",
    "new constant",
    "number of tokens",
    "cublas",
    "cusolver",
    "cufft",
    "el0004",
    "not a failure",
    "buffer size",
    "available ram",
    "memlimit",
    "device lost",
    "errno",
    "sigterm",
    "signal 9",
    "paging file",
    "not enough",
    "vram",
    "out_of_me",
    "tried to",
    "memalign",
    "curesult",
    "terminate called",
    "ancdata",
    "configuration",
    "died",
    "crash",
    "writing file",
    "model require",
    "tactic",
    "tdrv:",
    "temporary_buffer",
    "llama runner",
    "nrtd",
    "hami-core",
    "nrt_",
    "ucx",
    "device::create_",
];

/// The triggers, in one go.
static WORTH: LazyLock<AhoCorasick> =
    LazyLock::new(|| all_of(TRIGGERS.iter().chain(hosts::SHELLS).copied()));
/// The words of all forms, in their order.
static WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| all_of(words()));
/// No word is longer.
static LONGEST: LazyLock<usize> = LazyLock::new(|| words().map(str::len).max().unwrap_or(0));

fn all_of(words: impl Iterator<Item = &'static str>) -> AhoCorasick {
    let builder = AhoCorasick::builder().ascii_case_insensitive(true).build(words);
    builder.expect("some hundred short words are not too many")
}

fn words() -> impl Iterator<Item = &'static str> {
    FORMS.iter().copied().flatten().flat_map(|it| it.words).copied()
}

/// Whether a line is worth looking at.
pub(super) fn is_worth(line: &str) -> bool {
    WORTH.is_match(line)
}

/// The form of a message that begins in the first `first` bytes of `lower`, and where.
pub(super) fn find(lower: &str, first: usize) -> Option<Found> {
    let end = lower.floor_char_boundary(first.saturating_add(*LONGEST));
    // Where each word begins first.
    let mut begins: Vec<Option<usize>> = vec![None; WORDS.patterns_len()];
    for it in WORDS.find_overlapping_iter(&lower[..end]) {
        let known = &mut begins[it.pattern().as_usize()];
        *known = Some(known.map_or(it.start(), |at| at.min(it.start())));
    }
    let mut begins = begins.as_slice();
    let mut forms = FORMS.iter().copied().flatten().map(|form| {
        let (own, rest) = begins.split_at(form.words.len());
        begins = rest;
        (form, own)
    });
    let found = forms.find_map(|(it, begins)| it.found_in(lower, first, begins));
    found.filter(|it| it.form.is_plain || !is_talk(lower, it.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_worth_a_look() {
        for words in words() {
            assert!(is_worth(words), "{words}");
            assert_eq!(*words, words.to_ascii_lowercase());
        }
    }
}
