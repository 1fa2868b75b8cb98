//! Reductions of known numbers and truth values, over all elements or some dimensions: `mask.all()`,
//! `(labels >= 0).sum(-1)`. As with `integers`, what is not known in full stays unknown.

use std::collections::BTreeSet;
use std::ffi::CStr;

use crate::arguments::{Arguments, Bytes, Structure};
use crate::guesses::choices::{self, Choices};
use crate::guesses::remarks::Remarks;
use crate::memory::writes::Write;
use crate::memory::{Known, KnowsAny, known_among};
use crate::names::{self, has, position};
use crate::numbers::arithmetic::{Action, apply};
use crate::numbers::offsets::Offsets;
use crate::types::{ScalarType, as_f64, element_after};

/// What a reduction does, to which elements, and the type of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    way: Way,
    element: ScalarType,
    /// What elements are added up as: halves as floats.
    sum: ScalarType,
    out: ScalarType,
    /// Elements are floats of 16 bits, which are not followed here; but which of them is the best can be chosen.
    halves: Option<ScalarType>,
}

/// How elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Two become one in this way, and so on.
    Fold(Action),
    /// `MeanOps`: the sum, times a factor.
    Mean,
    /// `MaxOps` and `MinOps`, of `max(dim)`: the one that is beyond all, and its place.
    Extreme(Action),
    /// `ArgMaxOps` and `ArgMinOps`: its place.
    Place(Action),
    /// A product, by a kernel that PyTorch makes at run time (`ReduceJitOp`): of numbers whose type its first one tells.
    Product,
}

/// The name of such a kernel.
pub(crate) const PRODUCT: &CStr = c"reduction_prod_kernel";
/// Its one parameter (`aten/src/ATen/native/cuda/reduction_template.cuh`), which its name does not say: it is a C function.
pub(crate) const JIT: &str = "ReduceJitOp";

/// Elements that are reduced at most, and results.
const MOST: usize = 1 << 24;
const MOST_RESULTS: usize = 1 << 20;

