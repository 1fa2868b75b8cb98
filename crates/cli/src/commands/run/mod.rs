//! `plimsoll run`: the script on the machine's own GPU, with a plan applied and the recorder on. What the script
//! does and how it ends is passed on; we speak only when memory ran out or was not what the plan said.

mod fitted;
mod phase;
mod recordings;
mod watch;

use std::{
    env,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use plimsoll_core::{
    plan::{Drift, Plan, drift},
    prediction::{self, Outcome, Prediction},
    recording::{FirstStep, Recording, Redone},
    units::Bytes,
    views::run as view,
};

use self::{phase::in_phase, watch::Watch};
use super::explain;
use crate::{
    alarms::{self, Sinks, Teller},
    cache::{Cache, bundle::Bundle, session::Session},
    commands::misplaced,
    contract,
    engine::{
        launch::{
            self, Device, End, Launch, Ranks, ScriptCommand, ScriptOutput, Setting, Signals, Stop,
        },
        phantom_run, plan_settings,
    },
    exit::Exit,
    files::requested_file::RequestedFile,
    gpu::devices,
    options::{cli::RunArgs, ghost_weights::GhostWeights},
    output::{self, Output, say},
};

/// How wide an explanation is: it goes to standard error, between what the script writes.
const WIDTH: usize = 100;

pub(crate) fn run(args: &RunArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let is_predicted = env::var_os(contract::MODE).is_some_and(|it| it != "run")
        && env::var_os(contract::SESSION).is_some_and(|it| Path::new(&it).is_dir());
    if is_predicted {
        return step_aside(args);
    }
    if !args.no_gpu && !has_gpu() {
        anyhow::bail!(
            "found no NVIDIA GPU on this machine (no /dev/nvidiactl); `plimsoll predict` and `plimsoll fit` need none, \
             and --no-gpu runs the script anyway"
        );
    }
    let command = ScriptCommand::resolve(&args.command)?;
    // The search of --fit says it, too.
    if let Some(it) = misplaced::remark("run", &args.command).filter(|_| !args.fit) {
        say(&it);
    }
    let path = args.record.as_deref().map(recordings::asked_for);
    let record = path.as_deref().map(RequestedFile::open).transpose()?;
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let plan = match (&args.plan, args.fit) {
        (_, true) => match fitted::plan(args)? {
            Ok(plan) => plan,
            Err(code) => return Ok(Exit::OfScript(u8::try_from(code).unwrap_or(2))),
        },
        (Some(path), false) => plan_settings::read(path)?,
        (None, false) => Plan::default(),
    };
    let ranks = ranks(args, &plan, &command)?;
    let is_of_a_watch = args.to.is_given() || args.expect.is_some();
    if is_of_a_watch && !args.watch {
        anyhow::bail!("--expect, --alarms, --on-alarm and --webhook need --watch");
    }
    let sinks = args.watch.then(|| Sinks::open(&args.to)).transpose()?;
    warn_if_too_little_is_free(&plan);
    if let Some(seen) = more_gpus_than_planned(args, &plan, &command) {
        say(&format!(
            "the plan is for 1 GPU, and the script sees {seen}. A library that spreads each batch over all of them, \
             as transformers' Trainer does, takes other memory than planned. To show the script one: CUDA_VISIBLE_DEVICES=0"
        ));
    }
    let cache = Cache::open()?;
    let bundle = Bundle::unpack(&cache)?;
    let signals = Signals::hold().context("cannot hold signals")?;
    let session = Session::create(&cache)?;
    let settings = settings(args, &plan);
    let launch = Launch {
        command: &command,
        bundle: &bundle,
        session: &session,
        layer: None,
        stop: Stop::UntilExit,
        ranks: &ranks,
        ghost_weights: GhostWeights::Off,
        output: ScriptOutput::Inherited,
        settings: &settings,
        device: Device::Real,
        nursery: None,
    };
    let mut watch = Watch::new(plan.first_step.clone(), args.survive);
    watch.teller = sinks.map(|it| Teller::new(session.path(), label(args), it, false));
    let ended = launch::run(launch, &signals, Some(&mut watch))?;
    if let Some(it) = watch.teller.take() {
        it.finish();
    }
    let folders = session.read();
    let (recordings, _) = phantom_run::read(&folders);
    let facts = phantom_run::facts(&ended, None);
    // Which card it was matters to what is beside the allocator only, and of that nothing is said here.
    let seen = prediction::predict(&recordings, phantom_run::largest(), facts);
    let ran_out = recordings.iter().any(Recording::ended_out_of_memory);
    let to = match (path, record) {
        (Some(path), Some(sink)) => Some((path, sink)),
        _ if ran_out => {
            let path = recordings::after_oom();
            RequestedFile::open(&path).ok().map(|sink| (path, sink))
        }
        _ => None,
    };
    let mut files = Vec::new();
    if let Some((path, sink)) = to {
        files = recordings::write((&path, sink), &args.command, &ended, folders, &recordings, out)?;
    }
    for it in recordings.iter().filter_map(|it| it.notes.unsupported.as_ref()).take(1) {
        say(&format!("no recording, and no plan was applied: {}", it.text));
    }
    // What was said after the first step is not said again.
    let at_first = watch.drifts.into_iter().next();
    let later = at_first.is_none().then(|| of_the_whole_run(&plan, &seen)).flatten();
    if ran_out {
        explain_now(&seen, &recordings, &files);
    } else if let Some(it) = &later {
        say(&it.sentence("the run"));
    }
    let drift = at_first.or(later);
    if args.survive {
        say_what_was_survived(&recordings);
    }
    if args.measure {
        say_step_times(&recordings);
    }
    if let Some(sink) = json {
        let report = view::json(&seen, &recordings, &plan, drift.as_ref(), &files);
        sink.json(&report, out)?;
    }
    Ok(Exit::OfScript(match ended.end {
        End::Code(code) => u8::try_from(code).unwrap_or(1),
        End::Signal(number) => u8::try_from(number).map_or(1, |it| it.saturating_add(128)),
    }))
}

/// Inside `plimsoll predict` the outer one records, and there is no device to ask: only the plan is ours.
fn step_aside(args: &RunArgs) -> anyhow::Result<Exit> {
    let plan = args.plan.as_deref().filter(|_| !args.fit).map(plan_settings::read).transpose()?;
    let command = ScriptCommand::resolve(&args.command)?;
    let mut process = Command::new(&command.program);
    process.args(&command.arguments);
    process.envs(command.environment.iter().map(|it| (&it.0, &it.1)));
    process.envs(plan_settings::settings(&plan.unwrap_or_default(), &args.command));
    Err(command.cannot_start(&process.exec()))
}

/// What the script's environment has more than the agent needs.
fn settings(args: &RunArgs, plan: &Plan) -> Vec<Setting> {
    let mut res = plan_settings::settings(plan, &args.command);
    res.push((contract::EVENTS, args.events.to_string().into()));
    res.push((contract::STACKS, args.stacks.word().into()));
    if args.survive {
        res.push((contract::SURVIVE, "1".into()));
    }
    if args.measure {
        res.push((contract::MEASURE, "1".into()));
    }
    res.push((contract::WATCH, if args.watch { "1" } else { "status" }.into()));
    res.push((contract::LABEL, label(args).into()));
    if args.watch {
        let expected = args.expect.as_ref().map(|it| it.reserved).or(plan.predicted_reserved);
        if let Some(it) = expected {
            res.push((contract::EXPECTED, it.0.to_string().into()));
        }
    }
    res
}

/// What a watched run is called.
fn label(args: &RunArgs) -> String {
    args.label.clone().unwrap_or_else(|| alarms::label(&args.command))
}

/// One process, or one for each device of a plan for several.
fn ranks(args: &RunArgs, plan: &Plan, command: &ScriptCommand) -> anyhow::Result<Ranks> {
    let Some(world) = plan.gpus() else { return Ok(Ranks::All) };
    let is_ranked = env::var("WORLD_SIZE").is_ok_and(|it| it != "1");
    if is_ranked || !command.is_python() || command.is_launcher() {
        anyhow::bail!(
            "the plan is for {world} devices and starts `python train.py` once for each; remove the launcher from the command"
        );
    }
    match devices::count().filter(|it| *it < world && !args.no_gpu) {
        Some(n) => anyhow::bail!("the plan is for {world} devices, and this machine has {n}"),
        None => Ok(Ranks::Several { world }),
    }
}

fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists() || Path::new("/dev/dxg").exists() || devices::are_there()
}

