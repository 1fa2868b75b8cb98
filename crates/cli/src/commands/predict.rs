//! `plimsoll predict`: runs the script on the phantom, reads what it left, says what that means.

use std::{env, path::Path};

use anyhow::Context as _;
use plimsoll_core::{
    cards::{self, Card},
    codes::NoteCode,
    findings,
    prediction::{self, CardFit, Carries, Host, Note, Outcome, Prediction, Runs, Verdict},
    recording::Recording,
    units::Bytes,
    views::{answer::Answer, glossary, schedulers, text, wire},
};

use crate::{
    cache::Cache,
    commands::misplaced,
    contract,
    engine::{
        diagnosis,
        launch::{
            self, Device, End, Ended, Progress, Ranks, ScriptCommand, ScriptOutput, Signals, Stop,
        },
        phantom_run::{self, Choice, How, Left, Run, Runner},
        record,
    },
    exit::Exit,
    files::requested_file::RequestedFile,
    options::{
        assumption::Assumption,
        cli::{PredictArgs, PredictUntil, Writes},
        shown_command,
        worst_sequence::WorstSequence,
        worst_size::WorstSize,
    },
    output::{self, Output, say},
};

/// Widths that a report is made for; a terminal between them gets its own.
const NARROW: u16 = 60;
const WIDE: u16 = 100;
/// What is assumed of masks once a script has failed because they find nothing, and what the report says then.
const HALF_IS_FOUND: &str = "assumed_nonzero_millionths = 500000\n";
const MASKS_HALF: &str = "the script failed where boolean masks selected nothing, because a phantom computes no values; plimsoll ran it again with half of each mask true. Give the true share with --assume nonzero=0.25";
/// What the report says of `--cards`.
const RAN_ON_EACH: &str =
    "the script ran on each card of --cards; the numbers above are those of one";
/// Where the width is not known.
const USUAL: u16 = 80;

pub(crate) fn run(args: &PredictArgs, out: &mut Output) -> anyhow::Result<Exit> {
    // Everything that can be wrong before the run is found before the run.
    if env::var_os(contract::SESSION).is_some_and(|it| Path::new(&it).is_dir()) {
        anyhow::bail!(
            "this process already runs inside plimsoll predict; remove the inner plimsoll command"
        );
    }
    let given = args.cards.iter().map(|it| cards::find(it)).collect::<Result<Vec<_>, _>>()?;
    let gpu = args.gpu.as_deref().or(args.cards.first().map(String::as_str));
    let Choice { card, how } = phantom_run::choice(gpu, args.memory, &args.command)?;
    let ranks = Ranks::new(args.world_size, args.rank, args.all_ranks, args.gpus)?;
    let command = ScriptCommand::resolve(&args.command)?;
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let record = args.record.as_deref().map(RequestedFile::open).transpose()?;
    let json_on_stdout = json.as_ref().is_some_and(RequestedFile::is_stdout);
    let runner = Runner::new(Cache::open()?, &args.world)?;
    let script = Script { args, card, ranks, command, runner };
    if let Some(it) = misplaced::remark("predict", &args.command).filter(|_| !args.quiet) {
        say(&it);
    }

    let output = if json_on_stdout { ScriptOutput::ToStderr } else { ScriptOutput::Inherited };
    let (left, told) = script.run(output)?;
    if let Some(sink) = record {
        let conf = script.conf(&told);
        let what =
            record::What { mode: "predict", command: &args.command, phantom_conf: Some(&conf) };
        record::write(what, &left.ended, &left.folders, sink, out)?;
    }
    let keep = match &args.world.writes {
        Writes::Keep(folder) => Some(folder.as_path()),
        Writes::Layer | Writes::Through => None,
    };
    let writes = left.wrote(keep)?;
    let Read { mut prediction, recordings, ended, unread } = script.read(left);
    let findings = findings::of_runs(&Runs::of(&recordings, &script.card));
    prediction.notes.extend(unread);
    prediction.notes.extend(about_writes(&writes));
    prediction.writes = Some(writes);
    prediction.host = Some(ended.host);
    let total = recordings.iter().find_map(|it| it.notes.host?.total);
    prediction.notes.extend(about_host(ended.host, total));
    if !told.is_empty() {
        prediction.notes.push(said(NoteCode::MasksHalf, MASKS_HALF));
    }
    // Who pressed Ctrl-C gets what is known.
    if ended.interrupted.is_none() {
        script.look_at_other_ends(&mut prediction, &recordings, &told)?;
        script.look_at_larger_cards(&mut prediction, &told)?;
        script.look_at_cards(&mut prediction, &given, &told)?;
    }
    let reached = script.runner.reached();
    let whom = reached.sentence();
    prediction.notes.extend(whom.clone().map(Note::Reached));
    prediction.reached = Some(reached);
    if let Some(How::OfThisMachine(text) | How::Largest(text)) = &how {
        prediction.notes.push(said(NoteCode::NoGpuChosen, text));
    }
    let failure = diagnosis::diagnose(&script.command, &ended, &recordings);
    let failure = failure.map(|it| diagnosis::with_kernels(it, &script.card));
    let failure = failure.map(|it| tell_failure(&mut prediction, it));
    let unclear =
        || (prediction.outcome == Outcome::ScriptFailed).then_some(prediction.notes.first());
    let failure = failure.or_else(|| unclear().flatten().map(ToString::to_string));
    let next = shown_command::next(args, &prediction);
    let any_card = matches!(how, Some(How::Largest(_)));
    let answer =
        Answer { prediction: &prediction, findings: &findings, next: next.as_deref(), any_card };

    if let Some(sink) = json {
        sink.json(&wire::prediction(answer), out)?;
    }
    if let Some(sentence) = failure {
        say(&sentence);
        // There is no report to say it.
        whom.iter().for_each(|it| say(it));
    } else if !args.quiet && !json_on_stdout {
        show(answer, out)?;
    }
    if let Some(scheduler) = args.request {
        let n = script.ranks.devices(args.gpus);
        match schedulers::request(scheduler.into(), &prediction, n) {
            Some(lines) => out.text(&format!("\n{lines}"))?,
            None => say("no size of this card's memory is safe, so there is no size to request"),
        }
    }
    if let (n @ 1.., false) = (ended.n_left_running, args.quiet) {
        let processes = if n == 1 { "process" } else { "processes" };
        say(&format!("plimsoll ended {n} remaining {processes} of the script"));
    }
    if args.open {
        super::view::open_recordings(&script.command.name(), recordings, out)?;
    }
    Ok(match prediction.verdict() {
        Verdict::Fits => Exit::Fits,
        Verdict::Grows | Verdict::DoesNotFit | Verdict::OverMax => Exit::DoesNotFit,
        Verdict::Depends | Verdict::CouldNotTell => Exit::CouldNotTell,
    })
}

