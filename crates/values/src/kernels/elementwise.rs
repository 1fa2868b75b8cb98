//! PyTorch's element-wise kernels over whole numbers, truth values and floats: which operation one is, told by its
//! mangled name, where its operands lie, told by its arguments, and what it makes of them. Elements lie one
//! after the other (`vectorized_elementwise_kernel`, `unrolled_elementwise_kernel`), or where an offset
//! calculator says: `places[None] < lengths[:, None]`, a slice, a transposed tensor
//! (`elementwise_kernel`; `aten/src/ATen/native/cuda/CUDALoops.cuh`).

use crate::arguments::{Arguments, Bytes, Structure};
use crate::kernels::functors::{conversion, meaning};
use crate::kernels::partly::{Found, Parts};
use crate::memory::contents::SAME;
use crate::memory::lazy::{Element, Open};
use crate::memory::writes::Write;
use crate::memory::{IsLazy, Known, KnowsAny, MOST_LOOKED_AT};
use crate::names::{self, has};
use crate::numbers::arithmetic::{Action, BEYOND_ALL, decided, decides, is_test};
use crate::numbers::formula::Form;
use crate::numbers::formula::{Buffers, Formula};
use crate::numbers::offsets::{MOST_TENSORS, Offsets, Walk};
use crate::numbers::rows;
use crate::types::{ScalarType, as_f64};

/// Elements that are computed at most, of floats: distances, overlaps.
const MOST: usize = 1 << 24;
/// So many floats that come of operands of several shapes, as masks of attention do, are computed where they are read, if that can be.
const MOST_SPREAD: usize = 1 << 16;
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
pub(crate) struct Kernel {
    action: Action,
    form: Form,
    /// The type that is computed with.
    kind: ScalarType,
    /// Operands or result are of other types, which the arguments say.
    casts: bool,
    /// An offset calculator says where elements lie.
    strided: bool,
    /// Results are halves, which are computed as floats.
    to_halves: Option<ScalarType>,
    /// The operand is of this other type, which the name says.
    from: Option<ScalarType>,
}

