//! What PyTorch prints about itself: `memory_summary()`, `memory_stats()`, the profiler's table.

use crate::{
    printed::{Kind, Levels, Operator, Printed},
    sources::{
        lines::Line,
        numbers::{int_after, size_at},
        printed_text::rows::{at_line, framed},
    },
    units::Bytes,
};

/// Rows that one table has at most.
const ROWS: usize = 4_000;

type Taken = Option<(Vec<Printed>, usize)>;

fn size(text: &str) -> Option<Bytes> {
    size_at(&text.trim().to_ascii_lowercase()).map(|it| it.0)
}

/// `torch.cuda.memory_summary()`.
pub(super) fn summary(lines: &[Line<'_>]) -> Taken {
    let title = framed(lines.first()?)?.to_ascii_lowercase();
    let (_, device) = title.split_once("cuda memory summary, device id")?;
    let mut it = Printed::new(Kind::Summary, lines[0].number);
    it.device = device.trim_matches(['|', ' ']).parse().ok();
    let mut levels = at_line(&lines[0]);
    let mut n = 1;
    while let Some(row) = lines.get(n).filter(|_| n < ROWS).and_then(|it| framed(it)) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let lower = row.to_ascii_lowercase();
        if lower.contains("memory summary") {
            break;
        }
        it.ooms = int_after(&lower, "cuda ooms:").unwrap_or(it.ooms);
        it.retries = int_after(&lower, "cudamalloc retries:").unwrap_or(it.retries);
        let now = cells.get(1).and_then(|it| size(it));
        let peak = cells.get(2).and_then(|it| size(it));
        match cells.first().copied().unwrap_or_default() {
            "Allocated memory" => (levels.allocated, levels.peak_allocated) = (now, peak),
            "GPU reserved memory" | "Reserved memory" => {
                (levels.reserved, levels.peak_reserved) = (now, peak)
            }
            "Non-releasable memory" => levels.pieces = now,
            _ => {}
        }
        n += 1;
    }
    it.levels.push(levels);
    Some((vec![it], n))
}

