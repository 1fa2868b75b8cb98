//! What a plan costs in time: an estimate, from what a step computes and moves and what the card is able to.
//!
//! Operations are counted on the phantom, recomputation and copies included. On the GPU each takes as long as the
//! slower of its arithmetic and its bytes, at a share of a card's data sheet, and at least a launch; beside it the
//! host needs its time to start each. The slower side is the step. Only the ratio of two such sums is told, with a
//! range.
//!
//! The shares were fitted to steps of eight models on one H200 (bench/fit/h200-steps.json); bench/RESULTS.md has the
//! error on models that were left out of the fit. On other cards they are carried over.

use crate::cards::Card;

/// One kind of operation in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// `matmul`, `convolution` (`convolution-last` with the channels last), `attention`, `recurrent` (one time step of
    /// one layer), `batch-norm`, `pointwise` for all that only moves, `segment` for memory that is given back to the
    /// device and asked for again, `link` for copies between device and host, `network` for what goes to other devices,
    /// `look` for what makes no kernel at all.
    pub op: String,
    /// The type that it computes with; `tf32` for float32 products that may use it.
    pub dtype: String,
    /// How many operations of this very size.
    pub count: f64,
    /// Floating-point operations of each, a multiplication and an addition being two.
    pub flops: f64,
    /// Bytes that each reads and writes.
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

/// Shares of the data sheet's arithmetic: of matrix products by type, of convolutions and attention.
const MATMUL: Shares = Shares { single: 0.65, tf32: 0.33, half: 0.50 };
const CONVOLUTION: Shares = Shares { single: 0.50, tf32: 0.50, half: 0.50 };
const ATTENTION: Shares = Shares { single: 0.50, tf32: 0.50, half: 0.28 };
const RECURRENT: Shares = Shares { single: 0.25, tf32: 0.25, half: 0.25 };
/// Of the data sheet's memory transfer; batch-norm of half precision has slower kernels of its own.
const MEMORY: f64 = 0.43;
const MEMORY_OF_HALF_BATCH_NORM: f64 = 0.35;
/// How often a convolution moves its tensors: cuDNN brings them into another layout and back.
const LAYOUTS: f64 = 2.0;
/// Bytes in a second between device and host, pinned.
const LINK: f64 = 56e9;
/// Seconds that giving a segment back and asking for it again takes, and bytes of it in a second (bench/fit/h200-segments.json).
const SEGMENT: f64 = 75e-6;
const SEGMENT_BYTES: f64 = 3.7e12;
/// Seconds that a kernel takes at least, and one time step of a recurrent layer.
const KERNEL: f64 = 3e-6;
const TIME_STEP: f64 = 12e-6;
/// Seconds of the host for an operation, with all of PyTorch and of Python around it.
const HOST: f64 = 9e-6;
const HOST_LOOK: f64 = 10e-6;
/// How far the logarithm of a ratio may be off: of any, and as a share of itself.
const OFF_AT_LEAST: f64 = 0.1;
const OFF_SHARE: f64 = 0.3;

/// By the type that is computed with.
#[derive(Clone, Copy, Debug)]
struct Shares {
    single: f64,
    tf32: f64,
    half: f64,
}

/// How much longer a step of `changed` takes than one of `plain`.
pub fn factor(plain: &[Work], changed: &[Work], card: &Card) -> Option<Factor> {
    let (before, after) = (seconds(plain, card), seconds(changed, card));
    if before <= 0.0 || after <= 0.0 {
        return None;
    }
    let estimate = after / before;
    let off = if plain == changed { 0.0 } else { OFF_AT_LEAST + OFF_SHARE * estimate.ln().abs() };
    Some(Factor { estimate, low: estimate * (-off).exp(), high: estimate * off.exp() })
}

/// Seconds of a step, or of a part of one, on `card`.
pub fn seconds(work: &[Work], card: &Card) -> f64 {
    let of_gpu: f64 = work.iter().map(|it| it.count * on_gpu(it, card)).sum();
    let on_host = |it: &Work| match it.op.as_str() {
        "look" => it.count * HOST_LOOK,
        // One call for all time steps.
        "recurrent" => 0.0,
        // The device waits for the host, and the host for the device.
        "segment" => it.count * on_gpu(it, card),
        _ => it.count * HOST,
    };
    of_gpu.max(work.iter().map(on_host).sum())
}

