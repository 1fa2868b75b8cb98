//! What other programs hold of a card: a size, or what they hold at this moment.

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

/// A size, or `now`. Errors: neither, as [`size`] has it.
pub(crate) fn beside(given: &str) -> Result<Beside, String> {
    if given == "now" { Ok(Beside::Now) } else { size(given).map(Beside::Size) }
}
