//! The cards of a report, for a terminal: in its first line, in a line or two, or all of them.

use std::fmt::{self, Formatter};

use crate::{
    cards::Card,
    prediction::{CardFit, Carries, Prediction},
    units::grouped,
    views::{style::Styles, wrap::wrapped},
};

/// Cards that the first line names.
const NAMED_CARDS: usize = 6;
/// Cards that the list names of a kind of which none is usual.
const LISTED_CARDS: usize = 8;

/// The cards of a prediction, in lines of `width`.
#[derive(Clone, Copy)]
pub(super) struct CardList<'a> {
    pub(super) prediction: &'a Prediction,
    pub(super) styles: Styles,
    pub(super) width: usize,
}

/// Of which cards something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Among {
    All,
    Usual,
}

impl Among {
    fn has(self, fit: &CardFit) -> bool {
        self == Among::All || fit.card.usual
    }
}

/// A card, and all those on one side of it.
struct Bound {
    card: &'static Card,
    side: &'static str,
    among: Among,
}

impl Bound {
    /// `rtx3070 (7.60 GiB) and larger cards`
    fn with_cards(&self) -> String {
        let Bound { card, side, among } = self;
        let usual = if *among == Among::Usual { " usual" } else { "" };
        format!("{} ({}) and {side}{usual} cards", card.id, card.total)
    }
}

/// The same in a list of cards.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all = self.with_cards();
        f.write_str(match self.among {
            Among::All => all.strip_suffix(" cards").unwrap_or(&all),
            Among::Usual => &all,
        })
    }
}

