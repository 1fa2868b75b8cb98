//! What happened, as text for a terminal: the verdict, why, what to change, and the evidence.

use std::{
    collections::BTreeSet,
    fmt::{self, Display, Formatter},
};

use crate::{
    codes::{Family, ProblemCode, StatementCode},
    explanation::{Comparison, Explanation, Kind, Next, Oom, Shape},
    failures::{self, Backend, Failure, HostMemory},
    findings::{Finding, Weight},
    printed::{Printed, Statement, limits},
    recording::{CodeLine, Phase},
    units::Bytes,
    views::{
        ranks,
        style::{Style, Styles},
        wrap::{self, clipped},
    },
};

/// What ended the program.
const OUT: &str = "OUT OF MEMORY";
/// The program went on after it.
const CAUGHT: &str = "OUT OF MEMORY, CAUGHT";
/// Errors of one log that are told in full.
const SHOWN_OOMS: usize = 3;
/// What stands for a command that is not known.
const COMMAND: &str = "python train.py ...";
/// Tables and series of one text that are told in full.
const SHOWN_PRINTS: usize = 8;

/// `explanations` as text of at most `width` columns.
pub fn explanations(
    explanations: &[Explanation],
    comparison: Option<&Comparison>,
    styles: Styles,
    width: usize,
) -> impl Display {
    fmt::from_fn(move |f| {
        let report = Report { styles, width: width.max(60) };
        if let Some(comparison) = comparison {
            report.comparison(f, explanations, comparison)?;
        }
        let several = 1 < explanations.len();
        for (n, it) in explanations.iter().enumerate() {
            if several {
                let rank = it.rank.map(|it| format!(" (rank {it})")).unwrap_or_default();
                let line = if n == 0 && comparison.is_none() { "" } else { "\n" };
                writeln!(f, "{line}{}", styles.heading.of(format!("== {}{rank}", it.name)))?;
            }
            report.one(f, it)?;
        }
        Ok(())
    })
}

/// One finding, as every report has it.
pub(super) fn finding(
    f: &mut Formatter<'_>,
    finding: &Finding,
    styles: Styles,
    width: usize,
) -> fmt::Result {
    Report { styles, width }.finding(f, finding)
}

#[derive(Clone, Copy)]
struct Report {
    styles: Styles,
    width: usize,
}

impl Report {
    fn one(self, f: &mut Formatter<'_>, it: &Explanation) -> fmt::Result {
        let styles = self.styles;
        for (n, oom) in it.ooms.iter().take(SHOWN_OOMS).enumerate() {
            if 0 < n {
                writeln!(f)?;
            }
            let told = [StatementCode::LevelsGrow, StatementCode::LevelsSteady];
            let shows_growth = oom.cause == failures::Cause::Leak
                || it.says.iter().any(|it| told.contains(&it.code));
            self.oom(f, oom, it.command.as_deref(), shows_growth)?;
        }
        if SHOWN_OOMS < it.ooms.len() {
            writeln!(f, "\n... and {} more failures", it.ooms.len() - SHOWN_OOMS)?;
        }
        let problems: Vec<&Finding> =
            it.findings.iter().filter(|it| it.weight != Weight::Fact).collect();
        let facts: Vec<&Finding> =
            it.findings.iter().filter(|it| it.weight == Weight::Fact).collect();
        if it.ooms.is_empty() {
            self.verdict(f, it)?;
        }
        if !problems.is_empty() {
            self.heading(f, "Findings, most important first")?;
            for finding in problems {
                self.finding(f, finding)?;
            }
        }
        for failure in it.others.iter().take(SHOWN_OOMS) {
            self.not_oom(f, failure)?;
        }
        if !facts.is_empty() || !it.notes.is_empty() {
            self.heading(f, "Notes")?;
        }
        for finding in facts {
            self.said(f, "  - ", &finding.title, 4)?;
            if finding.code == ProblemCode::PeakComposition {
                for line in &finding.evidence {
                    writeln!(f, "      {line}")?;
                }
            } else {
                let text = format!("{} [{}]", finding.remedy, finding.code);
                self.said(f, &format!("    {}", styles.faint.on), &text, 4)?;
                write!(f, "{}", styles.faint.off)?;
            }
        }
        for note in &it.notes {
            self.said(f, "  - ", note, 4)?;
        }
        if !it.printed.is_empty() {
            self.printed(f, it)?;
        }
        if let Some(next) = &it.next {
            self.next(f, next)?;
        }
        Ok(())
    }

