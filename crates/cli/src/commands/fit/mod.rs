//! `plimsoll fit`: makes a script fit, by the largest value of a number in its command, or by a plan.

mod advice;
mod blocks;
mod find_max;
mod free;
mod ladder;
mod measure;
mod plans;
mod proof;
mod ranking;
mod template;
mod tuning;

use std::io::Write;

use plimsoll_core::{cards::Card, units::Bytes};

use self::template::Template;
pub(crate) use self::tuning::settings;
use crate::{cli::FitArgs, commands::predict, exit::Exit};

pub(crate) fn run(args: &FitArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let card = card(args)?;
    let template = Template::new(&args.command, &args.set)?;
    match &args.find_max {
        Some(range) => find_max::run(args, &range.parse()?, &template, card, out),
        None => plans::run(args, &template, card, out),
    }
}

/// The card, with the memory that the process may take of it.
fn card(args: &FitArgs) -> anyhow::Result<Card> {
    if args.gpu.is_none() && args.budget.is_none() && args.limit_reserved.is_none() {
        anyhow::bail!(
            "nothing says what it is to fit; name a card with --gpu, or a size with --budget"
        );
    }
    let card = predict::card(args.gpu.as_deref(), args.memory, &args.command)?;
    let Some(budget) = args.budget else { return Ok(card) };
    if card.total < budget {
        let (name, total) = (&card.name, card.total);
        anyhow::bail!("--budget {budget} is more than the {total} of {name}; give less");
    }
    // The phantom refuses what is beyond it, so the allocator sees the budget as it would see a full card.
    predict::card(args.gpu.as_deref(), Some(budget), &args.command)
}

/// What is limited, for people, and how much of it there is.
fn limit(args: &FitArgs, card: &Card) -> (&'static str, Bytes) {
    match args.limit_reserved {
        Some(limit) => ("reserved", limit),
        None => ("on the device", card.total),
    }
}
