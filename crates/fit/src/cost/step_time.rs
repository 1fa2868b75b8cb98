//! What a plan costs in time, well enough to rank plans: operations are counted on the phantom, and a table says how fast the card
//! and the host get through each kind. It is an estimate, and the only one here; `fit --measure` measures instead.
//!
//! On the GPU an operation takes as long as its arithmetic or its bytes, whichever is slower, at a share of what the card's data
//! sheet says. Meanwhile the host starts the next ones. A step takes as long as the slower of the two, and a part of the other.
//! Only the ratio of two such sums is shown, with a range: hosts with the same GPU were up to 2.3 apart.

use std::fmt;

use plimsoll_core::plan::Op;
use plimsoll_core::{cards::Card, recording::Work, units::Bytes};

/// How many times as long a step takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    /// The estimate; 1 is as long as before.
    pub estimate: f64,
    /// Mostly it is between this
    pub low: f64,
    /// and this, whatever the host; infinite where nobody knows.
    pub high: f64,
}

impl Factor {
    /// Of a program that is compiled, from its work as it was written: no range is known. On an H100 seven plans took 0.39 to 2.48 times
    /// the estimate.
    pub fn of_compiled(self) -> Factor {
        if self.low == self.high { self } else { Factor { low: 0.0, high: f64::INFINITY, ..self } }
    }

