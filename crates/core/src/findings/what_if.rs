//! The one place where findings ask what would have been under other allocator settings: the replay that
//! runs freely answers it.

use crate::{findings::Case, units::Bytes};

/// What would have been reserved at most with `expandable_segments:True`; none when the recording had it
/// on, or does not begin at the beginning, so that what was there before would have to be guessed.
pub(super) fn reserved_with_expandable_segments(case: &Case<'_>) -> Option<Bytes> {
    if case.window.began_late || case.window.overwritten {
        return None;
    }
    case.run.reserved_in_one_piece()
}
