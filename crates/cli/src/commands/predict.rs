//! `plimsoll predict`: runs the script on the phantom, reads what it left, says what that means.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, IsTerminal as _, Write},
    path::Path,
};

use anyhow::Context as _;
use plimsoll_core::{
    cards::{self, Card},
    prediction::{self, Note, OtherEnd, Outcome, Prediction, RunFacts, ScriptExit, Verdict},
    recording::Recording,
    sources,
    units::Bytes,
    views::{
        text::{self, Styles},
        wire,
    },
};

use crate::{
    assumption::Assumption,
    cache::{
        self, Cache,
        bundle::Bundle,
        session::{ProcessFolder, Session},
    },
    cli::{Color, PredictArgs},
    diagnosis,
    exit::Exit,
    launch::{
        self, Device, End, Ended, Launch, Progress, Ranks, ScriptCommand, ScriptOutput, Signals,
        Stop,
    },
    python, record,
    sink::Sink,
    worst_sequence::WorstSequence,
};

/// Widths that a report is made for; a terminal between them gets its own.
const NARROW: u16 = 60;
const WIDE: u16 = 100;
/// What the report says without `--gpu`.
const NO_GPU_CHOSEN: &str = "no --gpu was given, so this ran on the largest card that this PyTorch has kernels for; \
     the list above says which carry it";
/// What is assumed of masks once a script has failed because they find nothing, and what the report says then.
const HALF_IS_FOUND: &str = "assumed_nonzero_millionths = 500000\n";
const MASKS_HALF: &str = "the script failed while boolean masks of values that nobody computed found nothing, so it ran \
     again with half of every such mask; say the true share with --assume nonzero=0.25";
/// Where the width is not known.
const USUAL: u16 = 80;

pub(crate) fn run(args: &PredictArgs, color: Color, out: &mut dyn Write) -> anyhow::Result<Exit> {
    // Everything that can be wrong before the run is found before the run.
    if env::var_os("PLIMSOLL_SESSION").is_some_and(|it| Path::new(&it).is_dir()) {
        anyhow::bail!("this is already running on a phantom; start plimsoll once, outside");
    }
    let card = card(args.gpu.as_deref(), args.memory, &args.command)?;
    let ranks = Ranks::new(args.world_size, args.rank, args.all_ranks, args.gpus)?;
    let mut conf = phantom_conf(args, &card, ranks);
    let command = ScriptCommand::resolve(&args.command)?;
    let json = args.json.as_deref().map(Sink::open).transpose()?;
    let record = args.record.as_deref().map(Sink::open).transpose()?;
    let json_on_stdout = json.as_ref().is_some_and(Sink::is_stdout);

    let cache = Cache::open()?;
    let output = if json_on_stdout { ScriptOutput::ToStderr } else { ScriptOutput::Inherited };
    let first = run_script(args, (&card, &conf, ranks), &command, &cache, output)?;
    let ((ended, folders), found_half) = if may_miss_what_masks_find(args, &first) {
        tell_of_empty_masks(args);
        let halves = conf.clone() + HALF_IS_FOUND;
        let second = run_script(args, (&card, &halves, ranks), &command, &cache, output)?;
        if failed(&second.0) {
            (first, false)
        } else {
            conf = halves;
            (second, true)
        }
    } else {
        (first, false)
    };
    if let Some(sink) = record {
        let what =
            record::What { mode: "predict", command: &args.command, phantom_conf: Some(&conf) };
        record::write(what, &ended, &folders, sink)?;
    }

    let (recordings, unread) = read(&folders);
    let ended = diagnosis::without_a_late_crash(ended, &recordings);
    let mut prediction = prediction::predict(&recordings, &card, facts(args, &ended));
    prediction.notes.extend(unread);
    if found_half {
        prediction.notes.push(remark("masks-half", MASKS_HALF));
    }
    for end in OtherEnd::of(&recordings) {
        if prediction.outcome != Outcome::Fits {
            break;
        }
        let Some(setting) = other_setting(end, &args.assume) else { continue };
        let conf = conf.clone() + setting;
        let nowhere = ScriptOutput::Nowhere;
        let (ended, folders) = run_script(args, (&card, &conf, ranks), &command, &cache, nowhere)?;
        let recordings = read(&folders).0;
        let ended = diagnosis::without_a_late_crash(ended, &recordings);
        let other = prediction::predict(&recordings, &card, facts(args, &ended));
        prediction.cover(end, &other);
    }
    if args.gpu.is_none() {
        prediction.notes.push(remark("no-gpu-chosen", NO_GPU_CHOSEN));
    }
    let failure = diagnosis::diagnose(&command, &ended, &recordings);
    let failure = failure.map(|it| tell_failure(&mut prediction, it));

    if let Some(sink) = json {
        sink.write(wire::prediction(&prediction).as_bytes(), out)?;
    }
    if let Some(sentence) = failure {
        let _ = writeln!(io::stderr(), "plimsoll: {sentence}");
    } else if !args.quiet && !json_on_stdout {
        show(&prediction, color, out)?;
    }
    if let (n @ 1.., false) = (ended.n_left_running, args.quiet) {
        let processes = if n == 1 { "process" } else { "processes" };
        let _ =
            writeln!(io::stderr(), "plimsoll: ended {n} {processes} that the script left running");
    }
    if args.open {
        super::view::open_recordings(&command.name(), recordings, out)?;
    }
    Ok(match prediction.verdict() {
        Verdict::Fits => Exit::Fits,
        Verdict::DoesNotFit | Verdict::OverMax => Exit::DoesNotFit,
        Verdict::CouldNotTell => Exit::CouldNotTell,
    })
}

