//! The largest value that fits, found in few runs: which value to run next, given what was run so far.
//!
//! Memory is nearly a straight line in a batch size, so two values that fit point at the third. A line only
//! proposes; what is answered has been run, and so has its neighbour above.

use std::collections::BTreeMap;

use plimsoll_core::units::Bytes;

/// What came of running one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It ran, and took so much of what is limited.
    Fits(Bytes),
    /// It ran out of memory.
    TooMuch,
    /// It did not run, for a reason that is not memory.
    Fails(String),
}

/// The search for the largest value that fits.
#[derive(Clone, Debug)]
pub struct Largest {
    lowest: u64,
    highest: u64,
    step: u64,
    limit: Bytes,
    start: Option<u64>,
    tried: BTreeMap<u64, Tried>,
    /// Of values that fit: what could not have been given back.
    held: BTreeMap<u64, Bytes>,
    order: Vec<u64>,
}

/// How far from the lowest value the search begins: batch-norm refuses one sample, and eight show a slope better.
const FIRST: u64 = 7;
/// How far beyond the largest value that fits a line is followed.
const FARTHEST: u64 = 16;
/// So many values that fit make a line and find its end, and the one above.
const ON_THE_LINE: usize = 3;
/// Beyond the end of a line the next value is this share of it away, then twice, four times as far.
const STRIDE_SHARE: u64 = 16;
/// What is held at a time ends the search near here: this share of the value below where it alone would reach the limit.
const HELD_SHARE: u64 = 64;
/// After so many values that ran out of memory lines have not helped, and the interval is halved.
const PATIENCE: usize = 3;

impl Largest {
    /// Among `lowest`, `lowest + step`, ... up to `highest`; `limit` is what there is of memory.
    pub fn new(lowest: u64, highest: u64, step: u64, limit: Bytes) -> Largest {
        let step = step.max(1);
        let highest = highest.max(lowest);
        Largest {
            lowest,
            highest: lowest + (highest - lowest) / step * step,
            step,
            limit,
            start: None,
            tried: BTreeMap::new(),
            held: BTreeMap::new(),
            order: Vec::new(),
        }
    }

    /// The same, but `value` is run first: another search found it.
    #[must_use]
    pub fn beginning_at(self, value: u64) -> Largest {
        Largest { start: Some(self.clamp(value)), ..self }
    }

    /// The same question up to `highest`, with nothing tried; `highest` is run first.
    #[must_use]
    pub fn afresh_up_to(&self, highest: u64) -> Largest {
        Largest::new(self.lowest, highest, self.step, self.limit).beginning_at(highest)
    }

    /// Takes in what came of `value`.
    pub fn tell(&mut self, value: u64, tried: Tried) {
        self.order.push(value);
        self.tried.insert(value, tried);
        // Twice beside the divisor of all that fit, never on it: then only its multiples are values.
        let divisor = self.divisor();
        let fails = self.tried.iter().filter(|(_, it)| matches!(it, Tried::Fails(_)));
        let (on, beside): (Vec<u64>, Vec<u64>) =
            fails.map(|(value, _)| *value).partition(|it| it % divisor == 0);
        if 2 <= beside.len() && on.is_empty() && self.step < divisor && 1 < self.fitting().len() {
            self.step = divisor;
            self.lowest = self.lowest.next_multiple_of(divisor);
            self.highest = self.highest / divisor * divisor;
        }
    }

    /// Takes in what `value`, which fits, held at a time of what is limited: without that much it could not have run, whatever
    /// is given back near the limit.
    pub fn held(&mut self, value: u64, held: Bytes) {
        self.held.insert(value, held);
    }

    /// Takes in what came of `value` when it was run once more, for longer.
    pub fn correct(&mut self, value: u64, tried: Tried) {
        self.tried.insert(value, tried);
    }

    /// How far apart the values are that were looked at; more than was asked for where only multiples run.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Every value that was run, in the order in which it was.
    pub fn tried(&self) -> impl Iterator<Item = (u64, &Tried)> {
        self.order.iter().filter_map(|it| Some((*it, self.tried.get(it)?)))
    }

    /// The largest value that was run and fits, below everything that ran out of memory where memory grows
    /// with the value.
    pub fn found(&self) -> Option<u64> {
        self.fitting().last().map(|(value, _)| *value)
    }

    /// The value above the one that was found, and what came of it; none at the end of the range.
    pub fn above(&self) -> Option<(u64, &Tried)> {
        let above = self.found()? + self.step;
        Some((above, self.tried.get(&above)?))
    }

