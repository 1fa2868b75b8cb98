//! What a program is given where it asks for the best of numbers that nobody knows: the expert that a router sends a token
//! to, the class that a picture is of, the word that comes next.
//!
//! Each is as good as the next, so they are drawn at random. But of many, which are most likely words, none is drawn that
//! programs ask for by name: the word that ends a text stands at the first or at the last places of a vocabulary, and a text
//! that does not end is as long as the program lets it become, which takes the most memory.

use std::collections::BTreeSet;

use crate::numbers::arithmetic::BEYOND_ALL;

/// The experts of a router, and the classes of a small problem, are no more than these.
pub(crate) const FEW: u64 = 256;

/// The most bytes of indices that are made.
const MOST: u64 = 1 << 20;

/// Likewise, of those that may come again.
const MOST_DRAWN: u64 = 1 << 21;

/// What is known of the chances that places of one row have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// Places without a chance.
    pub(crate) never: BTreeSet<u64>,
    /// The chances, if each is known.
    pub(crate) weights: Option<Vec<f64>>,
}

impl Row {
    /// The weights, each with all before it; none if they are not known, or there are none.
    fn sums(&self) -> Option<Vec<f64>> {
        let mut sum = 0.0;
        let sums: Vec<f64> = (self.weights.as_ref()?.iter())
            .map(|it| {
                sum += it.max(0.0);
                sum
            })
            .collect();
        (sum.is_finite() && 0.0 < sum).then_some(sums)
    }
}

/// What was chosen so far.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    /// How many series were begun.
    drawn: u64,
    /// Whether this is one rank of several.
    pub(crate) has_ranks: bool,
    /// Which share of the slices has the first place as its best, in millionths; `None` if nobody said.
    first_millionths: Option<u64>,
}

impl Choices {
    /// With the first place as the best of this share of slices, in millionths.
    pub(crate) fn favouring(first_millionths: Option<u64>) -> Choices {
        Choices { first_millionths, ..Choices::default() }
    }

    /// Which of `size` are the best, in so many slices. New routers choose so (of 20 over normalised inputs on an H200, 12 spread
    /// their tokens as draws do): no two experts have the same number. Ranks of a job tell each other how many, and each is
    /// imagined to get what it sends: there the same number goes to all. Indices of 64 bits; none if there is nothing to
    /// choose, or too much. Of each slice the places that are `out` come last: they are chosen where the others are too few.
    pub(crate) fn choose(
        &mut self,
        (size, chosen, slices): (u64, u64, u64),
        out: &[BTreeSet<u64>],
    ) -> Option<Vec<u8>> {
        let bytes = slices.saturating_mul(chosen).saturating_mul(8);
        if size == 0 || size < chosen || MOST < bytes {
            return None;
        }
        let mut random = self.another();
        let mut values = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        // A vocabulary of which nearly everything is chosen is none.
        if FEW < size && chosen <= size / 8 {
            let vocabularies = vocabularies(size);
            for slice in 0..usize::try_from(slices).ok()? {
                let out = out.get(slice);
                let out = out.filter(|it| has_room(it, size, chosen));
                // Where most places are out, the script said which it wants: any of those.
                if let Some(out) = out.filter(|it| size <= 2 * u64::try_from(it.len()).unwrap_or(0))
                {
                    let mut open: Vec<u64> = (0..size).filter(|it| !out.contains(it)).collect();
                    for _ in 0..chosen {
                        let n = u64::try_from(open.len()).unwrap_or(1).max(1);
                        let at = usize::try_from(draw(&mut random) % n).unwrap_or(0);
                        values.extend(open.swap_remove(at).to_le_bytes());
                    }
                    continue;
                }
                let mut taken = out.cloned().unwrap_or_default();
                for _ in 0..chosen {
                    let it = word(&mut random, size, &vocabularies, &taken);
                    if 1 < chosen {
                        taken.insert(it);
                    }
                    values.extend(it.to_le_bytes());
                }
            }
            return Some(values);
        }
        // The first place is chosen where it is favoured, and only there.
        let is_open = out.is_empty() && 0 < chosen && chosen < size;
        if let Some(share) = self.first_millionths.filter(|_| is_open) {
            let so_many = |slices: u64| slices.saturating_mul(share) / 1_000_000;
            for slice in 0..slices {
                let favours = u64::from(so_many(slice) < so_many(slice + 1));
                values.extend((0..favours).flat_map(u64::to_le_bytes));
                let others = (favours..chosen).map(|i| 1 + (slice + i) % (size - 1));
                values.extend(others.flat_map(u64::to_le_bytes));
            }
            return Some(values);
        }
        let mut left: Vec<u64> = (0..size).collect();
        for slice in 0..slices {
            let out = usize::try_from(slice).ok().and_then(|it| out.get(it));
            let mut open = size;
            if let Some(out) = out {
                left.sort_by_key(|it| out.contains(it));
                let first = left.partition_point(|it| !out.contains(it));
                open = u64::try_from(first).unwrap_or(size);
            }
            for i in 0..chosen {
                if self.has_ranks && out.is_none() {
                    values.extend(((slice + i) % size).to_le_bytes());
                    continue;
                }
                // The first `i` are taken.
                let end = if i < open { open } else { size };
                let at = usize::try_from(i + draw(&mut random) % (end - i)).unwrap_or(0);
                left.swap(usize::try_from(i).unwrap_or(0), at);
                values.extend(left[usize::try_from(i).unwrap_or(0)].to_le_bytes());
            }
        }
        Some(values)
    }

