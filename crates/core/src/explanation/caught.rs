//! The out-of-memory errors of a recording that the program caught.

use crate::{
    findings::{self, Case},
    recording::CodeLine,
    replay::{Config, TorchVersion, rounding},
    units::Bytes,
};

/// Errors after which the program went on, told by the one with the largest request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// How many there were.
    pub errors: usize,
    /// The largest request,
    pub requested: Bytes,
    /// from this line.
    pub at: Option<CodeLine>,
    /// Why it failed then.
    pub why: String,
}

impl Caught {
    pub(super) fn of(case: &Case<'_>, errors: usize) -> Option<Caught> {
        let (event, levels) = case.caught?;
        let recorded = case.run.device.events.get(event.index());
        let (requested, free) = (recorded.size, Bytes(recorded.address));
        let allocated = levels.allocated;
        let slack = levels.reserved.saturating_sub(allocated);
        // Small requests take a segment of the driver, which is larger.
        let wanted = rounding::allocation_size(requested, &Config::of_torch(TorchVersion::NEWEST));
        let why = if wanted <= free {
            format!(
                "the device had {free} free: the process limits itself (set_per_process_memory_fraction), or the driver limits it"
            )
        } else if wanted <= free + slack {
            format!(
                "tensors used {allocated}; {slack} of PyTorch's cache and {free} of the device were free, in pieces that were too small"
            )
        } else {
            format!(
                "tensors used {allocated}, and {slack} of PyTorch's cache and {free} of the device were free"
            )
        };
        Some(Caught { errors, requested, at: case.line_of(recorded.stack), why })
    }

    /// In a sentence, without its full stop.
    pub(crate) fn text(&self) -> String {
        let at = self.at.as_ref().map(|it| format!(" at {}", findings::place(it)));
        let at = at.unwrap_or_default();
        let Caught { errors, requested, why, .. } = self;
        if *errors == 1 {
            return format!(
                "the program caught an out-of-memory error and went on; it requested {requested}{at} when {why}"
            );
        }
        format!(
            "the program caught {errors} out-of-memory errors and went on; the largest requested {requested}{at} when {why}"
        )
    }
}
