//! A log as lines without what terminals and collectors add, each rank by itself.

use std::borrow::Cow;

use crate::sources::log::{Log, Piece};

/// Lines that one message may have.
pub(super) const MESSAGE_LINES: usize = 14;

/// A line of a log without its prefix.
pub(super) struct Line<'a> {
    pub(super) text: Cow<'a, str>,
    /// From 1, in the log.
    pub(super) number: usize,
    pub(super) rank: Option<u32>,
    pub(super) pid: Option<u32>,
}

/// The lines of one writer.
pub(super) struct Stream<'a> {
    /// What the launcher of several programs puts before each line: `trainer-1 | `.
    pub(super) writer: Option<&'a str>,
    pub(super) rank: Option<u32>,
    pub(super) lines: Vec<Line<'a>>,
}

/// A log by writer: lines without a rank are one, each rank is one.
pub(super) fn streams(log: &Log) -> Vec<Stream<'_>> {
    let mut res: Vec<Stream<'_>> = Vec::new();
    let has_writers = log.pieces.first().is_some_and(|it| has_writers(&it.text));
    for piece in &log.pieces {
        // Nothing goes on over what was left out.
        for it in &mut res {
            let number = piece.lines_before;
            it.lines.push(Line { text: Cow::Borrowed(""), number, rank: it.rank, pid: None });
        }
        of_piece(piece, has_writers, &mut res);
    }
    res
}

fn of_piece<'a>(piece: &'a Piece, has_writers: bool, res: &mut Vec<Stream<'a>>) {
    let mut number = piece.lines_before;
    let mut blank = false;
    for (raw, is_rewritten) in pieces(&piece.text) {
        number += 1;
        // Nothing is said by what a progress bar writes over, nor by many blank lines more than by one.
        let is_blank = raw.trim_ascii().is_empty();
        let is_one_more = is_blank && (is_rewritten || blank);
        blank = is_blank;
        if is_one_more {
            continue;
        }
        let (writer, raw) =
            writer(raw).filter(|_| has_writers).map_or((None, raw), |(it, rest)| (Some(it), rest));
        let clean = without_entities(without_escapes(raw));
        // JSON writes a whole traceback into one line.
        if clean.contains("\\n") {
            for part in
                clean.replace("\\r", "").replace("\\t", " ").replace("\\\"", "\"").split("\\n")
            {
                push(res, writer, Cow::Owned(part.to_owned()), number);
            }
        } else {
            push(res, writer, clean, number);
        }
    }
}

/// The pieces of `text` between line feeds and carriage returns, each with whether a carriage return follows: a progress bar
/// rewrites its line so. Of a line that was rewritten often only the first and the last pieces have a text.
fn pieces(text: &str) -> impl Iterator<Item = (&str, bool)> {
    /// What stood there before, and what stands there in the end: a traceback may be among that, and the bar that it ended.
    const FIRST: usize = 8;
    const LAST: usize = 256;
    text.split('\n').flat_map(|line| {
        let count = line.bytes().filter(|it| *it == b'\r').count();
        line.split('\r').enumerate().map(move |(i, piece)| {
            let piece = if FIRST <= i && i + LAST < count { "" } else { piece };
            (piece, i < count)
        })
    })
}

