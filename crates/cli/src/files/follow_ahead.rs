//! Reads a snapshot while a second thread follows the events that are there.

use std::{
    io::Read,
    panic,
    sync::mpsc::{SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use plimsoll_core::{
    replay::Ahead,
    sources::{
        ReadError,
        snapshot::{self, Whole},
    },
    trace::{Events, Keeper, Portion},
};

/// How many portions may wait for the second thread: reading ahead any further takes memory and gains nothing.
const MOST_WAITING: usize = 4;

/// Reads it; beside it which device was followed, and how far that got.
pub(crate) fn read(reader: impl Read) -> Result<(Whole, Option<(usize, Ahead)>), ReadError> {
    let mut second = Second::default();
    let whole = snapshot::read_with(reader, &mut second)?;
    let ahead = whole.begins.zip(second.followed);
    Ok((whole, ahead))
}

/// The second thread; what is read within one portion needs none.
#[derive(Default)]
struct Second {
    thread: Option<(SyncSender<Portion>, JoinHandle<Ahead>)>,
    /// Once it has ended.
    followed: Option<Ahead>,
}

impl Keeper for Second {
    fn keep(&mut self, portion: Portion) {
        let (portions, _) = self.thread.get_or_insert_with(|| {
            let (portions, come) = sync_channel::<Portion>(MOST_WAITING);
            let thread = thread::spawn(move || {
                let mut ahead = Ahead::default();
                come.iter().for_each(|it| ahead.follow(&it));
                ahead
            });
            (portions, thread)
        });
        // Nobody is there any more after a panic, which is passed on in the end.
        let _ = portions.send(portion);
    }

    fn give_back(&mut self) -> Events {
        let Some((portions, thread)) = self.thread.take() else { return Events::default() };
        drop(portions);
        let mut ahead = thread.join().unwrap_or_else(|it| panic::resume_unwind(it));
        let events = ahead.take_events();
        self.followed = Some(ahead);
        events
    }
}