    /// What a text has of memory beside errors: what it says, the numbers, what it cannot say.
    fn printed(self, f: &mut Formatter<'_>, it: &Explanation) -> fmt::Result {
        let mut says = it.says.iter();
        let title = if it.ooms.is_empty() {
            if let Some(first) = says.next() {
                let word = told_as(first.code);
                write!(f, "{} ", self.styles.warn.of(word))?;
                let text = format!("{}.{} [{}]", first.text, inferred(first), first.code);
                self.wrapped(f, &text, word.len() + 1, 2)?;
            } else {
                let kinds: BTreeSet<&str> = it.printed.iter().map(|it| it.kind.name()).collect();
                let kinds: Vec<&str> = kinds.into_iter().collect();
                writeln!(
                    f,
                    "{} no problem found in {}",
                    self.styles.good.of("READ:"),
                    kinds.join(", ")
                )?;
            }
            "The text also shows"
        } else {
            "The text also shows"
        };
        let rest: Vec<&Statement> = says.collect();
        if !rest.is_empty() {
            self.heading(f, title)?;
        }
        for it in rest {
            let text = format!("{}.{} [{}]", it.text, inferred(it), it.code);
            self.said(f, "  - ", &text, 4)?;
        }
        for one in it.printed.iter().take(SHOWN_PRINTS) {
            self.levels(f, one)?;
        }
        if SHOWN_PRINTS < it.printed.len() {
            writeln!(f, "\n... and {} more", it.printed.len() - SHOWN_PRINTS)?;
        }
        self.heading(f, "What these numbers do not show")?;
        for limit in limits(&it.printed) {
            self.said(f, "  - ", limit, 4)?;
        }
        Ok(())
    }

    /// The numbers of one table, or the last of a series.
    fn levels(self, f: &mut Formatter<'_>, it: &Printed) -> fmt::Result {
        let Some(last) = it.last() else { return Ok(()) };
        let rows = [
            ("the card has", last.total),
            ("used on it", last.used),
            ("free on it", last.free),
            ("in tensors", last.allocated),
            ("in tensors, peak", last.peak_allocated),
            ("reserved by PyTorch", last.reserved),
            ("reserved by PyTorch, peak", last.peak_reserved),
        ];
        let subject = it.subject();
        let of = if subject.is_empty() { String::new() } else { format!(", {subject}") };
        let card = it.card.as_ref().map(|it| format!(", {it}")).unwrap_or_default();
        let times = match it.levels.len() {
            0 | 1 => format!("line {}", last.line),
            n => format!("last of {n}, line {}", last.line),
        };
        self.heading(f, &format!("The numbers ({}{of}{card}; {times})", it.kind.name()))?;
        for (name, value) in rows {
            if let Some(value) = value {
                writeln!(f, "  {name:<28} {:>11}", value.to_string())?;
            }
        }
        if let Some(percent) = last.used_percent {
            writeln!(f, "  {:<28} {:>11}", "used on it", format!("{percent} %"))?;
        }
        Ok(())
    }

    fn next(self, f: &mut Formatter<'_>, it: &Next) -> fmt::Result {
        self.heading(f, "Next")?;
        // Whole, so that it can be copied.
        writeln!(f, "  {}", it.command)?;
        if let Some(then) = &it.then {
            writeln!(f, "  {then}")?;
        }
        self.said(f, "  ", &format!("It {}", it.why), 2)
    }

