//! Vectors of whole numbers: ranges, and known ones summed up from the start, freed of repetitions, and repeated. `unique()` and `repeat_interleave()` take the size of their result from them, masks of lengths are
//! made of ranges (`torch.arange(longest, device=lengths.device) < lengths[:, None]`). The kernels are CUB's and
//! PyTorch's, told by their mangled names; as with `integers`, a vector that is not known in full stays unknown.

use std::ffi::c_void;

use crate::arithmetic::{Action, apply};
use crate::effects::Effect;
use crate::integers::{MOST, Type, as_f64, has, letter_after, number_after, position};
use crate::scatters::scanned;

/// What is done to a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `DeviceScanKernel` with a sum or a product, each element included in its own.
    Scans { action: Action, from: Type, to: Type },
    /// `DeviceSelectSweepKernel` with a test for equal neighbours.
    LeavesOutEqual { key: Type },
    /// `DeviceReduceByKeyKernel` of a run-length encoding: what there is, and how often, in 64 bits.
    CountsRuns { key: Type },
    /// `arange_cuda_out` (`aten/src/ATen/native/cuda/RangeFactories.cu`), its elements counted in 32 or 64 bits.
    Ranges { to: Type, wide: bool },
    /// `linspace` of 32-bit floats, its elements counted in 32 or 64 bits.
    Divides { wide: bool },
    /// `fill_reverse_indices_kernel` of a long sort: places in each row, in 64 bits.
    Places,
    /// `compute_cuda_kernel` of `repeat_interleave` (`aten/src/ATen/native/cuda/Repeat.cu`).
    Repeats { key: Type },
}

impl Kernel {
    /// The one of this (mangled) name.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        // Truth values are read as numbers of 32 bits.
        let of_bool = has(name, b"10LoadBoolOp").then_some(Type::Bool);
        let key = || of_bool.or_else(|| number_after(name, b"10policy_hubI"));
        if has(name, b"16DeviceScanKernel")
            && has(name, b"8NullTypeE")
            && let Some(action) = scanned(name)
        {
            // Both vectors are plain: `EPKlPlN...ScanTileState`.
            let source = position(name, b"EPK")? + b"EPK".len();
            let [from, b'P', to, ..] = name.get(source..)? else { return None };
            let of = |letter: u8| Type::of_letter(letter).or_else(|| Type::of_float(letter));
            return Some(Kernel::Scans { action, from: of(*from)?, to: of(*to)? });
        }
        if let Some(index) = letter_after(name, b"29elementwise_kernel_with_indexI") {
            // The dispatch over floats is the second one, and in it doubles come before 32 bits.
            const SINGLE: &[u8] = b"ENKUlvE0_clEvENKUlvE0_clEv";
            if has(name, b"17linspace_cuda_out") && has(name, SINGLE) {
                return Some(Kernel::Divides { wide: index == Type::Long });
            }
            let to = range_type(name.get(position(name, b"15arange_cuda_out")?..)?)?;
            return Some(Kernel::Ranges { to, wide: index == Type::Long });
        }
        if has(name, b"27fill_reverse_indices_kernelEPli") {
            return Some(Kernel::Places);
        }
        if let Some(key) = letter_after(name, b"_Z19compute_cuda_kernelI") {
            return Some(Kernel::Repeats { key });
        }
        if has(name, b"23DeviceReduceByKeyKernel") {
            // The type of the counts, then that of what is counted.
            let key = letter_after(name, b"3rle6encode10policy_hubIl")?;
            return Some(Kernel::CountsRuns { key });
        }
        (has(name, b"23DeviceSelectSweepKernel") && has(name, b"8equal_toI"))
            .then(|| Some(Kernel::LeavesOutEqual { key: key()? }))?
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
        match self {
            // SAFETY: the caller's.
            Kernel::Ranges { to, wide } => return unsafe { range(to, wide, arguments) },
            // SAFETY: the caller's.
            Kernel::Divides { wide } => return unsafe { divided(wide, arguments) },
            Kernel::Places => {
                // SAFETY: the caller's: where to, how many, and a divisor, which begins with itself.
                let (to, count, row) = unsafe {
                    let number = |i: usize| arguments.add(i).read().cast::<u32>().read_unaligned();
                    (arguments.read().cast::<u64>().read_unaligned(), number(1), number(2))
                };
                let few = usize::try_from(count).is_ok_and(|it| it <= MOST);
                let Some(count) = Some(count).filter(|_| few && row != 0) else {
                    return vec![Effect::Unknown(to, u64::MAX)];
                };
                let places = (0..count).flat_map(|it| u64::from(it % row).to_le_bytes());
                return vec![Effect::Known(to, places.collect())];
            }
            // SAFETY: the caller's.
            Kernel::CountsRuns { key } => return unsafe { runs(key, arguments, known) },
            // SAFETY: the caller's.
            Kernel::Repeats { key } => return unsafe { repeated(key, arguments, known) },
            _ => {}
        }
        // SAFETY: the caller's; each of these is a pointer or a 32-bit number of the kernel.
        let (address, count) = unsafe {
            let address = |i: usize| arguments.add(i).read().cast::<u64>().read_unaligned();
            let count = |i: usize| arguments.add(i).read().cast::<u32>().read_unaligned();
            match self {
                // In, out, state, first tile, operation, start, how many.
                Kernel::Scans { .. } => ((address(0), address(1)), count(6)),
                // In, flags, out, how many are left, state, selection, equality, how many.
                Kernel::LeavesOutEqual { .. } => ((address(0), address(2)), count(7)),
                _ => return Vec::new(),
            }
        };
        let (from, to) = match self {
            Kernel::LeavesOutEqual { key } => (key, key),
            Kernel::Scans { from, to, .. } => (from, to),
            _ => return Vec::new(),
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let bytes = (count <= MOST).then(|| known(address.0, count * from.width())).flatten();
        let Some(bytes) = bytes else { return vec![Effect::Unknown(address.1, u64::MAX)] };
        let mut values: Vec<i64> = bytes.chunks(from.width()).map(|it| from.read(it)).collect();
        match self {
            Kernel::Scans { action, .. } => {
                let one = Type::Long.into(to, 1);
                let mut total = None;
                for value in &mut values {
                    let here = to.fitted(from.into(to, *value));
                    *value = total
                        .map_or(Some(here), |it| apply(action, to, one, it, here))
                        .unwrap_or(here);
                    total = Some(*value);
                }
            }
            Kernel::LeavesOutEqual { .. } => values.dedup(),
            _ => return Vec::new(),
        }
        let mut result = Vec::with_capacity(values.len() * to.width());
        values.iter().for_each(|&it| to.write(it, &mut result));
        vec![Effect::Known(address.1, result)]
    }
}