impl Summary {
    /// That of the kernel of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Summary> {
        if name == PRODUCT.to_bytes() {
            let (way, element) = (Way::Product, ScalarType::Float);
            return Some(Summary { way, element, sum: element, out: element, halves: None });
        }
        let (_, way) = [
            (names::AND, Way::Fold(Action::LogicalAnd)),
            (names::OR, Way::Fold(Action::LogicalOr)),
            (names::MAX_NAN, Way::Fold(Action::Largest)),
            (names::MIN_NAN, Way::Fold(Action::Smallest)),
            (names::SUM_FUNCTOR, Way::Fold(Action::Add)),
            (names::PROD_FUNCTOR, Way::Fold(Action::Multiply)),
            (names::MEAN_FLOAT, Way::Mean),
            (names::MEAN_DOUBLE, Way::Mean),
            (names::ARG_MAX_OPS, Way::Place(Action::Largest)),
            (names::ARG_MIN_OPS, Way::Place(Action::Smallest)),
            (names::MAX_OPS, Way::Extreme(Action::Largest)),
            (names::MIN_OPS, Way::Extreme(Action::Smallest)),
        ]
        .into_iter()
        .find(|it| has(name, it.0))?;
        let halves = match way {
            Way::Place(_) | Way::Extreme(_) if has(name, names::REDUCE_OP_HALF) => {
                Some(ScalarType::Half)
            }
            Way::Place(_) | Way::Extreme(_) if has(name, names::REDUCE_OP_BRAIN) => {
                Some(ScalarType::Brain)
            }
            _ => None,
        };
        // As wide as a half.
        let other = halves.map(|_| ScalarType::Short);
        let element = other.or_else(|| element_after(name, names::REDUCE_OP))?;
        let sum = match way {
            Way::Fold(Action::Add) => element.working(),
            // Since torch 2.15 they become truth values first, and then one.
            Way::Fold(Action::LogicalAnd | Action::LogicalOr) if has(name, names::INTO_BOOL) => {
                ScalarType::Bool
            }
            _ => element,
        };
        // The operation ends with `E`, then come the type of the index (j or m) and that of the result.
        let tail = position(name, b"Li4ELi4E").or_else(|| position(name, b"Li4E"))?;
        let letter = *name.get(tail.checked_sub(1)?)?;
        // A half was named before.
        let half = (letter == b'_' && element.working() != element).then_some(element);
        let out = ScalarType::of_letter(letter)
            .or_else(|| ScalarType::of_float(letter))
            .or(other)
            .or(half)?;
        Some(Summary { way, element, sum, out, halves })
    }

    /// What it writes. Its one argument is a `ReduceOp`.
    pub(crate) fn writes(
        self,
        arguments: Arguments<'_>,
        (known, knows_any): (Known<'_>, KnowsAny<'_>),
        (choices, remarks): (&mut Choices, &mut Remarks),
    ) -> Option<Vec<Write>> {
        if self.way == Way::Product {
            // One, and the configuration behind it, which begins with the width.
            let kind = [
                (ScalarType::Float, 1.0_f32.to_bits().into()),
                (ScalarType::Double, 1.0_f64.to_bits()),
                (ScalarType::Long, 1),
            ];
            let begin = arguments.structure(0, Structure { named: &[JIT], size: 16 })?;
            let is = |&(kind, one): &(ScalarType, u64)| {
                let first =
                    if kind.width() == 4 { begin.u32(0).map(u64::from) } else { begin.u64(0) };
                let width = begin.u32(kind.width()).and_then(|it| usize::try_from(it).ok());
                first == Some(one) && width == Some(kind.width())
            };
            let Some((kind, _)) = kind.into_iter().find(is) else { return Some(Vec::new()) };
            let way = Way::Fold(Action::Multiply);
            let it = Summary { way, element: kind, sum: kind, out: kind, halves: None };
            let layout = ReduceOp::behind(kind.width());
            let operation = arguments.structure(0, layout.structure())?;
            return it.reduced(layout, operation, (known, knows_any), (choices, remarks));
        }
        let layout = match self.way {
            Way::Fold(_) | Way::Mean | Way::Product => ReduceOp::of(self.sum.width()),
            Way::Extreme(_) | Way::Place(_) => ReduceOp::with_places(),
        };
        let operation = arguments.structure(0, layout.structure())?;
        self.reduced(layout, operation, (known, knows_any), (choices, remarks))
    }

    /// Likewise, of an `operation` that is laid out so.
    fn reduced(
        self,
        layout: ReduceOp,
        operation: Bytes<'_>,
        (known, knows_any): (Known<'_>, KnowsAny<'_>),
        (choices, remarks): (&mut Choices, &mut Remarks),
    ) -> Option<Vec<Write>> {
        let width = self.element.width();
        // An element and its place go together.
        let are_places = matches!(self.way, Way::Extreme(_) | Way::Place(_));
        let expected = if are_places { 16 } else { self.sum.width() };
        let number = |at: usize| operation.u32(at);
        let (source, targets) = (
            operation.u64(layout.source)?,
            [operation.u64(layout.target)?, operation.u64(layout.target + 8)?],
        );
        let reduced = || {
            let config =
                |at: usize| Some(usize::try_from(number(layout.config + at)?).unwrap_or(0));
            let (element_size, inputs, outputs) = (config(0)?, config(4)?, config(8)?);
            let all = inputs.checked_mul(outputs).filter(|it| (1..=MOST).contains(it));
            let followed =
                element_size == expected && outputs <= MOST_RESULTS && self.halves.is_none();
            all.filter(|_| followed)?;
            // All that is reduced, read at once.
            let along = usize::try_from(layout.input.of(inputs - 1, number)?[0]).ok()?;
            let across = usize::try_from(layout.output.of(outputs - 1, number)?[1]).ok()?;
            let span = known(source, along + across + width)?;
            let mut places = Vec::with_capacity(inputs);
            for [offset, ..] in layout.input.walk(inputs, number)? {
                places.push(usize::try_from(offset).ok()?);
            }
            // The operation, which comes first, is a factor.
            let factor = match self.way {
                Way::Mean => Some(operation.element(0, self.element)?),
                _ => None,
            };
            let mut results = [Runs::default(), Runs::default()];
            for [to, first, ..] in layout.output.walk(outputs, number)? {
                let first = usize::try_from(first).ok()?;
                let numbers = places.iter().map(|place| {
                    let number = self.element.read(&span[first + place..]);
                    match self.sum {
                        ScalarType::Bool if self.element.is_whole() => i64::from(number != 0),
                        ScalarType::Bool => self.element.into(ScalarType::Bool, number),
                        _ => number,
                    }
                });
                let (value, place) = self.summary(numbers, factor)?;
                match self.way {
                    Way::Fold(_) | Way::Mean | Way::Product => {
                        results[0].add(to, self.out, self.sum.into(self.out, value));
                    }
                    Way::Place(_) => results[0].add(to, self.out, place),
                    Way::Extreme(_) => {
                        results[0].add(to, self.out, value);
                        let wide = u64::try_from(self.out.width()).ok()?;
                        results[1].add(to / wide * 8, ScalarType::Long, place);
                    }
                }
            }
            let writes = |(it, from): (Runs, u64)| {
                it.0.into_iter().map(move |(to, bytes)| Write::Known(from + to, bytes))
            };
            Some(results.into_iter().zip(targets).flat_map(writes).collect())
        };
        let out = || self.out(&layout, source, number, (known, knows_any));
        let writes =
            reduced().or_else(|| self.chosen(&layout, number, targets, out, (choices, remarks)));
        // What was there before is not there any more.
        Some(writes.unwrap_or_else(|| vec![Write::Unknown(targets[0], u64::MAX)]))
    }

    /// Which is the best of several that nobody knows: the expert that a router of one sends a token to, a class, the next
    /// word.
    fn chosen(
        self,
        layout: &ReduceOp,
        number: impl Fn(usize) -> Option<u32>,
        targets: [u64; 2],
        out: impl FnOnce() -> Option<Vec<BTreeSet<u64>>>,
        (choices, remarks): (&mut Choices, &mut Remarks),
    ) -> Option<Vec<Write>> {
        // One row, or a few, of very few are a choice that a program goes by; more than these are words of which one is drawn.
        const FEWEST_ROWS: u32 = 16;
        const VERY_FEW: u32 = 32;
        let to = match self.way {
            Way::Place(_) => targets[0],
            Way::Extreme(_) => targets[1],
            Way::Fold(_) | Way::Mean | Way::Product => return None,
        };
        let (inputs, outputs) = (number(layout.config + 4)?, number(layout.config + 8)?);
        let are_few = u64::from(inputs) <= choices::FEW;
        let is_choice = inputs < VERY_FEW && outputs < FEWEST_ROWS;
        if inputs < 2 || self.element.is_whole() && self.halves.is_none() {
            return None;
        }
        let out = out().unwrap_or_default();
        if is_choice && out.is_empty() {
            return None;
        }
        let sizes = (inputs.into(), 1, outputs.into());
        let choice = choices.choose(sizes, &out).filter(|_| to != 0)?;
        // Places lie as results do.
        let last = layout.output.of(usize::try_from(outputs).ok()? - 1, &number)?[0];
        let width = u64::try_from(self.out.width()).ok()?;
        (last == width * u64::from(outputs - 1)).then_some(())?;
        if are_few && FEWEST_ROWS <= outputs {
            remarks.assume("plimsoll answered argmax() and max() with evenly spaced indices");
        } else {
            remarks.approximate(
                "argmax() and max() of many values are random on a phantom and never find the end-of-text token, so generation runs to its full length",
            );
        }
        Some(vec![Write::Chosen(to, choice)])
    }

    /// Of each row, the places whose numbers are known and are not the best; none if no row has any.
    fn out(
        self,
        layout: &ReduceOp,
        source: u64,
        number: impl Fn(usize) -> Option<u32>,
        (known, knows_any): (Known<'_>, KnowsAny<'_>),
    ) -> Option<Vec<BTreeSet<u64>>> {
        const MOST: usize = 1 << 14;
        /// Where those of which nothing is known are passed over.
        const MOST_IN_ORDER: usize = 1 << 20;
        let (Way::Place(action) | Way::Extreme(action)) = self.way else { return None };
        let inputs = usize::try_from(number(layout.config + 4)?).ok()?;
        let outputs = usize::try_from(number(layout.config + 8)?).ok()?;
        let all = inputs.checked_mul(outputs).filter(|it| *it <= MOST_IN_ORDER)?;
        let element = self.halves.unwrap_or(self.element);
        if element.is_whole() {
            return None;
        }
        let places: Vec<u64> =
            layout.input.walk(inputs, &number)?.map(|[offset, ..]| offset).collect();
        let width = element.width();
        let is_out =
            |it: &[u8]| choices::is_out(as_f64(element.read(it)), action == Action::Largest);
        let is_in_order =
            (0..).step_by(width).zip(&places).all(|(at, place): (u64, _)| at == *place);
        if !is_in_order && MOST < all {
            return None;
        }
        let of_row = |first: u64| -> BTreeSet<u64> {
            let at = source + first;
            if is_in_order {
                let found = known_among(at, (inputs, width), known, knows_any);
                let found = found.filter(|(_, it)| is_out(it));
                return found.filter_map(|(place, _)| u64::try_from(place).ok()).collect();
            }
            let offsets = (0..).zip(&places);
            let found =
                offsets.filter(|(_, it)| known(at + **it, width).is_some_and(|it| is_out(&it)));
            found.map(|(place, _)| place).collect()
        };
        let rows: Vec<BTreeSet<u64>> =
            layout.output.walk(outputs, &number)?.map(|[_, first, ..]| of_row(first)).collect();
        rows.iter().any(|it| !it.is_empty()).then_some(rows)
    }

    /// What these become, and the place of the one that is it.
    fn summary(
        self,
        mut numbers: impl Iterator<Item = i64>,
        factor: Option<i64>,
    ) -> Option<(i64, i64)> {
        let kind = self.sum;
        let one = ScalarType::Long.into(kind, 1);
        let first = numbers.next()?;
        match self.way {
            Way::Fold(action) => {
                let total = numbers.try_fold(first, |a, b| apply(action, kind, one, a, b))?;
                Some((total, 0))
            }
            Way::Mean => {
                let add = |a, b| apply(Action::Add, kind, one, a, b);
                let total = numbers.try_fold(first, add)?;
                Some((apply(Action::Multiply, kind, one, total, factor?)?, 0))
            }
            Way::Product => None,
            Way::Extreme(action) | Way::Place(action) => {
                let mut found = (first, 0);
                for (value, place) in numbers.zip(1..) {
                    let best = apply(action, kind, one, found.0, value)?;
                    if best != found.0 {
                        found = (best, place);
                    }
                }
                Some(found)
            }
        }
    }
}

