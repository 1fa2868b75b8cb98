//! Every kind of message that is known, in the order in which they are looked for: of several that are
//! in one line, the first is meant. Each is its words, who says it, and beside which words its numbers
//! stand; what takes more than that to read is in `readers`.

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
    "ancdata",
];

/// Whether a line is worth looking at, in lower case.
pub(super) fn is_worth(lower: &str) -> bool {
    TRIGGERS.iter().chain(hosts::SHELLS).any(|it| lower.contains(it))
}

/// The form of a message that begins in the first `first` bytes of `lower`, and where.
pub(super) fn find(lower: &str, first: usize) -> Option<Found> {
    let mut forms = FORMS.iter().copied().flatten();
    let found = forms.find_map(|it| it.found_in(lower, first));
    found.filter(|it| it.form.is_plain || !is_talk(lower, it.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_worth_a_look() {
        for words in FORMS.iter().copied().flatten().flat_map(|it| it.words) {
            assert!(is_worth(words), "{words}");
            assert_eq!(*words, words.to_ascii_lowercase());
        }
    }
}
