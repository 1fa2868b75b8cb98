//! What known numbers come of.

/// What known numbers come of, if not of what the program said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Of the places of elements, such as a causal mask, or drawn, such as the choice of masked tokens: as on the device.
    Pattern,
    /// Chosen for the program, as a router's experts are: on the device they are others.
    Chosen,
}
