//! Random numbers that PyTorch draws on the device, as far as programs choose by them: `torch.rand(n) < 0.15` says which
//! tokens are masked, `torch.randn(n) > 0` which elements are chosen, `torch.randint` which there are, `torch.bernoulli` which are kept. A kernel is told the seed and the
//! place in the series, so the very numbers that a real device draws are known here (Philox4x32-10: Salmon, Moraes, Dror
//! and Shaw, 2011; how the series is dealt out to threads: `aten/src/ATen/native/cuda/DistributionTemplates.h`).

use crate::arguments::{Arguments, Bytes, Structure};
use crate::guesses::settings::Settings;
use crate::memory::Known;
use crate::memory::writes::Write;
use crate::names::{self, has, position};
use crate::types::{ScalarType, as_f32};

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draw {
    /// `uniform_kernel`: floats from a bound up to another.
    Uniform,
    /// `normal_kernel`: floats of a normal distribution.
    Normal,
    /// `random_from_to_kernel`: whole numbers, by 32 bits or by 64 bits of the series each.
    Whole { wide: bool },
    /// `bernoulli_kernel` with one probability.
    Bernoulli,
    /// `bernoulli_tensor_cuda_kernel`: a probability for each.
    BernoulliEach,
    /// Another distribution, which is not drawn.
    Other,
}

/// A kernel that draws elements of one type, one after the other in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    draw: Draw,
    element: ScalarType,
}

