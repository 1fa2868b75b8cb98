//! Random numbers that PyTorch draws on the device, as far as programs choose by them: `torch.rand(n) < 0.15` says which
//! tokens are masked, `torch.randint` which there are, `torch.bernoulli` which are kept. A kernel is told the seed and the
//! place in the series, so the very numbers that a real device draws are known here (Philox4x32-10: Salmon, Moraes, Dror
//! and Shaw, 2011; how the series is dealt out to threads: `aten/src/ATen/native/cuda/DistributionTemplates.h`).

use std::ffi::c_void;

use crate::card;
use crate::effects::Effect;
use crate::integers::{Type, has, position};

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draw {
    /// `uniform_kernel`: floats from a bound up to another.
    Uniform,
    /// `random_from_to_kernel`: whole numbers, by 32 bits or by 64 bits of the series each.
    Whole { wide: bool },
    /// `bernoulli_kernel` with one probability.
    Bernoulli,
    /// `bernoulli_tensor_cuda_kernel`: a probability for each.
    BernoulliEach,
}

/// A kernel that draws elements of one type, one after the other in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    draw: Draw,
    element: Type,
}

/// Elements that are drawn at most.
const MOST: usize = 1 << 17;

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        const EACH: &[u8] = b"28bernoulli_tensor_cuda_kernelI";
        if has(name, b"21kernelPointwiseApply2I") && has(name, b"jLi1ELi1ELi4E") {
            let at = position(name, EACH)? + EACH.len();
            // The result's type, then that of the probabilities.
            let [element, b'f', ..] = name.get(at..)? else { return None };
            let element = Type::of_letter(*element).or_else(|| Type::of_float(*element))?;
            return Some(Kernel { draw: Draw::BernoulliEach, element });
        }
        // The second lambda of this function counts with an offset calculator.
        if !has(name, b"43distribution_elementwise_grid_stride_kernelI")
            || !has(name, b"E_EEvlNS_15PhiloxCudaState")
        {
            return None;
        }
        const NULLARY: &[u8] = b"27distribution_nullary_kernelI";
        let at = position(name, NULLARY)? + NULLARY.len();
        // Its element, what a draw is computed in, and what the generator gives at once.
        let [element, drawn, rest @ ..] = name.get(at..)? else { return None };
        let element = Type::of_letter(*element).or_else(|| Type::of_float(*element))?;
        let draw =
            if has(name, b"14uniform_kernelI") && *drawn == b'f' && rest.starts_with(b"6float4") {
                Draw::Uniform
            } else if has(name, b"16bernoulli_kernelI")
                && *drawn == b'f'
                && rest.starts_with(b"6float4")
            {
                Draw::Bernoulli
            } else if has(name, b"21random_from_to_kernelI") && matches!(drawn, b'j' | b'm') {
                Draw::Whole { wide: *drawn == b'm' }
            } else {
                return None;
            };
        Some(Kernel { draw, element })
    }

    /// What it writes.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name.
    pub unsafe fn effects(
        self,
        arguments: *const *const c_void,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Vec<Effect> {
        let drawn = if self.draw == Draw::BernoulliEach {
            // SAFETY: the caller's.
            unsafe { self.each(arguments, known) }
        } else {
            // SAFETY: the caller's.
            unsafe { self.alike(arguments) }
        };
        drawn.into_iter().collect()
    }

    /// Draws that are all alike: how many, the series, an empty lambda, and `{ address; stride in bytes; { what } }`.
    ///
    /// # Safety
    ///
    /// As [`Kernel::effects`].
    unsafe fn alike(self, arguments: *const *const c_void) -> Option<Effect> {
        // SAFETY: the caller's.
        let (count, series, lambda) = unsafe {
            let count = arguments.read().cast::<i64>().read_unaligned();
            let series = Series::of(arguments.add(1).read().cast())?;
            (usize::try_from(count).ok()?, series, arguments.add(3).read().cast::<u8>())
        };
        // SAFETY: the lambda of such a kernel begins so.
        let (address, stride) = unsafe {
            (lambda.cast::<u64>().read_unaligned(), lambda.add(8).cast::<i32>().read_unaligned())
        };
        if MOST < count || usize::try_from(stride) != Ok(self.element.width()) {
            return None;
        }
        let at_once = if self.draw == (Draw::Whole { wide: true }) { 2 } else { 4 };
        let threads = threads(count)?;
        let mut bytes = Vec::with_capacity(count * self.element.width());
        for i in 0..count {
            let (thread, turn) = (i % threads, i / threads);
            let block = series.block(thread, turn / at_once);
            let number = turn % at_once;
            // SAFETY: as above; what is drawn stands behind the stride, aligned as its widest member is.
            let value = unsafe {
                match self.draw {
                    Draw::Uniform => {
                        let bound =
                            |at: usize| lambda.add(12 + 4 * at).cast::<f32>().read_unaligned();
                        let (range, from, to) = (bound(0), bound(1), bound(2));
                        let value = unit(block[number]).mul_add(range, from);
                        Type::Float.of_f64(f64::from(if value >= to { from } else { value }))
                    }
                    Draw::Bernoulli => {
                        let chance = lambda.add(16).cast::<f64>().read_unaligned();
                        self.truth(f64::from(unit(block[number])) < chance)
                    }
                    Draw::Whole { wide } => {
                        let range = lambda.add(16).cast::<u64>().read_unaligned().max(1);
                        let base = lambda.add(24).cast::<i64>().read_unaligned();
                        let drawn = if wide {
                            u64::from(block[2 * number]) << 32 | u64::from(block[2 * number + 1])
                        } else {
                            u64::from(block[number])
                        };
                        let value = base.wrapping_add((drawn % range).cast_signed());
                        if self.element.is_whole() {
                            value
                        } else {
                            Type::Long.into(self.element, value)
                        }
                    }
                    Draw::BernoulliEach => return None,
                }
            };
            self.element.write(value, &mut bytes);
        }
        Some(Effect::Pattern(address, bytes))
    }

    /// Draws with a probability each, four by a thread: `TensorInfo`s of the result and of the probabilities, how many, and a
    /// lambda that has the series.
    ///
    /// # Safety
    ///
    /// As [`Kernel::effects`].
    unsafe fn each(
        self,
        arguments: *const *const c_void,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Option<Effect> {
        // SAFETY: the caller's; a `TensorInfo` is `{ address; u32 sizes[25]; u32 strides[25]; int dims }`.
        let (result, chances, strides, count, series) = unsafe {
            let tensor = |i: usize| arguments.add(i).read().cast::<u8>();
            let stride = |i: usize| tensor(i).add(8 + 25 * 4).cast::<u32>().read_unaligned();
            (
                tensor(0).cast::<u64>().read_unaligned(),
                tensor(1).cast::<u64>().read_unaligned(),
                [stride(0), stride(1)],
                arguments.add(2).read().cast::<u32>().read_unaligned(),
                Series::of(arguments.add(3).read().cast())?,
            )
        };
        let count = usize::try_from(count).ok().filter(|&it| it <= MOST)?;
        if strides != [1, 1] {
            return None;
        }
        let chances = known(chances, 4 * count)?;
        let mut bytes = Vec::with_capacity(count * self.element.width());
        for (i, chance) in chances.chunks_exact(4).enumerate() {
            let chance = f32::from_le_bytes(chance.try_into().ok()?);
            let drawn = unit(series.block(i / 4, 0)[i % 4]);
            self.element.write(self.truth(drawn <= chance), &mut bytes);
        }
        Some(Effect::Pattern(result, bytes))
    }

    /// One or zero, as an element.
    fn truth(self, holds: bool) -> i64 {
        let value = i64::from(holds);
        if self.element.is_whole() { value } else { Type::Long.into(self.element, value) }
    }
}

/// How many threads such a kernel of `count` elements has: 256 a block, and no more than are resident.
fn threads(count: usize) -> Option<usize> {
    const BLOCK: usize = 256;
    let card = card::current()?;
    let resident = usize::try_from(card.sm_count).ok()?
        * (usize::try_from(card.max_threads_per_sm).ok()? / BLOCK);
    Some(BLOCK * count.div_ceil(BLOCK).min(resident).max(1))
}

/// 32 random bits as a number above 0, up to 1, as curand makes it.
#[expect(clippy::cast_precision_loss, reason = "the device rounds in the same way")]
fn unit(bits: u32) -> f32 {
    const STEP: f32 = 1.0 / 4_294_967_296.0;
    (bits as f32).mul_add(STEP, STEP / 2.0)
}

/// A series of random numbers, and where in it a kernel begins.
#[derive(Clone, Copy, Debug)]
struct Series {
    seed: u64,
    offset: u64,
}

impl Series {
    /// That of a `PhiloxCudaState { seed; offset; u32 offset within a graph; bool captured }`; none if it is captured, when
    /// both are addresses on the device.
    ///
    /// # Safety
    ///
    /// There must be one at `state`.
    unsafe fn of(state: *const u8) -> Option<Series> {
        // SAFETY: the caller's.
        unsafe {
            let captured = state.add(20).read() != 0;
            let number = |at: usize| state.add(at).cast::<u64>().read_unaligned();
            (!captured).then(|| Series { seed: number(0), offset: number(8) })
        }
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
        let expected = Kernel { draw: Draw::Bernoulli, element: Type::Bool };
        assert_eq!(Kernel::of(bernoulli.as_bytes()), Some(expected));
        let strided = bernoulli.replace("UlifE_EEvl", "UlifE0_EEvl");
        assert_eq!(Kernel::of(strided.as_bytes()), None);
        let normal = bernoulli.replace("16bernoulli_kernelI", "13normal_kernelI");
        assert_eq!(Kernel::of(normal.as_bytes()), None);
    }
}
