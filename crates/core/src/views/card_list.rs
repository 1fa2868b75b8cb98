//! The cards of a report, for a terminal: in its first line, in a line or two, or all of them.

use std::fmt::{self, Formatter};

use crate::{
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

impl CardList<'_> {
    /// The smallest usual card that it fits, and that it fits all larger ones that this PyTorch has kernels for, if that is so.
    fn smallest_and_larger(self) -> Option<String> {
        let usual = || self.prediction.cards.iter().filter(|it| it.card.usual);
        let smallest = usual().find(|it| it.carries == Carries::Yes)?.card;
        let mut larger = usual().filter(|it| smallest.total < it.card.total).peekable();
        larger.peek()?;
        larger
            .all(|it| matches!(it.carries, Carries::Yes | Carries::NoKernels))
            .then(|| format!("{} ({}) and larger", smallest.id, smallest.total))
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
            let all = self.smallest_and_larger().unwrap_or_else(|| list(Carries::Yes));
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
        let usual = |carries: Carries| {
            cards.iter().filter(move |it| it.card.usual && it.carries == carries).map(|it| it.card)
        };
        if let Some(largest) = usual(Carries::No).next_back() {
            let is_all = cards
                .iter()
                .filter(|it| it.card.usual && it.card.total <= largest.total)
                .all(|it| matches!(it.carries, Carries::No | Carries::NoKernels));
            let all = if is_all {
                format!("{} ({}) and smaller", largest.id, largest.total)
            } else {
                list(Carries::No)
            };
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
        if let Some(all) = self.smallest_and_larger() {
            return all + " cards";
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
        n => format!("{} and {n} others", ids.join(", ")),
    }
}
