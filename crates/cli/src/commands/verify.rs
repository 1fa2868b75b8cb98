//! `plimsoll verify`: some steps of a script on the machine's own card, the same on the phantom of it, and what differs.

use anyhow::Context as _;
use plimsoll_core::{
    cards::Card,
    prediction::{self, OtherEnd},
    recording::Recording,
    verification, views,
};
use serde_json::json;

use crate::{
    cache::{Cache, session::Session},
    contract,
    engine::{
        diagnosis,
        launch::{self, Device, End, Ranks, ScriptCommand, ScriptOutput, Setting, Signals, Stop},
        phantom_run::{self, Choice, How, Run, Runner},
    },
    exit::Exit,
    files::requested_file::RequestedFile,
    gpu::devices::{self, Usage},
    options::{cli::VerifyArgs, ghost_weights::GhostWeights},
    output::{Output, say},
};

/// Requests that are recorded of each run.
const EVENTS: &str = "2000000";

pub(crate) fn run(args: &VerifyArgs, out: &mut Output) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        devices::are_there(),
        "found no NVIDIA GPU on this machine, and verify compares the phantom with a real one; `plimsoll predict` needs no GPU"
    );
    let card = card(args)?;
    let command = ScriptCommand::resolve(&args.command)?;
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let report = args.report.as_deref().map(RequestedFile::open).transpose()?;
    let runner = Runner::new(Cache::open()?, &args.world)?;
    say(&format!("{} steps of {} on {}", args.steps, command.name(), card.name));
    let mut watch = Process { usage: Usage::before() };
    let conf = card.phantom_conf(u32::try_from(devices::visible_count()).unwrap_or(1));
    let real = steps(args, &runner, &command, &conf, Device::Measured, Some(&mut watch))?;
    let Some(real) = real else { return Ok(Exit::CouldNotTell) };
    let n_ranks = verification::ranks(&real).len();
    let all = if 2 <= n_ranks { format!(", all {n_ranks} ranks") } else { String::new() };
    say(&format!("the same on a phantom {}{all}", card.name));
    let held =
        |it: &Recording| watch.usage.most_of(it.pid, verification::device_of(it).unwrap_or(0));
    let compare = |phantom: &[Recording]| {
        verification::compare_ranks(&real, phantom, &card, &held, watch.usage.most())
    };
    let phantom = steps(args, &runner, &command, &conf, Device::Phantom, None)?;
    let Some(phantom) = phantom else { return Ok(Exit::CouldNotTell) };
    let mut ranks = compare(&phantom);
    if verification::are_within(&ranks) == Some(false) {
        // Where a real run may come out in two ways, it may have been the other one.
        for end in phantom_run::left_open(&phantom, &[]) {
            say("the same again on the phantom, with the other of two possible outcomes");
            let conf = conf.clone() + phantom_run::conf_line(end);
            let other = steps(args, &runner, &command, &conf, Device::Phantom, None)?;
            if let Some(other) = other {
                let replayed = matches!(end, OtherEnd::Late | OtherEnd::Routed);
                let between = replayed.then(|| prediction::between_ends(&phantom, &other, &card));
                let between = between.unwrap_or_default();
                verification::take_other_way(&mut ranks, compare(&other), end, &between);
            }
        }
    }
    if let Some(sink) = report {
        let machine = json!({
            "plimsoll": env!("CARGO_PKG_VERSION"),
            "gpu": devices::first().ok().map(|it| it.name),
            "driver": devices::driver(),
        });
        let text = views::verification::report(&ranks, &card, &machine, args.with_lines);
        sink.json(&text, out)?;
    }
    let is_quiet = json.as_ref().is_some_and(RequestedFile::is_stdout);
    if let Some(sink) = json {
        sink.json(&views::verification::json(&ranks, &card), out)?;
    }
    if !is_quiet {
        let text = views::verification::text(&ranks, &card, out.styles());
        out.text(&format!("\n{text}"))?;
    }
    Ok(match verification::are_within(&ranks) {
        Some(true) => Exit::Fits,
        Some(false) => Exit::DoesNotFit,
        None => Exit::CouldNotTell,
    })
}

/// The card of this machine, or the one that is named.
fn card(args: &VerifyArgs) -> anyhow::Result<Card> {
    let Choice { card, how } = phantom_run::choice(args.gpu.as_deref(), None, &args.command)?;
    if let Some(How::Largest(_)) = how {
        let name = devices::first().map(|it| it.name).context("cannot identify this GPU")?;
        anyhow::bail!(
            "this machine's GPU, {name}, is not in the catalogue: measure it with `plimsoll calibrate`, or name a similar card with --gpu"
        );
    }
    Ok(card)
}

/// Runs some steps. None if the script failed; that is said.
fn steps(
    args: &VerifyArgs,
    runner: &Runner,
    command: &ScriptCommand,
    conf: &str,
    device: Device,
    watch: Option<&mut dyn launch::Watch>,
) -> anyhow::Result<Option<Vec<Recording>>> {
    let signals = Signals::hold().context("cannot hold signals")?;
    let settings: [Setting; 2] =
        [(contract::EVENTS, EVENTS.into()), (contract::STACKS, "all".into())];
    let run = Run {
        command,
        conf,
        stop: Stop::Steps(args.steps),
        ranks: &Ranks::All,
        ghost_weights: GhostWeights::Off,
        output: ScriptOutput::ToStderr,
        settings: &settings,
        device,
    };
    let left = runner.run(run, &signals, watch)?;
    let (recordings, _) = phantom_run::read(&left.folders);
    let ended = diagnosis::without_a_late_signal(left.ended, &recordings);
    if matches!(ended.end, End::Code(0)) {
        return Ok(Some(recordings));
    }
    let where_ = if device == Device::Phantom { "on the phantom" } else { "on the card" };
    let why = diagnosis::diagnose(command, &ended, &recordings);
    say(&format!("{where_}: {}", why.unwrap_or_else(|| "the script failed".to_owned())));
    Ok(None)
}

/// Looks now and then at what the process holds.
struct Process {
    usage: Usage,
}

impl launch::Watch for Process {
    fn tick(&mut self, _session: &Session) {
        self.usage.look();
    }
}
