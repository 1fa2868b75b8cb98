//! What follows from printed numbers, in sentences: what they say, and what they cannot.

use crate::{
    codes::StatementCode,
    printed::{Engine, Kind, Levels, Printed, UsedBy},
    units::{Bytes, times},
};

/// A device is as good as full from this share on, in percent.
const FULL: u64 = 95;
/// And idle up to this one.
const IDLE: u64 = 2;
/// Levels that differ by less are the same, in percent of the highest.
const SAME: u64 = 3;
/// Times that a level has to have been printed before it can be seen to grow.
const TIMES: usize = 4;
/// Smaller processes are a desktop's.
const NOTABLE: Bytes = Bytes::mib(100);

/// One thing that the numbers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Which.
    pub code: StatementCode,
    /// One sentence.
    pub text: String,
    /// It does not stand there, but follows from what does.
    pub is_inferred: bool,
    /// The line of the text, from 1.
    pub line: usize,
    /// How much it is about, if that can be said.
    pub bytes: Option<Bytes>,
    /// Which of what was printed it is of.
    pub of: usize,
}

/// What everything that was printed says, the most telling first.
pub fn statements(printed: &[Printed]) -> Vec<Statement> {
    let mut res: Vec<Statement> = Vec::new();
    for (of, it) in printed.iter().enumerate() {
        let mut of_one = Of { it, of, several: 1 < printed.len(), found: Vec::new() };
        of_one.all();
        res.append(&mut of_one.found);
    }
    let ranks = ranks_on_one(printed);
    if ranks.is_none() {
        res.extend(uneven(printed));
    }
    res.extend(ranks);
    res.sort_by_key(|it| (it.code.rank(), it.of));
    res
}

/// What the numbers of these kinds cannot say, a sentence each.
pub fn limits(printed: &[Printed]) -> Vec<&'static str> {
    let mut res: Vec<&'static str> = Vec::new();
    // What a program asked the driver is no counter of PyTorch's.
    let is_drivers = |printed: &Printed| {
        let last = printed.last();
        printed.kind == Kind::Program
            && last
                .is_some_and(|it| it.free.is_some() && it.level() == it.used.or_else(|| taken(it)))
    };
    let mut kinds: Vec<(Kind, bool)> = printed.iter().map(|it| (it.kind, is_drivers(it))).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (kind, is_drivers) in kinds {
        let limit = match kind {
            it if it.is_amds() => {
                "These are AMD's cards: plimsoll has only NVIDIA's to predict for. It reads a recording of PyTorch on ROCm: torch.cuda.memory._record_memory_history() before the model is built, torch.cuda.memory._dump_snapshot('oom.pickle') in the end, then plimsoll explain oom.pickle."
            }
            it if it.is_of_device() || is_drivers => {
                "The driver counts all memory of a process, with PyTorch's cache and the CUDA context. It does not show what the memory is for."
            }
            Kind::Profiler => {
                "A profiler's table sums all requests of each operator. It does not show how much was in use at the same time, or when."
            }
            Kind::Host => {
                "The host's numbers do not show which process holds the memory: `top` and `ps aux --sort=-rss` do."
            }
            Kind::Vllm => {
                "vLLM's numbers are from its start. Later requests use the cache that is counted here."
            }
            Kind::Trainer => {
                "The Trainer measures at the ends of stages, without other processes and the CUDA context."
            }
            _ => {
                "PyTorch's counters do not show which line requested the memory, or whether it is still needed. They do not include other processes and the CUDA context."
            }
        };
        if !res.contains(&limit) {
            res.push(limit);
        }
    }
    res
}

struct Of<'a> {
    it: &'a Printed,
    of: usize,
    several: bool,
    found: Vec<Statement>,
}