/// What every run of the script has in common.
struct Script<'a> {
    args: &'a PredictArgs,
    card: Card,
    ranks: Ranks,
    command: ScriptCommand,
    runner: Runner,
}

/// What a run left, read.
struct Read {
    prediction: Prediction,
    recordings: Vec<Recording>,
    ended: Ended,
    /// What could not be read.
    unread: Vec<Note>,
}

impl Script<'_> {
    /// What the phantom is told: the card, how many of it, what the user assumes, and more.
    fn conf(&self, more: &str) -> String {
        self.conf_of(&self.card, more)
    }

    fn conf_of(&self, card: &Card, more: &str) -> String {
        let assumed: String = self.args.assume.iter().map(|it| it.conf_line()).collect();
        card.phantom_conf(self.ranks.devices(self.args.gpus)) + &assumed + more
    }

    /// Runs it; and once more if it failed because masks found nothing. Returns what the phantom was told more in the
    /// run that counts.
    fn run(&self, output: ScriptOutput) -> anyhow::Result<(Left, String)> {
        let first = self.run_once("", output)?;
        if !self.may_miss_what_masks_find(&first) {
            return Ok((first, String::new()));
        }
        if !self.args.quiet {
            say(
                "the script failed where boolean masks selected nothing, because a phantom computes no values; running it again with half of each mask true",
            );
        }
        let second = self.run_once(HALF_IS_FOUND, output)?;
        Ok(if failed(&second.ended) {
            (first, String::new())
        } else {
            (second, HALF_IS_FOUND.to_owned())
        })
    }

    /// Whether the script failed, and a mask that found nothing may be why.
    fn may_miss_what_masks_find(&self, left: &Left) -> bool {
        let is_share =
            |it: &Assumption| matches!(it, Assumption::Share { operation: "nonzero", .. });
        let is_said = self.args.assume.iter().any(is_share);
        let found_nothing =
            || phantom_run::read(&left.folders).0.iter().any(prediction::found_nothing);
        !is_said && failed(&left.ended) && found_nothing()
    }

    /// Runs it at the other end of what the phantom decided by itself, as long as it fits.
    fn look_at_other_ends(
        &self,
        prediction: &mut Prediction,
        recordings: &[Recording],
        told: &str,
    ) -> anyhow::Result<()> {
        for end in phantom_run::left_open(recordings, &self.args.assume) {
            if prediction.outcome != Outcome::Fits {
                break;
            }
            let told = told.to_owned() + phantom_run::conf_line(end);
            let other = self.again(&self.card, &told)?;
            let other = other.ok_or_else(|| interrupted(prediction, &self.card))?;
            prediction.cover(end, &other);
        }
        Ok(())
    }

    /// Where it ran out: runs it on the largest of the cards of which that says nothing, which says something of all of them.
    fn look_at_larger_cards(&self, prediction: &mut Prediction, told: &str) -> anyhow::Result<()> {
        let is_unknown = |it: &&CardFit| it.carries == Carries::Unknown;
        let unknown = prediction.cards.iter().filter(is_unknown).map(|it| it.card);
        let Some(largest) = unknown.max_by_key(|it| it.total) else { return Ok(()) };
        if prediction.outcome == Outcome::OutOfMemory && self.args.cards.is_empty() {
            match self.again(largest, told)? {
                Some(larger) => prediction.learn_of_larger(&larger),
                // That it does not fit is known already.
                None => prediction.notes.push(only_of_its_card(largest)),
            }
        }
        Ok(())
    }

    /// Runs it on each of `--cards`.
    fn look_at_cards(
        &self,
        prediction: &mut Prediction,
        given: &[&'static Card],
        told: &str,
    ) -> anyhow::Result<()> {
        if given.is_empty() || prediction.outcome == Outcome::ScriptFailed {
            return Ok(());
        }
        let mut cards: Vec<CardFit> = Vec::new();
        for card in given {
            if card.id == self.card.id {
                cards.push(prediction.on_its_card(card));
                continue;
            }
            match self.again(card, told)? {
                Some(there) => cards.push(there.on_its_card(card)),
                None if prediction.outcome == Outcome::OutOfMemory => {
                    prediction.notes.push(only_of_its_card(card));
                    break;
                }
                None => return Err(interrupted(prediction, card)),
            }
        }
        cards.sort_by_key(|it| (it.card.total, &it.card.id));
        prediction.cards = cards;
        prediction.doubt_cards_by_what_is_found();
        prediction.notes.retain(|it| !matches!(it, Note::AskedSize { .. }));
        prediction.notes.push(said(NoteCode::Cards, RAN_ON_EACH));
        Ok(())
    }

    /// Runs it once more, with its output thrown away, to complete what the first run says. None if it was interrupted.
    fn again(&self, card: &Card, told: &str) -> anyhow::Result<Option<Prediction>> {
        let again = self.read_on(card, self.run_on(card, told, ScriptOutput::Nowhere)?);
        Ok(again.ended.interrupted.is_none().then_some(again.prediction))
    }

    fn run_once(&self, told: &str, output: ScriptOutput) -> anyhow::Result<Left> {
        self.run_on(&self.card, told, output)
    }

    fn run_on(&self, card: &Card, told: &str, output: ScriptOutput) -> anyhow::Result<Left> {
        let Script { args, card: _, ranks, command, runner } = self;
        // Until the run's world is gone, Ctrl-C waits.
        let signals = Signals::hold().context("cannot hold signals")?;
        let stop = match (args.steps, args.until) {
            (Some(n), _) => Stop::Steps(n),
            (None, _) if args.until_exit => Stop::UntilExit,
            (None, PredictUntil::Exit) => Stop::UntilExit,
            (None, PredictUntil::Steady) => Stop::Steady,
            (None, PredictUntil::Validation) => Stop::Validation,
        };
        let mut progress = (!args.quiet && output::is_seen()).then(|| {
            Progress::new(format!("running {} on a phantom {}", command.name(), card.name))
        });
        let longer = args.worst_seq.map(WorstSequence::setting);
        let larger = args.worst_size.map(WorstSize::setting);
        let settings: Vec<_> = longer.into_iter().chain(larger).collect();
        let run = Run {
            command,
            conf: &self.conf_of(card, told),
            stop,
            ranks: *ranks,
            ghost_weights: args.ghost_weights,
            output,
            settings: &settings,
            device: Device::Phantom,
        };
        runner.run(run, &signals, progress.as_mut().map(|it| it as &mut dyn launch::Watch))
    }

    fn read(&self, left: Left) -> Read {
        self.read_on(&self.card, left)
    }

    fn read_on(&self, card: &Card, left: Left) -> Read {
        let (recordings, unread) = phantom_run::read(&left.folders);
        let ended = diagnosis::without_a_late_signal(left.ended, &recordings);
        let facts = phantom_run::facts(&ended, self.args.max);
        let prediction = prediction::predict(&recordings, card, facts);
        Read { prediction, recordings, ended, unread }
    }
}

