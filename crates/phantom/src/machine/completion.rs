//! When queued work is done. Nothing is computed here, so any moment would do at which a real device
//! could be done, and a program that asks sees which: PyTorch's allocator, for blocks that several
//! streams used, and its watchdog, for what a collective holds. On a real device the answers are a
//! race; here they are one end of it or the other, always. Safe, and without C.

use std::collections::{BTreeMap, VecDeque};

/// Which end of the race.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Work is done when it is queued, and a watchdog has looked when a training step is over.
    #[default]
    AtOnce,
    /// Work is done when the program has waited for it, or when the device would take no more before
    /// it is. A watchdog looks a whole step later.
    Late,
}

/// Launches that a device takes before the host has to wait: the depth of the queue of a CUDA stream, as
/// measured by many (it is in no manual).
const DEPTH: u64 = 1024;
/// A program that asks so often and does nothing else waits for the answer.
const PATIENCE: u32 = 1000;

/// A place in a stream's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    stream: u64,
    at: u64,
}

/// A stream's work, counted.
#[derive(Debug, Default)]
struct Line {
    queued: u64,
    done: u64,
    /// From which place on it waits for which work of others, in order.
    waits: VecDeque<(u64, Mark)>,
}

/// The work of all streams.
#[derive(Debug, Default)]
pub struct Completion {
    order: Order,
    lines: BTreeMap<u64, Line>,
    refused_in_a_row: u32,
    /// How often "done" was answered where a slower device would have said "not yet".
    pub hurried: u64,
}

impl Completion {
    /// Nothing is queued.
    pub fn new(order: Order) -> Completion {
        Completion { order, ..Completion::default() }
    }

    /// Which end of the race this is.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Work is queued on `stream`.
    pub fn queue(&mut self, stream: u64) {
        self.refused_in_a_row = 0;
        let line = self.lines.entry(stream).or_default();
        line.queued += 1;
        if DEPTH < line.queued - line.done {
            let at = line.queued - DEPTH;
            self.finish(Mark { stream, at });
        }
    }

    /// All that is queued on `stream` by now.
    pub fn mark(&self, stream: u64) -> Mark {
        Mark { stream, at: self.lines.get(&stream).map_or(0, |it| it.queued) }
    }

    /// What is queued on `stream` from now on waits for `mark`.
    pub fn wait(&mut self, stream: u64, mark: Mark) {
        if stream != mark.stream && !self.is_done(mark) {
            let line = self.lines.entry(stream).or_default();
            line.queued += 1;
            line.waits.push_back((line.queued, mark));
        }
    }

    /// The host has waited for `mark`, and so for all that it waits for.
    pub fn finish(&mut self, mark: Mark) {
        let mut marks = vec![mark];
        while let Some(Mark { stream, at }) = marks.pop() {
            let Some(line) = self.lines.get_mut(&stream) else { continue };
            line.done = line.done.max(at);
            while let Some((_, of)) = line.waits.pop_front_if(|it| it.0 <= at) {
                marks.push(of);
            }
        }
    }

    /// The host has waited for everything.
    pub fn finish_all(&mut self) {
        for line in self.lines.values_mut() {
            line.done = line.queued;
            line.waits.clear();
        }
    }

    /// A stream is gone, with its work.
    pub fn forget(&mut self, stream: u64) {
        self.finish(self.mark(stream));
        self.lines.remove(&stream);
    }

    /// Whether the work before `mark` is done even on a device that takes its time.
    pub fn is_done(&self, mark: Mark) -> bool {
        self.lines.get(&mark.stream).is_none_or(|it| mark.at <= it.done)
    }

    /// The program asks whether it is, and device memory depends on the answer if it `matters`.
    pub fn ask(&mut self, mark: Mark, matters: bool) -> bool {
        if self.is_done(mark) {
            return true;
        }
        match self.order {
            Order::AtOnce => {
                self.hurried += u64::from(matters);
                true
            }
            Order::Late if self.refused_in_a_row < PATIENCE => {
                self.refused_in_a_row += 1;
                false
            }
            Order::Late => {
                self.finish(mark);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_when_the_host_has_waited_for_it() {
        let mut it = Completion::new(Order::Late);
        it.queue(1);
        let first = it.mark(1);
        it.queue(1);
        let second = it.mark(1);
        assert!(!it.ask(first, true));
        it.finish(first);
        assert!(it.ask(first, true) && !it.ask(second, true));
        it.finish_all();
        assert!(it.ask(second, true));
    }

    #[test]
    fn who_waits_for_a_stream_waits_for_what_it_waits_for() {
        let mut it = Completion::new(Order::Late);
        it.queue(1);
        let computed = it.mark(1);
        it.wait(2, computed);
        it.queue(2);
        let sent = it.mark(2);
        it.queue(1);
        let after = it.mark(1);
        it.finish(sent);
        assert!(it.ask(computed, true) && it.ask(sent, true) && !it.ask(after, true));
    }

    #[test]
    fn a_device_takes_no_more_than_its_queue_holds() {
        let mut it = Completion::new(Order::Late);
        it.queue(1);
        let first = it.mark(1);
        for _ in 0..DEPTH {
            assert!(!it.ask(first, true));
            it.queue(1);
        }
        assert!(it.ask(first, true));
    }

    #[test]
    fn a_program_that_only_asks_is_answered_in_the_end() {
        let mut it = Completion::new(Order::Late);
        it.queue(1);
        let mark = it.mark(1);
        assert!((0..=PATIENCE).any(|_| it.ask(mark, true)));
    }

    #[test]
    fn answers_that_a_slower_device_would_not_give_are_counted() {
        let mut it = Completion::new(Order::AtOnce);
        it.queue(1);
        assert!(it.ask(it.mark(1), true) && it.ask(it.mark(1), false));
        it.finish(it.mark(1));
        assert!(it.ask(it.mark(1), true));
        assert_eq!(it.hurried, 1);
    }
}
