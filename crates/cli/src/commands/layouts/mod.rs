//! `plimsoll layouts`: which of the layouts fit that a command can say. Each is one `plimsoll predict` of its own, as many at a time
//! as this machine has cores and memory for.

mod candidates;
mod shown;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    num::NonZeroUsize,
    process::{Command, Stdio},
    sync::Mutex,
    thread,
};

use anyhow::{Context as _, bail, ensure};
use plimsoll_core::{codes::NoteCode, printable::printable, units::Bytes};
use serde::Deserialize;

use self::{
    candidates::Layout,
    shown::{Answer, Layouts, Sizes, Tried},
};
use crate::{
    engine::{host_memory, launch, phantom_run},
    exit::Exit,
    files::requested_file::RequestedFile,
    options::{cli::LayoutsArgs, shown_command},
    output::{self, Output, say},
};

/// What a run of a rank takes of the host, by experience.
const OF_A_RUN: Bytes = Bytes::gib(2);
/// How plimsoll's own lines on standard error begin.
const OURS: &str = "plimsoll: ";
/// The letters of a reason that are printed.
const LONGEST_REASON: usize = 200;

pub(crate) fn run(args: &LayoutsArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let card = phantom_run::card(args.gpu.as_deref(), None, &args.command)?;
    let is_launched = launch::has_launcher(&args.command);
    let says_how_many = |it: &OsString| {
        ["nproc", "num_processes", "num_gpus"]
            .iter()
            .any(|word| it.to_string_lossy().replace('-', "_").contains(word))
    };
    ensure!(
        !is_launched || args.command.iter().any(says_how_many),
        "the launcher in the command starts one process unless the command says how many: torchrun --nnodes {{nodes}} --nproc-per-node {{gpus_per_node}}"
    );
    let mut layouts = candidates::all(&args.command, args.gpus, &args.values, &args.constraints)?;
    if args.at_most < layouts.len() {
        bail!(
            "{} layouts are possible, and --at-most is {}: leave some out with --where, for example --where 'tp<=8', or try more",
            layouts.len(),
            args.at_most
        );
    }
    layouts.sort_by_key(Layout::effort);
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let json_on_stdout = json.as_ref().is_some_and(RequestedFile::is_stdout);
    let jobs = args.jobs.map_or_else(at_a_time, NonZeroUsize::get).min(layouts.len()).max(1);
    let queue = Mutex::new(layouts.into_iter().enumerate());
    let results: Mutex<BTreeMap<usize, Tried>> = Mutex::default();
    let n_done = || results.lock().map_or(0, |it| it.len());
    let work = || -> anyhow::Result<()> {
        loop {
            let next = queue.lock().ok().and_then(|mut it| it.next());
            let Some((at, layout)) = next else { return Ok(()) };
            let tried = attempt(args, is_launched, &card.id, layout)?;
            if output::is_seen() && !args.quiet {
                say(&format!("{} ({} done)", printable(&tried.layout.name()), n_done() + 1));
            }
            if let Ok(mut all) = results.lock() {
                all.insert(at, tried);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|it| it.join().unwrap_or_else(|_| bail!("a worker ended early")))
    })?;
    let tried = results.into_inner().unwrap_or_default().into_values().collect();
    let layouts = Layouts { card: card.id.clone(), total: card.usable(), gpus: args.gpus, tried };
    if let Some(sink) = json {
        sink.json(&format!("{:#}\n", layouts.json()), out)?;
    }
    if !json_on_stdout && !args.quiet {
        out.text(&layouts.text(out.styles()))?;
    }
    let could_not = |it: &Tried| matches!(it.answer, Answer::CannotWork(_));
    Ok(match layouts.first() {
        Some(_) => Exit::Fits,
        None if layouts.tried.iter().all(could_not) => Exit::CouldNotTell,
        None => Exit::DoesNotFit,
    })
}

/// How many runs this machine has cores and memory for.
fn at_a_time() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let by_memory =
        host_memory::free().and_then(|it| usize::try_from(it / OF_A_RUN.0).ok()).unwrap_or(cores);
    cores.min(by_memory).max(1)
}

/// What is read of the JSON of `predict`.
#[derive(Debug, Deserialize)]
struct Report {
    verdict: String,
    peak_device_bytes: u64,
    safe_bytes: Option<u64>,
    larger: Option<Larger>,
    #[serde(default)]
    categories: BTreeMap<String, u64>,
    #[serde(default)]
    ranks: Vec<RankLine>,
    #[serde(default)]
    notes: Vec<NoteLine>,
}

#[derive(Debug, Deserialize)]
struct Larger {
    peak: LargerPeak,
}

