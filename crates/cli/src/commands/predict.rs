//! `plimsoll predict`: runs the script on the phantom, reads what it left, says what that means.

use std::{env, path::Path, time::SystemTime};

use anyhow::Context as _;
use plimsoll_core::{
    cards::{self, Card},
    codes::RemarkCode,
    explanation,
    prediction::{self, Inquiry, Job, Note, Observed, OtherEnd, Prediction, Runs, Verdict},
    recording::{Reached, Recording},
    units::Bytes,
    views::{
        answer::Answer,
        glossary,
        schedulers::{self, Machine},
        text::{self, Extent},
        wire,
    },
};

use crate::{
    cache::Cache,
    commands::{lint::beside, misplaced},
    contract,
    engine::{
        diagnosis,
        launch::{
            self, Device, End, Ended, Progress, Ranks, ScriptCommand, ScriptOutput, Setting,
            Signals, Stop,
        },
        phantom_run::{self, Choice, Completing, Home, How, Run, RunOutput, Runner},
        plan_settings, record,
    },
    exit::Exit,
    files::requested_file::RequestedFile,
    options::{
        assumption::Assumption,
        cli::{PredictArgs, PredictUntil, Writes},
        shown_command, worst_batches,
    },
    output::{self, Output, say},
};

/// Widths that a report is made for; a terminal between them gets its own.
const NARROW: u16 = 60;
const WIDE: u16 = 100;
/// What is assumed of masks once a script has failed because they find nothing.
const HALF_IS_FOUND: &str = "assumed_nonzero_millionths = 500000\n";
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
    let choice = phantom_run::choice(gpu, args.memory, &args.command)?;
    let home = Home::of(&choice, args.beside, args.windows)?;
    let Choice { card, how } = choice;
    let card = home.card(card);
    let plan = args.plan.as_deref().map(plan_settings::read).transpose()?;
    let plan = plan.map(|it| plan_settings::settings(&it, &args.command)).unwrap_or_default();
    let ranks = Ranks::new(args.world_size, args.rank, args.all_ranks, args.gpus)?;
    let command = ScriptCommand::resolve(&args.command)?;
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let record = args.record.as_deref().map(RequestedFile::open).transpose()?;
    let json_on_stdout = json.as_ref().is_some_and(RequestedFile::is_stdout);
    let runner = Runner::new(Cache::open()?, &args.world)?;
    let script = Script { args, card, home, ranks, command, plan, runner };
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
    let Read { prediction, mut recordings, ended, unread } = script.read(left);
    let chosen = match &how {
        Some(How::OfThisMachine(text) | How::Largest(text)) => Some(text.clone()),
        _ => None,
    };
    let is_refused = prediction.serving.as_ref().is_some_and(|it| it.engine.refused.is_some());
    let failure = diagnosis::diagnose(&script.command, &ended, &recordings).filter(|_| !is_refused);
    let observed = Observed {
        interrupted: ended.interrupted.is_some(),
        unread,
        writes: Some(writes),
        host: Some(ended.host),
        host_total: recordings.iter().find_map(|it| it.notes.host?.total),
        half_of_masks: !told.is_empty(),
        chosen,
        failure: failure.map(|it| diagnosis::with_kernels(it, &script.card)),
        ends: phantom_run::left_open(&recordings, &args.assume),
        any_card: matches!(how, Some(How::Largest(_))) && args.memory.is_none(),
        verdict_is_enough: args.verdict,
        on_one_card: false,
        cards: given,
        job: script.job(&recordings, ended.host.peak),
        alone: args.rank.zip(phantom_run::world_of(&recordings)),
    };
    let inquiry = Inquiry::new(prediction, observed);
    let prediction = script.complete(inquiry, &told, &mut recordings)?;
    let runs = Runs::of(&recordings, &script.card);
    let mut findings = explanation::findings_of(&runs, prediction.outcome);
    beside::tell(&mut findings, SystemTime::now());
    let next = shown_command::next(args, &prediction);
    let any_card = matches!(how, Some(How::Largest(_)));
    let answer =
        Answer { prediction: &prediction, findings: &findings, next: next.as_deref(), any_card };

    if let Some(sink) = json {
        sink.json(&wire::prediction(answer), out)?;
    }
    if let Some(sentence) = prediction.failure() {
        say(&sentence.to_string());
        // It may be why: nothing has a gradient then.
        let is_cut = |note: &&Note| matches!(note, Note::Remark(it) if it.code == RemarkCode::CutByCheckpointing);
        let cut = prediction.notes.iter().filter(is_cut);
        cut.for_each(|it| say(&it.to_string()));
        // There is no report to say it.
        prediction.reached.iter().filter_map(Reached::sentence).for_each(|whom| say(&whom));
    } else if !args.quiet && !json_on_stdout {
        let extent = if args.full { Extent::Full } else { Extent::Short };
        show(answer, extent, out)?;
    }
    if let Some(scheduler) = args.request {
        let cards = phantom_run::devices_of(&recordings).max(script.ranks.devices(args.gpus));
        let machine = Machine { cards, all_ranks: args.all_ranks };
        match schedulers::request(scheduler.into(), &prediction, machine) {
            Some(lines) => out.text(&format!("\n{lines}"))?,
            None => say("no size of this card's memory is safe, so there is no size to request"),
        }
    }
    let has_report = prediction.failure().is_none() && !args.quiet;
    if has_report && ended.interrupted.is_some() && diagnosis::has_served(&recordings) {
        say("interrupted: the report covers what the server did until then");
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
        Verdict::Grows | Verdict::DoesNotFit | Verdict::Spills | Verdict::OverMax => {
            Exit::DoesNotFit
        }
        Verdict::FitsSoFar | Verdict::Depends | Verdict::CouldNotTell => Exit::CouldNotTell,
    })
}

