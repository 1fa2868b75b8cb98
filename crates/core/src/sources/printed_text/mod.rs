//! Texts that people paste and that are no error: tables of tools, counters that programs print, and the commands before them.
//!
//! Nothing is matched whole, as in [`crate::sources::oom_text`]: lines carry prefixes and boxes, several write at once, ends are
//! missing. What only looks like a number of memory is left alone: there has to be a unit, or a name of PyTorch's.

mod command;
mod frameworks;
mod host;
mod monitors;
mod program;
mod rows;
mod smi;
mod torch;

use crate::{
    failures::Failure,
    printed::{Kind, Printed, PrintedText},
    sources::{
        lines::{self, Stream},
        log::Log,
    },
};

/// Tables and series that are kept.
const MOST: usize = 256;

/// What `text` says beside `failures`, which were found in it.
pub fn read(text: &str, failures: &[Failure]) -> PrintedText {
    of_log(&Log::of(text), failures)
}

/// The same of a log, as far as it was read.
pub fn of_log(log: &Log, failures: &[Failure]) -> PrintedText {
    let mut res = PrintedText::default();
    for stream in &lines::streams(log) {
        let errors: Vec<usize> = failures.iter().map(|it| it.at).collect();
        let mut found = of_stream(stream, &errors);
        for it in &mut found {
            it.rank = it.rank.or(stream.rank);
            it.writer = stream.writer.map(str::to_owned);
        }
        res.printed.extend(found);
        res.commands.extend(command::all(stream));
        for line in &stream.lines {
            if let Some(it) = card_of(&line.text).filter(|it| !res.cards.contains(it)) {
                res.cards.push(it);
            }
        }
    }
    res.printed.sort_by_key(|it| it.line);
    res.printed.truncate(MOST);
    res.commands.sort_by_key(|it| it.line);
    if res.commands.iter().all(|it| it.is_bare) {
        res.commands.truncate(1);
    } else {
        res.commands.retain(|it| !it.is_bare);
    }
    res
}

fn of_stream(stream: &Stream<'_>, errors: &[usize]) -> Vec<Printed> {
    let lines = &stream.lines;
    let mut res: Vec<Printed> = Vec::new();
    let mut program = program::Series::default();
    let mut at = 0;
    while at < lines.len() && res.len() < MOST {
        // Most lines of a log have nothing of memory.
        if !is_worth(&lines[at].text) && !program.is_open() {
            program.skip();
            at += 1;
            continue;
        }
        let tables = [
            smi::table,
            smi::long,
            smi::monitor,
            smi::csv,
            smi::gpustat,
            monitors::nvitop,
            monitors::rocm_memory,
            monitors::rocm,
            monitors::amd,
            monitors::dcgm,
            monitors::metrics,
            torch::summary,
            torch::profiler,
            torch::stats,
            frameworks::trainer,
            frameworks::deepspeed,
            frameworks::vllm,
            frameworks::yolo,
            frameworks::megabytes,
            host::free,
            host::df,
        ];
        let taken = tables.iter().find_map(|it| it(&lines[at..]));
        if let Some((found, n)) = taken {
            for it in found {
                merge(&mut res, it);
            }
            at += n.max(1);
            continue;
        }
        program.line(&lines[at], errors);
        at += 1;
    }
    for it in program.end() {
        merge(&mut res, it);
    }
    res
}

/// Whether a line has what each table's first line, and each print, has at least one of.
fn is_worth(text: &str) -> bool {
    const MARKS: [&str; 22] = [
        "em", "EM", "lloc", "eserved", "GPU", "gpu", " fb", "MA ", "RAM", "ram", "KV", "ached",
        "eak", " MB", "SMI", "cuda", "shm", "avail", "VRAM", "NVITOP", "FB", "gb_free",
    ];
    MARKS.iter().any(|it| text.contains(it))
}

/// What is printed again and again is one.
fn merge(all: &mut Vec<Printed>, it: Printed) {
    let again = matches!(
        it.kind,
        Kind::DeepSpeed
            | Kind::Lightning
            | Kind::Stats
            | Kind::Summary
            | Kind::Vllm
            | Kind::Program
    );
    let same = |other: &&mut Printed| {
        (other.kind, other.device, other.rank) == (it.kind, it.device, it.rank)
            && other.card.is_some() == it.card.is_some()
    };
    match all.iter_mut().find(same).filter(|_| again) {
        Some(other) => {
            other.levels.extend(it.levels);
            other.ooms = other.ooms.max(it.ooms);
            other.retries = other.retries.max(it.retries);
            other.host_percent = other.host_percent.max(it.host_percent);
            if let (Some(known), Some(new)) = (&mut other.engine, it.engine) {
                known.weights = known.weights.or(new.weights);
                known.activations = known.activations.or(new.activations);
                known.cache = known.cache.or(new.cache);
                known.is_short |= new.is_short;
                known.tokens = known.tokens.take().or(new.tokens);
                known.share_percent = known.share_percent.or(new.share_percent);
                known.longest = known.longest.or(new.longest);
            }
        }
        None => all.push(it),
    }
}

/// A card's name as NVIDIA writes it, where it stands in `line`.
fn card_of(line: &str) -> Option<String> {
    const MAKERS: [&str; 4] = ["NVIDIA ", "Tesla ", "GeForce ", "Quadro "];
    const LINES: [&str; 12] = [
        "GeForce", "RTX", "Tesla", "A100", "A10", "A30", "A40", "H100", "H200", "L4", "L40", "B200",
    ];
    let at = MAKERS.iter().filter_map(|it| line.find(it)).min()?;
    let rest = line[at..].strip_prefix("NVIDIA ").unwrap_or(&line[at..]);
    let is_one = LINES.iter().any(|it| rest.starts_with(it));
    // The name ends at two blanks, or at what parts columns.
    let end = ["  ", "|", "│", ",", ". ", "(", "\"", "'", ";"]
        .iter()
        .filter_map(|it| rest.find(it))
        .min();
    let name = rest[..end.unwrap_or(rest.len())].trim();
    (is_one && name.len() <= 48).then(|| name.to_owned())
}
