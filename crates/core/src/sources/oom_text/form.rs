//! One kind of message, how it is found in a line, and how its numbers are read.

use crate::{
    failures::{Backend, Failure, Kind},
    sources::{
        numbers::{after, before, device_after, first_of},
        oom_text::readers,
    },
    units::Bytes,
};

/// Where a number stands: after its words, if nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Requested,
    RequestedBefore,
    Capacity,
    Free,
    FreeBefore,
    Allocated,
    Limit,
    Device,
}

/// One kind of message.
pub(super) struct Form {
    /// What it is known by, in lower case; one of them is enough.
    pub(super) words: &'static [&'static str],
    /// One of these has to be there as well, if there are any.
    also: &'static [&'static str],
    kind: Kind,
    backend: Backend,
    /// Of one number several words may be named; the first that is there counts.
    numbers: &'static [(Number, &'static str)],
    /// Whether its message goes on over several lines.
    pub(super) is_long: bool,
    /// Whether it is so clear that advice with the same words is none.
    pub(super) is_plain: bool,
    /// Whether the words mean what they seem to mean.
    holds: Option<fn(&Place<'_>) -> bool>,
    /// What else there is to read.
    read: Option<fn(&mut Failure, &str, &str)>,
}

/// Where words were found.
pub(super) struct Place<'a> {
    /// The message in lower case, and what follows it.
    pub(super) lower: &'a str,
    /// Where the words begin.
    pub(super) at: usize,
    /// And end.
    pub(super) end: usize,
    /// Where the first line ends.
    pub(super) first: usize,
}

type Words = &'static [&'static str];
type Numbers = &'static [(Number, &'static str)];

pub(super) const fn form(kind: Kind, backend: Backend, words: Words, numbers: Numbers) -> Form {
    Form {
        words,
        also: &[],
        kind,
        backend,
        numbers,
        is_long: false,
        is_plain: false,
        holds: None,
        read: None,
    }
}

pub(super) const fn device(backend: Backend, words: Words, numbers: Numbers) -> Form {
    form(Kind::OutOfMemory, backend, words, numbers)
}

pub(super) const fn host(words: Words, numbers: Numbers) -> Form {
    form(Kind::HostOutOfMemory, Backend::Host, words, numbers)
}

impl Form {
    pub(super) const fn also(self, also: Words) -> Form {
        Form { also, ..self }
    }

    pub(super) const fn long(self) -> Form {
        Form { is_long: true, ..self }
    }

    pub(super) const fn plain(self) -> Form {
        Form { is_plain: true, ..self }
    }