/// Keys of `torch.cuda.memory_stats()` in a dict or a CSV, as printed or as Lightning's monitor logs them.
pub(super) fn stats(lines: &[Line<'_>]) -> Taken {
    let first: &str = &lines.first()?.text;
    if !is_of_stats(first) {
        return None;
    }
    let is_lightning = first.contains("DeviceStatsMonitor");
    let kind = if is_lightning { Kind::Lightning } else { Kind::Stats };
    let columns: Vec<&str> = first.split(',').map(str::trim).collect();
    let is_header = 2 < columns.len()
        && columns.iter().all(|it| !it.is_empty() && !it.contains([' ', ':', '(']));
    if is_header {
        return csv(lines, kind, &columns);
    }
    let mut it = Printed::new(kind, lines[0].number);
    let mut levels = at_line(&lines[0]);
    let mut n = 0;
    while n < lines.len().min(ROWS) && (is_of_stats(&lines[n].text) || is_entry(&lines[n].text)) {
        for (key, value) in entries(&lines[n].text) {
            fill(key, value, &mut levels, &mut it);
        }
        n += 1;
        if lines[n - 1].text.trim_end().ends_with(['}', ')']) {
            break;
        }
    }
    if levels.is_empty() {
        return None;
    }
    it.levels.push(levels);
    Some((vec![it], n))
}

fn is_of_stats(text: &str) -> bool {
    ["allocated_bytes.all.", "reserved_bytes.all.", "active_bytes.all."]
        .iter()
        .any(|it| text.contains(it))
}

/// `'num_alloc_retries': 41,` in a dict of several lines.
fn is_entry(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with(['\'', '"']) && (text.contains("\': ") || text.contains("\": "))
}

/// Pairs of `'key': 12`, `('key', 12)` and `key 12`.
fn entries(text: &str) -> Vec<(&str, u64)> {
    let is_key = |it: char| it.is_ascii_alphanumeric() || "_./-".contains(it);
    let mut res = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(|it: char| it.is_ascii_alphabetic()) {
        let tail = &rest[at..];
        let end = tail.find(|it| !is_key(it)).unwrap_or(tail.len());
        let (key, after) = tail.split_at(end);
        let value = after.trim_start_matches(['\'', '"', ':', ',', ' ', '=']);
        let digits = value.find(|it: char| !it.is_ascii_digit()).unwrap_or(value.len());
        if let Ok(number) = value[..digits].parse() {
            res.push((key, number));
        }
        rest = after;
    }
    res
}

fn fill(key: &str, value: u64, levels: &mut Levels, it: &mut Printed) {
    let key = key.rsplit('/').next().unwrap_or(key);
    match key {
        "allocated_bytes.all.current" => levels.allocated = Some(Bytes(value)),
        "allocated_bytes.all.peak" => levels.peak_allocated = Some(Bytes(value)),
        "reserved_bytes.all.current" => levels.reserved = Some(Bytes(value)),
        "reserved_bytes.all.peak" => levels.peak_reserved = Some(Bytes(value)),
        "inactive_split_bytes.all.current" => levels.pieces = Some(Bytes(value)),
        "num_ooms" => it.ooms = it.ooms.max(value),
        "num_alloc_retries" => it.retries = it.retries.max(value),
        _ => {}
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a counter that was written as a float; what is no count is left out"
)]
fn count(text: &str) -> Option<u64> {
    let value = text.trim().parse::<f64>().ok()?;
    (0.0..9.0e15).contains(&value).then_some(value as u64)
}

fn csv(lines: &[Line<'_>], kind: Kind, columns: &[&str]) -> Taken {
    let mut it = Printed::new(kind, lines[0].number);
    let mut n = 1;
    while n < lines.len().min(ROWS) {
        let cells: Vec<&str> = lines[n].text.split(',').collect();
        if cells.len() != columns.len() {
            break;
        }
        let mut levels = at_line(&lines[n]);
        for (key, value) in columns.iter().zip(&cells) {
            if let Some(value) = count(value) {
                fill(key, value, &mut levels, &mut it);
            }
        }
        if !levels.is_empty() {
            it.levels.push(levels);
        }
        n += 1;
    }
    (!it.levels.is_empty()).then(|| (vec![it], n))
}

/// `key_averages().table()` with `profile_memory=True`.
pub(super) fn profiler(lines: &[Line<'_>]) -> Taken {
    let header = columns(&lines.first()?.text);
    let position = |names: [&str; 4]| header.iter().position(|it| names.contains(it));
    let own = position(["Self CUDA Mem", "Self Device Mem", "Self XPU Mem", "Self GPU Mem"])
        .or_else(|| position(["CUDA Mem", "Device Mem", "XPU Mem", "GPU Mem"]))?;
    let calls = header.iter().position(|it| ["# of Calls", "Number of Calls"].contains(it));
    if header.first() != Some(&"Name") {
        return None;
    }
    let mut it = Printed::new(Kind::Profiler, lines[0].number);
    let mut n = 1;
    while n < lines.len().min(ROWS) {
        let text = lines[n].text.trim();
        let is_rule = text.chars().all(|it| it == '-' || it == ' ');
        if is_rule && 1 < n && !it.operators.is_empty() {
            n += 1;
            break;
        }
        if !is_rule {
            let cells = columns(text);
            if cells.len() < header.len() {
                break;
            }
            // A name may have blanks itself: what is counted from the right is right.
            let cell = |at: usize| cells.get(cells.len() - header.len() + at).copied();
            let name = cells[..=cells.len() - header.len()].join(" ");
            let calls = calls.and_then(cell).and_then(|it| it.parse().ok()).unwrap_or(1);
            if let Some(bytes) = cell(own).and_then(size).filter(|it| Bytes::ZERO < *it) {
                it.operators.push(Operator { name, bytes, calls });
            }
        }
        n += 1;
    }
    (!it.operators.is_empty()).then(|| (vec![it], n))
}

fn columns(text: &str) -> Vec<&str> {
    text.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect()
}
