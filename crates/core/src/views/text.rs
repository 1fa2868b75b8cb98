//! The report as text for a terminal, for somebody who is tired: the answer first, then the numbers
//! behind it, then what to know about them.

use std::fmt::{self, Display, Formatter};

pub use crate::views::style::{Style, Styles};
use crate::{
    prediction::{
        CardFit, Carries, Category, LineShare, ModuleShare, Moment, OomPlace, Origin, Outcome,
        Peaks, Prediction, Verdict,
    },
    recording::{CodeLine, Phase},
    units::{Bytes, percent},
    views::{
        by_rank,
        wrap::{self, clipped},
    },
};

/// Steps that the curve shows; of more, the first and the last ones.
const SHOWN_STEPS: usize = 8;
/// The column where the place of a contributor begins.
const PLACE_AT: usize = 21;

/// `prediction` as text of at most `width` columns, but no less than 76.
pub fn prediction(prediction: &Prediction, styles: Styles, width: usize) -> impl Display {
    let report = Report { prediction, styles, width: width.max(76) };
    fmt::from_fn(move |f| report.write(f))
}

#[derive(Clone, Copy)]
struct Report<'a> {
    prediction: &'a Prediction,
    styles: Styles,
    width: usize,
}

impl Report<'_> {
    fn write(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        self.verdict(f)?;
        if p.peak.allocated != Bytes::ZERO && p.outcome != Outcome::ScriptFailed {
            self.peaks(f)?;
            by_rank::table(f, &p.ranks, self.styles)?;
            self.categories(f)?;
            self.lines(f)?;
            self.modules(f)?;
            self.curve(f)?;
            self.cards(f)?;
        }
        self.notes(f)
    }

    fn verdict(self, f: &mut Formatter<'_>) -> fmt::Result {
        let Report { prediction: p, styles, .. } = self;
        let card = format!("{} ({})", p.card.id, p.card.total);
        let needs = p.peak.device;
        match p.verdict() {
            Verdict::Fits => {
                let left = p.headroom().map(|it| format!(", {it} to spare")).unwrap_or_default();
                self.said(f, styles.good, "FITS", &format!("{card}: needs {needs}{left}"))?;
            }
            Verdict::OverMax => {
                let max = p.max.unwrap_or_default();
                let over = needs.saturating_sub(max);
                let text = format!(
                    "needs {needs}, {over} more than the {max} that --max allows; {card} would carry it"
                );
                self.said(f, styles.bad, "OVER THE LIMIT:", &text)?;
            }
            Verdict::DoesNotFit => {
                self.said(f, styles.bad, "DOES NOT FIT", &card)?;
                match &p.oom {
                    Some(oom) => self.ran_out(f, oom)?,
                    None => writeln!(f, "  needs {needs}")?,
                }
                return Ok(());
            }
            Verdict::CouldNotTell => {
                let why = p.notes.first().map(ToString::to_string).unwrap_or_default();
                return self.said(f, styles.bad, "COULD NOT TELL:", &why);
            }
        }
        write!(f, "give the job {} to be safe", styles.heading.of(p.safe))?;
        if p.card.total < p.safe {
            write!(f, ": {}", styles.warn.of("more than this card has, so it is close"))?;
        }
        writeln!(f)
    }

    fn ran_out(self, f: &mut Formatter<'_>, oom: &OomPlace) -> fmt::Result {
        let moment = Moment { step: oom.step, phase: oom.phase };
        write!(f, "runs out {}", When(moment))?;
        match &oom.at {
            Some(line) => {
                writeln!(f, ", at {}", self.styles.heading.of(Line(line)))?;
                if !line.text.is_empty() {
                    writeln!(f, "    {}", clipped(&line.text, self.width - 4))?;
                }
            }
            None => writeln!(f)?,
        }
        let OomPlace { requested, allocated, reserved, .. } = oom;
        writeln!(
            f,
            "asked for {requested} while {allocated} were allocated and {reserved} reserved"
        )?;
        match oom.free {
            Some(free) if *requested <= free => {
                let text = format!(
                    "the card had {free} left: the script limits itself (set_per_process_memory_fraction)"
                );
                self.wrapped(f, &text, 0, 0)
            }
            _ => Ok(()),
        }
    }

    /// A verdict and what belongs to it.
    fn said(self, f: &mut Formatter<'_>, style: Style, verdict: &str, text: &str) -> fmt::Result {
        write!(f, "{} ", style.of(verdict))?;
        self.wrapped(f, text, verdict.len() + 1, 2)
    }

    fn peaks(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        self.heading(f, "Peak")?;
        let row = |f: &mut Formatter<'_>, name: &str, pick: fn(&Peaks) -> Bytes, why: &str| {
            write!(f, "  {name:<12} {:>10}", pick(&p.peak))?;
            for peaks in [&p.first_step, &p.steady_state] {
                match peaks {
                    Some(it) => write!(f, " {:>12}", pick(it))?,
                    None => write!(f, " {:>12}", "-")?,
                }
            }
            writeln!(f, "  {}", self.styles.faint.of(why))
        };
        let head =
            format!("  {:<12} {:>10} {:>12} {:>12}", "", "whole run", "first step", "later steps");
        writeln!(f, "{}", self.styles.faint.of(head))?;
        row(f, "allocated", |it| it.allocated, "max_memory_allocated")?;
        row(f, "reserved", |it| it.reserved, "max_memory_reserved")?;
        row(f, "on the GPU", |it| it.device, "nvidia-smi")
    }

    fn categories(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        let when = p.peak_moment.map(|it| format!(" ({})", When(it))).unwrap_or_default();
        self.heading(f, &format!("What the {} are for, at the peak{when}", p.peak.device))?;
        for share in &p.categories {
            let part = share.bytes.share_of(p.peak.device);
            let blocks = match share.blocks {
                0 => String::new(),
                1 => "1 block".to_owned(),
                n => format!("{n} blocks"),
            };
            let mut line = format!(
                "  {:<16} {:>10} {:>6}  {:<20} {blocks}",
                share.category.name(),
                share.bytes,
                percent(part),
                bar(part, 20),
            );
            line.truncate(line.trim_end().len());
            writeln!(f, "{line}")?;
        }
        Ok(())
    }

    fn lines(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        if p.top_lines.is_empty() {
            return Ok(());
        }
        self.heading(f, "By line of your code")?;
        for LineShare { at, bytes, blocks, category } in &p.top_lines {
            let (place, text) = match at {
                Origin::Line(line) => (Line(line).to_string(), line.text.as_str()),
                Origin::BackwardOf(line) => {
                    (format!("{}, backward", Line(line)), line.text.as_str())
                }
                Origin::Backward => ("backward".to_owned(), ""),
                Origin::NoStack => ("no stack recorded".to_owned(), ""),
            };
            self.share(f, *bytes, &place, *category, *blocks)?;
            if !text.is_empty() {
                let text = clipped(text, self.width - PLACE_AT);
                writeln!(f, "{:PLACE_AT$}{}", "", self.styles.faint.of(text))?;
            }
        }
        Ok(())
    }

    fn modules(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        if p.top_modules.is_empty() {
            return Ok(());
        }
        self.heading(f, "By module")?;
        for ModuleShare { path, modules, bytes, blocks, category } in &p.top_modules {
            let path = match modules {
                1 => path.clone(),
                n => format!("{path} ({n} modules)"),
            };
            self.share(f, *bytes, &path, *category, *blocks)?;
        }
        Ok(())
    }

    /// One contributor: how much, from where, what for and in how many blocks.
    fn share(
        self,
        f: &mut Formatter<'_>,
        bytes: Bytes,
        place: &str,
        category: Category,
        blocks: u64,
    ) -> fmt::Result {
        let what = format!("{:<15} {:>6}", category.name(), format!("{blocks}x"));
        let room = self.width - PLACE_AT - 2 - 22;
        writeln!(
            f,
            "  {bytes:>10} {:>6}  {:<room$}  {}",
            percent(bytes.share_of(self.prediction.peak.device)),
            clipped_left(place, room),
            self.styles.faint.of(what),
        )
    }

    fn curve(self, f: &mut Formatter<'_>) -> fmt::Result {
        let steps = &self.prediction.steps;
        if steps.is_empty() {
            return Ok(());
        }
        self.heading(f, "Step by step")?;
        let head =
            format!("  {:<6} {:>10} {:>12} {:>12}", "step", "allocated", "reserved", "kept after");
        writeln!(f, "{}", self.styles.faint.of(head))?;
        let most = steps.iter().map(|it| it.allocated).max().unwrap_or_default();
        let left_out = steps.len().saturating_sub(SHOWN_STEPS);
        for (at, step) in steps.iter().enumerate() {
            let first_hidden = SHOWN_STEPS / 2;
            if 0 < left_out && at == first_hidden {
                writeln!(f, "  ... {left_out} more")?;
            }
            if (first_hidden..first_hidden + left_out).contains(&at) {
                continue;
            }
            let after = if step.unfinished {
                "ran out".to_owned()
            } else {
                step.allocated_after.to_string()
            };
            let mut line = format!(
                "  {:<6} {:>10} {:>12} {after:>12}  {}",
                step.step,
                step.allocated,
                step.reserved,
                bar(step.allocated.share_of(most), 20),
            );
            line.truncate(line.trim_end().len());
            writeln!(f, "{line}")?;
        }
        Ok(())
    }

    fn cards(self, f: &mut Formatter<'_>) -> fmt::Result {
        let cards = &self.prediction.cards;
        let groups = [
            (Carries::Yes, "fits", self.styles.good),
            (Carries::Tight, "tight", self.styles.warn),
            (Carries::No, "too small", self.styles.bad),
            (Carries::Unknown, "not known", self.styles.faint),
            (Carries::NoKernels, "no kernels", self.styles.faint),
        ];
        let says_nothing =
            |it: &CardFit| matches!(it.carries, Carries::Unknown | Carries::NoKernels);
        if cards.iter().all(says_nothing) {
            return Ok(());
        }
        self.heading(f, "Which cards carry it")?;
        for (carries, title, style) in groups {
            let ids: Vec<&str> = cards
                .iter()
                .filter(|it: &&CardFit| it.carries == carries)
                .map(|it| it.card.id.as_str())
                .collect();
            if !ids.is_empty() {
                let mut ids = ids.join(", ");
                if carries == Carries::NoKernels {
                    ids.push_str(" (in this PyTorch)");
                }
                write!(f, "  {}{:pad$}", style.of(title), "", pad = 11 - title.len())?;
                self.wrapped(f, &ids, 13, 13)?;
            }
        }
        Ok(())
    }

    fn notes(self, f: &mut Formatter<'_>) -> fmt::Result {
        let notes = &self.prediction.notes;
        // The first one was the verdict's reason.
        let told = usize::from(self.prediction.verdict() == Verdict::CouldNotTell);
        let Some(notes) = notes.get(told..).filter(|it| !it.is_empty()) else { return Ok(()) };
        self.heading(f, "Good to know")?;
        for note in notes {
            let style = if note.is_doubt() { self.styles.warn } else { self.styles.faint };
            write!(f, "  {} ", style.of(if note.is_doubt() { "!" } else { "-" }))?;
            self.wrapped(f, &note.to_string(), 4, 4)?;
        }
        Ok(())
    }

    fn heading(self, f: &mut Formatter<'_>, text: &str) -> fmt::Result {
        writeln!(f, "\n{}", self.styles.heading.of(text))
    }

    /// `text` in lines of the report's width; the first begins at column `start`.
    fn wrapped(
        self,
        f: &mut Formatter<'_>,
        text: &str,
        start: usize,
        indent: usize,
    ) -> fmt::Result {
        wrap::wrapped(f, text, self.width, start, indent)
    }
}

