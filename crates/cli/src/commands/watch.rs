//! `plimsoll watch`: looks at a run that is watched, from beside it, and passes its alarms on. The run may be one that asked for it
//! itself, from Python: then this is what puts its alarms into words.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use plimsoll_core::units::Bytes;
use serde_json::{Value, json};

use crate::{
    alarms::{News, Sinks, Teller},
    exit::Exit,
    gpu::machine::{
        self,
        snapshot::{Alarm, Status},
    },
    options::cli::WatchArgs,
    output::{Output, say},
};

/// Between two looks.
const TICK: Duration = Duration::from_millis(500);
/// And where a process waits for what is said.
const SOON: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &WatchArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let sinks = Sinks::open(&args.to)?;
    if let Some(session) = &args.session {
        return for_a_process(args, session, sinks);
    }
    beside(args, sinks, out)
}

/// The other half of `plimsoll.watch()`, until the process `target` has ended or closed our input.
fn for_a_process(args: &WatchArgs, session: &Path, sinks: Sinks) -> anyhow::Result<Exit> {
    let pid: u32 = args.target.parse()?;
    let label = std::env::var(crate::contract::LABEL).unwrap_or_default();
    let mut teller = Teller::new(session, label, sinks, true);
    teller.since = args.since;
    let mut news = News::default();
    let began = machine::started(pid);
    let (closed, is_closed) = mpsc::channel();
    thread::spawn(move || {
        // It writes before it closes: a child that it forked keeps the pipe open.
        let _ = io::stdin().read(&mut [0_u8]);
        let _ = closed.send(());
    });
    loop {
        // A child of it may have inherited our input, and outlive it.
        let is_over = is_closed.try_recv().is_ok() || machine::started(pid) != began;
        for (pid, notes) in news.of(session) {
            teller.tell(pid, &notes);
        }
        if is_over {
            break;
        }
        thread::sleep(SOON);
    }
    teller.finish();
    Ok(Exit::Fits)
}

/// Looks at the status files of the runs that `target` names, until all of them have ended.
fn beside(args: &WatchArgs, mut sinks: Sinks, out: &mut Output) -> anyhow::Result<Exit> {
    let is_meant =
        |pid: u32, it: &Status| pid.to_string() == args.target || it.label == args.target;
    let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
    let mut exit = Exit::Fits;
    loop {
        let all = machine::running();
        let meant: Vec<_> = all.iter().filter(|it| is_meant(it.0, &it.1)).collect();
        if let [(pid, quiet), ..] = meant[..]
            && seen.is_empty()
            && meant.iter().all(|it| !it.1.raises_alarms)
        {
            anyhow::bail!(
                "{} ({pid}) runs without alarms: start it with `plimsoll run --watch`. `plimsoll top` shows it",
                quiet.label
            );
        }
        if meant.is_empty() && seen.is_empty() {
            let watched = all.iter().filter(|it| it.1.raises_alarms);
            let known: Vec<String> =
                watched.map(|(pid, it)| format!("{} ({pid})", it.label)).collect();
            let known = match known.is_empty() {
                true => "no run is watched here".to_owned(),
                false => format!("watched are {}", known.join(", ")),
            };
            anyhow::bail!(
                "there is no watched run {:?}: {known}. Start one with `plimsoll run --watch -- COMMAND`, or call `plimsoll.watch()` in the script",
                args.target
            );
        }
        for (pid, status) in &meant {
            if !seen.contains_key(pid) && !args.json {
                out.text(&format!("{}\n", how_it_is(*pid, status)))?;
            }
            let seen = seen.entry(*pid).or_default();
            seen.step = status.step;
            for alarm in new_of(&status.alarms, &mut seen.alarms) {
                exit = Exit::DoesNotFit;
                let alarm = json_of(*pid, status, alarm);
                let text = alarm["text"].as_str().unwrap_or_default();
                match args.json {
                    true => out.json(&format!("{alarm}\n"))?,
                    false => out.text(&format!("{text}\n"))?,
                }
                for it in sinks.pass_on(&alarm) {
                    say(&it);
                }
            }
        }
        if meant.is_empty() {
            break;
        }
        thread::sleep(TICK);
    }
    for (pid, it) in &seen {
        if let Some(step) = it.step.filter(|_| !args.json) {
            out.text(&format!("{pid} has ended, after step {step}\n"))?;
        }
    }
    for it in sinks.finish() {
        say(&it);
    }
    Ok(exit)
}

/// What is known of a process so far.
#[derive(Debug, Default)]
struct Seen {
    step: Option<u64>,
    alarms: Vec<(String, Option<u64>)>,
}

/// Those that were not there the last time.
fn new_of<'a>(alarms: &'a [Alarm], known: &mut Vec<(String, Option<u64>)>) -> Vec<&'a Alarm> {
    let mut res = Vec::new();
    for it in alarms {
        let key = (it.code.clone(), it.step);
        if !known.contains(&key) {
            known.push(key);
            res.push(it);
        }
    }
    res
}

/// `train.py (4711): step 120, 0.210 s a step, 12.00 GiB of 79.10 GiB reserved`.
fn how_it_is(pid: u32, it: &Status) -> String {
    let step = it.step.map_or_else(String::new, |it| format!(" step {it},"));
    let pace = it.seconds_per_step.map_or_else(String::new, |it| format!(" {it:.3} s a step,"));
    let devices: Vec<String> =
        it.counters.iter().map(|it| format!("{} of {} reserved", it.reserved, it.total)).collect();
    let held = if devices.is_empty() { "no device in use".to_owned() } else { devices.join(", ") };
    let growth: f64 = it.counters.iter().filter_map(|it| it.growth).sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes a step, not below zero"
    )]
    let growth = if 1.0 <= growth {
        format!(", {} more each step", Bytes(growth as u64))
    } else {
        String::new()
    };
    format!("{} ({pid}):{step}{pace} {held}{growth}", it.label)
}

/// As core words an alarm, as far as the status file has it.
fn json_of(pid: u32, status: &Status, it: &Alarm) -> Value {
    json!({
        "version": 1,
        "code": it.code,
        "text": it.text,
        "step": it.step,
        "label": status.label,
        "pid": pid,
        "rank": status.rank,
        "device": null,
        "time": null,
    })
}
