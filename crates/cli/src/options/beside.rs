//! What other programs hold of a card: a size, or what they hold at this moment.

use std::fmt::{self, Display, Formatter};

use plimsoll_core::units::Bytes;

use crate::options::size::size;

/// What `--beside` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Other programs hold so much.
    Size(Bytes),
    /// They hold what this machine's GPU has in use now.
    Now,
}

impl Display for Beside {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Beside::Size(it) => f.write_str(&it.to_string().replace(' ', "")),
            Beside::Now => f.write_str("now"),
        }
    }
}

/// A size, or `now`. Errors: neither, as [`size`] has it.
pub(crate) fn beside(given: &str) -> Result<Beside, String> {
    if given == "now" { Ok(Beside::Now) } else { size(given).map(Beside::Size) }
}