    pub(super) const fn if_holds(self, holds: fn(&Place<'_>) -> bool) -> Form {
        Form { holds: Some(holds), ..self }
    }

    pub(super) const fn read(self, read: fn(&mut Failure, &str, &str)) -> Form {
        Form { read: Some(read), ..self }
    }

    /// Where a message of this form begins in the first `first` bytes of `lower`; each of its words begins there first.
    pub(super) fn found_in(
        &'static self,
        lower: &str,
        first: usize,
        begins: &[Option<usize>],
    ) -> Option<Found> {
        let mut found = self
            .words
            .iter()
            .zip(begins)
            .filter_map(|(words, at)| Some((words, at.filter(|it| *it < first)?)));
        let is_also_there =
            || self.also.is_empty() || self.also.iter().any(|it| lower.contains(it));
        found.find_map(|(words, at)| {
            let place = Place { lower, at, end: at + words.len(), first };
            let holds = is_also_there() && self.holds.is_none_or(|holds| holds(&place));
            holds.then_some(Found { form: self, words, at })
        })
    }

    /// Whether it is the message of the caching allocator, in one of its templates.
    pub(super) fn is_torch(&self) -> bool {
        self.read.is_some_and(|reader| {
            std::ptr::fn_addr_eq(reader, readers::torch as fn(&mut Failure, &str, &str))
        })
    }
}

/// A message by its words, and where they begin.
pub(super) struct Found {
    pub(super) form: &'static Form,
    pub(super) words: &'static str,
    pub(super) at: usize,
}

/// Where another message begins after `first`.
pub(super) fn next_after(lower: &str, first: usize) -> Option<usize> {
    let begins = [
        "out of memory. tried to allocate",
        "thcudacheck fail",
        "runtimeerror: ",
        "outofmemoryerror: ",
        " memoryerror: ",
    ];
    begins.iter().filter_map(|it| lower.get(first..)?.find(it).map(|at| first + at)).min()
}

/// The numbers of the message that begins at `start`.
pub(super) fn parse(form: &Form, text: &str, lower: &str, start: usize) -> Failure {
    let mut it = Failure {
        kind: form.kind,
        backend: form.backend,
        exception: exception(text),
        ..Failure::default()
    };
    // Numbers stand behind the words mostly; those before them are of the same line.
    let tail = &lower[start..];
    let size = |word: &str| after(tail, word).or_else(|| after(lower, word));
    for (number, word) in form.numbers {
        match number {
            Number::Requested => first_of(&mut it.requested, || size(word)),
            Number::RequestedBefore => first_of(&mut it.requested, || before(lower, word)),
            Number::Capacity => first_of(&mut it.capacity, || size(word)),
            Number::Free => first_of(&mut it.free, || size(word)),
            Number::FreeBefore => first_of(&mut it.free, || before(tail, word)),
            Number::Allocated => first_of(&mut it.allocated, || size(word)),
            Number::Limit => first_of(&mut it.limit, || size(word)),
            Number::Device => first_of(&mut it.device, || {
                device_after(tail, word).or_else(|| device_after(lower, word))
            }),
        }
    }
    if let Some(read) = form.read {
        read(&mut it, lower, tail);
    }
    it
}

/// `torch.OutOfMemoryError:` at the beginning, or `CUDA out of memory` that is not in a sentence.
pub(super) fn is_exception(place: &Place<'_>) -> bool {
    let head = place.lower[..place.at].trim_end();
    let tail = &place.lower[place.end..];
    let is_compared =
        ["' in ", "\" in ", "' not in", "\" not in"].iter().any(|it| tail.starts_with(it));
    if is_compared || is_code(head) {
        return false;
    }
    if place.lower[place.at..].starts_with("outofmemoryerror") {
        // A class name at the end of a word chain: `torch.cuda.OutOfMemoryError: ...`; Java's is a heap's.
        return (tail.starts_with(':') || tail.is_empty()) && !head.ends_with("java.lang.");
    }
    if !head.ends_with("error:") && is_sentence(tail) {
        return false;
    }
    // In quotes it is a title, unless it is somebody's value.
    let quoted =
        ['"', '\''].into_iter().find_map(|it| head.strip_suffix(it).zip(tail.strip_prefix(it)));
    if let Some((head, _)) = quoted {
        let head = head.trim_end();
        return head.is_empty() || head.ends_with([':', '=', ',', '(', '[']);
    }
    head.is_empty() || head.ends_with([':', ']', ')', '!', '-', '|', '"', '\'', '('])
}

/// Whether a size stands behind the words, and memory is what the line is about.
pub(super) fn asks_for_memory(place: &Place<'_>) -> bool {
    const LEAST: Bytes = Bytes(512);
    let line = &place.lower[..place.first];
    let size = after(&place.lower[place.end..], "");
    line.contains("memory") && !is_code(&line[..place.at]) && size.is_some_and(|it| LEAST <= it)
}

/// Whether what stands before the words is a program's, not a message's.
pub(super) fn is_code(head: &str) -> bool {
    ["except ", "import", "raise", "catch", "isinstance", "`", "def ", "class "]
        .iter()
        .any(|it| head.contains(it))
}

/// Whether what stands behind the words goes on to talk about them.
pub(super) fn is_sentence(tail: &str) -> bool {
    [" error", " is ", " can ", " when ", " may ", " occurs"].iter().any(|it| tail.starts_with(it))
}

/// `MemoryError` as an exception that ends a traceback: alone, or before a colon.
pub(super) fn is_class(place: &Place<'_>) -> bool {
    let head = &place.lower[..place.at];
    let is_first = head.is_empty()
        || head.ends_with([' ', '.']) && !head.contains("except") && !head.contains("raise");
    is_first && (place.end == place.first || place.lower[place.end..].starts_with(':'))
}

/// Whether a program that caught the error says in its `lines` that it goes on without what failed.
pub(super) fn goes_on<'a>(mut lines: impl Iterator<Item = &'a str>) -> bool {
    lines.any(|line| {
        let lower = line.to_ascii_lowercase();
        [
            "skipping batch",
            "skip batch",
            "skip this batch",
            "skipping step",
            "skipping this step",
            "skipping update",
            "skipping this batch",
            "skipping the batch",
            "batch removed",
            "attempting to recover from oom",
            "trying again with",
            "retrying with",
            "ignoring this choice",
            "falling back to cpu",
        ]
        .iter()
        .any(|words| lower.contains(words))
    })
}

/// Advice and documentation name the same words.
pub(super) fn is_talk(lower: &str, at: usize) -> bool {
    let start =
        (0..=at.saturating_sub(60)).rev().find(|it| lower.is_char_boundary(*it)).unwrap_or(0);
    let head = &lower[start..at];
    [
        "if you ",
        "to avoid",
        "to prevent",
        "may cause",
        "might cause",
        "in case of",
        "when you see",
        "how to fix",
        " to catch ",
    ]
    .iter()
    .any(|it| head.contains(it))
}

/// The last class name before the message: `torch.OutOfMemoryError`.
fn exception(text: &str) -> Option<String> {
    let mut res = None;
    for word in text.split(' ').take(40) {
        let name = word.trim_start_matches(['(', '[', '\'', '"', '│', '!', '-']);
        let Some((name, _)) = name.split_once(':') else { continue };
        let is_name = name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'.' || it == b'_');
        let is_class = ["Error", "Exception", "EnforceNotMet", "OutOfResources"]
            .iter()
            .any(|it| name.ends_with(it));
        if is_name && is_class && name.len() < 120 {
            res = Some(name.to_owned());
            break;
        }
    }
    res
}
