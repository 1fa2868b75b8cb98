//! What each process held at the looks so far.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_core::units::Bytes;

use crate::gpu::machine::snapshot::{Row, Snapshot};

/// As many looks as a wide terminal has columns.
const LOOKS: usize = 120;

/// The process and the device of a line.
pub(super) type Key = (u32, Option<String>);

/// By line, the last looks: when, and how much. Lines that are gone are forgotten.
#[derive(Clone, Debug, Default)]
pub(super) struct History(BTreeMap<Key, VecDeque<(f64, Bytes)>>);

/// What is followed of a line: memory of its tensors, or what the driver says that it holds.
pub(super) fn followed(row: &Row<'_>) -> Option<(&'static str, Bytes)> {
    let allocated = row.counters.map(|it| ("allocated", it.allocated));
    allocated.or_else(|| row.held.map(|it| ("held", it)))
}

pub(super) fn key(row: &Row<'_>) -> Key {
    (row.process.pid, row.device.map(|it| it.uuid.clone()))
}

impl History {
    /// One more look.
    pub(super) fn note(&mut self, snapshot: &Snapshot) {
        let rows = snapshot.rows();
        let mut next = BTreeMap::new();
        for row in &rows {
            let Some((_, bytes)) = followed(row) else { continue };
            let key = key(row);
            let mut looks = self.0.remove(&key).unwrap_or_default();
            if looks.len() == LOOKS {
                looks.pop_front();
            }
            looks.push_back((snapshot.at, bytes));
            next.insert(key, looks);
        }
        self.0 = next;
    }

    /// The looks at a line, the last one last.
    pub(super) fn of(&self, row: &Row<'_>) -> Vec<(f64, Bytes)> {
        self.0.get(&key(row)).into_iter().flatten().copied().collect()
    }
}
