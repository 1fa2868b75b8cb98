//! `plimsoll layouts`: which of the layouts fit that a command can say. Each is one `plimsoll predict` of its own, as many at a time
//! as this machine has cores and memory for.

mod candidates;
mod processes;
mod shown;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env,
    ffi::OsString,
    num::NonZeroUsize,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use nix::sys::{prctl, signal::SigSet};
use plimsoll_core::{codes::NoteCode, prediction::Verdict, units::Bytes};
use serde::Deserialize;

use self::{
    candidates::Layout,
    processes::Processes,
    shown::{Answer, Layouts, Sizes, Tried, Undecided},
};
use crate::{
    engine::{
        host_memory,
        launch::{self, Signals},
        phantom_run::{self, Choice, How},
    },
    exit::Exit,
    files::requested_file::RequestedFile,
    options::cli::LayoutsArgs,
    output::{Output, say},
    shell,
};

/// How long who has nothing to run waits before looking again.
const PAUSE: Duration = Duration::from_millis(100);
/// How plimsoll's own lines on standard error begin.
const OURS: &str = "plimsoll: ";
/// The letters of a reason that are printed.
const LONGEST_REASON: usize = 200;

pub(crate) fn run(args: &LayoutsArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let Choice { card, how } = phantom_run::choice(args.gpu.as_deref(), None, &args.command)?;
    ensure!(
        !matches!(how, Some(How::Largest(_))),
        "nothing says which card the job has; name it with --gpu, for example --gpu h100-80g"
    );
    let is_launched = launch::has_launcher(&args.command);
    let mut layouts = candidates::all(&args.command, args.gpus, &args.values, &args.constraints)?;
    if args.at_most < layouts.len() {
        bail!(
            "{} layouts are possible, and --at-most is {}: leave some out with --where, for example --where 'tp<=8', or try more",
            layouts.len(),
            args.at_most
        );
    }
    layouts.sort_by_key(Layout::effort);
    let mut json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let json_on_stdout = json.as_ref().is_some_and(RequestedFile::is_stdout);
    let jobs = args.jobs.unwrap_or_else(at_a_time).min(layouts.len()).max(1);
    let n_layouts = layouts.len();
    let search = Search::new(layouts);
    // What a run leaves when it is killed is ours to end.
    prctl::set_child_subreaper(true).context("cannot become the subreaper of the runs")?;
    let signals = Signals::hold().context("cannot hold signals")?;
    let processes = Processes::default();
    let each = Each {
        args,
        is_launched,
        // As it was given: a file may describe a card that the catalogue does not have.
        gpu: args.gpu.as_deref().unwrap_or(&card.id),
        processes: &processes,
        mask: signals.before(),
    };
    let so_far = |search: &State| Layouts {
        card: card.id.clone(),
        total: card.usable(),
        gpus: args.gpus,
        not_run: n_layouts - search.tried.len(),
        tried: search.tried.values().cloned().collect(),
    };
    let json_so_far = Mutex::new(json.as_mut());
    let work = || -> anyhow::Result<()> {
        while let Some(next) = search.next() {
            let began = Instant::now();
            let answer = each.attempt(next.layout, next.asks);
            let Some(tried) = answer.inspect_err(|_| search.stop())? else {
                search.stop();
                return Ok(());
            };
            let state = search.came(next.at, next.asks, tried.clone(), began.elapsed());
            let layouts = so_far(&state);
            if !args.quiet {
                say(&layouts.line(&tried));
            }
            // Others wait for the list meanwhile, and so the newest one is written last.
            if let Ok(mut file) = json_so_far.lock()
                && let Some(file) = file.as_mut()
            {
                file.json_so_far(&format!("{:#}\n", layouts.json()))?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let is_over = || workers.iter().all(thread::ScopedJoinHandle::is_finished);
        processes.attend(&signals, is_over).context("cannot wait for signals")?;
        workers
            .into_iter()
            .try_for_each(|it| it.join().unwrap_or_else(|_| bail!("a worker ended early")))
    })?;
    let layouts = so_far(&search.state());
    if let Some(sink) = json {
        sink.json(&format!("{:#}\n", layouts.json()), out)?;
    }
    if !json_on_stdout && !args.quiet {
        out.report(&layouts.text(out.styles()), true, &[])?;
    }
    drop(signals);
    Ok(layouts.exit())
}

/// What a run of a layout is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// Whether it fits.
    Verdict,
    /// By how much it does not.
    Size,
}

