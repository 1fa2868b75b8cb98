//! What a plan costs in time: an estimate, from what a step computes and moves and what the card is able to.
//!
//! Arithmetic and bytes are counted on the phantom, recomputation and copies included. Each kind of operation
//! takes as long as the slower of its arithmetic and its bytes, at a share of a card's data sheet; a kernel takes
//! at least its launch. Only the ratio of two such sums is told, with a range.
//!
//! The shares, the link and the launch are assumed: none was fitted to a measurement. bench/fit/time.py sets what
//! comes out beside step times of an H200.

use crate::cards::Card;

/// One kind of operation in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// `matmul` (convolutions and attention too), `pointwise` for all that only moves, `link` for copies between
    /// device and host.
    pub op: String,
    /// The type of its largest tensor.
    pub dtype: String,
    /// How many operations.
    pub count: f64,
    /// Floating-point operations, a multiplication and an addition being two.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

/// How much longer a step takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    /// The estimate; 1 is as long as before.
    pub estimate: f64,
    /// It is likely not below this.
    pub low: f64,
    /// And not above this.
    pub high: f64,
}

/// Shares of the data sheet that PyTorch's kernels are taken to reach; assumed.
const ARITHMETIC: f64 = 0.75;
const TENSOR_CORES: f64 = 0.55;
const MEMORY: f64 = 0.75;
/// Bytes in a second between device and host, pinned, PCIe 4.0; assumed.
const LINK: f64 = 22e9;
/// Seconds of a kernel that has nothing to do; assumed.
const LAUNCH: f64 = 4e-6;
/// How far a ratio may be off, as a share of its distance from 1.
const RANGE: f64 = 0.35;

/// How much longer a step of `changed` takes than one of `plain`.
pub fn factor(plain: &[Work], changed: &[Work], card: &Card) -> Option<Factor> {
    let (before, after) = (seconds(plain, card), seconds(changed, card));
    if before <= 0.0 || after <= 0.0 {
        return None;
    }
    let estimate = after / before;
    let off = (estimate - 1.0).abs() * RANGE + 0.02;
    Some(Factor { estimate, low: (estimate - off).max(0.0), high: estimate + off })
}

/// Seconds of a step, or of a part of one, on `card`.
pub fn seconds(work: &[Work], card: &Card) -> f64 {
    work.iter().map(|it| of_kind(it, card)).sum()
}

fn of_kind(work: &Work, card: &Card) -> f64 {
    let launch = work.count * LAUNCH;
    if work.op == "link" {
        return launch + work.bytes / 2.0 / LINK;
    }
    let clocks = f64::from(card.sm_count) * f64::from(card.clock_khz) * 1e3;
    let half = matches!(work.dtype.as_str(), "bfloat16" | "float16");
    let (per_clock, share) = match (half, card.compute_capability) {
        (true, (9, _)) => (4096.0, TENSOR_CORES),
        (true, (10, _)) => (8192.0, TENSOR_CORES),
        (true, (8, 0)) => (2048.0, TENSOR_CORES),
        (true, _) => (1024.0, TENSOR_CORES),
        (false, (7, _) | (8, 0)) => (128.0, ARITHMETIC),
        (false, _) => (256.0, ARITHMETIC),
    };
    // Two transfers a clock.
    let memory =
        f64::from(card.memory_clock_khz) * 1e3 * 2.0 * f64::from(card.memory_bus_bits) / 8.0;
    let arithmetic = work.flops / (clocks * per_clock * share);
    let moved = work.bytes / (memory * MEMORY);
    launch.max(arithmetic.max(moved))
}