/// What every run of the script has in common.
struct Script<'a> {
    args: &'a PredictArgs,
    card: Card,
    /// Where the card is.
    home: Home,
    ranks: Ranks,
    command: ScriptCommand,
    /// What its environment has more for the plan that is checked.
    plan: Vec<Setting>,
    runner: Runner,
}

/// What a run left, read.
struct Read {
    prediction: Prediction,
    recordings: Vec<Recording>,
    ended: Ended,
    /// What could not be read.
    unread: Vec<String>,
}

impl Script<'_> {
    /// What the phantom is told: the card, how many of it, what the user assumes, and more.
    fn conf(&self, more: &str) -> String {
        self.conf_of(&self.card, &self.ranks, more)
    }

    fn conf_of(&self, card: &Card, ranks: &Ranks, more: &str) -> String {
        let assumed: String = self.args.assume.iter().map(|it| it.conf_line()).collect();
        card.phantom_conf(ranks.devices(self.args.gpus)) + &assumed + more
    }

    /// Runs it; and once more if it failed because masks found nothing. Returns what the phantom was told more in the
    /// run that counts.
    fn run(&self, output: ScriptOutput) -> anyhow::Result<(RunOutput, String)> {
        let first = self.run_once("", output)?;
        if !self.may_miss_what_masks_find(&first) {
            return Ok((first, String::new()));
        }
        if !self.args.quiet {
            say(
                "the script failed. A phantom computes no values, so boolean masks selected nothing until then; running it again with half of each mask true, to see whether that is why",
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
    fn may_miss_what_masks_find(&self, left: &RunOutput) -> bool {
        let is_share =
            |it: &Assumption| matches!(it, Assumption::Share { operation: "nonzero", .. });
        let is_said = self.args.assume.iter().any(is_share);
        let missed = || diagnosis::may_miss_what_masks_find(&phantom_run::read(&left.folders).0);
        !is_said && failed(&left.ended) && missed()
    }

    /// Makes the runs that complete what the first one says. `recordings` become those of the run that the answer shows.
    fn complete(
        &self,
        mut inquiry: Inquiry,
        told: &str,
        recordings: &mut Vec<Recording>,
    ) -> anyhow::Result<Prediction> {
        let mut one_more = |card: &Card, ends: &[OtherEnd], ranks: &Ranks| {
            let told = told.to_owned()
                + &ends.iter().copied().map(phantom_run::conf_line).collect::<String>();
            self.again(card, &told, ranks)
        };
        self.completing().complete(&mut inquiry, recordings, &mut one_more)?;
        Ok(inquiry.prediction(Some(self.runner.reached())))
    }

    fn completing(&self) -> Completing<'_> {
        let Script { args, card, ranks, .. } = self;
        Completing { command: &args.command, ranks, card, assumed: &args.assume }
    }

    /// Runs it once more, with its output thrown away, to complete what the first run says. None if it was interrupted.
    fn again(
        &self,
        card: &Card,
        told: &str,
        ranks: &Ranks,
    ) -> anyhow::Result<Option<(Prediction, Vec<Recording>)>> {
        let card = &self.home.card(card.clone());
        let again = self.read_on(card, self.run_on(card, told, ranks, ScriptOutput::Nowhere)?);
        let is_whole = again.ended.interrupted.is_none();
        Ok(is_whole.then_some((again.prediction, again.recordings)))
    }

    fn run_once(&self, told: &str, output: ScriptOutput) -> anyhow::Result<RunOutput> {
        self.run_on(&self.card, told, &self.ranks, output)
    }

    /// The job that the first run was one rank of, where nobody said which ranks are to run.
    fn job(&self, recordings: &[Recording], of_one: Bytes) -> Option<Job> {
        let is_asked = self.args.rank.is_some() || self.args.all_ranks;
        if is_asked { None } else { self.completing().job(recordings, of_one) }
    }

    fn run_on(
        &self,
        card: &Card,
        told: &str,
        ranks: &Ranks,
        output: ScriptOutput,
    ) -> anyhow::Result<RunOutput> {
        let Script { args, command, plan, runner, .. } = self;
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
        let mut batches = worst_batches::named(args.worst_seq, args.worst_size);
        batches.extend(args.worst_sample.then(|| (contract::WORST_SAMPLE, "1".into())));
        // Who says how far the run goes wants the batches as they come.
        let is_ours = matches!(stop, Stop::Steady | Stop::Validation);
        if batches.is_empty() && is_ours {
            batches.push(worst_batches::of_the_data());
        }
        let folds = (!args.traceback && !args.quiet).then(|| (contract::FOLDS, "1".into()));
        let limit =
            card.has_no_end().then(|| (contract::LIMIT_RESERVED, contract::WITHOUT_END.into()));
        let settings: Vec<_> =
            batches.into_iter().chain(folds).chain(limit).chain(plan.iter().cloned()).collect();
        let run = Run {
            command,
            conf: &self.conf_of(card, ranks, told),
            stop,
            ranks,
            ghost_weights: args.ghost_weights,
            output,
            settings: &settings,
            device: Device::Phantom,
        };
        runner.run(run, &signals, progress.as_mut().map(|it| it as &mut dyn launch::Watch))
    }

    fn read(&self, left: RunOutput) -> Read {
        self.read_on(&self.card, left)
    }

    fn read_on(&self, card: &Card, left: RunOutput) -> Read {
        let (recordings, unread) = phantom_run::read(&left.folders);
        let ended = diagnosis::without_a_late_signal(left.ended, &recordings);
        let facts = phantom_run::facts(&ended, self.args.max);
        let prediction = prediction::predict(&recordings, card, facts);
        Read { prediction, recordings, ended, unread }
    }
}

fn failed(ended: &Ended) -> bool {
    matches!(ended.end, End::Code(1..))
}

/// The report for people.
fn show(answer: Answer<'_>, extent: Extent, out: &mut Output) -> anyhow::Result<()> {
    let width = out.width((NARROW, WIDE), USUAL);
    // The script has written to the same terminal.
    let report = text::prediction(answer, extent, out.styles(), width).to_string();
    let words = glossary::line_of(&report).map(|it| format!("{it}\n")).unwrap_or_default();
    out.report(&format!("\n{report}{words}"), extent == Extent::Full, &[])
}
