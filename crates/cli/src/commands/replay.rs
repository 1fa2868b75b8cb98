//! `plimsoll replay`: a recording, checked against the model of the allocator; or run under other settings.

use std::path::Path;

use anyhow::Context as _;
use plimsoll_core::{
    replay::{self, Config, Program, TorchVersion},
    trace::{DeviceTrace, Settings, Trace},
    units::Bytes,
    views::{
        replay::{ReplayReport, replay as text},
        wire,
    },
};

use crate::{
    exit::Exit,
    files::{recordings, requested_file::RequestedFile},
    options::cli::ReplayArgs,
    output::Output,
    ticker::Ticker,
};

const NOTHING_OUTSIDE: &str = "this replay gives all of --capacity to PyTorch; on a card the CUDA context (some 0.5 GiB), NCCL and other processes need a part: give it as --outside";

const LENDERS: &str = "a recording does not store whether a MemPool has use_on_oom=True, and this one has no stacks that would show it. plimsoll counts requests that such a pool served for the default pool as the pool's own, so the count of retries may differ";

pub(crate) fn run(args: &ReplayArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let json_on_stdout = json.as_ref().is_some_and(RequestedFile::is_stdout);

    let _ticker = Ticker::start(format!("replaying {}", recordings::file_name(&args.file)));
    let (trace, mut notes) = read(&args.file, args.rank)?;
    let device = device(&trace, args.device)?;
    let (torch, (checked, program)) = replay::follow_best(&trace, device);
    let settings = trace.settings.clone().unwrap_or_default();
    let config = config(args, &settings, torch, &program)?;
    let sweep = args.sweep.then(|| replay::candidates(&program, &config));
    if args.capacity.is_some() && args.outside == Bytes::ZERO {
        notes.push(NOTHING_OUTSIDE.to_owned());
    }
    if lenders_are_unknown(&trace, torch) {
        notes.push(LENDERS.to_owned());
    }
    let report = ReplayReport {
        trace: &trace,
        device,
        torch,
        checked: &checked,
        ends_failing: program.ends_failing(),
        what_if: changes(args).then(|| replay::what_if(&program, &config)),
        alloc_conf: args.alloc_conf.as_deref().unwrap_or(&settings.text),
        config: &config,
        sweep: sweep.as_deref().unwrap_or_default(),
        notes: &notes,
    };

    if let Some(sink) = json {
        sink.json(&wire::replay(&report), out)?;
    }
    if !json_on_stdout {
        out.report(&text(&report, out.styles()).to_string(), true, &[])?;
    }
    Ok(match report.ends_early() {
        _ if report.runs_out() => Exit::DoesNotFit,
        Some(_) => Exit::CouldNotTell,
        None => Exit::Fits,
    })
}

/// The trace in `path`, a file or a folder of ranks, and what could not be read: that of `rank`, or of the
/// process that asked most of its allocators.
fn read(path: &Path, rank: Option<u32>) -> anyhow::Result<(Trace, Vec<String>)> {
    let (mut processes, unread) = recordings::of_path(path)?;
    let (chosen, choice) = recordings::choose(&processes, rank)?;
    let name = chosen.name.clone();
    processes.retain(|it| it.name == name);
    let process = processes.pop().context("it has no process")?;
    let trace = process.recording.trace.context("no process of this recording used a GPU")?;
    Ok((trace, unread.into_iter().chain(process.warnings).chain(choice).collect()))
}

/// The device to replay: the one given, or the one with most events.
fn device(trace: &Trace, given: Option<usize>) -> anyhow::Result<usize> {
    let used = |it: &DeviceTrace| !it.events.is_empty() || !it.segments.is_empty();
    let all: Vec<usize> =
        trace.devices.iter().zip(0..).filter(|(it, _)| used(it)).map(|(_, index)| index).collect();
    match given {
        Some(index) if all.contains(&index) => Ok(index),
        Some(index) => anyhow::bail!(
            "nothing happened on device {index}; this recording has {}",
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        ),
        None => all
            .into_iter()
            .rev()
            .max_by_key(|it| trace.devices[*it].events.len())
            .context("nothing to replay: the recording has no memory on any device"),
    }
}

/// Whether there are MemPools, whose ids begin with 0 unlike those of graphs, and nothing that tells which of them lend.
fn lenders_are_unknown(trace: &Trace, torch: TorchVersion) -> bool {
    let is_mem_pool = |(graph, own): &(i64, i64)| *graph == 0 && *own != 0;
    TorchVersion::two(8) <= torch
        && trace.stacks.n_frames() == 0
        && trace.pools.iter().any(is_mem_pool)
}

/// Whether anything is to be other than it was.
fn changes(args: &ReplayArgs) -> bool {
    let ReplayArgs { capacity, fraction, alloc_conf, torch, .. } = args;
    capacity.is_some() || fraction.is_some() || alloc_conf.is_some() || torch.is_some()
}

fn config(
    args: &ReplayArgs,
    settings: &Settings,
    recorded: TorchVersion,
    program: &Program,
) -> anyhow::Result<Config> {
    let torch = args.torch.unwrap_or(recorded);
    let mut config = match (&args.alloc_conf, args.torch) {
        (Some(text), _) => Config::of_alloc_conf(text, torch)?,
        (None, Some(_)) => Config::of_recording_for(settings, torch)
            .context("the recording's own settings do not fit --torch: give --alloc-conf")?,
        (None, None) => Config::of_recording(settings, torch),
    };
    config.capacity = match args.capacity {
        Some(capacity) if capacity <= args.outside => anyhow::bail!(
            "--capacity {capacity} is too small: {} are used outside PyTorch, and nothing remains for it",
            args.outside
        ),
        Some(capacity) => Some(capacity.saturating_sub(args.outside)),
        // What the recorded run could not go beyond holds for this one too.
        None => program.observed_limit,
    };
    // The fraction is one of the whole card.
    config.card = args.capacity;
    if args.capacity.is_none() && args.fraction.is_none() {
        config.known_limit = program.known_limit;
    }
    config.fraction = args.fraction.or(config.fraction);
    Ok(config)
}
