//! `lint --confirm`: what each mistake costs here. The script runs on the phantom as it is, with a mark at each mistake that
//! says whether it was reached; and once more for each mistake that can be taken away by itself, without it. What is less
//! then, it costs. The changed copies are put in place inside the run's private layer, and go with it.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use anyhow::{Context as _, bail};
use plimsoll_core::{
    cards::Card,
    prediction::{self, Outcome, Prediction},
    units::Bytes,
};
use plimsoll_lint::probed;

use super::{
    cost::{Cost, Saved},
    files::Linted,
};
use crate::{
    cache::Cache,
    engine::{
        diagnosis,
        launch::{self, Device, Progress, Ranks, ScriptCommand, ScriptOutput, Signals, Stop},
        phantom_run::{self, Run, Runner},
    },
    options::{
        cli::{LintArgs, Writes},
        ghost_weights::GhostWeights,
    },
    output,
};

/// So many mistakes are tried; each is a run.
const MOST: usize = 24;

struct Confirmation<'a> {
    card: Card,
    command: ScriptCommand,
    runner: Runner,
    /// Copies, and the marks of those that were reached.
    folder: tempfile::TempDir,
    linted: &'a [Linted],
    stop: Stop,
}

pub(super) fn costs(args: &LintArgs, linted: &[Linted]) -> anyhow::Result<Vec<Cost>> {
    if args.world.writes == Writes::Through {
        bail!(
            "--confirm runs changed copies of your files, in a private layer: remove --writes through"
        );
    }
    if linted.iter().all(|it| it.found.is_empty()) {
        return Ok(Vec::new());
    }
    let choice = phantom_run::choice(args.gpu.as_deref(), None, &args.command)?;
    let command = ScriptCommand::resolve(&args.command)?;
    let folder = tempfile::tempdir().context("cannot create a folder for the copies")?;
    let mut world = args.world.clone();
    world.through.push(folder.path().join("marks"));
    fs::create_dir(folder.path().join("marks")).context("cannot create a folder for the marks")?;
    let runner = Runner::new(Cache::open()?, &world)?;
    let stop = args.steps.map_or(Stop::Validation, Stop::Steps);
    let mut it = Confirmation { card: choice.card, command, runner, folder, linted, stop };
    let res = it.all();
    it.runner.say_whom_it_reached();
    res
}

impl Confirmation<'_> {
    fn all(&mut self) -> anyhow::Result<Vec<Cost>> {
        let marks = self.folder.path().join("marks");
        let copies =
            (0..).zip(self.linted).filter(|(_, it)| is_a_script(it) && !it.found.is_empty());
        let copies: Vec<(usize, String)> = copies
            .map(|(k, it): (usize, &Linted)| {
                let mark = |n: usize| {
                    let path = marks.join(format!("{k}-{n}"));
                    format!(
                        "__import__(\"os\").close(__import__(\"os\").open({:?}, 65))",
                        path.display().to_string()
                    )
                };
                (k, probed(&it.text, &it.found, mark))
            })
            .collect();
        let (base, failure) = self.run(&copies, "as it is")?;
        if base.outcome == Outcome::ScriptFailed {
            let why = failure.unwrap_or_else(|| "it failed".to_owned());
            bail!(
                "the cost of the mistakes is unknown, because the script did not run to its end: {why}"
            );
        }
        let mut res = Vec::new();
        let mut tried = 0;
        for (k, file) in self.linted.iter().enumerate() {
            for (n, it) in file.found.iter().enumerate() {
                let reached = marks.join(format!("{k}-{n}")).exists();
                let (text, bytes) = if !is_a_script(file) {
                    ("not tried: the command cannot run this file".to_owned(), None)
                } else if !reached {
                    (
                        "not reached: this run did not execute the line, so it cost nothing here"
                            .to_owned(),
                        None,
                    )
                } else if let Some(mended) = it.mended(&file.text) {
                    tried += 1;
                    if tried > MOST {
                        (format!("not tried: plimsoll tries the first {MOST} mistakes only"), None)
                    } else {
                        let what = format!("without {} in line {}", it.rule.code, it.start.line);
                        let (without, failure) = self.run(&[(k, mended)], &what)?;
                        said(&base, &without, failure)
                    }
                } else {
                    (self.by_line(&base, file, it.start.line), None)
                };
                res.push(Cost { file: k, diagnosis: n, text, bytes });
            }
        }
        Ok(res)
    }

    /// What cannot be taken away by itself: what the line holds at the peak.
    fn by_line(&self, base: &Prediction, file: &Linted, line: usize) -> String {
        let path = file.path.as_deref().and_then(|it| it.canonicalize().ok());
        let share = base.top_lines.iter().find(|entry| {
            let at = match &entry.at {
                prediction::Origin::Line(at) | prediction::Origin::BackwardOf(at) => at,
                _ => return false,
            };
            usize::try_from(at.line) == Ok(line) && path.as_deref() == Some(Path::new(&at.file))
        });
        match share {
            Some(it) => format!(
                "reached; this line holds {} at the peak. plimsoll cannot remove the mistake alone, so its cost is unknown",
                it.bytes
            ),
            None => "reached; plimsoll cannot remove the mistake alone, so its cost is unknown"
                .to_owned(),
        }
    }

    /// Runs the command with these copies in place of the files.
    fn run(
        &self,
        copies: &[(usize, String)],
        what: &str,
    ) -> anyhow::Result<(Prediction, Option<String>)> {
        let mut script = OsString::new();
        for (n, (k, text)) in copies.iter().enumerate() {
            let copy = self.folder.path().join(format!("{n}.py"));
            fs::write(&copy, text).context("cannot write a copy")?;
            let path = self.linted[*k].path.as_deref().unwrap_or(Path::new(""));
            let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            script.push("cat ");
            script.push(quoted(copy.as_os_str()));
            script.push(" > ");
            script.push(quoted(target.as_os_str()));
            script.push(" && ");
        }
        script.push("exec \"$@\"");
        let mut arguments: Vec<OsString> = vec!["-c".into(), script, "sh".into()];
        arguments.push(self.command.program.clone().into());
        arguments.extend(self.command.arguments.iter().cloned());
        let command = ScriptCommand {
            program: "/bin/sh".into(),
            arguments,
            environment: self.command.environment.clone(),
        };
        let signals = Signals::hold().context("cannot hold signals")?;
        let mut progress = output::is_seen().then(|| {
            Progress::new(format!(
                "running {} on a phantom {}, {what}",
                self.command.name(),
                self.card.name
            ))
        });
        let run = Run {
            command: &command,
            conf: &self.card.phantom_conf(1),
            stop: self.stop,
            ranks: &Ranks::new(None, None, false, None)?,
            ghost_weights: GhostWeights::default(),
            output: ScriptOutput::Nowhere,
            settings: &[],
            device: Device::Phantom,
        };
        let left = self.runner.run(
            run,
            &signals,
            progress.as_mut().map(|it| it as &mut dyn launch::Watch),
        )?;
        if left.ended.interrupted.is_some() {
            bail!("interrupted: the cost of the mistakes is unknown");
        }
        let (recordings, _) = phantom_run::read(&left.folders);
        let ended = diagnosis::without_a_late_signal(left.ended, &recordings);
        let facts = phantom_run::facts(&ended, None);
        let prediction = prediction::predict(&recordings, &self.card, facts);
        let failure = diagnosis::diagnose(&self.command, &ended, &recordings);
        Ok((prediction, failure))
    }
}

