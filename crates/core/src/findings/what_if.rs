//! The one place where findings ask what would have been under other allocator settings. The replay that
//! searches addresses itself answers it; a recording whose replay cannot be trusted has no answer.

use crate::{findings::Case, units::Bytes};

/// What would have been reserved at most with `expandable_segments:True`; none when it is not known.
pub(super) fn reserved_with_expandable_segments(_case: &Case<'_>) -> Option<Bytes> {
    None
}
