//! What a program asks of the device, and what it is told where nobody knows. Nothing runs, so nothing is kept of the last
//! kernels but what decides a value that programs steer by: a test whether all elements hold (`mask.all()`) or two numbers are
//! equal (`mask.sum() == mask.numel()`), read back at once. A program tests to have confirmed what it expects (no padding,
//! positions without gaps), so the answer is yes, where every other unknown value is zero; the report says so. Unless a mask with
//! padding is on the device: then the test is most likely about it, and the answer no. A test against zero ("is there nothing?")
//! is answered with no, and one of a known number truly. Likewise of rows: `(x == 0).sum(-1) != x.shape[-1]`, of floats that nobody
//! knows, chooses all of them, since none is nothing but padding.
//!
//! The other values that decide shapes are in `count`: how many elements `nonzero()` found.

use crate::arguments::{Arguments, Structure};
use crate::guesses::remarks::Remarks;
use crate::guesses::{Guesses, OfThread, descent, overflow};
use crate::kernels::{count, reduce};
use crate::memory::Memory;
use crate::memory::contents::Contents;
use crate::names::{self, has};
use crate::types::{ScalarType, as_f64, element_after, letter_after};

/// What a kernel is for, of those that we tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `at::native::and_kernel_cuda`: a reduction with "and".
    All,
    /// `at::native::CompareEqFunctor` of a 64-bit integer and a scalar, element by element.
    Equal,
    /// A count, or what one is made of.
    Counts(count::Kernel),
    /// Part of a gradient scaler.
    Scales(overflow::Kernel),
    /// A reduction of whole numbers.
    Whole,
    /// A comparison of floats, element by element; and what a descent has to say of it.
    Measures(Option<descent::Kernel>),
    /// `CompareEqFunctor` of floats and a scalar, of elements that lie one after the other.
    Matches(ScalarType),
    /// `a & b` of truth values.
    Joins,
    /// `at::native::or_kernel_cuda`: a reduction with "or".
    Any,
    /// A copy, perhaps to another type.
    Copies,
}

/// What was just asked of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// Whether all truth values from this address on hold.
    All {
        operand: u64,
    },
    /// Whether the number at `operand` on the device is `scalar`; or is not, if `negated`.
    Equal {
        operand: u64,
        scalar: i64,
        negated: bool,
    },
    Count(count::Count),
    /// A whole number that nobody knows.
    Whole,
    /// Something whose answer is clear already.
    Answered(bool),
    /// How floats compare with others.
    Measured,
    /// Which floats are zero,
    Zeros {
        are_counted: bool,
    },
    /// and how many of so many for each of several, at this address.
    Tally {
        at: u64,
        of: i64,
    },
    /// Whether that holds for all of them.
    Holds,
    /// Whether any holds, of truth values that nobody knows.
    Any,
}

/// What a kernel of this (mangled) name is for.
pub(crate) fn purpose_of(name: &[u8]) -> Option<Purpose> {
    let has = |part: &[u8]| has(name, part);
    let in_order = || has(names::VECTORIZED_ELEMENTWISE) || has(names::LOAD_WITHOUT_CAST);
    if has(names::AND) && has(names::REDUCE_KERNEL) {
        Some(Purpose::All)
    } else if has(names::OR) && has(names::REDUCE_KERNEL) {
        Some(Purpose::Any)
    } else if has(names::DIRECT_COPY) {
        Some(Purpose::Copies)
    } else if has(names::COMPARE_EQ_LONG) && has(names::ANY_UNARY_FUNCTOR) && in_order() {
        Some(Purpose::Equal)
    } else if measures(name) {
        let of_descent = descent::Kernel::of(name);
        let with_scalar = has(names::COMPARE_EQ) && has(names::ANY_UNARY_FUNCTOR) && in_order();
        let element = || element_after(name, names::ANY_UNARY_FUNCTOR);
        let matches = (with_scalar && of_descent.is_none()).then(element).flatten();
        Some(matches.map_or(Purpose::Measures(of_descent), Purpose::Matches))
    } else if has(names::BITWISE_AND_BOOL) {
        Some(Purpose::Joins)
    } else {
        let whole = || {
            let of_whole_numbers = letter_after(name, names::REDUCE_OP).is_some();
            of_whole_numbers.then_some(Purpose::Whole)
        };
        let scales = || overflow::Kernel::of(name).map(Purpose::Scales);
        count::Kernel::of(name).map(Purpose::Counts).or_else(scales).or_else(whole)
    }
}

