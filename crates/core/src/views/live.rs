//! What a program does with its memory while it runs, as JSON for the page.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{recording::Phase, units::Bytes, views::explain_wire::phase};

/// What is known of a run so far.
#[derive(Clone, Debug, Default)]
pub struct LiveRun {
    /// The command, as the script sees it; empty while no run is there.
    pub command: String,
    /// Whether it has ended.
    pub is_over: bool,
    /// What was read, in order.
    pub points: Vec<LivePoint>,
    /// How often it was thinned out: then the page has to ask for all of it again.
    pub thinned: u32,
    /// What named tensors take: parameters, gradients, buffers, optimizer state, inputs.
    pub named: Vec<(&'static str, Bytes)>,
    /// What PyTorch said when memory ran out.
    pub ooms: Vec<String>,
}

/// A moment of one process, at the end of a phase or a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LivePoint {
    /// The process.
    pub pid: u32,
    /// Seconds since it began.
    pub seconds: f64,
    /// Steps that were finished.
    pub step: u32,
    /// The phase that begins or ends.
    pub phase: Option<Phase>,
    /// Of all its devices.
    pub allocated: Bytes,
    /// Of all its devices.
    pub reserved: Bytes,
}

impl LiveRun {
    /// Keeps of each two points in a row of one process the fuller, and of each process the last.
    pub fn thin(&mut self) {
        let mut rows: BTreeMap<u32, Vec<LivePoint>> = BTreeMap::new();
        for it in &self.points {
            rows.entry(it.pid).or_default().push(*it);
        }
        let mut kept: Vec<LivePoint> = Vec::new();
        for row in rows.values() {
            let Some((last, others)) = row.split_last() else { continue };
            let fuller = |pair: &[LivePoint]| pair.iter().max_by_key(|it| it.allocated).copied();
            kept.extend(others.chunks(2).filter_map(fuller));
            kept.push(*last);
        }
        kept.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        self.points = kept;
        self.thinned += 1;
    }
}

/// What came after the first `from` points.
pub fn run(it: &LiveRun, from: usize) -> String {
    let points: Vec<Value> = it
        .points
        .iter()
        .skip(from)
        .map(|sample| {
            json!([
                sample.pid,
                sample.seconds,
                sample.step,
                sample.phase.map(phase),
                sample.allocated.0,
                sample.reserved.0
            ])
        })
        .collect();
    let named: Vec<Value> = it.named.iter().map(|it| json!([it.0, it.1.0])).collect();
    json!({
        "command": it.command,
        "over": it.is_over,
        "from": from.min(it.points.len()),
        "points": points,
        "thinned": it.thinned,
        "named": named,
        "ooms": it.ooms,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_points_the_fuller_stays_and_the_last_of_each_process() {
        let point = |pid: u32, seconds: f64, allocated: u64| {
            let (step, phase) = (0, None);
            let (allocated, reserved) = (Bytes(allocated), Bytes(allocated));
            LivePoint { pid, seconds, step, phase, allocated, reserved }
        };
        let points = vec![
            point(1, 0.1, 5),
            point(2, 0.2, 1),
            point(1, 0.3, 9),
            point(1, 0.4, 2),
            point(1, 0.5, 3),
            point(1, 0.6, 0),
        ];
        let mut run = LiveRun { points, ..LiveRun::default() };
        run.thin();
        let told: Vec<(u32, u64)> = run.points.iter().map(|it| (it.pid, it.allocated.0)).collect();
        assert_eq!((told, run.thinned), (vec![(2, 1), (1, 9), (1, 3), (1, 0)], 1));
    }
}