impl CardList<'_> {
    /// The smallest card that it fits, if it fits all larger ones that this PyTorch has kernels for; of the usual cards, if that is so of them only.
    fn smallest_and_larger(self) -> Option<Bound> {
        let fits = |it: &CardFit| it.carries == Carries::Yes;
        let fits_or_cannot_run = |it: &CardFit| fits(it) || it.carries == Carries::NoKernels;
        [Among::All, Among::Usual].into_iter().find_map(|among| {
            let cards = || self.prediction.cards.iter().filter(move |it| among.has(it));
            let smallest = cards().filter(|it| fits(it)).map(|it| it.card);
            let card = smallest.min_by_key(|card| (card.total, !card.usual))?;
            let mut larger = cards().filter(|it| card.total < it.card.total).peekable();
            larger.peek()?;
            larger.all(fits_or_cannot_run).then_some(Bound { card, side: "larger", among })
        })
    }

    /// The largest card that is too small, if all smaller ones are; of the usual cards, if that is so of them only.
    fn largest_and_smaller(self) -> Option<Bound> {
        let is_too_small = |it: &CardFit| it.carries == Carries::No;
        let no_other = |it: &CardFit| is_too_small(it) || it.carries == Carries::NoKernels;
        [Among::All, Among::Usual].into_iter().find_map(|among| {
            let cards = || self.prediction.cards.iter().filter(move |it| among.has(it));
            let largest = cards().filter(|it| is_too_small(it)).map(|it| it.card);
            let card = largest.max_by_key(|card| (card.total, card.usual))?;
            let mut smaller = cards().filter(|it| it.card.total <= card.total);
            smaller.all(no_other).then_some(Bound { card, side: "smaller", among })
        })
    }

    /// The cards in a line or two: from which on it fits, and to which it does not.
    /// Those that it fits are left out where the first line `has_fitting`.
    pub(super) fn short(self, f: &mut Formatter<'_>, has_fitting: bool) -> fmt::Result {
        let cards = &self.prediction.cards;
        let of = |carries: Carries| -> Vec<&CardFit> {
            cards.iter().filter(|it| it.carries == carries).collect()
        };
        let list = |carries: Carries| named(&of(carries), false);
        let mut parts = Vec::new();
        if !of(Carries::Yes).is_empty() && !has_fitting {
            let all = self.smallest_and_larger();
            let all = all.map_or_else(|| list(Carries::Yes), |bound| bound.to_string());
            parts.push(format!("{} {all}", self.styles.good.of("fits")));
        }
        if !of(Carries::Tight).is_empty() {
            let all = list(Carries::Tight);
            let tight = self.styles.warn.of("tight");
            parts.push(format!("{tight} (may run, with little to spare) {all}"));
        }
        if let [first, .., last] = of(Carries::Grows)[..] {
            let of = |fit: &CardFit| {
                format!("{} of {}", fit.runs_out_at.map_or_else(String::new, grouped), fit.card.id)
            };
            let one = self.prediction.growth.as_ref().map_or("step", |it| it.counted.one());
            let when = format!("between {one} {} and {}", of(first), of(last));
            parts.push(format!("{} {when}", self.styles.warn.of("runs out")));
        }
        // Where only unusual ones are too small, the first card that fits says it.
        if of(Carries::No).iter().any(|it| it.card.usual) {
            let all = self.largest_and_smaller();
            let all = all.map_or_else(|| list(Carries::No), |bound| bound.to_string());
            parts.push(format!("{} {all}", self.styles.bad.of("too small")));
        }
        if !of(Carries::NoKernels).is_empty() {
            parts.push(format!("no kernels in this PyTorch for {}", list(Carries::NoKernels)));
        }
        if parts.is_empty() {
            return Ok(());
        }
        write!(f, "{} ", self.styles.heading.of("Cards:"))?;
        wrapped(f, &parts.join("; "), self.width, 7, 2)
    }

    /// The cards that it fits, the smallest first, for the first line.
    pub(super) fn fitting(self) -> String {
        let fits = self.prediction.cards.iter().filter(|it| it.carries == Carries::Yes);
        if let Some(bound) = self.smallest_and_larger() {
            return bound.with_cards();
        }
        let ids: Vec<&str> =
            fits.filter(|it| it.card.usual).map(|it| it.card.id.as_str()).collect();
        let named = ids.iter().take(NAMED_CARDS).copied().collect::<Vec<_>>().join(", ");
        match ids.len().saturating_sub(NAMED_CARDS) {
            _ if ids.is_empty() => self.prediction.card.id.clone(),
            0 => named,
            more => format!("{named} and {more} with more memory"),
        }
    }

    /// Every card, by its answer.
    pub(super) fn all(self, f: &mut Formatter<'_>) -> fmt::Result {
        let cards = &self.prediction.cards;
        let groups = [
            (Carries::Yes, "fits", self.styles.good),
            (Carries::Tight, "tight", self.styles.warn),
            (Carries::Grows, "runs out", self.styles.warn),
            (Carries::No, "too small", self.styles.bad),
            (Carries::Unknown, "unknown", self.styles.faint),
            (Carries::NoKernels, "no kernels", self.styles.faint),
        ];
        let says_nothing =
            |it: &CardFit| matches!(it.carries, Carries::Unknown | Carries::NoKernels);
        if cards.iter().all(says_nothing) {
            return Ok(());
        }
        let grows = cards.iter().any(|it| it.carries == Carries::Grows);
        let one = self.prediction.growth.as_ref().map_or("step", |it| it.counted.one());
        let title = if grows {
            format!("Cards, and the {one} in which each runs out")
        } else {
            "Cards".to_owned()
        };
        writeln!(f, "\n{}", self.styles.heading.of(&title))?;
        for (carries, title, style) in groups {
            let of_kind: Vec<&CardFit> = cards.iter().filter(|it| it.carries == carries).collect();
            if !of_kind.is_empty() {
                let mut ids = named(&of_kind, true);
                if carries == Carries::NoKernels {
                    ids.push_str(" (in this PyTorch");
                    let told = of_kind.iter().find_map(|it| it.card.torch_with_kernels());
                    ids.push_str(&told.map_or_else(String::new, |it| format!("; {it}")));
                    ids.push(')');
                }
                if carries == Carries::Tight {
                    ids.push_str(" (may run: the tensors fit, but not the safe size)");
                }
                write!(f, "  {}{:pad$}", style.of(title), "", pad = 11 - title.len())?;
                wrapped(f, &ids, self.width, 13, 13)?;
            }
        }
        Ok(())
    }
}

/// The names of all these cards; or of the usual ones, and how many others there are, and of some if none is usual. With the step
/// in which a script that grows runs out there.
fn named(cards: &[&CardFit], all: bool) -> String {
    let name = |fit: &CardFit| match fit.runs_out_at {
        Some(step) => format!("{} at {}", fit.card.id, grouped(step)),
        None => fit.card.id.clone(),
    };
    let usual = cards.iter().filter(|fit| fit.card.usual).count();
    let shows = |fit: &&&CardFit| all || usual == 0 || fit.card.usual;
    let most = match usual {
        _ if all => cards.len(),
        0 => LISTED_CARDS,
        usual => usual,
    };
    let ids: Vec<String> = cards.iter().filter(shows).take(most).map(|fit| name(fit)).collect();
    match cards.len() - ids.len() {
        0 => ids.join(", "),
        1 => format!("{} and 1 other", ids.join(", ")),
        n => format!("{} and {n} others", ids.join(", ")),
    }
}