/// Whether a kernel of this (mangled) name compares floats, element by element.
fn measures(name: &[u8]) -> bool {
    const PARTS: [&[u8]; 3] = [names::COMPARE_EQ, names::COMPARE, names::COMPARE_SCALAR];
    let of_floats = |part: &[u8]| has(name, part) && letter_after(name, part).is_none();
    PARTS.iter().any(|it| of_floats(it))
}

/// A kernel for that was launched. `None` of `arguments` if it was launched without, or with others than it should have.
pub(crate) fn launched(
    purpose: Option<Purpose>,
    asked: &mut Option<Asked>,
    arguments: Option<Arguments<'_>>,
    memory: &mut dyn Memory,
    guesses: &mut Guesses,
    thread: &OfThread,
) {
    let zeros = match *asked {
        Some(Asked::Zeros { are_counted }) => Some(are_counted),
        _ => None,
    };
    let is_measured = matches!(asked, Some(Asked::Measured)) || zeros == Some(false);
    *asked = match purpose {
        Some(Purpose::All) if is_measured => Some(Asked::Holds),
        Some(Purpose::Measures(of_descent)) => {
            let compared = of_descent.zip(arguments);
            let answer = compared.and_then(|(it, with)| it.launched(thread.descent, with));
            Some(answer.map_or(Asked::Measured, Asked::Answered))
        }
        Some(Purpose::Matches(kind)) => {
            let is_zero = arguments.and_then(|it| is_zero(kind, it)).unwrap_or(false);
            Some(if is_zero { Asked::Zeros { are_counted: false } } else { Asked::Measured })
        }
        // Truth values become numbers, to be added up.
        Some(Purpose::Copies) if zeros.is_some() => Some(Asked::Zeros { are_counted: true }),
        Some(Purpose::Whole) if zeros.is_some() => {
            let tally = arguments.and_then(reduce::tally);
            Some(tally.map_or(Asked::Whole, |(at, of)| Asked::Tally { at, of }))
        }
        // `(low <= x) & (x <= high)`.
        Some(Purpose::Joins) if is_measured => return,
        // `found.any().float()`, which ranks add up before they ask.
        Some(Purpose::Copies) if matches!(asked, Some(Asked::Any)) => return,
        Some(Purpose::Any) => Some(Asked::Any),
        Some(Purpose::All) => {
            let operand = arguments.and_then(reduce::source).unwrap_or(0);
            Some(Asked::All { operand })
        }
        Some(Purpose::Whole) => Some(Asked::Whole),
        Some(Purpose::Equal) => arguments.and_then(Comparison::of).and_then(|it| match *asked {
            Some(Asked::Tally { at, of })
                if (it.operand, it.scalar) == (at, of)
                    && guesses.settings.nonzero_millionths.is_none() =>
            {
                it.finds_no_padding(memory, &mut guesses.remarks)
            }
            _ => it.asks(memory),
        }),
        Some(Purpose::Counts(kernel)) => {
            match arguments.and_then(|it| kernel.launched(it, memory, guesses)) {
                Some(count::Launched::Asks(count)) => Some(Asked::Count(count)),
                // The second half of a reduction: what was asked is asked still.
                Some(count::Launched::Continues) => return,
                Some(count::Launched::Nothing) | None => None,
            }
        }
        Some(Purpose::Scales(kernel)) => {
            let Guesses { settings, remarks, scalers, .. } = guesses;
            arguments.and_then(|it| kernel.launched(scalers, settings, remarks, it, memory));
            None
        }
        Some(Purpose::Joins | Purpose::Copies) | None => None,
    };
}

/// Whether the arguments of a kernel for that can be read.
#[cfg(test)]
pub(crate) fn is_readable(purpose: Purpose, arguments: Arguments<'_>) -> bool {
    let (mut contents, mut guesses) = (Contents::default(), Guesses::new(<_>::default()));
    match purpose {
        Purpose::All => reduce::source(arguments).is_some(),
        Purpose::Equal => Comparison::of(arguments).is_some(),
        Purpose::Counts(it) => it.launched(arguments, &mut contents, &mut guesses).is_some(),
        Purpose::Scales(it) => {
            let Guesses { settings, remarks, scalers, .. } = &mut guesses;
            it.launched(scalers, settings, remarks, arguments, &mut contents).is_some()
        }
        Purpose::Matches(kind) => is_zero(kind, arguments).is_some(),
        Purpose::Whole | Purpose::Measures(_) | Purpose::Joins | Purpose::Any | Purpose::Copies => {
            true
        }
    }
}