/// Results, in pieces that lie one after the other.
#[derive(Default)]
struct Runs(Vec<(u64, Vec<u8>)>);

impl Runs {
    fn add(&mut self, to: u64, kind: ScalarType, value: i64) {
        let end = |it: &(u64, Vec<u8>)| it.0 + u64::try_from(it.1.len()).unwrap_or(u64::MAX);
        if self.0.last().map(end) != Some(to) {
            self.0.push((to, Vec::new()));
        }
        if let Some((_, bytes)) = self.0.last_mut() {
            kind.write(value, bytes);
        }
    }
}

/// Where the truth values are that a reduction reads, of a `reduce_kernel` over elements of one byte.
pub(crate) fn source(arguments: Arguments<'_>) -> Option<u64> {
    let layout = ReduceOp::of(1);
    arguments.structure(0, layout.structure())?.u64(layout.source)
}

/// Where the results of a sum of whole numbers of 64 bits go, and how many are added up in each.
pub(crate) fn tally(arguments: Arguments<'_>) -> Option<(u64, i64)> {
    let layout = ReduceOp::of(ScalarType::Long.width());
    let operation = arguments.structure(0, layout.structure())?;
    Some((operation.u64(layout.target)?, operation.u32(layout.config + 4)?.into()))
}

/// Where `ReduceOp` has what, for an operation without state, the four-byte index and PyTorch's 25
/// dimensions: `{ ops, ident, ReduceConfig config, OffsetCalculator<1> input, OffsetCalculator<2>
/// output, const void *src, char *dst[2], ... }`.
struct ReduceOp {
    /// `{ int element_size_bytes, num_inputs, num_outputs, ... }`
    config: usize,
    /// Where an element of one result lies: the dimensions that are reduced.
    input: Offsets,
    /// Where a result goes, and where its first element lies.
    output: Offsets,
    source: usize,
    target: usize,
}

