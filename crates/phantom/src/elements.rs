//! PyTorch's element-wise kernels over whole numbers, truth values and floats: which operation one is, told by its
//! mangled name, where its operands lie, told by its arguments, and what it makes of them. Elements lie one
//! after the other (`vectorized_elementwise_kernel`, `unrolled_elementwise_kernel`), or where an offset
//! calculator says: `places[None] < lengths[:, None]`, a slice, a transposed tensor
//! (`elementwise_kernel`; `aten/src/ATen/native/cuda/CUDALoops.cuh`).

use std::ffi::c_void;

use crate::arithmetic::{Action, decided, decides, is_test};
use crate::effects::Effect;
use crate::formulas::{Buffers, Formula};
use crate::functors::{Form, meaning};
use crate::integers::{Type, has};
use crate::later::Open;
use crate::offsets::{MOST_TENSORS, Offsets, Walk};
use crate::rows;

/// Elements that are computed at most, of floats: distances, overlaps.
const MOST: usize = 1 << 24;
/// And of anything else at once: a mask for attention often has far more, and nobody reads it back.
const MOST_MASKED: usize = 1 << 20;
/// And of halves: autocast makes them of every weight, and nobody reads these.
const MOST_HALVES: usize = 1 << 14;
/// An operand that has that many bytes for each of those that are read, and as many as that in all, is not read whole.
const SPARSE: usize = 16;
const LARGE: usize = 1 << 20;
/// Runs of elements that are written at most, where the result is not dense.
const MOST_RUNS: usize = 1 << 14;

/// An element-wise kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    action: Action,
    form: Form,
    /// The type that is computed with.
    kind: Type,
    /// Operands or result are of other types, which the arguments say.
    casts: bool,
    /// An offset calculator says where elements lie.
    strided: bool,
    /// Results are halves, which are computed as floats.
    to_halves: Option<Type>,
}

impl Kernel {
    /// The one of this (mangled) name, if it concerns numbers that we follow.
    pub fn of(name: &[u8]) -> Option<Kernel> {
        let unrolled = has(name, b"27unrolled_elementwise_kernel");
        let strided = has(name, b"18elementwise_kernelI");
        if !unrolled && !strided && !has(name, b"29vectorized_elementwise_kernel") {
            return None;
        }
        let casts = unrolled && has(name, b"12LoadWithCast") || has(name, b"15gpu_kernel_implI");
        let (action, form, kind) = meaning(name)?;
        let to_halves = match () {
            () if has(name, b"24float16_copy_kernel_cuda") => Some(Type::Half),
            () if has(name, b"25bfloat16_copy_kernel_cuda") => Some(Type::Brain),
            () => None,
        };
        Some(Kernel { action, form, kind, casts, strided, to_halves })
    }

    /// Whether it is "or" of truth values.
    pub fn is_either(self) -> bool {
        matches!(self.action, Action::Or | Action::LogicalOr) && self.kind == Type::Bool
    }

    /// Elements that are computed at most: of what computes with floats or compares them, more.
    fn most(self) -> usize {
        let halves = self.to_halves.is_some() || self.kind.working() != self.kind;
        if halves && self.form != Form::Alone {
            return MOST_HALVES;
        }
        let moves = matches!(self.form, Form::Alone | Form::Chosen | Form::Masked);
        let is_large = !self.kind.is_whole() && !moves && self.action != Action::Copy;
        if is_large { MOST } else { MOST_MASKED }
    }

    /// The types of what it computes with, result first, before any casts.
    fn types(self) -> ([Type; MOST_TENSORS], usize) {
        let kind = self.kind;
        let out = if is_test(self.action) { Type::Bool } else { self.to_halves.unwrap_or(kind) };
        match self.form {
            Form::Alone => ([out; MOST_TENSORS], 1),
            Form::Tensors => ([out, kind, kind, kind], 3),
            Form::Chosen => ([out, Type::Bool, kind, kind], 4),
            Form::Masked => ([out, kind, Type::Bool, kind], 3),
            Form::ScalarFirst | Form::ScalarLast | Form::Unary => ([out, kind, kind, kind], 2),
        }
    }