impl Kernel {
    /// The one of this (mangled) name, if it concerns numbers that we follow.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let unrolled = has(name, names::UNROLLED_ELEMENTWISE);
        let strided = has(name, names::STRIDED_ELEMENTWISE);
        if !unrolled && !strided && !has(name, names::VECTORIZED_ELEMENTWISE) {
            return None;
        }
        let casts =
            unrolled && has(name, names::LOAD_WITH_CAST) || has(name, names::CASTING_KERNEL_IMPL);
        let (action, form, kind) = meaning(name)?;
        let converts = conversion(name);
        let to_halves = match converts {
            Some((_, to)) => Some(to).filter(|it| it.working() != *it),
            None if has(name, names::HALF_COPY) => Some(ScalarType::Half),
            None if has(name, names::BRAIN_COPY) => Some(ScalarType::Brain),
            None => None,
        };
        let from = converts.filter(|_| to_halves.is_none()).map(|(from, _)| from);
        Some(Kernel { action, form, kind, casts, strided, to_halves, from })
    }

    /// Whether it is "or" of truth values.
    pub(crate) fn is_either(self) -> bool {
        matches!(self.action, Action::Or | Action::LogicalOr) && self.kind == ScalarType::Bool
    }

    /// Whether it compares two tensors of whole numbers, as `==` does.
    pub(crate) fn compares_tensors(self) -> bool {
        self.action == Action::Equal && self.form == Form::Tensors && self.kind.is_whole()
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

    /// Whether it makes many floats of tensors that do not lie one after the other, and tests nothing.
    fn is_spread(self, count: usize) -> bool {
        let is_sum = self.strided && self.form == Form::Tensors && !is_test(self.action);
        is_sum && !self.kind.is_whole() && MOST_SPREAD < count
    }

    /// Whether it makes many floats of what is computed where it is read, and tests nothing.
    fn is_of_later(
        self,
        count: usize,
        types: &[ScalarType],
        places: &Places<'_>,
        is_lazy: IsLazy<'_>,
    ) -> bool {
        let is_large = !self.kind.is_whole() && !is_test(self.action) && MOST_SPREAD < count;
        is_large && places.addresses[..types.len()].iter().skip(1).any(|it| is_lazy(*it))
    }

    /// The types of what it computes with, result first, before any casts.
    fn types(self) -> ([ScalarType; MOST_TENSORS], usize) {
        let kind = self.kind;
        let out =
            if is_test(self.action) { ScalarType::Bool } else { self.to_halves.unwrap_or(kind) };
        match self.form {
            Form::Alone => ([out; MOST_TENSORS], 1),
            Form::Tensors => ([out, kind, kind, kind], 3),
            Form::Chosen => ([out, ScalarType::Bool, kind, kind], 4),
            Form::Masked => ([out, kind, ScalarType::Bool, kind], 3),
            Form::ScalarFirst | Form::ScalarLast | Form::Unary => ([out, kind, kind, kind], 2),
        }
    }

    /// The type of the functor's scalars: sums, products and bounds of halves are computed as floats.
    fn scalar(self) -> ScalarType {
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
    pub(crate) fn writes(
        self,
        arguments: Arguments<'_>,
        (known, knows_any): (Known<'_>, KnowsAny<'_>),
        is_lazy: IsLazy<'_>,
    ) -> Option<Vec<Write>> {
        // The first argument says how many elements there are.
        let count = usize::try_from(arguments.whole(0)?).unwrap_or(0);
        let (mut types, tensors) = self.types();
        let places = self.places(tensors, arguments)?;
        types[1] = self.from.unwrap_or(types[1]);
        if self.casts {
            for (i, kind) in types.iter_mut().enumerate().take(tensors) {
                let Some(found) = places.types[i].and_then(ScalarType::of_number) else {
                    return Some(vec![Write::Unknown(places.addresses[0], 8 * wide(count))]);
                };
                *kind = found;
            }
        }
        let types = &types[..tensors];
        let lazily = || self.lazily(count, types, &places, known);
        let is_beyond = self.most() < count;
        let later = self.is_spread(count) || self.is_of_later(count, types, &places, is_lazy);
        let computed = later
            .then(lazily)
            .flatten()
            .or_else(|| (!is_beyond).then(|| self.compute(count, types, &places, known)).flatten())
            .or_else(|| self.evident(count, types, &places))
            .or_else(|| is_beyond.then(lazily).flatten());
        Some(computed.unwrap_or_else(|| {
            let last = places.of(count.saturating_sub(1)).map_or(0, |it| it[0]);
            let end = if self.strided { last + 8 } else { 8 * wide(count) };
            let parts = self.in_part(count, types, &places, (known, knows_any), is_lazy);
            let mut res = vec![Write::Unknown(places.addresses[0], end)];
            res.extend(parts);
            res
        }))
    }

    /// What is known of a result where not all operands are: nothing changes a zero that is multiplied or divided, nor what lies beyond all that
    /// is added to, and a mask or a condition says which elements are those of the program's own. They are what a program sets so that it is not
    /// chosen: by `topk`, by a sort, by chance. Of zero times infinity nobody thinks here.
    fn in_part(
        self,
        count: usize,
        types: &[ScalarType],
        places: &Places<'_>,
        (known, knows_any): (Known<'_>, KnowsAny<'_>),
        is_lazy: IsLazy<'_>,
    ) -> Vec<Write> {
        let copies = (self.action, self.form) == (Action::Copy, Form::Unary);
        if self.casts && !copies || self.kind.is_whole() || MOST_LOOKED_AT < count {
            return Vec::new();
        }
        if self.strided {
            return self.spread_in_part(count, types, places, known).unwrap_or_default();
        }
        let some = |i: usize| Parts {
            at: places.addresses[i],
            count,
            width: types[i].width(),
            reads: (known, knows_any),
            is_lazy: is_lazy(places.addresses[i]),
        };
        let number = |i: usize, it: &[u8]| as_f64(types[i].read(it));
        let width = types[0].width();
        let mut found = Found::nothing(count, width);
        let zero = vec![0; width];
        match (self.action, self.form) {
            (Action::Multiply | Action::Divide, Form::Tensors) => {
                let operands = if self.action == Action::Divide { 1..2 } else { 1..3 };
                for i in operands {
                    some(i).each(|at, it| {
                        if number(i, it) == 0.0 {
                            found.set(at, &zero);
                        }
                    });
                }
            }
            (Action::Multiply, Form::ScalarFirst | Form::ScalarLast)
            | (Action::Divide, Form::ScalarLast) => {
                let factor = self.functor(places.functor).map_or(0.0, |it| as_f64(it.1));
                some(1).each(|at, it| {
                    // A temperature changes no infinity, either.
                    if number(1, it) == 0.0 || number(1, it).is_infinite() && 0.0 < factor {
                        found.set(at, it);
                    }
                });
            }
            (Action::Add, Form::Tensors) if types.iter().all(|it| *it == types[0]) => {
                for i in 1..3 {
                    some(i).each(|at, it| {
                        if number(i, it) <= -BEYOND_ALL {
                            found.set(at, it);
                        }
                    });
                }
            }
            (Action::Copy, Form::Unary) if !types[..2].iter().any(|it| it.is_whole()) => {
                some(1).each(|at, it| {
                    let mut copied = Vec::new();
                    types[0].write(types[1].read(it), &mut copied);
                    found.set(at, &copied);
                });
            }
            (Action::Copy, Form::Masked) if types[0] == types[1] => {
                let Some((_, value)) = self.functor(places.functor) else { return Vec::new() };
                let Some(mask) = some(2).whole() else { return Vec::new() };
                some(1).each(|at, it| {
                    if mask[at] == 0 {
                        found.set(at, it);
                    }
                });
                let mut filled = Vec::new();
                types[0].write(value, &mut filled);
                for (at, _) in mask.iter().enumerate().filter(|(_, is_set)| **is_set != 0) {
                    found.set(at, &filled);
                }
            }
            (Action::Copy, Form::Chosen) if types[2] == types[0] && types[3] == types[0] => {
                let Some(chosen) = some(1).whole() else { return Vec::new() };
                for (i, is_first) in [(2, true), (3, false)] {
                    some(i).each(|at, it| {
                        if (chosen[at] != 0) == is_first {
                            found.set(at, it);
                        }
                    });
                }
            }
            _ => {}
        }
        found.runs(places.addresses[0])
    }

    /// The same of operands of several shapes, such as a mask for all rows: what a product or a mask makes of those that are known whole.
    fn spread_in_part(
        self,
        count: usize,
        types: &[ScalarType],
        places: &Places<'_>,
        known: Known<'_>,
    ) -> Option<Vec<Write>> {
        let decides = match (self.action, self.form) {
            (Action::Multiply, Form::Tensors) => 1..3,
            (Action::Copy, Form::Masked) if types[0] == types[1] => 2..3,
            _ => return None,
        };
        (count <= MOST_SPREAD).then_some(())?;
        let places = places.with_widths(types);
        let last = places.of(count.checked_sub(1)?)?;
        let span = |i: usize| {
            known(places.addresses[i], types[i].width())?;
            known(places.addresses[i], usize::try_from(last[i]).ok()? + types[i].width())
        };
        let spans: Vec<(usize, Vec<u8>)> = decides.filter_map(|i| Some((i, span(i)?))).collect();
        if spans.is_empty() {
            return None;
        }
        let mut result = vec![0; types[0].width()];
        if self.form == Form::Masked {
            result.clear();
            types[0].write(self.functor(places.functor)?.1, &mut result);
        }
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut end = u64::MAX;
        let mut walk = places.walk(count)?;
        while let Some(row) = walk.row(rows::LENGTH) {
            for j in 0..row.length {
                let place = |i: usize| row.at[i] + wide(j) * row.strides[i];
                let is_set = |(i, span): &(usize, Vec<u8>)| {
                    let begin = usize::try_from(place(*i)).unwrap_or(usize::MAX);
                    let it = span.get(begin..begin.saturating_add(types[*i].width()));
                    it.is_some_and(|it| {
                        if self.form == Form::Masked {
                            it[0] != 0
                        } else {
                            as_f64(types[*i].read(it)) == 0.0
                        }
                    })
                };
                if !spans.iter().any(is_set) {
                    continue;
                }
                match runs.last_mut().filter(|_| end == place(0)) {
                    Some((_, run)) => run.extend_from_slice(&result),
                    None => runs.push((place(0), result.clone())),
                }
                end = place(0) + wide(types[0].width());
            }
        }
        let write = |(at, bytes)| Write::Known(places.addresses[0] + at, bytes);
        Some(runs.into_iter().map(write).collect())
    }

    /// Where everything is. The second argument of all these kernels is read, and the third of all but the strided ones. A
    /// strided one's is `{ offsets; addresses[tensors]; functor; types[tensors] }`, the others have the functor, the addresses,
    /// two empty structures, the types of the operands and that of the result.
    fn places<'a>(self, tensors: usize, arguments: Arguments<'a>) -> Option<Places<'a>> {
        let mut addresses = [0; MOST_TENSORS];
        let mut types = [None; MOST_TENSORS];
        let widths = self.types().0.map(|it| wide(it.width()));
        if self.strided {
            let offsets = Offsets { at: 0, tensors };
            let begin = offsets.end().next_multiple_of(8);
            let functor = begin + 8 * tensors;
            let n_types = if self.casts { tensors } else { 0 };
            let size = functor + self.size() + n_types;
            let closure = Structure { named: &["at::native::gpu_kernel_impl"], size };
            let closure = arguments.structure(1, closure)?;
            for (i, address) in addresses.iter_mut().enumerate().take(tensors) {
                *address = closure.u64(begin + 8 * i)?;
            }
            for (i, kind) in types.iter_mut().enumerate().take(n_types) {
                *kind = Some(closure.u8(functor + self.size() + i)?);
            }
            let functor = closure.from(functor)?;
            return Some(Places {
                offsets: Some((offsets, closure)),
                widths,
                addresses,
                functor,
                types,
            });
        }
        let functor = Structure { named: self.functor_names(), size: self.size() };
        let functor = arguments.structure(1, functor)?;
        // `std::array<char *, N>`, before torch 2.9 `at::detail::Array<char *, N>`.
        let all = Structure { named: &["rray<char*, "], size: 8 * tensors };
        let all = arguments.structure(2, all)?;
        for (i, address) in addresses.iter_mut().enumerate().take(tensors) {
            *address = all.u64(8 * i)?;
        }
        if self.casts {
            // `LoadWithCast<N>` and `StoreWithCast<1>` begin with their types, a byte each.
            let [load, store] = ["::LoadWithCast<", "::StoreWithCast<"];
            let operands = Structure { named: &[load], size: tensors - 1 };
            let operands = arguments.structure(5, operands)?;
            types[0] = arguments.structure(6, Structure { named: &[store], size: 1 })?.u8(0);
            for (i, kind) in types.iter_mut().enumerate().take(tensors).skip(1) {
                *kind = operands.u8(i - 1);
            }
        }
        Some(Places { offsets: None, widths, addresses, functor, types })
    }

    fn compute(
        self,
        count: usize,
        types: &[ScalarType],
        places: &Places<'_>,
        known: Known<'_>,
    ) -> Option<Vec<Write>> {
        let places = places.with_widths(types);
        let last = places.of(count.checked_sub(1)?)?;
        let formula = self.formula(types, &places)?;
        let size = wide(count) * wide(types[0].width());
        if self.form == Form::Alone && !self.strided && SAME <= size {
            let mut element = Vec::new();
            let mut buffers = Buffers::of(1, 1);
            formula.row([true; MOST_TENSORS], &mut buffers, 1, &mut element)?;
            let element = Element::of(&element)?;
            return Some(vec![Write::Same {
                at: places.addresses[0],
                element,
                size,
                is_pattern: false,
            }]);
        }
        let is_needed = |i: usize| match self.form {
            Form::Tensors => !decides(self.action, self.kind),
            // What is not chosen need not be known.
            Form::Chosen => i == 1,
            _ => true,
        };
        // Most often one of them is not known at all: then the others are not read.
        let begins = |i: usize| known(places.addresses[i], types[i].width()).is_some();
        if !(1..types.len()).all(|i| begins(i) || !is_needed(i)) {
            return None;
        }
        // What is known between the first element and the last one of each operand.
        let mut found = [const { None }; MOST_TENSORS];
        for (i, operand) in found.iter_mut().enumerate().take(types.len()).skip(1) {
            let size = usize::try_from(last[i]).ok()? + types[i].width();
            *operand = if SPARSE <= size / (count * types[i].width()) && LARGE <= size {
                known(places.addresses[i], types[i].width()).map(|_| Operand::Sparse)
            } else {
                known(places.addresses[i], size).map(Operand::Whole)
            };
            if operand.is_none() && is_needed(i) {
                return None;
            }
        }
        if types.len() > 1 && found.iter().all(Option::is_none) {
            return None;
        }
        let are_known = found.each_ref().map(Option::is_some);
        // As many elements as there is space for have no gaps between them, in whichever order they lie.
        if last[0] + wide(types[0].width()) == size
            && SAME <= size
            && let Some(element) = Self::everywhere(&formula, &found, are_known)
        {
            let (at, is_pattern) = (places.addresses[0], self.strided);
            return Some(vec![Write::Same { at, element, size, is_pattern }]);
        }
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
            at if is_pattern => Write::Pattern(at, bytes),
            at => Write::Known(at, bytes),
        };
        Some(runs.into_iter().map(effect).collect())
    }

    /// What each element of the result is, if each operand is one element again and again: a gradient of zeros, and another.
    fn everywhere(
        formula: &Formula,
        operands: &[Option<Operand>],
        are_known: [bool; MOST_TENSORS],
    ) -> Option<Element> {
        let mut buffers = Buffers::of(operands.len(), 1);
        for (i, operand) in operands.iter().enumerate() {
            match operand {
                None => {}
                Some(Operand::Whole(span)) => {
                    let width = formula.width(i);
                    let first = span
                        .get(..width)
                        .filter(|_| span[width..] == span[..span.len() - width])?;
                    buffers.read(formula, i, first, (0, 0), 1)?;
                }
                Some(Operand::Sparse) => return None,
            }
        }
        let mut element = Vec::new();
        formula.row(are_known, &mut buffers, 1, &mut element)?;
        Element::of(&element)
    }

    /// More elements than are computed at once: they are when somebody reads them, if all operands are known. Large floats that
    /// are filled with one value are mostly written by kernels that are not followed.
    ///
    fn lazily(
        self,
        count: usize,
        types: &[ScalarType],
        places: &Places<'_>,
        known: Known<'_>,
    ) -> Option<Vec<Write>> {
        (self.form != Form::Alone || self.kind.is_whole()).then_some(())?;
        let mut operands = places.addresses.iter().zip(types).skip(1);
        operands.all(|(&at, kind)| known(at, kind.width()).is_some()).then_some(())?;
        let places = places.with_widths(types);
        let last = places.of(count - 1)?;
        let walk = places.walk(count).filter(|it| it.is_in_order(places.widths[0]))?;
        let operands =
            (1..types.len()).map(|i| (places.addresses[i], last[i] + places.widths[i])).collect();
        let formula = self.formula(types, &places)?;
        let is_pattern = self.strided;
        let open = Box::new(Open { formula, walk, count, operands });
        Some(vec![Write::Lazy { at: places.addresses[0], open, is_pattern }])
    }

    /// What is done to numbers of these types.
    ///
    fn formula(self, types: &[ScalarType], places: &Places<'_>) -> Option<Formula> {
        let mut all = [self.kind; MOST_TENSORS];
        all[..types.len()].copy_from_slice(types);
        let scalars = self.functor(places.functor)?;
        let limits = match self.action {
            Action::Clamp => Some(self.limits(places.functor)?),
            _ => None,
        };
        let Kernel { action, form, kind, .. } = self;
        Some(Formula { action, form, kind, wanted: self.types().0, types: all, scalars, limits })
    }

    /// What a test finds in numbers that nobody knows: that each is itself, and that none is infinite or beyond all. So do
    /// `isnan(x)`, which is `x != x`, `isfinite(x)`, and the checks of a distribution's parameters.
    ///
    fn evident(
        self,
        count: usize,
        types: &[ScalarType],
        places: &Places<'_>,
    ) -> Option<Vec<Write>> {
        let tests = matches!(self.action, Action::Equal | Action::Order);
        if !tests || types[0] != ScalarType::Bool || MOST < count {
            return None;
        }
        let (choice, scalar) = self.functor(places.functor)?;
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
        dense.then(|| vec![Write::Known(places.addresses[0], vec![u8::from(holds); count])])
    }

    /// The bounds of a clamp, behind `ClampLimits`.
    fn limits(self, functor: Bytes<'_>) -> Option<[i64; 2]> {
        let width = self.scalar().width();
        let bound = |i: usize| functor.element(width.max(4) + i * width, self.scalar());
        Some([bound(0)?, bound(1)?])
    }

    /// The choice or factor, and the scalar.
    fn functor(self, functor: Bytes<'_>) -> Option<(i64, i64)> {
        let width = self.scalar().width();
        let number = |at: usize| functor.element(at, self.scalar());
        // An enumeration of four bytes stands first in functors that have a choice.
        let choice = || functor.i32(0).map(i64::from);
        Some(match (self.action, self.form) {
            (Action::Fill, _) | (_, Form::Masked) => (0, number(0)?),
            // `CUDAFunctor_add { alpha }`, and the two with one scalar: `{ other, alpha }`.
            (Action::Add, Form::Tensors) => (number(0)?, 0),
            (Action::Add, _) => (number(width)?, number(0)?),
            (Action::Equal | Action::Order, Form::Tensors) | (Action::Clamp, _) => (choice()?, 0),
            (Action::Equal | Action::Order, _) => (choice()?, number(width.max(4))?),
            // An empty functor takes a byte, and the scalar its alignment.
            (_, Form::ScalarFirst | Form::ScalarLast) => (0, number(width)?),
            _ => (0, 0),
        })
    }

    /// What the functor is called, as a C++ type.
    fn functor_names(self) -> &'static [&'static str] {
        match (self.action, self.form) {
            (Action::Fill, _) => &["at::native::FillFunctor<"],
            (Action::Add, Form::Tensors) => &["at::native::CUDAFunctor_add<"],
            (Action::Add, Form::ScalarFirst) => &["at::native::CUDAFunctorOnOther_add<"],
            (Action::Add, _) => &["at::native::CUDAFunctorOnSelf_add<"],
            (Action::Order, Form::Tensors) => &["::CompareFunctor<", "::BinaryFunctor<"],
            (Action::Order, _) => &["::compare_scalar_kernel<"],
            (_, Form::Tensors) => &["at::native::BinaryFunctor<"],
            (_, Form::ScalarFirst) => &["at::native::AUnaryFunctor<"],
            (_, Form::ScalarLast) => &["at::native::BUnaryFunctor<"],
            // Lambdas of a function, and of no more.
            _ => &["::{lambda(", "at::native::AbsFunctor<"],
        }
    }
}

