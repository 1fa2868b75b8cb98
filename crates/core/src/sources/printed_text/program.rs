//! Levels that programs print in words of their own: `Allocated: 2.1 GB`, `mem alloc 21.40 GB, reserved 24.10 GB`.

use crate::{
    printed::{Kind, Levels, Printed},
    sources::{
        lines::Line,
        numbers::{before_at, device_after, size_at},
        printed_text::rows::at_line,
    },
    units::Bytes,
};

/// Lines that one print may be spread over.
const NEAR: usize = 3;
/// Lines after an error's first that may still be its text.
const OF_AN_ERROR: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Allocated,
    Reserved,
    PeakAllocated,
    PeakReserved,
    Used,
    Total,
    Free,
}

use Level::{Allocated, Free, PeakAllocated, PeakReserved, Reserved, Total, Used};

/// Words, the longer before those that they contain. Of a weak one, another has to be near.
const WORDS: [(&str, Level, bool); 48] = [
    ("max_memory_allocated", PeakAllocated, false),
    ("max memory allocated", PeakAllocated, false),
    ("max allocated memory", PeakAllocated, false),
    ("peak allocated memory", PeakAllocated, false),
    ("peak memory allocated", PeakAllocated, false),
    ("peak gpu memory", PeakAllocated, false),
    ("peak cuda memory", PeakAllocated, false),
    ("peak memory reserved", PeakReserved, false),
    ("peak memory allocation", PeakAllocated, false),
    ("peak memory alloc", PeakAllocated, false),
    ("peak memory active", PeakAllocated, false),
    ("max_mem", PeakAllocated, false),
    ("peak_allocated", PeakAllocated, false),
    ("peak allocated", PeakAllocated, false),
    ("max_allocated", PeakAllocated, false),
    ("max allocated", PeakAllocated, false),
    ("peak_memory", PeakAllocated, false),
    ("peak memory", PeakAllocated, false),
    ("max_memory_reserved", PeakReserved, false),
    ("max memory reserved", PeakReserved, false),
    ("max_memory_cached", PeakReserved, false),
    ("peak reserved", PeakReserved, false),
    ("peak_reserved", PeakReserved, false),
    ("max reserved", PeakReserved, false),
    ("max_reserved", PeakReserved, false),
    ("memory_allocated", Allocated, false),
    ("memory allocated", Allocated, false),
    ("allocated memory", Allocated, false),
    ("occupied memory", Allocated, false),
    ("allocated", Allocated, false),
    ("mem alloc", Allocated, false),
    ("current memory", Allocated, false),
    ("memory_reserved", Reserved, false),
    ("memory reserved", Reserved, false),
    ("reserved memory", Reserved, false),
    ("memory_cached", Reserved, false),
    ("reserved", Reserved, false),
    ("gpu memory usage", Used, false),
    ("gpu memory", Used, false),
    ("gpu_memory", Used, false),
    ("gpu_mem", Used, false),
    ("gb_free", Free, false),
    ("vram", Used, false),
    ("alloc", Allocated, true),
    ("cached", Reserved, true),
    ("peak", PeakAllocated, true),
    ("total", Total, true),
    ("free", Free, true),
];

/// What belongs to PyTorch's error, and is no print.
const OF_ERRORS: [&str; 9] = [
    "tried to allocate",
    "by pytorch",
    "memory in use",
    "already allocated",
    "total capac",
    "out of memory",
    " is free",
    "outofmemory",
    "kv cache",
];

/// What a stream printed so far.
#[derive(Default)]
pub(super) struct Series {
    open: Option<Open>,
    done: Vec<(Option<u32>, Levels)>,
    device: Option<(u32, usize)>,
    /// Where one of PyTorch's counters was last named, with no number behind.
    named: Option<usize>,
    /// The counters that a prompt's line asked for, and that line.
    asked: Option<(Vec<Level>, usize)>,
    n: usize,
}

struct Open {
    levels: Levels,
    device: Option<u32>,
    /// The stream's line that was last read into it.
    last: usize,
}

