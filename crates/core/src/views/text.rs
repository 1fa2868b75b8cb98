//! The report as text for a terminal, for somebody who is tired: the answer first, then the numbers behind it, then what limits
//! them. The short form fits one screen of 24 lines in most cases; the full one has all tables and notes.

use std::{
    cmp::Reverse,
    fmt::{self, Display, Formatter},
};

pub use crate::views::style::{Style, Styles};
use crate::{
    cards::Card,
    codes::{ProblemCode, RemarkCode},
    findings::{Finding, Weight},
    prediction::{
        Category, CategoryShare, Counted, Doubt, LineShare, ModuleShare, Moment, Note, OomPlace,
        Origin, OtherEnd, Outcome, Peaks, PhasePeak, Prediction, RunPhase, RunsAhead, Serving,
        StepGrowth, ToCome, Verdict, purpose,
    },
    recording::{CodeLine, CutLoop, LoopStage, Phase, Unlimited},
    units::{Bytes, grouped, percent},
    views::{
        answer::Answer,
        by_rank,
        card_list::CardList,
        end_words::EndWords,
        explain_text,
        wrap::{self, clipped},
    },
};

/// How much of the report is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What people decide by.
    Short,
    /// All tables and notes.
    Full,
}

/// Lines of the short form, so that a terminal of 24 shows all of it between what is printed above and below.
const SCREEN: usize = 22;
/// Why addresses decide.
const ADDRESSES: &str = "the addresses differ from run to run, and of free blocks of one size PyTorch takes the one with the lowest";
/// Of them, those of the verdict and the findings, if more findings than one are to be shown.
const FIRST_LINES: usize = 10;
/// Of them, those of notes that cast doubt on the answer.
const DOUBT_LINES: usize = 5;
/// The fewest rows of categories and of lines of code that the short form shows.
const LEAST_ROWS: (usize, usize) = (4, 2);
/// The most lines of code that it shows.
const SHOWN_LINES: usize = 5;
/// The smallest part of the peak, in per cent, that a row of the short form is about.
const SHOWN_PERCENT: f64 = 1.0;
/// Steps that the curve shows; of more, the first and the last ones.
const SHOWN_STEPS: usize = 8;
/// Findings that are told in full.
const SHOWN_FINDINGS: usize = 3;
/// Findings of a script that fits, about memory that could be had back.
const SHOWN_CHANCES: usize = 2;
/// The column where the place of a contributor begins.
const PLACE_AT: usize = 21;

/// `answer` as text of at most `width` columns, but no less than 76; only the next command, which somebody copies, stands
/// in one line.
pub fn prediction(
    answer: Answer<'_>,
    extent: Extent,
    styles: Styles,
    width: usize,
) -> impl Display {
    let Answer { prediction, findings, next, any_card } = answer;
    let width = width.max(76);
    let report = Report { prediction, findings, next, any_card, extent, styles, width };
    fmt::from_fn(move |f| report.write(f))
}

#[derive(Clone, Copy)]
struct Report<'a> {
    prediction: &'a Prediction,
    findings: &'a [Finding],
    next: Option<&'a str>,
    any_card: bool,
    extent: Extent,
    styles: Styles,
    width: usize,
}