    /// In words, after "times the step time".
    pub fn range_in_words(self) -> String {
        if self.high.is_finite() {
            format!("{:.2} to {:.2}", self.low, self.high)
        } else {
            "no range is known: the script is compiled".to_owned()
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Factor { estimate, low, high } = self;
        if high.is_finite() {
            write!(f, "{estimate:.2}x ({low:.2}-{high:.2})")
        } else {
            write!(f, "roughly {estimate:.2}x")
        }
    }
}

/// How fast one kind of work is done, as measured on H200s and H100s; other cards are taken to reach the same shares.
struct Speed {
    /// Share of the data sheet's arithmetic (of [`Op::Walk`]: numbers for each clock of a multiprocessor), for float32, tf32 and halves.
    arithmetic: Option<[f64; 3]>,
    /// Share of the data sheet's memory transfer.
    memory: f64,
    /// Microseconds that it takes on the device at least.
    at_least: f64,
    /// Microseconds of the host to start it, with all of PyTorch and of Python around it.
    host: f64,
}

/// The table. `bench/instruments/step_times.py` measures it with steps of known models.
fn speed(op: Op) -> Speed {
    let of = |arithmetic, at_least, host| Speed { arithmetic, memory: 0.55, at_least, host };
    match op {
        Op::Matmul => of(Some([0.66, 0.40, 0.60]), 2.0, 35.0),
        Op::Convolution => of(Some([0.50, 0.27, 0.25]), 2.0, 75.0),
        Op::Attention => of(Some([0.38, 0.38, 0.38]), 2.0, 15.0),
        Op::Recurrent => of(Some([0.30, 0.18, 0.30]), 10.5, 21.0),
        Op::Walk => of(Some([0.5, 0.5, 0.5]), 2.0, 15.0),
        Op::Memory => of(None, 2.0, 15.0),
        Op::Link => of(None, 0.0, 15.0),
        Op::Network => of(None, 25.0, 25.0),
        Op::Segment => of(None, 75.0, 75.0),
        Op::Look => of(None, 0.0, 7.0),
        Op::Hook => of(None, 0.0, 6.0),
        Op::Around => of(None, 0.0, 520.0),
    }
}

/// Microseconds of the host for the small training step of `plimsoll calibrate` (`host_step` of `calibrate/card.py`), by the table: a test has
/// what that step does.
const HOST_STEP: f64 = 4130.0;
/// Share of a link's or of NVLink's data sheet that copies reach.
const OF_LINK: f64 = 0.8;
const OF_NVLINK: f64 = 0.67;
/// How well host and device work beside each other: the exponent of their norm. 1 would be one after the other, and without end the
/// slower alone.
const OVERLAP: f64 = 3.0;
/// A host may be so many times as fast or as slow as the table has it,
const HOSTS: f64 = 1.5;
/// and a ratio may be off by so much beside that: the logarithm by the first, and by the second as a share of itself.
const OFF: (f64, f64) = (0.10, 0.2);

/// How many times as long a step of `changed` takes as one of `plain`; none where nothing was counted.
pub fn factor(plain: &[Work], changed: &[Work], card: &Card) -> Option<Factor> {
    let with_host = |by: f64| {
        let (before, after) = (step(plain, card, by), step(changed, card, by));
        (0.0 < before && 0.0 < after).then(|| after / before)
    };
    let estimate = with_host(1.0)?;
    if plain.len() == changed.len() && changed.iter().all(|work| plain.contains(work)) {
        return Some(Factor { estimate, low: estimate, high: estimate });
    }
    let (slow, fast) = (with_host(HOSTS)?, with_host(HOSTS.recip())?);
    let off = (OFF.0 + OFF.1 * estimate.ln().abs()).exp();
    let low = estimate.min(slow).min(fast) / off;
    Some(Factor { estimate, low, high: estimate.max(slow).max(fast) * off })
}

/// Seconds of a step, or of a part of one, on `card`.
pub fn seconds(work: &[Work], card: &Card) -> f64 {
    step(work, card, 1.0)
}

/// Seconds with a host that takes so many times as long as the table has it, or as the card's was measured.
fn step(work: &[Work], card: &Card, host: f64) -> f64 {
    let measured = card.speeds.host_step_us.map_or(1.0, |us| f64::from(us) / HOST_STEP);
    let on_host: f64 = work.iter().map(|work| work.count * speed(work.op).host * 1e-6).sum();
    let on_host = on_host * measured * host;
    let on_gpu: f64 = work.iter().map(|work| work.count * on_gpu(work, card)).sum();
    let (slower, faster) = (on_gpu.max(on_host), on_gpu.min(on_host));
    if slower <= 0.0 {
        return 0.0;
    }
    slower * (1.0 + (faster / slower).powf(OVERLAP)).powf(OVERLAP.recip())
}

/// Seconds of one such operation on the device.
fn on_gpu(work: &Work, card: &Card) -> f64 {
    let Speed { arithmetic, memory, at_least, .. } = speed(work.op);
    let at_least = at_least * 1e-6;
    match work.op {
        Op::Link => return work.bytes / of_link(card),
        Op::Network => return at_least + work.bytes / between_devices(card),
        Op::Segment => return at_least,
        Op::Look | Op::Hook | Op::Around => return 0.0,
        _ => {}
    }
    let has_tf32 = 8 <= card.compute_capability.0;
    let dtype = if work.dtype == "tf32" && !has_tf32 { "float32" } else { &work.dtype };
    let computed = arithmetic.map_or(0.0, |[single, tf32, half]| {
        let share = match dtype {
            _ if is_half(dtype) => half,
            "tf32" => tf32,
            _ => single,
        };
        let at_best = if work.op == Op::Walk { clocks(card) } else { flops(dtype, card) };
        work.flops / (at_best * share)
    });
    computed.max(work.bytes / (bytes(card) * memory)).max(at_least)
}

fn in_numbers(bytes: Bytes) -> f64 {
    bytes.share_of(Bytes(1))
}

/// From so many bits on the bus is that of stacked memory (HBM).
const STACKED_BITS: u32 = 2048;

/// Bytes in a second that a device sends to another one of its machine. Cards with stacked memory are taken to be
/// the modules that NVLink joins; others have no faster way to each other than the link to the host.
fn between_devices(card: &Card) -> f64 {
    if let Some(measured) = card.speeds.between {
        return in_numbers(measured);
    }
    let nvlink = match card.compute_capability {
        _ if card.memory_bus_bits < STACKED_BITS => return of_link(card),
        (7, _) => 150e9,
        (8, _) => 300e9,
        (9, _) => 450e9,
        _ => 900e9,
    };
    OF_NVLINK * nvlink
}

/// Bytes in a second between device and host one way: as measured, or after PCI Express 3, 4 and 5 with 16 lanes.
fn of_link(card: &Card) -> f64 {
    card.speeds.link.map_or_else(
        || match card.compute_capability.0 {
            ..=7 => OF_LINK * 15.75e9,
            8 => OF_LINK * 31.5e9,
            _ => OF_LINK * 63e9,
        },
        in_numbers,
    )
}

/// Floating-point operations in a second, after the data sheet.
fn flops(dtype: &str, card: &Card) -> f64 {
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
    let per_clock = match dtype {
        _ if is_half(dtype) => half,
        "tf32" => half / 2.0,
        "float64" => single / 2.0,
        _ => single,
    };
    clocks(card) * per_clock
}

/// Clocks of all multiprocessors in a second.
fn clocks(card: &Card) -> f64 {
    f64::from(card.sm_count) * f64::from(card.clock_khz) * 1e3
}

fn is_half(dtype: &str) -> bool {
    matches!(dtype, "bfloat16" | "float16")
}

/// Bytes in a second; two transfers a clock.
fn bytes(card: &Card) -> f64 {
    f64::from(card.memory_clock_khz) * 1e3 * 2.0 * f64::from(card.memory_bus_bits) / 8.0
}

#[cfg(test)]
mod tests {
    use plimsoll_core::cards;

