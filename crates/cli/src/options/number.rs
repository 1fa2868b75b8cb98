//! A number on the command line, and the sentence for what is none.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

/// Reads a whole number in `range`; `example` is one that people type. A range up to the largest number of its type has no end.
pub(crate) fn whole<T: Count>(
    range: RangeInclusive<T>,
    example: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |given| {
        // `4_096`, as Python writes it.
        let number = given.trim().replace('_', "").parse().ok().filter(|it| range.contains(it));
        number.ok_or_else(|| {
            let (from, to) = (range.start(), range.end());
            let to = if *to == T::LARGEST { "on".to_owned() } else { format!("to {to}") };
            format!("expected a whole number from {from} {to}, as in `{example}`")
        })
    }
}

/// A type of numbers that count things.
pub(crate) trait Count:
    FromStr + PartialOrd + Display + Clone + Send + Sync + 'static
{
    const LARGEST: Self;
}

impl Count for u32 {
    const LARGEST: u32 = u32::MAX;
}

impl Count for u64 {
    const LARGEST: u64 = u64::MAX;
}

impl Count for usize {
    const LARGEST: usize = usize::MAX;
}
