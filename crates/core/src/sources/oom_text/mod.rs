//! Texts: every failure in a log, wherever it stands. PyTorch's messages of all versions, and those of
//! the libraries beside it.
//!
//! A log is what came through terminals, log collectors and people's clipboards: lines carry prefixes,
//! colours and escapes, several ranks write at once, ends are missing. So nothing is matched whole: an
//! form says that there is a message, and each number is looked for by the words beside it.

mod allocators;
mod form;
mod forms;
mod hosts;
mod libraries;
mod merge;
mod programs;
mod readers;
mod shapes;
mod surroundings;
mod traceback;
mod unknown_programs;

use crate::{
    failures::{Failure, Kind, NO_CARD_HAS, OfCheckpoint},
    sources::{
        lines::{self, Line, MESSAGE_LINES, Stream},
        log::Log,
        oom_text::form::Form,
    },
    units::Bytes,
};

/// Characters that one message may have.
const MESSAGE_CHARS: usize = 4_000;
/// Lines in which a program says that it goes on, the message's last among them.
const GOES_ON: usize = 3;
/// Failures that are kept; of a log with more, the first.
const MOST: usize = 1_000;

/// Every failure that `text` tells of, in its order, the same one once.
pub fn read(text: &str) -> Vec<Failure> {
    of_log(&Log::of(text))
}

/// The same of a log, as far as it was read.
pub fn of_log(log: &Log) -> Vec<Failure> {
    let mut res: Vec<Failure> = Vec::new();
    let streams = lines::streams(log);
    for stream in &streams {
        of_stream(stream, &mut res);
    }
    // Progress bars are the launcher's, and have no rank.
    if let Some(unranked) = streams.iter().find(|it| it.rank.is_none()) {
        for failure in res.iter_mut().filter(|it| it.rank.is_some() && it.progress.is_none()) {
            failure.progress = traceback::progress_before(&unranked.lines, failure.at);
        }
    }
    // Each rank's watchdog says it in a line of its own.
    let timeouts = streams
        .iter()
        .flat_map(|it| &it.lines)
        .filter(|it| it.text.contains("collective operation timeout"));
    if let Some(first) = timeouts.map(|it| it.number).min() {
        for failure in res.iter_mut().filter(|it| it.is_no_size) {
            failure.is_after_a_timeout = first < failure.at;
        }
    }
    res.sort_by_key(|it| it.at);
    merge::merge(res)
}

fn of_stream(stream: &Stream<'_>, res: &mut Vec<Failure>) {
    let mut at = 0;
    while at < stream.lines.len() && res.len() < MOST {
        if !forms::is_worth(&stream.lines[at].text) {
            at += 1;
            continue;
        }
        let mut window = window(&stream.lines, at);
        let Some(found) = forms::find(&window.lower, window.first) else {
            at += 1;
            continue;
        };
        let form = found.form;
        // No message says its own first words twice.
        let behind = found.at + found.words.len();
        if let Some(again) = window.lower[behind..].find(found.words) {
            window.end_before(behind + again);
        }
        let line = &stream.lines[at];
        let mut failure = form::parse(form, &window.text, &window.lower, found.at);
        let end = at + window.taken(form).max(1) - 1 + GOES_ON;
        let after = &stream.lines[at..stream.lines.len().min(end)];
        if failure.kind == Kind::OutOfMemory && form::goes_on(after.iter().map(|it| &*it.text)) {
            failure.kind = Kind::Caught;
        }
        failure.at = line.number;
        failure.began = line.number;
        failure.rank = line.rank.or(stream.rank);
        failure.writer = stream.writer.map(str::to_owned);
        failure.pid = line.pid;
        failure.times = 1;
        failure.text = clip(&window.text, window.kept);
        traceback::attach(&mut failure, &stream.lines, at);
        readers::tensorflow_stats(
            &mut failure,
            stream.lines[..at].iter().rev().map(|it| it.text.as_ref()),
        );
        surroundings::attach(&mut failure, &stream.lines, at);
        programs::attach(&mut failure, &stream.lines, at);
        finish(&mut failure, form);
        res.push(failure);
        at += window.taken(form).max(1);
    }
}

/// The line at `at` and what may belong to its message, as one line of single blanks.
struct Window {
    text: String,
    lower: String,
    /// Where the first line ends in it: its words have to begin before.
    first: usize,
    /// Bytes of it that belong to the message.
    kept: usize,
    n_lines: usize,
    /// Where its lines begin, from the second on.
    starts: Vec<usize>,
}

impl Window {
    /// Lines that need not be looked at again.
    fn taken(&self, form: &Form) -> usize {
        if form.is_long { self.n_lines } else { 1 }
    }