    /// Whether what was found is the last value of the range.
    pub fn is_end(&self) -> bool {
        self.found().is_some_and(|it| self.highest < it + self.step)
    }

    /// Values that ran out of memory although a larger one fits.
    pub fn out_of_order(&self) -> Vec<u64> {
        let Some(found) = self.found() else { return Vec::new() };
        let too_much = self.tried.iter().filter(|(_, it)| **it == Tried::TooMuch);
        too_much.map(|(value, _)| *value).filter(|it| *it < found).collect()
    }

    /// The next value to run; none when the answer is known.
    pub fn next(&self) -> Option<u64> {
        let wanted = match (self.fitting().last(), self.upper()) {
            (None, None) => self.first()?,
            // Downwards, until something fits.
            (None, Some(upper)) => self.between(None, upper, self.halfway(self.lowest, upper))?,
            (Some((lower, _)), None) if *lower == self.highest => return None,
            (Some((lower, _)), None) => {
                let beyond = self.n_that_fit_last().saturating_sub(ON_THE_LINE);
                self.clamp(if self.is_line_wrong() {
                    let near = self.near_what_is_held().filter(|it| lower + self.step < *it);
                    near.unwrap_or(lower + self.beyond(*lower, beyond.max(1)))
                } else {
                    self.on_the_line(*lower).max(lower + self.step)
                })
            }
            (Some((lower, _)), Some(upper)) if upper <= lower + self.step => return None,
            (Some((lower, _)), Some(upper)) => {
                let is_memory = self.tried.get(&upper) == Some(&Tried::TooMuch);
                let wanted = match self.rounder(*lower, upper) {
                    Some(rounder) => rounder,
                    None if is_memory && self.n_too_much() < PATIENCE => {
                        let (line, is_line) = (self.on_the_line(*lower), 1 < self.fitting().len());
                        match () {
                            () if self.is_line_wrong() => self.below(*lower, upper),
                            // One value is no line: it says only where not to go on doubling.
                            () if line < upper => line,
                            () if is_line && self.n_that_fit_last() == 0 => {
                                let back = self.stride(upper, STRIDE_SHARE, self.n_too_much());
                                upper.saturating_sub(back).max(self.halfway(*lower, upper))
                            }
                            () => self.halfway(*lower, upper),
                        }
                    }
                    None => self.halfway(*lower, upper),
                };
                self.between(Some(*lower), upper, wanted)?
            }
        };
        (!self.tried.contains_key(&wanted)).then_some(wanted)
    }

    fn fitting(&self) -> Vec<(u64, Bytes)> {
        let fits = |(value, it): (&u64, &Tried)| match it {
            Tried::Fits(peak) => Some((*value, *peak)),
            _ => None,
        };
        self.tried.iter().filter_map(fits).collect()
    }

    /// The smallest value above all that fit which did not.
    fn upper(&self) -> Option<u64> {
        let above = self.found().map_or(self.lowest, |it| it + self.step);
        let does_not = |(value, it): (&u64, &Tried)| match it {
            Tried::Fits(_) => None,
            // Below everything that fits a failure says nothing: a batch of one and batch-norm. Nor does one
            // beside the values that can run.
            Tried::Fails(_) if self.found().is_none() => None,
            Tried::Fails(_) if !(*value - self.lowest).is_multiple_of(self.step) => None,
            _ => Some(*value),
        };
        self.tried.range(above..).find_map(does_not)
    }

    /// Where `failing` failed for another reason than memory: the value below it that has the divisor which
    /// all that fit have. Heads, groups and devices want batches that can be divided.
    fn rounder(&self, lower: u64, failing: u64) -> Option<u64> {
        let divisor = self.divisor();
        let fails = matches!(self.tried.get(&failing), Some(Tried::Fails(_)));
        let rounder = self.clamp(failing - failing % divisor);
        (fails && lower < rounder && rounder < failing).then_some(rounder)
    }

    /// Whether a line ended at a value and the next one fits, or creeps on: near the limit memory is made do with.
    fn is_line_wrong(&self) -> bool {
        let fitting = self.fitting();
        let next_to = |it: &&[(u64, Bytes)]| it[1].0 - it[0].0 == self.step;
        let ended = |it: &[(u64, Bytes)]| self.on_the_line(it[0].0) <= it[0].0;
        let creeps = |values: &[u64]| {
            let fits = |it: &u64| matches!(self.tried.get(it), Some(Tried::Fits(_)));
            values.iter().all(fits) && values[1] - values[0] < values[0] / STRIDE_SHARE
        };
        let last_two = || self.order.windows(2).skip(ON_THE_LINE).filter(|it| it[0] < it[1]);
        fitting.windows(2).filter(next_to).any(ended) || last_two().any(creeps)
    }

