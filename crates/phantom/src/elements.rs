//! PyTorch's element-wise kernels over whole numbers, truth values and floats: which operation one is, told by its
//! mangled name, where its operands lie, told by its arguments, and what it makes of them. Elements lie one
//! after the other (`vectorized_elementwise_kernel`, `unrolled_elementwise_kernel`), or where an offset
//! calculator says: `places[None] < lengths[:, None]`, a slice, a transposed tensor
//! (`elementwise_kernel`; `aten/src/ATen/native/cuda/CUDALoops.cuh`).

use std::ffi::c_void;

use crate::arithmetic::{Action, apply, clamped, decided, decides, is_test};
use crate::effects::Effect;
use crate::integers::{Type, has, number_after, position};
use crate::offsets::{MOST_TENSORS, Offsets, Walk};

/// Elements that are computed at most, of floats: distances, overlaps.
const MOST: usize = 1 << 24;
/// And of anything else: a mask for attention often has far more, and nobody reads it back.
const MOST_MASKED: usize = 1 << 20;
/// Runs of elements that are written at most, where the result is not dense.
const MOST_RUNS: usize = 1 << 14;

/// Where a kernel has its scalar, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The scalar is all there is: `FillFunctor`.
    Alone,
    /// `BinaryFunctor`: two tensors, and perhaps a choice or a factor in the functor.
    Tensors,
    /// `AUnaryFunctor`: the scalar, then a tensor. Also `CUDAFunctorOnOther_add`.
    ScalarFirst,
    /// `BUnaryFunctor`, `CUDAFunctorOnSelf_add`, a comparison's lambda.
    ScalarLast,
    /// One tensor.
    Unary,
    /// A condition and two tensors: `where`.
    Chosen,
    /// A tensor, a mask, and a scalar: `masked_fill`.
    Masked,
}

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
        Some(Kernel { action, form, kind, casts, strided })
    }

    /// Whether it is "or" of truth values.
    pub fn is_either(self) -> bool {
        matches!(self.action, Action::Or | Action::LogicalOr) && self.kind == Type::Bool
    }

    /// Elements that are computed at most: of what computes with floats or compares them, more.
    fn most(self) -> usize {
        let moves = matches!(self.form, Form::Alone | Form::Chosen | Form::Masked);
        let is_large = !self.kind.is_whole() && !moves && self.action != Action::Copy;
        if is_large { MOST } else { MOST_MASKED }
    }

    /// The types of what it computes with, result first, before any casts.
    fn types(self) -> ([Type; MOST_TENSORS], usize) {
        let kind = self.kind;
        let out = if is_test(self.action) { Type::Bool } else { kind };
        match self.form {
            Form::Alone => ([out; MOST_TENSORS], 1),
            Form::Tensors => ([out, kind, kind, kind], 3),
            Form::Chosen => ([out, Type::Bool, kind, kind], 4),
            Form::Masked => ([out, kind, Type::Bool, kind], 3),
            Form::ScalarFirst | Form::ScalarLast | Form::Unary => ([out, kind, kind, kind], 2),
        }
    }

    /// Bytes of the functor.
    fn size(self) -> usize {
        let width = self.kind.width();
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
                unsafe { self.compute(count, &types[..tensors], &places, known) }
            })
            .flatten()
            // SAFETY: the caller's.
            .or_else(|| unsafe { self.evident(count, &types[..tensors], &places) });
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
        let scalars = unsafe { self.functor(places.functor) };
        // SAFETY: the same.
        let limits = (self.action == Action::Clamp).then(|| unsafe { self.limits(places.functor) });
        // What is known between the first element and the last one of each operand.
        let mut spans = [const { None }; MOST_TENSORS];
        for (i, span) in spans.iter_mut().enumerate().take(types.len()).skip(1) {
            let size = usize::try_from(last[i]).ok()? + types[i].width();
            *span = known(places.addresses[i], size);
            let is_needed = match self.form {
                Form::Tensors => !decides(self.action, self.kind),
                // What is not chosen need not be known.
                Form::Chosen => i == 1,
                _ => true,
            };
            if span.is_none() && is_needed {
                return None;
            }
        }
        if types.len() > 1 && spans.iter().all(Option::is_none) {
            return None;
        }
        let wanted = self.types().0;
        // A slice is written in as many runs as it has rows.
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut end = u64::MAX;
        for offsets in places.walk(count)? {
            let at = |tensor: usize| {
                let span = spans.get(tensor)?.as_ref()?;
                let span = span.get(usize::try_from(offsets[tensor]).ok()?..)?;
                let value = types[tensor].read(span);
                if types[tensor] == wanted[tensor] {
                    return Some(value);
                }
                // A cast comes first: what is computed with is of the functor's type.
                Some(wanted[tensor].fitted(types[tensor].into(wanted[tensor], value)))
            };
            let value = match limits {
                Some(limits) => clamped(self.kind, at(1)?, scalars.0, limits),
                None => self.element(scalars, at)?,
            };
            let value = if is_test(self.action) {
                Type::Bool.into(types[0], value)
            } else {
                self.kind.into(types[0], self.kind.fitted(value))
            };
            if offsets[0] != end {
                if runs.len() == MOST_RUNS {
                    return None;
                }
                runs.push((offsets[0], Vec::new()));
            }
            end = offsets[0] + wide(types[0].width());
            let (_, run) = runs.last_mut()?;
            types[0].write(value, run);
        }
        let is_pattern = self.strided && runs.len() == 1;
        let effect = |(from, bytes)| match places.addresses[0] + from {
            at if is_pattern => Effect::Pattern(at, bytes),
            at => Effect::Known(at, bytes),
        };
        Some(runs.into_iter().map(effect).collect())
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

    /// One element of the result, of the elements that `at` reads.
    fn element(
        self,
        (choice, scalar): (i64, i64),
        at: impl Fn(usize) -> Option<i64>,
    ) -> Option<i64> {
        let (a, b) = match self.form {
            Form::Chosen => return if at(1)? != 0 { at(2) } else { at(3) },
            Form::Masked => return if at(2)? != 0 { Some(scalar) } else { at(1) },
            Form::ScalarFirst => (scalar, at(1)?),
            Form::ScalarLast => (at(1)?, scalar),
            Form::Alone => (scalar, 0),
            Form::Tensors => match (at(1), at(2)) {
                (Some(a), Some(b)) => (a, b),
                (Some(it), None) => return decided(self.action, self.kind, choice, it, true),
                (None, Some(it)) => return decided(self.action, self.kind, choice, it, false),
                (None, None) => return None,
            },
            Form::Unary => (at(1)?, 0),
        };
        apply(self.action, self.kind, choice, a, b)
    }

    /// The bounds of a clamp, behind `ClampLimits`.
    ///
    /// # Safety
    ///
    /// `functor` must be that of such a kernel.
    unsafe fn limits(self, functor: *const u8) -> [i64; 2] {
        let width = self.kind.width();
        [0, 1].map(|i| {
            let at = width.max(4) + i * width;
            // SAFETY: the caller's.
            self.kind.read(unsafe { std::slice::from_raw_parts(functor.add(at), width) })
        })
    }

    /// The choice or factor, and the scalar.
    ///
    /// # Safety
    ///
    /// `functor` must be that of a kernel of this name.
    unsafe fn functor(self, functor: *const u8) -> (i64, i64) {
        let width = self.kind.width();
        // SAFETY: every read below lies in the functor, as the C++ declares it.
        let number = |at: usize| unsafe {
            self.kind.read(std::slice::from_raw_parts(functor.add(at), width))
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

/// What a kernel of this (mangled) name does, where it has its scalar, and the type that it computes with.
fn meaning(name: &[u8]) -> Option<(Action, Form, Type)> {
    if let Some(kind) = number_after(name, b"11FillFunctorI") {
        return Some((Action::Fill, Form::Alone, kind));
    }
    if let Some(kind) = number_after(name, b"10AbsFunctorI") {
        return Some((Action::Absolute, Form::Unary, kind));
    }
    if let Some(kind) = number_after(name, b"22CUDAFunctorOnOther_addI") {
        return Some((Action::Add, Form::ScalarFirst, kind));
    }
    if let Some(kind) = number_after(name, b"21CUDAFunctorOnSelf_addI") {
        return Some((Action::Add, Form::ScalarLast, kind));
    }
    if let Some(kind) = number_after(name, b"15CUDAFunctor_addI") {
        return Some((Action::Add, Form::Tensors, kind));
    }
    if let Some(kind) = number_after(name, b"14CompareFunctorI") {
        return Some((Action::Order, Form::Tensors, kind));
    }
    if let Some(kind) = number_after(name, b"21compare_scalar_kernelI") {
        return Some((Action::Order, Form::ScalarLast, kind));
    }
    if has(name, b"19launch_clamp_scalarE") {
        return Some((Action::Clamp, Form::Unary, number_after(name, b"EUl")?));
    }
    if let Some(kind) = number_after(name, b"29pow_tensor_scalar_kernel_implI") {
        // The lambdas of this function are numbered: squares, cubes, and others.
        let of = |lambda: &[u8]| {
            b"fdlihsa".iter().any(|&it| has(name, &[b"EUl", [it].as_slice(), lambda].concat()))
        };
        let action = match (of(b"E_"), of(b"E0_")) {
            (true, _) => Action::Square,
            (_, true) => Action::Cube,
            _ => return None,
        };
        return Some((action, Form::Unary, kind));
    }
    for (part, action) in [
        (b"bitwise_not_kernel_cuda".as_slice(), Action::Not),
        (b"17floor_kernel_cuda", Action::Floor),
        (b"16ceil_kernel_cuda", Action::Ceiling),
        (b"17trunc_kernel_cuda", Action::Truncate),
        (b"16sqrt_kernel_cuda", Action::Root),
        (b"22reciprocal_kernel_cuda", Action::Reciprocal),
        (b"logical_not_kernel_cuda", Action::LogicalNot),
        (b"direct_copy_kernel_cuda", Action::Copy),
        (b"15neg_kernel_cuda", Action::Negate),
    ] {
        if has(name, part) {
            return Some((action, Form::Unary, number_after(name, b"EUl")?));
        }
    }
    if has(name, b"17where_kernel_impl") {
        return Some((Action::Copy, Form::Chosen, number_after(name, b"EUlb")?));
    }
    if has(name, b"18masked_fill_kernel") {
        let kind = number_after(name, b"EUl")?;
        // The mask's elements are truth values.
        let at = position(name, b"EUl")? + b"EUlx".len();
        return (name.get(at) == Some(&b'b')).then_some((Action::Copy, Form::Masked, kind));
    }
    let (form, operands) = [
        (Form::Tensors, b"13BinaryFunctorI".as_slice()),
        (Form::ScalarFirst, b"13AUnaryFunctorI"),
        (Form::ScalarLast, b"13BUnaryFunctorI"),
    ]
    .into_iter()
    .find_map(|(form, part)| Some((form, position(name, part)? + part.len())))?;
    let letter = *name.get(operands)?;
    let kind = Type::of_letter(letter).or_else(|| Type::of_float(letter))?;
    // Both operands are of one type in these.
    (name.get(operands + 1) == name.get(operands)).then_some(())?;
    let action = [
        (b"17BitwiseAndFunctor".as_slice(), Action::And),
        (b"16BitwiseOrFunctor", Action::Or),
        (b"17BitwiseXorFunctor", Action::Xor),
        (b"10MulFunctor", Action::Multiply),
        (b"16CompareEqFunctor", Action::Equal),
        (b"23logical_and_kernel_cuda", Action::LogicalAnd),
        (b"22logical_or_kernel_cuda", Action::LogicalOr),
        (b"19minimum_kernel_cuda", Action::Smallest),
        (b"19maximum_kernel_cuda", Action::Largest),
        (b"21div_floor_kernel_cuda", Action::DivideFloor),
        (b"21div_trunc_kernel_cuda", Action::DivideTruncated),
        (b"10DivFunctor", Action::Divide),
        (b"21remainder_kernel_cuda", Action::Remainder),
    ]
    .into_iter()
    .find_map(|(part, action)| has(name, part).then_some(action))?;
    Some((action, form, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let of = |name: &str| Kernel::of(name.as_bytes());
        let strided = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_50_GLOBAL__N__e50ef81d_17_CompareKernels_cu_8f1b29aa14CompareFunctorIlEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";
        let (action, form, kind) = (Action::Order, Form::Tensors, Type::Long);
        let expected = Kernel { action, form, kind, casts: false, strided: true };
        assert_eq!(of(strided), Some(expected));
        assert_eq!(
            of(&strided.replace("22gpu_kernel_impl_nocastI", "15gpu_kernel_implI")),
            Some(Kernel { casts: true, ..expected })
        );
        let of_floats = strided.replace("CompareFunctorIl", "CompareFunctorIf");
        assert_eq!(of(&of_floats), Some(Kernel { kind: Type::Float, ..expected }));
        let of_halves = strided.replace("CompareFunctorIl", "CompareFunctorIN3c104HalfE");
        assert_eq!(of(&of_halves), None);
        let choice = "_ZN2at6native29vectorized_elementwise_kernelILi2EZZZNS0_49_GLOBAL__N__d2ba64fb_16_TensorCompare_cu_71e06f4e17where_kernel_implERNS_14TensorIteratorEENKUlvE_clEvENKUlvE6_clEvEUlbllE_St5arrayIPcLm4EEEEviT0_T1_";
        let (action, form) = (Action::Copy, Form::Chosen);
        let expected = Kernel { action, form, kind, casts: false, strided: false };
        assert_eq!(of(choice), Some(expected));
    }

    #[test]
    fn what_nobody_knows_is_itself_and_finite() {
        let (form, kind) = (Form::Tensors, Type::Float);
        let equal = Kernel { action: Action::Equal, form, kind, casts: false, strided: false };
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
            let kernel = Kernel { action, form: Form::Tensors, kind, casts: false, strided: false };
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

    #[test]
    fn a_fill_is_known_and_one_of_too_many_is_not() {
        let (action, form, kind) = (Action::Fill, Form::Alone, Type::Int);
        let fill = Kernel { action, form, kind, casts: false, strided: false };
        let run = |count: i32| {
            let (value, addresses) = (7_i32, [4096_u64]);
            let arguments: [*const c_void; 3] = [
                (&raw const count).cast(),
                (&raw const value).cast(),
                (&raw const addresses).cast(),
            ];
            // SAFETY: arguments as the kernel has them.
            unsafe { fill.effects(arguments.as_ptr(), |_, _| None) }
        };
        assert_eq!(run(2), [Effect::Known(4096, vec![7, 0, 0, 0, 7, 0, 0, 0])]);
        assert_eq!(run(20_000_000), [Effect::Unknown(4096, 160_000_000)]);
    }
}
