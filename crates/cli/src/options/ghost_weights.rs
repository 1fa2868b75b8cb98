//! `--ghost-weights`: when large tensors on the host have no memory and no values.

use clap::ValueEnum;

/// When large tensors on the host are ghosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GhostWeights {
    /// Once the weights there become many for this machine.
    #[default]
    Auto,
    On,
    Off,
    /// Never, and large random fills repeat a few numbers of the same distribution: what runs of a search without values are
    /// checked by.
    #[value(skip)]
    StandIns,
}

impl GhostWeights {
    /// As the agent reads it in `PLIMSOLL_GHOST_WEIGHTS`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            GhostWeights::Auto => "auto",
            GhostWeights::On => "on",
            GhostWeights::Off => "off",
            GhostWeights::StandIns => "stand-ins",
        }
    }
}
