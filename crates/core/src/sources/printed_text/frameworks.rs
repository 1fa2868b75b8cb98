//! What frameworks print: `DeepSpeed`, the Trainer of Transformers, vLLM as it starts, and YOLO's column.

use crate::{
    printed::{Engine, Kind, Levels, Printed},
    sources::{
        lines::Line,
        numbers::{after, int_after, size_at},
        printed_text::rows::at_line,
    },
    units::Bytes,
};

/// Lines that one thing is looked for in.
const ROWS: usize = 4_000;

type Taken = Option<(Vec<Printed>, usize)>;

/// `MA 4.96 GB   Max_MA 5.09 GB   CA 6.39 GB   Max_CA 6 GB`, the words in the line before, the host in the one after.
pub(super) fn deepspeed(lines: &[Line<'_>]) -> Taken {
    let is_named = lines[0].text.contains("see_memory_usage]") && !lines[0].text.contains("MA ");
    let at = usize::from(is_named && !lines[0].text.contains("CPU Virtual"));
    let line = lines.get(at)?;
    let lower = line.text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("ma ")?;
    let is_one = lower.contains("max_ma ") && lower.contains("max_ca ");
    if !is_one {
        return None;
    }
    let mut it = Printed::new(Kind::DeepSpeed, lines[0].number);
    let label = if at == 1 { lines[0].text.rsplit(']').next().unwrap_or_default() } else { "" };
    let label: String = label.chars().filter(|it| !it.is_ascii_digit()).collect();
    // `Max_CA` is rounded to whole gigabytes: `CA` says more.
    let levels = Levels {
        label: label.trim().to_owned(),
        allocated: size_at(rest.trim_start()).map(|it| it.0),
        peak_allocated: after(&lower, "max_ma"),
        reserved: lower.find(" ca ").and_then(|at| after(&lower[at..], "ca ")),
        ..at_line(line)
    };
    it.levels.push(levels);
    let mut n = at + 1;
    if let Some(host) = lines
        .get(n)
        .map(|it| it.text.to_ascii_lowercase())
        .filter(|it| it.contains("cpu virtual memory"))
    {
        it.host_percent = int_after(&host, "percent").and_then(|it| u32::try_from(it).ok());
        n += 1;
    }
    Some((vec![it], n))
}

/// `init_mem_gpu_alloc_delta = 1278MB` and its kin: differences over stages.
pub(super) fn trainer(lines: &[Line<'_>]) -> Taken {
    if !is_delta(&lines[0].text) {
        return None;
    }
    let (mut before, mut init, mut train, mut more) = (None, None, None, None);
    let mut n = 0;
    let mut misses = 0;
    let mut last = 0;
    while n < lines.len().min(ROWS) && misses < 12 {
        let text = lines[n].text.to_ascii_lowercase();
        misses = if is_delta(&text) { 0 } else { misses + 1 };
        n += 1;
        if misses != 0 {
            continue;
        }
        last = n;
        let slot = [
            ("before_init_mem_gpu", &mut before),
            ("init_mem_gpu_alloc_delta", &mut init),
            ("train_mem_gpu_alloc_delta", &mut train),
            ("train_mem_gpu_peaked_delta", &mut more),
        ];
        for (key, slot) in slot {
            let Some(at) = text.find(key) else { continue };
            let value = text[at + key.len()..].trim_start_matches(['"', '\'', ' ', ':', '=', '|']);
            *slot = slot.or_else(|| size_at(value).map(|it| it.0));
        }
    }
    let mut it = Printed::new(Kind::Trainer, lines[0].number);
    let allocated = before.unwrap_or_default() + init.unwrap_or_default() + train?;
    let peak = more.map(|it| allocated + it);
    it.levels.push(Levels {
        allocated: Some(allocated),
        peak_allocated: peak,
        ..at_line(&lines[0])
    });
    Some((vec![it], last))
}

fn is_delta(text: &str) -> bool {
    text.contains("_mem_gpu_") || text.contains("_mem_cpu_")
}

/// The lines of vLLM's start.
pub(super) fn vllm(lines: &[Line<'_>]) -> Taken {
    let line = lines.first()?;
    let lower = line.text.to_ascii_lowercase();
    let mut engine = Engine::default();
    let mut levels = at_line(line);
    let is_start = [
        ("model loading took", "gib"),
        ("loading model weights took", "gb"),
        ("available kv cache memory:", "gib"),
        ("gpu kv cache size:", "token"),
        ("the current vllm instance can use total_gpu_memory", "gib"),
        ("model weights take", "gib"),
        ("no available memory for the cache blocks", ""),
        ("larger than the available kv cache memory", "gib"),
        ("larger than the maximum number of tokens that can be stored in kv cache", ""),
    ]
    .iter()
    .any(|(it, unit)| lower.contains(it) && lower.contains(unit));
    if !is_start {
        return None;
    }
    engine.weights = ["model loading took", "loading model weights took", "model weights take"]
        .iter()
        .find_map(|it| after(&lower, it));
    engine.activations = after(&lower, "activation peak memory takes");
    let rest = "memory reserved for kv cache is";
    engine.is_short = lower.contains("no available memory for the cache blocks")
        || lower.contains("larger than the available kv cache memory")
        || lower.contains("larger than the maximum number of tokens")
        || lower.contains(&format!("{rest} -"));
    if lower.contains("available kv cache memory:") {
        engine.cache = after(&lower, "available kv cache memory:");
    } else if !engine.is_short {
        engine.cache = after(&lower, rest);
    }
    if let Some((_, tokens)) = lower.split_once("gpu kv cache size:") {
        let is_part = |it: char| it.is_ascii_digit() || it == ',';
        let tokens: String = tokens.trim_start().chars().take_while(|it| is_part(*it)).collect();
        engine.tokens = Some(tokens.trim_matches(',').to_owned());
    }
    engine.longest = int_after(&lower, "the estimated maximum model length is");
    levels.total = after(&lower, "total_gpu_memory");
    if let Some((_, share)) = lower.split_once("gpu_memory_utilization (0.") {
        let digits: String = share.chars().take_while(char::is_ascii_digit).take(2).collect();
        engine.share_percent = digits.parse().ok();
    }
    let mut it = Printed::new(Kind::Vllm, line.number);
    it.engine = Some(engine);
    if !levels.is_empty() {
        it.levels.push(levels);
    }
    Some((vec![it], 1))
}

/// The column `GPU_mem` of YOLO's versions, `gpu_mem` in older ones: what PyTorch holds.
pub(super) fn yolo(lines: &[Line<'_>]) -> Taken {
    let header: Vec<&str> = lines.first()?.text.split_whitespace().collect();
    let is_column = |it: &&str| it.eq_ignore_ascii_case("gpu_mem");
    let at = header.iter().position(is_column)?;
    let mut it = Printed::new(Kind::Program, lines[0].number);
    let mut n = 1;
    let mut epoch = "";
    while n < lines.len().min(ROWS) {
        let words: Vec<&str> = lines[n].text.split_whitespace().collect();
        let size =
            words.get(at).and_then(|it| size_at(&it.to_ascii_lowercase())).filter(|it| 1 < it.1);
        let first = words.first().copied().unwrap_or_default();
        if let Some((bytes, _)) = size.filter(|_| first.contains('/')) {
            // A bar is written again and again: the last of an epoch counts.
            if first == epoch {
                it.levels.pop();
            }
            epoch = first;
            let reserved = Some(bytes).filter(|it| Bytes::mib(1) <= *it);
            it.levels.push(Levels { reserved, ..at_line(&lines[n]) });
        } else if !words.is_empty()
            && !words.iter().any(is_column)
            && !lines[n].text.starts_with(' ')
        {
            break;
        }
        n += 1;
    }
    (!it.levels.is_empty()).then(|| (vec![it], n))
}

/// Peaks in megabytes without a unit: mmcv's `memory: 5321` among its times, PEFT's `GPU Total Peak Memory ... (max): 15020`.
pub(super) fn megabytes(lines: &[Line<'_>]) -> Taken {
    let line = lines.first()?;
    let lower = line.text.to_ascii_lowercase();
    let word = if lower.contains("data_time: ") {
        ", memory: "
    } else if lower.contains("gpu total peak memory") {
        "(max): "
    } else {
        return None;
    };
    let digits: String =
        lower.split_once(word)?.1.chars().take_while(char::is_ascii_digit).take(9).collect();
    let peak = Bytes::mib(digits.parse().ok()?);
    let mut it = Printed::new(Kind::Program, line.number);
    it.levels.push(Levels { peak_allocated: Some(peak), ..at_line(line) });
    Some((vec![it], 1))
}