#[derive(Debug, Deserialize)]
struct LargerPeak {
    device_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct RankLine {
    rank: Option<u32>,
    device_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct NoteLine {
    code: String,
    text: String,
}

/// Runs one layout.
fn attempt(
    args: &LayoutsArgs,
    is_launched: bool,
    gpu: &str,
    layout: Layout,
) -> anyhow::Result<Tried> {
    let mut words: Vec<OsString> = ["predict", "--gpu", gpu].map(OsString::from).to_vec();
    if !is_launched && 1 < args.gpus {
        words.extend(["--world-size".into(), args.gpus.to_string().into()]);
    }
    for it in &args.assume {
        words.extend(["--assume".into(), it.to_string().into()]);
    }
    let request = args.request.and_then(|it| clap::ValueEnum::to_possible_value(&it));
    if let Some(scheduler) = &request {
        words.extend(["--as".into(), scheduler.get_name().into()]);
    }
    let mut shown: Vec<OsString> = vec!["plimsoll".into()];
    shown.extend(words.iter().cloned());
    words.extend(["--json", "-"].map(OsString::from));
    let command = candidates::command_of(&args.command, &layout, args.gpus);
    for of in [&mut words, &mut shown] {
        of.push("--".into());
        of.extend(command.iter().cloned());
    }
    let own = env::current_exe().context("cannot find plimsoll itself")?;
    let ran = Command::new(own)
        .args(&words)
        .stdin(Stdio::null())
        .output()
        .context("cannot run plimsoll predict")?;
    let mut documents = serde_json::Deserializer::from_slice(&ran.stdout).into_iter::<Report>();
    let answer = match documents.next() {
        Some(Ok(report)) => {
            let rest = ran.stdout.get(documents.byte_offset()..).unwrap_or_default();
            let request = request.map(|_| String::from_utf8_lossy(rest).trim().to_owned());
            let words = String::from_utf8_lossy(&ran.stderr);
            answer_of(report, request.filter(|it| !it.is_empty()), &words)
        }
        _ => Answer::CannotWork(last_words(&String::from_utf8_lossy(&ran.stderr))),
    };
    Ok(Tried { layout, command: shown_command::shown(&shown), answer })
}

/// `words` is what the script and `predict` wrote to standard error.
fn answer_of(report: Report, request: Option<String>, words: &str) -> Answer {
    let mut groups: Vec<(String, Bytes)> = report
        .categories
        .into_iter()
        .map(|(name, it)| (name, Bytes(it)))
        .filter(|it| it.1 != Bytes::ZERO)
        .collect();
    groups.sort_by_key(|it| std::cmp::Reverse(it.1));
    let ranks =
        report.ranks.iter().filter_map(|it| Some((it.rank?, Bytes(it.device_bytes)))).collect();
    let unseen = report
        .notes
        .iter()
        .find(|it| it.code == NoteCode::RanksUnseen.word())
        .map(|it| it.text.clone());
    let sizes = |needs: Option<u64>| Sizes {
        unseen,
        needs: needs.map(Bytes),
        safe: report.safe_bytes.map(Bytes),
        ranks,
        groups,
        request,
    };
    match report.verdict.as_str() {
        "fits" => Answer::Fits(sizes(Some(report.peak_device_bytes))),
        "could_not_tell" => {
            let note = report.notes.first().map_or("no reason is known", |it| &it.text);
            // A script that ends with a code, as argparse does, has said why in its last line.
            let last = lines_backwards(words).find(|it| !it.starts_with(OURS));
            Answer::CannotWork(match last.filter(|it| !note.contains(it)) {
                Some(last) => shortened(&format!("{}: {last}", shortened(note))),
                None => shortened(note),
            })
        }
        _ => Answer::DoesNotFit {
            sizes: sizes(report.larger.map(|it| it.peak.device_bytes)),
            verdict: report.verdict,
        },
    }
}

/// The last line that says something.
fn last_words(text: &str) -> String {
    let line = lines_backwards(text).next();
    shortened(line.unwrap_or("plimsoll predict gave no answer").trim_start_matches(OURS))
}

/// Those that are not blank, the last first.
fn lines_backwards(text: &str) -> impl Iterator<Item = &str> {
    text.lines().rev().map(str::trim).filter(|it| !it.is_empty())
}

/// Without where it happened, which differs between layouts, and not too long.
fn shortened(text: &str) -> String {
    let ends = ["; until then", ", before the first", ", after "];
    let text = ends.iter().fold(text, |text, end| text.split(end).next().unwrap_or(text));
    text.chars().take(LONGEST_REASON).collect()
}