impl Of<'_> {
    fn say(
        &mut self,
        code: StatementCode,
        is_inferred: bool,
        line: usize,
        bytes: Option<Bytes>,
        text: String,
    ) {
        let subject = self.it.subject();
        let text =
            if self.several && !subject.is_empty() { format!("{subject}: {text}") } else { text };
        self.found.push(Statement { code, text, is_inferred, line, bytes, of: self.of });
    }

    fn all(&mut self) {
        self.counts();
        self.host();
        self.engine();
        self.operators();
        self.processes();
        let Some(last) = self.it.last().cloned() else { return };
        self.card(&last);
        let is_trend = self.trend() || self.falls() || self.share_grows();
        self.cache(&last);
        if !is_trend || last.peak_allocated.is_some() {
            self.peak(&last);
        }
    }

    /// The host's memory: where it is short, nothing of PyTorch says so.
    fn host(&mut self) {
        let line = self.it.last().map_or(self.it.line, |it| it.line);
        if let Some(swap) = self.it.swap {
            let text = format!(
                "{swap} of the programs' host memory are in the swap file: a program that needs them waits for the disk. Offloading to the CPU, pinned memory and DataLoader workers need RAM"
            );
            self.say(StatementCode::HostSwaps, true, line, Some(swap), text);
        }
        if let Some(all) = self.it.full_shm {
            let text = format!(
                "/dev/shm is full ({all}): DataLoader workers pass batches through it. Use `docker run --shm-size=8g` or `--ipc=host`, fewer workers, or a smaller `prefetch_factor`"
            );
            self.say(StatementCode::ShmFull, false, line, Some(all), text);
        }
        if let Some(percent) = self.it.host_percent.filter(|it| 90 <= *it) {
            let text = format!(
                "{percent} % of the host's memory (RAM) is used: when it is full, the system ends processes without a message from PyTorch"
            );
            self.say(StatementCode::HostNearlyFull, false, line, None, text);
        }
    }

    fn counts(&mut self) {
        let line = self.it.line;
        if 0 < self.it.ooms {
            let text = format!(
                "PyTorch counted out-of-memory errors: memory ran out {}",
                times(self.it.ooms)
            );
            self.say(StatementCode::RanOut, false, line, None, text);
        }
        if 0 < self.it.retries {
            let text = format!(
                "the card was full {}: PyTorch gave its free memory back to the driver and went on. The GPU waits meanwhile: the card is nearly too small, and steps are slower",
                times(self.it.retries)
            );
            self.say(StatementCode::Retries, false, line, None, text);
        }
    }

    fn engine(&mut self) {
        let Some(Engine { weights, activations, cache, is_short, tokens, share_percent, longest }) =
            &self.it.engine
        else {
            return;
        };
        let mut parts = Vec::new();
        parts.extend(weights.map(|it| format!("the weights need {it}")));
        parts.extend(activations.map(|it| format!("the largest forward pass {it}")));
        let parts =
            if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        let line = self.it.line;
        let has_numbers = !parts.is_empty() || cache.is_some() || longest.is_some();
        if *is_short {
            if !has_numbers {
                return; // The failure says the rest.
            }
            let mut text = format!("too little memory is free for the key-value cache{parts}");
            if let Some(it) = cache {
                text += &format!(", {it} is left");
            }
            let longest =
                longest.map(|it| format!("vLLM reports that `--max-model-len {it}` fits. "));
            text += &format!(
                ". {}Set a smaller `--max-model-len` or a larger `--gpu-memory-utilization`{}, or put fewer weights on this card (a quantized model, `--tensor-parallel-size`)",
                longest.unwrap_or_default(),
                share_percent.map(|it| format!(" (it is 0.{it:02})")).unwrap_or_default()
            );
            self.say(StatementCode::VllmNoRoom, false, line, *cache, text);
        } else if let Some(cache) = cache {
            let tokens = tokens.as_ref().map(|it| format!(", for {it} tokens")).unwrap_or_default();
            let text = format!(
                "vLLM takes the rest of the card for its key-value cache by design: {cache}{tokens}{parts}. A lower `--gpu-memory-utilization` makes the cache smaller"
            );
            self.say(StatementCode::VllmTakesTheRest, false, line, Some(*cache), text);
        }
    }

    fn operators(&mut self) {
        let mut operators: Vec<_> = self.it.operators.iter().collect();
        operators.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.name.cmp(&b.name)));
        let Some(first) = operators.first() else { return };
        let bytes = first.bytes;
        let named = |operator: &&crate::printed::Operator| {
            let calls = if operator.calls == 1 {
                "1 call".to_owned()
            } else {
                format!("{} calls", operator.calls)
            };
            format!("{} {} in {calls}", operator.name, operator.bytes)
        };
        let most: Vec<String> = operators.iter().take(3).map(named).collect();
        let text = format!("the operator that requested most memory is {}", most.join("; "));
        self.say(StatementCode::Operators, false, self.it.line, Some(bytes), text);
    }

    fn processes(&mut self) {
        let it = self.it;
        let line = it.line;
        let computing: Vec<&UsedBy> = it
            .processes
            .iter()
            .filter(|it| !it.is_graphics && it.bytes.is_none_or(|it| NOTABLE <= it))
            .collect();
        let sized: Vec<&UsedBy> =
            computing.iter().copied().filter(|it| it.bytes.is_some()).collect();
        if 1 < sized.len() {
            let all: Bytes = sized.iter().filter_map(|it| it.bytes).sum();
            let named: Vec<String> = sized.iter().take(4).map(|it| told(it)).collect();
            let text = format!(
                "{} programs share the card: {}. Each can use only what the others do not",
                sized.len(),
                named.join("; ")
            );
            self.say(StatementCode::SeveralProcesses, false, line, Some(all), text);
        }
        if computing.iter().any(|it| it.bytes.is_none()) && sized.is_empty() {
            let text = "the driver does not report the memory of each process, as on Windows with WDDM and under WSL".to_owned();
            self.say(StatementCode::NoSizes, false, line, None, text);
        }
        let used = it.last().and_then(|it| it.used);
        if it.lists_processes
            && it.processes.is_empty()
            && let (Some(used), Some(total)) = (used, it.last().and_then(|it| it.total))
            && total.0 / 20 <= used.0
        {
            let text = format!(
                "{used} are used, but nvidia-smi shows no process: it sees only processes of its own container. Run it on the host"
            );
            self.say(StatementCode::HiddenProcesses, true, line, Some(used), text);
        }
    }

    fn card(&mut self, last: &Levels) {
        if let Some(percent) = last.used_percent {
            let (code, text) = match u64::from(percent) {
                FULL.. => (
                    StatementCode::CardFull,
                    format!("the card is full: {percent} % of its memory is used"),
                ),
                ..=IDLE => (StatementCode::CardIdle, format!("the card is not used: {percent} %")),
                _ => (StatementCode::CardUsed, format!("{percent} % of its memory is used")),
            };
            self.say(code, false, last.line, None, text);
        }
        let total = last.total.or_else(|| Some(last.used? + last.free?));
        let (Some(total), Some(used)) = (total, used(last)) else { return };
        let is_program = !self.it.kind.is_of_device();
        if used.0 >= total.0 / 100 * FULL {
            let most =
                self.it.processes.iter().filter(|it| it.bytes.is_some()).max_by_key(|it| it.bytes);
            let most = most.map(|it| format!("; the most has {}", told(it))).unwrap_or_default();
            let names = self.it.processes.iter().filter(|it| it.is_graphics && it.bytes.is_some());
            let desktop: Vec<String> = names.map(told).collect();
            let desktop = if desktop.is_empty() {
                String::new()
            } else {
                format!("; the desktop has {}", desktop.join(", "))
            };
            let text = format!("the card is full: {used} of {total} are used{most}{desktop}");
            self.say(StatementCode::CardFull, false, last.line, Some(used), text);
        } else if used.0 <= total.0 / 100 * IDLE && !is_program {
            let text = format!("the card is not used: {used} of {total}");
            self.say(StatementCode::CardIdle, false, last.line, Some(used), text);
        } else if !is_program {
            let text = format!("{used} of {total} are used");
            self.say(StatementCode::CardUsed, false, last.line, Some(used), text);
        }
    }

    /// Whether what is free falls each time, where nothing else is printed.
    fn falls(&mut self) -> bool {
        let all: Vec<Bytes> = self.it.levels.iter().filter_map(|it| it.free).collect();
        let is_all = self.it.levels.iter().all(|it| it.level().is_none());
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return false };
        let down = all.windows(2).filter(|it| it[1] < it[0]).count();
        let is_less = first.0 / 100 * SAME < first.0.saturating_sub(last.0);
        let falls = all.is_sorted_by(|a, b| b <= a) && (all.len() - 1) * 3 <= down * 4;
        if !is_all || all.len() < TIMES || !is_less || !falls {
            return false;
        }
        let each = Bytes((first.0 - last.0) / (all.len() as u64 - 1));
        let text = format!(
            "free memory falls each time: from {first} to {last} in {} prints, {each} each{}. The program retains memory that the next step does not need, or a cache still fills",
            all.len(),
            until_full(*last, each)
        );
        let line = self.it.last().map_or(self.it.line, |it| it.line);
        self.say(StatementCode::LevelsGrow, true, line, Some(Bytes(first.0 - last.0)), text);
        true
    }

    /// Whether levels that were printed again and again grow, or stay.
    fn trend(&mut self) -> bool {
        let mut labels: Vec<&str> = self.it.levels.iter().map(|it| it.label.as_str()).collect();
        labels.sort_unstable();
        labels.dedup();
        let mut best: Option<(Bytes, Bytes, Bytes, usize, usize)> = None;
        let mut stays = Vec::new();
        for label in labels {
            let of = || self.it.levels.iter().filter(|it| it.label == label);
            let all: Vec<Bytes> = of().filter_map(Levels::level).collect();
            let line = of().next_back().map_or(0, |it| it.line);
            let (Some(first), Some(last)) = (all.first().copied(), all.last().copied()) else {
                continue;
            };
            let (least, most) = (all.iter().min().copied(), all.iter().max().copied());
            let (least, most) = (least.unwrap_or_default(), most.unwrap_or_default());
            let up = all.windows(2).filter(|it| it[0] < it[1]).count();
            let down = all.windows(2).filter(|it| it[1] < it[0]).count();
            let is_more = first.0 / 100 * SAME < last.0.saturating_sub(first.0);
            if TIMES <= all.len() && is_more && down == 0 && (all.len() - 1) * 3 <= up * 4 {
                let rise = Bytes((last.0 - first.0) / (all.len() as u64 - 1));
                if best.is_none_or(|it| it.2 < rise) {
                    best = Some((first, last, rise, all.len(), line));
                }
            } else if 3 <= all.len() && most.0 - least.0 <= most.0 / 100 * SAME {
                stays.push((most, all.len(), line));
            }
        }
        if let Some((first, last, rise, n, line)) = best {
            let what = self.what();
            let until = self
                .it
                .last()
                .and_then(|it| it.total)
                .filter(|total| last < *total && Bytes::ZERO < rise)
                .map(|total| until_full(Bytes(total.0 - last.0), rise))
                .unwrap_or_default();
            let text = format!(
                "{what} grow each time: from {first} to {last} in {n} prints, {rise} each{until}. The program retains memory that the next step does not need, or a cache still fills"
            );
            self.say(StatementCode::LevelsGrow, true, line, Some(last.saturating_sub(first)), text);
            return true;
        }
        let Some((most, n, line)) = stays.into_iter().max() else { return false };
        let text =
            format!("{} stay the same in {n} prints, {most} at most: no leak here", self.what());
        self.say(StatementCode::LevelsSteady, true, line, Some(most), text);
        true
    }

    /// Whether the share of the card that is used grows each time, where nothing but the share is printed.
    fn share_grows(&mut self) -> bool {
        let all: Vec<u32> = self.it.levels.iter().filter_map(|it| it.used_percent).collect();
        let (Some(first), Some(last)) = (all.first().copied(), all.last().copied()) else {
            return false;
        };
        let is_rise = all.is_sorted_by(|a, b| a < b);
        if self.it.kind.is_of_device() || all.len() < TIMES || !is_rise || last < first + 3 {
            return false;
        }
        let text = format!(
            "the used share of the card grows each time: from {first} % to {last} % in {} prints. The program retains memory that the next step does not need, or a cache still fills",
            all.len()
        );
        let line = self.it.last().map_or(self.it.line, |it| it.line);
        self.say(StatementCode::LevelsGrow, true, line, None, text);
        true
    }

    fn what(&self) -> &'static str {
        let last = self.it.last();
        if last.is_some_and(|it| it.allocated.is_some()) {
            "tensors"
        } else if last.is_some_and(|it| it.reserved.is_some()) {
            "PyTorch's holdings"
        } else {
            "the card's used bytes"
        }
    }

    /// What PyTorch holds without a need.
    fn cache(&mut self, last: &Levels) {
        let (Some(allocated), Some(reserved)) = (last.allocated, last.reserved) else { return };
        let needed = last.peak_allocated.unwrap_or(allocated).max(allocated);
        let unused = reserved.saturating_sub(needed);
        if unused < Bytes::mib(256) || unused.0 < reserved.0 / 4 {
            return;
        }
        let pieces = last.pieces.filter(|it| unused.0 / 4 <= it.0);
        let pieces = pieces
            .map(|pieces| {
                format!(
                    "; {pieces} of that are in pieces between tensors, which PyTorch cannot give back"
                )
            })
            .unwrap_or_default();
        let why = if last.peak_allocated.is_some() {
            "Changing sizes cause fragmentation: first try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        } else {
            "Mostly tensors used more before this print (torch.cuda.max_memory_allocated() shows how much); if not, the memory is in pieces too small to use"
        };
        let text = format!(
            "PyTorch holds {unused} that tensors do not use: {reserved} reserved, and tensors never needed more than {needed}{pieces}. {why}"
        );
        let text = if last.peak_allocated.is_some() {
            text
        } else {
            text.replace("never needed more than", "now have")
        };
        self.say(StatementCode::Unused, true, last.line, Some(unused), text);
    }

    fn peak(&mut self, last: &Levels) {
        let Some(peak) = last.peak_allocated else { return };
        let now =
            last.allocated.map(|it| format!(", {it} when it was printed")).unwrap_or_default();
        let text = format!(
            "tensors used up to {peak}{now}: the card must fit that peak, not the usual amount"
        );
        self.say(StatementCode::Peak, false, last.line, Some(peak), text);
    }
}