/// How many GPUs a process sees of which the plan uses one, if that is more than one.
fn more_gpus_than_planned(args: &RunArgs, plan: &Plan, command: &ScriptCommand) -> Option<usize> {
    let is_planned = args.plan.is_some() || args.fit;
    let is_ranked = env::var_os("LOCAL_RANK").is_some() || command.is_launcher();
    let uses_several = plan.remedies.iter().any(|it| it.gpus().is_some());
    if !is_planned || is_ranked || uses_several || args.no_gpu {
        return None;
    }
    Some(devices::visible_count()).filter(|it| 1 < *it)
}

/// The plan knows what will be reserved; what others hold may leave less than that.
fn warn_if_too_little_is_free(plan: &Plan) {
    let (Some(predicted), Ok(device)) = (plan.predicted_reserved, devices::first()) else { return };
    if predicted <= device.free {
        return;
    }
    let holders = device.holders();
    let holders = if holders.is_empty() { String::new() } else { format!(" (held by {holders})") };
    say(&format!(
        "the plan needs at least {predicted} on the device, and {} of {} are free{holders}; it may run out of memory. `plimsoll run --fit` plans for free memory",
        device.free, device.total
    ));
}

/// Memory ran out: what happened, why and what to change, here and now.
fn explain_now(seen: &Prediction, recordings: &[Recording], files: &[PathBuf]) {
    say(&what_ran_out(seen));
    let rank = |it: &Recording| it.notes.begin.as_ref().and_then(|it| it.rank);
    let of_first = recordings.iter().find(|it| it.ended_out_of_memory()).and_then(rank);
    let first =
        files.iter().find(|it| of_first.is_none() || crate::files::ranks::of_path(it) == of_first);
    let Some(path) = first.or(files.first()) else { return };
    match explain::report(path, WIDTH) {
        Ok(report) => {
            output::report(&format!("\n{}\n", report.trim_end()));
        }
        Err(error) => say(&format!("cannot explain it: {error:#}")),
    }
    let shown: Vec<String> = files.iter().map(|it| it.display().to_string()).collect();
    say(&format!(
        "saved the recording as {}; look at it with `plimsoll view {}`",
        shown.join(", "),
        path.display()
    ));
}