    /// How far to go from `value` the `n`th time that a line was wrong: first so small a share of it.
    fn stride(&self, value: u64, share: u64, n: usize) -> u64 {
        (value / share).saturating_mul(1 << n.saturating_sub(1).min(16)).max(self.step)
    }

    /// How far to go from `lower`, the largest that fits though a line has ended: where what is held ends soon, a little first and
    /// then twice as far each time.
    fn beyond(&self, lower: u64, n: usize) -> u64 {
        if self.near_what_is_held().is_none() {
            return self.stride(lower, STRIDE_SHARE, n);
        }
        let before = self.fitting().iter().rev().nth(1).map_or(0, |it| it.0);
        let gap = Some(lower - before).filter(|it| *it <= self.stride(lower, STRIDE_SHARE, 1));
        gap.map_or(self.stride(lower, 2 * HELD_SHARE, 1), |it| 2 * it)
    }

    /// Where to look between values where memory is made do with: where what is held ends, and down from there.
    fn below(&self, lower: u64, upper: u64) -> u64 {
        let halfway = self.halfway(lower, upper);
        match self.near_what_is_held() {
            Some(near) if lower < near && near < upper => near,
            Some(near) if upper <= near + self.stride(near, HELD_SHARE, 1) => {
                let back = self.stride(near, HELD_SHARE, self.n_too_much());
                halfway.max(upper.saturating_sub(back))
            }
            _ => halfway,
        }
    }

    /// A little below the value at which what is held at a time would be all that there is. A script that makes do with less
    /// memory near the limit mostly ends there, and no earlier.
    fn near_what_is_held(&self) -> Option<u64> {
        let ((a, held_a), (b, held_b)) =
            (self.held.first_key_value()?, self.held.last_key_value()?);
        let rise = u128::from(held_b.saturating_sub(*held_a).0);
        let left = u128::from(self.limit.saturating_sub(*held_b).0);
        let end = b + u64::try_from((left * u128::from(b - a)).checked_div(rise)?).ok()?;
        (end <= self.highest && end < b.saturating_mul(2))
            .then(|| self.clamp(end - end / HELD_SHARE))
    }

    /// How many of the values that were run last fit.
    fn n_that_fit_last(&self) -> usize {
        let fits = |it: &&u64| matches!(self.tried.get(it), Some(Tried::Fits(_)));
        self.order.iter().rev().take_while(fits).count()
    }

    fn n_too_much(&self) -> usize {
        self.tried.values().filter(|it| **it == Tried::TooMuch).count()
    }

    /// What all values that fit can be divided by.
    fn divisor(&self) -> u64 {
        self.fitting().iter().fold(0, |acc, (value, _)| gcd(acc, *value)).max(1)
    }

    /// Before anything fits or runs out of memory: a small value, and larger ones while those fail.
    fn first(&self) -> Option<u64> {
        let start = self.start.unwrap_or(self.clamp(self.lowest + FIRST.max(self.step)));
        let mut wanted = start;
        while self.tried.contains_key(&wanted) {
            if self.highest <= wanted {
                return None;
            }
            wanted = self.clamp(wanted.saturating_mul(2).max(wanted + self.step));
        }
        Some(wanted)
    }

    /// Where a line through the largest value that fits and a smaller one reaches the limit: the steepest of these lines,
    /// since near the limit the allocator makes do with less, and segments make steps.
    fn on_the_line(&self, lower: u64) -> u64 {
        let mut fitting = self.fitting();
        fitting.retain(|it| it.0 <= lower);
        let Some(((b, peak_b), below)) = fitting.split_last() else { return lower };
        let left = u128::from(self.limit.saturating_sub(*peak_b).0);
        let end = |(a, peak_a): &(u64, Bytes)| {
            let rise = u128::from(peak_b.saturating_sub(*peak_a).0);
            let run = (left * u128::from(b - a)).checked_div(rise)?;
            Some(b.saturating_add(u64::try_from(run).unwrap_or(u64::MAX)))
        };
        let Some(end) = below.iter().filter_map(end).min() else {
            // Were there nothing beside what grows with the value, it would end here; mostly it ends later.
            let times = u128::from(self.limit.0) * u128::from(*b) / u128::from(peak_b.0.max(1));
            let least = u64::try_from(times).unwrap_or(u64::MAX);
            let most = if self.start.is_some() { FARTHEST } else { 2 };
            return self.clamp(least.min(lower.saturating_mul(most)));
        };
        self.clamp(end.min(lower.saturating_mul(FARTHEST)))
    }