/// When a level that rises by `each` has no room any more.
fn until_full(left: Bytes, each: Bytes) -> String {
    match left.0 / each.0.max(1) {
        0 => ", and the next one does not fit".to_owned(),
        n => format!(", and the card is full after {n} more"),
    }
}

/// Processes that compute on cards of their own, and have a little of one more card.
fn ranks_on_one(printed: &[Printed]) -> Option<Statement> {
    let sized = |printed: &Printed| -> Vec<(u32, Bytes)> {
        printed
            .processes
            .iter()
            .filter(|it| !it.is_graphics)
            .filter_map(|it| Some((it.pid?, it.bytes?)))
            .collect()
    };
    let of_cards: Vec<(usize, Vec<(u32, Bytes)>)> = printed
        .iter()
        .enumerate()
        .filter(|(_, it)| it.kind.is_of_device() && it.levels.len() <= 1)
        .map(|(n, it)| (n, sized(it)))
        .collect();
    // The card with most guests: processes that have more of another card.
    let guests = |of: usize, own: &[(u32, Bytes)]| -> Vec<(u32, Bytes)> {
        let has_more = |pid: u32, bytes: Bytes| {
            of_cards
                .iter()
                .filter(|(n, _)| *n != of)
                .any(|(_, it)| it.iter().any(|(other, more)| *other == pid && bytes < *more))
        };
        own.iter().copied().filter(|(pid, bytes)| has_more(*pid, *bytes)).collect()
    };
    let all = of_cards.iter().map(|(n, own)| (*n, guests(*n, own)));
    let (of, guests) = all.max_by_key(|it| it.1.len()).filter(|it| !it.1.is_empty())?;
    let bytes: Bytes = guests.iter().map(|it| it.1).sum();
    let pids: Vec<String> = guests.iter().take(8).map(|it| it.0.to_string()).collect();
    let plural = if guests.len() == 1 { "process" } else { "processes" };
    Some(Statement {
        code: StatementCode::RanksOnOneCard,
        text: format!(
            "{}: {plural} {} of other cards also use this one, together {bytes}: ranks that open a second card. Call `torch.cuda.set_device(local_rank)` before anything else uses CUDA, and load checkpoints with `torch.load(path, map_location=\"cpu\")`",
            printed[of].subject(),
            pids.join(", ")
        ),
        is_inferred: false,
        line: printed[of].line,
        bytes: Some(bytes),
        of,
    })
}