/// Whether most lines begin with the name of a program, and of two at least.
fn has_writers(text: &str) -> bool {
    let mut names: Vec<&str> = Vec::new();
    let (mut with, mut all) = (0_usize, 0_usize);
    for line in text.lines().take(10_000).filter(|it| !it.trim_ascii().is_empty()) {
        all += 1;
        if let Some((name, _)) = writer(line) {
            with += 1;
            if names.len() < 2 && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    1 < names.len() && all < with * 2
}

/// `trainer-1  | text`, as a compose file's programs are told apart: the name, and the text.
fn writer(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.split_once(" | ").or_else(|| line.split_once(" |"))?;
    let name = name.trim_end();
    let is_name = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    let is_one = name.starts_with(|it: char| it.is_ascii_alphabetic())
        && name.len() <= 64
        && name.contains(['-', '_', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
        && name.chars().all(is_name);
    is_one.then_some((name, rest))
}

fn push<'a>(
    streams: &mut Vec<Stream<'a>>,
    writer: Option<&'a str>,
    text: Cow<'a, str>,
    number: usize,
) {
    let prefix = prefix(&text);
    let text = match text {
        Cow::Borrowed(it) => Cow::Borrowed(&it[prefix.len..]),
        Cow::Owned(it) => Cow::Owned(it[prefix.len..].to_owned()),
    };
    let line = Line { text, number, rank: prefix.rank, pid: prefix.pid };
    match streams.iter_mut().find(|it| (it.writer, it.rank) == (writer, prefix.rank)) {
        Some(stream) => stream.lines.push(line),
        None => streams.push(Stream { writer, rank: prefix.rank, lines: vec![line] }),
    }
}

/// Without colours and other escape sequences, in their own form or as JSON and pagers write them.
fn without_escapes(line: &str) -> Cow<'_, str> {
    const MARKS: [&str; 4] = ["\x1b", "\\u001b", "\\x1b", "^["];
    if !MARKS.iter().any(|it| line.contains(it)) {
        return Cow::Borrowed(line);
    }
    let mut res = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((at, mark)) =
        MARKS.iter().filter_map(|it| rest.find(it).map(|at| (at, it.len()))).min()
    {
        res.push_str(&rest[..at]);
        let sequence = &rest[at + mark..];
        rest = match sequence.strip_prefix('[') {
            Some(parameters) => {
                let end = parameters.find(|it: char| ('@'..='~').contains(&it));
                end.map_or("", |end| &parameters[end + 1..])
            }
            None => sequence,
        };
    }
    res.push_str(rest);
    Cow::Owned(res)
}

/// Without what HTML writes for a character.
fn without_entities(line: Cow<'_, str>) -> Cow<'_, str> {
    const ENTITIES: [(&str, &str); 7] = [
        ("&nbsp;", " "),
        ("&gt;", ">"),
        ("&lt;", "<"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&amp;", "&"),
    ];
    if !ENTITIES.iter().any(|(it, _)| line.contains(it)) {
        return line;
    }
    let plain = |text: String, (entity, it): &(&str, &str)| text.replace(entity, it);
    Cow::Owned(ENTITIES.iter().fold(line.into_owned(), plain))
}

/// What stands before the text of a line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Prefix {
    len: usize,
    rank: Option<u32>,
    pid: Option<u32>,
}

fn prefix(line: &str) -> Prefix {
    let mut res = Prefix::default();
    loop {
        let rest = &line[res.len..];
        let blanks = rest.len() - rest.trim_start().len();
        let word = rest.trim_start();
        let taken = tag(word, &mut res);
        if taken == 0 {
            break;
        }
        res.len += blanks + taken;
    }
    // One blank parts a prefix from its text; what is behind it is the text's own indentation.
    if 0 < res.len && line[res.len..].starts_with(' ') {
        res.len += 1;
    }
    res
}

/// The length of one tag at the beginning of `text`: `[rank3]:`, `[1,3]<stderr>:`, `3:`, `(Worker pid=7)`.
fn tag(text: &str, prefix: &mut Prefix) -> usize {
    let lower: String = text.chars().take(64).collect::<String>().to_ascii_lowercase();
    if lower.len() != text.len().min(lower.len()) || !text.is_char_boundary(lower.len()) {
        return 0;
    }
    let number = |text: &str| {
        let digits: String = text.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok().filter(|it| *it < 1_000_000)
    };
    if prefix.len == 0
        && let Some(len) = time_len(&lower)
    {
        return len;
    }
    // A quotation in a letter.
    if lower.starts_with("> ") {
        return 1;
    }
    // What a launcher puts before the tag of a rank: `worker-3: [rank27]: `.
    if let Some(at) = lower.find(": [rank")
        && !lower[..at].contains([' ', '[', '('])
        && lower[at + 7..].starts_with(|it: char| it.is_ascii_digit())
    {
        return at + 2;
    }
    if lower.starts_with('[') {
        let Some(end) = lower.find(']') else { return 0 };
        let inside = &lower[1..end];
        let rank = ["rank", "default", "gpu", "worker", "local_rank"]
            .iter()
            .find_map(|it| inside.strip_prefix(it))
            .and_then(|it| number(it.trim_start_matches([':', ' ', '=', '-', '_'])));
        let mpi = lower[end + 1..].starts_with("<std");
        if mpi {
            prefix.rank = number(inside.rsplit(',').next().unwrap_or(inside));
            let more = lower[end + 1..].find(':').map_or(0, |it| it + 1);
            return end + 1 + more;
        }
        if let Some(rank) = rank {
            prefix.rank = Some(rank);
            return end + 1 + usize::from(lower[end + 1..].starts_with(':'));
        }
        return 0;
    }
    if lower.starts_with('(') {
        let (Some(end), Some(pid)) = (lower.find(')'), lower.find("pid=")) else { return 0 };
        if pid < end {
            prefix.pid = number(&lower[pid + 4..end]);
            let rank = lower[..end].find("rank=").and_then(|it| number(&lower[it + 5..end]));
            prefix.rank = rank.or(prefix.rank);
            return end + 1;
        }
        return 0;
    }
    // `srun --label`: `3: text`. A traceback's `0:` nobody writes.
    let digits = lower.len() - lower.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    if (1..=4).contains(&digits) && prefix.len == 0 && lower[digits..].starts_with(": ") {
        prefix.rank = number(&lower);
        return digits + 1;
    }
    0
}

/// The length of `2025-05-02t07:33:41.88z` at the beginning of `lower`, which CI systems and containers put before each line.
fn time_len(lower: &str) -> Option<usize> {
    const FORM: &str = "dddd-dd-ddtdd:dd:dd";
    let is_like = |(c, form): (u8, u8)| if form == b'd' { c.is_ascii_digit() } else { c == form };
    let begins = FORM.len() < lower.len() && lower.bytes().zip(FORM.bytes()).all(is_like);
    let end = lower.get(FORM.len()..).filter(|_| begins)?.find(' ')? + FORM.len();
    lower[FORM.len()..end].ends_with('z').then_some(end)
}

/// Whether a line cannot be the middle of a message.
pub(super) fn begins_anew(line: &str) -> bool {
    line.contains("Traceback (most recent")
        || line.contains("File \"")
        || line.starts_with("During handling of")
        || line.starts_with("The above exception")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_give_the_rank_and_go() {
        for (line, rank, text) in [
            ("[rank3]: RuntimeError: x", Some(3), "RuntimeError: x"),
            ("[rank0]:     self.f(x)", Some(0), "    self.f(x)"),
            ("[1,2]<stderr>:RuntimeError: x", Some(2), "RuntimeError: x"),
            ("[3]<stderr>:RuntimeError: x", Some(3), "RuntimeError: x"),
            ("7: RuntimeError: x", Some(7), "RuntimeError: x"),
            ("(VllmWorkerProcess pid=2421) ERROR x", None, "ERROR x"),
            ("[default3]:RuntimeError", Some(3), "RuntimeError"),
            ("worker-3: [rank27]: RuntimeError: x", Some(27), "RuntimeError: x"),
            ("> > quoted", None, "quoted"),
            ("2025-05-02T07:33:41.8800001Z [rank1]: loss", Some(1), "loss"),
            ("[1] 2019-06-13 01:17:08", None, "[1] 2019-06-13 01:17:08"),
            ("  File \"a.py\", line 3", None, "  File \"a.py\", line 3"),
            ("ошибка: [rank", None, "ошибка: [rank"),
        ] {
            let found = prefix(line);
            assert_eq!((found.rank, &line[found.len..]), (rank, text), "{line}");
        }
    }

    #[test]
    fn a_bar_that_is_rewritten_leaves_its_last_states() {
        let bar: String = (0..100_000).map(|it| format!("\r{it}/100000")).collect();
        let text = format!("a\r\nb\r\n{bar}\nc\n\n\n\n\nd{}", "\r".repeat(1_000_000));
        let log = Log::of(&text);
        let streams = streams(&log);
        let lines: Vec<(&str, usize)> =
            streams[0].lines.iter().map(|it| (&*it.text, it.number)).collect();
        assert!(lines.len() < 300, "{}", lines.len());
        assert_eq!(lines[0], ("a", 1));
        assert!(lines.contains(&("99999/100000", 100_005)), "{:?}", &lines[250..]);
        let text = |it: &&(&str, usize)| !it.0.is_empty();
        assert_eq!(lines.iter().rfind(text).map(|it| it.0), Some("d"));
    }

    #[test]
    fn colours_go() {
        assert_eq!(without_escapes("\x1b[1;31mCUDA\x1b[0m out"), "CUDA out");
        assert_eq!(without_escapes("\\u001b[31mCUDA\\u001b[0m out"), "CUDA out");
        assert_eq!(without_escapes("\x1b[31"), "");
    }
}
