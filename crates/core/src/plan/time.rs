//! What a plan costs in time: an estimate, from what a step computes and moves and what the card is able to.
//!
//! Operations are counted on the phantom, recomputation and copies included. On the GPU each takes as long as its
//! arithmetic or its bytes, whichever is slower, at a share of what the card's data sheet says. It takes a launch at least.
//! Meanwhile the host takes its time to start each. A step takes as long as the slower of the two sides, and a part of the other,
//! because each waits for the other now and then. Only the ratio of two such sums is told, with a range: the speed of the
//! host is assumed.
//!
//! The shares are found from steps of many models on H200s with different hosts, by bench/fit/step_times.rs; those of kinds of operations
//! that it does not look for were measured one by one, by bench/fit/operations.py and moving.py. bench/RESULTS.md tells the error on models that they were not found from. On other cards they are carried over.

use std::fmt;

use crate::{cards::Card, recording::Work, units::Bytes};

/// How much longer a step takes.
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
    /// Of a program that is compiled, told by its work as it was written: no range is known. On an H100 seven plans took 0.39 to 2.48 times
    /// what was told (bench/RESULTS.md).
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

/// What is assumed of a card, its libraries and the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Shares of the data sheet's arithmetic that matrix products reach.
    pub matmul: Shares,
    /// How much of its share a product of halves keeps when its rows begin at multiples of 4 bytes, and of 2.
    pub by_4: f64,
    /// See `by_4`.
    pub by_2: f64,
    /// Shares that convolutions reach, their layouts not counted.
    pub convolution: Shares,
    /// Channels from which on a convolution reaches its share. With half as many it keeps as much of it as a half has to the
    /// power of `per_channel`.
    pub channels: Shares,
    /// See `channels`.
    pub per_channel: Shares,
    /// How much of its share a convolution of not so many channels keeps in one dimension.
    pub flat: Shares,
    /// And one of several groups of channels.
    pub grouped: Shares,
    /// Share of float32's arithmetic, whatever the type, that one of few channels reaches.
    pub few: f64,
    /// How often a convolution with channels in front moves its tensors: cuDNN brings them into another layout and back.
    pub layouts: Shares,
    /// Shares that attention reaches.
    pub attention: Shares,
    /// Shares that recurrent layers reach.
    pub recurrent: Shares,
    /// Shares of float32's arithmetic, whatever the type, that depthwise convolutions reach.
    pub depthwise: Shares,
    /// And with the channels last: cuDNN has other kernels for those.
    pub depthwise_last: Shares,
    /// And in one dimension.
    pub depthwise_flat: f64,
    /// Share of the data sheet's memory transfer that kernels reach which do the same to each number by itself (bench/fit/h100-moving.jsonl).
    pub elementwise: Shares,
    /// And other simple ones.
    pub memory: f64,
    /// Share of it that batch-norm of cuDNN reaches: it reads its input more than once.
    pub batch_norm: f64,
    /// And PyTorch's own for channels in front: one block of threads for each channel.
    pub native_batch_norm: f64,
    /// Numbers that an index picks, each by itself, for each clock of a multiprocessor: 131e9 in a second on an H200
    /// (bench/fit/h200-operations.json).
    pub gathered: f64,
    /// Seconds that a thread waits for a number of memory before it asks for the next one; half where the cache has them all
    /// (bench/fit/h100-moving.jsonl).
    pub wait: f64,
    /// Share of one multiprocessor's part of it that one block of threads reaches.
    pub block: f64,
    /// Share of the link's data sheet that copies between device and host reach, pinned.
    pub link: f64,
    /// Bytes in a second of such copies where the host's memory is not pinned.
    pub unpinned: f64,
    /// Share of NVLink's that collectives reach (bench/fit/h200-network.json).
    pub nvlink: f64,
    /// Seconds that a collective takes beside its bytes, on the device and on the host.
    pub collective: f64,
    /// Seconds that giving a segment back and asking for it again takes (bench/fit/h200-segments.json).
    pub segment: f64,
    /// And bytes of it in a second.
    pub segment_bytes: f64,
    /// Seconds that an operation takes on the device at least; it may be several kernels.
    pub kernel: f64,
    /// Seconds that one time step of a recurrent layer takes at least.
    pub time_step: f64,
    /// Seconds of the host for an operation, with all of PyTorch and of Python around it.
    pub host: f64,
    /// And for a convolution: cuDNN looks for the plan of each.
    pub host_convolution: f64,
    /// And for a matrix product.
    pub host_matmul: f64,
    /// And for one time step of a recurrent layer: cuDNN starts kernels for each.
    pub host_time_step: f64,
    /// Seconds of the host for what makes no kernel.
    pub host_look: f64,
    /// Seconds of the host for a function around a tensor that autograd keeps.
    pub host_hook: f64,
    /// Seconds of the host for a part of a model with such functions: random states are kept and put back.
    pub host_around: f64,
    /// Seconds of the host for a tensor in a list.
    pub host_listed: f64,
    /// Seconds of the host for sorting indices: many small kernels, and it waits for some.
    pub host_sorted: f64,
    /// Seconds of the host for one of FSDP2's copies, with the Python around it (bench/fit/h200-network.json and
    /// h200-fresh-network.json).
    pub host_sharded: f64,
    /// Seconds of the host for a microsecond that was measured: another machine may be faster.
    pub host_data: f64,
    /// How well host and device work beside each other: the exponent of their norm. 1 would be one after the other, and
    /// without end the slower alone.
    pub overlap: f64,
}