impl Series {
    /// Takes in the next line of the stream. `errors` are the lines that errors begin at.
    pub(super) fn line(&mut self, line: &Line<'_>, errors: &[usize]) {
        self.n += 1;
        let lower =
            line.text.trim_matches(|it: char| "│┃║╭╰─ \t".contains(it)).to_ascii_lowercase();
        if let Some(device) = device_after(&lower, "cuda:") {
            self.device = Some((device, self.n));
        }
        if OF_ERRORS.iter().any(|it| lower.contains(it)) || 2_000 < lower.len() {
            return;
        }
        let is_near_error = errors.iter().any(|it| (*it..it + OF_AN_ERROR).contains(&line.number));
        let is_open = self.open.as_ref().is_some_and(|it| self.n - it.last <= NEAR)
            || self.named.is_some_and(|it| self.n - it <= NEAR);
        if lower.contains("torch.cuda.m") {
            self.named = Some(self.n);
        }
        let answered = self.asked.take().filter(|it| self.n - it.1 <= 1);
        if let Some(found) = answered.and_then(|(names, _)| answer(&names, &lower)) {
            for (level, bytes) in found {
                self.put(level, bytes, line, &lower);
            }
            return;
        }
        self.asked = Some((asked(&lower), self.n)).filter(|it| !it.0.is_empty());
        if let Some(percent) = percent(&lower) {
            self.put_percent(percent, line, &lower);
            return;
        }
        let found = levels(&lower, is_open);
        if found.is_empty() || is_near_error && !lower.contains([':', '=']) {
            return;
        }
        for (level, bytes) in found {
            self.put(level, bytes, line, &lower);
        }
    }

    /// Goes on behind a line that has nothing.
    pub(super) fn skip(&mut self) {
        self.n += 1;
    }

    /// Whether the next line may belong to what was printed last.
    pub(super) fn is_open(&self) -> bool {
        let last = self.open.as_ref().map(|it| it.last);
        let device = self.device.map(|it| it.1);
        last.max(self.named).max(device).is_some_and(|it| self.n - it <= NEAR)
    }

    fn put(&mut self, level: Level, bytes: Bytes, line: &Line<'_>, lower: &str) {
        let is_old = self
            .open
            .as_mut()
            .is_some_and(|it| NEAR < self.n - it.last || slot(&mut it.levels, level).is_some());
        if is_old {
            self.flush();
        }
        let device = self.device.filter(|(_, at)| self.n - at <= NEAR).map(|it| it.0);
        let n = self.n;
        let open = self.open.get_or_insert_with(|| Open {
            levels: Levels { label: label(lower), ..at_line(line) },
            device,
            last: n,
        });
        open.last = n;
        open.device = open.device.or(device);
        *slot(&mut open.levels, level) = Some(bytes);
    }

    fn put_percent(&mut self, percent: u32, line: &Line<'_>, lower: &str) {
        self.flush();
        let used_percent = Some(percent);
        let levels = Levels { label: label(lower), used_percent, ..at_line(line) };
        self.done.push((None, levels));
    }

    fn flush(&mut self) {
        if let Some(it) = self.open.take() {
            self.done.push((it.device, it.levels));
        }
    }

    /// Each device's prints.
    pub(super) fn end(mut self) -> Vec<Printed> {
        self.flush();
        let mut res: Vec<Printed> = Vec::new();
        for (device, levels) in self.done {
            // What a card has in all is no print.
            let is_left = levels.free.is_some() && levels.total.is_none();
            if levels.level().is_none()
                && !is_left
                && levels.peak_allocated.is_none()
                && levels.peak_reserved.is_none()
                && levels.used_percent.is_none()
            {
                continue;
            }
            match res.iter_mut().find(|it| it.device == device) {
                Some(it) => it.levels.push(levels),
                None => {
                    let mut it = Printed::new(Kind::Program, levels.line);
                    it.device = device;
                    it.levels.push(levels);
                    res.push(it);
                }
            }
        }
        res
    }
}

/// The counters that a line at a prompt asks for: `>>> torch.cuda.mem_get_info()`.
fn asked(lower: &str) -> Vec<Level> {
    const COUNTERS: [(&str, &[Level]); 5] = [
        ("torch.cuda.mem_get_info()", &[Free, Total]),
        ("torch.cuda.memory_allocated()", &[Allocated]),
        ("torch.cuda.memory_reserved()", &[Reserved]),
        ("torch.cuda.max_memory_allocated()", &[PeakAllocated]),
        ("torch.cuda.max_memory_reserved()", &[PeakReserved]),
    ];
    let typed = [">>> ", "in ["].iter().any(|it| lower.starts_with(it));
    let mut found: Vec<(usize, &[Level])> = COUNTERS
        .iter()
        .filter_map(|(name, levels)| Some((lower.find(name)?, *levels)))
        .filter(|_| typed || lower.starts_with("torch.cuda.m"))
        .collect();
    found.sort_unstable_by_key(|it| it.0);
    found.into_iter().flat_map(|it| it.1.iter().copied()).collect()
}

