//! A log of any length, in bounded memory. One that people read is read whole. Of a longer one its beginning is, where the command
//! stands, its end, where it stopped, and in between what is near words of failures; the numbers of lines stay what they were.

use std::{
    collections::VecDeque,
    io::{self, Read},
    sync::LazyLock,
};

use aho_corasick::{AhoCorasick, Input};

use crate::units::Bytes;

/// A log that is read whole.
const WHOLE: usize = 4 << 20;
/// Of a longer one: its beginning, its end, and so much in between.
const BEGINNING: usize = 1 << 20;
const END: usize = 2 << 20;
const BETWEEN: usize = 1 << 20;
/// What is near a word: the traceback before it, the message behind it.
const BEFORE: usize = 8 << 10;
const BEHIND: usize = 4 << 10;
/// Of a line that is longer than that before the word.
const BEFORE_IN_LINE: usize = 1 << 10;
/// How much is looked through at once.
const BLOCK: usize = 256 << 10;
/// What Windows' shells write takes twice the room; more of it is not read.
const LONGEST_UTF16: u64 = 64 << 20;

/// What a failure in the middle of a log has one of, in any case.
const WORDS: [&str; 24] = [
    "out of memory",
    "outofmemory",
    "out_of_memory",
    "memoryerror",
    "tried to allocate",
    "cannot allocate memory",
    "failed to allocate",
    "alloc_failed",
    "resource_exhausted",
    "bad_alloc",
    "oomkill",
    "oom-kill",
    "oom_kill",
    "oom killer",
    "killed process",
    "sigkill",
    "exit code 137",
    "exitcode: -9",
    "exitcode  : -9",
    "bus error",
    "cuda error",
    "cudnn_status",
    "cublas_status",
    "nccl error",
];

static FAILURES: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let builder = AhoCorasick::builder().ascii_case_insensitive(true).build(WORDS);
    builder.expect("a few short words are not too many")
});

/// What is read of a log.
#[derive(Debug, Default)]
pub struct Log {
    pub(super) pieces: Vec<Piece>,
    /// How long it is, and how much of that is read.
    all: u64,
    read: u64,
}

/// A part of it, whole lines mostly.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) lines_before: usize,
    pub(super) text: String,
}

impl Log {
    /// All of a text.
    pub fn of(text: &str) -> Log {
        let piece = Piece { lines_before: 0, text: text.to_owned() };
        let len = text.len() as u64;
        Log { pieces: vec![piece], all: len, read: len }
    }

    /// Reads one to its end: UTF-8 mostly, UTF-16 where PowerShell wrote it.
    pub fn read_from(mut reader: impl Read) -> io::Result<Log> {
        let mut first = Vec::new();
        reader.by_ref().take(WHOLE as u64).read_to_end(&mut first)?;
        let wide = match first.get(..2) {
            Some([0xff, 0xfe]) => Some(u16::from_le_bytes as fn([u8; 2]) -> u16),
            Some([0xfe, 0xff]) => Some(u16::from_be_bytes as fn([u8; 2]) -> u16),
            _ => None,
        };
        let Some(wide) = wide else { return condensed(first, reader) };
        reader.take(LONGEST_UTF16).read_to_end(&mut first)?;
        let units: Vec<u16> = first[2..].chunks_exact(2).map(|it| wide([it[0], it[1]])).collect();
        drop(first);
        let text = String::from_utf16_lossy(&units).into_bytes();
        drop(units);
        let (first, rest) = text.split_at(text.len().min(WHOLE));
        condensed(first.to_vec(), rest)
    }

    /// A sentence if not all of it was read.
    pub fn left_out(&self) -> Option<String> {
        (self.read < self.all).then(|| {
            format!(
                "the log has {}: plimsoll read its first {}, its last {}, and the parts near words of failures",
                Bytes(self.all),
                Bytes(BEGINNING as u64),
                Bytes(END as u64)
            )
        })
    }
}