/// Whether the scalar is zero that floats of this type are compared with.
fn is_zero(kind: ScalarType, arguments: Arguments<'_>) -> Option<bool> {
    // `EqOpType`, then the scalar.
    let at = kind.width().max(4);
    let functor = Structure { named: &["::CompareEqFunctor<"], size: at + kind.width() };
    let scalar = arguments.structure(1, functor)?.element(at, kind)?;
    Some(as_f64(scalar) == 0.0)
}

/// A comparison with a number, element by element.
struct Comparison {
    count: i64,
    result: u64,
    operand: u64,
    scalar: i64,
    negated: bool,
}

impl Comparison {
    /// That of a `vectorized_elementwise_kernel` or an `unrolled_elementwise_kernel` (which takes operands whose addresses are
    /// not aligned) over an `AUnaryFunctor` or `BUnaryFunctor` of a `CompareEqFunctor<int64_t>`. Its arguments are how many
    /// elements, the functor (`EqOpType`, then the scalar), and the addresses of result and operand.
    fn of(arguments: Arguments<'_>) -> Option<Comparison> {
        let functor = Structure { named: &["::CompareEqFunctor<long>"], size: 16 };
        let addresses = Structure { named: &["rray<char*, "], size: 16 };
        let (functor, addresses) =
            (arguments.structure(1, functor)?, arguments.structure(2, addresses)?);
        Some(Comparison {
            count: arguments.whole(0)?,
            result: addresses.u64(0)?,
            operand: addresses.u64(8)?,
            scalar: functor.i64(8)?,
            negated: functor.u32(0)? != 0,
        })
    }

    /// What it asks, if it is of one element; of more, those whose operand is known have a known result.
    fn asks(self, memory: &mut dyn Memory) -> Option<Asked> {
        let Comparison { count, result, operand, scalar, negated } = self;
        if count != 1 {
            let count = u64::try_from(count).unwrap_or(0);
            count::compare(memory, (result, operand), count, scalar, negated);
            return None;
        }
        Some(Asked::Equal { operand, scalar, negated })
    }

    /// Whether all numbers of a row are zero, of rows that nobody knows: none is.
    fn finds_no_padding(self, memory: &mut dyn Memory, remarks: &mut Remarks) -> Option<Asked> {
        const MOST: usize = 1 << 20;
        let Comparison { count, result, negated, .. } = self;
        let count = usize::try_from(count).ok().filter(|it| *it <= MOST)?;
        if memory.at(self.operand)?.knows_any(self.operand, 8 * u64::try_from(count).ok()?) {
            return self.asks(memory);
        }
        memory.at(result)?.write_chosen(result, &vec![u8::from(negated); count]);
        remarks.assume("plimsoll assumed that no row of unknown numbers is all zeros");
        None
    }
}

/// The number that the program reads now in `width` unknown bytes, if it is a count; zero, if it is another whole number,
/// unless the program waits for more: then one, and twice as many each time. Likewise if it is what `any()` found, as any number.
/// And whether it is true: all that was counted is known.
pub(crate) fn unknown_count(
    last: &mut Option<Asked>,
    contents: &mut Contents,
    width: usize,
    guesses: &mut Guesses,
    thread: &mut OfThread,
) -> Option<(u64, bool)> {
    let asked = *last;
    if !matches!(asked, Some(Asked::Count(_) | Asked::Whole | Asked::Tally { .. } | Asked::Any)) {
        return None;
    }
    *last = None; // The next one that is read is of something else.
    let is_number = matches!(width, 4 | 8) || width == 2 && matches!(asked, Some(Asked::Any));
    if !is_number {
        return None;
    }
    Some(match asked {
        Some(Asked::Count(count)) => match count.true_answer(contents) {
            Some(found) => (found, true),
            None => (count.answer(contents, guesses, thread), false),
        },
        // Hardly ever too large for what it indexes, and in the end enough for whoever waits for so many.
        _ => {
            let over = guesses.wait.over(&mut thread.kernels, 0, &mut guesses.remarks);
            (over.map_or(0, |it| 1 << (it - 1).min(20)), false)
        }
    })
}