/// What stands in the line below, if it is as many numbers and nothing else: `(311427072, 8361738240)`.
fn answer(names: &[Level], lower: &str) -> Option<Vec<(Level, Bytes)>> {
    let text = lower.split_once("]: ").map_or(lower, |it| it.1);
    let is_part = |it: char| it.is_ascii_digit() || " ,()".contains(it);
    let numbers = text.split([' ', ',', '(', ')']).filter(|it| !it.is_empty());
    let sizes: Option<Vec<Bytes>> = numbers.map(|it| it.parse().ok().map(Bytes)).collect();
    let sizes = sizes.filter(|it| it.len() == names.len() && text.chars().all(is_part))?;
    Some(names.iter().copied().zip(sizes).collect())
}

fn slot(levels: &mut Levels, level: Level) -> &mut Option<Bytes> {
    match level {
        Allocated => &mut levels.allocated,
        Reserved => &mut levels.reserved,
        PeakAllocated => &mut levels.peak_allocated,
        PeakReserved => &mut levels.peak_reserved,
        Used => &mut levels.used,
        Total => &mut levels.total,
        Free => &mut levels.free,
    }
}

/// The letters before the first number of memory: what is to be compared has the same.
fn label(lower: &str) -> String {
    let end = WORDS.iter().filter_map(|it| lower.find(it.0)).min().unwrap_or(lower.len());
    let letters = lower[..end].chars().filter(|it| it.is_alphabetic());
    letters.take(40).collect()
}

/// The share of a card's memory that is used, in whole percent: `gpu memory 41.2%`, `vram: 41 %`.
fn percent(lower: &str) -> Option<u32> {
    const NAMES: [&str; 4] = ["gpu memory usage", "gpu memory", "gpu mem", "vram"];
    let tail = NAMES.iter().find_map(|it| Some(lower.split_once(it)?.1))?;
    let tail = tail.strip_prefix(" used").unwrap_or(tail).trim_start_matches([' ', ':', '=', '|']);
    let len = tail.find(|it: char| !it.is_ascii_digit() && it != '.')?;
    let is_share = tail[len..].trim_start().starts_with('%');
    let whole = tail[..len].split('.').next()?.parse().ok()?;
    (is_share && whole <= 100).then_some(whole)
}