fn is_a_script(it: &Linted) -> bool {
    it.path.as_ref().is_some_and(|it| it.extension().is_some_and(|it| it == "py"))
}

/// A word for a shell.
fn quoted(word: &OsStr) -> OsString {
    let mut res = b"'".to_vec();
    for byte in word.as_bytes() {
        match byte {
            b'\'' => res.extend_from_slice(b"'\\''"),
            other => res.push(*other),
        }
    }
    res.push(b'\'');
    OsStr::from_bytes(&res).to_owned()
}

/// What each step leaves behind: the middle of what the later ones do.
fn per_step(it: &Prediction) -> Bytes {
    /// The first make gradients and the optimizer's state.
    const FIRST: usize = 3;
    let after: Vec<u64> = it
        .steps
        .iter()
        .filter(|it| !it.unfinished)
        .skip(FIRST)
        .map(|it| it.allocated_after.0)
        .collect();
    let mut left: Vec<u64> = after.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    left.sort_unstable();
    Bytes(left.get(left.len() / 2).copied().unwrap_or(0))
}

/// What a mistake costs, by two runs.
fn said(
    base: &Prediction,
    without: &Prediction,
    failure: Option<String>,
) -> (String, Option<Saved>) {
    if without.outcome == Outcome::ScriptFailed {
        let why = failure.unwrap_or_else(|| "it failed".to_owned());
        return (format!("needed here: the script fails without it ({why})"), None);
    }
    let less = |a: Bytes, b: Bytes| i128::from(a.0) - i128::from(b.0);
    let saved = Saved {
        allocated: less(base.peak.allocated, without.peak.allocated),
        reserved: less(base.peak.reserved, without.peak.reserved),
        per_step: less(per_step(base), per_step(without)),
    };
    let (a, b) = (base.peak.allocated, without.peak.allocated);
    let mut parts = Vec::new();
    if base.outcome == Outcome::OutOfMemory && without.outcome != Outcome::OutOfMemory {
        parts.push(format!("the script runs out of memory with it, and not without it (peak {b})"));
    }
    if saved.per_step > 0 {
        let after = per_step(without);
        let rest = if after == Bytes::ZERO { "nothing".to_owned() } else { after.to_string() };
        parts.push(format!(
            "costs {} more each step; without it, {rest}",
            Bytes(u64::try_from(saved.per_step).unwrap_or(0))
        ));
    }
    match u64::try_from(saved.allocated) {
        Ok(0) => {}
        Ok(more) if parts.is_empty() => parts
            .push(format!("costs {} at the peak: {a} allocated with it, {b} without", Bytes(more))),
        Ok(more) => {
            let steps = base.seen.steps;
            parts.push(format!("{} of the peak in the {steps} steps that were seen", Bytes(more)));
        }
        Err(_) => parts.push(format!("saves memory here: {a} allocated with it, {b} without")),
    }
    if saved.allocated == 0 && saved.reserved != 0 {
        let (a, b) = (base.peak.reserved, without.peak.reserved);
        parts.push(format!("changes reserved memory: {a} with it, {b} without"));
    }
    if parts.is_empty() {
        parts.push(format!("costs nothing here: peak {a} allocated, with it and without"));
    }
    (parts.join("; "), Some(saved))
}