/// By the type that is computed with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Of float32.
    pub single: f64,
    /// Of float32 that may use tensor cores.
    pub tf32: f64,
    /// Of bfloat16 and float16.
    pub half: f64,
}

impl Shares {
    fn of(self, dtype: &str) -> f64 {
        match dtype {
            _ if is_half(dtype) => self.half,
            "tf32" => self.tf32,
            _ => self.single,
        }
    }
}

/// What is assumed where nobody measured a machine.
pub const FITTED: Figures =
    Figures { host_sharded: 0.5e-3, host_data: 1e-6, ..FOUND.with_host(SCRIPTS) };

/// How many times as long the host takes for an operation of people's scripts as for one of the models that [`FOUND`] comes from, which do
/// nothing else: the plans of 90 runs of such scripts, in eight sets, are told best with 1.2 to 1.4 (bench/RESULTS.md).
const SCRIPTS: f64 = 1.25;

/// What bench/fit/step_times.rs finds, rounded; what it does not look for was measured by itself. It was found with counts that had no
/// `elementwise` yet: what is found since is no better for people's scripts (bench/RESULTS.md).
const FOUND: Figures = Figures {
    matmul: Shares { single: 0.655, tf32: 0.397, half: 0.596 },
    by_4: 0.303,
    by_2: 0.186,
    convolution: Shares { single: 0.50, tf32: 0.272, half: 0.254 },
    channels: Shares { single: 1.0, tf32: 84.0, half: 64.0 },
    per_channel: Shares { single: 1.0, tf32: 0.8, half: 1.3 },
    flat: Shares { single: 1.0, tf32: 0.60, half: 0.35 },
    grouped: Shares { single: 0.50, tf32: 0.50, half: 0.30 },
    few: 0.27,
    layouts: Shares { single: 1.78, tf32: 1.78, half: 2.20 },
    attention: Shares { single: 0.385, tf32: 0.385, half: 0.382 },
    recurrent: Shares { single: 0.300, tf32: 0.182, half: 0.300 },
    depthwise: Shares { single: 0.0116, tf32: 0.0116, half: 0.0115 },
    depthwise_last: Shares { single: 0.0131, tf32: 0.0131, half: 0.0765 },
    depthwise_flat: 0.04,
    elementwise: Shares { single: 0.82, tf32: 0.82, half: 0.70 },
    memory: 0.440,
    batch_norm: 0.312,
    native_batch_norm: 0.0907,
    gathered: 0.50,
    wait: 0.39e-6,
    block: 0.699,
    link: 0.816,
    unpinned: 8e9,
    nvlink: 0.67,
    collective: 25e-6,
    segment: 75e-6,
    segment_bytes: 3.7e12,
    kernel: 1.95e-6,
    time_step: 10.5e-6,
    host: 11.8e-6,
    host_convolution: 72.0e-6,
    host_matmul: 28.4e-6,
    host_time_step: 16.6e-6,
    host_look: 5.78e-6,
    host_hook: 4.94e-6,
    host_around: 418e-6,
    host_listed: 2.75e-6,
    host_sorted: 204e-6,
    host_sharded: 0.5e-3,
    host_data: 1e-6,
    overlap: 3.06,
};

/// How wide the range of a ratio is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// How much faster or slower the host may be than the one that is assumed: hosts with the same GPU were up to 2.2
    /// apart.
    pub host: f64,
    /// How far the logarithm of a ratio may be off beside that,
    pub at_least: f64,
    /// and as a share of itself.
    pub share: f64,
}