/// The type of a range's elements: the kernels of one function are numbered in the order of its dispatch, bytes,
/// signed bytes, 32 bits, 64 bits, 16 bits, and then floats of 64 and of 32 bits.
fn range_type(name: &[u8]) -> Option<Type> {
    [
        (b"clEvENKUlvE1_".as_slice(), Type::Int),
        (b"clEvENKUlvE2_", Type::Long),
        (b"clEvENKUlvE4_", Type::Double),
        (b"clEvENKUlvE5_", Type::Float),
    ]
    .into_iter()
    .find_map(|(part, kind)| has(name, part).then_some(kind))
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Ranges`]: how many, `{ first, step }` in 64 bits, of floats in theirs, where to.
unsafe fn range(to: Type, wide: bool, arguments: *const *const c_void) -> Vec<Effect> {
    // SAFETY: the caller's.
    let (count, first, step, address) = unsafe {
        let count = arguments.read();
        let count = if wide {
            count.cast::<i64>().read_unaligned()
        } else {
            count.cast::<i32>().read_unaligned().into()
        };
        let bounds = arguments.add(1).read().cast::<u8>();
        let held = if to.is_whole() { Type::Long } else { to };
        let bound = |i: usize| {
            held.read(std::slice::from_raw_parts(bounds.add(i * held.width()), held.width()))
        };
        let address = arguments.add(2).read().cast::<u64>().read_unaligned();
        (count, bound(0), bound(1), address)
    };
    let Some(count) = usize::try_from(count).ok().filter(|&it| it <= MOST) else {
        return vec![Effect::Unknown(address, u64::MAX)];
    };
    let mut result = Vec::with_capacity(count * to.width());
    for i in (0_i64..).take(count) {
        let value = if to.is_whole() {
            first.wrapping_add(step.wrapping_mul(i))
        } else {
            let i = to.rounded(as_f64(Type::Long.into(Type::Double, i)));
            to.of_f64(as_f64(step).mul_add(i, as_f64(first)))
        };
        to.write(value, &mut result);
    }
    vec![Effect::Known(address, result)]
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Divides`]: how many, `{ first, last, i64 steps, step, i64 half of them }`, and where
/// to.
unsafe fn divided(wide: bool, arguments: *const *const c_void) -> Vec<Effect> {
    // SAFETY: the caller's.
    let (count, bounds, address) = unsafe {
        let count = arguments.read();
        let count = if wide {
            count.cast::<i64>().read_unaligned()
        } else {
            count.cast::<i32>().read_unaligned().into()
        };
        let address = arguments.add(2).read().cast::<u64>().read_unaligned();
        (count, arguments.add(1).read().cast::<u8>(), address)
    };
    // SAFETY: the same.
    let number = |at: usize| unsafe { bounds.add(at).cast::<f32>().read_unaligned() };
    // SAFETY: the same.
    let half = unsafe { bounds.add(24).cast::<i64>().read_unaligned() };
    let (first, last, step) = (number(0), number(4), number(16));
    let Some(count) = u16::try_from(count).ok() else {
        return vec![Effect::Unknown(address, u64::MAX)];
    };
    let element = |i: u16| {
        if i64::from(i) < half {
            step.mul_add(f32::from(i), first)
        } else {
            (-step).mul_add(f32::from(count - i - 1), last)
        }
    };
    vec![Effect::Known(address, (0..count).flat_map(|it| element(it).to_le_bytes()).collect())]
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::Repeats`]: how often each, the sums of these, where to, how many, and how many
/// come out.
unsafe fn repeated(
    key: Type,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    // SAFETY: the caller's.
    let [repeats, _, to, count, size] =
        unsafe { [0, 1, 2, 3, 4].map(|i| arguments.add(i).read().cast::<u64>().read_unaligned()) };
    let few = |it: u64| usize::try_from(it).ok().filter(|&it| it <= MOST);
    let (Some(count), Some(size)) = (few(count), few(size)) else { return Vec::new() };
    let Some(bytes) = known(repeats, count * key.width()) else { return Vec::new() };
    let mut result = Vec::with_capacity(size * key.width());
    for (i, times) in (0_i64..).zip(bytes.chunks(key.width())) {
        for _ in 0..few(u64::try_from(key.read(times)).unwrap_or(0)).unwrap_or(0) {
            key.write(i, &mut result);
        }
    }
    if result.len() == size * key.width() { vec![Effect::Known(to, result)] } else { Vec::new() }
}

/// # Safety
///
/// `arguments` must be those of [`Kernel::CountsRuns`]: what is counted, where what there is goes, ones, where the counts
/// go, how many there are, state, the first tile, two operations, and how many are counted.
unsafe fn runs(
    key: Type,
    arguments: *const *const c_void,
    known: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Effect> {
    // SAFETY: the caller's.
    let ([from, to, counts], count) = unsafe {
        let address = |i: usize| arguments.add(i).read().cast::<u64>().read_unaligned();
        ([0, 1, 3].map(address), arguments.add(9).read().cast::<u32>().read_unaligned())
    };
    let forgotten = [to, counts].map(|it| Effect::Unknown(it, u64::MAX));
    let Some(count) = usize::try_from(count).ok().filter(|&it| it <= MOST) else {
        return Vec::from(forgotten);
    };
    let Some(bytes) = known(from, count * key.width()) else { return Vec::from(forgotten) };
    let (mut found, mut times) = (Vec::new(), Vec::new());
    let mut elements = bytes.chunks(key.width()).peekable();
    while let Some(first) = elements.next() {
        let mut run = 1_i64;
        while elements.next_if_eq(&first).is_some() {
            run += 1;
        }
        found.extend_from_slice(first);
        times.extend(run.to_le_bytes());
    }
    vec![Effect::Known(to, found), Effect::Known(counts, times)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let scan = b"_ZN14at_cuda_detail3cub6detail4scan16DeviceScanKernelINS2_10policy_hubIllljSt4plusIlEE10Policy1000EPKlPlNS0_13ScanTileStateIlLb1EEES6_NS0_8NullTypeEjlLb0ESE_EEvT0_T1_T2_iT3_T4_T5_";
        let expected = Kernel::Scans { action: Action::Add, from: Type::Long, to: Type::Long };
        assert_eq!(Kernel::of(scan), Some(expected));
        let unique = b"_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelINS2_10policy_hubIlNS0_8NullTypeEiLb0ELNS0_10SelectImplE0EE10Policy1000EPKlPS5_PlSC_NS0_13ScanTileStateIiLb1EEES5_N4cuda3std3__48equal_toIvEEi";
        assert_eq!(Kernel::of(unique), Some(Kernel::LeavesOutEqual { key: Type::Long }));
        let of_floats = b"_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelINS2_10policy_hubIfNS0_8NullTypeE8equal_toIvEEi";
        assert_eq!(Kernel::of(of_floats), Some(Kernel::LeavesOutEqual { key: Type::Float }));
    }

    #[test]
    fn a_stretch_is_divided_from_both_ends() {
        let name = b"_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel_with_indexIiZZZN2at6native17linspace_cuda_outERKN3c106ScalarES6_lRNS1_6TensorEENKUlvE0_clEvENKUlvE0_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE";
        assert_eq!(Kernel::of(name), Some(Kernel::Divides { wide: false }));
        #[repr(C)]
        struct Bounds(f32, f32, i64, f32, i64);
        let (count, bounds, to) = (3_i32, Bounds(0.0, 1.0, 3, 0.5, 1), 4096_u64);
        let arguments: [*const c_void; 3] =
            [(&raw const count).cast(), (&raw const bounds).cast(), (&raw const to).cast()];
        let kernel = Kernel::Divides { wide: false };
        // SAFETY: arguments as the kernel has them.
        let effects = unsafe { kernel.effects(arguments.as_ptr(), |_, _| None) };
        let bytes = [0.0_f32, 0.5, 1.0].iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(effects, [Effect::Known(4096, bytes)]);
    }

    #[test]
    fn runs_are_counted() {
        let name = b"_ZN14at_cuda_detail3cub6detail6reduce23DeviceReduceByKeyKernelINS1_3rle6encode10policy_hubIllE10Policy1000EPKlPl";
        assert_eq!(Kernel::of(name), Some(Kernel::CountsRuns { key: Type::Long }));
        let (from, to, counts, count) = (4096_u64, 8192_u64, 12288_u64, 4_u32);
        let mut arguments = [(&raw const from).cast::<c_void>(); 10];
        arguments[1] = (&raw const to).cast();
        arguments[3] = (&raw const counts).cast();
        arguments[9] = (&raw const count).cast();
        let known = |_, size| (size == 4).then(|| vec![3, 3, 5, 3]);
        let kernel = Kernel::CountsRuns { key: Type::Byte };
        // SAFETY: arguments as the kernel has them.
        let effects = unsafe { kernel.effects(arguments.as_ptr(), known) };
        let times = [2_i64, 1, 1].iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(effects, [Effect::Known(8192, vec![3, 5, 3]), Effect::Known(12288, times)]);
    }

    #[test]
    fn ranges_and_repetitions_are_told_and_computed() {
        let name = b"_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b0829elementwise_kernel_with_indexIiZZZN2at6native15arange_cuda_outERKN3c106ScalarES6_S6_RNS1_6TensorEENKUlvE_clEvENKUlvE2_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE";
        let kernel = Kernel::of(name);
        assert_eq!(kernel, Some(Kernel::Ranges { to: Type::Long, wide: false }));
        let (count, bounds, to) = (3_i32, [2_i64, 3], 8192_u64);
        let arguments: [*const c_void; 3] =
            [(&raw const count).cast(), (&raw const bounds).cast(), (&raw const to).cast()];
        let narrow = Kernel::Ranges { to: Type::Int, wide: false };
        // SAFETY: arguments as the kernel has them.
        let effects = unsafe { narrow.effects(arguments.as_ptr(), |_, _| None) };
        assert_eq!(effects, [Effect::Known(8192, vec![2, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0])]);

        let repeats = Kernel::of(b"_Z19compute_cuda_kernelIlEvPKT_PKlPS0_ll");
        assert_eq!(repeats, Some(Kernel::Repeats { key: Type::Long }));
        let numbers = [4096_u64, 0, 8192, 3, 3];
        let arguments = numbers.each_ref().map(|it| std::ptr::from_ref(it).cast::<c_void>());
        let known = |_, size| (size == 3).then(|| vec![2, 0, 1]);
        // SAFETY: arguments as the kernel has them.
        let effects =
            unsafe { Kernel::Repeats { key: Type::Byte }.effects(arguments.as_ptr(), known) };
        assert_eq!(effects, [Effect::Known(8192, vec![0, 0, 2])]);
    }

    #[test]
    fn a_known_vector_is_summed_and_freed_of_repetitions() {
        let run = |kernel: Kernel, places: &[usize]| {
            let (count, from, to) = (4_u32, 4096_u64, 8192_u64);
            let mut arguments = [(&raw const from).cast::<c_void>(); 9];
            arguments[places[0]] = (&raw const to).cast();
            arguments[places[1]] = (&raw const count).cast();
            let known = |at, size| (at == 4096 && size == 4).then(|| vec![3, 1, 3, 2]);
            // SAFETY: arguments as the kernels have them.
            unsafe { kernel.effects(arguments.as_ptr(), known) }
        };
        let key = Type::Byte;
        let written = |bytes: &[u8]| vec![Effect::Known(8192, bytes.to_vec())];
        let scan = |action| run(Kernel::Scans { action, from: key, to: key }, &[1, 6]);
        assert_eq!(scan(Action::Add), written(&[3, 4, 7, 9]));
        assert_eq!(scan(Action::Multiply), written(&[3, 3, 9, 18]));
        assert_eq!(run(Kernel::LeavesOutEqual { key }, &[2, 7]), written(&[3, 1, 3, 2]));
        let unknown = vec![Effect::Unknown(8192, u64::MAX)];
        assert_eq!(run(Kernel::LeavesOutEqual { key: Type::Int }, &[2, 7]), unknown);
    }
}
