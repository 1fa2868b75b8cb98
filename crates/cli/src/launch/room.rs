//! The room that a run has for what it writes: looked at while it runs, and the run ends when it is used up.

use std::time::{Duration, Instant};

use plimsoll_core::units::Bytes;
use plimsoll_writes::Layer;

/// How often the layer is measured: that reads all of its folders.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Room<'a> {
    pub(super) layer: Option<&'a Layer>,
    looked: Instant,
    is_used_up: bool,
}

impl<'a> Room<'a> {
    pub(super) fn of(layer: Option<&'a Layer>) -> Room<'a> {
        Room { layer, looked: Instant::now(), is_used_up: false }
    }

    /// To be asked often; it looks now and then.
    pub(super) fn is_used_up(&mut self) -> bool {
        if BETWEEN_LOOKS <= self.looked.elapsed() {
            self.is_used_up |= self.layer.is_some_and(Layer::is_full);
            self.looked = Instant::now();
        }
        self.is_used_up
    }

    /// What it might have written, if it wrote more.
    pub(super) fn wrote_too_much(&self) -> Option<Bytes> {
        let max = self.layer.map(|it| Bytes(it.max_bytes()));
        max.filter(|_| self.is_used_up)
    }
}