/// Elements that are drawn at most.
const MOST: usize = 1 << 17;
/// Likewise of whole numbers of 64 bits, which may be indices.
const MOST_INDICES: usize = 1 << 21;

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        const EACH: &[u8] = names::BERNOULLI_TENSOR;
        if has(name, names::POINTWISE_APPLY_2) && has(name, b"jLi1ELi1ELi4E") {
            let at = position(name, EACH)? + EACH.len();
            // The result's type, then that of the probabilities.
            let [element, b'f', ..] = name.get(at..)? else { return None };
            let element =
                ScalarType::of_letter(*element).or_else(|| ScalarType::of_float(*element))?;
            return Some(Kernel { draw: Draw::BernoulliEach, element });
        }
        // The second lambda of this function counts with an offset calculator.
        if !has(name, names::DISTRIBUTION) || !has(name, names::FIRST_LAMBDA_AND_PHILOX_STATE) {
            return None;
        }
        // Its element, what a draw is computed in, and what the generator gives at once. Elsewhere in the name a half is a reference to where it
        // stands first.
        let named = [names::AND_TRANSFORM, names::DISTRIBUTION_NULLARY];
        let at = named.into_iter().find_map(|it| Some(position(name, it)? + it.len()))?;
        let (element, length) = ScalarType::of_name(name.get(at..)?)?;
        let drawn = name.get(at + length)?;
        let is_float = *drawn == b'f' && has(name, names::FLOAT4);
        let draw = if has(name, names::UNIFORM) && is_float {
            Draw::Uniform
        } else if has(name, names::NORMAL) && is_float {
            Draw::Normal
        } else if has(name, names::BERNOULLI) && is_float {
            Draw::Bernoulli
        } else if has(name, names::RANDOM_FROM_TO) && matches!(drawn, b'j' | b'm') {
            Draw::Whole { wide: *drawn == b'm' }
        } else {
            Draw::Other
        };
        Some(Kernel { draw, element })
    }

    /// What it writes.
    pub(crate) fn writes(
        self,
        arguments: Arguments<'_>,
        known: Known<'_>,
        settings: &Settings,
    ) -> Option<Vec<Write>> {
        let drawn = match self.draw {
            Draw::BernoulliEach => self.each(arguments, known)?,
            _ => self.alike(arguments, settings)?,
        };
        Some(vec![drawn])
    }

    /// Draws that are all alike: how many, the series, an empty lambda, and `{ address; stride in bytes; { what } }`, whose last
    /// part is aligned as its widest member is.
    fn alike(self, arguments: Arguments<'_>, settings: &Settings) -> Option<Write> {
        let (count, series) = (arguments.count(0)?, Series::of(arguments, 1)?);
        let size = match self.draw {
            Draw::Uniform | Draw::Normal | Draw::Bernoulli => 24,
            Draw::Whole { .. } => 32,
            Draw::Other => 12,
            Draw::BernoulliEach => return None,
        };
        let named = &["::distribution_nullary_kernel<"];
        let lambda = arguments.structure(3, Structure { named, size })?;
        let (address, stride) = (lambda.u64(0)?, lambda.i32(8)?);
        let width = self.element.width();
        let are_indices =
            matches!(self.draw, Draw::Whole { .. }) && self.element == ScalarType::Long;
        let most = if are_indices { MOST_INDICES } else { MOST };
        let is_drawn = self.draw != Draw::Other && count <= most;
        let Some(series) = series.filter(|_| is_drawn && usize::try_from(stride) == Ok(width))
        else {
            return Some(Write::Unknown(address, u64::MAX));
        };
        let at_once = if self.draw == (Draw::Whole { wide: true }) { 2 } else { 4 };
        let threads = threads(count, settings);
        let mut bytes = Vec::with_capacity(count * width);
        // What each thread has drawn at once.
        let mut blocks = Vec::new();
        for i in 0..count {
            let (thread, turn) = (i % threads, i / threads);
            if thread == 0 && turn % at_once == 0 {
                let drawing = threads.min(count - i);
                blocks = (0..drawing).map(|it| series.block(it, turn / at_once)).collect();
            }
            let value = self.value(*blocks.get(thread)?, turn % at_once, lambda)?;
            self.element.write(value, &mut bytes);
        }
        Some(Write::Pattern(address, bytes))
    }

    /// The draw number `number` of a block, as an element.
    fn value(self, block: [u32; 4], number: usize, lambda: Bytes<'_>) -> Option<i64> {
        Some(match self.draw {
            Draw::Uniform => {
                let bound = |at| Some(as_f32(lambda.element(at, self.element)?));
                let (from, to) = (bound(16)?, bound(16 + self.element.width())?);
                let value = unit(block[number]).mul_add(lambda.f32(12)?, from);
                let value = self.element.rounded(f64::from(value));
                let is_end = value >= f64::from(to);
                self.element.of_f64(if is_end { f64::from(from) } else { value })
            }
            Draw::Normal => {
                let (mean, deviation) = (lambda.f32(12)?, lambda.f32(16)?);
                let value = normal(block, number).mul_add(deviation, mean);
                self.element.of_f64(f64::from(value))
            }
            Draw::Bernoulli => self.truth(f64::from(unit(block[number])) < lambda.f64(16)?),
            Draw::Whole { wide } => {
                let (range, base) = (lambda.u64(16)?.max(1), lambda.i64(24)?);
                let drawn = if wide {
                    u64::from(block[2 * number]) << 32 | u64::from(block[2 * number + 1])
                } else {
                    u64::from(block[number])
                };
                let value = base.wrapping_add((drawn % range).cast_signed());
                if self.element.is_whole() {
                    value
                } else {
                    ScalarType::Long.into(self.element, value)
                }
            }
            Draw::BernoulliEach | Draw::Other => return None,
        })
    }

    /// Draws with a probability each, four by a thread: the result, the probabilities, how many, and a lambda that has the
    /// series.
    fn each(self, arguments: Arguments<'_>, known: Known<'_>) -> Option<Write> {
        let (result, chances) = (arguments.tensor(0)?, arguments.tensor(1)?);
        let strides = [result.stride(0)?, chances.stride(0)?];
        let (count, series) = (arguments.count(2)?, Series::of(arguments, 3)?);
        let (result, chances) = (result.address()?, chances.address()?);
        let drawn = || {
            (count <= MOST && strides == [1, 1]).then_some(())?;
            let (series, chances) = (series?, known(chances, 4 * count)?);
            let mut bytes = Vec::with_capacity(count * self.element.width());
            for (i, chance) in chances.chunks_exact(4).enumerate() {
                let chance = f32::from_le_bytes(chance.try_into().ok()?);
                let drawn = unit(series.block(i / 4, 0)[i % 4]);
                self.element.write(self.truth(drawn <= chance), &mut bytes);
            }
            Some(Write::Pattern(result, bytes))
        };
        Some(drawn().unwrap_or(Write::Unknown(result, u64::MAX)))
    }

    /// One or zero, as an element.
    fn truth(self, holds: bool) -> i64 {
        let value = i64::from(holds);
        if self.element.is_whole() { value } else { ScalarType::Long.into(self.element, value) }
    }
}

/// How many threads such a kernel of `count` elements has: 256 a block, and no more than are resident.
fn threads(count: usize, settings: &Settings) -> usize {
    const BLOCK: usize = 256;
    let resident = settings.multiprocessors * (settings.threads_per_multiprocessor / BLOCK);
    BLOCK * count.div_ceil(BLOCK).min(resident).max(1)
}

/// 32 random bits as a number above 0, up to 1, as curand makes it.
#[expect(clippy::cast_precision_loss, reason = "the device rounds in the same way")]
fn unit(bits: u32) -> f32 {
    const STEP: f32 = 1.0 / 4_294_967_296.0;
    (bits as f32).mul_add(STEP, STEP / 2.0)
}

