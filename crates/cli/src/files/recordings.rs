//! The recordings in what somebody names: a snapshot has one, a recording of ours one for each process that
//! used a GPU, a folder those of its files. Names and ranks are taken from where they were found.

#[cfg(feature = "phantom")]
use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::Context as _;
use plimsoll_core::{
    failures::Failure,
    printable::printable,
    recording::Recording,
    sources::{self, ReadError, oom_text, snapshot},
};

#[cfg(feature = "phantom")]
use crate::shell;
use crate::{
    files::{
        open::{self, Opened},
        ranks,
    },
    output,
};

/// One process that used a GPU.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its file, and its process id where a file has several.
    pub(crate) name: String,
    /// Its rank, where the notes or the file's name have it.
    pub(crate) rank: Option<u32>,
    /// What it left.
    pub(crate) recording: Recording,
    /// What could not be read of it.
    pub(crate) warnings: Vec<String>,
    /// Whether that was the end of it: the file is cut off or damaged.
    pub(crate) is_damaged: bool,
}

impl Process {
    /// What could not be read of it, beside those of others.
    pub(crate) fn said(&self) -> impl Iterator<Item = String> {
        self.warnings.iter().map(|it| format!("{}: {it}", self.name))
    }
}

/// Every process of the file `path`; `-` is standard input.
pub(crate) fn of_file(path: &Path) -> anyhow::Result<Vec<Process>> {
    let opened = open::read(path)?;
    #[cfg(feature = "phantom")]
    if let Opened::File(stream) = &opened
        && let Some(why) = of_ours(path, stream.head(), "snapshots and recordings")
    {
        anyhow::bail!(why);
    }
    of_opened(path, opened)
}

fn of_opened(path: &Path, opened: Opened) -> anyhow::Result<Vec<Process>> {
    let shown = shown(path);
    let name = file_name(path);
    match opened {
        Opened::File(stream) => {
            let (trace, warnings) = snapshot::read_from(stream.reader())
                .with_context(|| format!("cannot read {shown}"))?;
            let recording = Recording { trace: Some(trace), ..Recording::default() };
            let is_damaged = warnings.iter().any(sources::Warning::is_damage);
            let warnings = warnings.iter().map(ToString::to_string).collect();
            Ok(vec![Process { rank: ranks::of_path(path), name, recording, warnings, is_damaged }])
        }
        Opened::Recording(folders) => {
            let readings: Vec<_> = folders
                .iter()
                .map(|it| sources::read_process(it.files()))
                .filter(|it| it.recording.trace.is_some())
                .collect();
            anyhow::ensure!(
                !readings.is_empty(),
                "{shown}: no process of this recording used a GPU"
            );
            let several = 1 < readings.len();
            let processes = readings.into_iter().map(|reading| {
                let begin = reading.recording.notes.begin.as_ref();
                let rank = begin.and_then(|it| it.rank);
                let pid = reading.recording.pid;
                let name = match rank {
                    Some(rank) if several => format!("{name}, rank {rank}"),
                    _ if several => format!("{name}, process {pid}"),
                    _ => name.clone(),
                };
                let rank = rank.or_else(|| ranks::of_path(path).filter(|_| !several));
                let is_damaged = reading.warnings.iter().any(sources::Warning::is_damage);
                let warnings = reading.warnings.iter().map(ToString::to_string).collect();
                Process { name, rank, recording: reading.recording, warnings, is_damaged }
            });
            Ok(processes.collect())
        }
    }
}

/// What to type instead, of a file that is neither a recording nor a log: a script, or a plan of `fit`. `reads` is what was expected.
#[cfg(feature = "phantom")]
pub(crate) fn of_ours(path: &Path, head: &[u8], reads: &str) -> Option<String> {
    let file = path.as_os_str();
    let (what, to, words) = if path.extension().is_some_and(|it| it == "py") {
        ("a script", "to predict its memory", vec!["--".as_ref(), "python".as_ref(), file])
    } else if head.starts_with(b"# Made by `plimsoll fit`") {
        let script: [&OsStr; 3] = ["--", "python", "train.py"].map(OsStr::new);
        ("a plan", "to check the plan", [&["--plan".as_ref(), file], &script[..]].concat())
    } else {
        return None;
    };
    let command = ["plimsoll", "predict"].map(OsStr::new).into_iter().chain(words);
    let command: Vec<OsString> = command.map(OsStr::to_owned).collect();
    Some(format!(
        "{} is {what}, and this command reads {reads}; {to}: {}",
        path.display(),
        shell::shown(&command)
    ))
}

/// Every process of a file or a folder, and the files of the folder that could not be read.
pub(crate) fn of_path(path: &Path) -> anyhow::Result<(Vec<Process>, Vec<String>)> {
    if !path.is_dir() {
        return Ok((of_file(path)?, Vec::new()));
    }
    let (mut processes, mut unread) = (Vec::new(), Vec::new());
    let files = ranks::files(path)?;
    let mut others = Vec::new();
    for file in &files {
        match open::read(file).and_then(|it| of_opened(file, it)) {
            Ok(found) => processes.extend(found),
            // Logs and notes lie beside recordings.
            Err(error) if is_something_else(&error) => others.push(ranks::name(file)),
            Err(error) => unread.push(printable(&format!("{error:#}")).into_owned()),
        }
    }
    anyhow::ensure!(
        !processes.is_empty() || !unread.is_empty(),
        "no file of {} is a recording; expected a file of torch.cuda.memory._dump_snapshot or `plimsoll predict --record`",
        path.display()
    );
    anyhow::ensure!(!processes.is_empty(), "{}", unread.join("; "));
    if !others.is_empty() {
        unread.push(format!("skipped, because they are not recordings: {}", others.join(", ")));
    }
    Ok((processes, unread))
}

fn is_something_else(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<ReadError>(),
        Some(ReadError::NotAPickle { .. } | ReadError::SomethingElse)
    )
}

/// Of several processes, the one of `rank`, or the one that asked its allocators most often; with a
/// sentence when there was a choice.
pub(crate) fn choose(
    processes: &[Process],
    rank: Option<u32>,
) -> anyhow::Result<(&Process, Option<String>)> {
    let n = processes.len();
    let ranks: Vec<String> = processes.iter().filter_map(|it| Some(it.rank?.to_string())).collect();
    let ranks = if ranks.is_empty() { "none that is known".to_owned() } else { ranks.join(", ") };
    if let Some(rank) = rank {
        let found = processes.iter().find(|it| it.rank == Some(rank));
        let found = found.with_context(|| format!("there is no rank {rank}; there is {ranks}"))?;
        return Ok((found, None));
    }
    let events = |process: &Process| -> usize {
        let devices = process.recording.trace.iter().flat_map(|it| &it.devices);
        devices.map(|it| it.events.len()).sum()
    };
    let most = processes.iter().reduce(|a, b| if events(a) < events(b) { b } else { a });
    let most = most.context("it has no process")?;
    let note = (1 < n).then(|| {
        format!(
            "this is {} of {n} processes, the one with the most requests (ranks: {ranks})",
            most.name
        )
    });
    Ok((most, note))
}

pub(crate) fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { output::shown(path) }
}

/// What to call a file in a sentence.
pub(crate) fn file_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { ranks::name(path) }
}

/// The failures that the messages of a recording tell of.
pub(crate) fn messages(recording: &Recording) -> Vec<Failure> {
    let texts = recording.notes.ooms.iter().flat_map(|oom| {
        let mut found = oom_text::read(&oom.message);
        for failure in &mut found {
            failure.device = failure.device.or(u32::try_from(oom.device).ok());
        }
        found
    });
    texts.collect()
}