/// One run of a layout.
struct Next {
    at: usize,
    layout: Layout,
    asks: Asks,
}

/// Which layouts are still to run, and what came of the others. First each runs as far as its verdict takes; then those that do not
/// fit run on a larger card, so that the nearest of them are known. Those that came far before memory ran out come first.
struct Search(Mutex<State>);

struct State {
    verdicts: VecDeque<(usize, Layout)>,
    /// Each after so long, and its place.
    sizes: BTreeSet<(Duration, usize)>,
    n_under_way: usize,
    tried: BTreeMap<usize, Tried>,
}

impl Search {
    fn new(layouts: Vec<Layout>) -> Search {
        let verdicts = layouts.into_iter().enumerate().collect();
        let (sizes, tried) = Default::default();
        Search(Mutex::new(State { verdicts, sizes, n_under_way: 0, tried }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next run; none if nothing is left to do. Waits where what runs may leave something.
    fn next(&self) -> Option<Next> {
        loop {
            let mut state = self.state();
            if let Some((at, layout)) = state.verdicts.pop_front() {
                state.n_under_way += 1;
                return Some(Next { at, layout, asks: Asks::Verdict });
            }
            if let Some((_, at)) = state.sizes.pop_last() {
                let layout = state.tried.get(&at)?.layout.clone();
                return Some(Next { at, layout, asks: Asks::Size });
            }
            if state.n_under_way == 0 {
                return None;
            }
            drop(state);
            thread::sleep(PAUSE);
        }
    }

    /// Nothing more is to run.
    fn stop(&self) {
        let mut state = self.state();
        state.verdicts.clear();
        state.sizes.clear();
        state.n_under_way = 0;
    }

    /// What came of a run that took so long.
    fn came(&self, at: usize, asks: Asks, tried: Tried, took: Duration) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if asks == Asks::Verdict {
            state.n_under_way = state.n_under_way.saturating_sub(1);
            if tried.wants_size() {
                state.sizes.insert((took, at));
            }
        }
        state.tried.insert(at, tried);
        state
    }
}

/// How many runs this machine has cores and memory for.
fn at_a_time() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let by_memory = host_memory::free()
        .and_then(|it| usize::try_from(it / host_memory::OF_A_RUN.0).ok())
        .unwrap_or(cores);
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
    world_size: Option<u32>,
    #[serde(default)]
    undecided: Option<Undecided>,
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

/// What each run has in common.
struct Each<'a> {
    args: &'a LayoutsArgs,
    is_launched: bool,
    gpu: &'a str,
    processes: &'a Processes,
    /// The signals that a process has blocked: those that plimsoll had when it began.
    mask: SigSet,
}

impl Each<'_> {
    /// Runs one layout; none if somebody asked us to stop before it had an answer.
    fn attempt(&self, layout: Layout, asks: Asks) -> anyhow::Result<Option<Tried>> {
        let Each { args, is_launched, gpu, processes, mask } = *self;
        let mut words: Vec<OsString> = ["predict", "--gpu", gpu].map(OsString::from).to_vec();
        // A launcher that is not told how many processes to start asks how many GPUs there are.
        let of_job = if is_launched {
            ("--gpus", args.gpus.min(candidates::OF_A_MACHINE))
        } else {
            ("--world-size", args.gpus)
        };
        if 1 < args.gpus {
            words.extend([of_job.0.into(), of_job.1.to_string().into()]);
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
        words.extend((asks == Asks::Verdict).then(|| "--verdict".into()));
        let command = candidates::command_of(&args.command, &layout, args.gpus);
        for of in [&mut words, &mut shown] {
            of.push("--".into());
            of.extend(command.iter().cloned());
        }
        let own = env::current_exe().context("cannot find plimsoll itself")?.into_os_string();
        let runner = args.runner.iter().flat_map(|it| it.split_whitespace()).map(OsString::from);
        let mut all = runner.chain([own]).chain(words);
        let mut process = Command::new(all.next().unwrap_or_default());
        process.args(all);
        let ran = processes.run(process, mask).with_context(|| match &args.runner {
            Some(it) => format!("cannot run --runner {it}"),
            None => "cannot run plimsoll predict".to_owned(),
        })?;
        let Some(ran) = ran else { return Ok(None) };
        let mut documents = serde_json::Deserializer::from_slice(&ran.stdout).into_iter::<Report>();
        let said = String::from_utf8_lossy(&ran.stderr);
        let answer = match documents.next() {
            Some(Ok(report)) => {
                let rest = ran.stdout.get(documents.byte_offset()..).unwrap_or_default();
                let request = request.map(|_| String::from_utf8_lossy(rest).trim().to_owned());
                match report.world_size.filter(|it| is_launched && *it != args.gpus) {
                    Some(n) => Answer::CannotWork(format!(
                        "the command starts {n} processes, and the job has {} GPUs: torchrun --nnodes {{nodes}} --nproc-per-node {{gpus_per_node}}, accelerate launch --num_processes {{gpus}}",
                        args.gpus
                    )),
                    None => answer_of(report, request.filter(|it| !it.is_empty()), &said),
                }
            }
            _ => Answer::CannotWork(last_words(&said)),
        };
        Ok(Some(Tried { layout, command: shell::shown(&shown), answer }))
    }
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
    let (verdict, needs) = match Verdict::of_word(&report.verdict) {
        Some(Verdict::CouldNotTell) | None => {
            let note = report.notes.first().map_or("no reason is known", |it| &it.text);
            // A script that ends with a code, as argparse does, has said why in its last line.
            let last = lines_backwards(words).find(|it| !it.starts_with(OURS));
            return Answer::CannotWork(match last.filter(|it| !note.contains(it)) {
                Some(last) => shortened(&format!("{}: {last}", shortened(note))),
                None => shortened(note),
            });
        }
        // It ended where memory ran out; or nobody knows how far it grows.
        Some(verdict @ (Verdict::DoesNotFit | Verdict::Grows)) => {
            (verdict, report.larger.map(|it| it.peak.device_bytes))
        }
        Some(verdict) => (verdict, Some(report.peak_device_bytes)),
    };
    let needs = needs.map(Bytes);
    let safe = report.safe_bytes.map(Bytes);
    let undecided = report.undecided;
    Answer::Ran { verdict, sizes: Sizes { needs, safe, undecided, ranks, unseen, groups, request } }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(verdict: &str) -> Answer {
        let report = serde_json::json!({
            "verdict": verdict, "peak_device_bytes": 5, "larger": { "peak": { "device_bytes": 9 } },
            "notes": [{ "code": "script-failed", "text": "the script raised ValueError; until then it used 1 GiB" }],
        });
        answer_of(serde_json::from_value(report).unwrap(), None, "")
    }

    #[test]
    fn what_a_layout_needs_is_its_peak_unless_memory_ran_out() {
        for it in Verdict::ALL {
            let needs = match it {
                Verdict::DoesNotFit | Verdict::Grows => 9,
                Verdict::CouldNotTell => {
                    let why = "the script raised ValueError".to_owned();
                    assert_eq!(answer(it.word()), Answer::CannotWork(why));
                    continue;
                }
                _ => 5,
            };
            let sizes = Sizes { needs: Some(Bytes(needs)), ..Sizes::default() };
            assert_eq!(answer(it.word()), Answer::Ran { verdict: it, sizes });
        }
    }
}
