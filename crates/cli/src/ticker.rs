//! Signs of life for a person who waits at a terminal: after two seconds, and then every few.

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use crate::{
    output::{self, say},
    signals::without_signals,
};

const FIRST_AFTER: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(5);

/// Speaks until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    _alive: Option<Sender<()>>,
}

impl Ticker {
    /// `what` is being done, as in "exporting big.pickle".
    pub(crate) fn start(what: String) -> Ticker {
        if !output::is_seen() {
            return Ticker { _alive: None };
        }
        let (alive, ended) = mpsc::channel::<()>();
        // A signal is for the thread that works; it may have held it back.
        let _thread = without_signals(|| thread::spawn(move || speak(&what, &ended)));
        Ticker { _alive: Some(alive) }
    }
}

fn speak(what: &str, ended: &Receiver<()>) {
    let started = Instant::now();
    let mut wait = FIRST_AFTER;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let seconds = started.elapsed().as_secs();
        say(&format!("{what}: {seconds} s"));
        wait = EVERY;
    }
}