/// With this, four of five of the ratios that were measured lie in the range: those of people's scripts, and more of the models that constants
/// are found from (bench/RESULTS.md).
pub const RANGE: Range = Range { host: 1.5, at_least: 0.10, share: 0.2 };

impl Range {
    /// Around an estimate, given also what it would be with a slower host and with a faster one.
    pub fn around(self, estimate: f64, slow: f64, fast: f64) -> Factor {
        let off = (self.at_least + self.share * estimate.ln().abs()).exp();
        Factor {
            estimate,
            low: estimate.min(slow).min(fast) / off,
            high: estimate.max(slow).max(fast) * off,
        }
    }
}

/// How much longer a step of `changed` takes than one of `plain`.
pub fn factor(plain: &[Work], changed: &[Work], card: &Card) -> Option<Factor> {
    let on = |figures: Figures| {
        let (before, after) = (figures.seconds(plain, card), figures.seconds(changed, card));
        (0.0 < before && 0.0 < after).then(|| after / before)
    };
    let estimate = on(FITTED)?;
    if plain.len() == changed.len() && changed.iter().all(|it| plain.contains(it)) {
        return Some(Factor { estimate, low: estimate, high: estimate });
    }
    let with_host = |by: f64| on(FITTED.with_host(by));
    Some(RANGE.around(estimate, with_host(RANGE.host)?, with_host(RANGE.host.recip())?))
}

/// What a step does whose batches are those of `plain`: making them takes as long as there, not as it was measured a second time.
pub fn fed_as(plain: &[Work], changed: Vec<Work>) -> Vec<Work> {
    let is_data = |it: &Work| matches!(it.op.as_str(), "data" | "data-alone");
    let others = changed.into_iter().filter(|it| !is_data(it));
    others.chain(plain.iter().filter(|it| is_data(it)).cloned()).collect()
}

/// Seconds of a step, or of a part of one, on `card`.
pub fn seconds(work: &[Work], card: &Card) -> f64 {
    FITTED.seconds(work, card)
}

/// Seconds that a step takes more whose shapes are all new: cuDNN plans each of them on the host, once.
pub fn first_time(work: &[Work]) -> f64 {
    let of = |it: &Work| match it.op.as_str() {
        "planned-attention" => PLANNED_ATTENTION,
        "planned-convolution" => PLANNED_CONVOLUTION.of(&it.dtype),
        _ => 0.0,
    };
    work.iter().map(|it| it.count * of(it)).sum()
}

/// How the words of such shapes begin.
const PLANNED: &str = "planned-";
/// Seconds of an H100's host for a shape of a convolution that cuDNN meets first, forward or backward
/// (bench/fit/h100-new-shapes.jsonl). Products and PyTorch's own attention take less than a millisecond.
const PLANNED_CONVOLUTION: Shares = Shares { single: 2.0e-3, tf32: 2.0e-3, half: 3.0e-3 };
/// And for one of attention, which PyTorch gives to cuDNN in halves on compute capability 9.0 and later.
const PLANNED_ATTENTION: f64 = 50e-3;

impl Figures {
    /// Seconds of a step, or of a part of one, on `card`: those of device and host, which work beside each other as long
    /// as neither waits for the other.
    pub fn seconds(&self, work: &[Work], card: &Card) -> f64 {
        let on_gpu: f64 = work.iter().map(|it| it.count * self.on_gpu(it, card)).sum();
        let here = self.with_host(host(card));
        let on_host: f64 = work.iter().map(|it| here.on_host(it, card)).sum();
        let alone: f64 = work.iter().filter(|it| it.op == "data-alone").map(|it| it.count).sum();
        let slower = on_gpu.max(on_host);
        if slower <= 0.0 {
            return 0.0;
        }
        let faster = on_gpu.min(on_host);
        let beside =
            slower * (1.0 + (faster / slower).powf(self.overlap)).powf(self.overlap.recip());
        alone * here.host_data + beside
    }

    /// The same with a host that takes so many times as long.
    #[must_use]
    pub const fn with_host(self, by: f64) -> Self {
        Self {
            host: self.host * by,
            host_convolution: self.host_convolution * by,
            host_matmul: self.host_matmul * by,
            host_time_step: self.host_time_step * by,
            host_look: self.host_look * by,
            host_hook: self.host_hook * by,
            host_around: self.host_around * by,
            host_listed: self.host_listed * by,
            host_sorted: self.host_sorted * by,
            host_sharded: self.host_sharded * by,
            host_data: self.host_data * by,
            ..self
        }
    }