/// Every level that stands in `lower`.
fn levels(lower: &str, is_open: bool) -> Vec<(Level, Bytes)> {
    let mut res: Vec<(Level, Bytes)> = Vec::new();
    if let Some((_, tuple)) = lower.split_once("mem_get_info") {
        let mut sizes = tuple
            .split([',', '(', ')'])
            .filter_map(|it| it.trim_matches([' ', ':', '=']).parse::<u64>().ok());
        if let (Some(free), Some(total)) = (sizes.next(), sizes.next()) {
            return vec![(Free, Bytes(free)), (Total, Bytes(total))];
        }
    }
    let of_line = ["(gib)", "(gb)", "(mib)", "(mb)", "[gb]", "[mb]", "[mib]", "[gib]"]
        .iter()
        .find(|it| lower.contains(*it));
    let shift = of_line.map(|it| if it.contains('g') { 30 } else { 20 });
    let is_strong = WORDS.iter().any(|it| !it.2 && lower.contains(it.0));
    let is_of_memory = is_open || is_strong;
    let mut at = 0;
    while at < lower.len() {
        let here = WORDS.iter().find(|(word, _, is_weak)| {
            lower[at..].starts_with(word)
                && (!is_weak || is_of_memory)
                && is_word(lower, at, word.len())
        });
        let Some((word, level, _)) = here else {
            at += lower[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        let behind = at + word.len();
        let tail = &lower[behind..];
        let is_assigned = tail
            .trim_start_matches(|sign: char| {
                !":=".contains(sign) && sign != ',' && sign != '|' && !sign.is_ascii_digit()
            })
            .starts_with([':', '=']);
        let before = before_with_unit(lower, at).filter(|_| !is_assigned);
        // `NVIDIA L40S (48GB VRAM)`: what the card has.
        let is_used =
            ["used", "usage", "in use"].iter().any(|it| tail.trim_start().starts_with(it));
        let level = if *word == "vram" && before.is_some() && !is_used { &Total } else { level };
        at = behind;
        if let Some((used, total)) = of_all(tail) {
            let level = if *level == Reserved || *level == Allocated { *level } else { Used };
            res.extend([(level, used), (Total, total)]);
            continue;
        }
        let size = before.or_else(|| {
            let (size, len) = behind_word(word, tail, shift)?;
            // Words before its number are that number's: `Total GPU memory 10.9GB`.
            at += len;
            Some(size)
        });
        if let Some(bytes) = size.filter(|it| *it < Bytes::gib(1 << 12)) {
            // A program's word is taken once in a line.
            if !res.iter().any(|it| it.0 == *level) {
                res.push((*level, bytes));
            }
        }
    }
    res
}

fn is_word(lower: &str, at: usize, len: usize) -> bool {
    let is_letter = |it: char| it.is_alphabetic();
    let before = lower[..at].chars().next_back().is_some_and(is_letter);
    let after = lower[at + len..].chars().next().is_some_and(is_letter);
    !before && !after
}

/// `21.4 gb allocated`.
fn before_with_unit(lower: &str, at: usize) -> Option<Bytes> {
    let head = lower[..at].trim_end();
    let has_unit = ["gb", "gib", "mb", "mib", "kb", "kib"].iter().any(|it| head.ends_with(it));
    has_unit.then(|| before_at(lower, at)).flatten()
}

/// `: 9321 / 24564 MB`: a part, and all of it.
fn of_all(tail: &str) -> Option<(Bytes, Bytes)> {
    let rest = tail.trim_start_matches(|it: char| " \t:=([".contains(it));
    let (used, total) = rest.split_once('/')?;
    let (total, len) = size_at(total.trim_start()).filter(|it| Bytes::mib(1) <= it.0)?;
    let unit = &rest[used.len() + 1..].trim_start()[..len];
    let unit = unit.trim_start_matches(|it: char| !it.is_ascii_alphabetic());
    let (part, taken) = size_at(used.trim())?;
    let has_own = used.trim()[..taken].ends_with(|it: char| it.is_ascii_alphabetic());
    let part = if has_own { part } else { size_at(&format!("{} {unit}", used.trim()))?.0 };
    (taken == used.trim().len() && !unit.is_empty() && part <= total).then_some((part, total))
}

/// The size after a word, behind blanks, signs and words that say nothing, and where it begins.
fn behind_word(word: &str, tail: &str, shift: Option<u32>) -> Option<(Bytes, usize)> {
    const FILLERS: [&str; 13] = [
        "memory", "mem", "usage", "used", "gpu", "cuda", "is", "now", "current", "bytes", "so far",
        "at", "on ",
    ];
    const NAMED: [(&str, u32); 4] = [("_gib", 30), ("_gb", 30), ("_mib", 20), ("_mb", 20)];
    const UNITS: [(&str, u32); 8] = [
        ("gib)", 30),
        ("gb)", 30),
        ("mib)", 20),
        ("mb)", 20),
        ("gib]", 30),
        ("gb]", 30),
        ("mib]", 20),
        ("mb]", 20),
    ];
    let mut rest = tail;
    // PyTorch's names have numbers of bytes.
    let is_exact = word.contains('_');
    let is_fairseqs = word == "gb_free";
    let mut shift = shift.or_else(|| is_fairseqs.then_some(30));
    // `mem_allocated_gb`
    if let Some((unit, its)) = NAMED.iter().find(|it| rest.starts_with(it.0)) {
        rest = &rest[unit.len()..];
        shift = Some(*its);
    }
    for _ in 0..8 {
        rest = rest.trim_start_matches(|it: char| " \t:=([])>~≈'\"_-".contains(it));
        if let Some((unit, its)) = UNITS.iter().find(|it| rest.starts_with(it.0)) {
            rest = &rest[unit.len()..];
            shift = Some(*its);
        } else if let Some(of_device) = rest.strip_prefix("cuda:") {
            rest = of_device.trim_start_matches(|it: char| it.is_ascii_digit());
        } else if let Some(filler) = FILLERS.iter().find(|it| rest.starts_with(*it)) {
            rest = &rest[filler.len()..];
        } else {
            break;
        }
    }
    let (size, len) = size_at(rest)?;
    let digits = rest[..len].trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let has_unit = digits.len() < len;
    // Not a time, a share or a shape.
    if rest[len..].starts_with(['%', 'x', '/']) && !has_unit {
        return None;
    }
    let size = match shift {
        _ if has_unit => Some(size),
        Some(shift) => {
            size_at(&format!("{} {}", digits.trim(), if shift == 30 { "gib" } else { "mib" }))
                .map(|it| it.0)
        }
        // So many digits count nothing but bytes.
        None if 8 <= digits.len() && digits.bytes().all(|it| it.is_ascii_digit()) => Some(size),
        None => Some(size).filter(|it| is_exact && (*it == Bytes::ZERO || Bytes::mib(1) <= *it)),
    };
    Some((size?, tail.len() - rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_many_programs() {
        let mib = Bytes::mib;
        for (text, expected) in [
            ("Allocated: 2.0 GB", vec![(Allocated, Bytes::gib(2))]),
            (
                "iter 10 mem alloc 21.00 GB, reserved 24.00 GB",
                vec![(Allocated, Bytes::gib(21)), (Reserved, Bytes::gib(24))],
            ),
            (
                "21 GiB allocated, 24 GiB reserved",
                vec![(Allocated, Bytes::gib(21)), (Reserved, Bytes::gib(24))],
            ),
            (
                "memory (MB) | allocated: 20 | max allocated: 21",
                vec![(Allocated, mib(20)), (PeakAllocated, mib(21))],
            ),
            ("GPU memory allocated on cuda:1: 512 MiB", vec![(Allocated, mib(512))]),
            ("torch.cuda.memory_allocated: 5368709120", vec![(Allocated, Bytes::gib(5))]),
            (
                "torch.cuda.mem_get_info() -> (1048576, 2097152)",
                vec![(Free, mib(1)), (Total, mib(2))],
            ),
            ("num_updates=2100, gb_free=1, wall=600", vec![(Free, Bytes::gib(1))]),
            ("Peak memory usage: 13 GB", vec![(PeakAllocated, Bytes::gib(13))]),
            ("loss 0.3 | VRAM: 7168MiB", vec![(Used, mib(7168))]),
            ("GPU: NVIDIA L40s (48GB VRAM) x 2", vec![(Total, Bytes::gib(48))]),
            ("it took 7168MiB VRAM in use", vec![(Used, mib(7168))]),
            (
                "Total GPU memory 12GB, alloc 2GB, free 10GB (84.9%)",
                vec![(Total, Bytes::gib(12)), (Allocated, Bytes::gib(2)), (Free, Bytes::gib(10))],
            ),
            ("Free GPU memory (MB) = 1456", vec![(Free, mib(1456))]),
            ("GPU memory usage: 9321 / 24564 MB", vec![(Used, mib(9321)), (Total, mib(24564))]),
            (
                "\"mem_allocated_gb\": 11, \"mem_reserved_gb\": 13",
                vec![(Allocated, Bytes::gib(11)), (Reserved, Bytes::gib(13))],
            ),
            ("lr: 0.0009  max_mem: 8012M", vec![(PeakAllocated, mib(8012))]),
            (
                "alloc=31GB, peak=38GB, reserved=39GB",
                vec![
                    (Allocated, Bytes::gib(31)),
                    (PeakAllocated, Bytes::gib(38)),
                    (Reserved, Bytes::gib(39)),
                ],
            ),
            ("We reserved a table for 8", vec![]),
            ("reserved: 3 nodes, total: 4", vec![]),
            ("unallocated: 3 GB", vec![]),
            ("GPU memory utilisation 93%", vec![]),
            ("Using cached torch-2.1.0.whl (755.5 MB)", vec![]),
            ("total: 3 GB", vec![]),
        ] {
            assert_eq!(levels(&text.to_ascii_lowercase(), false), expected, "{text}");
        }
    }
}
