//! A cause, and the sentences that lead to it and away from it.

/// Why it did not fit, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The program needs more than there is.
    Size,
    /// More and more is kept, step by step.
    Leak,
    /// Enough was free, in pieces.
    Fragmentation,
    /// A limit that the process set itself.
    Limit,
    /// Somebody else has the memory.
    OtherProcess,
    /// CUDA graphs or a `MemPool` hold it.
    PrivatePools,
    /// Not the GPU's memory.
    Host,
    /// The numbers do not say.
    Unknown,
}

impl Cause {
    /// A stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Size => "size",
            Cause::Leak => "leak",
            Cause::Fragmentation => "fragmentation",
            Cause::Limit => "limit",
            Cause::OtherProcess => "other_process",
            Cause::PrivatePools => "private_pools",
            Cause::Host => "host",
            Cause::Unknown => "unknown",
        }
    }
}

/// A cause with the sentences that lead to it and away from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// Why we think so, with the numbers.
    pub why: String,
    /// What to try, the most promising first.
    pub remedies: Vec<String>,
    /// Whether it may have been too much only because something grew.
    pub may_have_grown: bool,
}

impl Verdict {
    /// Whether something grew decides, and numbers of one moment do not say so.
    pub(super) fn over_time(self) -> Verdict {
        Verdict { may_have_grown: true, ..self }
    }

    /// With what the library that failed offers itself.
    pub(super) fn or_offered(mut self, offers: &[&str]) -> Verdict {
        self.remedies.extend(offers.iter().map(|it| (*it).to_owned()));
        self
    }
}

pub(super) fn verdict(cause: Cause, why: impl Into<String>, remedies: &[&str]) -> Verdict {
    let remedies = remedies.iter().map(|it| (*it).to_owned()).collect();
    Verdict { cause, why: why.into(), remedies, may_have_grown: false }
}
