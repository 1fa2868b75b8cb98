//! `plimsoll explain`: opens what it is given, tells by its content what that is, and says what happened.

use std::{
    fs,
    io::{self, IsTerminal as _},
    mem::ManuallyDrop,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use anyhow::Context as _;
use plimsoll_core::{
    codes::ProblemCode,
    explanation::{self, Explanation, Followed, InOnePiece, Kind},
    printable::printable,
    recording::Recording,
    replay::Ahead,
    sources::{
        self, chrome_trace, oom_text, printed_text,
        snapshot::{self, Whole},
    },
    spelling,
    views::{explain_text, explain_wire, glossary, text::Styles},
};

use crate::{
    commands::lint::beside,
    exit::Exit,
    files::{
        follow_ahead,
        open::{self, Opened, Stream},
        ranks, recordings,
        requested_file::RequestedFile,
    },
    options::cli::ExplainArgs,
    output::Output,
};

/// Widths that a report is made for.
const WIDTHS: (u16, u16) = (60, 100);
/// Where the width is not known.
const USUAL: u16 = 80;
/// The parts of its report that a small terminal shows first, after the answer.
const STAYS: &[&str] = &["What to change", "Findings", "Next"];

pub(crate) fn run(args: &ExplainArgs, out: &mut Output) -> anyhow::Result<Exit> {
    told(args, out).map(|it| it.0)
}

/// The same, and the options with which `plimsoll fit` would fit what was explained, where that is known.
pub(super) fn told(args: &ExplainArgs, out: &mut Output) -> anyhow::Result<(Exit, Option<String>)> {
    let styles = out.styles();
    if args.list {
        return Ok((list(args, styles, out)?, None));
    }
    if let Some(code) = &args.code {
        let known = ProblemCode::of_word(code).with_context(|| {
            let known: Vec<&str> = ProblemCode::ALL.iter().map(|it| it.word()).collect();
            let rest = "`plimsoll explain --list` shows all of them";
            format!("there is no finding {code:?}{}", spelling::meant_or(code, &known, rest))
        })?;
        match known.page() {
            Some(page) => out.text(page)?,
            None => out.text(&format!("# {known}\n\n{}\n", known.title()))?,
        }
        return Ok((Exit::Fits, None));
    }
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let paths = paths(&args.files)?;
    let mut found: Vec<Explanation> = Vec::new();
    let mut unread = Vec::new();
    for path in &paths {
        let after = if paths.len() == 1 && !args.fix { After::End } else { After::More };
        match read(path, after) {
            Ok(mut explanations) => {
                if let Ok(written) = fs::metadata(path).and_then(|it| it.modified()) {
                    explanations.iter_mut().for_each(|it| beside::tell(&mut it.findings, written));
                }
                found.extend(ranks::named(explanations, path));
            }
            Err(error) if paths.len() == 1 => return Err(error),
            Err(error) => unread.push(printable(&format!("{error:#}")).into_owned()),
        }
    }
    if found.is_empty() {
        anyhow::bail!("{}", unread.join("; "));
    }
    let mut comparison = explanation::compare(&found);
    match &mut comparison {
        Some(comparison) => comparison.table.notes.extend(unread),
        None => found[0].notes.extend(unread),
    }
    let nothing = found.iter().all(Explanation::is_empty);
    let is_quiet = json.as_ref().is_some_and(RequestedFile::is_stdout);
    if let Some(file) = json {
        file.json(&explain_wire::explanations(&found, comparison.as_ref()), out)?;
    }
    if !is_quiet {
        let width = out.width(WIDTHS, USUAL);
        let report = explain_text::explanations(&found, comparison.as_ref(), styles, width);
        let report = report.to_string();
        let words = glossary::line_of(&report).map(|it| format!("\n{it}\n")).unwrap_or_default();
        out.report(&(report + &words), args.full, STAYS)?;
    }
    if args.open {
        super::view::open_files(&args.files, out)?;
    }
    let fit = found.iter().find_map(|it| it.next.as_ref()?.fit.clone());
    let exit = if !found.iter().all(Explanation::is_sure) {
        Exit::CouldNotTell
    } else if nothing {
        Exit::DoesNotFit
    } else {
        Exit::Fits
    };
    Ok((exit, fit))
}

/// What `plimsoll explain` would say of the recording `path`.
pub(super) fn report(path: &Path, width: usize) -> anyhow::Result<String> {
    let found = ranks::named(read(path, After::More)?, path);
    let comparison = explanation::compare(&found);
    let styles = Styles::default();
    Ok(explain_text::explanations(&found, comparison.as_ref(), styles, width).to_string())
}

fn list(args: &ExplainArgs, styles: Styles, out: &mut Output) -> anyhow::Result<Exit> {
    match args.json.as_deref().map(RequestedFile::open).transpose()? {
        Some(file) => file.json(&explain_wire::rules(), out)?,
        None => out.text(&explain_text::rules(styles).to_string())?,
    }
    Ok(Exit::Fits)
}

/// The files to read; a folder stands for those in it.
pub(super) fn paths(files: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    if files.is_empty() {
        anyhow::ensure!(
            !io::stdin().is_terminal(),
            "nothing to explain: name a snapshot, a recording or a log, or pipe one in (`plimsoll explain --help`)"
        );
        return Ok(vec![PathBuf::from("-")]);
    }
    let mut res = Vec::new();
    for path in files {
        if !path.is_dir() {
            res.push(path.clone());
            continue;
        }
        res.extend(ranks::files(path)?);
    }
    Ok(res)
}

/// A file as a sentence calls it.
fn named(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// What the process does once a file is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It shows that and ends, and the kernel takes back what the recording took, faster than we could.
    End,
    /// It goes on.
    More,
}

/// What one file says; a recording of ours has a process for each rank.
fn read(path: &Path, after: After) -> anyhow::Result<Vec<Explanation>> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { ranks::name(path) };
    let processes = match open::read(path)? {
        Opened::Recording(processes) => processes,
        Opened::File(stream) => {
            #[cfg(feature = "phantom")]
            if let Some(why) =
                recordings::of_ours(path, stream.head(), "logs, snapshots and recordings")
            {
                anyhow::bail!(why);
            }
            let it = of_stream(&name, stream, after)
                .with_context(|| format!("cannot explain {}", named(path)))?;
            let is_called_zip = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("zip"));
            if is_called_zip && it.kind == Kind::Text && it.is_empty() {
                anyhow::bail!(
                    "{} is not a zip archive, in spite of its name: it is a text, without an out-of-memory error",
                    named(path)
                );
            }
            return Ok(vec![it]);
        }
    };
    let mut readings: Vec<_> =
        processes.into_iter().map(|it| (it.pid, sources::read_process(it.files()))).collect();
    // Launchers, data loaders and compilers never touch the GPU.
    if readings.iter().any(|(_, it)| has_memory(&it.recording)) {
        readings.retain(|(_, it)| has_memory(&it.recording));
    }
    let several = 1 < readings.len();
    let mut res = Vec::new();
    for (pid, reading) in readings {
        let name = if several { format!("{name}, process {pid}") } else { name.clone() };
        let mut it = of_recording(&name, &reading.recording, None, After::More);
        heed(&mut it, &reading.warnings);
        if reading.recording.trace.is_some() || !it.is_empty() {
            res.push(it);
        }
    }
    anyhow::ensure!(!res.is_empty(), "{}: no process of this recording used a GPU", path.display());
    Ok(res)
}