fn uneven(printed: &[Printed]) -> Option<Statement> {
    let of: Vec<(usize, Bytes)> = printed
        .iter()
        .enumerate()
        .filter(|(_, it)| it.kind.is_of_device() && it.levels.len() == 1)
        .filter_map(|(n, it)| Some((n, it.last()?.used?)))
        .filter(|(_, used)| Bytes::gib(1) <= *used)
        .collect();
    let most = of.iter().max_by_key(|it| it.1)?;
    let mut others: Vec<Bytes> = of.iter().filter(|it| it.0 != most.0).map(|it| it.1).collect();
    others.sort_unstable();
    let usual = *others.get(others.len() / 2)?;
    let more = most.1.saturating_sub(usual);
    (2 <= others.len() && Bytes::gib(1) <= more && usual.0 / 4 <= more.0).then(|| Statement {
        code: StatementCode::UnevenCards,
        text: format!(
            "{} uses {more} more than the others usually do: the first process often has copies, checkpoints or an evaluation of its own, or all processes use its card a little",
            printed[most.0].subject()
        ),
        is_inferred: true,
        line: printed[most.0].line,
        bytes: Some(more),
        of: most.0,
    })
}

fn used(levels: &Levels) -> Option<Bytes> {
    // What the driver keeps for itself is neither free nor used.
    levels.used.max(taken(levels))
}

fn taken(levels: &Levels) -> Option<Bytes> {
    Some(levels.total?.saturating_sub(levels.free?))
}

fn told(it: &UsedBy) -> String {
    let bytes = it.bytes.map(|it| format!(" {it}")).unwrap_or_default();
    let mib = it
        .bytes
        .filter(|it| Bytes::gib(1) <= *it)
        .map(|it| format!(" ({} MiB)", it.0 >> 20))
        .unwrap_or_default();
    let pid = it.pid.map(|it| format!(" [{it}]")).unwrap_or_default();
    format!("{}{pid}{bytes}{mib}", it.name)
}