    fn verdict(self, f: &mut Formatter<'_>, it: &Explanation) -> fmt::Result {
        let styles = self.styles;
        let most = it.peak_allocated.zip(it.peak_reserved);
        let levels =
            most.map(|(a, b)| format!("peak {a} allocated, {b} reserved")).unwrap_or_default();
        let steps = match it.steps {
            0 => String::new(),
            1 => ", 1 step".to_owned(),
            n => format!(", {n} steps"),
        };
        match it.first_problem() {
            _ if !it.is_sure() => {
                let start = "COULD NOT TELL:";
                write!(f, "{} ", styles.warn.of(start))?;
                let why = it.unsure.as_deref().unwrap_or_default();
                self.wrapped(f, why, start.len() + 1, 2)?;
                let nothing = levels.is_empty() || it.peak_allocated == Some(Bytes::ZERO);
                let read = if nothing {
                    "plimsoll could read nothing about memory".to_owned()
                } else {
                    format!("plimsoll read: {levels}{steps}")
                };
                self.said(f, "", &read, 2)
            }
            _ if it.lacked != Bytes::ZERO => {
                write!(f, "{}: ", styles.bad.of(OUT))?;
                self.wrapped(f, &sentence(&lacked(it.lacked)), OUT.len() + 2, 2)?;
                self.said(f, "", &format!("{levels}{steps}{}", gains(&it.findings)), 2)
            }
            Some(finding) => {
                write!(f, "{} ", styles.bad.of(word(finding.code)))?;
                self.wrapped(f, &finding.title, word(finding.code).len() + 1, 2)?;
                writeln!(f, "{levels}{steps}")
            }
            None if it.caught.is_some() => {
                let start = format!("{CAUGHT}:");
                write!(f, "{} ", styles.warn.of(&start))?;
                let text = it.caught.as_ref().map(|it| sentence(&it.text())).unwrap_or_default();
                self.wrapped(f, &text, start.len() + 1, 2)?;
                self.said(f, "", &format!("{levels}{steps}{}", gains(&it.findings)), 2)
            }
            None if !it.printed.is_empty() => Ok(()),
            None if it.is_empty() && it.kind == Kind::Text => {
                writeln!(
                    f,
                    "{} no out-of-memory error in this text",
                    styles.good.of("NOTHING FOUND:")
                )
            }
            None if it.kind == Kind::Text => Ok(()),
            None => {
                let gains = gains(&it.findings);
                let start = "NO ERROR:";
                write!(f, "{} ", styles.good.of(start))?;
                self.wrapped(f, &format!("{levels}{steps}{gains}"), start.len() + 1, 2)
            }
        }
    }

    /// `shows_growth`: the text says whether memory grew.
    fn oom(
        self,
        f: &mut Formatter<'_>,
        oom: &Oom,
        command: Option<&str>,
        shows_growth: bool,
    ) -> fmt::Result {
        let styles = self.styles;
        let what = out_of_memory(oom);
        let root = &oom.root;
        let at = root.at.as_ref().map(|it| format!(" At {}.", place(it))).unwrap_or_default();
        let told = format!("{}{at} [{}]", sentence(&root.text), root.code);
        write!(f, "{}: ", styles.bad.of(what))?;
        self.wrapped(f, &told, what.len() + 2, 2)?;
        let mut rest = String::new();
        if let Some(rank) = oom.facts.rank {
            rest += &format!(" of rank {rank}");
        }
        // Most have one device, and nobody looks for it.
        if let Some(device) = oom.facts.device.filter(|it| *it != 0 && oom.line().is_some()) {
            rest += &format!(" on device {device}");
        }
        match (oom.step, oom.facts.phase) {
            // No step has begun then.
            (Some(1), Some(Phase::Evaluation)) => rest += " in an evaluation",
            (Some(step), Some(Phase::Evaluation)) => {
                rest += &format!(" in an evaluation after step {}", step - 1);
            }
            (Some(step), Some(it)) => rest += &format!(" in step {step}, {}", phase(it)),
            (Some(step), None) => rest += &format!(" in step {step}"),
            (None, Some(it)) => rest += &format!(" in {}", phase(it)),
            (None, None) => {}
        }
        if let Some(progress) = &oom.facts.progress {
            rest += &format!(" at {progress}");
        }
        if let Some(at) = &oom.at {
            let comma = if rest.is_empty() { "" } else { "," };
            rest += &format!("{comma} at {}", place(at));
        }
        if let Some(at) = &oom.library_at {
            rest += &format!(", which called {}", place(at));
        }
        if let Some(module) = &oom.module {
            rest += &format!(", in module {module}");
        }
        if !rest.is_empty() {
            self.said(f, "  ", &format!("It ran out{rest}"), 4)?;
        }
        if let Some(at) = oom.at.as_ref().filter(|it| !it.text.is_empty()) {
            writeln!(f, "    {}", clipped(&at.text, self.width - 4))?;
        }
        // Of a text it is a guess; of a recording it may not say something else than the cause.
        let may_be_said =
            oom.line().is_some() || root.code.family() == Family::Size && oom.shape != Shape::Late;
        if may_be_said && oom.shape != Shape::Other {
            let is_hosts = oom.facts.backend == Backend::Host && oom.shape == Shape::Late;
            let text = if is_hosts {
                "Earlier steps fitted: a list or a cache grew, an input was larger, or another process took the memory."
            } else {
                oom.shape.sentence()
            };
            self.said(f, "  ", text, 2)?;
        }
        self.numbers(f, oom)?;
        if !oom.enough.is_empty() {
            self.heading(f, "Freeing these blocks would have been enough (replayed)")?;
            for (at, bytes, blocks) in oom.enough.iter().take(5) {
                let blocks =
                    if *blocks == 1 { "1 block".to_owned() } else { format!("{blocks} blocks") };
                writeln!(
                    f,
                    "  {:>11}  {}",
                    bytes.to_string(),
                    clipped(&format!("{at} ({blocks})"), self.width - 15)
                )?;
            }
        }
        self.heading(f, "What to change")?;
        for (n, remedy) in oom.remedies.iter().take(6).enumerate() {
            self.said(f, &format!("  {}. ", n + 1), remedy, 5)?;
        }
        for it in &oom.in_vain {
            self.said(f, "  would not help: ", it, 5)?;
        }
        if oom.line().is_some() && !oom.facts.is_no_size && !oom.facts.is_before_any_use() {
            if oom.facts.backend == Backend::Host {
                return self.host_unknown(f, oom, command.unwrap_or(COMMAND));
            }
            self.heading(f, "What a text does not show")?;
            let is_of_a_script = oom.facts.is_of_a_script(command.is_some());
            if oom.facts.backend.may_be_torch_on_cuda() && is_of_a_script {
                let text = if shows_growth {
                    "what the memory was used for. A recording shows it:"
                } else {
                    "what the memory was used for, and whether it grew. A recording shows both:"
                };
                self.said(f, "  ", text, 2)?;
                // Whole, so that it can be copied.
                writeln!(
                    f,
                    "    plimsoll predict --record run.zip --until-exit -- {}",
                    command.unwrap_or(COMMAND)
                )?;
                writeln!(f, "    plimsoll explain run.zip     (neither command needs a GPU)")?;
            } else {
                let text = "what the memory was used for, and whether it grew.";
                self.said(f, "  ", text, 2)?;
                if let Some(record) = elsewhere(oom.facts.backend) {
                    self.said(f, "  ", record, 4)?;
                }
                if let Some(it) = oom.facts.backend.instead_of_torch() {
                    let text = format!(
                        "This is {it}, not PyTorch on CUDA: `plimsoll predict` and `fit` cannot run it."
                    );
                    self.said(f, "  ", &text, 2)?;
                }
            }
        }
        Ok(())
    }

