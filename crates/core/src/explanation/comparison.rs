//! Several inputs beside each other, as the ranks of one job are.

use crate::{
    explanation::{Explanation, RankFacts, RankTable},
    findings::Weight,
    units::Bytes,
};

/// How several inputs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The input to look at first: the one that ran out, or the one with the highest peak.
    pub leading: usize,
    /// The smallest peak.
    pub smallest: Bytes,
    /// The largest peak.
    pub largest: Bytes,
    /// Their devices, beside each other.
    pub table: RankTable,
    /// What to know, one sentence each.
    pub sentences: Vec<String>,
}

/// Compares `inputs`; none when there are fewer than two.
pub fn compare(inputs: &[Explanation]) -> Option<Comparison> {
    if inputs.len() < 2 {
        return None;
    }
    let name =
        |it: &Explanation| it.rank.map_or_else(|| it.name.clone(), |rank| format!("rank {rank}"));
    let peak = |it: &Explanation| it.peak_allocated.unwrap_or_default();
    let highest = (0..inputs.len()).rev().max_by_key(|it| peak(&inputs[*it]))?;
    let rows = inputs.iter().flat_map(|input| {
        // Of a file whose notes say no rank, its name may.
        input.devices.iter().map(|row| RankFacts { rank: input.rank, ..row.clone() })
    });
    let table = RankTable::new(rows.collect(), Vec::new());
    let first = table.first_out.map(|it| &table.rows[it]);
    let leading = inputs
        .iter()
        .position(|it| first.is_some_and(|first| it.name == first.name && it.rank == first.rank))
        .or_else(|| inputs.iter().position(|it| !it.ooms.is_empty()))
        .unwrap_or(highest);
    let largest = peak(&inputs[highest]);
    let smallest = inputs.iter().map(peak).min()?;
    let mut sentences = Vec::new();
    if let Some(first) = first {
        let name = first.rank.map_or_else(|| first.name.clone(), |rank| format!("rank {rank}"));
        sentences.push(format!("{name} ran out of memory first"));
    }
    let failed: Vec<String> = inputs.iter().filter(|it| !it.ooms.is_empty()).map(name).collect();
    if !failed.is_empty() {
        sentences.push(format!("ran out of memory: {}", failed.join(", ")));
    }
    if largest != Bytes::ZERO {
        let most = name(&inputs[highest]);
        let off = largest.saturating_sub(smallest);
        // A profiler's curve has a peak and no device that could stand in the table.
        if table.rows.is_empty() {
            let with: Vec<String> =
                inputs.iter().map(|it| format!("{} {}", name(it), peak(it))).collect();
            sentences.push(format!("most allocated: {}", with.join(", ")));
        }
        if largest.0 / 20 < off.0 {
            let low = inputs.iter().min_by_key(|it| peak(it)).map(name).unwrap_or_default();
            sentences.push(format!(
                "{most} needs {off} more than {low}, so it runs out alone; `plimsoll diff` of the two shows the lines"
            ));
        } else {
            sentences.push("the peaks are alike (within 5 %)".to_owned());
        }
    }
    for it in
        inputs.iter().flat_map(|it| it.findings.iter().filter(|it| it.weight == Weight::Problem))
    {
        let who: Vec<String> = inputs
            .iter()
            .filter(|input| input.findings.iter().any(|other| other.code == it.code))
            .map(name)
            .collect();
        let sentence = format!("{}: {}", it.code, who.join(", "));
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    Some(Comparison { leading, smallest, largest, table, sentences })
}
