//! The command to type next, in full: of an error what looks for a plan, of levels what says what they were for.

use crate::{
    cards::{self, Card},
    codes::StatementCode,
    explanation::Oom,
    failures::{Backend, Cause, HostMemory, Program},
    printed::{Command, Kind, Printed, PrintedText, Statement},
    recording::OomNote,
    units::Bytes,
};

/// What stands for a command that the text does not have.
const UNKNOWN: &str = "python train.py ...";
/// The same for an engine.
const SERVER: &str = "vllm serve MODEL ...";
/// What `explain` gets in the end.
const RECORDING: &str = "run.zip";

/// A command, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// As it is typed.
    pub command: String,
    /// What is typed after it.
    pub then: Option<String>,
    /// What it does, in a sentence.
    pub why: String,
    /// The options of `plimsoll fit` that say what it is to fit, where that is known.
    pub fit: Option<String>,
    /// Whether all of it stood in the text; else the command behind `--` is to be put there.
    pub is_complete: bool,
}

/// What to type next, after a text.
pub(super) fn of_text(ooms: &[Oom], text: &PrintedText, says: &[Statement]) -> Option<Next> {
    let oom = ooms.first();
    match oom {
        Some(oom) if oom.facts.is_no_size || oom.facts.is_before_any_use() => None,
        Some(oom) if oom.cause == Cause::Host || oom.facts.backend == Backend::Host => {
            let is_ram = matches!(oom.facts.host_memory(), HostMemory::Ram | HostMemory::Pinned);
            (is_ram && !oom.facts.is_windows()).then(|| host(oom, text))
        }
        // A server and a workflow of nodes have no script that `fit` could change.
        Some(oom) if oom.facts.program == Program::Vllm || oom.facts.backend == Backend::Vllm => {
            Some(users(oom, text))
        }
        Some(oom) if !oom.facts.is_of_a_script(command_of(ooms, text).is_some()) => None,
        Some(oom) if oom.facts.backend.may_be_torch_on_cuda() => {
            let (device, capacity) = (oom.facts.device, oom.facts.capacity);
            let card = card(text, device, capacity);
            Some(fit(oom, text, Device { card, capacity, has_own_size: false }))
        }
        Some(_) => None,
        None if text.printed.is_empty()
            || text
                .printed
                .iter()
                .all(|it| matches!(it.kind, Kind::Vllm | Kind::Host) || it.kind.is_amds()) =>
        {
            None
        }
        None => Some(record(text, says)),
    }
}

/// The command that the text is of: that of the first error, or else the last.
pub(super) fn command_of(ooms: &[Oom], text: &PrintedText) -> Option<String> {
    let of = ooms.first().map(|it| &it.facts);
    let found = match of {
        Some(it) => command(text, it.at, it.writer.as_deref()),
        None => text.commands.last(),
    };
    found.map(|it| it.text.clone())
}

fn command<'a>(text: &'a PrintedText, line: usize, writer: Option<&str>) -> Option<&'a Command> {
    let own = || text.commands.iter().filter(|it| it.writer.as_deref() == writer);
    own().rfind(|it| it.line <= line).or_else(|| own().next_back())
}

fn behind(command: Option<&Command>) -> (String, bool) {
    command.map_or((UNKNOWN.to_owned(), false), |it| (it.text.clone(), !it.is_bare))
}

/// Why a command is not complete.
fn gap(command: Option<&Command>) -> &'static str {
    match command {
        None => " The text does not show your command: put it after `--`.",
        Some(it) if it.is_bare => " The text shows the script without its arguments: add them.",
        Some(_) => "",
    }
}

/// What to type next, after a recording that ran out and that a plan can help. The device is the one that `note` names.
pub(super) fn of_recording(oom: &Oom, argv: &[String], note: Option<&OomNote>) -> Option<Next> {
    if argv.is_empty() || matches!(oom.cause, Cause::Leak | Cause::Host) {
        return None;
    }
    let words: Vec<String> = argv.iter().map(|it| quoted(it)).collect();
    let command = Command {
        text: format!("python {}", words.join(" ")),
        line: 0,
        writer: None,
        processes: 1,
        is_bare: false,
    };
    let text = PrintedText { commands: vec![command], ..PrintedText::default() };
    let gpu = note.and_then(|it| it.gpu.as_deref());
    oom.facts.capacity.map(|capacity| fit(oom, &text, Device::recorded(gpu, capacity)))
}

/// What a message rounds a capacity by, at most.
const ROUNDED: Bytes = Bytes::mib(11);

/// What the search is for.
struct Device {
    /// The card of the catalogue, where it is known.
    card: Option<&'static Card>,
    /// Its memory, where that is known.
    capacity: Option<Bytes>,
    /// Whether the card has another capacity in the catalogue: `--memory` set this one, or another driver.
    has_own_size: bool,
}

impl Device {
    /// The one that a recording calls `gpu`, with the capacity that PyTorch's message has.
    fn recorded(gpu: Option<&str>, capacity: Bytes) -> Device {
        let card = gpu.and_then(|name| cards::of_device(name, capacity));
        let has_own_size = card.is_some_and(|card| ROUNDED.0 < card.total.0.abs_diff(capacity.0));
        Device { card, capacity: Some(capacity), has_own_size }
    }