/// Where the run on `card` would have had to complete what the `first` one says.
fn interrupted(first: &Prediction, card: &Card) -> anyhow::Error {
    let (needs, on) = (first.peak.device, &card.name);
    anyhow::anyhow!(
        "interrupted during the confirmation run on a phantom {on}; the first run needs {needs}, which is not a safe bound"
    )
}

/// Where the run on `card` would only have said more.
fn only_of_its_card(card: &Card) -> Note {
    let text = format!(
        "interrupted while the script ran again on a phantom {}; larger cards are unknown",
        card.name
    );
    said(NoteCode::Interrupted, &text)
}

fn failed(ended: &Ended) -> bool {
    matches!(ended.end, End::Code(1..))
}

/// Makes `prediction` one of a run that failed: its first note says why, in our words, which know more of
/// the process than a recording does. Returns those words.
fn tell_failure(prediction: &mut Prediction, why: String) -> String {
    let mut text = why;
    if prediction.peak.allocated != Bytes::ZERO {
        text += &format!("; until then it used {} on the GPU", prediction.peak.device);
    }
    let first = prediction.notes.first();
    match first.filter(|_| prediction.outcome == Outcome::ScriptFailed) {
        Some(first) => {
            prediction.notes[0] =
                said(NoteCode::of_word(first.code()).unwrap_or(NoteCode::ScriptFailed), &text)
        }
        None => prediction.notes.insert(0, said(NoteCode::ScriptFailed, &text)),
    }
    prediction.outcome = Outcome::ScriptFailed;
    text
}

