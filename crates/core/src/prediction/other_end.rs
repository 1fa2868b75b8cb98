//! Runs whose memory depends on what differs from one real run to the next, or on values that nobody knows: the
//! phantom shows one end of it, and another run with another setting the other end.

use crate::recording::{PhantomReport, Recording};

/// How the phantom's remark begins, of masks of values that nobody computed.
const FINDS_NOTHING: &str = "nonzero() was assumed to find nothing";

/// How it begins of choices among few that ranks tell each other.
const CHOSE: &str = "plimsoll answered topk() with evenly spaced indices";

/// What a run may depend on, where the phantom chose one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    /// Work that is done when it is queued may be done as late as it may be: a race between threads, and between
    /// the host and the device.
    Late,
    /// The first step of a gradient scaler, whose gradients were finite, may overflow and be skipped.
    Overflow,
    /// Of the algorithms of cuDNN that the program times, the one with the largest workspace may be the fastest.
    Workspaces,
    /// Masks of values that nobody computed were taken to find nothing; they may find everything.
    Found,
    /// A router was taken to spread its tokens evenly over the experts of all ranks; it may send all of them to one.
    Routed,
}

/// Whether a `finder` of what nobody computed, as the phantom calls it, selects by a mask.
pub(super) fn is_of_masks(finder: &str) -> bool {
    FINDS_NOTHING.split_once(' ').is_some_and(|(masks, _)| masks == finder)
}

impl OtherEnd {
    /// Whether it is an end of what nobody computed: the truth lies between the two, and nobody knows where.
    pub fn is_of_values(self) -> bool {
        matches!(self, OtherEnd::Found | OtherEnd::Routed)
    }

    /// Whether real runs of one job may take either end.
    pub(super) fn may_come_in_one_job(self) -> bool {
        self == OtherEnd::Late || self.is_of_values()
    }

    /// Those that the run of these recordings depends on.
    pub fn of(recordings: &[Recording]) -> Vec<OtherEnd> {
        let any = |depends: fn(&PhantomReport) -> bool| {
            recordings.iter().filter_map(|it| it.phantom.as_ref()).any(depends)
        };
        let begun = || recordings.iter().filter_map(|it| it.notes.begin.as_ref());
        let has_ranks = begun().filter_map(|it| it.world_size).any(|it| 1 < it);
        let all = [
            (OtherEnd::Late, any(|it| it.hurried != 0)),
            (OtherEnd::Overflow, any(|it| it.overflows_asked != 0)),
            (OtherEnd::Workspaces, any(|it| it.trials != 0)),
            (OtherEnd::Found, any(took_masks_for_empty)),
            (OtherEnd::Routed, has_ranks && any(sized_by_choices)),
        ];
        all.into_iter().filter(|it| it.1).map(|it| it.0).collect()
    }
}

/// Whether sizes follow from what was chosen among few: how many tokens each expert gets.
fn sized_by_choices(report: &PhantomReport) -> bool {
    report.assumed_sizes != 0 && report.approximated.iter().any(|it| it.what.starts_with(CHOSE))
}

fn took_masks_for_empty(report: &PhantomReport) -> bool {
    report.approximated.iter().any(|it| it.what.starts_with(FINDS_NOTHING))
}

/// Whether this process failed after a mask of values that nobody computed was taken to find nothing. Out of memory
/// is no failure of that kind.
pub fn found_nothing(recording: &Recording) -> bool {
    let assumed = recording.phantom.as_ref().is_some_and(|it| it.assumed_sizes != 0);
    assumed && recording.notes.ooms.is_empty()
}
