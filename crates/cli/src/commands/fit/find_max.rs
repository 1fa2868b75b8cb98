//! The largest value of a number in the command that fits: run and seen to fit, and the next one seen not to.

use std::{
    ffi::OsString,
    io::{self, Write},
    time::Instant,
};

use plimsoll_core::{
    cards::Card,
    plan::largest::{Largest, Tried},
    prediction::{Peaks, allowance_for_addresses},
    units::Bytes,
    views::fit::{self, FindMax, Run, WithLess},
};

use super::{Template, limit, template::Range};
use crate::{
    cli::FitArgs,
    exit::Exit,
    launch::{Setting, Stop},
    requested_file::RequestedFile,
    trials::{self, Trial, Trials},
    worst_sequence::WorstSequence,
};

/// So many steps are run of a value that gets through only because the allocator gives free memory back.
const ON_THE_EDGE: u32 = 12;
/// So many values are tried from such a one downwards for one that has room.
const DOWNWARDS: usize = 6;

pub(super) fn run(
    args: &FitArgs,
    range: &Range,
    template: &Template,
    card: Card,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let name = &range.name;
    if !template.has(name) {
        anyhow::bail!(
            "the command has no {{{name}}}; write it where the value is to stand, as in `--batch-size {{{name}}}`"
        );
    }
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let (what, most) = limit(args, &card);
    let mut settings = trials::limit_reserved(args.limit_reserved);
    settings.extend(args.worst_seq.map(WorstSequence::setting));
    let started = Instant::now();
    let trials = Trials::new(card, &args.assume)?;
    let mut finder = Finder { args, range, template, what, most, trials, interrupted: false };
    let search = Largest::new(range.lowest, range.highest, range.step, most);
    let (search, runs) = finder.largest(search, &settings, "")?;
    let on_edge = runs.iter().find(|it| Some(it.value) == search.found() && it.retries != 0);
    let with_less = match on_edge {
        Some(run) if !finder.interrupted => finder.with_less(run, search.step(), &settings)?,
        _ => None,
    };
    let mut found = FindMax {
        name: name.clone(),
        card: finder.trials.card().name.clone(),
        what,
        limit: most,
        found: search.found(),
        highest: range.highest,
        above: search.above().map(|(value, tried)| (value, tried.clone())),
        out_of_order: search.out_of_order(),
        multiples_of: (range.step < search.step()).then_some(search.step()),
        with_less,
        by_remedies: Vec::new(),
        interrupted: finder.interrupted,
        rows_interrupted: false,
        runs,
        seconds: 0.0,
    };
    // One that never ran has nothing that memory would be the matter of.
    let ran = found.runs.iter().any(|it| !matches!(it.tried, Tried::Fails(_)));
    if args.by_remedies && ran && !finder.interrupted {
        found.by_remedies = finder.by_remedies(&found, &settings)?;
        found.rows_interrupted = finder.interrupted;
    }
    found.seconds = started.elapsed().as_secs_f64();
    if let Some(sink) = json {
        let to_stdout = sink.is_stdout();
        sink.write(fit::json(&found).as_bytes(), out)?;
        if to_stdout {
            return Ok(exit(&found));
        }
    }
    if !args.quiet {
        crate::commands::write(out, &fit::text(&found))?;
    }
    Ok(exit(&found))
}

/// Runs values.
pub(super) struct Finder<'a> {
    pub(super) args: &'a FitArgs,
    pub(super) range: &'a Range,
    template: &'a Template,
    what: &'static str,
    pub(super) most: Bytes,
    pub(super) trials: Trials,
    pub(super) interrupted: bool,
}

