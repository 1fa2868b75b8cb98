//! What a program does with its memory while it runs, as JSON for the page.

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

/// What came after the first `from` points.
pub fn run(it: &LiveRun, from: usize) -> String {
    let points: Vec<Value> = it
        .points
        .iter()
        .skip(from)
        .map(|it| {
            json!([it.pid, it.seconds, it.step, it.phase.map(phase), it.allocated.0, it.reserved.0])
        })
        .collect();
    let named: Vec<Value> = it.named.iter().map(|it| json!([it.0, it.1.0])).collect();
    json!({
        "command": it.command,
        "over": it.is_over,
        "from": from.min(it.points.len()),
        "points": points,
        "named": named,
        "ooms": it.ooms,
    })
    .to_string()
}