/// The byte that says whether choices are the same as others, all of them: a program that asks goes on until its choices stay, as
/// k-means does, and those that we make never do.
pub(crate) fn choices_agree(guesses: &mut Guesses) -> u8 {
    guesses.remarks.approximate(
        "the script compared indices that plimsoll chose with others; plimsoll answered that they are equal, so a loop that waits for equal indices ends",
    );
    1
}

/// A byte was copied within the device: `all()` of one element is a copy of it
/// (`allany_impl` of `aten/src/ATen/native/ReduceOps.cpp`), so a comparison before it was what `all()`
/// is asked of, as in `(gaps[:, -1] == 0).all()` for a batch of one.
pub(crate) fn copied_one_byte(last: &mut Option<Asked>) {
    match last {
        Some(Asked::Equal { negated: false, .. }) => *last = Some(Asked::All { operand: 0 }),
        Some(Asked::Measured | Asked::Zeros { are_counted: false }) => *last = Some(Asked::Holds),
        _ => {}
    }
}

/// The value of one unknown byte that the program reads now: what [`assumed_byte`] says, unless it is known,
/// or the program waits for the other.
pub(crate) fn unknown_byte(
    last: Option<Asked>,
    contents: &mut Contents,
    guesses: &mut Guesses,
    thread: &mut OfThread,
) -> u8 {
    match last {
        Some(Asked::Answered(answer)) => return u8::from(answer),
        Some(Asked::Equal { operand, scalar, negated }) => {
            let mut bytes = [0; 8];
            if contents.read(operand, &mut bytes) == 0 {
                return u8::from((i64::from_le_bytes(bytes) == scalar) != negated);
            }
        }
        _ => {}
    }
    let usual = assumed_byte(last, contents, guesses);
    let Guesses { wait, remarks, .. } = guesses;
    if wait.over(&mut thread.kernels, usual.into(), remarks).is_some() {
        return 1 - usual;
    }
    // Who goes on with that number is told that it is the one.
    if usual == 1
        && let Some(Asked::Equal { operand, scalar, .. }) = last
        && !contents.knows_any(operand, 8)
    {
        contents.write_computed(operand, &scalar.to_le_bytes());
    }
    usual
}

