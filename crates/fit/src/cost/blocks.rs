//! Which blocks of a model to checkpoint so that memory stays under a budget at every moment of a step, at the
//! least recomputation.
//!
//! What a block keeps, and how high memory rises while it runs and while backward passes through it, was seen in
//! two runs on the phantom: one that checkpoints nothing, one that checkpoints all. A choice between them is put
//! together from the two, block by block, and is a proposal: who takes it runs it.
//!
//! Blocks run one after the other and backward comes back through them, so at any moment only what earlier blocks
//! kept lies below. That makes it a search from the first block to the last over what is kept so far: of two ways
//! to the same block the one that keeps more and costs more is forgotten.

use plimsoll_core::{
    recording::{At, Reading},
    units::Bytes,
};

/// What a choice may do with one block: keep its activations, or run it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    /// What stays after it, up to the next block.
    keeps: i64,
    /// The height above what is there before it: of its forward pass, and while backward is in it.
    rises: i64,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    number: usize,
    kept: Way,
    again: Way,
    seconds: f64,
}

/// A model's blocks, as two runs showed them.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    blocks: Vec<Block>,
    /// Allocated when the first block begins.
    base: i64,
    /// The height of what follows the last block, up to where backward enters it, above what is there after it.
    head: i64,
}

/// What to checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The numbers of the blocks.
    pub blocks: Vec<usize>,
    /// How long they take to run again, in seconds of the estimate that they were given with.
    pub seconds: f64,
    /// The most that should be allocated, by the two runs.
    pub peak: Bytes,
}

/// So many ways to a block are remembered; beyond that those that are nearly the same are forgotten.
const MOST_STATES: usize = 1024;

impl Blocks {
    /// From the readings of a step that checkpoints nothing and of one that checkpoints everything. `seconds` has
    /// what each block takes to run again. None if the readings do not tell: a block that runs twice in a step, or
    /// one that the other run did not have.
    pub fn new(nothing: &[Reading], everything: &[Reading], seconds: &[f64]) -> Option<Blocks> {
        let (kept, again) = (Pass::highest(nothing)?, Pass::highest(everything)?);
        let same = kept.numbers == again.numbers && kept.ways.len() == again.ways.len();
        // What blocks that keep theirs leave from pass to pass of a batch in parts, as the weights that autocast has cast, lies below all of a pass.
        let n_blocks = i64::try_from(kept.ways.len()).ok().filter(|it| 0 < *it)?;
        let left = (kept.base - again.base).max(0) / n_blocks;
        let blocks = kept.numbers.iter().zip(kept.ways.iter().zip(&again.ways));
        let blocks = blocks.map(|(&number, (&kept, &again))| {
            let kept = Way { keeps: kept.keeps + left, ..kept };
            Some(Block { number, kept, again, seconds: *seconds.get(number)? })
        });
        let blocks = blocks.collect::<Option<Vec<_>>>().filter(|it| same && !it.is_empty())?;
        Some(Blocks { blocks, base: again.base, head: kept.head.max(again.head) })
    }

