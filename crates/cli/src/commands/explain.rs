//! `plimsoll explain`: opens what it is given, tells by its content what that is, and says what happened.

use std::{
    fs, io,
    io::{IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use plimsoll_core::{
    explanation::{self, Explanation},
    findings,
    recording::Recording,
    sources::{self, ProcessFiles, ReadError, chrome_trace, oom_text, snapshot},
    views::{explain_text, explain_wire, text::Styles},
};

use crate::{
    cache,
    cli::{Color, ExplainArgs},
    exit::Exit,
    open::{self, Opened},
    sink::Sink,
};

/// Widths that a report is made for.
const WIDTHS: (u16, u16) = (60, 100);
/// Where the width is not known.
const USUAL: u16 = 80;

pub(crate) fn run(args: &ExplainArgs, color: Color, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let styles = if color.is_on() { Styles::COLOR } else { Styles::default() };
    if args.list {
        return list(args, styles, out);
    }
    if let Some(code) = &args.code {
        let rule = findings::rule(code).with_context(|| {
            format!("there is no finding {code:?}; `plimsoll explain --list` shows all of them")
        })?;
        super::write(out, rule.page)?;
        return Ok(Exit::Fits);
    }
    let json = args.json.as_deref().map(Sink::open).transpose()?;
    let paths = paths(args)?;
    let mut found: Vec<Explanation> = Vec::new();
    let mut unread = Vec::new();
    for path in &paths {
        match read(path) {
            Ok(explanations) => found.extend(explanations),
            Err(error) if paths.len() == 1 => return Err(error),
            Err(error) => unread.push(format!("{error:#}")),
        }
    }
    if found.is_empty() {
        anyhow::bail!("{}", unread.join("; "));
    }
    found[0].notes.extend(unread);
    let comparison = explanation::compare(&found);
    let nothing = found.iter().all(Explanation::is_empty);
    let is_quiet = json.as_ref().is_some_and(Sink::is_stdout);
    if let Some(sink) = json {
        sink.write(explain_wire::explanations(&found, comparison.as_ref()).as_bytes(), out)?;
    }
    if !is_quiet {
        let width = terminal_size::terminal_size_of(io::stdout()).map_or(USUAL, |(it, _)| it.0);
        let width = usize::from(width.clamp(WIDTHS.0, WIDTHS.1));
        let report = explain_text::explanations(&found, comparison.as_ref(), styles, width);
        super::write(out, &report.to_string())?;
    }
    Ok(if !found.iter().all(Explanation::is_sure) {
        Exit::CouldNotTell
    } else if nothing {
        Exit::DoesNotFit
    } else {
        Exit::Fits
    })
}

fn list(args: &ExplainArgs, styles: Styles, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match args.json.as_deref().map(Sink::open).transpose()? {
        Some(sink) => sink.write(explain_wire::rules().as_bytes(), out)?,
        None => super::write(out, &explain_text::rules(styles).to_string())?,
    }
    Ok(Exit::Fits)
}

/// The files to read; a folder stands for those in it.
fn paths(args: &ExplainArgs) -> anyhow::Result<Vec<PathBuf>> {
    if args.files.is_empty() {
        anyhow::ensure!(
            !io::stdin().is_terminal(),
            "nothing to explain: name a snapshot, a recording or a log, or pipe one in (`plimsoll explain --help`)"
        );
        return Ok(vec![PathBuf::from("-")]);
    }
    let mut res = Vec::new();
    for path in &args.files {
        if !path.is_dir() {
            res.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).map_err(|error| {
            anyhow::anyhow!("cannot read {}: {}", path.display(), cache::reason(&error))
        })?;
        let mut files: Vec<PathBuf> =
            entries.filter_map(|it| Some(it.ok()?.path())).filter(|it| it.is_file()).collect();
        files.sort();
        anyhow::ensure!(!files.is_empty(), "{} is an empty folder", path.display());
        res.extend(files);
    }
    Ok(res)
}

/// What one file says; a recording of ours has a process for each rank.
fn read(path: &Path) -> anyhow::Result<Vec<Explanation>> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { file_name(path) };
    let processes = match open::read(path)? {
        Opened::Recording(processes) => processes,
        Opened::File(bytes) => {
            let it = of_bytes(&name, &bytes)
                .with_context(|| format!("cannot explain {}", path.display()))?;
            return Ok(vec![it]);
        }
    };
    let several = 1 < processes.iter().filter(|it| it.snapshot.is_some()).count();
    let mut res = Vec::new();
    for process in processes {
        let reading = sources::read_process(ProcessFiles {
            pid: process.pid,
            notes: &process.notes,
            snapshot: process.snapshot.as_deref(),
            phantom_log: process.phantom_log.as_deref(),
        });
        let name = if several { format!("{name}, process {}", process.pid) } else { name.clone() };
        let mut it = of_recording(&name, &reading.recording);
        heed(&mut it, &reading.warnings);
        // Launchers and data loaders never touch the GPU.
        if reading.recording.trace.is_some() || !it.is_empty() {
            res.push(it);
        }
    }
    anyhow::ensure!(!res.is_empty(), "{}: no process of this recording used a GPU", path.display());
    Ok(res)
}

fn heed(it: &mut Explanation, warnings: &[sources::Warning]) {
    let is_damaged = warnings.iter().any(sources::Warning::is_damage);
    it.heed(warnings.iter().map(ToString::to_string), is_damaged);
}

fn of_recording(name: &str, recording: &Recording) -> Explanation {
    let texts = recording.notes.ooms.iter().flat_map(|it| {
        let mut found = oom_text::read(&it.message);
        for failure in &mut found {
            failure.device = failure.device.or(u32::try_from(it.device).ok());
        }
        found
    });
    let mut res = explanation::of_recording(name, recording, &texts.collect::<Vec<_>>());
    res.rank = res.rank.or(rank_in(name));
    res
}

/// What it is, its content says.
fn of_bytes(name: &str, bytes: &[u8]) -> anyhow::Result<Explanation> {
    anyhow::ensure!(!bytes.is_empty(), "it is empty");
    if chrome_trace::is_trace(bytes) {
        let curve = chrome_trace::read(bytes).map_err(|why| anyhow::anyhow!(why))?;
        return Ok(explanation::of_curve(name, &curve));
    }
    let is_pickle = bytes.first() == Some(&0x80);
    if is_pickle || matches!(bytes.first(), Some(b'(' | b']' | b'}')) {
        match snapshot::read(bytes) {
            Ok((trace, warnings)) => {
                let recording = Recording { trace: Some(trace), ..Recording::default() };
                let mut res = of_recording(name, &recording);
                heed(&mut res, &warnings);
                return Ok(res);
            }
            Err(error @ ReadError::RunsCode { .. }) => return Err(error.into()),
            Err(error) if is_pickle => return Err(error.into()),
            Err(_) => {}
        }
    }
    let text = text(bytes)?;
    let mut res = explanation::of_text(name, oom_text::read(&text));
    res.rank = rank_in(name);
    Ok(res)
}

/// A log: UTF-8 mostly, UTF-16 where PowerShell wrote it.
fn text(bytes: &[u8]) -> anyhow::Result<String> {
    let utf16 = |pair: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..].chunks_exact(2).map(|it| pair([it[0], it[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, ..] => return Ok(utf16(u16::from_le_bytes)),
        [0xfe, 0xff, ..] => return Ok(utf16(u16::from_be_bytes)),
        _ => {}
    }
    let start = &bytes[..bytes.len().min(4096)];
    let n_controls = start.iter().filter(|it| matches!(it, 0..=6 | 14..=26)).count();
    anyhow::ensure!(
        n_controls * 20 <= start.len(),
        "it is neither a memory snapshot, nor a recording, nor a text; expected what torch.cuda.memory._dump_snapshot or `plimsoll predict --record` writes, a log, or a profiler's Chrome trace"
    );
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// `ddp.rank1.pickle`, `rank_1.log`
fn rank_in(name: &str) -> Option<u32> {
    let lower = name.to_ascii_lowercase();
    let at = lower.find("rank")? + 4;
    let digits = lower[at..].trim_start_matches(['_', '-', '=', '.']);
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