    /// Places of `size`, so many of each row, by what is known of their chances; any of them may come again. Indices of 64 bits; none if
    /// there is nothing to draw from, or too much.
    pub(crate) fn draw(&mut self, size: u64, draws: u64, rows: &[Row]) -> Option<Vec<u8>> {
        let all = draws.checked_mul(u64::try_from(rows.len()).ok()?)?;
        if size == 0 || MOST_DRAWN < all {
            return None;
        }
        let mut random = self.another();
        let vocabularies = if FEW < size { vocabularies(size) } else { Vec::new() };
        let mut values = Vec::with_capacity(usize::try_from(8 * all).unwrap_or(0));
        for (first, row) in (0..).zip(rows) {
            let sums = row.sums();
            let open: Vec<u64> = match FEW < size {
                true => Vec::new(),
                false => (0..size).filter(|it| !row.never.contains(it)).collect(),
            };
            for i in first..first + draws {
                let place = match (&sums, open.len()) {
                    (Some(sums), _) => by_weight(sums, draw(&mut random)),
                    (None, 0) if FEW < size && has_room(&row.never, size, 1) => {
                        word(&mut random, size, &vocabularies, &row.never)
                    }
                    (None, 0) => draw(&mut random) % size,
                    (None, n) => {
                        let n = u64::try_from(n).unwrap_or(1);
                        let at = if self.has_ranks { i } else { draw(&mut random) };
                        open[usize::try_from(at % n).unwrap_or(0)]
                    }
                };
                values.extend(place.to_le_bytes());
            }
        }
        Some(values)
    }

    /// Where the next series begins.
    fn another(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }
}

/// Whether a program that wrote this number itself, among many that nobody knows, will not see it among the best: what is not to be
/// chosen it sets to minus infinity, to minus a billion, or to zero.
pub(crate) fn is_out(number: f64, largest: bool) -> bool {
    if largest { number <= 0.0 } else { BEYOND_ALL <= number }
}

/// Whether enough of so many places are not `out`.
fn has_room(out: &BTreeSet<u64>, size: u64, chosen: u64) -> bool {
    u64::try_from(out.len()).is_ok_and(|out| out + chosen <= size)
}

/// How large the vocabulary may be of which a program sees `size` words: a search that goes on with several texts chooses
/// among the words that may follow any of them.
fn vocabularies(size: u64) -> Vec<u64> {
    const TEXTS: u64 = 64;
    const FEWEST_WORDS: u64 = 32;
    let texts = (1..=TEXTS).filter(|it| size.is_multiple_of(*it));
    texts.map(|it| size / it).filter(|&it| FEWEST_WORDS <= it).collect()
}

/// Whether a word of a vocabulary of that size stands where those stand that programs name. The end of a text is the second
/// word of T5's 32,128, the 102nd of BERT's 30,522, the last one of GPT-2's, and has 1,607 behind it of Whisper's 51,865.
fn is_named(word: u64, words: u64) -> bool {
    word < 4.max(words / 64) || words - words / 16 <= word
}

/// The next word, none of those that are taken.
fn word(random: &mut u64, size: u64, vocabularies: &[u64], taken: &BTreeSet<u64>) -> u64 {
    // Of several vocabularies that one cannot be told from, most of the places may be named; then any is as good.
    const TRIES: usize = 256;
    for _ in 0..TRIES {
        let it = draw(random) % size;
        if !taken.contains(&it) && !vocabularies.iter().any(|&words| is_named(it % words, words)) {
            return it;
        }
    }
    let mut it = draw(random) % size;
    while taken.contains(&it) {
        it = (it + 1) % size;
    }
    it
}

