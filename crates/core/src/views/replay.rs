//! A replay as text for a terminal: the answer first, then recorded and replayed side by side.

use std::fmt::{self, Display, Formatter};

use crate::{
    recording::is_users_code,
    replay::{Candidate, Config, RanOut, Replay, TorchVersion, WhatIf},
    trace::{Action, EventId, Frame, StackId, Trace},
    units::Bytes,
    views::style::Styles,
};

/// How many mismatches are shown with their place.
const SHOWN_MISMATCHES: usize = 5;

/// Everything that is to be shown of one replay.
#[derive(Clone, Debug)]
pub struct ReplayReport<'a> {
    /// The recording.
    pub trace: &'a Trace,
    /// Which of its devices.
    pub device: usize,
    /// Whose rules explain the recording best.
    pub torch: TorchVersion,
    /// The recording, checked.
    pub checked: &'a Replay,
    /// Whether the recorded run ended with a request that failed.
    pub ends_failing: bool,
    /// What would have happened under `config`, when that was asked.
    pub what_if: Option<WhatIf>,
    /// The text of the settings in `config`.
    pub alloc_conf: &'a str,
    /// What is asked about.
    pub config: &'a Config,
    /// Other settings, ranked.
    pub sweep: &'a [Candidate],
    /// What else to say: what could not be read.
    pub notes: &'a [String],
}

impl ReplayReport<'_> {
    /// Whether the run that is shown runs out of memory for good.
    pub fn runs_out(&self) -> bool {
        self.what_if.as_ref().map_or(self.ends_failing, |it| it.ran_out.is_some())
    }

    /// Why the recording has not all that the program would have requested, where it serves everything that it has.
    pub fn ends_early(&self) -> Option<&'static str> {
        match self.what_if {
            Some(_) if self.runs_out() => None,
            Some(_) if self.ends_failing => {
                Some("the recorded run ended with a request that failed")
            }
            _ if self.trace.cut_at.is_some() => Some("the file is cut off or damaged"),
            Some(_) if self.n_events() == 0 => {
                Some("the file has no events, only what was live in the end")
            }
            _ => None,
        }
    }

    /// How many events the device has.
    pub fn n_events(&self) -> usize {
        self.trace.devices.get(self.device).map_or(0, |it| it.events.len())
    }

    /// How many requests failed in the recording.
    pub fn recorded_ooms(&self) -> u64 {
        let actions = self.trace.devices.get(self.device).map(|it| it.events.actions());
        actions.unwrap_or_default().iter().filter(|it| **it == Action::Oom).count() as u64
    }

    /// Who asked at `event`.
    pub fn stack_of(&self, event: EventId) -> StackId {
        let events = self.trace.devices.get(self.device).map(|it| &it.events);
        events
            .filter(|it| event.index() < it.len())
            .map_or(StackId::EMPTY, |it| it.get(event.index()).stack)
    }
}

/// `report` as text.
pub fn replay(report: &ReplayReport<'_>, styles: Styles) -> impl Display {
    fmt::from_fn(move |f| write(f, report, styles))
}

fn write(f: &mut Formatter<'_>, report: &ReplayReport<'_>, styles: Styles) -> fmt::Result {
    match &report.what_if {
        None => checked(f, report, styles)?,
        Some(what_if) => verdict(f, report, what_if, styles)?,
    }
    if report.what_if.is_some() {
        writeln!(f)?;
        table(f, report)?;
    }
    if !report.sweep.is_empty() {
        writeln!(f)?;
        sweep(f, report, styles)?;
    }
    for note in report.notes {
        writeln!(f, "\n{}", styles.faint.of(format!("note: {note}")))?;
    }
    Ok(())
}

fn checked(f: &mut Formatter<'_>, report: &ReplayReport<'_>, styles: Styles) -> fmt::Result {
    let ReplayReport { checked, torch, .. } = report;
    let n = checked.checked_events;
    if let Some(why) = report.ends_early() {
        let unknown = styles.warn.of("UNKNOWN");
        writeln!(
            f,
            "{unknown} {why}: {n} events were read, and what came after them is not known"
        )?;
    } else if checked.n_mismatches == 0 {
        let good = styles.good.of("EXPLAINED");
        writeln!(f, "{good} all {n} events match the allocator of torch {torch}")?;
    } else {
        let bad = styles.bad.of("NOT EXPLAINED");
        writeln!(
            f,
            "{bad} {} of {n} events differ from the allocator of torch {torch}",
            checked.n_mismatches
        )?;
        for (event, mismatch) in checked.mismatches.iter().take(SHOWN_MISMATCHES) {
            writeln!(f, "  at event {}: {}", event.0, mismatch.sentence())?;
        }
    }
    if checked.inferred_segments != 0 {
        writeln!(
            f,
            "  if {} segments belonged to private pools, which the recording does not name",
            checked.inferred_segments
        )?;
    }
    if checked.reserved_before != Bytes::ZERO {
        writeln!(
            f,
            "  before the first event, {} were reserved, {} of them allocated",
            checked.reserved_before, checked.allocated_before
        )?;
    }
    let rows = [
        ("peak allocated", checked.peak_allocated.bytes.to_string()),
        ("peak reserved", checked.peak_reserved.bytes.to_string()),
        ("slack at that peak", checked.slack_at_peak.to_string()),
        ("reserved at the end", checked.final_reserved.to_string()),
        ("retries", checked.stats.num_alloc_retries.to_string()),
        ("failed requests", report.recorded_ooms().to_string()),
    ];
    writeln!(f)?;
    for (name, value) in rows {
        writeln!(f, "  {name:<20} {value:>12}")?;
    }
    Ok(())
}

