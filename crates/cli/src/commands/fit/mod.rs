//! `plimsoll fit`: makes a script fit, by the largest value of a number in its command, or by a plan. What to run is
//! said by a search of the core; here it is run, and what was found is shown and written.

mod card;
mod driver;
mod find_max;
mod in_file;
mod plans;
mod readings;
mod saved_plan;
mod serving;
mod template;
mod workshop;

use plimsoll_core::{
    cards::Card,
    plan::{CATALOGUE, find},
    spelling,
};
use plimsoll_fit::search::Rules;

use self::template::Template;
use crate::{
    commands::misplaced,
    engine::{
        phantom_run::{self, How},
        server::is_server,
    },
    exit::Exit,
    options::cli::{FitArgs, Preferred, Writes},
    output::{Output, say},
};

pub(crate) fn run(args: &FitArgs, out: &mut Output) -> anyhow::Result<Exit> {
    if args.users.is_some() || args.context.is_some() {
        return serving::run(args, out);
    }
    if args.find_max.is_none() && is_server(&args.command) {
        anyhow::bail!(
            "the command starts a serving engine, which no remedy for training suits; say what it is to hold: --users 8 finds their longest context, --context 32768 how many users"
        );
    }
    let rules = rules(args, card(args)?);
    for id in args.allow.iter().chain(&args.forbid) {
        if find(id).is_none() {
            let known: Vec<_> = CATALOGUE.iter().map(|it| it.id).collect();
            let rest = format!("there are {}", known.join(", "));
            anyhow::bail!("there is no remedy {id}{}", spelling::meant_or(id, &known, &rest));
        }
    }
    if let Writes::Keep(_) = args.world.writes {
        anyhow::bail!(
            "`fit` runs the script many times, and --writes keep=DIR keeps what one run wrote; give it to `predict`"
        );
    }
    let template = Template::new(&args.command, &args.set)?;
    if let Some(it) = misplaced::remark("fit", &args.command).filter(|_| !args.quiet) {
        say(&it);
    }
    match &args.find_max {
        Some(range) => find_max::run(args, template::range(range)?, &template, rules, out),
        None => plans::run(args, &template, rules, out),
    }
}

/// The card, with the memory that the process may take of it.
fn card(args: &FitArgs) -> anyhow::Result<Card> {
    let (card, how) = card::chosen(args)?;
    match how {
        Some(How::Largest(_)) if args.budget.is_none() && args.limit_reserved.is_none() => {
            anyhow::bail!(
                "nothing says what it is to fit; name a card with --gpu, or a size with --budget"
            );
        }
        Some(How::Largest(_)) => say(&format!(
            "no --gpu was given, so plimsoll imitates {} ({}), the largest card that this PyTorch has kernels for. Another card can need more or less: add --gpu NAME",
            card.id, card.name
        )),
        Some(How::OfThisMachine(how)) => say(&how),
        None => {}
    }
    let Some(budget) = args.budget else { return Ok(card) };
    if card.total < budget {
        let (name, total) = (&card.name, card.total);
        anyhow::bail!("--budget {budget} is more than the {total} of {name}; give less");
    }
    // The phantom refuses what is beyond it, so the allocator sees the budget as it would see a full card.
    let gpu = args.gpu.as_deref().unwrap_or(&card.id);
    phantom_run::card(Some(gpu), Some(budget), &args.command)
}

/// What the options ask of a search.
fn rules(args: &FitArgs, card: Card) -> Rules {
    Rules {
        card,
        limit_reserved: args.limit_reserved,
        is_whole_card: args.budget.is_none() && args.limit_reserved.is_none(),
        gpus: args.gpus,
        allow: args.allow.clone(),
        forbid: args.forbid.clone(),
        keep_numerics: args.keep_numerics,
        prefers_speed: args.prefer == Preferred::Speed,
        may_edit: !matches!(args.world.writes, Writes::Through),
        until_exit: args.until_exit,
        advice: args.advice,
        speaks_of_compile: false,
        measure_in: None,
    }
}