    /// Seconds of the host for all of these.
    pub fn on_host(&self, work: &Work, card: &Card) -> f64 {
        match work.op.as_str() {
            "look" => work.count * self.host_look,
            "hook" => work.count * self.host_hook,
            "around" => work.count * self.host_around,
            "listed" => work.count * self.host_listed,
            "sorted" => work.count * self.host_sorted,
            "sharded" => work.count * self.host_sharded,
            "data" => work.count * self.host_data,
            // Beside nothing: `seconds` adds it.
            "data-alone" => 0.0,
            op if op.starts_with(PLANNED) => 0.0,
            "recurrent" => work.count * self.host_time_step,
            "matmul" | "matmul-by-4" | "matmul-by-2" => work.count * self.host_matmul,
            // The device waits for the host, and the host for the device.
            "segment" | "link-unpinned" => work.count * self.on_gpu(work, card),
            "network" => work.count * self.collective,
            op if op.starts_with("convolution") || op.starts_with("depthwise") => {
                work.count * self.host_convolution
            }
            _ => work.count * self.host,
        }
    }

    /// Seconds of one such operation on the device.
    pub fn on_gpu(&self, work: &Work, card: &Card) -> f64 {
        let has_tf32 = 8 <= card.compute_capability.0;
        let dtype = if work.dtype == "tf32" && !has_tf32 { "float32" } else { &work.dtype };
        let computed = |shares: Shares| work.flops / (arithmetic(dtype, card) * shares.of(dtype));
        let alone = |share: f64| work.flops / (arithmetic("float32", card) * share);
        let moved = work.bytes / memory(card);
        let kernels = match work.op.as_str() {
            "look" | "hook" | "around" | "listed" | "sorted" | "sharded" | "data"
            | "data-alone" => return 0.0,
            op if op.starts_with(PLANNED) => return 0.0,
            "link" => return work.bytes / self.of_link(card),
            "link-unpinned" => return work.bytes / self.of_link(card).min(self.unpinned),
            "network" => return self.collective + work.bytes / self.between_devices(card),
            "segment" => return self.segment + work.bytes / self.segment_bytes,
            "recurrent" => return computed(self.recurrent).max(self.time_step),
            "matmul" => computed(self.matmul).max(moved / self.memory),
            "matmul-by-4" => (computed(self.matmul) / self.by_4).max(moved / self.memory),
            "matmul-by-2" => (computed(self.matmul) / self.by_2).max(moved / self.memory),
            "attention" => computed(self.attention).max(moved / self.memory),
            "convolution-few" => alone(self.few).max(moved / self.memory),
            op if op.starts_with("convolution") => {
                let computed = computed(self.convolution) / self.kept(op, dtype);
                if op.ends_with("-last") {
                    computed.max(moved / self.memory)
                } else {
                    computed + self.layouts.of(dtype) * moved
                }
            }
            "depthwise" => alone(self.depthwise.of(dtype)).max(moved / self.memory),
            "depthwise-last" => alone(self.depthwise_last.of(dtype)).max(moved / self.memory),
            "depthwise-flat" => alone(self.depthwise_flat).max(moved / self.memory),
            "gathered" => (work.flops / (clocks(card) * self.gathered)).max(moved / self.memory),
            "elementwise" => moved / self.elementwise.of(dtype),
            "waiting" => {
                let is_cached = work.bytes < 2.0 * in_numbers(card.l2);
                let wait = if is_cached { self.wait / 2.0 } else { self.wait };
                (work.flops * wait).max(moved / self.memory)
            }
            "few-blocks" => moved * f64::from(card.sm_count) / self.block,
            "batch-norm" => moved / self.batch_norm,
            "native-batch-norm" => moved / self.native_batch_norm,
            _ => moved / self.memory,
        };
        kernels.max(self.kernel)
    }

    /// How much of a convolution's share one of this kind keeps.
    fn kept(&self, op: &str, dtype: &str) -> f64 {
        let kind = op.trim_end_matches("-last");
        let channels: Option<f64> = kind.split_once("-of-").and_then(|(_, it)| it.parse().ok());
        let of_channels = channels.map_or(1.0, |it| {
            (it / self.channels.of(dtype)).min(1.0).powf(self.per_channel.of(dtype))
        });
        let flat = if kind.contains("-flat") { self.flat.of(dtype) } else { 1.0 };
        let grouped = if kind.contains("-grouped") { self.grouped.of(dtype) } else { 1.0 };
        of_channels * flat * grouped
    }

