//! The one place where findings ask what would have been under other allocator settings: the replay that
//! runs freely answers it.

use crate::{
    findings::Case,
    replay::{self, Config},
    units::Bytes,
};

/// What would have been reserved at most with `expandable_segments:True`; none when the recording had it
/// on, or does not begin at the beginning, so that what was there before would have to be guessed.
pub(super) fn reserved_with_expandable_segments(case: &Case<'_>) -> Option<Bytes> {
    let run = case.run;
    let settings = run.trace.settings.clone().unwrap_or_default();
    if settings.expandable_segments || case.window.began_late || case.window.overwritten {
        return None;
    }
    let recorded = Config::of_recording(&settings, run.torch);
    let expandable = Config { expandable_segments: true, ..recorded };
    Some(replay::what_if(&run.program, &expandable).peak_reserved.bytes)
}