impl Report<'_> {
    fn write(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        if !self.is_full() && p.outcome != Outcome::ScriptFailed {
            return self.short(f);
        }
        self.answer(f)?;
        self.deciding_phase(f)?;
        if p.outcome != Outcome::ScriptFailed {
            self.findings(f)?;
        }
        if p.peak.allocated != Bytes::ZERO && p.outcome != Outcome::ScriptFailed {
            self.peaks(f)?;
            by_rank::table(f, &p.ranks, self.styles)?;
            let (title, rows) = self.categories(usize::MAX, 0);
            self.table(f, &title, &rows)?;
            self.table(f, "By line of your code", &self.lines())?;
            self.modules(f)?;
            self.curve(f)?;
            self.card_list().all(f)?;
        }
        self.notes(f)
    }

    /// The verdict, what may decide otherwise, and what to run next.
    fn answer(self, f: &mut Formatter<'_>) -> fmt::Result {
        self.verdict(f)?;
        self.next(f)?;
        self.with_more(f)?;
        self.decided_elsewhere(f)
    }

    /// As much as a screen shows: the answer and the finding that matters most whole, of the tables the largest rows.
    fn short(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        let text = |write: &dyn Fn(&mut Formatter<'_>) -> fmt::Result| {
            fmt::from_fn(|f| write(f)).to_string()
        };
        let lines = |text: &str| text.matches('\n').count();
        let mut first = text(&|f| self.answer(f));
        let found = self.found();
        let mut n_shown = 0;
        for finding in &found {
            let brief = Finding { evidence: Vec::new(), ..(*finding).clone() };
            let brief = text(&|f| explain_text::finding(f, &brief, self.styles, self.width));
            if 0 < n_shown && FIRST_LINES < lines(&first) + lines(&brief) {
                break;
            }
            first += &brief;
            n_shown += 1;
        }
        let has_tables = p.peak.allocated != Bytes::ZERO;
        let cards = if has_tables {
            text(&|f| self.card_list().short(f, self.any_card))
        } else {
            String::new()
        };
        let (mut doubts, facts): (Vec<&Note>, Vec<&Note>) =
            self.shown_notes().into_iter().partition(|it| has_to_be_said(it));
        // What grows decides a long run.
        doubts.sort_by_key(|it| !matches!(it, Note::GrowsSlowly { .. }));
        let note = |note: &Note| text(&|f| self.note(f, note, 0));
        let (mut told, mut n_told) = (String::new(), 0);
        for it in doubts {
            let doubt = note(it);
            if lines(&told) + lines(&doubt) <= DOUBT_LINES {
                told += &doubt;
                n_told += 1;
            }
        }
        let by_line = self.lines();
        let heads = if by_line.is_empty() { 2 } else { 4 };
        let least = heads + LEAST_ROWS.0 + LEAST_ROWS.1.min(by_line.len());
        let deciding = text(&|f| self.deciding_phase(f));
        let shown = [&first, &deciding, &cards, &told].map(|it| lines(it)).iter().sum::<usize>();
        if shown + least + 2 <= SCREEN {
            first += &deciding;
        }
        // The last line, with the blank one above it.
        let left = |rows: usize, told: &str| {
            SCREEN.saturating_sub(lines(&first) + rows + lines(&cards) + lines(told) + 2)
        };
        let (mut title, mut categories) = self.categories(usize::MAX, 0);
        let mut by_line = by_line;
        if has_tables {
            let heads = if by_line.is_empty() { 2 } else { 4 };
            let room = left(heads, &told);
            let (least_categories, least_lines) = LEAST_ROWS;
            while room < categories.len() + by_line.len() && least_lines < by_line.len() {
                by_line.pop();
            }
            let most = room.saturating_sub(by_line.len()).max(least_categories);
            (title, categories) = self.categories(most, by_line.len().saturating_sub(1));
            by_line.truncate(by_line.len() - categories.len().saturating_sub(most));
        }
        f.write_str(&first)?;
        if has_tables {
            self.table(f, &title, &categories)?;
            self.table(f, "By line of your code", &by_line)?;
        }
        let heads = if by_line.is_empty() { 2 } else { 4 };
        let rows = if has_tables { heads + categories.len() + by_line.len() } else { 0 };
        for it in facts {
            let fact = note(it);
            if lines(&fact) <= left(rows, &told) {
                told += &fact;
                n_told += 1;
            }
        }
        f.write_str(&cards)?;
        f.write_str(&told)?;
        let mut more = "--full adds modules, steps, all cards".to_owned();
        let hidden = [
            (found.len() - n_shown, "finding"),
            (self.all_notes().len().saturating_sub(n_told), "note"),
        ];
        for (n, what) in hidden.into_iter().filter(|it| 0 < it.0) {
            more += &format!(", {n} more {what}{}", if n == 1 { "" } else { "s" });
        }
        if p.seen.covers().is_some() && !first.contains("--until-exit") {
            more += "; --until-exit runs all of it";
        }
        writeln!(f, "\n{}", self.styles.faint.of(more))
    }

    fn table(self, f: &mut Formatter<'_>, title: &str, rows: &[String]) -> fmt::Result {
        if rows.is_empty() {
            return Ok(());
        }
        self.heading(f, title)?;
        rows.iter().try_for_each(|it| f.write_str(it))
    }

    /// What its steps are; an engine has forward passes only, even before the first.
    fn counted(self) -> Counted {
        let p = self.prediction;
        if p.serving.is_some() { Counted::ForwardPasses } else { p.seen.counted }
    }

    fn card_list(&self) -> CardList<'_> {
        CardList { prediction: self.prediction, styles: self.styles, width: self.width }
    }

    fn is_full(self) -> bool {
        self.extent == Extent::Full
    }

    /// Whether a row about so much of the peak is shown.
    fn shows(self, bytes: Bytes) -> bool {
        self.is_full() || SHOWN_PERCENT <= 100.0 * bytes.share_of(self.prediction.shown)
    }

    fn verdict(self, f: &mut Formatter<'_>) -> fmt::Result {
        let Report { prediction: p, styles, .. } = self;
        let (card, needs) = (self.card(), p.needs());
        match p.verdict() {
            Verdict::Fits | Verdict::FitsSoFar => match &p.serving {
                Some(serving) if p.engine_starts() => {
                    let taken = serving.taken();
                    let colon = if taken.is_empty() { "" } else { ": " };
                    self.said(f, styles.warn, "FITS SO FAR", &format!("{card}{colon}{taken}"))?;
                    let text = "the serving engine was not ready when the run ended, and may still run out of memory";
                    return self.wrapped(f, text, 0, 2);
                }
                Some(serving)
                    if p.verdict() == Verdict::Fits || serving.engine.has_longer_passes() =>
                {
                    return self.starts(f, &card, serving);
                }
                _ => self.fits(f, card)?,
            },
            Verdict::Grows => return self.grows(f, &card),
            Verdict::Spills => {
                let text = format!("{card}: needs {needs}, {} more than it has free", p.spilled());
                self.said(f, styles.bad, "SPILLS", &text)?;
                let text = "it runs, many times slower: the driver puts the rest into the host's memory. Windows lends half of that at most; \
                            the driver's setting CUDA - Sysmem Fallback Policy makes it an error instead";
                return self.wrapped(f, text, 0, 2);
            }
            Verdict::OverMax => {
                let max = p.max.unwrap_or_default();
                let over = needs.saturating_sub(max);
                let text = format!(
                    "needs {needs}, {over} more than the {max} that --max allows; it fits {card}"
                );
                self.said(f, styles.bad, "OVER THE LIMIT:", &text)?;
            }
            Verdict::Depends => return self.depends(f, &card),
            Verdict::DoesNotFit => return self.does_not_fit(f, &card),
            Verdict::CouldNotTell => {
                let why = p.notes.first().map(ToString::to_string).unwrap_or_default();
                return self.said(f, styles.bad, "COULD NOT TELL:", &why);
            }
        }
        if p.seen.counted == Counted::ForwardPasses {
            let times = p.seen.counted.times(p.seen.steps);
            writeln!(f, "counted {times}, because the script has no optimizer")?;
        }
        self.request(f)
    }

    /// The card, with its memory, and what others hold of it.
    fn card(self) -> String {
        let card = &self.prediction.card;
        let in_use = match card.beside {
            Bytes::ZERO => String::new(),
            beside if card.lent != Bytes::ZERO => {
                format!(", {beside} in use by Windows and other programs")
            }
            beside => format!(", {beside} in use by other programs"),
        };
        format!("{} ({}{in_use})", card.id, card.total)
    }

    /// What the verdict covers, as ` for the 20 batches seen of 33`.
    fn of_what(self) -> String {
        self.prediction.seen.covers().map_or_else(String::new, |it| format!(" for {}", it.words()))
    }

    /// A serving engine that is ready.
    fn starts(self, f: &mut Formatter<'_>, card: &str, serving: &Serving) -> fmt::Result {
        let text = format!("{card}: {}", serving.taken());
        match self.prediction.verdict() {
            Verdict::Fits => self.said(f, self.styles.good, "FITS", &text)?,
            _ => self.said(f, self.styles.warn, "FITS SO FAR", &text)?,
        }
        serving.lines().iter().try_for_each(|line| self.wrapped(f, line, 0, 2))?;
        let p = self.prediction;
        let Some(safe) = p.safe().filter(|safe| p.card.usable() < *safe) else { return Ok(()) };
        let text = format!(
            "TIGHT: {safe} to be safe, for what only a real GPU shows, is more than this card has free"
        );
        writeln!(f, "{}", self.styles.warn.of(&text))
    }

    fn fits(self, f: &mut Formatter<'_>, card: String) -> fmt::Result {
        let Report { prediction: p, styles, .. } = self;
        let (needs, of_what) = (p.needs(), self.of_what());
        let all = p.at_other_values().filter(|it| needs < it.1);
        let left = p.headroom().map(|it| format!(", {it} to spare")).unwrap_or_default();
        let needs = all.map_or_else(
            || needs.to_string(),
            |(end, all)| format!("{needs} to {all}, depending on {}", EndWords::of(end).depends_on),
        );
        let (which, left) =
            if self.any_card { (self.card_list().fitting(), String::new()) } else { (card, left) };
        let text = match self.smallest() {
            Some((card, peak)) => {
                let had_less = peak.allocated.0 < p.peak.allocated.0 / 50 * 49;
                let differ =
                    if had_less { ". Batches differ: that run had smaller ones" } else { "" };
                format!(
                    "{which}{of_what}: needs {} on {}, as a run there shows, because PyTorch frees its cache; {needs} with all of its cache{differ}",
                    peak.device, card.id,
                )
            }
            None => format!("{which}{of_what}: needs {needs}{left}"),
        };
        match p.to_come() {
            Some(it) => {
                self.said(f, styles.warn, "FITS SO FAR", &text)?;
                self.wrapped(f, &to_come(&it), 0, 2)
            }
            None if p.verdict() == Verdict::FitsSoFar => {
                self.said(f, styles.warn, "FITS SO FAR", &text)
            }
            None => {
                self.said(f, styles.good, "FITS", &text)?;
                self.not_seen(f)
            }
        }
    }

    fn depends(self, f: &mut Formatter<'_>, card: &str) -> fmt::Result {
        let Report { prediction: p, styles, .. } = self;
        let (needs, of_what) = (p.needs(), self.of_what());
        let which = if self.any_card { &p.card.id } else { card };
        if let Some(oom) = p.oom.as_ref().filter(|_| p.outcome == Outcome::OutOfMemory) {
            let at = oom.at.as_ref().map(|it| format!(" at {it}")).unwrap_or_default();
            let (what, say) = match p.doubt {
                Some(Doubt::FitsBetween) => (
                    "if each block comes free sooner or later than it did in these runs",
                    EndWords::of(OtherEnd::Late).say,
                ),
                _ => ("if the driver places PyTorch's segments at other addresses", ADDRESSES),
            };
            let text = format!(
                "{which}{of_what}: runs out{at}, because what is free lies in pieces ({}); {what}, it may fit",
                oom.sizes()
            );
            self.said(f, styles.warn, "IT DEPENDS", &text)?;
            return self.wrapped(f, say, 0, 2);
        }
        let Some(end) = p.undecided() else {
            let text = format!(
                "{which}{of_what}: fits because PyTorch gave its cache back when memory was full; if the driver places PyTorch's segments at \
                 other addresses, that is not enough"
            );
            self.said(f, styles.warn, "IT DEPENDS", &text)?;
            self.wrapped(f, ADDRESSES, 0, 2)?;
            return self.not_seen(f);
        };
        let of_end = p.others.iter().find(|it| it.0 == end);
        let all = of_end.map_or_else(
            || "more than the card has".to_owned(),
            |(_, peak)| match (peak.device + p.beside, p.max) {
                (needs, Some(max)) => format!("{needs}, more than the {max} that --max allows,"),
                (needs, None) => needs.to_string(),
            },
        );
        let EndWords { as_shown, at_most, between, say, .. } = EndWords::of(end);
        let text = if p.doubt == Some(Doubt::RunsOutEarly) {
            format!("{which}{of_what}: needs more than there is {as_shown}, {needs} {at_most}")
        } else if p.doubt == Some(Doubt::GaveCacheBack) {
            format!(
                "{which}{of_what}: fits {as_shown}, and {at_most}, because PyTorch gave its cache back when memory was full; \
                 {between}, PyTorch may find other holes, for which that is not enough"
            )
        } else {
            let needs = if end == OtherEnd::Late { p.needs_early() } else { needs };
            let between = match p.doubt {
                Some(_) => format!(", and more than there is {between}"),
                None => String::new(),
            };
            format!("{which}{of_what}: needs {needs} {as_shown}, {all} {at_most}{between}")
        };
        self.said(f, styles.warn, "IT DEPENDS", &text)?;
        self.wrapped(f, say, 0, 2)?;
        self.not_seen(f)
    }

    fn does_not_fit(self, f: &mut Formatter<'_>, card: &str) -> fmt::Result {
        let Report { prediction: p, styles, .. } = self;
        let refused = p.serving.as_ref().and_then(|it| Some((it, it.engine.refused.as_ref()?)));
        if let Some((serving, refusal)) = refused {
            self.said(f, styles.bad, "DOES NOT FIT", &format!("{card}: {}", refusal.why))?;
            for remedy in &refusal.remedies {
                self.wrapped(f, remedy, 0, 2)?;
            }
            self.wrapped(f, &serving.taken(), 0, 2)?;
            for line in serving.elsewhere_and_other_shares() {
                self.wrapped(f, &line, 0, 2)?;
            }
            return Ok(());
        }
        if let (Some(serving), Some(oom)) = (&p.serving, &p.oom) {
            let text = format!("{card}: {}", serving.ran_out());
            self.said(f, styles.bad, "DOES NOT FIT", &text)?;
            return self.wrapped(f, &oom.sizes(), 0, 2);
        }
        self.said(f, styles.bad, "DOES NOT FIT", card)?;
        let needs = p.needs();
        match &p.oom {
            Some(oom) => self.ran_out(f, oom),
            None if p.lacked != Bytes::ZERO => {
                let text = format!("with {needs} taken, {}", explain_text::lacked(p.lacked));
                write!(f, "  ")?;
                self.wrapped(f, &text, 2, 2)
            }
            None => writeln!(f, "  needs {needs}"),
        }
    }

    /// The size to request to be safe, if one is.
    fn request(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        let Some(safe) = p.safe() else { return Ok(()) };
        let more = safe.saturating_sub(p.needs());
        let why = match self.smallest() {
            Some(_) => "with less, PyTorch may have to free its cache".to_owned(),
            None => match p.still_grows() {
                Some(grown) => format!(
                    "{more} more: {grown} of growth until the loop ends, the rest for what only a real GPU shows"
                ),
                None => format!("{more} more, for what only a real GPU shows"),
            },
        };
        let text = format!("{safe} to be safe{} ({why})", self.of_what());
        write!(f, "request ")?;
        if p.card.usable() < safe {
            self.wrapped(f, &format!("{text}:"), 8, 2)?;
            return writeln!(
                f,
                "  {}",
                self.styles.warn.of("TIGHT: that is more than this card has free")
            );
        }
        self.wrapped(f, &text, 8, 2)
    }

    /// The smallest card that a run showed to be enough, where nobody named a card.
    fn smallest(self) -> Option<(&'static Card, Peaks)> {
        self.prediction.smallest.as_ref().filter(|_| self.any_card)?.fits
    }

    /// What the run did not reach.
    fn not_seen(self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(missing) = self.prediction.seen.missing() else { return Ok(()) };
        let text = format!("not seen: {missing}; --until-exit runs the script to its end");
        self.wrapped(f, &text, 0, 2)
    }

    fn grows(self, f: &mut Formatter<'_>, card: &str) -> fmt::Result {
        let Some(growth) = &self.prediction.growth else { return writeln!(f, "{card}") };
        let StepGrowth { at, counted, runs_out_at, has_run_out, .. } = growth;
        // As its finding is told: at the line of who holds it.
        let line = |it: &CodeLine| (it.file.clone(), it.line);
        let made = at.as_ref().map(line);
        let is_it = |it: &&Finding| match counted {
            Counted::Turns => it.code == ProblemCode::EarlierModels,
            _ => made.is_some() && it.made_at.as_ref().map(line) == made,
        };
        let at = self.findings.iter().find(is_it).map_or(at, |it| &it.at);
        let place = at.as_ref().map_or_else(String::new, |it| format!(" at {}", Line(it)));
        let (one, step) = (counted.one(), grouped(*runs_out_at));
        let when = if *has_run_out { "ran out in" } else { "runs out near" };
        let pace = growth.pace();
        let text = format!("{pace}{place}: {when} {one} {step} of {card}");
        self.said(f, self.styles.bad, "GROWS", &text)?;
        if let Some(line) = at.as_ref().filter(|it| !it.text.is_empty()) {
            writeln!(f, "    {}", clipped(&line.text, self.width - 4))?;
        }
        let mut text = format!("seen: {}", growth.seen_in_words());
        if growth.every == 1 && !has_run_out {
            text += &self.ends_before(*runs_out_at);
        }
        if 1 < growth.every || !has_run_out {
            text += ". No size is safe";
        }
        self.wrapped(f, &text, 0, 0)?;
        match &self.prediction.oom {
            Some(oom) => self.ran_out(f, oom),
            None => Ok(()),
        }
    }

    /// Where the script's own loops end before a card runs out.
    fn ends_before(self, runs_out_at: u64) -> String {
        let seen = self.prediction.seen;
        let is_of_steps =
            self.prediction.growth.as_ref().is_some_and(|it| it.counted == seen.counted);
        match seen.steps_in_all().filter(|it| is_of_steps && *it < runs_out_at) {
            Some(all) => {
                let what = seen.counted.several();
                format!(", and the script's own loops end after {} {what}", grouped(all))
            }
            None => String::new(),
        }
    }

    /// What to type next; in one line, so that it can be copied.
    fn next(self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.next {
            Some(command) => writeln!(f, "to find what makes it fit:\n    {command}"),
            None => Ok(()),
        }
    }

    /// What a script needs that ran out.
    fn with_more(self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some((card, peak)) = self.prediction.larger else { return Ok(()) };
        // Its own CUDA context stands for that of the larger one.
        let needs = peak.device.saturating_sub(card.context) + self.prediction.card.context;
        writeln!(f, "on a larger card it would use {needs}, PyTorch's cache included")
    }

    /// What is wrong; and what could be had back: of a script that fits, only where that is much.
    fn found(&self) -> Vec<&Finding> {
        let fits = self.prediction.outcome == Outcome::Fits;
        let much = Bytes(self.prediction.needs().0 / 4);
        // Another run says how much padding takes.
        let gives_much = |it: &&Finding| {
            it.weight == Weight::Chance && (much < it.bytes || it.code == ProblemCode::Padding)
        };
        let is_problem = |it: &&Finding| it.weight == Weight::Problem;
        if fits {
            let chances = self.findings.iter().filter(gives_much).take(SHOWN_CHANCES);
            self.findings.iter().filter(is_problem).chain(chances).collect()
        } else {
            // Beside one request that is far larger, what could be had back elsewhere is no answer.
            let asked = self.prediction.oom.as_ref().map_or(Bytes::ZERO, |it| it.requested);
            let is_little = |it: &Finding| {
                it.weight == Weight::Chance
                    && it.bytes != Bytes::ZERO
                    && it.bytes < Bytes(asked.0 / 8)
            };
            // Of a run that is too large for the card all the same, its pieces are no cause.
            let larger = self.prediction.larger.map(|(_, peak)| peak.device);
            let short =
                larger.map_or(Bytes::ZERO, |it| it.saturating_sub(self.prediction.card.total));
            let is_in_vain = |it: &Finding| it.code == ProblemCode::Slack && it.bytes < short;
            self.findings.iter().filter(|it| !is_little(it) && !is_in_vain(it)).collect()
        }
    }

    fn findings(self, f: &mut Formatter<'_>) -> fmt::Result {
        let found = self.found();
        if found.is_empty() {
            return Ok(());
        }
        self.heading(f, "Findings, most important first")?;
        for it in found.iter().take(SHOWN_FINDINGS) {
            explain_text::finding(f, it, self.styles, self.width)?;
        }
        match found.len().saturating_sub(SHOWN_FINDINGS) {
            0 => Ok(()),
            n => writeln!(f, "  ... {n} more: --json, or `plimsoll explain` of a recording"),
        }
    }

    fn ran_out(self, f: &mut Formatter<'_>, oom: &OomPlace) -> fmt::Result {
        let moment = Moment { step: oom.step, phase: oom.phase };
        write!(f, "runs out {}", When(moment, self.counted()))?;
        match &oom.at {
            Some(line) => {
                writeln!(f, ", at {}", self.styles.heading.of(Line(line)))?;
                if !line.text.is_empty() {
                    writeln!(f, "    {}", clipped(&line.text, self.width - 4))?;
                }
            }
            None => writeln!(f)?,
        }
        writeln!(f, "{}", oom.sizes())?;
        match oom.free {
            Some(free) if oom.requested <= free => {
                let text = format!(
                    "{free} of the card were free: the script limits itself (set_per_process_memory_fraction)"
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

    /// A row for the whole run and one for each phase.
    fn peaks(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        self.heading(f, "Peak of each phase")?;
        let head =
            format!("  {:<17} {:>10} {:>11} {:>11}", "", "allocated", "reserved", "on the GPU");
        writeln!(f, "{}", self.styles.faint.of(head))?;
        let rows =
            p.phases.iter().map(|it| (it.phase.name_in(p.seen.counted), it.peak, it.at.as_ref()));
        for (name, peak, at) in [("whole run", p.peak, None)].into_iter().chain(rows) {
            let Peaks { allocated, reserved, device } = peak;
            let mut row = format!("  {name:<17} {allocated:>10} {reserved:>11} {device:>11}");
            if let Some(line) = at {
                let line = clipped_left(&Line(line).to_string(), self.width - 56);
                row += &format!("  {}", self.styles.faint.of(line));
            }
            writeln!(f, "{row}")?;
        }
        let text = "as torch.cuda.max_memory_allocated, max_memory_reserved, nvidia-smi";
        writeln!(f, "  {}", self.styles.faint.of(text))
    }

    /// Where another phase than a training step decides: that phase, and what the others had; of loading what makes it smaller.
    fn deciding_phase(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        let of = |phase| p.phases.iter().find(|it| Some(it.phase) == phase);
        let Some(it) = of(p.deciding_phase).filter(|_| p.outcome != Outcome::Grows) else {
            return Ok(());
        };
        // An engine's verdict says when it ran out, and what to do.
        if p.serving.is_some() && p.oom.is_some() {
            return Ok(());
        }
        let is_other = |other: &&PhasePeak| {
            it.phase != other.phase && (other.phase.is_step() || other.phase == RunPhase::Loading)
        };
        let name = |it: &PhasePeak| it.phase.name_in(p.seen.counted);
        let others: Vec<String> = (p.phases.iter().filter(is_other))
            .map(|it| format!("{} {}", name(it), it.peak.allocated))
            .collect();
        let at = it.at.as_ref().map_or_else(String::new, |at| format!(" at {}", Line(at)));
        let mut text = format!("{} needs the most: {} of tensors{at}", name(it), it.peak.allocated);
        if !others.is_empty() {
            text += &format!("; {}", others.join(", "));
        }
        // Its finding says what to do.
        let twice = |it: &Finding| it.code == ProblemCode::LoadedTwice;
        let most = p.categories.iter().max_by_key(|it| it.bytes).map(|it| it.category);
        // An engine takes its cache while it loads; data are no weights.
        let is_other = matches!(
            most,
            Some(Category::KeyValueCache | Category::Inputs | Category::Activations)
        );
        if it.phase == RunPhase::Loading && !is_other && !self.findings.iter().any(twice) {
            text += match p.oom {
                Some(_) => {
                    ". A smaller batch does not help: fewer bytes a weight (dtype=torch.bfloat16, load_in_4bit), no second copy"
                }
                None => {
                    ". Load the weights in the precision in which they are used, straight onto the GPU"
                }
            };
        }
        self.wrapped(f, &text, 0, 2)
    }

    /// The moment that is broken down, and a row for each category.
    /// The title and at most `most` rows: the largest, in the order of all, and the sum of the others. Up to `more` rows are added where
    /// that makes the others no larger than the smallest row.
    fn categories(self, most: usize, more: usize) -> (String, Vec<String>) {
        let p = self.prediction;
        let when = p.shown_moment.map(|it| When(it, self.counted()));
        let when = when.map(|when| when.to_string());
        let when = when.map(|when| format!(" ({})", when.trim_start_matches("in ")));
        let when = when.unwrap_or_default();
        let title = if p.oom.is_some() {
            format!("When it ran out{when}: {} in use", p.shown)
        } else {
            let beside = match p.beside {
                Bytes::ZERO => String::new(),
                it => format!(", and {it} in other processes"),
            };
            format!("At the peak{when}: {}{beside}", p.shown)
        };
        let mut rows = Vec::new();
        if let Some(oom) = &p.oom {
            let place = oom.at.as_ref().map_or_else(String::new, |it| Line(it).to_string());
            let row =
                format!("  {:<16} {:>10}  was requested and refused  {place}", "", oom.requested);
            rows.push(format!("{}\n", self.styles.bad.of(row.trim_end())));
        }
        let mut by_size: Vec<(usize, &CategoryShare)> = p.categories.iter().enumerate().collect();
        by_size.sort_by_key(|(_, share)| Reverse(share.bytes));
        let n_shown = by_size.iter().filter(|(_, share)| self.shows(share.bytes)).count();
        let n_free = most.saturating_sub(rows.len());
        // The sum of the others takes a row.
        let small: Bytes = by_size.iter().skip(n_shown).map(|(_, share)| share.bytes).sum();
        let n_rows = n_shown + usize::from(Bytes::ZERO < small && self.shows(small));
        let n = if n_free < n_rows { n_free.saturating_sub(1) } else { n_shown };
        let sizes: Vec<Bytes> = by_size.iter().map(|(_, share)| share.bytes).collect();
        let named = n_named(&sizes, n);
        let n = if named < n_free.saturating_add(more) { named } else { n };
        let others: Bytes = by_size.drain(n..).map(|(_, share)| share.bytes).sum();
        by_size.sort_by_key(|&(place, _)| place);
        for (_, share) in by_size {
            let part = share.bytes.share_of(p.shown);
            let blocks = match share.blocks {
                0 => String::new(),
                1 => "1 block".to_owned(),
                n => format!("{n} blocks"),
            };
            let mut line = format!(
                "  {:<16} {:>10} {:>6}  {:<20} {blocks}",
                if p.serving.is_some() && share.category == Category::Parameters {
                    "weights"
                } else {
                    share.category.name()
                },
                share.bytes,
                percent(part),
                bar(part, 20),
            );
            line.truncate(line.trim_end().len());
            rows.push(line + "\n");
        }
        if self.shows(others) && Bytes::ZERO < others {
            let part = percent(others.share_of(p.shown));
            rows.push(format!("  {:<16} {others:>10} {part:>6}\n", "others"));
        }
        (title, rows)
    }

    /// A row for each line of the user's code.
    fn lines(self) -> Vec<String> {
        let p = self.prediction;
        let most = if self.is_full() { p.top_lines.len() } else { SHOWN_LINES };
        let shown = p.top_lines.iter().filter(|share| self.shows(share.bytes)).take(most);
        let row = |share: &LineShare| fmt::from_fn(|f| self.line(f, share)).to_string();
        shown.map(row).collect()
    }

    fn line(self, f: &mut Formatter<'_>, share: &LineShare) -> fmt::Result {
        let LineShare { at, bytes, blocks, category, is_mixed } = share;
        let (place, text) = match at {
            Origin::Line(line) => (Line(line).to_string(), line.text.as_str()),
            Origin::BackwardOf(line) => (format!("{}, backward", Line(line)), line.text.as_str()),
            Origin::Backward => ("backward".to_owned(), ""),
            Origin::NoStack => ("no stack recorded".to_owned(), ""),
        };
        self.share(f, *bytes, &place, &purpose(*category, *is_mixed), *blocks)?;
        if text.is_empty() || !self.is_full() {
            return Ok(());
        }
        let text = clipped(text, self.width - PLACE_AT);
        writeln!(f, "{:PLACE_AT$}{}", "", self.styles.faint.of(text))
    }

    fn modules(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        if p.top_modules.is_empty() {
            return Ok(());
        }
        self.heading(f, "By module")?;
        for ModuleShare { path, modules, bytes, blocks, category, is_mixed } in &p.top_modules {
            let path = match modules {
                1 => path.clone(),
                n => format!("{path} ({n} modules)"),
            };
            self.share(f, *bytes, &path, &purpose(*category, *is_mixed), *blocks)?;
        }
        Ok(())
    }

    /// One contributor: how much, from where, what for and in how many blocks.
    fn share(
        self,
        f: &mut Formatter<'_>,
        bytes: Bytes,
        place: &str,
        purpose: &str,
        blocks: u64,
    ) -> fmt::Result {
        let p = self.prediction;
        let n_lines = if self.is_full() { p.top_lines.len() } else { SHOWN_LINES };
        let lines = p.top_lines.iter().take(n_lines).map(|it| it.is_mixed);
        let modules = p.top_modules.iter().filter(|_| self.is_full()).map(|it| it.is_mixed);
        // Room for "mostly ", where a row has it.
        let is_mixed = lines.chain(modules).any(|it| it);
        let wide = if is_mixed { 22 } else { 15 };
        let what = format!("{purpose:<wide$} {:>6}", format!("{blocks}x"));
        let room = self.width - PLACE_AT - 2 - (wide + 7);
        writeln!(
            f,
            "  {bytes:>10} {:>6}  {:<room$}  {}",
            percent(bytes.share_of(self.prediction.shown)),
            clipped_left(place, room),
            self.styles.faint.of(what),
        )
    }

    fn curve(self, f: &mut Formatter<'_>) -> fmt::Result {
        let steps = &self.prediction.steps;
        if steps.is_empty() {
            return Ok(());
        }
        let is_step = self.prediction.seen.counted == Counted::Steps;
        let (title, each) =
            if is_step { ("Step by step", "step") } else { ("Pass by pass", "pass") };
        self.heading(f, title)?;
        let head =
            format!("  {each:<6} {:>10} {:>12} {:>12}", "allocated", "reserved", "after step");
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

    /// What may decide otherwise is said beside the answer: what nobody computed, a sample that no batch had, that the script failed later.
    fn decided_elsewhere(self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.prediction;
        if p.verdict() == Verdict::CouldNotTell {
            return Ok(());
        }
        for note in p.notes.iter().filter(|it| stands_above(it)) {
            self.mark(f, note, 0)?;
            self.wrapped(f, &note.to_string(), 2, 2)?;
        }
        Ok(())
    }

    /// The notes that are not said beside the answer.
    fn all_notes(&self) -> Vec<&Note> {
        let notes = &self.prediction.notes;
        // The first one was the verdict's reason.
        let told = usize::from(self.prediction.verdict() == Verdict::CouldNotTell);
        let is_said = |it: &&Note| matches!(it, Note::NotSeen(_)) || stands_above(it);
        notes.iter().skip(told).filter(|it| !is_said(it)).collect()
    }

    /// Of them, those that are worth a line of the short form: the first line says already that nobody named a card.
    fn shown_notes(&self) -> Vec<&Note> {
        let is_said = |it: &&Note| self.any_card && matches!(it, Note::CardChosen(_));
        self.all_notes().into_iter().filter(|it| !is_detail(it) && !is_said(it)).collect()
    }

    fn notes(self, f: &mut Formatter<'_>) -> fmt::Result {
        let notes = self.all_notes();
        if notes.is_empty() {
            return Ok(());
        }
        self.heading(f, "Notes")?;
        notes.into_iter().try_for_each(|it| self.note(f, it, 2))
    }

    /// Whether a note casts doubt on the answer.
    fn mark(self, f: &mut Formatter<'_>, note: &Note, indent: usize) -> fmt::Result {
        let style = if note.is_doubt() { self.styles.warn } else { self.styles.faint };
        write!(f, "{:indent$}{} ", "", style.of(if note.is_doubt() { "!" } else { "-" }))
    }

    fn note(self, f: &mut Formatter<'_>, note: &Note, indent: usize) -> fmt::Result {
        self.mark(f, note, indent)?;
        let text = match note {
            Note::UnknownReads { count, .. } if !self.is_full() => format!(
                "{}: if memory depends on {}, the answer may be wrong (--full, --assume)",
                match count {
                    1 => "1 unknown value was read as zero".to_owned(),
                    n => format!("{n} unknown values were read as zero"),
                },
                if *count == 1 { "it" } else { "them" },
            ),
            _ => note.to_string(),
        };
        self.wrapped(f, &text, indent + 2, indent + 2)
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

/// Whether a note is said beside the answer.
fn stands_above(note: &Note) -> bool {
    match note {
        Note::SizesUnknown { .. } | Note::RanksUnseen { .. } => true,
        Note::Remark(remark) => {
            use RemarkCode::{
                FailedLater, LargerSample, RaisesLater, ServerReady, ServerWithoutRequests,
                WorstBatches,
            };
            matches!(
                remark.code,
                LargerSample
                    | FailedLater
                    | RaisesLater
                    | ServerReady
                    | ServerWithoutRequests
                    | WorstBatches
            )
        }
        _ => false,
    }
}

/// Whether a note casts doubt on the answer, or names whom the script really reached.
fn has_to_be_said(note: &Note) -> bool {
    note.is_doubt() || matches!(note, Note::Reached(_))
}

/// Whether a note changes no decision of most readers.
fn is_detail(note: &Note) -> bool {
    match note {
        Note::Approximated(_) => true,
        Note::Remark(remark) => remark.code == RemarkCode::SampledStacks,
        _ => false,
    }
}

/// A moment in words.
struct When(Moment, Counted);

impl Display for When {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Moment { step, phase } = self.0;
        match step {
            0 if self.1 == Counted::ForwardPasses => {
                f.write_str("before the first forward pass")?
            }
            0 => f.write_str("before training")?,
            _ => write!(f, "in {} {step}", self.1.one())?,
        }
        match phase.filter(|_| self.1 != Counted::ForwardPasses) {
            Some(Phase::Forward) => f.write_str(", forward pass"),
            Some(Phase::Backward) => f.write_str(", backward pass"),
            Some(Phase::Optimizer) => f.write_str(", optimizer step"),
            Some(Phase::ZeroGrad) => f.write_str(", zero_grad"),
            Some(Phase::Evaluation) => f.write_str(", evaluation"),
            Some(Phase::Saving) => f.write_str(", saving"),
            Some(Phase::Merging) => f.write_str(", merging"),
            None => Ok(()),
        }
    }
}

/// That something was not reached and may need more, and how to see it.
pub fn to_come(it: &ToCome) -> String {
    match it {
        ToCome::Evaluation(line) => format!(
            "the script's evaluation ({}) was not reached and may need more: give it a smaller interval, or --until-exit",
            Line(line)
        ),
        ToCome::Rest(it @ CutLoop { line, taken, of, rise, .. }) => {
            let of = of.map_or_else(String::new, |it| format!(" of {}", grouped(it)));
            let more = it.more().map_or_else(
                || "later batches may add as much".to_owned(),
                |it| format!("the rest may need {it} more"),
            );
            format!(
                "plimsoll ended the loop at {} after {}{of} batches, and memory rose by {rise} with each: {more}. --until-exit runs all",
                Line(line),
                grouped(*taken)
            )
        }
        ToCome::Turns(LoopStage { line, name, turn, turns, from: Some(from), .. }) => {
            let of = turns.map_or_else(String::new, |it| format!(" of {}", grouped(it)));
            let (turn, from) = (grouped(*turn), grouped(*from));
            format!(
                "plimsoll ended the run in turn {turn}{of} (`{name}`), and {} changes what the script does in turn {from}: that may need more. --until-exit runs all",
                Line(line)
            )
        }
        ToCome::Turns(LoopStage { line, name, turn, turns, adds_up, .. }) => {
            let of = turns.map_or_else(String::new, |it| format!(" of {}", grouped(it)));
            let why = match adds_up {
                None => format!("its steps use `{name}`: later turns may need more"),
                Some(Bytes::ZERO) => {
                    "each turn makes an optimizer: what a turn leaves may add up".to_owned()
                }
                Some(more) => {
                    format!(
                        "{more} stayed in use after the turn before: later turns may add as much"
                    )
                }
            };
            format!(
                "the loop over `{name}` ({}) was seen in turn {turn}{of} only, and {why}. --until-exit runs all",
                Line(line)
            )
        }
        ToCome::AfterLoops(line) => format!(
            "after its loops the script calls a model or trains ({}); the run did not come to that, and it may need more: give the loops fewer turns, or --until-exit",
            Line(line)
        ),
        ToCome::Ahead(RunsAhead { name, at, held: Unlimited { waits_in, entries, each } }) => {
            let held = match entries {
                0 => format!("which was empty at last; an entry takes {each}"),
                _ => format!("which held {} × {each} at last", grouped(*entries)),
            };
            format!(
                "how far the training falls behind depends on the machine: nothing limits `{name}` ({}), {held}; {}",
                Line(at),
                waits_in.limit()
            )
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

/// How many of `sizes`, the largest first, have rows: at least `n`, and so many that the sum of the others is no larger than the smallest of them.
fn n_named(sizes: &[Bytes], n: usize) -> usize {
    let is_enough = |n: &usize| {
        let others: Bytes = sizes[*n..].iter().copied().sum();
        n.checked_sub(1).is_some_and(|last| others <= sizes[last])
    };
    (n.min(sizes.len())..sizes.len()).find(is_enough).unwrap_or(sizes.len())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::{
        cards,
        prediction::{self, Inquiry, Observed, RunFacts, ScriptExit, Wanted, predict},
        recording::{Begin, DeviceStats, Notes, OomNote, Recording},
        replay,
    };

    #[test]
    fn the_others_are_no_larger_than_the_smallest_named_row() {
        let named = |sizes: &[u64], n| {
            n_named(&sizes.iter().map(|it| Bytes::mib(*it)).collect::<Vec<_>>(), n)
        };
        assert_eq!(named(&[40, 30, 20, 10], 2), 2);
        assert_eq!(named(&[40, 28, 20, 10, 2], 2), 3);
        assert_eq!(named(&[40, 20, 20, 20], 1), 3);
        assert_eq!(named(&[5, 5], 0), 1);
        assert_eq!(named(&[], 3), 0);
    }

    /// The second 20 MiB come from what is free of the first segment, or from the second segment: only one of them can be given back for the
    /// last 30 MiB then.
    const GIVES_BACK: &str = "
segment_alloc 1000M 30M
alloc 1000M 30M
segment_alloc 2000M 20M
alloc 2000M 20M
free 1000M 30M
alloc 1000M 10M
free 2000M 20M
alloc 1010M 20M
segment_free 2000M 20M
segment_alloc 3000M 30M
alloc 3000M 30M
";

    #[test]
    fn what_fits_only_where_segments_lie_in_one_order_is_in_doubt() {
        let of = |limit: u64, retries: u64, torch: &str| {
            let limit = Some(Bytes::mib(limit));
            let notes = Notes {
                begin: Some(Begin { torch: torch.to_owned(), ..Begin::default() }),
                stats: vec![DeviceStats { retries, limit, ..DeviceStats::default() }],
                ..Notes::default()
            };
            let trace = Some(replay::recording(GIVES_BACK));
            let recordings = [Recording { pid: 7, trace, notes, phantom: None }];
            let exit = ScriptExit::Code(0);
            let facts = RunFacts { exit, seconds: 1.0, max: None, waited_in_vain: false };
            let first = predict(&recordings, cards::find("h200").unwrap(), facts);
            Inquiry::new(first, Observed::default()).prediction(None)
        };
        for (limit, retries, torch) in [(60, 0, "2.11.0"), (80, 1, "2.11.0"), (60, 1, "2.12.0")] {
            assert_eq!(of(limit, retries, torch).verdict(), Verdict::Fits, "{limit} {torch}");
        }
        let prediction = of(60, 1, "2.11.0+cu130");
        assert_eq!((prediction.verdict(), prediction.safe()), (Verdict::Depends, None));
        let said = super::prediction((&prediction).into(), Extent::Short, Styles::default(), 1000);
        let said = said.to_string();
        expect!["IT DEPENDS h200 (139.80 GiB): fits because PyTorch gave its cache back when memory was full; if the driver places PyTorch's segments at other addresses, that is not enough"].assert_eq(said.lines().next().unwrap_or_default());
    }

    /// The other way round: the second 20 MiB come from the segment of that size, which lies lower, and nothing can be given back for the last 30 MiB.
    const WITHOUT_END: &str = "
segment_alloc 2000M 30M
alloc 2000M 30M
segment_alloc 1000M 20M
alloc 1000M 20M
free 2000M 30M
alloc 2000M 10M
free 1000M 20M
alloc 1000M 20M
segment_alloc 3000M 30M
alloc 3000M 30M
";

    #[test]
    fn what_runs_out_only_where_segments_lie_in_one_order_is_in_doubt_too() {
        let card = cards::find("h200").unwrap();
        let of = |text: &str, limit: Option<u64>, torch: &str, world: u32| {
            let notes = Notes {
                begin: Some(Begin {
                    torch: torch.to_owned(),
                    world_size: Some(world),
                    ..Begin::default()
                }),
                stats: vec![DeviceStats { limit: limit.map(Bytes::mib), ..DeviceStats::default() }],
                ..Notes::default()
            };
            [Recording { pid: 7, trace: Some(replay::recording(text)), notes, phantom: None }]
        };
        let (before, _) = WITHOUT_END.split_once("segment_alloc 3000M").unwrap();
        let ran_out = before.to_owned() + "oom 90G 30M\n";
        let answer = |limit: u64, torch: &str, world: u32| {
            let mut ran_out = of(&ran_out, Some(limit), torch, world);
            ran_out[0].notes.ooms =
                vec![OomNote { requested: Bytes::mib(30), ..OomNote::default() }];
            let facts = RunFacts {
                exit: ScriptExit::Code(1),
                seconds: 1.0,
                max: None,
                waited_in_vain: false,
            };
            let mut inquiry = Inquiry::new(predict(&ran_out, card, facts), Observed::default());
            assert_eq!(inquiry.wanted(), Some(Wanted::WithoutEnd));
            let whole = of(WITHOUT_END, None, torch, world);
            inquiry.may_fit(prediction::may_fit(&ran_out, &whole, None, card));
            inquiry.prediction(None)
        };
        let prediction = answer(60, "2.11.0", 2);
        assert_eq!((prediction.verdict(), prediction.safe()), (Verdict::Depends, None));
        let said = super::prediction((&prediction).into(), Extent::Short, Styles::default(), 1000);
        let said = said.to_string();
        expect!["IT DEPENDS h200 (139.80 GiB): runs out, because what is free lies in pieces (requested 30.0 MiB while 30.0 MiB were allocated and 50.0 MiB reserved); if the driver places PyTorch's segments at other addresses, it may fit"].assert_eq(said.lines().next().unwrap_or_default());
        // 60 and 70 MiB at both ends of a race, and 50 for who changes from the late one to the early one.
        let race = |limit: u64, late: Option<&[Recording]>| {
            let ran_out = of(replay::EARLY, Some(limit), "2.11.0", 2);
            prediction::may_fit(&ran_out, &of(replay::EARLY, None, "2.11.0", 2), late, card)
        };
        let late = of(replay::LATE, None, "2.11.0", 2);
        assert_eq!(race(55, Some(&late)), Some(Doubt::FitsBetween));
        assert_eq!(
            (race(55, None), race(49, Some(&late)), race(60, Some(&late))),
            (None, None, None)
        );
        for (limit, torch, world) in [(59, "2.11.0", 2), (60, "2.12.0", 2), (59, "2.11.0", 1)] {
            let verdict = answer(limit, torch, world).verdict();
            assert_eq!(verdict, Verdict::DoesNotFit, "{limit} {torch} {world}");
        }
    }
}
