//! What a pickle stores and recalls by number.

use crate::{
    sources::pickle::{Damage, Stop, Value},
    trace::TextId,
};

/// What PUT and MEMOIZE stored, four bytes an entry: a writer memoises every container and text.
#[derive(Default)]
pub(super) struct Memo {
    /// A tag in the two high bits, an id below.
    entries: Vec<u32>,
    /// Values that are neither texts nor objects; no writer stores any, so there are few.
    others: Vec<Value>,
}

/// So many values that no writer stores are followed.
const MOST_OTHERS: usize = 1 << 16;
const MEMO_NOTHING: u32 = 0;
const MEMO_TEXT: u32 = 1 << 30;
const MEMO_OBJECT: u32 = 2 << 30;
const MEMO_OTHER: u32 = 3 << 30;
const MEMO_ID: u32 = MEMO_TEXT - 1;

impl Memo {
    #[inline]
    pub(super) fn get(&self, index: u64) -> Option<Value> {
        let entry = *self.entries.get(usize::try_from(index).ok()?)?;
        let (tag, id) = (entry & !MEMO_ID, entry & MEMO_ID);
        // Two comparisons, which the processor foresees better than a jump table.
        if tag == MEMO_OBJECT {
            Some(Value::Object(id))
        } else if tag == MEMO_TEXT {
            Some(Value::Text(TextId(id)))
        } else {
            self.rare(tag, id)
        }
    }

    #[cold]
    fn rare(&self, tag: u32, id: u32) -> Option<Value> {
        (tag == MEMO_OTHER).then(|| self.others.get(id as usize).copied()).flatten()
    }

    /// Stores `value` after all others.
    #[inline]
    pub(super) fn push(&mut self, value: Value) -> Result<(), Stop> {
        let entry = self.entry(value)?;
        self.entries.push(entry);
        Ok(())
    }

    /// Stores `value` at `index`, whatever was there.
    pub(super) fn put(&mut self, index: usize, value: Value) -> Result<(), Stop> {
        let entry = self.entry(value)?;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, MEMO_NOTHING);
        }
        self.entries[index] = entry;
        Ok(())
    }

    #[inline]
    fn entry(&mut self, value: Value) -> Result<u32, Stop> {
        let (tag, id) = match value {
            Value::Text(TextId(id)) => (MEMO_TEXT, id),
            Value::Object(id) => (MEMO_OBJECT, id),
            _ if MOST_OTHERS <= self.others.len() => {
                return Err(Damage::TooMuch("numbers that are stored").into());
            }
            other => {
                let id = u32::try_from(self.others.len()).unwrap_or(u32::MAX);
                self.others.push(other);
                (MEMO_OTHER, id)
            }
        };
        if MEMO_ID < id { Err(Damage::TooMuch("objects").into()) } else { Ok(tag | id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_writer_stores_is_not_stored_without_end() {
        let mut memo = Memo::default();
        for _ in 0..MOST_OTHERS {
            memo.push(Value::None).unwrap();
        }
        assert!(memo.push(Value::None).is_err());
        memo.push(Value::Object(7)).unwrap();
    }
}
