//! Texts, each stored once. A recording names the same files, functions and modules millions of
//! times.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;

use crate::{printable::one_line, trace::TextId};

/// Texts by id. Ids count up from 0 in order of first appearance, so the same input gives the same
/// ids; 0 is the empty text.
#[derive(Clone, Debug)]
pub struct Interner {
    /// All texts, one after the other: one allocation, not one for each.
    bytes: String,
    /// Where each text ends in `bytes`; it begins where the one before ends.
    ends: Vec<usize>,
    ids: IdTable,
    /// What was found last.
    last: TextId,
}

impl Interner {
    /// The id of `text`, new or not. It is kept on one line, so that no name in a recording can pass for a line of a report.
    pub fn intern(&mut self, text: &str) -> TextId {
        if !self.ends.is_empty() && self.get(self.last) == text {
            return self.last;
        }
        let text = &*one_line(text);
        let Interner { bytes, ends, ids, last } = self;
        let new = id_after(ends.len());
        let found = ids.find_or_insert(text, new, |id| slice(bytes, ends, id));
        if found == new {
            bytes.push_str(text);
            ends.push(bytes.len());
        }
        *last = TextId(found);
        *last
    }

    /// What was found last, if its bytes are these: writers repeat texts that they do not share.
    #[inline]
    pub fn last_if(&self, bytes: &[u8]) -> Option<TextId> {
        (self.get(self.last).as_bytes() == bytes).then_some(self.last)
    }

    /// The text of `id`.
    #[inline]
    pub fn get(&self, id: TextId) -> &str {
        slice(&self.bytes, &self.ends, id.0)
    }

    /// How many texts there are, the empty one included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: there is the empty text.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl Default for Interner {
    fn default() -> Interner {
        let mut empty = Interner {
            bytes: String::new(),
            ends: Vec::new(),
            ids: IdTable::default(),
            last: TextId(0),
        };
        empty.intern("");
        empty
    }
}

fn slice<'a>(bytes: &'a str, ends: &[usize], id: u32) -> &'a str {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &bytes[start..ends[id]]
}

/// The id for the next entry of a table of `len` entries.
pub(super) fn id_after(len: usize) -> u32 {
    u32::try_from(len).expect("sources stop before 2^32 entries")
}

/// Finds the id of a value that is stored elsewhere, by hash. It is not a map: nobody can iterate
/// over it, so its order cannot end up in a report.
#[derive(Clone, Debug, Default)]
pub(super) struct IdTable {
    /// Open addressing, id + 1 or 0 for none. Invariant: a power of two long, at most half full.
    slots: Vec<u32>,
    n_ids: usize,
    /// Keyed at random, so that no file can be made whose values all collide.
    hasher: RandomState,
}

impl IdTable {
    /// The id of the stored value that equals `value`, or else `new`, which is remembered for it.
    pub(super) fn find_or_insert<V, S>(
        &mut self,
        value: V,
        new: u32,
        stored: impl Fn(u32) -> S,
    ) -> u32
    where
        V: Hash + PartialEq<S>,
        S: Hash,
    {
        if self.slots.len() <= self.n_ids * 2 {
            self.grow(&stored);
        }
        let mut at = self.slot_of(&value);
        loop {
            match self.slots[at] {
                0 => {
                    self.slots[at] = new + 1;
                    self.n_ids += 1;
                    return new;
                }
                id if value == stored(id - 1) => return id - 1,
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    fn grow<S: Hash>(&mut self, stored: &impl Fn(u32) -> S) {
        let n_slots = (self.slots.len() * 2).max(64);
        let old = std::mem::replace(&mut self.slots, vec![0; n_slots]);
        for id in old.into_iter().filter(|it| *it != 0) {
            let mut at = self.slot_of(&stored(id - 1));
            while self.slots[at] != 0 {
                at = (at + 1) & (n_slots - 1);
            }
            self.slots[at] = id;
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low bits of a hash are what is wanted"
    )]
    fn slot_of(&self, value: &impl Hash) -> usize {
        self.hasher.hash_one(value) as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_id_and_ids_count_up() {
        let mut texts = Interner::default();
        let ids: Vec<u32> = ["a", "", "b", "a", "b"].map(|it| texts.intern(it).0).to_vec();
        assert_eq!(ids, [1, 0, 2, 1, 2]);
        for n in 0..10_000 {
            assert_eq!(texts.intern(&n.to_string()).0, 3 + n);
        }
        assert_eq!(texts.get(TextId(3 + 777)), "777");
        assert_eq!(texts.len(), 10_003);
        let ids = ["a\nb", r"a\nb"].map(|it| texts.intern(it));
        assert_eq!((ids[0], texts.get(ids[0])), (ids[1], r"a\nb"));
    }
}