fn verdict(
    f: &mut Formatter<'_>,
    report: &ReplayReport<'_>,
    what_if: &WhatIf,
    styles: Styles,
) -> fmt::Result {
    let ReplayReport { config, alloc_conf, checked, .. } = report;
    let place = match config.capacity {
        Some(capacity) => format!("in {capacity}"),
        None => "on a card with unlimited memory".to_owned(),
    };
    let settings = if alloc_conf.is_empty() { "torch's own settings" } else { alloc_conf };
    let under = format!("{place}, under {settings}, torch {}", config.torch);
    match (what_if.ran_out, report.ends_early()) {
        (None, None) => writeln!(f, "{} {under}", styles.good.of("FITS"))?,
        (None, Some(why)) => {
            writeln!(f, "{} {under}", styles.warn.of("UNKNOWN"))?;
            let text = format!(
                "Every recorded request is served. But {why}, and later requests are not in the recording."
            );
            writeln!(f, "  {}", styles.warn.of(text))?;
        }
        (Some(ran_out), _) => {
            writeln!(f, "{} {under}", styles.bad.of("RUNS OUT"))?;
            where_it_ran_out(f, report, ran_out)?;
        }
    }
    if 0 < checked.n_mismatches {
        let text = format!(
            "{} events of the recording differ from plimsoll's model, so the numbers are close, not exact.",
            checked.n_mismatches
        );
        writeln!(f, "  {}", styles.warn.of(text))?;
    }
    Ok(())
}

fn where_it_ran_out(
    f: &mut Formatter<'_>,
    report: &ReplayReport<'_>,
    ran_out: RanOut,
) -> fmt::Result {
    let RanOut { event, requested, allocated, reserved, largest_hole, .. } = ran_out;
    let frames: Vec<Frame> = report.trace.frames(report.stack_of(event)).collect();
    // The innermost line that is the user's own, or else the innermost of all.
    let is_own = |it: &&Frame| is_users_code(report.trace.text(it.file), it.line);
    let frame = frames.iter().find(is_own).or(frames.first());
    let who = frame.map_or_else(String::new, |frame| {
        format!(
            ", {}:{} ({})",
            report.trace.text(frame.file),
            frame.line,
            report.trace.text(frame.function)
        )
    });
    writeln!(f, "  at event {} of {}{who}", event.0, report.n_events())?;
    writeln!(
        f,
        "  requested {requested}; {allocated} allocated, {reserved} reserved; the largest free piece for it is {largest_hole}"
    )
}

fn table(f: &mut Formatter<'_>, report: &ReplayReport<'_>) -> fmt::Result {
    let (Some(what_if), checked) = (&report.what_if, report.checked) else { return Ok(()) };
    let cut = if what_if.ran_out.is_some() { " (until then)" } else { "" };
    writeln!(f, "  {:<20} {:>12} {:>12}{cut}", "", "recorded", "what if")?;
    let rows = [
        ("peak allocated", checked.peak_allocated.bytes, what_if.peak_allocated.bytes),
        ("peak reserved", checked.peak_reserved.bytes, what_if.peak_reserved.bytes),
        ("slack at that peak", checked.slack_at_peak, what_if.slack_at_peak),
        (
            "reserved at the end",
            checked.final_reserved,
            Bytes(what_if.stats.reserved_bytes.all.current),
        ),
    ];
    for (name, recorded, replayed) in rows {
        writeln!(f, "  {name:<20} {recorded:>12} {replayed:>12}")?;
    }
    let counts = [
        ("retries", checked.stats.num_alloc_retries, what_if.stats.num_alloc_retries),
        ("failed requests", report.recorded_ooms(), what_if.stats.num_ooms),
    ];
    for (name, recorded, replayed) in counts {
        writeln!(f, "  {name:<20} {recorded:>12} {replayed:>12}")?;
    }
    Ok(())
}

fn sweep(f: &mut Formatter<'_>, report: &ReplayReport<'_>, styles: Styles) -> fmt::Result {
    let heading = format!("  {:>13} {:>10} {:>7}  setting", "peak reserved", "slack", "retries");
    writeln!(f, "{}", styles.heading.of(heading))?;
    for Candidate { alloc_conf, outcome } in report.sweep {
        let setting = if alloc_conf.is_empty() { "(torch's own settings)" } else { alloc_conf };
        let end = if outcome.ran_out.is_some() { "  runs out" } else { "" };
        writeln!(
            f,
            "  {:>13} {:>10} {:>7}  {setting}{end}",
            outcome.peak_reserved.bytes, outcome.slack_at_peak, outcome.stats.num_alloc_retries
        )?;
    }
    Ok(())
}
