//! What a plan needs if batches go through the model in more parts, by what it needs in two numbers of them: which of these need not be run.

use plimsoll_core::units::Bytes;

/// Rows of a batch whose size is unknown: so many that each number of parts has a share of its own.
const MANY: u64 = 1 << 20;

/// What a plan needs is linear in the samples of the largest part, as long as one moment decides.
pub(super) struct Line {
    /// Of a batch, if that is known.
    pub(super) samples: Option<u64>,
    /// Parts, and what the plan needs in so many.
    pub(super) fewer: (u64, Bytes),
    /// The same of more parts.
    pub(super) more: (u64, Bytes),
}

impl Line {
    /// What it needs at least in still more parts: where another moment decides there, it is more.
    pub(super) fn needs_at_least(&self, parts: u64) -> Bytes {
        let rows = |parts: u64| u128::from(self.samples.unwrap_or(MANY).div_ceil(parts.max(1)));
        let (fewer, more, wanted) = (rows(self.fewer.0), rows(self.more.0), rows(parts));
        let saved = u128::from(self.fewer.1.saturating_sub(self.more.1).0);
        let saves = saved * more.saturating_sub(wanted) / fewer.saturating_sub(more).max(1);
        self.more.1.saturating_sub(Bytes(u64::try_from(saves).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_more_parts_save_follows_from_the_rows_of_the_largest_one() {
        let needs = |samples, one: (u64, u64), two: (u64, u64), parts| {
            let line = Line {
                samples,
                fewer: (one.0, Bytes::mib(one.1)),
                more: (two.0, Bytes::mib(two.1)),
            };
            line.needs_at_least(parts)
        };
        assert_eq!(needs(None, (2, 1600), (4, 1200), 8), Bytes::mib(1000));
        assert_eq!(needs(Some(8), (2, 1600), (4, 1200), 8), Bytes::mib(1000));
        // Of 13 the largest part has 7, 4 and 2.
        assert_eq!(needs(Some(13), (2, 1700), (4, 1400), 8), Bytes::mib(1200));
        // Not all numbers of parts differ.
        assert_eq!(needs(Some(3), (2, 1700), (3, 1400), 4), Bytes::mib(1400));
        assert_eq!(needs(Some(8), (2, 1200), (4, 1200), 8), Bytes::mib(1200));
    }
}