/// Seconds of one such operation on the GPU.
fn on_gpu(work: &Work, card: &Card) -> f64 {
    let computed = |shares: Shares| work.flops / arithmetic(&work.dtype, shares, card);
    let moved = work.bytes / memory(card);
    match work.op.as_str() {
        "look" => 0.0,
        // As if devices were joined by what joins them to the host: most have no faster way to each other.
        "link" | "network" => work.bytes / LINK,
        "segment" => SEGMENT + work.bytes / SEGMENT_BYTES,
        "matmul" => computed(MATMUL).max(moved / MEMORY).max(KERNEL),
        "attention" => computed(ATTENTION).max(moved / MEMORY).max(KERNEL),
        "convolution" => (computed(CONVOLUTION) + LAYOUTS * moved / MEMORY).max(KERNEL),
        "convolution-last" => (computed(CONVOLUTION) + moved / MEMORY).max(KERNEL),
        "recurrent" => computed(RECURRENT).max(TIME_STEP),
        "batch-norm" if is_half(&work.dtype) => (moved / MEMORY_OF_HALF_BATCH_NORM).max(KERNEL),
        _ => (moved / MEMORY).max(KERNEL),
    }
}

/// Floating-point operations in a second.
fn arithmetic(dtype: &str, shares: Shares, card: &Card) -> f64 {
    let clocks = f64::from(card.sm_count) * f64::from(card.clock_khz) * 1e3;
    let half: f64 = match card.compute_capability {
        (9, _) => 4096.0,
        (10, _) => 8192.0,
        (8, 0) => 2048.0,
        _ => 1024.0,
    };
    let single = match card.compute_capability {
        (7, _) | (8, 0) => 128.0,
        _ => 256.0,
    };
    let has_tf32 = 8 <= card.compute_capability.0;
    let (per_clock, share) = match dtype {
        _ if is_half(dtype) => (half, shares.half),
        "tf32" if has_tf32 => (half / 2.0, shares.tf32),
        "float64" => (single / 2.0, shares.single),
        _ => (single, shares.single),
    };
    clocks * per_clock * share
}

fn is_half(dtype: &str) -> bool {
    matches!(dtype, "bfloat16" | "float16")
}

/// Bytes in a second; two transfers a clock.
fn memory(card: &Card) -> f64 {
    f64::from(card.memory_clock_khz) * 1e3 * 2.0 * f64::from(card.memory_bus_bits) / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards;

    fn work(op: &str, dtype: &str, count: f64, flops: f64, bytes: f64) -> Work {
        Work { op: op.to_owned(), dtype: dtype.to_owned(), count, flops, bytes }
    }

    fn ratio(plain: &[Work], changed: &[Work]) -> f64 {
        factor(plain, changed, cards::find("h200").unwrap()).map_or(0.0, |it| it.estimate)
    }

    #[test]
    fn arithmetic_counts_where_there_is_much_of_it_and_the_host_where_there_is_little() {
        let layers = |dtype: &str, flops: f64| vec![work("matmul", dtype, 100.0, flops, 1e6)];
        let large = ratio(&layers("float32", 1e11), &layers("bfloat16", 1e11));
        assert!((0.05..0.2).contains(&large), "tensor cores: {large}");
        let small = ratio(&layers("float32", 1e6), &layers("bfloat16", 1e6));
        assert!((small - 1.0).abs() < 1e-9, "nothing but launches: {small}");
        let twice = [layers("float32", 1e6), layers("float32", 1e6)].concat();
        assert!((ratio(&layers("float32", 1e6), &twice) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_only_looks_costs_the_host_alone() {
        let plain = vec![work("pointwise", "float32", 10.0, 0.0, 1e10)];
        let views = [plain.clone(), vec![work("look", "float32", 100.0, 0.0, 0.0)]].concat();
        assert!((ratio(&plain, &views) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_step_that_is_the_same_takes_as_long_and_a_changed_one_has_a_range() {
        let plain = vec![work("convolution", "tf32", 50.0, 1e11, 1e8)];
        let same = factor(&plain, &plain, cards::find("h200").unwrap()).unwrap();
        assert_eq!((same.low, same.estimate, same.high), (1.0, 1.0, 1.0));
        let moved = [plain.clone(), vec![work("link", "uint8", 10.0, 0.0, 1e9)]].concat();
        let it = factor(&plain, &moved, cards::find("h200").unwrap()).unwrap();
        assert!(1.0 < it.low && it.low < it.estimate && it.estimate < it.high, "{it:?}");
        assert!(factor(&[], &plain, cards::find("h200").unwrap()).is_none());
    }
}