    /// The type of the functor's scalars: sums, products and bounds of halves are computed as floats.
    fn scalar(self) -> Type {
        match (self.action, self.form) {
            (Action::Fill, _) | (_, Form::Masked) => self.kind,
            (Action::Add | Action::Multiply | Action::Divide | Action::Clamp, _) => {
                self.kind.working()
            }
            _ => self.kind,
        }
    }

    /// Bytes of the functor.
    fn size(self) -> usize {
        let width = self.scalar().width();
        match (self.action, self.form) {
            (Action::Add, Form::Tensors) => width,
            (Action::Clamp, _) => 2 * width + width.max(4),
            (Action::Equal | Action::Order, Form::Tensors) => 4,
            (Action::Equal | Action::Order, _) => 2 * width.max(4),
            (Action::Fill, _) | (_, Form::Masked) => width,
            (_, Form::ScalarFirst | Form::ScalarLast) => 2 * width,
            _ => 1,
        }
    }

    /// What it writes. `known` reads device memory in full, or not at all.
    ///
    /// # Safety
    ///
    /// `arguments` must be those of a kernel of this name.
    pub unsafe fn effects(
        self,
        arguments: *const *const c_void,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Vec<Effect> {
        // SAFETY: the first argument says how many elements there are.
        let count = unsafe { arguments.read().cast::<i32>().read_unaligned() };
        let count = usize::try_from(count).unwrap_or(0);
        let (mut types, tensors) = self.types();
        // SAFETY: the caller's.
        let places = unsafe { self.places(tensors, arguments) };
        if self.casts {
            for (i, kind) in types.iter_mut().enumerate().take(tensors) {
                // SAFETY: the result's type and one for each operand, one byte each.
                let number = unsafe {
                    if i == 0 { places.out.read() } else { places.operands.add(i - 1).read() }
                };
                let Some(found) = Type::of_number(number) else {
                    return vec![Effect::Unknown(places.addresses[0], 8 * wide(count))];
                };
                *kind = found;
            }
        }
        let computed = (count <= self.most())
            .then(|| {
                // SAFETY: the caller's.
                unsafe { self.compute(count, &types[..tensors], &places, &known) }
            })
            .flatten()
            // SAFETY: the caller's.
            .or_else(|| unsafe { self.evident(count, &types[..tensors], &places) })
            // SAFETY: the caller's.
            .or_else(|| unsafe { self.later(count, &types[..tensors], &places, known) });
        computed.unwrap_or_else(|| {
            let last = places.of(count.saturating_sub(1)).map_or(0, |it| it[0]);
            let end = if self.strided { last + 8 } else { 8 * wide(count) };
            vec![Effect::Unknown(places.addresses[0], end)]
        })
    }

    /// # Safety
    ///
    /// As [`Kernel::effects`].
    unsafe fn places(self, tensors: usize, arguments: *const *const c_void) -> Places {
        // SAFETY: the second argument of all these kernels, and the third of all but the strided ones. A strided
        // one's is `{ offsets; addresses[tensors]; functor; types[tensors] }`, the others have the functor, the
        // addresses, two empty structures, the types of the operands and that of the result.
        unsafe {
            let second = arguments.add(1).read().cast::<u8>();
            let (offsets, functor, addresses) = if self.strided {
                let offsets = Offsets { at: 0, tensors };
                let addresses = second.add(offsets.end().next_multiple_of(8));
                (Some((offsets, second)), addresses.add(8 * tensors), addresses)
            } else {
                (None, second, arguments.add(2).read().cast::<u8>())
            };
            let mut found = [0; MOST_TENSORS];
            for (i, address) in found.iter_mut().enumerate().take(tensors) {
                *address = addresses.cast::<u64>().add(i).read_unaligned();
            }
            let (out, operands) = if !self.casts {
                (functor, functor) // Not looked at.
            } else if self.strided {
                let types = functor.add(self.size());
                (types, types.add(1))
            } else {
                (arguments.add(6).read().cast::<u8>(), arguments.add(5).read().cast::<u8>())
            };
            let widths = self.types().0.map(|it| wide(it.width()));
            Places { offsets, widths, addresses: found, functor, out, operands }
        }
    }

    /// # Safety
    ///
    /// As [`Kernel::effects`].
    unsafe fn compute(
        self,
        count: usize,
        types: &[Type],
        places: &Places,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Option<Vec<Effect>> {
        let places = places.with_widths(types);
        let last = places.of(count.checked_sub(1)?)?;
        // SAFETY: the caller's.
        let formula = unsafe { self.formula(types, &places) };
        // What is known between the first element and the last one of each operand.
        let mut found = [const { None }; MOST_TENSORS];
        for (i, operand) in found.iter_mut().enumerate().take(types.len()).skip(1) {
            let size = usize::try_from(last[i]).ok()? + types[i].width();
            *operand = if SPARSE <= size / (count * types[i].width()) && LARGE <= size {
                known(places.addresses[i], types[i].width()).map(|_| Operand::Sparse)
            } else {
                known(places.addresses[i], size).map(Operand::Whole)
            };
            let is_needed = match self.form {
                Form::Tensors => !decides(self.action, self.kind),
                // What is not chosen need not be known.
                Form::Chosen => i == 1,
                _ => true,
            };
            if operand.is_none() && is_needed {
                return None;
            }
        }
        if types.len() > 1 && found.iter().all(Option::is_none) {
            return None;
        }
        let are_known = found.each_ref().map(Option::is_some);
        // A slice is written in as many runs as it has rows.
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut end = u64::MAX;
        let width = wide(types[0].width());
        let mut walk = places.walk(count)?;
        let mut buffers = Buffers::of(types.len(), count);
        let mut bytes = Vec::with_capacity(8 * rows::LENGTH);
        while let Some(row) = walk.row(rows::LENGTH) {
            for (i, operand) in found.iter().enumerate() {
                let (at, stride) = (row.at[i], row.strides[i]);
                match operand {
                    None => {}
                    Some(Operand::Whole(span)) => {
                        buffers.read(&formula, i, span, (at, stride), row.length)?;
                    }
                    Some(Operand::Sparse) => {
                        let size = stride * wide(row.length - 1) + wide(types[i].width());
                        let span = known(places.addresses[i] + at, usize::try_from(size).ok()?)?;
                        buffers.read(&formula, i, &span, (0, stride), row.length)?;
                    }
                }
            }
            bytes.clear();
            formula.row(are_known, &mut buffers, row.length, &mut bytes)?;
            // Results that do not lie one after the other are runs of their own.
            let is_dense = row.strides[0] == width || row.length == 1;
            let length = if is_dense { bytes.len() } else { types[0].width() };
            for (i, results) in bytes.chunks(length).enumerate() {
                let at = row.at[0] + wide(i) * row.strides[0];
                if at != end {
                    if runs.len() == MOST_RUNS {
                        return None;
                    }
                    runs.push((at, Vec::new()));
                }
                end = at + wide(results.len());
                runs.last_mut()?.1.extend_from_slice(results);
            }
        }
        let is_pattern = self.strided && runs.len() == 1;
        let effect = |(from, bytes)| match places.addresses[0] + from {
            at if is_pattern => Effect::Pattern(at, bytes),
            at => Effect::Known(at, bytes),
        };
        Some(runs.into_iter().map(effect).collect())
    }

    /// More elements than are computed at once: they are when somebody reads them, if all operands are known. Large floats that
    /// are filled with one value are mostly written by kernels that are not followed.
    ///
    /// # Safety
    ///
    /// As [`Kernel::effects`].
    unsafe fn later(
        self,
        count: usize,
        types: &[Type],
        places: &Places,
        known: impl Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Option<Vec<Effect>> {
        (self.most() < count && (self.form != Form::Alone || self.kind.is_whole())).then_some(())?;
        let mut operands = places.addresses.iter().zip(types).skip(1);
        operands.all(|(&at, kind)| known(at, kind.width()).is_some()).then_some(())?;
        let places = places.with_widths(types);
        let last = places.of(count - 1)?;
        let walk = places.walk(count).filter(|it| it.is_in_order(places.widths[0]))?;
        let operands =
            (1..types.len()).map(|i| (places.addresses[i], last[i] + places.widths[i])).collect();
        // SAFETY: the caller's.
        let formula = unsafe { self.formula(types, &places) };
        let is_pattern = self.strided;
        let open = Box::new(Open { formula, walk, count, operands });
        Some(vec![Effect::Later { at: places.addresses[0], open, is_pattern }])
    }

    /// What is done to numbers of these types.
    ///
    /// # Safety
    ///
    /// As [`Kernel::effects`].
    unsafe fn formula(self, types: &[Type], places: &Places) -> Formula {
        let mut all = [self.kind; MOST_TENSORS];
        all[..types.len()].copy_from_slice(types);
        // SAFETY: the caller's.
        let scalars = unsafe { self.functor(places.functor) };
        // SAFETY: the same.
        let limits = (self.action == Action::Clamp).then(|| unsafe { self.limits(places.functor) });
        let Kernel { action, form, kind, .. } = self;
        Formula { action, form, kind, wanted: self.types().0, types: all, scalars, limits }
    }

    /// What a test finds in numbers that nobody knows: that each is itself, and that none is infinite or beyond all. So do
    /// `isnan(x)`, which is `x != x`, `isfinite(x)`, and the checks of a distribution's parameters.
    ///
    /// # Safety
    ///
    /// As [`Kernel::effects`].
    unsafe fn evident(self, count: usize, types: &[Type], places: &Places) -> Option<Vec<Effect>> {
        let tests = matches!(self.action, Action::Equal | Action::Order);
        if !tests || types[0] != Type::Bool || MOST < count {
            return None;
        }
        // SAFETY: the caller's.
        let (choice, scalar) = unsafe { self.functor(places.functor) };
        let places = places.with_widths(types);
        let last = places.of(count.checked_sub(1)?)?;
        let holds = match self.form {
            Form::Tensors => {
                let itself = places.addresses[1] == places.addresses[2] && last[1] == last[2];
                let holds = match self.action {
                    Action::Equal => choice == 0,
                    _ => matches!(choice, 0 | 2),
                };
                (itself && types[1] == types[2]).then_some(holds)?
            }
            Form::ScalarFirst | Form::ScalarLast => {
                let is_first = self.form == Form::ScalarFirst;
                decided(self.action, self.kind, choice, scalar, is_first)? != 0
            }
            _ => return None,
        };
        let dense = last[0] == wide(count) - 1;
        dense.then(|| vec![Effect::Known(places.addresses[0], vec![u8::from(holds); count])])
    }

    /// The bounds of a clamp, behind `ClampLimits`.
    ///
    /// # Safety
    ///
    /// `functor` must be that of such a kernel.
    unsafe fn limits(self, functor: *const u8) -> [i64; 2] {
        let width = self.scalar().width();
        [0, 1].map(|i| {
            let at = width.max(4) + i * width;
            // SAFETY: the caller's.
            self.scalar().read(unsafe { std::slice::from_raw_parts(functor.add(at), width) })
        })
    }

    /// The choice or factor, and the scalar.
    ///
    /// # Safety
    ///
    /// `functor` must be that of a kernel of this name.
    unsafe fn functor(self, functor: *const u8) -> (i64, i64) {
        let width = self.scalar().width();
        // SAFETY: every read below lies in the functor, as the C++ declares it.
        let number = |at: usize| unsafe {
            self.scalar().read(std::slice::from_raw_parts(functor.add(at), width))
        };
        // SAFETY: an enumeration of four bytes stands first in functors that have a choice.
        let choice = || i64::from(unsafe { functor.cast::<i32>().read_unaligned() });
        match (self.action, self.form) {
            (Action::Fill, _) | (_, Form::Masked) => (0, number(0)),
            // `CUDAFunctor_add { alpha }`, and the two with one scalar: `{ other, alpha }`.
            (Action::Add, Form::Tensors) => (number(0), 0),
            (Action::Add, _) => (number(width), number(0)),
            (Action::Equal | Action::Order, Form::Tensors) | (Action::Clamp, _) => (choice(), 0),
            (Action::Equal | Action::Order, _) => (choice(), number(width.max(4))),
            // An empty functor takes a byte, and the scalar its alignment.
            (_, Form::ScalarFirst | Form::ScalarLast) => (0, number(width)),
            _ => (0, 0),
        }
    }
}

/// An operand of which something is known.
enum Operand {
    /// From its first element to its last one.
    Whole(Vec<u8>),
    /// Its rows are read one by one: a slice of a large mask.
    Sparse,
}

/// Where everything of a launch is.
struct Places {
    /// And the address that it counts from.
    offsets: Option<(Offsets, *const u8)>,
    /// Bytes of an element of each tensor, where they lie one after the other.
    widths: [u64; MOST_TENSORS],
    addresses: [u64; MOST_TENSORS],
    functor: *const u8,
    /// The types of result and operands, of a kernel that casts.
    out: *const u8,
    operands: *const u8,
}

impl Places {
    fn with_widths(&self, types: &[Type]) -> Places {
        let offsets = self.offsets.as_ref();
        let mut widths = self.widths;
        for (width, kind) in widths.iter_mut().zip(types) {
            *width = wide(kind.width());
        }
        Places {
            offsets: offsets.map(|(it, from)| (Offsets { at: it.at, tensors: it.tensors }, *from)),
            widths,
            ..*self
        }
    }

    /// Where the first `count` elements lie, one after the other.
    fn walk(&self, count: usize) -> Option<Walk> {
        match &self.offsets {
            None => Some(Walk::dense(self.widths, count)),
            Some((offsets, from)) => {
                // SAFETY: as in `of`.
                let number = |at: usize| unsafe { from.add(at).cast::<u32>().read_unaligned() };
                offsets.walk(count, number)
            }
        }
    }

    /// Where the `index`th elements lie, in bytes from the addresses.
    fn of(&self, index: usize) -> Option<[u64; MOST_TENSORS]> {
        match &self.offsets {
            None => Some(self.widths.map(|it| it * wide(index))),
            Some((offsets, from)) => {
                // SAFETY: the offset calculator of the launch, which is as long as it reads.
                let number = |at: usize| unsafe { from.add(at).cast::<u32>().read_unaligned() };
                offsets.of(index, number)
            }
        }
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::Contents;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let of = |name: &str| Kernel::of(name.as_bytes());
        let strided = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_50_GLOBAL__N__e50ef81d_17_CompareKernels_cu_8f1b29aa14CompareFunctorIlEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";
        let (action, form, kind) = (Action::Order, Form::Tensors, Type::Long);
        let expected = Kernel { action, form, kind, casts: false, strided: true, to_halves: None };
        assert_eq!(of(strided), Some(expected));
        assert_eq!(
            of(&strided.replace("22gpu_kernel_impl_nocastI", "15gpu_kernel_implI")),
            Some(Kernel { casts: true, ..expected })
        );
        let of_floats = strided.replace("CompareFunctorIl", "CompareFunctorIf");
        assert_eq!(of(&of_floats), Some(Kernel { kind: Type::Float, ..expected }));
        let of_halves = strided.replace("CompareFunctorIl", "CompareFunctorIN3c104HalfE");
        assert_eq!(of(&of_halves), Some(Kernel { kind: Type::Half, ..expected }));
        let masked = "_ZN2at6native29vectorized_elementwise_kernelILi8EZZZNS0_44_GLOBAL__N__50c743a2_11_Indexing_cu_89862edb18masked_fill_kernelERNS_14TensorIteratorERKN3c106ScalarEENKUlvE_clEvENKUlvE10_clEvEUlNS5_8BFloat16EbE_St5arrayIPcLm3EEEEviT0_T1_";
        let found = of(masked).map(|it| (it.action, it.form, it.kind));
        assert_eq!(found, Some((Action::Copy, Form::Masked, Type::Brain)));
        let choice = "_ZN2at6native29vectorized_elementwise_kernelILi2EZZZNS0_49_GLOBAL__N__d2ba64fb_16_TensorCompare_cu_71e06f4e17where_kernel_implERNS_14TensorIteratorEENKUlvE_clEvENKUlvE6_clEvEUlbllE_St5arrayIPcLm4EEEEviT0_T1_";
        let (action, form) = (Action::Copy, Form::Chosen);
        let expected = Kernel { action, form, kind, casts: false, strided: false, to_halves: None };
        assert_eq!(of(choice), Some(expected));
    }

    #[test]
    fn what_nobody_knows_is_itself_and_finite() {
        let (form, kind) = (Form::Tensors, Type::Float);
        let equal = Kernel {
            action: Action::Equal,
            form,
            kind,
            casts: false,
            strided: false,
            to_halves: None,
        };
        let count = 3_i32;
        let run = |kernel: Kernel, functor: &[u32], addresses: [u64; 3]| {
            let arguments: [*const c_void; 3] =
                [(&raw const count).cast(), functor.as_ptr().cast(), addresses.as_ptr().cast()];
            // SAFETY: arguments as the kernel has them.
            unsafe { kernel.effects(arguments.as_ptr(), |_, _| None) }
        };
        let known = |it: u8| vec![Effect::Known(4096, vec![it; 3])];
        assert_eq!(run(equal, &[0], [4096, 8192, 8192]), known(1), "x == x");
        assert_eq!(run(equal, &[1], [4096, 8192, 8192]), known(0), "x != x: is it a NaN?");
        assert_eq!(run(equal, &[0], [4096, 8192, 12288]), [Effect::Unknown(4096, 24)], "x == y");
        let scalar = Kernel { form: Form::ScalarLast, ..equal };
        let infinity = f32::INFINITY.to_bits();
        assert_eq!(run(scalar, &[1, infinity], [4096, 8192, 0]), known(1), "x != infinity");
        assert_eq!(run(scalar, &[1, 0], [4096, 8192, 0]), [Effect::Unknown(4096, 24)], "x != 0");
    }

    #[test]
    fn one_number_can_decide_alone() {
        let count = 2_i32;
        let run = |action: Action, kind: Type, number: i64| {
            let kernel = Kernel {
                action,
                form: Form::Tensors,
                kind,
                casts: false,
                strided: false,
                to_halves: None,
            };
            let (functor, addresses) = ([0_u32], [4096_u64, 8192, 12288]);
            let arguments: [*const c_void; 3] =
                [(&raw const count).cast(), functor.as_ptr().cast(), addresses.as_ptr().cast()];
            let known = |at: u64, size: usize| {
                let mut bytes = Vec::new();
                (0..size / kind.width()).for_each(|_| kind.write(number, &mut bytes));
                (at == 12288).then_some(bytes)
            };
            // SAFETY: arguments as the kernel has them.
            match unsafe { kernel.effects(arguments.as_ptr(), known) }.as_slice() {
                [Effect::Known(4096, it)] if is_test(action) => Some(Type::Bool.read(it)),
                [Effect::Known(4096, it)] => Some(kind.read(it)),
                _ => None,
            }
        };
        assert_eq!(run(Action::Or, Type::Bool, 1), Some(1));
        assert_eq!(run(Action::Or, Type::Bool, 0), None);
        assert_eq!(run(Action::Or, Type::Long, -1), Some(-1));
        assert_eq!(run(Action::Or, Type::Long, 1), None);
        assert_eq!(run(Action::And, Type::Long, 0), Some(0));
        assert_eq!(run(Action::And, Type::Bool, 1), None);
        assert_eq!(run(Action::LogicalOr, Type::Int, 7), Some(1));
        assert_eq!(run(Action::LogicalAnd, Type::Int, 0), Some(0));
        assert_eq!(run(Action::Multiply, Type::Long, 0), Some(0));
        assert_eq!(run(Action::Multiply, Type::Float, 0), None, "zero times infinity is none");
        assert_eq!(run(Action::Add, Type::Long, 0), None);
    }

    /// Fills so many numbers at 4096 with seven.
    fn fill(kind: Type, count: i32) -> Vec<Effect> {
        let (action, form) = (Action::Fill, Form::Alone);
        let fill = Kernel { action, form, kind, casts: false, strided: false, to_halves: None };
        let (value, addresses) = (if kind == Type::Int { 7 } else { 7_f32.to_bits() }, [4096_u64]);
        let arguments: [*const c_void; 3] =
            [(&raw const count).cast(), (&raw const value).cast(), (&raw const addresses).cast()];
        // SAFETY: arguments as the kernel has them.
        unsafe { fill.effects(arguments.as_ptr(), |_, _| None) }
    }

    #[test]
    fn a_fill_is_known_and_one_of_too_many_floats_is_not() {
        assert_eq!(fill(Type::Int, 2), [Effect::Known(4096, vec![7, 0, 0, 0, 7, 0, 0, 0])]);
        assert_eq!(fill(Type::Float, 20_000_000), [Effect::Unknown(4096, 160_000_000)]);
    }

    #[test]
    fn what_is_large_is_computed_where_it_is_read() {
        let mut contents = Contents::default();
        crate::effects::take(&mut contents, fill(Type::Int, 40_000_000), None);
        assert_eq!(contents.known(4098, 4), Some(vec![0, 0, 7, 0]), "from within an element");
        assert_eq!(contents.known(4096 + 160_000_000 - 4, 8), None, "beyond its end");
        // `x + 1`, element by element, which takes the place of what it is made of.
        let (action, form, kind) = (Action::Add, Form::ScalarLast, Type::Int);
        let add = Kernel { action, form, kind, casts: false, strided: false, to_halves: None };
        let run = |contents: &mut Contents, to: u64| {
            let (count, functor, addresses) = (10_000_000_i32, [1_i32, 1], [to, 4096]);
            let arguments: [*const c_void; 3] =
                [(&raw const count).cast(), functor.as_ptr().cast(), addresses.as_ptr().cast()];
            let known = |at, size| contents.known(at, size);
            // SAFETY: arguments as the kernel has them.
            let effects = unsafe { add.effects(arguments.as_ptr(), known) };
            crate::effects::take(contents, effects, None);
        };
        run(&mut contents, 4096);
        contents.write_computed(8192, &[1; 4]);
        let here = |contents: &Contents, at: u64| contents.known(at, 1).map(|it| it[0]);
        let places = [4096, 8188, 8192, 8196, 4096 + 40_000_000];
        assert_eq!(places.map(|it| here(&contents, it)), [8, 8, 1, 8, 7].map(Some));
        run(&mut contents, 1 << 30);
        assert_eq!(here(&contents, (1 << 30) + 4096), Some(2), "of a number that was put there");
        let all = contents.known(4096, 160_000_000);
        assert!(all.is_none(), "more than are computed at once");
        for _ in 0..20 {
            run(&mut contents, 4096);
        }
        assert_eq!(here(&contents, 4096), None, "made in more steps than are followed");
    }
}
