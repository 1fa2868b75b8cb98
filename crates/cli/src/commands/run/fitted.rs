//! `plimsoll run --fit`: a plan for what is free on the device right now, made before the script starts.

use std::{
    env,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use nix::sys::{prctl, signal::Signal};
use plimsoll_core::{cards, codes::FitCode, plan::Plan, units::Bytes};
use serde_json::Value;

use crate::{
    engine::{phantom_run, plan_settings},
    files::bounded_file,
    gpu::devices,
    options::cli::RunArgs,
    output::{self, say},
};

/// What a plan is made for.
enum Search {
    /// The script fits as it is; the plan has no remedies, and what the first step took.
    AsItIs(Plan),
    With(Plan),
    /// The search ended without an answer to use; it has said why, and with this code.
    Failed(i32),
}

/// The plan to run with, or the exit code of a search that found none.
pub(super) fn plan(args: &RunArgs) -> anyhow::Result<Result<Plan, i32>> {
    let device = devices::first().context(
        "--fit plans for the free memory of the device, which is unknown here; give a plan with --plan, or make one with `plimsoll fit --gpu CARD -- COMMAND`",
    )?;
    let card = match &args.gpu {
        Some(given) => given.clone(),
        None => card_id(&device.name)?,
    };
    // NVML counts what the driver keeps for itself; a script sees less.
    let free = device.free.min(phantom_run::card(Some(&card), None, &[])?.total);
    let holders = device.holders();
    let holders = if holders.is_empty() { holders } else { format!(" ({holders})") };
    let total = device.total;
    say(&format!(
        "{} of {total} of {} are free{holders}; planning for that",
        device.free, device.name
    ));
    Ok(match search(args, &card, free)? {
        Search::AsItIs(plan) => {
            say("it fits without changes");
            Ok(plan)
        }
        Search::With(plan) => {
            say(&format!("running with {}", plan.shown()));
            Ok(plan)
        }
        Search::Failed(code) => Err(code),
    })
}

/// What the search may use, in its own words.
fn options(args: &RunArgs) -> Vec<String> {
    let mut res = Vec::new();
    for (name, remedies) in [("--allow", &args.allow), ("--forbid", &args.forbid)] {
        if !remedies.is_empty() {
            res.extend([name.to_owned(), remedies.join(",")]);
        }
    }
    if args.keep_numerics {
        res.push("--keep-numerics".to_owned());
    }
    if args.until_exit {
        res.push("--until-exit".to_owned());
    }
    res.extend(args.writes.as_ref().map(|it| format!("--writes={it}")));
    res.extend(args.writes_max.map(|it| format!("--writes-max={}", it.0)));
    if args.offline {
        res.push("--offline".to_owned());
    }
    if args.force {
        res.push("--force".to_owned());
    }
    res.extend(args.worst_seq.map(|it| format!("--worst-seq={it}")));
    res.extend(args.worst_size.map(|it| format!("--worst-size={it}")));
    res.extend(args.assume.iter().map(|it| format!("--assume={it}")));
    res
}

/// The card of the catalogue that the driver calls `name`.
fn card_id(name: &str) -> anyhow::Result<String> {
    let card = cards::catalogue().iter().find(|it| it.name == name);
    let card = card.with_context(|| {
        format!(
            "the catalogue has no {name:?}; name a similar card, or a file that describes it, with --gpu (`plimsoll cards`, docs/cards.md)"
        )
    })?;
    Ok(card.id.clone())
}

/// `plimsoll fit` as a process of its own: it runs the script many times and ends all that these leave.
fn search(args: &RunArgs, card: &str, free: Bytes) -> anyhow::Result<Search> {
    let folder = tempfile::tempdir().context("cannot create a folder for the plan")?;
    let kept = folder.path().join("plan.toml");
    let path: &Path = args.plan.as_deref().unwrap_or(&kept);
    let json = folder.path().join("fit.json");
    let own = env::current_exe().context("cannot find plimsoll itself")?;
    let mut fit = Command::new(own);
    fit.args(["fit", "--gpu", card, "--budget", &format!("{}B", free.0), "--plan"]).arg(path);
    fit.arg("--json").arg(&json).args(options(args)).arg("--").args(&args.command);
    // SAFETY: between fork and exec one system call is made, on a number.
    unsafe {
        // Nobody waits for a plan when we are killed.
        fit.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGTERM)?));
    }
    // What the script prints belongs to its real run.
    let told = fit.stdout(Stdio::piped()).stderr(Stdio::inherit()).output();
    let told = told.context("cannot start `plimsoll fit`")?;
    let answer = bounded_file::bytes(&json, bounded_file::REPORT).ok();
    let answer: Option<Value> = answer.and_then(|it| serde_json::from_slice(&it).ok());
    let outcome = answer.as_ref().and_then(|it| it["outcome"].as_str());
    match outcome.and_then(FitCode::of_word) {
        Some(FitCode::Fits) => Ok(Search::AsItIs(plan_settings::read(path)?)),
        Some(FitCode::FitsWithPlan) => Ok(Search::With(plan_settings::read(path)?)),
        // The real run computes what nobody did, comes to what no run did, and is watched; and one that fails does so under its own eyes.
        Some(FitCode::Depends | FitCode::ScriptFailed | FitCode::FitsSoFar) => {
            output::report(&String::from_utf8_lossy(&told.stdout));
            let plan = plan_settings::read(path)?;
            let is_empty = plan.remedies.is_empty();
            Ok(if is_empty { Search::AsItIs(plan) } else { Search::With(plan) })
        }
        found @ (Some(
            FitCode::FitsWithRecipe | FitCode::Grows | FitCode::Interrupted | FitCode::DoesNotFit,
        )
        | None) => {
            output::report(&String::from_utf8_lossy(&told.stdout));
            // A switch in the script is a person's to set: for a run as it is, nothing fits.
            let is_by_hand = found == Some(FitCode::FitsWithRecipe);
            let code = if is_by_hand { 1 } else { told.status.code().unwrap_or(2) };
            Ok(Search::Failed(code))
        }
    }
}