    /// What a text does not show of the host's memory, where that helps.
    fn host_unknown(self, f: &mut Formatter<'_>, oom: &Oom, command: &str) -> fmt::Result {
        let is_ram = matches!(oom.facts.host_memory(), HostMemory::Ram | HostMemory::Pinned);
        if !is_ram {
            return Ok(());
        }
        self.heading(f, "What a text does not show")?;
        if oom.facts.is_windows() {
            let text = "which process took the host's memory, and whether it grew. Task Manager's details show each process: columns \"Commit size\" and \"Peak working set\".";
            return self.said(f, "  ", text, 2);
        }
        let text = "which process took the host's memory, and whether it grew. To see the peak of the whole run:";
        self.said(f, "  ", text, 2)?;
        writeln!(f, "    /usr/bin/time -v {command}")?;
        writeln!(f, "    (\"Maximum resident set size\")")
    }

    fn numbers(self, f: &mut Formatter<'_>, oom: &Oom) -> fmt::Result {
        let mut rows: Vec<(String, Bytes)> = Vec::new();
        let mut add = |name: &str, value: Option<Bytes>| {
            if let Some(value) = value {
                rows.push((name.to_owned(), value));
            }
        };
        let is_host = oom.cause == failures::Cause::Host || oom.facts.backend == Backend::Host;
        let of = |host: &'static str, card: &'static str| if is_host { host } else { card };
        add("asked for", oom.facts.requested);
        // Else it looks as if there had been room.
        let taken = oom.facts.requested.map(|it| oom.facts.taken_for(it)).filter(|taken| {
            oom.facts
                .requested
                .zip(oom.facts.free)
                .is_some_and(|(asked, free)| asked <= free && free < *taken)
        });
        add("PyTorch asks the driver for", taken);
        add(of("the host has (RAM)", "the card has"), oom.facts.capacity);
        add("free on it", oom.facts.free);
        add(of("in use (RAM)", "in tensors"), oom.facts.allocated);
        add("  of that in private pools", oom.facts.private_pools);
        add("reserved, not in tensors", oom.facts.slack);
        add("reserved by PyTorch", oom.facts.reserved);
        let own = oom.facts.own_process();
        add("this process", own);
        let outside = own.zip(oom.facts.reserved).filter(|(own, reserved)| reserved < own);
        add("  of that outside of PyTorch", outside.map(|(own, reserved)| own - reserved));
        let is_inferred = oom.facts.others_are_inferred();
        add(if is_inferred { "other processes (inferred)" } else { "other processes" }, oom.others);
        add(of("the limit (RAM)", "the process's limit"), oom.facts.limit);
        rows.extend(oom.facts.numbers.iter().cloned());
        if rows.is_empty() {
            return Ok(());
        }
        let by = oom.facts.backend.name();
        let clip = if oom.facts.clipped { "; the message is cut off" } else { "" };
        let times = if 1 < oom.facts.times {
            format!("; printed {} times", oom.facts.times)
        } else {
            String::new()
        };
        self.heading(f, &format!("The numbers ({by}{clip}{times})"))?;
        for (name, value) in rows {
            writeln!(f, "  {:<28} {:>11}", clipped(&name, 28), value.to_string())?;
        }
        Ok(())
    }

