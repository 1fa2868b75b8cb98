//! One script that was run, and what came of it.

use super::{compared::Verdict, goldens::Took};

/// One script, and what came of it.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) gpu: String,
    pub(super) was: Option<Took>,
    pub(super) is: Option<Took>,
    pub(super) verdict: Verdict,
    pub(super) seconds: f64,
}
