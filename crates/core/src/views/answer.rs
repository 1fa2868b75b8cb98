//! What `plimsoll predict` answers: the prediction, and what goes with it.

use crate::{findings::Finding, prediction::Prediction};

/// A prediction, what was found in the same recordings, and what to run next.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The prediction.
    pub prediction: &'a Prediction,
    /// What is wrong with the run's memory, or could be had back; what would give back the most first.
    pub findings: &'a [Finding],
    /// The command that helps where it does not fit, in full.
    pub next: Option<&'a str>,
    /// Nobody asked for this card: the answer is which cards carry it.
    pub any_card: bool,
}

impl<'a> From<&'a Prediction> for Answer<'a> {
    fn from(prediction: &'a Prediction) -> Answer<'a> {
        Answer { prediction, findings: &[], next: None, any_card: false }
    }
}