/// `first` is all of it, or its first [`WHOLE`] bytes.
fn condensed(first: Vec<u8>, mut reader: impl Read) -> io::Result<Log> {
    let mut more = Vec::new();
    reader.by_ref().take(BLOCK as u64).read_to_end(&mut more)?;
    if more.is_empty() {
        let text = String::from_utf8_lossy(&first).into_owned();
        let len = first.len() as u64;
        return Ok(Log { pieces: vec![Piece { lines_before: 0, text }], all: len, read: len });
    }
    let mut res = Middle::default();
    let cut = cut(&first[..BEGINNING]);
    res.keep(0, &first[..cut]);
    let mut lines = n_lines(&first[..cut]);
    let mut rest = first[cut..].to_vec();
    drop(first);
    rest.append(&mut more);
    let mut all = cut as u64 + rest.len() as u64;
    let mut end: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
    let mut end_len = 0;
    loop {
        while BLOCK <= rest.len() {
            let left = rest.split_off(self::cut(&rest[..BLOCK]));
            let block = std::mem::replace(&mut rest, left);
            end_len += block.len();
            let before = lines;
            lines += n_lines(&block);
            end.push_back((before, block));
        }
        while let Some((_, block)) = end.front()
            && END + block.len() < end_len + rest.len()
        {
            end_len -= block.len();
            if let Some((lines, block)) = end.pop_front() {
                res.look(lines, &block);
            }
        }
        let n = reader.by_ref().take(BLOCK as u64).read_to_end(&mut rest)?;
        all += n as u64;
        if n == 0 {
            break;
        }
    }
    let before = end.front().map_or(lines, |it| it.0);
    let mut text: Vec<u8> = end.into_iter().flat_map(|it| it.1).collect();
    text.append(&mut rest);
    res.keep(before, &text);
    Ok(Log { pieces: res.pieces, all, read: res.kept })
}

/// What is kept.
#[derive(Debug, Default)]
struct Middle {
    pieces: Vec<Piece>,
    kept: u64,
    /// Of what is between beginning and end.
    between: usize,
    /// The end of what was looked through last, unless it was kept: what is near a word in what follows begins there.
    previous: Vec<u8>,
}

impl Middle {
    fn keep(&mut self, lines_before: usize, bytes: &[u8]) {
        self.kept += bytes.len() as u64;
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.pieces.push(Piece { lines_before, text });
    }

    /// Keeps what is near the words in `block`, which follows what was looked through last.
    fn look(&mut self, lines_before: usize, block: &[u8]) {
        let mut text = std::mem::take(&mut self.previous);
        let lines_before = lines_before - n_lines(&text);
        text.extend_from_slice(block);
        let mut from = 0;
        while self.between < BETWEEN
            && let Some(found) = FAILURES.find(Input::new(&text).span(from..text.len()))
        {
            let begins = line_begin(&text[from..found.start()]).map_or(from, |it| from + it);
            let ends = found.end() + line_end(&text[found.end()..]);
            let piece = &text[begins..ends];
            self.between += piece.len();
            self.keep(lines_before + n_lines(&text[..begins]), piece);
            from = ends;
        }
        let begins = line_begin(&text[from..]).map_or(from, |it| from + it);
        self.previous = text.split_off(begins);
    }
}

/// Where what is near the end of `bytes` begins; none if that is all of it.
fn line_begin(bytes: &[u8]) -> Option<usize> {
    let near = bytes.len().checked_sub(BEFORE)?;
    let line = bytes[near..].iter().position(|it| is_end(*it)).map(|it| near + it + 1);
    Some(line.unwrap_or_else(|| boundary(bytes, bytes.len() - BEFORE_IN_LINE)))
}

/// Where what is near the beginning of `bytes` ends.
fn line_end(bytes: &[u8]) -> usize {
    let near = &bytes[..bytes.len().min(BEHIND)];
    let line = near.iter().rposition(|it| is_end(*it)).map(|it| it + 1);
    line.unwrap_or_else(|| if near.len() < BEHIND { near.len() } else { boundary(bytes, BEHIND) })
}

