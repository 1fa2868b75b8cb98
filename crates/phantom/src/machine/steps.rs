//! How many training steps the program has finished, as the agent tells it. Does not begin the use of a device.

use std::sync::atomic::{AtomicU64, Ordering};

static FINISHED: AtomicU64 = AtomicU64::new(0);

/// The program has finished `steps` more; very many when it ends.
pub fn finish(steps: u64) {
    FINISHED.fetch_add(steps, Ordering::Relaxed);
}

/// How many it has finished.
pub fn finished() -> u64 {
    FINISHED.load(Ordering::Relaxed)
}
