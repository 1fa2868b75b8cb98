//! `plimsoll fit`: makes a script fit, by the largest value of a number in its command, or by a plan.

mod advice;
mod blocks;
mod by_remedies;
mod find_max;
mod free;
mod ladder;
mod left_out;
mod measure;
mod nearest;
mod plans;
mod proof;
mod ranking;
mod template;
mod tuning;

use std::io::Write;

use plimsoll_core::{
    cards::Card,
    plan::{CATALOGUE, Numbers, Offer, find},
    units::Bytes,
};

use self::template::Template;
pub(crate) use self::tuning::settings;
use crate::{cli::FitArgs, exit::Exit, phantom_run};

pub(crate) fn run(args: &FitArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let card = card(args)?;
    for id in args.allow.iter().chain(&args.forbid) {
        if find(id).is_none() {
            let known: Vec<_> = CATALOGUE.iter().map(|it| it.id).collect();
            anyhow::bail!("there is no remedy {id}; there are {}", known.join(", "));
        }
    }
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
    let card = phantom_run::card(args.gpu.as_deref(), args.memory, &args.command)?;
    let Some(budget) = args.budget else { return Ok(card) };
    if card.total < budget {
        let (name, total) = (&card.name, card.total);
        anyhow::bail!("--budget {budget} is more than the {total} of {name}; give less");
    }
    // The phantom refuses what is beyond it, so the allocator sees the budget as it would see a full card.
    phantom_run::card(args.gpu.as_deref(), Some(budget), &args.command)
}

/// Whether the options leave this remedy to the search.
fn is_allowed(args: &FitArgs, id: &str) -> bool {
    let Some(kind) = find(id) else { return false };
    let is_named = args.allow.iter().any(|it| it == id);
    let is_offered = match kind.offer {
        Offer::Usual => args.allow.is_empty() || is_named,
        Offer::Asked => is_named,
        Offer::ByHand => false,
    };
    let keeps = kind.numbers < Numbers::Precision;
    is_offered && !args.forbid.iter().any(|it| it == id) && (keeps || !args.keep_numerics)
}

/// What is limited, for people, and how much of it there is.
fn limit(args: &FitArgs, card: &Card) -> (&'static str, Bytes) {
    match args.limit_reserved {
        Some(limit) => ("reserved", limit),
        None => ("on the device", card.total),
    }
}