/// The card to imitate: by name, from a file, or the largest that the command's torch has kernels for.
pub(crate) fn card(
    gpu: Option<&str>,
    memory: Option<Bytes>,
    command: &[OsString],
) -> anyhow::Result<Card> {
    let card = match gpu {
        None => {
            let interpreter = ScriptCommand::resolve(command).ok().filter(ScriptCommand::is_python);
            let interpreter = interpreter.map(|it| it.program).or_else(|| launch::python().ok());
            let torch = interpreter.and_then(|it| python::probe(&it, None).ok()?.torch);
            largest_for(torch.as_ref()).clone()
        }
        Some(given) if given.ends_with(".toml") || given.contains('/') => {
            let text = fs::read_to_string(given).map_err(|error| {
                anyhow::anyhow!("cannot read the card {given}: {}", cache::reason(&error))
            })?;
            cards::parse(&text).with_context(|| format!("cannot read the card {given}"))?
        }
        Some(name) => cards::find(name)?.clone(),
    };
    Ok(match memory {
        None => card,
        Some(total) if total <= card.context => anyhow::bail!(
            "--memory {total} leaves nothing for the script: the CUDA context alone takes {} on {}; give it more",
            card.context,
            card.name,
        ),
        Some(total) => card.with_total(total),
    })
}

/// The card that lets the most scripts run through, so that there is something to report.
pub(crate) fn largest() -> &'static Card {
    let cards = cards::catalogue().iter();
    cards.max_by_key(|it| it.total).expect("the catalogue is not empty")
}

/// The same of those that a torch has kernels for: compilers before CUDA 12.8 know no Blackwell (release notes
/// of CUDA 12.8), and PyTorch's wheels for them hold nothing that a driver could translate.
pub(crate) fn largest_for(torch: Option<&python::Torch>) -> &'static Card {
    const FIRST_WITH_BLACKWELL: (u32, u32) = (12, 8);
    const BLACKWELL: u32 = 10;
    let cuda = torch.and_then(|it| {
        let (major, minor) = it.cuda.as_deref()?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    if cuda.is_none_or(|it: (u32, u32)| FIRST_WITH_BLACKWELL <= it) {
        return largest();
    }
    let known = cards::catalogue().iter().filter(|it| it.compute_capability.0 < BLACKWELL);
    known.max_by_key(|it| it.total).unwrap_or_else(|| largest())
}

/// What the phantom is told: the card, how many of it, and what the user assumes.
fn phantom_conf(args: &PredictArgs, card: &Card, ranks: Ranks) -> String {
    let assumed: String = args.assume.iter().map(|it| it.conf_line()).collect();
    card.phantom_conf(ranks.devices(args.gpus)) + &assumed
}

/// How the phantom is told to show the other end; nothing if the user said which end it is.
pub(crate) fn other_setting(end: OtherEnd, assumed: &[Assumption]) -> Option<&'static str> {
    match end {
        OtherEnd::Late => Some("order = late\n"),
        OtherEnd::Overflow => {
            let is_said = assumed.iter().any(|it| matches!(it, Assumption::Overflows(_)));
            (!is_said).then_some("assumed_overflows = 1\n")
        }
        OtherEnd::Workspaces => Some("tried = largest\n"),
    }
}

/// Whether the script failed, and a mask that found nothing may be why.
fn may_miss_what_masks_find(
    args: &PredictArgs,
    (ended, folders): &(Ended, Vec<ProcessFolder>),
) -> bool {
    let is_said =
        args.assume.iter().any(|it| matches!(it, Assumption::Share { operation: "nonzero", .. }));
    !is_said && failed(ended) && read(folders).0.iter().any(prediction::found_nothing)
}

fn failed(ended: &Ended) -> bool {
    matches!(ended.end, End::Code(1..))
}

fn tell_of_empty_masks(args: &PredictArgs) {
    if !args.quiet {
        let _ = writeln!(
            io::stderr(),
            "plimsoll: the script failed, and masks of values that nobody computed had found nothing; running it \
             again with half of each"
        );
    }
}

