//! The checked replay of a recording that is still being read, for a second thread: when the last event is there, most are
//! followed.
//!
//! What only the end of a recording tells is assumed as it mostly is: the settings are torch's own, nothing was there before the
//! first event, there are no private pools, both frees of each block are recorded. Who has all of it compares that with what
//! is so (`Follower::or_ahead`), and follows it from its beginning where it is not; and where it disagrees with the model.

use crate::{
    replay::{
        Config, TorchVersion,
        follow::follower::{Follower, NOTHING},
    },
    trace::{Action, DeviceTrace, Events, Portion},
};

/// Whose rules are assumed: those that are tried first.
pub(super) const FIRST_TRIED: TorchVersion = TorchVersion::two(11);

/// A recording that is followed while it is read.
#[derive(Default)]
pub struct Ahead {
    /// As far as it is there: the events of the device that comes first.
    device: DeviceTrace,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Begins,
    Goes(Box<Follower<'static>>),
    /// It is not as was assumed.
    Ended,
}

impl Ahead {
    /// Follows the events that come next.
    pub fn follow(&mut self, portion: &Portion) {
        let Ahead { device, state } = self;
        device.events.append(&portion.events);
        let mut follower = match std::mem::replace(state, State::Ended) {
            State::Begins => {
                let config = Config::of_torch(FIRST_TRIED);
                Follower::ahead(Config { expandable_segments: portion.has_expandable, ..config })
            }
            State::Goes(follower) => *follower,
            State::Ended => return,
        };
        if device.events.names_pools() {
            return;
        }
        follower.model.handles = portion.streams.iter().map(|it| it.cast_unsigned()).collect();
        // What comes after the last request may belong to one that is still to come.
        let is_request = |it: &Action| matches!(it, Action::Alloc | Action::Oom);
        let until = device.events.actions().iter().rposition(is_request).map_or(0, |it| it + 1);
        let mut follower = follower.over(device);
        follower.walk(until);
        if follower.model.driver.mismatches.n == 0 {
            *state = State::Goes(Box::new(follower.over(&NOTHING)));
        }
    }

    /// All events that came so far.
    pub fn take_events(&mut self) -> Events {
        std::mem::take(&mut self.device.events)
    }

    /// What was followed, if nothing spoke against it.
    pub(super) fn follower(self) -> Option<Follower<'static>> {
        match self.state {
            State::Goes(it) => Some(*it),
            State::Begins | State::Ended => None,
        }
    }
}