/// One of four numbers of the standard normal distribution, two of each two (Box and Muller, 1958), as curand makes them. Its sine and cosine are the
/// device's fast ones, which differ in their last bits.
#[expect(clippy::cast_precision_loss, reason = "the device rounds in the same way")]
fn normal(block: [u32; 4], number: usize) -> f32 {
    const STEP: f32 = std::f32::consts::TAU / 4_294_967_296.0;
    let (first, second) = (block[number / 2 * 2], block[number / 2 * 2 + 1]);
    let angle = (second as f32).mul_add(STEP, STEP / 2.0);
    let part = if number.is_multiple_of(2) { angle.sin() } else { angle.cos() };
    part * (-2.0 * unit(first).ln()).sqrt()
}

/// A series of random numbers, and where in it a kernel begins.
#[derive(Clone, Copy, Debug)]
struct Series {
    seed: u64,
    offset: u64,
}

impl Series {
    /// That of a `PhiloxCudaState { seed; offset; u32 offset within a graph; bool captured }` (`ATen/cuda/PhiloxCudaState.h`),
    /// or of a lambda that begins with one, which is this argument. None if it is captured, when both are addresses on the
    /// device.
    fn of(arguments: Arguments<'_>, i: usize) -> Option<Option<Series>> {
        let named = &["at::PhiloxCudaState", "::bernoulli_tensor_cuda_kernel<"];
        let state = arguments.structure(i, Structure { named, size: 24 })?;
        let is_captured = state.u8(20)? != 0;
        let series = Series { seed: state.u64(0)?, offset: state.u64(8)? };
        Some((!is_captured).then_some(series))
    }

    /// The four numbers that this thread draws at once, on its `turn`th draw.
    fn block(self, thread: usize, turn: usize) -> [u32; 4] {
        let wide = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        philox(self.seed, wide(thread), self.offset / 4 + wide(turn))
    }
}

/// Philox4x32-10 of a counter whose upper half is `stream` and lower half `place`.
fn philox(seed: u64, stream: u64, place: u64) -> [u32; 4] {
    let halves = |it: u64| [low(it), low(it >> 32)];
    let ([mut a, mut b], [mut c, mut d], [mut k, mut l]) =
        (halves(place), halves(stream), halves(seed));
    for _ in 0..10 {
        let (x, y) = (u64::from(a) * 0xd251_1f53, u64::from(c) * 0xcd9e_8d57);
        (a, b, c, d) = (low(y >> 32) ^ b ^ k, low(y), low(x >> 32) ^ d ^ l, low(x));
        k = k.wrapping_add(0x9e37_79b9);
        l = l.wrapping_add(0xbb67_ae85);
    }
    [a, b, c, d]
}

/// The lower 32 bits.
fn low(it: u64) -> u32 {
    u32::try_from(it & 0xffff_ffff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_its_authors_numbers() {
        // `kat_vectors` of Random123.
        assert_eq!(philox(0, 0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox(u64::MAX, u64::MAX, u64::MAX),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let bernoulli = "_ZN2at6native57_GLOBAL__N__d8df7886_24_DistributionBernoulli_cu_7537a20d43distribution_elementwise_grid_stride_kernelIfLi4EZNS0_9templates4cuda21uniform_and_transformIbfPNS_17CUDAGeneratorImplEZZZNS4_16bernoulli_kernelIS7_EEvRNS_18TensorIteratorBaseEdT_ENKUlvE_clEvENKUlvE8_clEvEUlfE_EEvSA_T1_T2_EUlP24curandStatePhilox4_32_10E0_ZNS1_27distribution_nullary_kernelIbf6float4S7_SJ_SE_EEvSA_SG_RKT3_T4_EUlifE_EEvlNS_15PhiloxCudaStateESF_SG_";
        let expected = Kernel { draw: Draw::Bernoulli, element: ScalarType::Bool };
        assert_eq!(Kernel::of(bernoulli.as_bytes()), Some(expected));
        let strided = bernoulli.replace("UlifE_EEvl", "UlifE0_EEvl");
        assert_eq!(Kernel::of(strided.as_bytes()), None);
        let logarithmic = bernoulli.replace("16bernoulli_kernelI", "17log_normal_kernelI");
        let expected = Kernel { draw: Draw::Other, element: ScalarType::Bool };
        assert_eq!(Kernel::of(logarithmic.as_bytes()), Some(expected));
        let half =
            bernoulli.replace("uniform_and_transformIbf", "uniform_and_transformIN3c104HalfEf");
        let uniform = half.replace("16bernoulli_kernelI", "14uniform_kernelI");
        let expected = Kernel { draw: Draw::Uniform, element: ScalarType::Half };
        assert_eq!(Kernel::of(uniform.as_bytes()), Some(expected));
    }
}
