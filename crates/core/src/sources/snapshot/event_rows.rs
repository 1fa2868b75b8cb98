//! The events of a snapshot as they are decoded. Who wants them while the rest is still read, a [`Keeper`], gets them in
//! portions and gives them back in the end.

use crate::trace::{Event, Events, Keeper, Portion};

/// How many events a portion has: few enough to stay in a cache until they are followed.
const PORTION: usize = 2048;

/// All events so far.
pub(super) struct EventRows<'k> {
    /// Those that the keeper does not have.
    recent: Events,
    n_kept: usize,
    keeper: Option<&'k mut dyn Keeper>,
}

impl<'k> EventRows<'k> {
    pub(super) fn new(keeper: Option<&'k mut dyn Keeper>) -> EventRows<'k> {
        EventRows { recent: Events::default(), n_kept: 0, keeper }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.n_kept + self.recent.len()
    }

    #[inline]
    pub(super) fn push(&mut self, event: Event) {
        self.recent.push(event);
    }

    /// Whether a portion is complete that somebody wants.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        PORTION <= self.recent.len() && self.keeper.is_some()
    }

    /// Hands a portion over; only the rest of it is known here.
    #[cold]
    pub(super) fn hand_over(&mut self, known: Portion) {
        let Some(keeper) = &mut self.keeper else { return };
        self.n_kept += self.recent.len();
        let next = Events::with_capacity(PORTION);
        let events = std::mem::replace(&mut self.recent, next);
        keeper.keep(Portion { events, ..known });
    }

    /// All of them.
    pub(super) fn all(self) -> Events {
        match self.keeper {
            Some(keeper) if self.n_kept != 0 => {
                let mut res = keeper.give_back();
                res.append(&self.recent);
                res
            }
            _ => self.recent,
        }
    }
}
