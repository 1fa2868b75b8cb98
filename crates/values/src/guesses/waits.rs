//! A program that waits for a value that nobody computes: `while not done.any()`, or rejection sampling, which
//! draws until something is accepted. Whatever is asked again is answered as before, so it would wait for ever.
//! Where the same question comes after the same kernels very many times, and the program neither steps nor brings
//! anything new to the device in between, the other answer is given once, and the report says so.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::remarks::Remarks;

/// So often a question is answered in the same way. A loop that ends by a limit should reach it: a generation of
/// 4,096 tokens asks a few times for each, a diffusion of 1,000 steps may look for NaN in every block. A turn of a
/// loop that waits costs a tenth of a millisecond or two, so one that does is let go after seconds.
const PATIENCE: u32 = 1 << 15;

/// So often once the program is known to wait, until it gets on: what it waits for may come of several answers.
const AGAIN: u32 = 1 << 12;

/// A program with more different questions than these does not turn on the spot.
const QUESTIONS: usize = 256;

/// Larger copies to the device are not looked at: they are taken for new.
const LOOKED_AT: usize = 256;

/// What was asked since the program last got on; all threads count as one, since one may load what another asks about.
#[derive(Debug)]
pub(crate) struct Wait {
    /// What was asked, by the kernels before it and its usual answer.
    asked: BTreeMap<(u64, u64), Asked>,
    /// How often a question has to be asked for the other answer.
    patience: u32,
    /// Hashes of the small copies to the device.
    copied: BTreeSet<u64>,
}

/// How often one question was asked, since its other answer was given so many times.
#[derive(Debug, Default)]
struct Asked {
    times: u32,
    over: u32,
}

impl Default for Wait {
    fn default() -> Wait {
        Wait { asked: BTreeMap::new(), patience: PATIENCE, copied: BTreeSet::new() }
    }
}

impl Wait {
    /// The program got on: it finished a step, or its data is new.
    pub(crate) fn progress(&mut self) {
        *self = Wait::default();
    }

    /// The program copied these bytes to the device. That is no progress if it did before: a constant that is made anew
    /// in each turn of a loop.
    pub(crate) fn copied(&mut self, bytes: &[u8]) {
        if QUESTIONS < self.copied.len() {
            self.copied.clear();
        }
        let is_new = LOOKED_AT < bytes.len() || {
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            self.copied.insert(hasher.finish())
        };
        if is_new {
            self.asked.clear();
            self.patience = PATIENCE;
        }
    }

    /// Whether the program has waited long enough for another answer than `usual`, which nobody knows to be true; and
    /// the how manieth time it is that it waited so long. `kernels` are those since the last question.
    pub(crate) fn over(
        &mut self,
        kernels: &mut u64,
        usual: u64,
        remarks: &mut Remarks,
    ) -> Option<u32> {
        let over = self.is_over(std::mem::take(kernels), usual)?;
        remarks.approximate(
            "the script waits for a value in a loop; plimsoll ended the loop after 32,768 reads: how long such a loop runs depends on values",
        );
        Some(over)
    }

    fn is_over(&mut self, kernels: u64, usual: u64) -> Option<u32> {
        let question = (kernels, usual);
        if self.asked.len() == QUESTIONS && !self.asked.contains_key(&question) {
            self.asked.clear();
        }
        let asked = self.asked.entry(question).or_default();
        asked.times += 1;
        if asked.times < self.patience {
            return None;
        }
        self.patience = AGAIN;
        *asked = Asked { times: 0, over: asked.over + 1 };
        Some(asked.over)
    }
}

/// `kernels`, and then the one at `stub`, as so many blocks.
pub(crate) fn then(kernels: u64, stub: u64, blocks: u32) -> u64 {
    let mixed = kernels.rotate_left(5) ^ stub ^ (u64::from(blocks) << 40);
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many turns of a loop, each of which does something before it asks, are answered otherwise.
    fn turns_of(wait: &mut Wait, count: u32, turn: impl Fn(&mut Wait, u32) -> u64) -> usize {
        let mut ask = |i| {
            let kernels = turn(wait, i);
            wait.is_over(kernels, 0).is_some()
        };
        (0..count).filter(|&i| ask(i)).count()
    }

    /// The same, of a program that has not asked anything before.
    fn turns(count: u32, turn: impl Fn(&mut Wait, u32) -> u64) -> usize {
        let mut wait = Wait::default();
        turns_of(&mut wait, count, turn)
    }

    #[test]
    fn who_waits_is_told_the_other_answer_once_and_once_more() {
        let mut wait = Wait::default();
        assert_eq!(turns_of(&mut wait, PATIENCE - 1, |_, _| then(0, 77, 1)), 0);
        assert_eq!(wait.is_over(then(0, 77, 1), 0), Some(1));
        assert_eq!(turns_of(&mut wait, AGAIN - 1, |_, _| then(0, 77, 1)), 0);
        assert_eq!(wait.is_over(then(0, 77, 1), 0), Some(2));
    }

    #[test]
    fn a_constant_that_is_made_in_each_turn_is_no_progress() {
        let constant = |wait: &mut Wait, _| {
            wait.copied(&[1, 2, 3]);
            77
        };
        assert_eq!(turns(PATIENCE, constant), 1);
    }

    #[test]
    fn who_gets_on_is_told_the_usual() {
        let batches = |wait: &mut Wait, i: u32| {
            wait.copied(&(i / 1000).to_le_bytes());
            77
        };
        let cache_grows = |_: &mut Wait, i| then(then(0, 77, 1), 78, i / 64);
        assert_eq!(turns(3 * PATIENCE, batches), 0);
        assert_eq!(turns(3 * PATIENCE, cache_grows), 0);
    }
}