/// Runs the script, and removes its session folder whatever happens.
fn run_script(
    args: &PredictArgs,
    (card, conf, ranks): (&Card, &str, Ranks),
    command: &ScriptCommand,
    cache: &Cache,
    output: ScriptOutput,
) -> anyhow::Result<(Ended, Vec<ProcessFolder>)> {
    let bundle = Bundle::unpack(cache)?;
    // Dropped last: until the folder is gone, Ctrl-C waits.
    let signals = Signals::hold().context("cannot hold signals")?;
    let session = Session::create(cache)?;
    session.configure(conf)?;
    let stop = match (args.until_exit, args.steps) {
        (true, _) => Stop::UntilExit,
        (false, Some(n)) => Stop::Steps(n),
        (false, None) => Stop::Steady,
    };
    let mut progress = (!args.quiet && io::stderr().is_terminal())
        .then(|| Progress::new(format!("running {} on a phantom {}", command.name(), card.name)));
    let settings: Vec<_> = args.worst_seq.map(WorstSequence::setting).into_iter().collect();
    let launch = Launch {
        command,
        bundle: &bundle,
        session: &session,
        stop,
        ranks,
        ghost_weights: args.ghost_weights,
        output,
        settings: &settings,
        device: Device::Phantom,
    };
    let ended =
        launch::run(launch, &signals, progress.as_mut().map(|it| it as &mut dyn launch::Watch))?;
    let folders = session.read();
    // What was written last is what is missing then, and nothing else would say so.
    if cache.free_bytes().is_some_and(|it| it < 1 << 20) {
        anyhow::bail!(
            "no space left on the disk of {} while the script ran, so the recording is not complete; free some, \
             or set PLIMSOLL_CACHE to a folder on another disk",
            cache.root.display(),
        );
    }
    Ok((ended, folders))
}

/// The recordings, and what in them could not be read.
pub(crate) fn read(folders: &[ProcessFolder]) -> (Vec<Recording>, Vec<Note>) {
    let mut recordings = Vec::new();
    let mut unread = Vec::new();
    for folder in folders {
        let reading = sources::read_process(folder.files());
        recordings.push(reading.recording);
        let pid = folder.pid;
        let warnings = reading.warnings.iter();
        unread.extend(warnings.map(|it| Note::Unread(format!("process {pid}: {it}"))));
    }
    (recordings, unread)
}

fn facts(args: &PredictArgs, ended: &Ended) -> RunFacts {
    RunFacts { exit: exit(ended), seconds: ended.seconds, max: args.max }
}

/// How the script ended, in the words of a prediction.
pub(crate) fn exit(ended: &Ended) -> ScriptExit {
    match ended.end {
        End::Code(code) => ScriptExit::Code(code),
        End::Signal(number) => ScriptExit::Signal(number),
    }
}

/// Makes `prediction` one of a run that failed: its first note says why, in our words, which know more of
/// the process than a recording does. Returns those words.
fn tell_failure(prediction: &mut Prediction, why: String) -> String {
    let mut text = why;
    if prediction.peak.allocated != Bytes::ZERO {
        text += &format!("; until then it took {} of the GPU", prediction.peak.device);
    }
    let first = prediction.notes.first();
    match first.filter(|_| prediction.outcome == Outcome::ScriptFailed) {
        Some(first) => prediction.notes[0] = remark(first.code(), &text),
        None => prediction.notes.insert(0, remark("script-failed", &text)),
    }
    prediction.outcome = Outcome::ScriptFailed;
    text
}

fn remark(code: &str, text: &str) -> Note {
    Note::Remark { code: code.to_owned(), text: text.to_owned() }
}

/// The report for people.
fn show(prediction: &Prediction, color: Color, out: &mut dyn Write) -> anyhow::Result<()> {
    let styles = if color.is_on() { Styles::COLOR } else { Styles::default() };
    let width = terminal_size::terminal_size_of(io::stdout()).map_or(USUAL, |(it, _)| it.0);
    let width = usize::from(width.clamp(NARROW, WIDE));
    // The script has written to the same terminal.
    super::write(out, &format!("\n{}", text::prediction(prediction, styles, width)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_choice_the_card_is_one_that_the_torch_has_kernels_for() {
        let chosen = |cuda: Option<&str>| {
            let torch = python::Torch {
                version: None,
                cuda: cuda.map(str::to_owned),
                path: String::new(),
                is_condas: false,
                support: None,
            };
            largest_for(Some(&torch)).id.as_str()
        };
        assert_eq!(chosen(Some("12.4")), "h200");
        assert_eq!(chosen(Some("12.6")), "h200");
        assert_eq!(chosen(Some("12.8")), "b200");
        assert_eq!(chosen(Some("12.10")), "b200");
        assert_eq!(chosen(Some("13.0")), "b200");
        // What is not known is found out by the run.
        assert_eq!(chosen(None), "b200");
        assert_eq!(chosen(Some("twelve")), "b200");
        assert_eq!(largest_for(None).id, "b200");
    }
}
