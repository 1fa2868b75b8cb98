//! The card that a search is for.

use plimsoll_core::{cards::Card, units::Bytes};

use crate::{
    engine::phantom_run::{self, Choice, Home, How},
    options::cli::FitArgs,
};

/// The card, with what other programs take of it, and how it was chosen. What the driver of Windows would lend is
/// not part of it: a plan that spills is none.
pub(super) fn chosen(args: &FitArgs) -> anyhow::Result<(Card, Option<How>)> {
    let choice = phantom_run::choice(args.gpu.as_deref(), args.memory, &args.command)?;
    let home = Home::of(&choice, args.beside, args.windows)?;
    let Choice { card, how } = choice;
    Ok((Card { lent: Bytes::ZERO, ..home.card(card) }, how))
}