/// What a kernel writes that adds up overlapping windows (`aten/src/ATen/native/cuda/UnfoldBackwardKernel.cu`), which is not followed: how many, and a
/// closure that has the offsets of three tensors, then their addresses, the result's first.
pub(crate) fn unfolded(arguments: Arguments<'_>) -> Option<Vec<Write>> {
    let addresses = Offsets { at: 0, tensors: 3 }.end().next_multiple_of(8);
    let named = &["_unfold_backward_internal_kernel<"];
    let to = arguments.structure(1, Structure { named, size: addresses + 8 })?.u64(addresses)?;
    Some(vec![Write::Unknown(to, u64::MAX)])
}

/// What an element-wise kernel writes that is not followed: how many, the functor, and the addresses, the result's first.
pub(crate) fn overwritten(arguments: Arguments<'_>) -> Option<Vec<Write>> {
    let count = arguments.whole(0)?.cast_unsigned() & 0xffff_ffff;
    let addresses = Structure { named: &["rray<char*, "], size: 8 };
    let to = arguments.structure(2, addresses)?.u64(0)?;
    Some(vec![Write::Unknown(to, 8 * count)])
}

/// An operand of which something is known.
enum Operand {
    /// From its first element to its last one.
    Whole(Vec<u8>),
    /// Its rows are read one by one: a slice of a large mask.
    Sparse,
}