/// One line about what was written, and one about each folder that could not be.
fn about_writes(writes: &prediction::Writes) -> Vec<Note> {
    let read_only = writes.read_only.iter().map(|(path, why)| {
        let text = format!(
            "{path} was read-only for the script, because a private layer cannot cover it: {why}; if the script must write there, use --writes through"
        );
        said(NoteCode::ReadOnly, &text)
    });
    let written = writes.sentence().map(Note::Wrote);
    read_only.chain(written).collect()
}

/// What the host has to have, where that may be more than it has: less is nobody's trouble.
fn about_host(host: Host, total: Option<Bytes>) -> Vec<Note> {
    const MUCH: Bytes = Bytes::gib(8);
    /// Half of what a container has of `/dev/shm`, unless it is told otherwise.
    const SHARED: Bytes = Bytes::mib(32);
    let is_half = total.is_some_and(|it| it.0 / 2 < host.peak.0);
    let much = (MUCH <= host.peak || is_half).then(|| {
        let of = total.map(|it| format!(" of the {it} that this machine allows")).unwrap_or_default();
        let text = format!(
            "the script and its processes used up to {} of host memory (RAM){of}; a real run needs as much",
            host.peak
        );
        said(NoteCode::HostMemory, &text)
    });
    let shared = (SHARED <= host.shared).then(|| {
        let text = format!(
            "its processes used up to {} of /dev/shm, as DataLoader workers do for batches; a container has 64 MiB by default (`docker run --shm-size=8g`)",
            host.shared
        );
        said(NoteCode::HostShared, &text)
    });
    much.into_iter().chain(shared).collect()
}

fn said(code: NoteCode, text: &str) -> Note {
    Note::Said { code, text: text.to_owned() }
}

/// The report for people.
fn show(answer: Answer<'_>, out: &mut Output) -> anyhow::Result<()> {
    let width = out.width((NARROW, WIDE), USUAL);
    // The script has written to the same terminal.
    let report = text::prediction(answer, out.styles(), width).to_string();
    let words = glossary::line_of(&report).map(|it| format!("{it}\n")).unwrap_or_default();
    out.text(&format!("\n{report}{words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_of_where_it_may_be_short() {
        let codes = |peak, shared, total: Option<u64>| {
            let host = Host { peak: Bytes::mib(peak), shared: Bytes::mib(shared) };
            let told = about_host(host, total.map(Bytes::mib));
            told.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(codes(2_000, 0, Some(16_000)), [""; 0]);
        assert_eq!(codes(2_000, 8, None), [""; 0]);
        let half = codes(2_000, 0, Some(3_000));
        assert!(
            half[0].contains("used up to 1.95 GiB of host memory (RAM) of the 2.93 GiB"),
            "{half:?}"
        );
        assert_eq!(codes(9_000, 0, Some(64_000)).len(), 1);
        let shared = codes(2_000, 410, Some(16_000));
        assert!(shared[0].contains("used up to 410.0 MiB of /dev/shm"), "{shared:?}");
    }
}