    /// Leaves out the line that `at` is in, and what follows; the first stays.
    fn end_before(&mut self, at: usize) {
        let Some(n) = self.starts.iter().rposition(|it| *it <= at) else { return };
        let end = floor(&self.text, self.starts[n]);
        self.text.truncate(end);
        self.lower = self.text.to_ascii_lowercase();
        self.kept = self.kept.min(end);
        self.n_lines = n + 1;
    }
}

fn window(lines: &[Line<'_>], at: usize) -> Window {
    let mut text = String::new();
    let mut first = 0;
    let mut n_lines = 0;
    let mut starts = Vec::new();
    let width = terminal_width(&lines[at..]);
    for (n, line) in lines[at..].iter().take(MESSAGE_LINES).enumerate() {
        let trimmed = line.text.trim();
        let begins_anew = 0 < n && (trimmed.is_empty() || lines::begins_anew(trimmed));
        if begins_anew || MESSAGE_CHARS < text.len() {
            break;
        }
        let goes_on = 0 < n
            && width.is_some_and(|it| lines[at + n - 1].text.chars().count() == it)
            && !line.text.starts_with(' ')
            && !lines[at + n - 1].text.ends_with(' ');
        if 0 < n {
            starts.push(text.len());
        }
        for (m, word) in trimmed.split_whitespace().enumerate() {
            let joins = goes_on && m == 0;
            if !text.is_empty() && !joins {
                text.push(' ');
            }
            text.push_str(word);
            if MESSAGE_CHARS * 2 < text.len() {
                break;
            }
        }
        n_lines += 1;
        if n == 0 {
            first = text.len();
        }
    }
    // A message never ends after its first line's neighbour begins one of its own.
    let lower = text.to_ascii_lowercase();
    let next = form::next_after(&lower, first);
    let kept = next.unwrap_or(text.len());
    text.truncate(floor(&text, kept));
    let lower = text.to_ascii_lowercase();
    Window {
        first: first.min(text.len()),
        kept: text.len(),
        text,
        lower,
        n_lines: n_lines.min(if next.is_some() { 1 } else { n_lines }),
        starts,
    }
}

/// The width that a terminal broke the message at `lines` at, in the middle of words: several lines in a
/// row that are equally long.
fn terminal_width(lines: &[Line<'_>]) -> Option<usize> {
    let mut lens = lines.iter().take(3).map(|it| it.text.chars().count());
    let (first, second, third) = (lens.next()?, lens.next()?, lens.next()?);
    (40 <= first && first == second && third <= first).then_some(first)
}

/// What the numbers give that does not stand there itself.
fn finish(failure: &mut Failure, form: &Form) {
    let it = failure;
    if it.slack.is_none() {
        it.slack = it.reserved.zip(it.allocated).map(|(held, used)| held.saturating_sub(used));
    }
    if it.reserved.is_none() {
        it.reserved = it.allocated.zip(it.slack).map(|(used, slack)| used + slack);
    }
    // A process's line that reads 0 bytes in a container says nothing.
    if it.process == Some(Bytes::ZERO) && it.reserved.is_some_and(|held| Bytes::ZERO < held) {
        it.numbers.push(("this process, as the driver reports it".to_owned(), Bytes::ZERO));
        it.process = None;
    }
    it.is_no_size |= it.requested.is_some_and(|it| NO_CARD_HAS <= it);
    // FSDP warns of it in one line, with the error in it.
    if it.text.contains("fsdp/_state_dict_utils.py") {
        it.checkpoint = Some(OfCheckpoint::Gather);
    }
    // A card of 0 bytes is one that the driver gave no numbers of.
    if it.capacity == Some(Bytes::ZERO) {
        for number in [&mut it.capacity, &mut it.free, &mut it.allocated, &mut it.reserved] {
            *number = number.filter(|it| Bytes::ZERO < *it);
        }
        it.slack = it.slack.filter(|it| Bytes::ZERO < *it);
    }
    if form.is_torch() && it.text.len() < 1_200 {
        let whole =
            ["expandable_segments", "max_split_size_mb", "cached)", "by pytorch)", "empty_cache"];
        let lower = it.text.to_ascii_lowercase();
        let parts = [it.requested, it.capacity, it.free, it.allocated];
        it.clipped =
            parts.iter().any(Option::is_none) && !whole.iter().any(|end| lower.contains(end));
    }
}

fn clip(text: &str, len: usize) -> String {
    let end = floor(text, len.min(1_200));
    text[..end].trim().to_owned()
}

/// The largest boundary of `text` that is not after `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