    /// `wanted`, brought strictly between `lower` and `upper`, to a value that was not run yet.
    fn between(&self, lower: Option<u64>, upper: u64, wanted: u64) -> Option<u64> {
        let lowest = lower.map_or(self.lowest, |it| it + self.step);
        if upper <= lowest {
            return (!self.tried.contains_key(&lowest) && lowest < upper).then_some(lowest);
        }
        let wanted = self.clamp(wanted).clamp(lowest, upper - self.step);
        let down = (lowest..=wanted).rev().step_by(usize::try_from(self.step).ok()?);
        let up = (wanted..upper).step_by(usize::try_from(self.step).ok()?);
        down.chain(up).find(|it| !self.tried.contains_key(it))
    }

    fn halfway(&self, lower: u64, upper: u64) -> u64 {
        self.clamp(lower + (upper - lower) / 2)
    }

    /// The value of the range at or below `value`.
    fn clamp(&self, value: u64) -> u64 {
        let value = value.clamp(self.lowest, self.highest);
        self.lowest + (value - self.lowest) / self.step * self.step
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    /// Searches where `value` takes `memory(value)` MiB; none fails. Returns the runs, and what was found.
    fn search(mut it: Largest, memory: impl Fn(u64) -> Option<u64>) -> (Vec<u64>, Option<u64>) {
        while let Some(value) = it.next() {
            assert!(it.order.len() < 200, "{:?}", it.order);
            let tried = match memory(value) {
                None => Tried::Fails("odd".to_owned()),
                Some(mib) if Bytes::mib(mib) <= it.limit => Tried::Fits(Bytes::mib(mib)),
                Some(_) => Tried::TooMuch,
            };
            it.tell(value, tried);
        }
        (it.order.clone(), it.found())
    }

    fn check(it: Largest, memory: impl Fn(u64) -> Option<u64>, expected: Expect) {
        expected.assert_eq(&format!("{:?}", search(it, memory)));
    }

    #[test]
    fn a_line_needs_few_runs() {
        let range = Largest::new(1, 2048, 1, Bytes::gib(24));
        check(range, |it| Some(1500 + 333 * it), expect!["([8, 16, 69, 70], Some(69))"]);
    }

    #[test]
    fn a_search_that_knows_where_to_begin() {
        let range = Largest::new(1, 2048, 1, Bytes::gib(24)).beginning_at(69);
        check(
            range.clone(),
            |it| Some(1500 + 120 * it),
            expect!["([69, 173, 192, 193], Some(192))"],
        );
        check(range, |it| Some(1500 + 500 * it), expect!["([69, 35, 45, 46, 47], Some(46))"]);
    }

    #[test]
    fn near_the_limit_the_allocator_makes_do_with_less() {
        let range = Largest::new(1, 2048, 1, Bytes::mib(11_909));
        let memory = |it: u64| if it < 10 { 3_500 + 716 * it } else { 11_200 + 20 * it };
        check(
            range,
            |it| Some(if it < 12 { memory(it) } else { 12_000 }),
            expect!["([8, 10, 11, 12], Some(11))"],
        );
    }

    #[test]
    fn beyond_the_end_of_a_line_the_steps_are_wide() {
        // A ResNet under cuDNN: from 75 on workspaces are made do without.
        let range = Largest::new(1, 2048, 1, Bytes::mib(8_000));
        let memory = |it: u64| if it <= 86 { (500 + 100 * it).min(7_990) } else { 8_001 };
        check(
            range,
            |it| Some(memory(it)),
            expect!["([8, 16, 75, 76, 80, 90, 85, 87, 86], Some(86))"],
        );
        // It ends before the line does.
        let range = Largest::new(1, 2048, 1, Bytes::mib(8_000));
        let memory = |it: u64| if it <= 62 { 1_000 + 100 * it } else { 8_001 };
        check(range, |it| Some(memory(it)), expect!["([8, 16, 70, 66, 58, 62, 64, 63], Some(62))"]);
    }

    /// (what is reserved, what is held) of each value in MiB; the runs, and what was found.
    fn search_held(limit: u64, memory: impl Fn(u64) -> (u64, u64)) -> (Vec<u64>, Option<u64>) {
        let mut it = Largest::new(1, 2048, 1, Bytes::mib(limit));
        while let Some(value) = it.next() {
            let (reserved, held) = memory(value);
            if limit < reserved {
                it.tell(value, Tried::TooMuch);
            } else {
                it.held(value, Bytes::mib(held));
                it.tell(value, Tried::Fits(Bytes::mib(reserved)));
            }
        }
        (it.order.clone(), it.found())
    }

    #[test]
    fn where_what_is_held_ends_is_looked_first() {
        // A ResNet-50 on a card of 12 GB, and on one of 24 GB; from 120 and 245 on free memory is given back.
        let on = |limit: u64, most: u64| {
            let memory = move |it: u64| {
                let reserved = (280 + 961 * it / 10).min(limit - 30);
                (if it <= most { reserved } else { limit + 1 }, 330 + 819 * it / 10)
            };
            format!("{:?}", search_held(limit, memory))
        };
        expect!["([8, 16, 119, 120, 137, 135, 136], Some(135))"].assert_eq(&on(11_745, 135));
        expect!["([8, 16, 242, 243, 280, 276, 278, 279], Some(279))"].assert_eq(&on(23_620, 279));
        // It ends long before, and long after.
        expect!["([8, 16, 119, 120, 137, 135, 131, 125, 128, 126, 127], Some(127))"]
            .assert_eq(&on(11_745, 127));
        expect!["([8, 16, 119, 120, 137, 138, 140, 144, 152, 168, 160, 164, 162, 161], Some(160))"]
            .assert_eq(&on(11_745, 160));
    }

    #[test]
    fn what_did_not_hold_for_longer_is_no_answer() {
        let mut range = Largest::new(1, 2048, 1, Bytes::gib(24));
        for value in [8, 16, 69] {
            range.tell(value, Tried::Fits(Bytes::mib(1500 + 333 * value)));
        }
        range.tell(70, Tried::TooMuch);
        assert_eq!((range.found(), range.next()), (Some(69), None));
        range.correct(69, Tried::TooMuch);
        assert_eq!((range.found(), range.next()), (Some(16), Some(61)));
        assert_eq!(range.tried().count(), 4);
    }

    #[test]
    fn everything_or_nothing_fits() {
        let range = Largest::new(1, 100, 1, Bytes::gib(24));
        check(range.clone(), Some, expect!["([8, 16, 100], Some(100))"]);
        check(range, |_| Some(30_000), expect!["([8, 4, 2, 1], None)"]);
    }

    #[test]
    fn batch_norm_refuses_one_sample_and_the_data_end() {
        let range = Largest::new(1, 2048, 1, Bytes::gib(24));
        let memory = |it| (2..=40).contains(&it).then_some(5_000 + 10 * it);
        check(range, memory, expect!["([8, 16, 256, 136, 76, 72, 44, 40, 42, 41], Some(40))"]);
    }

    #[test]
    fn batches_that_can_be_divided() {
        let range = Largest::new(1, 2048, 1, Bytes::gib(24));
        let memory = |it: u64| it.is_multiple_of(4).then_some(1_500 + 111 * it);
        check(range, memory, expect!["([8, 16, 207, 200, 203, 208], Some(200))"]);
    }

    #[test]
    fn steps_are_kept() {
        let range = Largest::new(8, 2048, 8, Bytes::gib(24));
        check(range, |it| Some(1500 + 333 * it), expect!["([16, 32, 64, 72], Some(64))"]);
    }

    proptest! {
        #[test]
        fn what_is_found_fits_and_the_next_does_not(
            fixed in 0_u64..20_000, slope in 1_u64..2_000, bend in 0_u64..500, at in 1_u64..300, highest in 1_u64..3_000,
        ) {
            let memory = |it: u64| fixed + slope * it + bend * it.saturating_sub(at);
            let limit = Bytes::gib(24);
            let (runs, found) = search(Largest::new(1, highest, 1, limit), |it| Some(memory(it)));
            let expected = (1..=highest).filter(|it| Bytes::mib(memory(*it)) <= limit).max();
            prop_assert_eq!(found, expected);
            prop_assert!(runs.len() <= 24, "{:?}", runs);
        }
    }
}
