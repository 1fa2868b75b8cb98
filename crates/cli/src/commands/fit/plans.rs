//! The cheapest plan that fits: shown, and written into files.

use std::time::Instant;

use anyhow::Context as _;
use plimsoll_core::{plan::Plan, views::glossary};
use plimsoll_fit::{
    change::change,
    search::{self, Candidate, Found, Rules},
    views::plan::{self as view, Proposal, Shown},
};

use super::{Template, driver::Driver, kept::Kept, template};
use crate::{
    cli::FitArgs,
    devices::{self, DeviceNow},
    exit::Exit,
    launch::ScriptCommand,
    output::Output,
    requested_file::RequestedFile,
    shown_command,
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
    let started = Instant::now();
    let words = template.words();
    let kept = Kept::check(&args.plan, &ScriptCommand::resolve(&words)?, args.force)?;
    let same_words = |_| words.clone();
    let mut driver = Driver::new(args, &rules.card, &same_words)?;
    let rules = Rules { speaks_of_compile: driver.speaks_of_compile()?, ..rules };
    let found =
        driver.drive(|| search::plans(rules.clone()))?.map_err(|why| anyhow::anyhow!("{why}"))?;
    let Found {
        plain,
        retries,
        plans,
        closest,
        left,
        advice,
        recipes,
        places,
        seen,
        grows,
        interrupted,
    } = &found;
    let fits = plain.fits || retries.is_some() || !plans.is_empty() || !recipes.is_empty();
    let folder = std::env::current_dir().unwrap_or_default();
    let folder = folder.to_string_lossy();
    let best = plans.first();
    let leads = best.or(Some(plain).filter(|it| it.fits));
    let change = best.map(|it| change(&it.plan, places, &folder)).unwrap_or_default();
    let recipes = recipes.iter().map(|it| Shown::of(it, places, &folder)).collect();
    let proposal = Proposal {
        patch_line: format!("patch -p0 < {}", shown_command::shown(&[kept.diff().into()])),
        change,
        card,
        what,
        limit,
        as_it_is: plain.row(),
        fits_as_it_is: plain.fits,
        retries: *retries,
        depends: best.into_iter().chain([plain]).find_map(|it| it.took.depends.clone()),
        if_found: leads.and_then(|it| it.if_found),
        grows: grows.clone(),
        plans: plans.iter().map(Candidate::row).collect(),
        advice: advice.clone(),
        recipes,
        closest: closest.as_ref().map(Candidate::row),
        left: left.clone(),
        left_at: closest.as_ref().map(|it| it.took.lines.clone()).unwrap_or_default(),
        run_line: template::run_line(&args.plan, &words),
        runs: driver.n_runs(),
        seconds: started.elapsed().as_secs_f64(),
        reached: driver.reached(),
        interrupted: *interrupted,
        seen: seen.clone(),
        measured_on: device.map(|it| it.name),
    };
    // A script that fits has a plan, too: without remedies, and with the first step to compare the real one with.
    if let Some(best) = leads {
        let head = view::file_head(&proposal, &best.row());
        let predicted_reserved = Some(best.took.peak.reserved);
        // The first batch of the real run is another one than the worst.
        let first_step = best.took.first_step.clone();
        let first_step =
            first_step.filter(|_| args.worst_seq.is_none() && args.worst_size.is_none());
        let plan = Plan { predicted_reserved, first_step, ..best.plan.clone() };
        kept.write(&plan.file(&head), &proposal.change.diff)?;
    }
    if let Some(sink) = json {
        sink.json(&view::json(&proposal), out)?;
    }
    if !args.quiet && !json_on_stdout {
        let report = view::text(&proposal);
        let words = glossary::line_of(&report).map(|it| format!("\n{it}\n")).unwrap_or_default();
        out.text(&(report + &words))?;
    }
    Ok(match (fits, interrupted) {
        (true, _) if proposal.runs_out_if_found() || proposal.fails_by_itself() => {
            Exit::CouldNotTell
        }
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