    /// Whether the readings of a step tell its blocks apart, as `new` wants it.
    pub fn are_told_apart(readings: &[Reading]) -> bool {
        Pass::highest(readings).is_some()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// How long all of them take to run again.
    pub fn seconds(&self) -> f64 {
        self.blocks.iter().map(|it| it.seconds).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The choice with the least recomputation among those that allocate no more than `budget` at any moment; of
    /// equal ones the one that keeps less. None if there is none.
    pub fn cheapest(&self, budget: Bytes) -> Option<Choice> {
        let budget = i64::try_from(budget.0).unwrap_or(i64::MAX);
        let mut arena: Vec<(usize, bool)> = Vec::new();
        let mut front = vec![State { kept: self.base, seconds: 0.0, way: None }];
        for block in &self.blocks {
            let mut next = Vec::with_capacity(front.len() * 2);
            for state in &front {
                for (again, way) in [(false, block.kept), (true, block.again)] {
                    if budget < state.kept.saturating_add(way.rises) {
                        continue;
                    }
                    arena.push((state.way.unwrap_or(usize::MAX), again));
                    next.push(State {
                        kept: state.kept + way.keeps,
                        seconds: state.seconds + if again { block.seconds } else { 0.0 },
                        way: Some(arena.len() - 1),
                    });
                }
            }
            front = pareto(next);
            if MOST_STATES < front.len() {
                front = thinned(front);
            }
        }
        let fits = |it: &&State| it.kept.saturating_add(self.head) <= budget;
        let best = front.iter().filter(fits).min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
        let mut again = Vec::with_capacity(self.blocks.len());
        let mut at = best.way;
        while let Some(&(before, it)) = at.and_then(|at| arena.get(at)) {
            again.push(it);
            at = Some(before);
        }
        again.reverse();
        Some(self.choice(&again))
    }

    /// Every block for which `again` says so, in the order in which they run.
    fn choice(&self, again: &[bool]) -> Choice {
        let chosen = || self.blocks.iter().zip(again).filter(|(_, again)| **again);
        let mut blocks: Vec<usize> = chosen().map(|(it, _)| it.number).collect();
        blocks.sort_unstable();
        let seconds = chosen().map(|(it, _)| it.seconds).sum();
        Choice { blocks, seconds, peak: self.peak(again) }
    }

    fn peak(&self, again: &[bool]) -> Bytes {
        let (mut kept, mut peak) = (self.base, self.base);
        for (block, again) in self.blocks.iter().zip(again) {
            let way = if *again { block.again } else { block.kept };
            peak = peak.max(kept + way.rises);
            kept += way.keeps;
        }
        Bytes(u64::try_from(peak.max(kept + self.head)).unwrap_or(0))
    }
}

/// One way to come to a block.
#[derive(Clone, Copy, Debug)]
struct State {
    kept: i64,
    seconds: f64,
    /// The last decision, in the arena.
    way: Option<usize>,
}

/// Without the states beside which another keeps no more and costs no more.
fn pareto(mut states: Vec<State>) -> Vec<State> {
    states.sort_by(|a, b| a.kept.cmp(&b.kept).then(a.seconds.total_cmp(&b.seconds)));
    let mut res: Vec<State> = Vec::new();
    for it in states {
        if res.last().is_none_or(|last| it.seconds < last.seconds) {
            res.push(it);
        }
    }
    res
}

/// Fewer states: of neighbours that keep nearly the same, the one that keeps least and the one that costs least.
fn thinned(states: Vec<State>) -> Vec<State> {
    let (Some(first), Some(last)) = (states.first(), states.last()) else { return states };
    let n = i64::try_from(MOST_STATES / 4).unwrap_or(1);
    let (lowest, grain) = (first.kept, ((last.kept - first.kept) / n).max(1));
    let bucket = |it: &State| (it.kept - lowest) / grain;
    let ends = |state: &[State]| {
        state
            .first()
            .into_iter()
            .chain(state.get(1..).and_then(<[_]>::last))
            .copied()
            .collect::<Vec<_>>()
    };
    states.chunk_by(|a, b| bucket(a) == bucket(b)).flat_map(ends).collect()
}

/// A forward pass through all blocks and backward through them.
struct Pass {
    numbers: Vec<usize>,
    ways: Vec<Way>,
    base: i64,
    head: i64,
    peak: i64,
}

impl Pass {
    /// The one that allocated most: a step may have several.
    fn highest(readings: &[Reading]) -> Option<Pass> {
        let mut best: Option<Pass> = None;
        let mut start = 0;
        for i in 1..=readings.len() {
            let ends = readings.get(i).is_none_or(|reading| {
                matches!(reading.at, At::Enter(_))
                    && matches!(
                        readings.get(i - 1),
                        Some(Reading { at: At::Back(_) | At::End, .. })
                    )
            });
            if ends {
                let pass = Pass::of(&readings[start..i]);
                start = i;
                best = best.into_iter().chain(pass).max_by_key(|it| it.peak);
            }
        }
        best
    }

    fn of(readings: &[Reading]) -> Option<Pass> {
        let signed = |it: Bytes| i64::try_from(it.0).unwrap_or(i64::MAX);
        let mut entered: Vec<(usize, i64)> = Vec::new();
        let mut left: Vec<(i64, i64)> = Vec::new();
        let mut back: Vec<Option<i64>> = Vec::new();
        let (mut inside, mut head) = (None, 0);
        for it in readings {
            let (current, peak) = (signed(it.current), signed(it.peak));
            // The highest moment since the last reading belongs to where backward was.
            let was_in: Option<usize> = inside;
            if let Some(height) = was_in.and_then(|at| back.get_mut(at)) {
                *height = Some(height.unwrap_or(0).max(peak));
            } else if matches!(it.at, At::Back(_)) {
                head = peak;
            }
            match it.at {
                At::Enter(number) => {
                    if entered.iter().any(|it| it.0 == number) || entered.len() != left.len() {
                        return None;
                    }
                    entered.push((number, current));
                }
                At::Leave(number) => {
                    if entered.last()?.0 != number || entered.len() != left.len() + 1 {
                        return None;
                    }
                    left.push((current, peak));
                    back.push(None);
                }
                At::Back(number) => {
                    inside = Some(entered.iter().position(|it| it.0 == number)?);
                }
                At::End => inside = None,
            }
        }
        let n = left.len();
        if n == 0 || entered.len() != n || back.iter().any(Option::is_none) {
            return None;
        }
        let mut ways = Vec::with_capacity(n);
        for i in 0..n {
            let (before, (after, peak)) = (entered[i].1, left[i]);
            let next = entered.get(i + 1).map_or(after, |it| it.1);
            let height = peak.max(back[i]?) - before;
            ways.push(Way { keeps: next - before, rises: height });
        }
        let last = left.last()?.0;
        let highest = left.iter().map(|it| it.1).chain(back.into_iter().flatten()).max()?;
        Some(Pass {
            numbers: entered.iter().map(|it| it.0).collect(),
            ways,
            base: entered.first()?.1,
            head: head - last,
            peak: highest.max(head),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A step of blocks that keep `(kept, again)` each, need `work` more while they run, and leave a gradient of
    /// one behind each; all of it above a base of 100.
    fn step(blocks: &[(u64, u64, u64)], again: &[bool]) -> Vec<Reading> {
        let mut res = Vec::new();
        let mut kept = vec![100];
        let mut push = |at, current, peak| {
            res.push(Reading { at, current: Bytes(current), peak: Bytes(peak) });
        };
        for (i, ((full, input, work), again)) in blocks.iter().zip(again).enumerate() {
            let now = kept[i];
            push(At::Enter(i), now, now);
            kept.push(now + if *again { *input } else { *full });
            push(At::Leave(i), kept[i + 1], now + full + work);
        }
        let mut highest = kept[blocks.len()] + 10;
        for (i, (full, _, work)) in blocks.iter().enumerate().rev() {
            let gradients = u64::try_from(blocks.len() - i).unwrap();
            push(At::Back(i), kept[i + 1] + gradients, highest);
            highest = kept[i] + full + 2 * work + gradients;
        }
        push(At::End, 100, highest);
        res
    }

    fn peak(readings: &[Reading]) -> u64 {
        readings.iter().map(|it| it.peak.0).max().unwrap()
    }

    fn measured(blocks: &[(u64, u64, u64)], seconds: &[f64]) -> Blocks {
        let n = blocks.len();
        Blocks::new(&step(blocks, &vec![false; n]), &step(blocks, &vec![true; n]), seconds).unwrap()
    }

    #[test]
    fn as_few_as_the_budget_needs() {
        let blocks = measured(&[(50, 10, 5); 4], &[1.0; 4]);
        let count = |budget| blocks.cheapest(Bytes(budget)).map(|it| it.blocks.len());
        // 100 + 4 * 50 + 10.
        assert_eq!(count(315), Some(0));
        assert_eq!(count(309), Some(1));
        // The last one need not: backward is in it first, above three inputs: 100 + 3 * 10 + 50 + 2 * 5 + 1.
        assert_eq!(count(191), Some(3));
        assert_eq!(count(190), None);
    }

    #[test]
    fn the_cheap_large_ones_first() {
        let blocks = measured(&[(10, 1, 0), (90, 1, 0), (10, 1, 0)], &[1.0, 1.5, 1.0]);
        assert_eq!(blocks.cheapest(Bytes(205)).unwrap().blocks, [1]);
    }

    #[test]
    fn what_kept_blocks_leave_for_the_next_pass_is_theirs() {
        let higher = |by: u64, readings: Vec<Reading>| -> Vec<Reading> {
            let more = |it: Bytes| Bytes(it.0 + by);
            let raised =
                |it: Reading| Reading { current: more(it.current), peak: more(it.peak), ..it };
            readings.into_iter().map(raised).collect()
        };
        let all = [(50, 10, 5); 4];
        let (kept, again) = (step(&all, &[false; 4]), step(&all, &[true; 4]));
        let blocks = Blocks::new(&higher(80, kept), &again, &[1.0; 4]).unwrap();
        let count = |budget| blocks.cheapest(Bytes(budget)).map(|it| it.blocks.len());
        // As without, and 80 more if none runs again; 20 of them go with each that does.
        assert_eq!(count(395), Some(0));
        assert_eq!(count(389), Some(1));
        assert_eq!(count(329), Some(2));
        assert_eq!(count(191), Some(4));
    }

    #[test]
    fn a_block_that_runs_twice_is_not_told_apart() {
        let mut readings = step(&[(50, 10, 5)], &[false]);
        readings.splice(2..2, readings[..2].to_vec());
        assert_eq!(Blocks::new(&readings, &readings, &[1.0]), None);
        assert_eq!(Blocks::new(&[], &[], &[]), None);
    }

    #[test]
    fn a_thousand_different_blocks_are_solved_and_stay_below() {
        let all: Vec<_> =
            (0..1000_u64).map(|i| (1_000_000 + i * 7919 % 100_003, i % 13, 17)).collect();
        let seconds: Vec<f64> = (0..1000_u32).map(|i| 1.0 + f64::from(i * 31 % 97)).collect();
        let blocks = measured(&all, &seconds);
        let budget = Bytes(500_000_000);
        let choice = blocks.cheapest(budget).unwrap();
        assert!(choice.peak <= budget, "{choice:?}");
        assert!(choice.blocks.len() < 600, "{}", choice.blocks.len());
    }

    proptest! {
        /// No other choice is cheaper, and what is chosen takes what was said.
        #[test]
        fn none_is_better(
            blocks in prop::collection::vec((1_u64..100, 0_u64..20, 0_u64..40), 1..9),
            times in prop::collection::vec(1_u32..9, 9),
            share in 0_u64..100,
        ) {
            let n = blocks.len();
            let seconds: Vec<f64> = times.iter().take(n).map(|it| f64::from(*it)).collect();
            let it = measured(&blocks, &seconds);
            let all: Vec<Vec<bool>> =
                (0..1_usize << n).map(|bits| (0..n).map(|i| bits >> i & 1 == 1).collect()).collect();
            let peaks: Vec<u64> = all.iter().map(|again| peak(&step(&blocks, again))).collect();
            let (low, high) = (*peaks.iter().min().unwrap(), *peaks.iter().max().unwrap());
            let budget = low + (high - low) * share / 100;
            let cost = |again: &[bool]| -> f64 {
                again.iter().zip(&seconds).filter(|(it, _)| **it).map(|(_, it)| it).sum()
            };
            let best = all.iter().zip(&peaks).filter(|(_, peak)| **peak <= budget).map(|(it, _)| cost(it));
            let best = best.fold(f64::INFINITY, f64::min);
            let found = it.cheapest(Bytes(budget)).unwrap();
            prop_assert!((found.seconds - best).abs() < 1e-9);
            let again: Vec<bool> = (0..n).map(|i| found.blocks.contains(&i)).collect();
            let truth = peak(&step(&blocks, &again));
            prop_assert!(truth <= budget && found.peak == Bytes(truth));
        }
    }
}