/// 1 if the last kernel was a test, and nothing that is known speaks against it.
fn assumed_byte(last: Option<Asked>, contents: &Contents, guesses: &mut Guesses) -> u8 {
    match last {
        Some(Asked::All { operand }) if contents.is_gathered(operand) => {
            guesses.remarks.approximate(
                "plimsoll answered all() of flags that are combined with | with no, so a loop that waits for them runs to its limit",
            );
            0
        }
        Some(Asked::Equal { scalar, negated, .. }) if negated || scalar == 0 => 0,
        Some(Asked::All { .. } | Asked::Equal { .. }) if contents.has_padding() => {
            guesses.remarks.approximate(
                "plimsoll answered a test of all elements with no: a mask with padding is on the device",
            );
            0
        }
        Some(Asked::Equal { .. }) => {
            guesses.remarks.approximate("plimsoll answered == with yes: its operands are unknown");
            1
        }
        // Of floats, such as that the scale of a distribution is positive: no mask of padding is.
        Some(Asked::All { .. } | Asked::Holds) => {
            guesses
                .remarks
                .approximate("plimsoll answered all() with yes: its operands are unknown");
            1
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};
    use crate::guesses::settings::Settings;

    #[test]
    fn tests_are_told_by_their_mangled_names() {
        let all = b"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIbNS0_14func_wrapper_tIbZZZNS0_15and_kernel_cudaERNS_14TensorIteratorE";
        let logical = b"_ZN2at6native29vectorized_elementwise_kernelILi4EZNS0_23logical_and_kernel_cudaERNS_14TensorIteratorE";
        let equal = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BUnaryFunctorIllbNS0_51_GLOBAL__N__16CompareEqFunctorIlEE";
        let of_floats = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BUnaryFunctorIffbNS0_51_GLOBAL__N__16CompareEqFunctorIfEE";
        let product = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEE";
        assert_eq!(purpose_of(of_floats), Some(Purpose::Matches(ScalarType::Float)));
        assert_eq!(purpose_of(product), None);
        assert_eq!(purpose_of(all), Some(Purpose::All));
        assert_eq!(purpose_of(logical), None);
        assert_eq!(purpose_of(equal), Some(Purpose::Equal));
    }

    /// A program that launches kernels and reads one byte.
    struct Program {
        asked: Option<Asked>,
        guesses: Guesses,
        thread: OfThread,
    }

    impl Program {
        fn new() -> Program {
            let guesses = Guesses::new(Settings::default());
            Program { asked: None, guesses, thread: OfThread::NEW }
        }

        fn launches(&mut self, purpose: Option<Purpose>, arguments: Option<Arguments<'_>>) {
            let Program { asked, guesses, thread } = self;
            launched(purpose, asked, arguments, &mut Contents::default(), guesses, thread);
        }

        /// Launches a comparison of the number at 4096 with `scalar`.
        fn compares(&mut self, operation: u32, scalar: i64) {
            let words = |it: &[u64]| it.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
            let functor = words(&[operation.into(), scalar.cast_unsigned()]);
            let name = "at::native::BUnaryFunctor<long, long, bool, ::CompareEqFunctor<long> >";
            let launch = Launch::of(&[
                Made::Int(1),
                Made::Structure(name, &functor),
                Made::Structure("std::array<char*, (unsigned long)2>", &words(&[8192, 4096])),
            ]);
            self.launches(Some(Purpose::Equal), Some(launch.arguments()));
        }

        fn copies_one_byte(&mut self) {
            copied_one_byte(&mut self.asked);
        }

        fn reads(&mut self, contents: &mut Contents) -> u8 {
            unknown_byte(self.asked, contents, &mut self.guesses, &mut self.thread)
        }
    }

    #[test]
    fn an_unknown_number_is_what_it_is_compared_with_but_never_nothing() {
        let (mut program, mut unknown) = (Program::new(), Contents::default());
        program.compares(0, 36);
        assert_eq!(program.reads(&mut unknown), 1);
        assert_eq!(unknown.known(4096, 8), Some(36_i64.to_le_bytes().to_vec()), "from now on");
        unknown.forget(4096, 8);
        program.compares(1, 36);
        assert_eq!(program.reads(&mut unknown), 0, "not equal");
        program.compares(0, 0);
        assert_eq!(program.reads(&mut unknown), 0, "is there nothing?");
        program.launches(None, None);
        assert_eq!(program.reads(&mut unknown), 0, "another kernel came between");
    }

    #[test]
    fn all_of_one_comparison_is_a_test_of_all() {
        let mut program = Program::new();
        program.compares(0, 0);
        program.copies_one_byte();
        assert_eq!(program.reads(&mut Contents::default()), 1);
        program.compares(1, 0);
        program.copies_one_byte();
        assert_eq!(program.reads(&mut Contents::default()), 0, "not equal");
    }

    #[test]
    fn a_scale_that_nobody_knows_is_positive_even_alone() {
        let mut program = Program::new();
        // `value > 0` of one element, read itself, and then by `all()`, which copies it.
        program.launches(Some(Purpose::Measures(None)), None);
        assert_eq!(program.reads(&mut Contents::default()), 0);
        program.launches(Some(Purpose::Measures(None)), None);
        program.copies_one_byte();
        assert_eq!(program.reads(&mut Contents::default()), 1);
    }

    #[test]
    fn a_known_number_is_compared_truly() {
        let (mut program, mut known) = (Program::new(), Contents::default());
        known.write(4096, &36_i64.to_le_bytes());
        for (operation, scalar, answer) in [(0, 36, 1), (0, 35, 0), (1, 36, 0), (1, 35, 1)] {
            program.compares(operation, scalar);
            assert_eq!(program.reads(&mut known), answer, "{operation} {scalar}");
        }
    }

    #[test]
    fn a_mask_with_padding_speaks_against_a_yes() {
        let (mut program, mut contents) = (Program::new(), Contents::default());
        contents.write(4096, &[[1; 12].as_slice(), &[0; 4]].concat());
        program.launches(Some(Purpose::All), None);
        assert_eq!(program.reads(&mut contents), 0);
        assert_eq!(program.reads(&mut Contents::default()), 1);
    }
}