/// Where a block is cut: behind its last line, or somewhere in a line that is longer than half of it.
fn cut(block: &[u8]) -> usize {
    let line = block[block.len() / 2..].iter().rposition(|it| is_end(*it));
    line.map_or_else(|| boundary(block, block.len() - 4), |it| block.len() / 2 + it + 1)
}

/// The first boundary between characters at `at` or behind.
fn boundary(bytes: &[u8], at: usize) -> usize {
    let is_inside = |it: &&u8| **it & 0xc0 == 0x80;
    at + bytes[at..].iter().take(3).take_while(is_inside).count()
}

/// A progress bar ends each of its states with a carriage return.
fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn n_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|it| is_end(**it)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{oom_text, printed_text};

    const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.12 GiB is free.\n";

    fn read(text: &str) -> Log {
        Log::read_from(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_log_that_people_read_is_read_whole() {
        let text = format!("{}{OOM}", "step 1 loss 0.1\n".repeat(1000));
        let log = read(&text);
        assert_eq!((log.pieces[0].text.as_str(), log.left_out()), (text.as_str(), None));
        let wide: Vec<u8> = std::iter::once(0xfeff_u16)
            .chain(text.encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(Log::read_from(wide.as_slice()).unwrap().pieces[0].text, text);
        assert_eq!(read("").pieces[0].text, "");
    }

    /// Beginning, end, and what stands around a failure in the middle, with the lines that they are.
    #[test]
    fn of_a_long_log_what_matters_is_read() {
        let line = "step 1 loss 0.123456 of a training that goes on for days\n";
        let many = line.repeat(200_000);
        let trace = "Traceback (most recent call last):\n  File \"train.py\", line 12, in main\n    loss.backward()\n";
        let other = OOM.replace("2.00 GiB", "3.00 GiB");
        let text = format!("$ python train.py\n{many}{trace}{OOM}{many}{trace}{other}done\n");
        let log = read(&text);
        assert!(
            log.left_out()
                .unwrap()
                .starts_with("the log has 21.7 MiB: plimsoll read its first 1.0 MiB")
        );
        let kept: usize = log.pieces.iter().map(|it| it.text.len()).sum();
        assert!(kept < WHOLE, "{kept}");
        let failures = oom_text::of_log(&log);
        let printed = printed_text::of_log(&log, &failures);
        let at: Vec<usize> = failures.iter().map(|it| it.at).collect();
        assert_eq!(at, [200_005, 400_009]);
        assert!(failures.iter().all(|it| it.user_frame.as_ref().is_some_and(|it| it.line == 12)));
        assert_eq!(printed.commands[0].text, "python train.py");
    }

    /// A word in the middle of a line without an end is found, wherever blocks are cut.
    #[test]
    fn a_word_on_a_cut_is_found() {
        // In such a line each part ends four bytes before its room does.
        let cut = BEGINNING - 4 + 3 * (BLOCK - 4);
        for at in cut - 14..=cut {
            let text = format!("{}out of memory{}", "x".repeat(at), "y".repeat(2 * END));
            let found = read(&text).pieces.iter().any(|it| it.text.contains("out of memory"));
            assert!(found, "{at}");
        }
    }

    /// Wherever a block is cut, and in a line without an end.
    #[test]
    fn nothing_is_kept_twice_and_no_character_is_broken() {
        for unit in ["é", "out of memory é ", "a\r", "\n", "killed process 1\n"] {
            let text = unit.repeat(6_000_000 / unit.len());
            let log = read(&text);
            let kept: usize = log.pieces.iter().map(|it| it.text.len()).sum();
            assert!(kept <= WHOLE + BLOCK, "{unit:?}: {kept}");
            for it in &log.pieces {
                assert!(!it.text.contains('\u{fffd}'), "{unit:?}");
            }
            let mut after = 0;
            for it in &log.pieces {
                assert!(after <= it.lines_before, "{unit:?}");
                after = it.lines_before + n_lines(it.text.as_bytes());
            }
            assert_eq!(after, n_lines(text.as_bytes()), "{unit:?}");
        }
    }
}
