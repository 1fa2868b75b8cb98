//! Every kind of message that is known, in the order in which they are looked for: of several that are
//! in one line, the first is meant. Each is its words, who says it, and beside which words its numbers
//! stand; what takes more than that to read is in `readers`.

use crate::sources::oom_text::{allocators, form::Form, hosts, libraries, strangers};

/// All of them.
pub(super) const FORMS: &[&[Form]] =
    &[allocators::FORMS, hosts::CLEAR, libraries::FORMS, hosts::SHARED, strangers::FORMS];

/// Some word of each form's words, so that most lines of a log need not be looked at twice.
pub(super) const TRIGGERS: &[&str] = &[
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
    "engine to execute",
    "mem-fraction",
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
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::oom_text::form::is_worth;

    #[test]
    fn every_word_is_worth_a_look() {
        for words in FORMS.iter().copied().flatten().flat_map(|it| it.words) {
            assert!(is_worth(words), "{words}");
            assert_eq!(*words, words.to_ascii_lowercase());
        }
    }
}
