//! Whether weights on the host need values. Filling them with random numbers is most of what a short run of most scripts does, so runs
//! are made without, once it was seen that this changes nothing.

use std::{error::Error, fmt};

use super::outcome::Compared;

/// So often a run without values may differ from one with them before it is believed that values are needed: runs of some scripts differ by
/// themselves, now and then.
const UNLIKE: u32 = 3;

/// Which values weights on the host have in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Those that the script gives them, unless they are too large for this machine.
    Auto,
    /// Numbers that are like those that the script draws.
    StandIns,
    /// None.
    None,
}

/// What is known of this script's weights.
#[derive(Debug)]
pub(super) enum Weights<C> {
    /// Nothing yet: so often runs were unlike.
    Unknown { unlike: u32 },
    /// They are taken to need no values, and a run with values is under way to check that.
    Believed { unlike: u32, check: C },
    /// They need none.
    Free { unlike: u32 },
    /// They need values.
    Needed,
}

/// The other run of a check: what is under way, and what it is compared with.
#[derive(Debug)]
pub(super) struct Check<J, O> {
    pub(super) with_values: J,
    pub(super) order: O,
    pub(super) without: Compared,
}

impl<C> Weights<C> {
    pub(super) fn values(&self) -> Values {
        match self {
            Weights::Believed { .. } | Weights::Free { .. } => Values::None,
            Weights::Unknown { .. } | Weights::Needed => Values::Auto,
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Weights::Unknown { .. })
    }

    /// Nothing was tried yet.
    pub(super) fn is_untried(&self) -> bool {
        matches!(self, Weights::Unknown { unlike: 0 })
    }

    fn unlike(&self) -> u32 {
        match self {
            Weights::Unknown { unlike }
            | Weights::Believed { unlike, .. }
            | Weights::Free { unlike } => *unlike,
            Weights::Needed => UNLIKE,
        }
    }

    /// A run with values and one without were compared.
    pub(super) fn were_compared(&mut self, is_like: bool) {
        let unlike = self.unlike() + u32::from(!is_like);
        *self = match unlike {
            0..UNLIKE if is_like => Weights::Free { unlike },
            0..UNLIKE => Weights::Unknown { unlike },
            _ => Weights::Needed,
        };
    }

    pub(super) fn need_none(&mut self) {
        *self = Weights::Free { unlike: self.unlike() };
    }

    pub(super) fn need_values(&mut self) {
        *self = Weights::Needed;
    }

    /// They are taken to need none until `check` has ended.
    pub(super) fn believe(&mut self, check: C) {
        *self = Weights::Believed { unlike: self.unlike(), check };
    }

    /// The check that is under way, taken out; they are taken to need none meanwhile.
    pub(super) fn take_check(&mut self) -> Option<C> {
        let unlike = self.unlike();
        match std::mem::replace(self, Weights::Free { unlike }) {
            Weights::Believed { check, .. } => Some(check),
            other => {
                *self = other;
                None
            }
        }
    }

    /// A check that was under way is lost: nothing is known.
    pub(super) fn forget_check(&mut self) {
        if let Weights::Believed { unlike, .. } = self {
            *self = Weights::Unknown { unlike: *unlike };
        }
    }

    /// What was believed was wrong.
    pub(super) fn were_wrong(&mut self) {
        *self = Weights::Unknown { unlike: self.unlike() + 1 };
    }
}

/// Weights have no values in these runs, and that was believed to change nothing; it does. What was seen so far says nothing.
#[derive(Clone, Copy, Debug)]
pub struct ValuesMatter;

impl fmt::Display for ValuesMatter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values of weights on the host change what the script asks for")
    }
}

impl Error for ValuesMatter {}