/// A moment in words.
struct When(Moment);

impl Display for When {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Moment { step, phase } = self.0;
        match step {
            0 => f.write_str("before training")?,
            _ => write!(f, "in step {step}")?,
        }
        match phase {
            Some(Phase::Forward) => f.write_str(", forward"),
            Some(Phase::Backward) => f.write_str(", backward"),
            Some(Phase::Optimizer) => f.write_str(", optimizer"),
            Some(Phase::ZeroGrad) => f.write_str(", zero_grad"),
            Some(Phase::Evaluation) => f.write_str(", evaluation"),
            None => Ok(()),
        }
    }
}

/// A line of code as people find it.
struct Line<'a>(&'a CodeLine);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let CodeLine { file, line, function, .. } = self.0;
        // The last two parts tell `models/net.py` from `data/net.py`.
        let mut parts = file.rsplit('/');
        let name = parts.next().unwrap_or_default();
        match parts.next() {
            Some(folder) if file.contains("/site-packages/") => {
                write!(f, "{folder}/{name}:{line}")?;
            }
            _ => write!(f, "{name}:{line}")?,
        }
        match function.as_str() {
            "" | "<module>" => Ok(()),
            _ => write!(f, " in {function}"),
        }
    }
}

/// A bar of at most `most` columns.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a bar has a handful of columns"
)]
fn bar(share: f64, most: usize) -> String {
    let columns = (share.clamp(0.0, 1.0) * most as f64).round() as usize;
    "█".repeat(columns)
}

/// `text` cut at its beginning to `room` columns: the end of a path says more.
fn clipped_left(text: &str, room: usize) -> String {
    let len = text.chars().count();
    if len <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(len + 1 - room.max(1)).collect();
    format!("…{kept}")
}
