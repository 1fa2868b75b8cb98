//! The other ends of what a phantom decides by itself: which of them a run leaves open, and how the phantom is told to
//! show one.

use plimsoll_core::{prediction::OtherEnd, recording::Recording};

use crate::options::assumption::Assumption;

/// What the phantom decided by itself in the run of these recordings, without what the user said.
pub(crate) fn left_open(recordings: &[Recording], assumed: &[Assumption]) -> Vec<OtherEnd> {
    let says = |is: fn(&Assumption) -> bool| assumed.iter().any(is);
    let is_open = |end: &OtherEnd| match end {
        OtherEnd::Overflow => !says(|it| matches!(it, Assumption::Overflows(_))),
        OtherEnd::Routed => !says(|it| matches!(it, Assumption::Experts(_))),
        _ => true,
    };
    OtherEnd::of(recordings).into_iter().filter(is_open).collect()
}

/// The line of `phantom.conf` that has the phantom show this end.
pub(crate) fn conf_line(end: OtherEnd) -> &'static str {
    match end {
        OtherEnd::Late => "order = late\n",
        OtherEnd::Overflow => "assumed_overflows = 1\n",
        OtherEnd::Workspaces => "tried = largest\n",
        OtherEnd::Found => "assumed_nonzero_millionths = 1000000\n",
        OtherEnd::Routed => "assumed_experts_millionths = 1000000\n",
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::recording::PhantomReport;

    use super::*;

    #[test]
    fn what_the_user_said_is_not_left_open() {
        let asked = PhantomReport { hurried: 1, overflows_asked: 1, ..PhantomReport::default() };
        let recordings = [Recording { phantom: Some(asked), ..Recording::default() }];
        let both = [OtherEnd::Late, OtherEnd::Overflow];
        assert_eq!(left_open(&recordings, &[]), both);
        assert_eq!(left_open(&recordings, &[Assumption::Objects(6)]), both);
        assert_eq!(left_open(&recordings, &[Assumption::Overflows(0)]), [OtherEnd::Late]);
    }
}