    fn finding(self, f: &mut Formatter<'_>, it: &Finding) -> fmt::Result {
        let styles = self.styles;
        let style = if it.weight == Weight::Problem { styles.bad } else { styles.warn };
        let mut place_of = it.at.as_ref().map(|it| format!("at {}", place(it))).unwrap_or_default();
        if let Some(step) = it.step {
            place_of += &format!(", step {step}");
        }
        let place_of = place_of.trim_start_matches([',', ' ']);
        let room = self.width.saturating_sub(2 + it.code.word().len() + 2);
        let gap = if place_of.is_empty() { "" } else { "  " };
        writeln!(f, "  {}{gap}{}", style.of(it.code.word()), clipped(place_of, room))?;
        self.said(f, "    ", &sentence(&it.title), 4)?;
        for line in &it.evidence {
            self.said(f, "    - ", line, 6)?;
        }
        let change = if it.bytes.0 == 0 || it.is_of_host() {
            "    change: ".to_owned()
        } else {
            format!("    change (saves up to {}): ", it.bytes)
        };
        self.said(f, &change, &it.remedy, 6)
    }

    fn not_oom(self, f: &mut Formatter<'_>, it: &Failure) -> fmt::Result {
        let verdict = it.verdict();
        write!(f, "{} ", self.styles.warn.of("NOT OUT OF MEMORY:"))?;
        self.wrapped(f, &sentence(&verdict.why), 19, 2)?;
        self.said(f, "  ", &clipped(&it.text, 300), 2)?;
        for (n, remedy) in verdict.remedies.iter().enumerate() {
            self.said(f, &format!("  {}. ", n + 1), remedy, 5)?;
        }
        Ok(())
    }

    fn comparison(
        self,
        f: &mut Formatter<'_>,
        all: &[Explanation],
        it: &Comparison,
    ) -> fmt::Result {
        writeln!(f, "{}", self.styles.heading.of(format!("{} inputs", all.len())))?;
        if !it.table.rows.is_empty() {
            writeln!(f, "{}", ranks::text(&it.table, self.styles, self.width))?;
        }
        for sentence in &it.sentences {
            self.said(f, "  ", sentence, 2)?;
        }
        Ok(())
    }

    fn heading(self, f: &mut Formatter<'_>, text: &str) -> fmt::Result {
        writeln!(f, "\n{}", self.styles.heading.of(text))
    }

    fn said(self, f: &mut Formatter<'_>, start: &str, text: &str, indent: usize) -> fmt::Result {
        write!(f, "{start}")?;
        self.wrapped(f, text, start.trim_start_matches('\x1b').chars().count(), indent)
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

/// How to record more, where it is not PyTorch on CUDA.
fn elsewhere(backend: Backend) -> Option<&'static str> {
    match backend {
        Backend::Hip => Some(
            "PyTorch's own recording shows both: torch.cuda.memory._record_memory_history() before the model is built, torch.cuda.memory._dump_snapshot('oom.pickle') when it fails, then plimsoll explain oom.pickle",
        ),
        Backend::Xla => Some(
            "JAX's profile shows the first: jax.profiler.save_device_memory_profile('memory.prof') before the step that fails",
        ),
        _ => None,
    }
}

/// A statement's kind as the first word of a report.
fn told_as(code: StatementCode) -> &'static str {
    match code {
        StatementCode::LevelsGrow => "GROWS:",
        StatementCode::CardFull => "FULL:",
        StatementCode::VllmNoRoom => "TOO SMALL:",
        StatementCode::RanksOnOneCard
        | StatementCode::SeveralProcesses
        | StatementCode::HiddenProcesses => "SHARED:",
        StatementCode::LevelsSteady => "STEADY:",
        StatementCode::RanOut => "RAN OUT:",
        _ => "READ:",
    }
}

