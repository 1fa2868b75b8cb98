//! The ranks of a job beside each other: which peaked, which ran out first, and by which lines they differ.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    explanation::{
        At,
        held::{Holdings, Names, origin_words},
    },
    prediction::{categories::Evidence, device_run::DeviceRun},
    recording::Recording,
    units::Bytes,
};

/// Lines that a table names.
const SHOWN: usize = 8;
/// Ranks differ in a line when one has this much more than another: rounding and alignment are less.
const NOTABLE: Bytes = Bytes::mib(1);

/// One device of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFacts {
    /// The file that it is from.
    pub name: String,
    /// The rank, where it is known.
    pub rank: Option<u32>,
    /// The device's index in its process.
    pub device: usize,
    /// Most allocated.
    pub peak_allocated: Bytes,
    /// Most reserved.
    pub peak_reserved: Bytes,
    /// Optimizer steps that were seen.
    pub steps: u32,
    /// The version of torch, where it is known.
    pub torch_version: Option<String>,
    /// When it ran out of memory, if that ended it: microseconds of the recorder's clock, 0 when it kept no
    /// times.
    pub ran_out_micros: Option<i64>,
    /// Allocated at the peak, by line.
    pub lines: BTreeMap<String, Bytes>,
}

/// One line, and how much the ranks differ in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLine {
    /// The line.
    pub at: String,
    /// The row of [`RankTable::rows`] with the least, and how much that is.
    pub least: (usize, Bytes),
    /// The row with the most.
    pub most: (usize, Bytes),
}

/// The ranks beside each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankTable {
    /// Each device of each rank, in order of ranks.
    pub rows: Vec<RankFacts>,
    /// The row with the highest peak; of equals the first.
    pub highest: Option<usize>,
    /// The row that ran out of memory first; of several without times, the one that had done fewest steps.
    pub first_out: Option<usize>,
    /// The lines that they differ in, what differs most first.
    pub lines: Vec<RankLine>,
    /// What could not be read, and what to know, one sentence each.
    pub notes: Vec<String>,
}

/// Each device that the process of `recording` used.
pub fn rank_facts(name: &str, rank: Option<u32>, recording: &Recording) -> Vec<RankFacts> {
    let runs = DeviceRun::all(recording);
    runs.iter().map(|it| of_run(name, rank, it, &it.evidence())).collect()
}

pub(super) fn of_run(
    name: &str,
    rank: Option<u32>,
    run: &DeviceRun<'_>,
    evidence: &Evidence<'_>,
) -> RankFacts {
    let mut res = RankFacts {
        name: name.to_owned(),
        rank,
        device: run.index,
        steps: run.steps_seen(),
        peak_reserved: run.replay.peak_reserved.bytes,
        ran_out_micros: run.oom.map(|it| run.device.events.get(it.index()).time_micros),
        ..RankFacts::default()
    };
    let begin = run.recording.notes.begin.as_ref();
    res.torch_version = begin.map(|it| it.torch.clone()).filter(|it| !it.is_empty());
    if let Ok(holdings) = Holdings::of(run, evidence, At::Peak) {
        let names = Names::new(run, evidence);
        for held in &holdings.held {
            *res.lines.entry(origin_words(&names.origin_of(held))).or_default() += held.size;
        }
        res.peak_allocated = holdings.found.levels.allocated;
    }
    res
}

impl RankTable {
    /// A table of `rows`, with sentences about what could not be read.
    pub fn new(mut rows: Vec<RankFacts>, unread: Vec<String>) -> RankTable {
        rows.sort_by_key(|it| it.rank.unwrap_or(u32::MAX));
        let mut res = RankTable { rows, notes: unread, ..RankTable::default() };
        let by_peak = |it: &usize| (res.rows[*it].peak_allocated, Reverse(*it));
        res.highest = (0..res.rows.len()).max_by_key(by_peak);
        let out: Vec<usize> =
            (0..res.rows.len()).filter(|it| res.rows[*it].ran_out_micros.is_some()).collect();
        let timed = out.iter().all(|it| res.rows[*it].ran_out_micros != Some(0));
        res.first_out = out.iter().copied().min_by_key(|place| {
            let row = &res.rows[*place];
            if timed { row.ran_out_micros } else { Some(i64::from(row.steps)) }
        });
        if 1 < out.len() && !timed {
            res.notes.push(
                "the recordings have no times: plimsoll takes the rank with the fewest steps as the first that ran out"
                    .to_owned(),
            );
        }
        let mut versions: Vec<&str> =
            res.rows.iter().filter_map(|it| it.torch_version.as_deref()).collect();
        versions.sort_unstable();
        versions.dedup();
        if 1 < versions.len() {
            res.notes.push(format!(
                "the ranks ran different versions of torch: {}",
                versions.join(", ")
            ));
        }
        res.lines = lines(&res.rows);
        res
    }
}

fn lines(rows: &[RankFacts]) -> Vec<RankLine> {
    let mut by_line: BTreeMap<&str, Vec<Bytes>> = BTreeMap::new();
    for (row, facts) in rows.iter().enumerate() {
        for (at, bytes) in &facts.lines {
            by_line.entry(at).or_insert_with(|| vec![Bytes::ZERO; rows.len()])[row] = *bytes;
        }
    }
    let extreme = |at: &str, of: &[Bytes]| {
        let of = || of.iter().copied().enumerate();
        let least = of().min_by_key(|(_, bytes)| *bytes)?;
        let most = of().rev().max_by_key(|(_, bytes)| *bytes)?;
        Some(RankLine { at: at.to_owned(), least, most })
    };
    let mut res: Vec<RankLine> = by_line
        .into_iter()
        .filter_map(|(at, of)| extreme(at, &of))
        .filter(|it| NOTABLE <= it.most.1.saturating_sub(it.least.1))
        .collect();
    res.sort_by_key(|it| (Reverse(it.most.1.saturating_sub(it.least.1)), it.at.clone()));
    res.truncate(SHOWN);
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rank: u32, peak: u64, out: Option<i64>, line: u64) -> RankFacts {
        RankFacts {
            rank: Some(rank),
            peak_allocated: Bytes::mib(peak),
            ran_out_micros: out,
            lines: BTreeMap::from([("train.py:3".to_owned(), Bytes::mib(line))]),
            ..RankFacts::default()
        }
    }

    #[test]
    fn who_peaked_and_who_ran_out_first_are_two_questions() {
        let rows = vec![row(3, 90, Some(700), 9), row(0, 80, None, 2), row(1, 95, Some(900), 2)];
        let table = RankTable::new(rows, Vec::new());
        let rank = |it: Option<usize>| it.and_then(|it| table.rows[it].rank);
        assert_eq!((rank(table.highest), rank(table.first_out)), (Some(1), Some(3)));
        let [line] = &table.lines[..] else { panic!("{:?}", table.lines) };
        assert_eq!((line.least, line.most), ((0, Bytes::mib(2)), (2, Bytes::mib(9))));
    }

    #[test]
    fn without_times_the_steps_tell() {
        let mut rows = vec![row(0, 80, Some(0), 2), row(1, 80, Some(0), 2)];
        rows[0].steps = 4;
        let table = RankTable::new(rows, vec!["rank2.pickle is damaged".to_owned()]);
        assert_eq!(table.first_out, Some(1));
        assert_eq!(table.highest, Some(0));
        assert!(table.notes[1].starts_with("the recordings have no times"), "{:?}", table.notes);
    }
}