    use super::*;

    fn work(op: Op, dtype: &str, count: f64, flops: f64, bytes: f64) -> Work {
        Work { op, dtype: dtype.to_owned(), count, flops, bytes }
    }

    fn ratio(plain: &[Work], changed: &[Work]) -> f64 {
        factor(plain, changed, cards::find("h200").unwrap()).map_or(0.0, |it| it.estimate)
    }

    #[test]
    fn arithmetic_counts_where_there_is_much_of_it_and_the_host_where_there_is_little() {
        let layers = |dtype: &str, flops: f64| vec![work(Op::Matmul, dtype, 100.0, flops, 1e6)];
        let large = ratio(&layers("float32", 1e11), &layers("bfloat16", 1e11));
        assert!((0.05..0.2).contains(&large), "tensor cores: {large}");
        let small = ratio(&layers("float32", 1e6), &layers("bfloat16", 1e6));
        assert!((small - 1.0).abs() < 1e-9, "nothing but launches: {small}");
        let twice = [layers("float32", 1e6), layers("float32", 1e6)].concat();
        assert!((ratio(&layers("float32", 1e6), &twice) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn work_of_the_host_alone_is_hidden_where_the_device_is_slower() {
        let plain = vec![work(Op::Memory, "float32", 10.0, 0.0, 1e10)];
        let looks = [plain.clone(), vec![work(Op::Look, "float32", 100.0, 0.0, 0.0)]].concat();
        assert!((ratio(&plain, &looks) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn what_goes_over_a_link_takes_what_the_card_s_link_takes() {
        let sent = [work(Op::Network, "float32", 1.0, 0.0, 1e9)];
        let copied = [work(Op::Link, "uint8", 1.0, 0.0, 1e9)];
        let on = |card: &str, work: &[Work]| seconds(work, cards::find(card).unwrap());
        assert!(5.0 * on("h200", &sent) < on("h200", &copied), "NVLink");
        assert!(on("rtx4090", &copied) <= on("rtx4090", &sent), "no faster way to each other");
        assert!(1.9 * on("h200", &copied) < on("rtx4090", &copied), "PCI Express 5 and 4");
    }

    #[test]
    fn the_small_step_takes_what_the_table_says_of_the_host() {
        let counted = [(Op::Look, 310.0), (Op::Matmul, 26.0), (Op::Memory, 70.0)]
            .map(|(op, count)| count * speed(op).host);
        let all: f64 = counted.into_iter().sum();
        assert!((all / HOST_STEP - 1.0).abs() < 0.01, "{all}");
    }

    #[test]
    fn what_was_measured_of_a_machine_counts_instead_of_a_data_sheet() {
        let copied = [work(Op::Link, "uint8", 1.0, 0.0, 1e9)];
        let sent = [work(Op::Network, "float32", 1.0, 0.0, 1e9)];
        let launched = [work(Op::Memory, "float32", 1000.0, 0.0, 4.0)];
        let mut card = cards::find("rtx3090").unwrap().clone();
        let before = seconds(&launched, &card);
        card.speeds.link = Some(Bytes(6_000_000_000));
        assert!((seconds(&copied, &card) - 1.0 / 6.0).abs() < 1e-3, "a slot with few lanes");
        assert!((seconds(&sent, &card) - 1.0 / 6.0).abs() < 1e-3, "and so to another card");
        card.speeds.between = Some(Bytes(50_000_000_000));
        assert!((seconds(&sent, &card) - 0.02).abs() < 1e-3, "but with a bridge");
        card.speeds.host_step_us = Some(8260); // twice HOST_STEP
        let slower = seconds(&launched, &card) / before;
        assert!((1.9..2.1).contains(&slower), "{slower}");
    }

    #[test]
    fn a_step_that_is_the_same_takes_as_long_and_a_changed_one_has_a_range() {
        let plain = vec![work(Op::Convolution, "tf32", 50.0, 1e11, 1e8)];
        let same = factor(&plain, &plain, cards::find("h200").unwrap()).unwrap();
        assert_eq!((same.low, same.estimate, same.high), (1.0, 1.0, 1.0));
        let moved = [plain.clone(), vec![work(Op::Link, "uint8", 10.0, 0.0, 1e9)]].concat();
        let it = factor(&plain, &moved, cards::find("h200").unwrap()).unwrap();
        assert!(1.0 < it.low && it.low < it.estimate && it.estimate < it.high, "{it:?}");
        assert!(factor(&[], &plain, cards::find("h200").unwrap()).is_none());
    }
}