/// Whether it holds or held any of a GPU, or ran out of it.
fn has_memory(recording: &Recording) -> bool {
    let devices = || recording.trace.iter().flat_map(|it| &it.devices);
    recording.ended_out_of_memory()
        || devices().any(|it| !it.events.is_empty() || !it.segments.is_empty())
}

fn heed(it: &mut Explanation, warnings: &[sources::Warning]) {
    let is_damaged = warnings.iter().any(sources::Warning::is_damage);
    it.heed(warnings.iter().map(ToString::to_string), is_damaged);
}

/// Of one device, which has an index, some may have been followed ahead.
fn of_recording(
    name: &str,
    recording: &Recording,
    ahead: Option<(usize, Ahead)>,
    after: After,
) -> Explanation {
    thread::scope(|scope| {
        let beside = |pieces: Arc<InOnePiece>| {
            scope.spawn(move || pieces.reserved());
        };
        let followed = ManuallyDrop::new(Followed::after(recording, ahead, beside));
        let res = followed.explanation(name, &recordings::messages(recording));
        if after == After::More {
            drop(ManuallyDrop::into_inner(followed));
        }
        res
    })
}

/// What it is, its content says.
fn of_stream(name: &str, stream: Stream, after: After) -> anyhow::Result<Explanation> {
    anyhow::ensure!(!stream.head().is_empty(), "it is empty");
    if chrome_trace::is_trace(stream.head()) {
        let curve = chrome_trace::read_from(stream.reader()).map_err(|why| anyhow::anyhow!(why))?;
        let mut res = explanation::of_curve(name, &curve);
        res.notes.extend(
            curve.cut_off.map(|why| format!("plimsoll did not read the trace to its end: {why}")),
        );
        return Ok(res);
    }
    if snapshot::is_snapshot(stream.head()) {
        let (Whole { trace, warnings, .. }, ahead) = follow_ahead::read(stream.reader())?;
        let recording = ManuallyDrop::new(Recording { trace: Some(trace), ..Recording::default() });
        let mut res = of_recording(name, &recording, ahead, after);
        if after == After::More {
            drop(ManuallyDrop::into_inner(recording));
        }
        heed(&mut res, &warnings);
        return Ok(res);
    }
    anyhow::ensure!(
        is_text(stream.head()),
        "it is not a snapshot, a recording or a text; expected a file of torch.cuda.memory._dump_snapshot or `plimsoll predict --record`, a log, or a profiler's Chrome trace"
    );
    let log = stream.log()?;
    let failures = oom_text::of_log(&log);
    let printed = printed_text::of_log(&log, &failures);
    let mut res = explanation::of_text(name, failures, printed);
    res.notes.extend(log.left_out());
    Ok(res)
}

/// Whether it may be a log, by how it begins. PowerShell writes UTF-16.
fn is_text(head: &[u8]) -> bool {
    let start = &head[..head.len().min(4096)];
    let n_controls = start.iter().filter(|it| matches!(it, 0..=6 | 14..=26)).count();
    n_controls * 20 <= start.len()
        || head.starts_with(&[0xff, 0xfe])
        || head.starts_with(&[0xfe, 0xff])
}
