//! The largest value of a number in the command that fits: run and seen to fit, and the next one seen not to.

use std::{
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
    sink::Sink,
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
    let json = args.json.as_deref().map(Sink::open).transpose()?;
    let (what, most) = limit(args, &card);
    let mut settings = trials::limit_reserved(args.limit_reserved);
    settings.extend(args.worst_seq.map(WorstSequence::setting));
    let started = Instant::now();
    let mut trials = Trials::new(card, &args.assume)?;
    let mut search = Largest::new(range.lowest, range.highest, range.step, most);
    let mut runs: Vec<Run> = Vec::new();
    let mut interrupted = false;
    while let Some(value) = search.next() {
        let began = Instant::now();
        let words = template.with(name, value);
        let mut trial = trials.run(&words, &settings, Stop::Steady)?;
        if trial.fits() && trial.n_retries != 0 && trial.interrupted.is_none() {
            // On the edge each step leaves memory a little differently, and the next one may not get through.
            trial = trials.run(&words, &settings, Stop::Steps(ON_THE_EDGE))?;
        }
        if trial.interrupted.is_some() {
            interrupted = true;
            break;
        }
        let tried = tried(args, &trial);
        let seconds = began.elapsed().as_secs_f64();
        if !args.quiet {
            let _ = writeln!(
                io::stderr(),
                "plimsoll: {name}={value}: {} ({seconds:.1} s)",
                said(&tried, what)
            );
        }
        let peak = (trial.prediction.peak != Peaks::default()).then_some(trial.prediction.peak);
        let retries = trial.n_retries;
        runs.push(Run { value, tried: tried.clone(), peak, retries, seconds });
        search.tell(value, tried);
    }
    let on_edge = runs.iter().find(|it| Some(it.value) == search.found() && it.retries != 0);
    let mut with_less = None;
    if let (Some(run), false) = (on_edge, interrupted) {
        let (less, settings) = a_little_less(args, most, run.peak.unwrap_or_default(), &settings);
        let mut below = (range.lowest..=run.value)
            .rev()
            .step_by(usize::try_from(search.step()).unwrap_or(1))
            .take(DOWNWARDS);
        let mut holds = None;
        while let (None, false, Some(value)) = (holds, interrupted, below.next()) {
            let words = template.with(name, value);
            let trial = trials.run(&words, &settings, Stop::Steps(ON_THE_EDGE))?;
            interrupted = trial.interrupted.is_some();
            holds = trial.fits().then_some(value);
        }
        with_less = (!interrupted).then_some(WithLess { less, holds });
    }
    let found = FindMax {
        name: name.clone(),
        card: trials.card().name.clone(),
        what,
        limit: most,
        found: search.found(),
        highest: range.highest,
        above: search.above().map(|(value, tried)| (value, tried.clone())),
        out_of_order: search.out_of_order(),
        multiples_of: (range.step < search.step()).then_some(search.step()),
        with_less,
        interrupted,
        runs,
        seconds: started.elapsed().as_secs_f64(),
    };
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

fn tried(args: &FitArgs, trial: &Trial) -> Tried {
    if trial.fits() {
        let Peaks { reserved, device, .. } = trial.prediction.peak;
        return Tried::Fits(if args.limit_reserved.is_some() { reserved } else { device });
    }
    match &trial.failure {
        Some(why) if trial.n_ooms == 0 => Tried::Fails(why.clone()),
        _ => Tried::TooMuch,
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
