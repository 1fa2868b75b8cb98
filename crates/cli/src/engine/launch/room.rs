//! The room that a run has for what it writes: looked at while it runs, and the run ends when it is used up.

use std::time::{Duration, Instant};

use plimsoll_core::units::Bytes;
use plimsoll_writes::Layer;

/// How often the layer is measured at most: that looks at each of its files.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// And at least, however little the disk got fuller: somebody else may have freed as much meanwhile.
const LONGEST: Duration = Duration::from_secs(30);
/// Between two looks is so many times what a look takes, as long as the layer can hardly be full.
const SHARE: u32 = 10;

#[derive(Debug)]
pub(super) struct Room<'a> {
    pub(super) layer: Option<&'a Layer>,
    asked: Instant,
    looked: Instant,
    /// What the last look took.
    cost: Duration,
    is_used_up: bool,
}

impl<'a> Room<'a> {
    pub(super) fn of(layer: Option<&'a Layer>) -> Room<'a> {
        let now = Instant::now();
        Room { layer, asked: now, looked: now, cost: Duration::ZERO, is_used_up: false }
    }

    /// To be asked often; it looks now and then.
    pub(super) fn is_used_up(&mut self) -> bool {
        let Some(layer) = self.layer.filter(|_| BETWEEN_LOOKS <= self.asked.elapsed()) else {
            return self.is_used_up;
        };
        self.asked = Instant::now();
        let due = pause(layer.disk_got_fuller_by(), layer.max_bytes(), self.cost);
        if due <= self.looked.elapsed() {
            let started = Instant::now();
            self.is_used_up |= layer.is_full();
            (self.cost, self.looked) = (started.elapsed(), Instant::now());
        }
        self.is_used_up
    }

    /// What it might have written, if it wrote more.
    pub(super) fn wrote_too_much(&self) -> Option<Bytes> {
        let max = self.layer.map(|it| Bytes(it.max_bytes()));
        max.filter(|_| self.is_used_up)
    }
}

/// How long to wait between two looks, when the disk got fuller by so many bytes and a look takes so long.
fn pause(fuller: u64, max: u64, cost: Duration) -> Duration {
    if max < fuller {
        return BETWEEN_LOOKS.max(cost);
    }
    let shortest = if max / 2 < fuller { BETWEEN_LOOKS } else { LONGEST };
    shortest.max(SHARE * cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_of_many_files_is_looked_at_when_it_may_be_full() {
        let seconds = Duration::from_secs;
        assert_eq!(pause(0, 100, Duration::ZERO), seconds(30));
        assert_eq!(pause(60, 100, Duration::ZERO), seconds(1));
        assert_eq!(pause(60, 100, seconds(4)), seconds(40));
        assert_eq!(pause(101, 100, seconds(4)), seconds(4));
        assert_eq!(pause(101, 100, Duration::ZERO), seconds(1));
    }
}