    /// Bytes in a second that a device sends to another one of its machine. Cards with stacked memory are taken to be
    /// the modules that NVLink joins; others have no faster way to each other than the link to the host.
    fn between_devices(&self, card: &Card) -> f64 {
        if let Some(measured) = card.speeds.between {
            return in_numbers(measured);
        }
        let nvlink = match card.compute_capability {
            _ if card.memory_bus_bits < STACKED_BITS => None,
            (7, _) => Some(150e9),
            (8, _) => Some(300e9),
            (9, _) => Some(450e9),
            _ => Some(900e9),
        };
        nvlink.map_or_else(|| self.of_link(card), |it| self.nvlink * it)
    }

    /// Bytes in a second between device and host, one way.
    fn of_link(&self, card: &Card) -> f64 {
        card.speeds.link.map_or(self.link * host_link(card), in_numbers)
    }
}

fn in_numbers(bytes: Bytes) -> f64 {
    bytes.share_of(Bytes(1))
}

/// How many times as long the host of this card takes as the one that is assumed; 1 where nobody measured it.
fn host(card: &Card) -> f64 {
    card.speeds.host_step_us.map_or(1.0, |it| f64::from(it) * 1e-6 / HOST_STEP)
}

/// Seconds of the host for the small training step of `plimsoll calibrate` (`host_step` of `survey/card.py`), as [`FOUND`] has
/// it: a test has what it does, as the agent's meter counted it on a phantom. The hosts of six H100s take 2.8 to 4.5 ms.
const HOST_STEP: f64 = 3.29e-3;

/// From so many bits on the bus is that of stacked memory (HBM).
const STACKED_BITS: u32 = 2048;

/// Bytes in a second between device and host one way, after PCI Express 3, 4 and 5 with 16 lanes.
fn host_link(card: &Card) -> f64 {
    match card.compute_capability.0 {
        ..=7 => 15.75e9,
        8 => 31.5e9,
        _ => 63e9,
    }
}