/// The place that a random number of 64 bits stands for, by these sums.
fn by_weight(sums: &[f64], random: u64) -> u64 {
    const STEPS: f64 = (1_u64 << 32) as f64;
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / STEPS;
    let wanted = share * sums.last().copied().unwrap_or(0.0);
    u64::try_from(sums.partition_point(|it| *it <= wanted)).unwrap_or(0)
}

/// The next of a series that looks random and is always the same: `SplitMix64` (Steele, Lea and Flood, 2014).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut it = *state;
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(size: u64, chosen: u64, slices: u64) -> Vec<u64> {
        let bytes = Choices::default().choose((size, chosen, slices), &[]).expect("not too many");
        bytes.as_chunks::<8>().0.iter().map(|&it| u64::from_le_bytes(it)).collect()
    }

    #[test]
    fn no_text_ends_whichever_word_ends_it() {
        let models = [
            ("GPT-2", 50_257, 50_256),
            ("BERT", 30_522, 102),
            ("T5", 32_128, 1),
            ("BART", 50_265, 2),
            ("Whisper", 51_865, 50_257),
            ("Llama 3", 128_256, 128_009),
            ("Qwen 2.5", 152_064, 151_645),
            ("a test's", 1000, 2),
        ];
        for (model, words, end) in models {
            for texts in [1, 2, 3, 4, 5, 8, 16] {
                let following = chosen(texts * words, (2 * texts).min(texts * words / 16), 300);
                assert!(following.iter().all(|it| it % words != end), "{model}, {texts}");
                assert!(following.iter().all(|it| *it < texts * words));
            }
        }
    }

    #[test]
    fn nothing_is_chosen_twice_in_a_slice() {
        for (size, many) in [(8, 2), (8, 8), (300, 30), (1000, 900), (40_000, 2000)] {
            for slice in chosen(size, many, 2).chunks(usize::try_from(many).unwrap()) {
                assert_eq!(slice.iter().collect::<BTreeSet<_>>().len(), slice.len(), "{size}");
            }
        }
        assert_eq!(Choices::default().choose((3, 4, 1), &[]), None);
    }

    #[test]
    fn what_is_out_is_chosen_only_if_nothing_else_is() {
        let out = |it: &[u64]| it.iter().copied().collect::<BTreeSet<u64>>();
        let numbers = |bytes: Vec<u8>| -> Vec<u64> {
            bytes.as_chunks::<8>().0.iter().map(|&it| u64::from_le_bytes(it)).collect()
        };
        let of = |choices: &mut Choices, (size, chosen): (u64, u64), out: &[BTreeSet<u64>]| {
            let slices = u64::try_from(out.len()).expect("few");
            numbers(choices.choose((size, chosen, slices), out).expect("not too many"))
        };
        let all = of(&mut Choices::default(), (6, 3), &[out(&[0, 1, 2, 3]), out(&[0, 4, 5])]);
        let (first, second) = all.split_at(3);
        assert!(first.contains(&4) && first.contains(&5), "{first:?}");
        assert!([1, 2, 3].iter().all(|it| second.contains(it)), "{second:?}");
        let mut choices = Choices::default();
        for _ in 0..500 {
            let many = of(&mut choices, (300, 5), &[(0..20).collect()]);
            assert!(many.iter().all(|it| 20 <= *it), "{many:?}");
            let few = of(&mut choices, (40, 5), &[out(&[0, 7])]);
            assert!(!few.contains(&0) && !few.contains(&7), "{few:?}");
            assert_eq!(few.iter().collect::<BTreeSet<_>>().len(), 5);
        }
        assert_eq!(of(&mut choices, (300, 5), &[(0..298).collect()]).len(), 5);
    }

    #[test]
    fn an_expert_that_is_favoured_gets_its_share_and_none_is_chosen_twice() {
        for (share, tokens) in [(0, 0), (500_000, 200), (1_000_000, 400)] {
            let mut choices = Choices::favouring(Some(share));
            let bytes = choices.choose((8, 2, 400), &[]).expect("not too many");
            let numbers: Vec<u64> =
                bytes.as_chunks::<8>().0.iter().map(|&it| u64::from_le_bytes(it)).collect();
            assert_eq!(numbers.iter().filter(|it| **it == 0).count(), tokens, "{share}");
            assert!(numbers.chunks(2).all(|it| it[0] != it[1] && it[1] < 8), "{share}");
        }
    }

    #[test]
    fn experts_are_all_chosen() {
        let experts: BTreeSet<u64> = chosen(8, 1, 400).into_iter().collect();
        assert_eq!(experts.len(), 8);
    }
}