fn inferred(it: &Statement) -> &'static str {
    if it.is_inferred { " (This is inferred.)" } else { "" }
}

/// What happened where memory ran out for others than PyTorch's allocator.
pub(super) fn lacked(bytes: Bytes) -> String {
    format!(
        "NVIDIA's driver or a library (NCCL, cuBLAS) needed {bytes} more for itself than was free"
    )
}

fn out_of_memory(oom: &Oom) -> &'static str {
    match oom.cause {
        _ if oom.facts.is_no_size => "NOT OUT OF MEMORY",
        failures::Cause::Host => "HOST OUT OF MEMORY",
        _ if oom.facts.kind == failures::Kind::Caught => CAUGHT,
        _ if oom.is_sure => OUT,
        _ => "PERHAPS OUT OF MEMORY",
    }
}

/// The first sentence of a report: its word, and what follows.
pub(super) fn headline(it: &Explanation) -> (String, String) {
    let word_of = |it: &str| it.trim_end_matches(':').to_owned();
    if let Some(oom) = it.ooms.first() {
        let root = &oom.root;
        let at = root.at.as_ref().map(|it| format!(" At {}.", place(it))).unwrap_or_default();
        return (word_of(out_of_memory(oom)), format!("{}{at}", sentence(&root.text)));
    }
    if let Some(why) = it.unsure.as_deref().filter(|_| !it.is_sure()) {
        return ("COULD NOT TELL".to_owned(), sentence(why));
    }
    if it.lacked != Bytes::ZERO {
        return (OUT.to_owned(), sentence(&lacked(it.lacked)));
    }
    if let Some(finding) = it.first_problem() {
        return (word_of(word(finding.code)), sentence(&finding.title));
    }
    if let Some(caught) = &it.caught {
        return (CAUGHT.to_owned(), sentence(&caught.text()));
    }
    let levels = it.peak_allocated.zip(it.peak_reserved);
    let levels = levels.map(|(a, b)| format!("peak {a} allocated, {b} reserved"));
    let text = levels.unwrap_or_default() + &gains(&it.findings);
    ("NO ERROR".to_owned(), if text.is_empty() { text } else { sentence(&text) })
}

/// How many findings could save memory, as the end of a sentence.
fn gains(findings: &[Finding]) -> String {
    match findings.iter().filter(|it| it.weight == Weight::Chance).count() {
        0 => String::new(),
        1 => "; 1 finding could save memory".to_owned(),
        n => format!("; {n} findings could save memory"),
    }
}

/// A finding's kind as the first word of a report.
fn word(code: ProblemCode) -> &'static str {
    match code.family() {
        Family::Leak => "LEAK:",
        Family::Growth => "GROWS:",
        Family::Fragmentation => "FRAGMENTED:",
        _ => "PROBLEM:",
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    // Names keep their letters: vLLM, cuBLAS.
    let is_name = text.split(' ').next().is_some_and(|it| it.contains(char::is_uppercase));
    let first = chars.next().filter(|_| !is_name).map(|it| it.to_uppercase().to_string());
    let first = first.or_else(|| text.chars().next().map(String::from)).unwrap_or_default();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

fn place(line: &CodeLine) -> String {
    let function = match line.function.as_str() {
        "" | "<module>" => String::new(),
        name => format!(" in {name}"),
    };
    format!("{}{function}", crate::findings::place(line))
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "the optimizer",
        Phase::ZeroGrad => "zero_grad",
        Phase::Evaluation => "evaluation",
        Phase::Saving => "saving",
        Phase::Merging => "merging",
    }
}

/// A rule's page, and every rule by its code.
pub fn rules(styles: Styles) -> impl Display {
    fmt::from_fn(move |f| {
        let Style { on, off } = styles.heading;
        let (findings, causes): (Vec<ProblemCode>, Vec<ProblemCode>) =
            ProblemCode::ALL.iter().partition(|it| it.page().is_some());
        for it in findings {
            writeln!(f, "{on}{:<30}{off} {}", it.word(), it.title())?;
        }
        writeln!(f, "\nOther causes of an out-of-memory error:")?;
        for it in causes {
            writeln!(f, "{on}{:<30}{off} {}", it.word(), it.title())?;
        }
        Ok(())
    })
}