/// Floating-point operations in a second, after the data sheet.
fn arithmetic(dtype: &str, card: &Card) -> f64 {
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
        assert!((ratio(&plain, &views) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn what_an_index_picks_takes_as_long_in_halves() {
        let on = |op: &str, dtype: &str, bytes: f64| {
            seconds(&[work(op, dtype, 1.0, 441e6, bytes)], cards::find("h200").unwrap())
        };
        let (whole, half) = (on("gathered", "float32", 1.64e9), on("gathered", "bfloat16", 0.82e9));
        assert!((0.0032..0.0036).contains(&whole) && (whole - half).abs() < 1e-9, "{whole} {half}");
        assert!(4.0 * on("pointwise", "float32", 1.64e9) < whole);
    }

    #[test]
    fn softmax_along_another_dimension_takes_as_long_as_its_waits() {
        let card = cards::find("h100-80g").unwrap();
        let on = |op: &str, flops: f64, bytes: f64| {
            seconds(&[work(op, "float32", 1.0, flops, bytes)], card)
        };
        // 12 rows of 32,000 classes for 1,024 words, and 16 pictures of 19 classes.
        let words = on("waiting", 3.05 * 32_000.0, 3.1e9);
        assert!((0.036..0.040).contains(&words), "{words}");
        let pixels = on("waiting", 3.05 * 19.0, 6.4e8);
        assert!((pixels / on("pointwise", 0.0, 6.4e8) - 1.0).abs() < 1e-6, "{pixels}");
        let cached = on("waiting", 3.05 * 256.0, 1.7e7);
        assert!((1.4e-4..1.7e-4).contains(&cached), "{cached}");
        assert!(on("elementwise", 0.0, 3.1e9) < 0.6 * on("pointwise", 0.0, 3.1e9));
    }

    #[test]
    fn a_convolution_of_few_channels_leaves_tensor_cores_idle() {
        let card = cards::find("h200").unwrap();
        let on = |op: &str, dtype: &str| FITTED.on_gpu(&work(op, dtype, 1.0, 2e10, 1e3), card);
        let times = |op: &str, dtype: &str| on(op, dtype) / on("convolution-last", dtype);
        assert!(
            (times("convolution-of-64-last", "tf32") - (84.0_f64 / 64.0).powf(0.8)).abs() < 1e-3
        );
        assert!((times("convolution-of-64-last", "bfloat16") - 1.0).abs() < 1e-3);
        assert!((times("convolution-of-32-last", "bfloat16") - 2.0_f64.powf(1.3)).abs() < 1e-3);
        assert!((times("convolution-grouped-last", "float16") - 1.0 / 0.3).abs() < 1e-3);
        assert!(2.0 * on("convolution-of-16", "tf32") < on("convolution-flat-of-8", "tf32"));
        assert!((on("convolution-few", "tf32") - on("convolution-few", "bfloat16")).abs() < 1e-9);
        assert!((on("convolution", "float32") - on("convolution-of-16", "float32")).abs() < 1e-9);
    }

    #[test]
    fn what_goes_over_a_link_takes_what_the_card_s_link_takes() {
        let sent = [work("network", "float32", 1.0, 0.0, 1e9)];
        let copied = [work("link", "uint8", 1.0, 0.0, 1e9)];
        let on = |card: &str, work: &[Work]| seconds(work, cards::find(card).unwrap());
        assert!(5.0 * on("h200", &sent) < on("h200", &copied), "NVLink");
        assert!(on("rtx4090", &copied) <= on("rtx4090", &sent), "no faster way to each other");
        assert!(1.9 * on("h200", &copied) < on("rtx4090", &copied), "PCI Express 5 and 4");
        let many = [work("network", "float32", 1000.0, 0.0, 4.0)];
        assert!((0.02..0.04).contains(&on("h200", &many)), "each waits for its others");
    }

    #[test]
    fn the_small_step_takes_what_the_host_that_is_assumed_takes_for_it() {
        let counted = [("listed", 442.0), ("look", 89.0), ("matmul", 26.0), ("pointwise", 70.0)];
        let card = cards::find("h200").unwrap();
        let on_host =
            counted.map(|(op, count)| FOUND.on_host(&work(op, "float32", count, 0.0, 0.0), card));
        let all: f64 = on_host.into_iter().sum();
        assert!((all / HOST_STEP - 1.0).abs() < 0.01, "{all}");
    }

    #[test]
    fn what_was_measured_of_a_machine_counts_instead_of_a_data_sheet() {
        let copied = [work("link", "uint8", 1.0, 0.0, 1e9)];
        let sent = [work("network", "float32", 1.0, 0.0, 1e9)];
        let launched = [work("pointwise", "float32", 1000.0, 0.0, 4.0)];
        let mut card = cards::find("rtx3090").unwrap().clone();
        let before = seconds(&launched, &card);
        card.speeds.link = Some(Bytes(6_000_000_000));
        assert!((seconds(&copied, &card) - 1.0 / 6.0).abs() < 1e-3, "a slot with few lanes");
        assert!((seconds(&sent, &card) - 1.0 / 6.0).abs() < 1e-3, "and so to another card");
        card.speeds.between = Some(Bytes(50_000_000_000));
        assert!((seconds(&sent, &card) - 0.02).abs() < 1e-3, "but with a bridge");
        card.speeds.host_step_us = Some(6580); // twice HOST_STEP
        let slower = seconds(&launched, &card) / before;
        assert!((1.9..2.1).contains(&slower), "{slower}");
    }

    #[test]
    fn shapes_that_are_planned_are_no_part_of_a_step() {
        let plain = vec![work("pointwise", "float32", 100.0, 0.0, 1e9)];
        let planned = [
            work("planned-attention", "bfloat16", 2.0, 0.0, 0.0),
            work("planned-convolution", "bfloat16", 3.0, 0.0, 0.0),
            work("planned-convolution", "tf32", 4.0, 0.0, 0.0),
        ];
        assert!((first_time(&planned) - 0.117).abs() < 1e-9 && first_time(&plain) == 0.0);
        assert!((ratio(&plain, &[&plain[..], &planned].concat()) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_step_that_waits_for_its_batch_gains_and_loses_less() {
        let plain = vec![work("pointwise", "float32", 1.0, 0.0, 1e10)];
        let copied = vec![work("link", "uint8", 1.0, 0.0, 1e10)];
        let with =
            |op: &str, it: &[Work]| [it.to_vec(), vec![work(op, "", 20_000.0, 0.0, 0.0)]].concat();
        let times = |op: &str| {
            ratio(
                &with(op, &plain),
                &fed_as(&with(op, &plain), [copied.clone(), plain.clone()].concat()),
            )
        };
        let none = ratio(&plain, &[copied.clone(), plain.clone()].concat());
        let (beside, alone) = (times("data"), times("data-alone"));
        assert!(
            none > 25.0 && (9.0..10.0).contains(&beside) && (8.5..9.0).contains(&alone),
            "{none} {beside} {alone}"
        );
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