/// Where everything of a launch is.
struct Places<'a> {
    /// And what it stands in.
    offsets: Option<(Offsets, Bytes<'a>)>,
    /// Bytes of an element of each tensor, where they lie one after the other.
    widths: [u64; MOST_TENSORS],
    addresses: [u64; MOST_TENSORS],
    functor: Bytes<'a>,
    /// The numbers of the types of result and operands, of a kernel that casts.
    types: [Option<u8>; MOST_TENSORS],
}

impl Places<'_> {
    fn with_widths(&self, types: &[ScalarType]) -> Self {
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
            Some((offsets, from)) => offsets.walk(count, |at| from.u32(at)),
        }
    }

    /// Where the `index`th elements lie, in bytes from the addresses.
    fn of(&self, index: usize) -> Option<[u64; MOST_TENSORS]> {
        match &self.offsets {
            None => Some(self.widths.map(|it| it * wide(index))),
            Some((offsets, from)) => offsets.of(index, |at| from.u32(at)),
        }
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};
    use crate::memory::contents::Contents;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let of = |name: &str| Kernel::of(name.as_bytes());
        let strided = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_50_GLOBAL__N__e50ef81d_17_CompareKernels_cu_8f1b29aa14CompareFunctorIlEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";
        let (action, form, kind) = (Action::Order, Form::Tensors, ScalarType::Long);
        let expected =
            Kernel { action, form, kind, casts: false, strided: true, to_halves: None, from: None };
        assert_eq!(of(strided), Some(expected));
        assert_eq!(
            of(&strided.replace("22gpu_kernel_impl_nocastI", "15gpu_kernel_implI")),
            Some(Kernel { casts: true, ..expected })
        );
        let of_floats = strided.replace("CompareFunctorIl", "CompareFunctorIf");
        assert_eq!(of(&of_floats), Some(Kernel { kind: ScalarType::Float, ..expected }));
        let of_halves = strided.replace("CompareFunctorIl", "CompareFunctorIN3c104HalfE");
        assert_eq!(of(&of_halves), Some(Kernel { kind: ScalarType::Half, ..expected }));
        let masked = "_ZN2at6native29vectorized_elementwise_kernelILi8EZZZNS0_44_GLOBAL__N__50c743a2_11_Indexing_cu_89862edb18masked_fill_kernelERNS_14TensorIteratorERKN3c106ScalarEENKUlvE_clEvENKUlvE10_clEvEUlNS5_8BFloat16EbE_St5arrayIPcLm3EEEEviT0_T1_";
        let found = of(masked).map(|it| (it.action, it.form, it.kind));
        assert_eq!(found, Some((Action::Copy, Form::Masked, ScalarType::Brain)));
        let choice = "_ZN2at6native29vectorized_elementwise_kernelILi2EZZZNS0_49_GLOBAL__N__d2ba64fb_16_TensorCompare_cu_71e06f4e17where_kernel_implERNS_14TensorIteratorEENKUlvE_clEvENKUlvE6_clEvEUlbllE_St5arrayIPcLm4EEEEviT0_T1_";
        let (action, form) = (Action::Copy, Form::Chosen);
        let expected = kernel(action, form, kind);
        assert_eq!(of(choice), Some(expected));
    }

    /// One whose operands lie one after the other and are of the type that is computed with.
    fn kernel(action: Action, form: Form, kind: ScalarType) -> Kernel {
        let (casts, strided) = (false, false);
        Kernel { action, form, kind, casts, strided, to_halves: None, from: None }
    }

    /// A launch over so many elements, with these words in the functor.
    fn launch(kernel: Kernel, count: i32, functor: &[u32], addresses: &[u64]) -> Launch {
        let functor: Vec<u8> = functor.iter().flat_map(|it| it.to_le_bytes()).collect();
        let addresses: Vec<u8> = addresses.iter().flat_map(|it| it.to_le_bytes()).collect();
        Launch::of(&[
            Made::Int(count),
            Made::Structure(kernel.functor_names()[0], &functor),
            Made::Structure("std::array<char*, 3ul>", &addresses),
        ])
    }

    #[test]
    fn a_copy_into_another_type_says_both() {
        let of = |types: &str| {
            let name = "_ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_27converting_copy_kernel_cuda@EEvRNS_18TensorIteratorBaseEEUlbE_St5arrayIPcLm2EELb0EEEviT0_T1_";
            let it = Kernel::of(name.replace('@', types).as_bytes())?;
            Some((it.from, it.kind, it.to_halves))
        };
        let (float, half) = (ScalarType::Float, ScalarType::Half);
        assert_eq!(of("Ibl"), Some((Some(ScalarType::Bool), ScalarType::Long, None)));
        assert_eq!(of("IN3c104HalfEf"), Some((Some(half), float, None)));
        assert_eq!(of("IfN3c104HalfE"), Some((None, float, Some(half))));
        assert_eq!(of("IN3c104HalfENS3_15Float8_e4m3fnuzE"), None);
    }

    #[test]
    fn a_choice_of_bytes_is_one_of_whole_numbers() {
        let name = "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_49_GLOBAL__N__037c6ad9_16_TensorCompare_cu_71e06f4e17where_kernel_implERNS_14TensorIteratorEENKUlvE_clEvENKUlvE2_clEvEUlbmmE_St5arrayIPcLm4EELb0EEEviT0_T1_";
        let found = Kernel::of(name.as_bytes()).map(|it| (it.form, it.kind));
        assert_eq!(found, Some((Form::Chosen, ScalarType::Long)));
    }

    #[test]
    fn what_nobody_knows_is_itself_and_finite() {
        let (form, kind) = (Form::Tensors, ScalarType::Float);
        let equal = Kernel {
            action: Action::Equal,
            form,
            kind,
            casts: false,
            strided: false,
            to_halves: None,
            from: None,
        };
        let run = |kernel: Kernel, functor: &[u32], addresses: [u64; 3]| {
            let launch = launch(kernel, 3, functor, &addresses);
            kernel.writes(launch.arguments(), (&|_, _| None, &|_, _| true), &|_| false).unwrap()
        };
        let known = |it: u8| vec![Write::Known(4096, vec![it; 3])];
        assert_eq!(run(equal, &[0], [4096, 8192, 8192]), known(1), "x == x");
        assert_eq!(run(equal, &[1], [4096, 8192, 8192]), known(0), "x != x: is it a NaN?");
        assert_eq!(run(equal, &[0], [4096, 8192, 12288]), [Write::Unknown(4096, 24)], "x == y");
        let scalar = Kernel { form: Form::ScalarLast, ..equal };
        let infinity = f32::INFINITY.to_bits();
        assert_eq!(run(scalar, &[1, infinity], [4096, 8192, 0]), known(1), "x != infinity");
        assert_eq!(run(scalar, &[1, 0], [4096, 8192, 0]), [Write::Unknown(4096, 24)], "x != 0");
    }

    #[test]
    fn one_number_can_decide_alone() {
        let run = |action: Action, kind: ScalarType, number: i64| {
            let one = kernel(action, Form::Tensors, kind);
            let launch = launch(one, 2, &[0], &[4096, 8192, 12288]);
            let known = |at: u64, size: usize| {
                let mut bytes = Vec::new();
                (0..size / kind.width()).for_each(|_| kind.write(number, &mut bytes));
                (at == 12288).then_some(bytes)
            };
            match one
                .writes(launch.arguments(), (&known, &|_, _| true), &|_| false)
                .unwrap()
                .as_slice()
            {
                [Write::Known(4096, it)] if is_test(action) => Some(ScalarType::Bool.read(it)),
                [Write::Known(4096, it)] => Some(kind.read(it)),
                _ => None,
            }
        };
        assert_eq!(run(Action::Or, ScalarType::Bool, 1), Some(1));
        assert_eq!(run(Action::Or, ScalarType::Bool, 0), None);
        assert_eq!(run(Action::Or, ScalarType::Long, -1), Some(-1));
        assert_eq!(run(Action::Or, ScalarType::Long, 1), None);
        assert_eq!(run(Action::And, ScalarType::Long, 0), Some(0));
        assert_eq!(run(Action::And, ScalarType::Bool, 1), None);
        assert_eq!(run(Action::LogicalOr, ScalarType::Int, 7), Some(1));
        assert_eq!(run(Action::LogicalAnd, ScalarType::Int, 0), Some(0));
        assert_eq!(run(Action::Multiply, ScalarType::Long, 0), Some(0));
        assert_eq!(
            run(Action::Multiply, ScalarType::Float, 0),
            None,
            "zero times infinity is none"
        );
        assert_eq!(run(Action::Add, ScalarType::Long, 0), None);
    }

    /// Fills so many numbers at 4096 with seven.
    fn fill(kind: ScalarType, count: i32) -> Vec<Write> {
        let fill = kernel(Action::Fill, Form::Alone, kind);
        let value = if kind == ScalarType::Int { 7 } else { 7_f32.to_bits() };
        let launch = launch(fill, count, &[value], &[4096]);
        fill.writes(launch.arguments(), (&|_, _| None, &|_, _| true), &|_| false).unwrap()
    }

    #[test]
    fn a_fill_is_known_and_one_of_too_many_floats_is_not() {
        assert_eq!(fill(ScalarType::Int, 2), [Write::Known(4096, vec![7, 0, 0, 0, 7, 0, 0, 0])]);
        let seven = Element::of(&[7, 0, 0, 0]).unwrap();
        assert_eq!(
            fill(ScalarType::Int, 5000),
            [Write::Same { at: 4096, element: seven, size: 20_000, is_pattern: false }]
        );
        assert_eq!(fill(ScalarType::Float, 20_000_000), [Write::Unknown(4096, 160_000_000)]);
    }

    #[test]
    fn a_sum_of_two_that_are_one_number_throughout_is_one() {
        let add = kernel(Action::Add, Form::Tensors, ScalarType::Float);
        let launch = launch(add, 2000, &[1_f32.to_bits()], &[4096, 1 << 20, 2 << 20]);
        let run = |last: f32| {
            let known = |at: u64, size: usize| {
                let number: f32 = if at == 1 << 20 { 1.5 } else { 2.0 };
                let mut bytes = number.to_le_bytes().repeat(size / 4);
                bytes[size - 4..].copy_from_slice(&last.to_le_bytes());
                Some(if at == 1 << 20 { number.to_le_bytes().repeat(size / 4) } else { bytes })
            };
            add.writes(launch.arguments(), (&known, &|_, _| true), &|_| false).unwrap()
        };
        let sum = Element::of(&3.5_f32.to_le_bytes()).unwrap();
        assert_eq!(
            run(2.0),
            [Write::Same { at: 4096, element: sum, size: 8000, is_pattern: false }]
        );
        let [Write::Known(4096, bytes)] = &run(4.0)[..] else { panic!("{:?}", run(4.0)) };
        assert_eq!(bytes[7992..], [3.5_f32.to_le_bytes(), 5.5_f32.to_le_bytes()].concat());
    }

    #[test]
    fn what_is_known_is_not_read_beside_what_is_not() {
        let larger = kernel(Action::Largest, Form::Tensors, ScalarType::Float);
        let launch = launch(larger, 2000, &[], &[4096, 1 << 20, 2 << 20]);
        let most = std::cell::Cell::new(0);
        let known = |at: u64, size: usize| {
            most.set(most.get().max(size));
            (at < 2 << 20).then(|| vec![0; size])
        };
        let writes = larger.writes(launch.arguments(), (&known, &|_, _| true), &|_| false).unwrap();
        assert_eq!((writes, most.get()), (vec![Write::Unknown(4096, 16_000)], 4));
    }

    #[test]
    fn what_a_program_sets_stays_beside_what_nobody_knows() {
        let float = |it: f32| it.to_le_bytes().to_vec();
        let runs = |action: Action, form: Form, functor: &[u32], operands: &[&[Option<f32>]]| {
            let one = kernel(action, form, ScalarType::Float);
            let addresses: Vec<u64> = (1..=1 + wide(operands.len())).map(|it| it << 20).collect();
            let is_mask =
                |i: usize| (form, i) == (Form::Masked, 1) || (form, i) == (Form::Chosen, 0);
            let known = |at: u64, size: usize| -> Option<Vec<u8>> {
                let i = usize::try_from((at >> 20) - 2).ok()?;
                let width = if is_mask(i) { 1 } else { 4 };
                let begin = usize::try_from(at & 0xf_ffff).ok()? / width;
                let bytes = |it: &Option<f32>| {
                    it.map(|it| if is_mask(i) { vec![u8::from(it != 0.0)] } else { float(it) })
                };
                let all: Option<Vec<Vec<u8>>> =
                    operands[i].get(begin..begin + size / width)?.iter().map(bytes).collect();
                Some(all?.concat())
            };
            let launch = launch(one, 4, functor, &addresses);
            let writes = one.writes(launch.arguments(), (&known, &|_, _| true), &|_| false);
            let known = |it: &Write| match it {
                Write::Known(at, bytes) => Some((
                    (at - (1 << 20)) / 4,
                    f32::from_le_bytes(bytes[..4].try_into().unwrap()),
                    bytes.len() / 4,
                )),
                _ => None,
            };
            writes.unwrap().iter().filter_map(known).collect::<Vec<_>>()
        };
        let unknown = [None; 4];
        let mask = [Some(0.0), Some(0.0), Some(1.0), Some(0.0)];
        let multiplied = runs(Action::Multiply, Form::Tensors, &[], &[&unknown, &mask]);
        assert_eq!(multiplied, [(0, 0.0, 2), (3, 0.0, 1)], "scores * mask");
        let infinity = f32::NEG_INFINITY;
        let added = [None, Some(infinity), Some(-1e9), Some(-3.0)];
        let added = runs(Action::Add, Form::Tensors, &[1_f32.to_bits()], &[&unknown, &added]);
        assert_eq!(added, [(1, infinity, 2)], "scores + bias");
        let scores = [None, Some(-7.0), Some(5.0), None];
        let filled = runs(Action::Copy, Form::Masked, &[infinity.to_bits()], &[&scores, &mask]);
        assert_eq!(filled, [(1, -7.0, 2)], "masked_fill of what is known in part");
        let others = [Some(0.0); 4];
        let chosen = runs(Action::Copy, Form::Chosen, &[], &[&mask, &unknown, &others]);
        assert_eq!(chosen, [(0, 0.0, 2), (3, 0.0, 1)], "where(mask, scores, 0)");
    }

    #[test]
    fn what_is_large_is_computed_where_it_is_read() {
        let mut contents = Contents::default();
        crate::memory::writes::take(&mut contents, fill(ScalarType::Int, 80_000_000), None);
        assert_eq!(contents.known(4098, 4), Some(vec![0, 0, 7, 0]), "from within an element");
        assert_eq!(contents.known(4096 + 320_000_000 - 4, 8), None, "beyond its end");
        // `x + 1`, element by element, which takes the place of what it is made of.
        let add = kernel(Action::Add, Form::ScalarLast, ScalarType::Int);
        let run = |contents: &mut Contents, to: u64| {
            let launch = launch(add, 10_000_000, &[1, 1], &[to, 4096]);
            let writes = add.writes(
                launch.arguments(),
                (&|at, size| contents.known(at, size), &|_, _| true),
                &|_| false,
            );
            let writes = writes.unwrap();
            crate::memory::writes::take(contents, writes, None);
        };
        run(&mut contents, 4096);
        contents.write_computed(8192, &[1; 4]);
        let here = |contents: &Contents, at: u64| contents.known(at, 1).map(|it| it[0]);
        let places = [4096, 8188, 8192, 8196, 4096 + 40_000_000];
        assert_eq!(places.map(|it| here(&contents, it)), [8, 8, 1, 8, 7].map(Some));
        run(&mut contents, 1 << 30);
        assert_eq!(here(&contents, (1 << 30) + 4096), Some(2), "of a number that was put there");
        let all = contents.known(4096, 320_000_000);
        assert!(all.is_none(), "more than are computed at once");
        for _ in 0..20 {
            run(&mut contents, 4096);
        }
        assert_eq!(here(&contents, 4096), None, "made in more steps than are followed");
    }
}