impl Finder<'_> {
    /// The command with this value.
    pub(super) fn words(&self, value: u64) -> Vec<OsString> {
        self.template.with(&self.range.name, value)
    }

    /// Runs what `search` wants until it knows; `with`: what people are told of the settings.
    pub(super) fn largest(
        &mut self,
        mut search: Largest,
        settings: &[Setting],
        with: &str,
    ) -> anyhow::Result<(Largest, Vec<Run>)> {
        let mut runs: Vec<Run> = Vec::new();
        let mut proven: Vec<u64> = Vec::new();
        loop {
            // On the edge each step leaves memory a little differently, and the next one may not get through. Only
            // what would be the answer is run for so long.
            let on_edge = |it: &Run| search.found() == Some(it.value) && it.retries != 0;
            let again = || runs.iter().position(on_edge).filter(|_| search.next().is_none());
            let again = again().filter(|it| !proven.contains(&runs[*it].value));
            let next = again.map(|it| (runs[it].value, Stop::Steps(ON_THE_EDGE)));
            let next = next.or_else(|| Some((search.next()?, Stop::Steady)));
            let Some((value, stop)) = next else { break };
            let began = Instant::now();
            let words = self.words(value);
            let trial = self.trials.run(&words, settings, stop)?;
            if trial.interrupted.is_some() {
                self.interrupted = true;
                break;
            }
            let tried = self.tried(&trial);
            let seconds = began.elapsed().as_secs_f64();
            if !self.args.quiet {
                let (name, said) = (&self.range.name, said(&tried, self.what));
                let _ = writeln!(
                    io::stderr(),
                    "plimsoll: {with}{name}={value}: {said} ({seconds:.1} s)"
                );
            }
            let is_unbearable =
                !with.is_empty() && runs.is_empty() && matches!(tried, Tried::Fails(_));
            let peak = (trial.prediction.peak != Peaks::default()).then_some(trial.prediction.peak);
            let retries = trial.n_retries;
            let run = Run { value, tried: tried.clone(), peak, retries, seconds };
            if let Some(at) = again {
                runs[at] = Run { seconds: seconds + runs[at].seconds, ..run };
                search.correct(value, tried);
                proven.push(value);
                continue;
            }
            runs.push(run);
            search.tell(value, tried);
            if is_unbearable {
                break;
            }
        }
        Ok((search, runs))
    }

    /// Whether `run`, which got through only because memory was given back, gets through with a little less memory,
    /// and if not, which smaller value does. None if somebody asked us to stop.
    fn with_less(
        &mut self,
        run: &Run,
        step: u64,
        settings: &[Setting],
    ) -> anyhow::Result<Option<WithLess>> {
        let peak = run.peak.unwrap_or_default();
        let (less, settings) = a_little_less(self.args, self.most, peak, settings);
        let mut below = (self.range.lowest..=run.value)
            .rev()
            .step_by(usize::try_from(step).unwrap_or(1))
            .take(DOWNWARDS);
        let mut holds = None;
        while let (None, false, Some(value)) = (holds, self.interrupted, below.next()) {
            let words = self.words(value);
            let trial = self.trials.run(&words, &settings, Stop::Steps(ON_THE_EDGE))?;
            self.interrupted = trial.interrupted.is_some();
            holds = trial.fits().then_some(value);
        }
        Ok((!self.interrupted).then_some(WithLess { less, holds }))
    }

    fn tried(&self, trial: &Trial) -> Tried {
        if trial.fits() {
            let Peaks { reserved, device, .. } = trial.prediction.peak;
            return Tried::Fits(if self.args.limit_reserved.is_some() { reserved } else { device });
        }
        match &trial.failure {
            Some(why) if trial.n_ooms == 0 => Tried::Fails(why.clone()),
            _ => Tried::TooMuch,
        }
    }
}

/// How much less memory a value has to get through with to have room, and the settings for that: what can be given
/// back depends on where the driver put each segment, and no phantom knows that of every process.
fn a_little_less(
    args: &FitArgs,
    most: Bytes,
    peak: Peaks,
    settings: &[Setting],
) -> (Bytes, Vec<Setting>) {
    let limited = args.limit_reserved.is_some();
    let others = if limited { Bytes::ZERO } else { peak.device.saturating_sub(peak.reserved) };
    let most = most.saturating_sub(others);
    let less = allowance_for_addresses(most);
    let mut settings = settings.to_vec();
    settings.retain(|(name, _)| *name != trials::LIMIT_RESERVED);
    settings.extend(trials::limit_reserved(Some(most.saturating_sub(less))));
    (less, settings)
}

fn exit(found: &FindMax) -> Exit {
    let too_much = found.runs.iter().any(|it| it.tried == Tried::TooMuch);
    match found.found {
        Some(_) => Exit::Fits,
        None if too_much && !found.interrupted => Exit::DoesNotFit,
        None => Exit::CouldNotTell,
    }
}

fn said(tried: &Tried, what: &str) -> String {
    match tried {
        Tried::Fits(Bytes(0)) => "fits".to_owned(),
        Tried::Fits(peak) => format!("fits, {peak} {what}"),
        Tried::TooMuch => "runs out of memory".to_owned(),
        Tried::Fails(why) => format!("does not run: {why}"),
    }
}