impl ReduceOp {
    /// For elements of `width` bytes: so wide, and so aligned, is `ident`.
    fn of(width: usize) -> Self {
        Self::behind((2 * width).next_multiple_of(4))
    }

    /// Where `ident` is an element and its place, aligned and as wide as two places.
    fn with_places() -> Self {
        Self::behind(8 + 16)
    }

    /// All of it that is read. The real one has an accumulation buffer and more behind the results.
    fn structure(&self) -> Structure<'static> {
        Structure { named: &["at::native::ReduceOp<", JIT], size: self.target + 16 }
    }

    /// For one whose operation and `ident` end there.
    fn behind(config: usize) -> Self {
        let input = Offsets { at: config + 16 * 4, tensors: 1 };
        let output = Offsets { at: input.end(), tensors: 2 };
        let source = output.end().next_multiple_of(8);
        Self { config, input, output, source, target: source + 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_are_told_by_their_mangled_names() {
        let largest = b"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIlNS0_14func_wrapper_tIlNS0_13MaxNanFunctorIlEEEEjlLi4ELi4EEEEEvT1_";
        let way = Way::Fold(Action::Largest);
        let (element, sum) = (ScalarType::Long, ScalarType::Long);
        let expected = Summary { way, element, sum, out: ScalarType::Long, halves: None };
        assert_eq!(Summary::of(largest), Some(expected));
        let place = b"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_9ArgMaxOpsIfEEjlLi4ELi4EEEEEvT1_";
        let way = Way::Place(Action::Largest);
        let (element, sum) = (ScalarType::Float, ScalarType::Float);
        let expected = Summary { way, element, sum, out: ScalarType::Long, halves: None };
        assert_eq!(Summary::of(place), Some(expected));
        let of_halves = b"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIN3c108BFloat16ENS0_9ArgMaxOpsIfEEjlLi4ELi4EEEEEvT1_";
        let (element, sum) = (ScalarType::Short, ScalarType::Short);
        let expected = Summary { element, sum, halves: Some(ScalarType::Brain), ..expected };
        assert_eq!(Summary::of(of_halves), Some(expected));
    }

    #[test]
    fn the_first_of_equals_is_the_largest() {
        let way = Way::Extreme(Action::Largest);
        let (element, out) = (ScalarType::Int, ScalarType::Int);
        let largest = Summary { way, element, sum: element, out, halves: None };
        assert_eq!(largest.summary([3, 7, 5, 7].into_iter(), None), Some((7, 1)));
        let way = Way::Mean;
        let (element, out) = (ScalarType::Float, ScalarType::Float);
        let mean = Summary { way, element, sum: element, out, halves: None };
        let float = |it: f64| ScalarType::Float.of_f64(it);
        let of = mean.summary([1.0, 2.0, 6.0].map(float).into_iter(), Some(float(0.5)));
        assert_eq!(of, Some((float(4.5), 0)));
    }
}