    /// The options of `plimsoll fit`, where `others` of its memory belong to other processes.
    fn options(&self, others: Bytes) -> String {
        let room = self.capacity.map(|it| it.saturating_sub(others));
        match (self.card, room) {
            (Some(card), Some(room)) if others != Bytes::ZERO || self.has_own_size => {
                format!(" --gpu {} --memory {}", card.id, down(room))
            }
            (Some(card), _) => format!(" --gpu {}", card.id),
            (None, Some(room)) => format!(" --budget {}", down(room)),
            (None, None) => " --gpu CARD".to_owned(),
        }
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_alphanumeric() || "-_./=:,+@%^~".contains(it);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn host(oom: &Oom, text: &PrintedText) -> Next {
    let command = command(text, oom.facts.at, oom.facts.writer.as_deref());
    let (typed, is_complete) = behind(command);
    Next {
        command: format!("/usr/bin/time -v {typed}"),
        then: None,
        fit: None,
        why: format!(
            "shows the peak of the host's memory (\"Maximum resident set size\").{}",
            gap(command)
        ),
        is_complete,
    }
}

fn fit(oom: &Oom, text: &PrintedText, device: Device) -> Next {
    let command = command(text, oom.facts.at, oom.facts.writer.as_deref());
    let (typed, is_complete) = behind(command);
    let others = oom.others.filter(|it| Bytes::mib(64) <= *it).unwrap_or_default();
    let mut options = device.options(others);
    let is_known = device.card.is_some() || device.capacity.is_some();
    let processes = command.map_or(1, |it| it.processes);
    if 1 < processes {
        options += &format!(" --gpus {processes}");
    }
    let beside = if others == Bytes::ZERO {
        String::new()
    } else {
        format!(" beside the {others} of other processes")
    };
    Next {
        command: format!("plimsoll fit{options} -- {typed}"),
        then: None,
        fit: is_known.then(|| options.trim().to_owned()),
        why: format!(
            "finds changes that make the script fit{beside}, without a GPU.{}",
            gap(command)
        ),
        is_complete: is_complete && is_known,
    }
}

/// What vLLM holds on that card, with the command of the log or the one that people type most.
fn users(oom: &Oom, text: &PrintedText) -> Next {
    let card = card(text, oom.facts.device, oom.facts.capacity);
    let command = command(text, oom.facts.at, oom.facts.writer.as_deref());
    let command = command.filter(|it| !it.is_bare);
    let gpu = card.map_or("CARD", |it| &it.id);
    let typed = command.map_or(SERVER, |it| &it.text);
    let gap = if command.is_some() {
        ""
    } else {
        " The text does not show your command: put it after `--`."
    };
    Next {
        command: format!("plimsoll fit --users 8 --gpu {gpu} -- {typed}"),
        then: None,
        fit: None,
        why: format!(
            "finds the longest context that 8 users at a time can have, and the flags for it, without a GPU.{gap}"
        ),
        is_complete: command.is_some() && card.is_some(),
    }
}

fn record(text: &PrintedText, says: &[Statement]) -> Next {
    let grows = says.iter().find(|it| it.code == StatementCode::LevelsGrow);
    let of: Option<&Printed> =
        says.first().and_then(|it| text.printed.get(it.of)).or_else(|| text.printed.first());
    let line = of.and_then(Printed::last).map_or(usize::MAX, |it| it.line);
    let command = command(text, line, of.and_then(|it| it.writer.as_deref()));
    let (typed, is_complete) = behind(command);
    let total = of.and_then(Printed::last).and_then(|it| it.total);
    let card = card(text, of.and_then(|it| it.device), total);
    let gpu = card.map(|it| format!(" --gpu {}", it.id)).unwrap_or_default();
    let processes = command.map_or(1, |it| it.processes);
    let gpus = if 1 < processes && card.is_some() {
        format!(" --gpus {processes}")
    } else {
        String::new()
    };
    let whole = if grows.is_some() { " --until-exit" } else { "" };
    Next {
        command: format!("plimsoll predict{gpu}{gpus}{whole} --record {RECORDING} -- {typed}"),
        then: Some(format!("plimsoll explain {RECORDING}")),
        fit: card.map(|it| format!("--gpu {}{gpus}", it.id)),
        why: format!("shows the memory by line and purpose, without a GPU.{}", gap(command)),
        is_complete,
    }
}

/// Two decimals of a GiB, never more than there is.
fn down(bytes: Bytes) -> String {
    // A text has two decimals itself: 14.56 GiB read and written are the same.
    let hundredths = (u128::from(bytes.0) * 100 + (1 << 20)) >> 30;
    format!("{}.{:02}GiB", hundredths / 100, hundredths % 100)
}

/// The card of a device, by what the driver calls it.
fn card(text: &PrintedText, device: Option<u32>, total: Option<Bytes>) -> Option<&'static Card> {
    let of_table =
        |it: &&Printed| device.is_none_or(|device| it.device == Some(device)) && it.card.is_some();
    let table = text
        .printed
        .iter()
        .find(of_table)
        .or_else(|| text.printed.iter().find(|it| it.card.is_some()));
    let total = total.or_else(|| table.and_then(Printed::last).and_then(|it| it.total));
    let names = table
        .and_then(|it| it.card.as_deref())
        .into_iter()
        .chain(text.cards.iter().map(String::as_str));
    names.into_iter().find_map(|it| cards::by_drivers_name(it, total))
}
