//! The smallest card that a script runs on, where nobody named one. A run on the largest card keeps all that PyTorch caches, and a
//! smaller card makes PyTorch free that: only a run there shows whether it is enough. Which cards are run is decided here.

use std::cmp::Reverse;

use crate::{
    cards::Card,
    prediction::{CardFit, Carries, Outcome, Peaks, Predicted, SmallestRun},
    units::Bytes,
};

/// Each run takes as long as the first one.
const MOST_RUNS: usize = 3;

/// The cards that the first run leaves open, and which of them are still to be run.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    /// One of each size, the smallest first; the answer is not below the first, and not above the last.
    open: Vec<&'static Card>,
    runs: usize,
}

impl Search {
    /// Of what the run on the largest card left open; nothing, if running on those would change little.
    pub(super) fn after(first: &Predicted) -> Search {
        let needs = first.needs().0;
        // A card that has less than the safe size, but what the run needed, carries it.
        let is_open = |card: &&CardFit| {
            card.carries == Carries::Tight && card.card.usual && card.card.total.0 < needs
        };
        let mut cards: Vec<&'static Card> =
            first.cards.iter().filter(is_open).map(|it| it.card).collect();
        let is_much_smaller = |it: &&Card| it.total.0 <= needs / 4 * 3;
        let takes_more = |it: &Peaks| first.peak.device < it.device;
        let is_only_this = first.serving.is_none()
            && !first.is_in_doubt()
            && !first.others.iter().any(|it| takes_more(&it.1));
        if first.outcome != Outcome::Fits || !is_only_this || !cards.iter().any(is_much_smaller) {
            return Search::default();
        }
        // What runs on a card runs on those that have a little more: the first of each size stands for them.
        cards.sort_by_key(|it| (for_a_script(it), &it.id));
        cards.dedup_by(|next, first| for_a_script(next).0 <= for_a_script(first).0 / 50 * 51);
        Search { open: cards, runs: 0 }
    }

    /// The card to run on next, in the middle of those that are open.
    pub(super) fn next(&mut self) -> Option<&'static Card> {
        let card = *self.open.get(self.open.len().saturating_sub(1) / 2)?;
        self.runs += 1;
        Some(card)
    }

    /// The run on `card` showed this. It may be that what is left is too much for the runs that are left.
    fn learned(&mut self, card: &Card, fits: bool) {
        let size = for_a_script(card);
        self.open.retain(|it| if fits { for_a_script(it) < size } else { size < for_a_script(it) });
        if MOST_RUNS <= self.runs {
            self.open.clear();
        }
    }

    /// Nothing more is to be run.
    pub(super) fn end(&mut self) {
        self.open.clear();
    }
}

impl Predicted {
    /// Takes in what the same script did on `card`, which is smaller than the one that was imitated.
    pub(super) fn learn_of_smaller(
        &mut self,
        card: &'static Card,
        there: &Predicted,
        search: &mut Search,
    ) {
        let fits = match there.outcome {
            Outcome::Fits => !there.is_in_doubt(),
            Outcome::OutOfMemory => false,
            // It says nothing of the card.
            Outcome::ScriptFailed | Outcome::Grows => return search.end(),
        };
        search.learned(card, fits);
        let size = for_a_script(card);
        for it in self.cards.iter_mut().filter(|it| it.carries == Carries::Tight) {
            let other = for_a_script(it.card);
            match fits {
                true if size <= other => it.carries = Carries::Yes,
                false if other <= size => it.carries = Carries::No,
                _ => {}
            }
        }
        let found =
            self.smallest.get_or_insert_with(|| SmallestRun { fits: None, too_small: Vec::new() });
        if fits {
            found.fits = Some((card, Peaks { device: there.needs(), ..there.peak }));
        } else {
            found.too_small.push(card);
            found.too_small.sort_by_key(|it| Reverse(it.total));
        }
    }
}

/// What a script gets of a card.
fn for_a_script(card: &Card) -> Bytes {
    card.total.saturating_sub(card.context)
}
