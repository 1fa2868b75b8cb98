//! The cheapest plan that fits: shown, and written into files.

use std::{path::Path, time::Instant};

use anyhow::Context as _;
use plimsoll_core::{
    plan::Plan,
    views::{glossary, text::Extent},
};
use plimsoll_fit::{
    search::{self, Rules},
    views::plan::{self as view, Beside, Proposal},
};

use super::{Template, driver::Driver, saved_plan::SavedPlan, template};
use crate::{
    engine::launch::ScriptCommand,
    exit::Exit,
    files::requested_file::RequestedFile,
    gpu::devices::{self, DeviceNow},
    options::{cli::FitArgs, shown_command},
    output::Output,
    shell,
};

pub(super) fn run(
    args: &FitArgs,
    template: &Template,
    rules: Rules,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let device = args.measure.then(device).transpose()?;
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let json_on_stdout = json.as_ref().is_some_and(RequestedFile::is_stdout);
    let rules = Rules { measure_in: device.as_ref().map(|it| it.free), ..rules };
    let (card, what, limit) = (rules.card.name.clone(), rules.what(), rules.most());
    let card_id = rules.card.id.clone();
    let started = Instant::now();
    let words = template.words();
    let kept = SavedPlan::check(&args.plan, &ScriptCommand::resolve(&words)?, args.force)?;
    let same_words = |_| words.clone();
    let mut driver = Driver::new(args, &rules.card, &same_words)?;
    let rules = Rules { speaks_of_compile: driver.speaks_of_compile()?, ..rules };
    let found = driver
        .drive(&rules, || search::plans(rules.clone()))?
        .map_err(|why| anyhow::anyhow!("{why}"))?;
    let folder = std::env::current_dir().unwrap_or_default();
    let gpu = args.gpu.as_deref().unwrap_or(&card_id);
    let check = |plan: Option<&Path>| shown_command::check(args, gpu, plan, &words);
    let beside = Beside {
        card,
        what,
        limit,
        run_line: template::run_line(&args.plan, &words),
        check_line: check(Some(&args.plan)),
        check_change: check(None),
        diff_file: shell::shown(&[kept.diff().into()]),
        cards_line: shown_command::cards(args, &words),
        plan_file: shell::shown(&[args.plan.clone().into()]),
        runs: driver.n_runs(),
        seconds: started.elapsed().as_secs_f64(),
        reached: driver.reached(),
        measured_on: device.map(|it| it.name),
    };
    let proposal = Proposal::new(found, beside, &folder.to_string_lossy());
    let found = proposal.found();
    // A script that fits has a plan, too: without remedies, and with the first step to compare the real one with.
    if let Some(best) = found.best().filter(|_| !found.was_stopped_at_once()) {
        let head = view::file_head(&proposal, best);
        let predicted_reserved = Some(best.took.peak.reserved);
        // The first batch of the real run is another one than the worst.
        let first_step = best.took.first_step.clone();
        let first_step =
            first_step.filter(|_| args.worst_seq.is_none() && args.worst_size.is_none());
        let plan = Plan { predicted_reserved, first_step, ..best.plan.clone() };
        kept.write(&plan.file(&head), proposal.diff())?;
    }
    if let Some(sink) = json {
        sink.json(&view::json(&proposal), out)?;
    }
    if !args.quiet && !json_on_stdout {
        let report = view::text(&proposal, if args.full { Extent::Full } else { Extent::Short });
        let words = glossary::line_of(&report).map(|it| format!("\n{it}\n")).unwrap_or_default();
        out.report(&(report + &words), args.full, &[])?;
    }
    Ok(match (found.fits(), found.interrupted) {
        (true, _) if found.runs_out_if_found() || found.fails_by_itself() => Exit::CouldNotTell,
        (true, _) if found.so_far().is_some() => Exit::CouldNotTell,
        (true, _) => Exit::Fits,
        (false, false) => Exit::DoesNotFit,
        (false, true) => Exit::CouldNotTell,
    })
}

/// The device to measure on.
fn device() -> anyhow::Result<DeviceNow> {
    devices::first().context(
        "--measure runs steps on this machine's own GPU, and none was found; leave it out, and step times are estimates",
    )
}
