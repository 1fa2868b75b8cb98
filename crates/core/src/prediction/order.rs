//! Runs whose memory depends on when work is done: on a real device a race between threads and between
//! the host and the device, on the phantom one end of it or the other (`order` in its settings).

use crate::{
    prediction::{Note, Outcome, Prediction},
    recording::Recording,
};

/// Whether the phantom said of work that it is done, where another order would have had it take more time
/// and hold memory.
pub fn depends_on_order(recordings: &[Recording]) -> bool {
    let reports = recordings.iter().filter_map(|it| it.phantom.as_ref());
    reports.into_iter().any(|it| it.hurried != 0)
}

impl Prediction {
    /// Takes in what the same script did where work is done `late`: whatever took more decides.
    pub fn cover(&mut self, late: &Prediction) {
        match late.outcome {
            Outcome::ScriptFailed => return,
            Outcome::OutOfMemory => {
                self.outcome = Outcome::OutOfMemory;
                self.oom.clone_from(&late.oom);
            }
            Outcome::Fits => {}
        }
        self.late = Some(late.peak);
        self.safe = self.safe.max(late.safe);
        let (at_once, late) = (self.peak.device, late.peak.device);
        if at_once != late {
            self.notes.push(Note::Order { at_once, late });
        }
    }
}