fn what_ran_out(seen: &Prediction) -> String {
    let Some(oom) = &seen.oom else { return "the script ran out of GPU memory".to_owned() };
    let place =
        oom.at.as_ref().map_or_else(String::new, |it| format!(" at {}:{}", it.file, it.line));
    let phase = in_phase(oom.phase);
    format!(
        "ran out of GPU memory in step {}{phase}{place}: asked for {} while {} were allocated and {} reserved; `plimsoll fit` finds a plan that fits",
        oom.step, oom.requested, oom.allocated, oom.reserved,
    )
}

/// What the whole run took other than the plan's run on the phantom.
fn of_the_whole_run(plan: &Plan, seen: &Prediction) -> Option<Drift> {
    let predicted = plan.predicted_reserved?;
    if seen.outcome == Outcome::ScriptFailed || seen.peak.reserved == Bytes::ZERO {
        return None;
    }
    // Without a first step the plan was made for the worst batch (--worst-seq, --worst-size), which need not have come.
    if plan.first_step.is_none() && seen.peak.reserved < predicted {
        return None;
    }
    let nothing = FirstStep::default();
    let expected = plan.first_step.as_ref().unwrap_or(&nothing);
    let facts = seen.first_step_facts.as_ref().unwrap_or(&nothing);
    drift(expected, facts, predicted, seen.peak.reserved)
}

/// How often memory ran out and training went on; nothing if it never did.
fn say_what_was_survived(recordings: &[Recording]) {
    let redone = recordings.iter().flat_map(|it| &it.notes.redone);
    let (n, seconds) = redone.fold((0_u32, 0.0), |(n, sum), it| match it.how {
        Redone::As(_, seconds) => (n + 1, sum + seconds),
        Redone::Refused(_) => (n, sum),
    });
    if 0 < n {
        let times = if n == 1 { "once".to_owned() } else { format!("{n} times") };
        say(&format!(
            "memory ran out {times} and training went on; repeating parts of steps took {seconds:.1} s. `plimsoll fit` finds a plan in which all steps fit"
        ));
    }
}

fn say_step_times(recordings: &[Recording]) {
    let mut nothing = true;
    for it in recordings {
        let Some(times) = it.notes.step_times else { continue };
        nothing = false;
        let rank = it.notes.begin.as_ref().and_then(|it| it.rank);
        let whose = rank.map_or_else(String::new, |it| format!("rank {it}: "));
        let spread = times.device.unwrap_or(times.host);
        say(&format!(
            "{whose}a step takes {:.4} s (median of {}; 80 % take {:.4} to {:.4} s; without the first {})",
            spread.median, spread.count, spread.low, spread.high, times.left_out,
        ));
    }
    if nothing {
        say("too few steps ran to measure the time of one");
    }
}
