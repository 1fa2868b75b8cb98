//! `plimsoll check`: memory as a test. Runs scripts on a phantom and compares what they take with what a file says they took.

mod checked;
mod compared;
mod goldens;
mod shown;

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use plimsoll_core::{
    prediction::{self, LineShare, Origin, Outcome, Prediction},
    printable::{one_line, printable},
    recording::Recording,
    views::text::Styles,
};

use self::{
    checked::Checked,
    compared::{Verdict, compared},
    goldens::{Golden, Goldens, Line, Took},
};
use crate::{
    cache::Cache,
    engine::{
        diagnosis,
        launch::{self, Device, Progress, Ranks, ScriptCommand, ScriptOutput, Signals, Stop},
        phantom_run::{self, Run, Runner},
    },
    exit::Exit,
    files::{atomic_output::AtomicOutput, bounded_file, reason::reason},
    options::{
        cli::{CheckArgs, CheckFormat},
        ghost_weights::GhostWeights,
    },
    output::{self, Output},
    shell,
};

pub(crate) fn run(args: &CheckArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let mut goldens = read(args)?;
    let outputs = args
        .output
        .iter()
        .map(|it| Ok((it, format_of(it)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for (path, _) in &outputs {
        AtomicOutput::check(path)?;
    }
    let mut names: Vec<String> = args.names.clone();
    if let Some(name) = &args.add {
        goldens::check_name(name)?;
        if goldens.scripts.contains_key(name) {
            bail!(
                "{} already has a script {name}: choose another name, or remove it from the file",
                args.goldens.display()
            );
        }
        goldens.scripts.insert(name.clone(), added(args)?);
        names = vec![name.clone()];
    }
    if let Some(name) = names.iter().find(|it| !goldens.scripts.contains_key(*it)) {
        let known: Vec<&str> = goldens.scripts.keys().map(String::as_str).collect();
        bail!("{} has no script {name}; it has {}", args.goldens.display(), known.join(", "));
    }
    if goldens.scripts.is_empty() {
        bail!(
            "{} has no script; add one: plimsoll check --add train --gpu rtx4090 -- python train.py",
            args.goldens.display()
        );
    }
    let tolerance = args.tolerance.map_or(goldens.tolerance, |it| it.0);
    let updates = args.update || args.add.is_some();
    let runner = Runner::new(Cache::open()?, &args.world)?;
    let mut checked = Vec::new();
    let mut failed = false;
    for (name, golden) in &mut goldens.scripts {
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        let measured = measured(&runner, name, golden, args.quiet)?;
        let seconds = measured.1;
        let (is, verdict) = match measured.0 {
            Err(why) => {
                failed = true;
                (None, Verdict::CouldNotTell(why))
            }
            Ok(is) => {
                let verdict = match &golden.took {
                    _ if updates => Verdict::AsItWas,
                    Some(was) => compared(was, &is, tolerance),
                    None => Verdict::CouldNotTell(format!(
                        "it was never measured; measure it: plimsoll check --update {name}"
                    )),
                };
                (Some(is), verdict)
            }
        };
        checked.push(Checked {
            name: name.clone(),
            gpu: golden.gpu.clone(),
            was: golden.took.clone(),
            is: is.clone(),
            verdict,
            seconds,
        });
        if updates && is.is_some() {
            golden.took = is;
        }
    }
    runner.say_whom_it_reached();
    if updates {
        // A script that failed keeps what it had; a new one is not put in.
        if let (Some(name), true) = (&args.add, failed) {
            goldens.scripts.remove(name);
        } else {
            AtomicOutput::open(&args.goldens, true)?.file(goldens.written().as_bytes())?;
        }
    }
    for (path, format) in outputs {
        let text = shown::shown(&checked, format, Styles::default());
        let text = if format.is_json() { output::json(&text) } else { output::text(&text) };
        AtomicOutput::open(path, true)?.file(text.as_bytes())?;
    }
    let mut text = shown::shown(&checked, args.format, out.styles());
    if updates && args.format == CheckFormat::Text {
        text = updated(&checked, args);
    }
    match args.format.is_json() {
        _ if args.quiet => errors(&checked),
        true => out.json(&text)?,
        false => out.report(&text, args.full, &[])?,
    }
    Ok(if checked.iter().any(|it| matches!(it.verdict, Verdict::CouldNotTell(_))) {
        Exit::CouldNotTell
    } else if checked.iter().any(|it| matches!(it.verdict, Verdict::Changed { .. })) {
        Exit::DoesNotFit
    } else {
        Exit::Fits
    })
}

/// Prints why scripts have no numbers, where there is no report to print it.
fn errors(checked: &[Checked]) {
    for script in checked {
        if let Verdict::CouldNotTell(why) = &script.verdict {
            output::say(&format!("{}: {why}", script.name));
        }
    }
}

fn updated(checked: &[Checked], args: &CheckArgs) -> String {
    let mut res = String::new();
    for it in checked {
        res += &match (&it.verdict, &it.is) {
            (Verdict::CouldNotTell(why), _) => {
                format!("COULD NOT TELL {}: {}\n", it.name, printable(why))
            }
            (_, Some(is)) => {
                let of = |name: &str| is.totals.get(name).copied().unwrap_or_default();
                format!(
                    "{}: {} allocated, {} reserved, on {}, written to {}\n",
                    it.name,
                    of("allocated"),
                    of("reserved"),
                    printable(&it.gpu),
                    output::shown(&args.goldens)
                )
            }
            _ => String::new(),
        };
    }
    res
}

fn read(args: &CheckArgs) -> anyhow::Result<Goldens> {
    let shown = args.goldens.display();
    match bounded_file::text(&args.goldens, bounded_file::SOURCE) {
        Ok(text) => Goldens::read(&text).with_context(|| format!("cannot read {shown}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.add.is_some() => {
            Ok(Goldens::default())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "there is no {shown} here; create it: plimsoll check --add train --gpu rtx4090 -- python train.py"
        ),
        Err(error) => bail!("cannot read {shown}: {}", reason(&error)),
    }
}

fn format_of(path: &Path) -> anyhow::Result<CheckFormat> {
    Ok(match path.extension().and_then(|it| it.to_str()) {
        Some("json") => CheckFormat::Json,
        Some("md") => CheckFormat::Markdown,
        Some("xml") => CheckFormat::Junit,
        Some("sarif") => CheckFormat::Sarif,
        Some("txt") => CheckFormat::Text,
        _ => bail!(
            "{}: expected a name that ends with .json, .md, .xml (JUnit), .sarif or .txt",
            path.display()
        ),
    })
}

fn added(args: &CheckArgs) -> anyhow::Result<Golden> {
    let command: Option<Vec<String>> =
        args.command.iter().map(|it| it.to_str().map(str::to_owned)).collect();
    let command = command
        .context("the command has a word that is not UTF-8, which a TOML file cannot store")?;
    let gpu = args.gpu.clone().with_context(|| {
        let name = args.add.as_deref().unwrap_or("train");
        let words =
            ["plimsoll", "check", "--add", name, "--gpu", "rtx4090", "--"].map(OsString::from);
        let line = [&words[..], &args.command].concat();
        format!("--add needs a card, as in: {}", shell::shown(&line))
    })?;
    Ok(Golden { command, gpu, steps: args.steps, took: None })
}

/// What a script takes, or why that is not known; and how long the run took.
fn measured(
    runner: &Runner,
    name: &str,
    golden: &Golden,
    is_quiet: bool,
) -> anyhow::Result<(Result<Took, String>, f64)> {
    let words: Vec<_> = golden.command.iter().map(Into::into).collect();
    let card = phantom_run::card(Some(&golden.gpu), None, &words)?;
    let command = match ScriptCommand::resolve(&words) {
        Ok(it) => it,
        Err(error) => return Ok((Err(format!("{error:#}")), 0.0)),
    };
    let signals = Signals::hold().context("cannot hold signals")?;
    let mut progress = (!is_quiet && output::is_seen()).then(|| {
        Progress::new(format!("{name}: running {} on a phantom {}", command.name(), card.name))
    });
    let run = Run {
        command: &command,
        conf: &card.phantom_conf(1),
        stop: golden.steps.map_or(Stop::Validation, Stop::Steps),
        ranks: &Ranks::new(None, None, false, None)?,
        ghost_weights: GhostWeights::default(),
        output: ScriptOutput::Nowhere,
        settings: &[],
        device: Device::Phantom,
    };
    let left =
        runner.run(run, &signals, progress.as_mut().map(|it| it as &mut dyn launch::Watch))?;
    if left.ended.interrupted.is_some() {
        bail!("interrupted while {name} ran; nothing was compared or written");
    }
    let (recordings, _) = phantom_run::read(&left.folders);
    let ended = diagnosis::without_a_late_signal(left.ended, &recordings);
    let facts = phantom_run::facts(&ended, None);
    let prediction = prediction::predict(&recordings, &card, facts);
    let failure = diagnosis::diagnose(&command, &ended, &recordings);
    let seconds = prediction.seconds;
    if prediction.outcome == Outcome::ScriptFailed {
        let note = prediction.failure().map(ToString::to_string);
        let why = failure.or(note).unwrap_or_else(|| "it failed".to_owned());
        return Ok((Err(why), seconds));
    }
    let mut took = took(&prediction, &recordings);
    took.card.clone_from(&card.id);
    Ok((Ok(took), seconds))
}

fn took(it: &Prediction, recordings: &[Recording]) -> Took {
    let torch = recordings.iter().find_map(|it| it.notes.begin.as_ref()).map(|it| it.torch.clone());
    let mut totals = std::collections::BTreeMap::from([
        ("allocated".to_owned(), it.peak.allocated),
        ("reserved".to_owned(), it.peak.reserved),
        ("device".to_owned(), it.peak.device),
    ]);
    totals.extend(it.safe().map(|it| ("safe".to_owned(), it)));
    let outcome = match it.outcome {
        Outcome::Fits => "fits",
        Outcome::Grows => "grows",
        Outcome::OutOfMemory => "out of memory",
        Outcome::ScriptFailed => "failed",
    };
    let here = env::current_dir().and_then(|it| it.canonicalize()).unwrap_or_default();
    let mut lines: Vec<Line> = it.lines.iter().filter_map(|it| line(it, &here)).collect();
    let shown_line = |line: &plimsoll_core::recording::CodeLine| {
        let path = Path::new(&line.file);
        let file = path.strip_prefix(&here).unwrap_or(path).display();
        format!("{file}:{} in {}", line.line, line.function)
    };
    let reserved_at = it.reserved_at.as_ref().map(shown_line);
    lines.sort_by(|a, b| {
        b.bytes.cmp(&a.bytes).then_with(|| (&a.file, a.line).cmp(&(&b.file, b.line)))
    });
    Took {
        plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
        torch: torch.unwrap_or_default(),
        card: String::new(),
        outcome: outcome.to_owned(),
        totals,
        categories: it
            .categories
            .iter()
            .map(|it| (it.category.name().to_owned(), it.bytes))
            .collect(),
        lines,
        reserved_at,
    }
}

fn line(it: &LineShare, here: &Path) -> Option<Line> {
    let (at, backward) = match &it.at {
        Origin::Line(at) => (at, false),
        Origin::BackwardOf(at) => (at, true),
        Origin::Backward | Origin::NoStack => return None,
    };
    let path = PathBuf::from(&at.file);
    let file = path.strip_prefix(here).unwrap_or(&path).display().to_string();
    let text = match at.text.is_empty() {
        false => at.text.trim().to_owned(),
        true => text_of(&path, at.line).unwrap_or_default(),
    };
    Some(Line {
        bytes: it.bytes,
        file,
        line: at.line,
        function: at.function.clone(),
        backward,
        category: it.category.name().to_owned(),
        text,
    })
}

/// What stands in a line.
fn text_of(path: &Path, line: u32) -> Option<String> {
    let text = bounded_file::text(path, bounded_file::SOURCE).ok()?;
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    // A tab is a blank of any width.
    text.lines().nth(index).map(|it| one_line(&it.trim().replace('\t', " ")).into_owned())
}
