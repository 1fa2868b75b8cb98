//! `plimsoll run`: the script on the machine's own GPU, with a plan applied and the recorder on. What the script
//! does and how it ends is passed on; we speak only when memory ran out or was not what the plan said.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use plimsoll_core::{
    plan::Plan,
    prediction::{self, Outcome, Prediction, RunFacts},
    recording::Phase,
    units::Bytes,
};

use super::{
    fit,
    predict::{self, largest},
};
use crate::{
    cache::{
        self, Cache,
        bundle::Bundle,
        session::{ProcessFolder, Session},
    },
    cli::RunArgs,
    exit::Exit,
    launch::{self, Device, End, Ended, Launch, ScriptCommand, ScriptOutput, Signals, Stop},
    record,
    sink::Sink,
};

/// Where a recording is kept that nobody asked for, because memory ran out.
const AFTER_OOM: &str = "plimsoll-oom.zip";
/// A peak further from the predicted one than this share is worth a sentence.
const DRIFT: u64 = 2;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    if !args.no_gpu && !has_gpu() {
        anyhow::bail!(
            "found no NVIDIA GPU on this machine (no /dev/nvidiactl); `plimsoll predict` and `plimsoll fit` need none, \
             and --no-gpu runs the script anyway"
        );
    }
    let plan = args.plan.as_deref().map(read_plan).transpose()?.unwrap_or_default();
    let command = ScriptCommand::resolve(&args.command)?;
    let record = args.record.as_deref().map(Sink::open).transpose()?;
    let cache = Cache::open()?;
    let bundle = Bundle::unpack(&cache)?;
    let signals = Signals::hold().context("cannot hold signals")?;
    let session = Session::create(&cache)?;
    let mut settings = fit::settings(&plan);
    settings.push(("PLIMSOLL_EVENTS", args.events.to_string().into()));
    let launch = Launch {
        command: &command,
        bundle: &bundle,
        session: &session,
        stop: Stop::UntilExit,
        output: ScriptOutput::Inherited,
        settings: &settings,
        device: Device::Real,
    };
    let ended = launch::run(launch, &signals, None)?;
    let folders = session.read();
    let (recordings, _) = predict::read(&folders);
    let facts = RunFacts { exit: predict::exit(&ended), seconds: ended.seconds, max: None };
    // Which card it was matters to what is beside the allocator only, and of that nothing is said here.
    let seen = prediction::predict(&recordings, largest(), facts);
    let ran_out = recordings.iter().any(|it| it.ended_out_of_memory());
    match record {
        Some(sink) => keep(args, &ended, &folders, sink)?,
        None if ran_out => {
            let path = free_name();
            keep(args, &ended, &folders, Sink::open(&path)?)?;
            let path = path.display();
            say(&format!("kept the recording as {path}; plimsoll explain {path} says more"));
        }
        None => (),
    }
    if ran_out {
        say(&what_ran_out(&seen));
    } else if let Some(sentence) = drift(&plan, &seen) {
        say(&sentence);
    }
    Ok(Exit::OfScript(match ended.end {
        End::Code(code) => u8::try_from(code).unwrap_or(1),
        End::Signal(number) => u8::try_from(number).map_or(1, |it| it.saturating_add(128)),
    }))
}

fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists() || Path::new("/dev/dxg").exists()
}

fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        anyhow::anyhow!("cannot read the plan {shown}: {}", cache::reason(&error))
    })?;
    Plan::parse(&text).with_context(|| format!("cannot read the plan {shown}"))
}

fn keep(
    args: &RunArgs,
    ended: &Ended,
    folders: &[ProcessFolder],
    sink: Sink,
) -> anyhow::Result<()> {
    let what = record::What { mode: "run", command: &args.command, phantom_conf: None };
    record::write(what, ended, folders, sink)
}

/// A name that nothing has yet: an earlier recording is worth keeping too.
fn free_name() -> PathBuf {
    let numbered = (2..).map(|n| PathBuf::from(AFTER_OOM.replace(".zip", &format!("-{n}.zip"))));
    let mut names = std::iter::once(PathBuf::from(AFTER_OOM)).chain(numbered);
    names.find(|it| !it.exists()).unwrap_or_else(|| AFTER_OOM.into())
}

fn what_ran_out(seen: &Prediction) -> String {
    let Some(oom) = &seen.oom else { return "the script ran out of GPU memory".to_owned() };
    let place =
        oom.at.as_ref().map_or_else(String::new, |it| format!(" at {}:{}", it.file, it.line));
    let phase = oom.phase.map_or("", |it| match it {
        Phase::Forward => ", forward",
        Phase::Backward => ", backward",
        Phase::Optimizer => ", optimizer",
        Phase::ZeroGrad => ", zero_grad",
        Phase::Evaluation => ", evaluation",
    });
    format!(
        "ran out of GPU memory in step {}{phase}{place}: asked for {} while {} were allocated and {} reserved; \
         `plimsoll fit` finds what makes it fit",
        oom.step, oom.requested, oom.allocated, oom.reserved,
    )
}

/// What is to be said when the run took other memory than the plan's run on the phantom.
fn drift(plan: &Plan, seen: &Prediction) -> Option<String> {
    let predicted = plan.predicted_reserved?;
    let reserved = seen.peak.reserved;
    if seen.outcome == Outcome::ScriptFailed || reserved == Bytes::ZERO {
        return None;
    }
    let off = reserved.0.abs_diff(predicted.0);
    let (more, is_off) = (predicted < reserved, predicted.0 / 100 * DRIFT < off);
    is_off.then(|| {
        format!(
            "the plan was made for {predicted} reserved, the run took {reserved}, {} {}; other data, other versions \
             or another card do that: make the plan again with `plimsoll fit`",
            Bytes(off),
            if more { "more" } else { "less" },
        )
    })
}

fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "plimsoll: {sentence}");
}
