//! What is remembered between two calls of a program: few entries, forgotten in the order in which they came.

use std::{
    cell::UnsafeCell,
    collections::VecDeque,
    hint,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// So often it is tried to enter.
const TRIES: u32 = 10_000;

/// Entries that all threads share. Where somebody is inside for ever, as another thread of the parent was when this process
/// was forked, nothing is remembered.
pub(crate) struct Table<T> {
    is_taken: AtomicBool,
    most: usize,
    entries: UnsafeCell<VecDeque<T>>,
    n: AtomicUsize,
}

// SAFETY: the entries are reached by who has set `is_taken` alone.
unsafe impl<T: Send> Sync for Table<T> {}

impl<T> Table<T> {
    pub(crate) const fn new(most: usize) -> Table<T> {
        Table {
            is_taken: AtomicBool::new(false),
            most,
            entries: UnsafeCell::new(VecDeque::new()),
            n: AtomicUsize::new(0),
        }
    }

    /// Without entering.
    pub(crate) fn is_empty(&self) -> bool {
        self.n.load(Ordering::Relaxed) == 0
    }

    /// Forgets who `is_old`, and remembers `entry`.
    pub(crate) fn put(&self, is_old: impl Fn(&T) -> bool, entry: T) {
        self.inside(|entries| {
            entries.retain(|it| !is_old(it));
            if self.most <= entries.len() {
                entries.pop_front();
            }
            entries.push_back(entry);
        });
    }

    pub(crate) fn forget(&self, is_it: impl Fn(&T) -> bool) {
        if !self.is_empty() {
            self.inside(|entries| entries.retain(|it| !is_it(it)));
        }
    }

    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<T>
    where
        T: Clone,
    {
        if self.is_empty() {
            return None;
        }
        self.inside(|entries| entries.iter().rev().find(|it| is_it(it)).cloned()).flatten()
    }

    fn inside<R>(&self, act: impl FnOnce(&mut VecDeque<T>) -> R) -> Option<R> {
        let enter = || !self.is_taken.swap(true, Ordering::Acquire);
        let has_entered = (0..TRIES).any(|_| {
            let it = enter();
            if !it {
                hint::spin_loop();
            }
            it
        });
        if !has_entered {
            return None;
        }
        // SAFETY: we are inside, and nobody else is.
        let entries = unsafe { &mut *self.entries.get() };
        let res = act(entries);
        self.n.store(entries.len(), Ordering::Relaxed);
        self.is_taken.store(false, Ordering::Release);
        Some(res)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_are_remembered() {
        let table = Table::new(2);
        assert!(table.is_empty());
        for it in [(1, "a"), (2, "b"), (2, "c"), (3, "d")] {
            table.put(|known: &(i32, &str)| known.0 == it.0, it);
        }
        let found = |n| table.find(|it| it.0 == n).map(|it| it.1);
        assert_eq!([found(1), found(2), found(3)], [None, Some("c"), Some("d")]);
        table.forget(|it| it.0 == 2);
        assert_eq!(found(2), None);
    }

    #[test]
    fn who_finds_it_taken_for_ever_goes_on() {
        let table = Table::new(2);
        table.put(|_: &i32| false, 1);
        table.is_taken.store(true, Ordering::Release);
        table.put(|_| false, 2);
        assert_eq!(table.find(|_| true), None);
    }
}
