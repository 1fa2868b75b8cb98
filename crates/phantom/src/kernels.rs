//! Which kernel is which. Kernels are registered with a stub's address and a mangled name; nothing
//! runs, so nothing is kept of them but what decides a value that programs steer by: a test whether
//! all elements hold (`mask.all()`) or two numbers are equal (`mask.sum() == mask.numel()`), read
//! back at once. A program tests to have confirmed what it expects (no padding, positions without
//! gaps), so the answer is yes, where every other unknown value is zero; the report says so. Unless a
//! mask with padding is on the device: then the test is most likely about it, and the answer no. A
//! test against zero ("is there nothing?") is answered with no, and one of a known number truly.
//!
//! The other values that decide shapes are in `counts`: how many elements `nonzero()` found.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::contents::{Contents, Origin};
use crate::counts;
use crate::descent;
use crate::effects::{self, Effect};
use crate::integers::{self, Kernel};
use crate::machine;
use crate::overflow;
use crate::reductions;
use crate::report;
use crate::runtime::{Dim3, SUCCESS};
use crate::waits;

/// What a kernel is for, of those that we tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// `at::native::and_kernel_cuda`: a reduction with "and".
    All,
    /// `at::native::CompareEqFunctor` of a 64-bit integer and a scalar, element by element.
    Equal,
    /// A count, or what one is made of.
    Counts(counts::Kernel),
    /// Part of a gradient scaler.
    Scales(overflow::Kernel),
    /// A reduction of whole numbers.
    Whole,
    /// A comparison of floats, element by element; and what a descent has to say of it.
    Measures(Option<descent::Kernel>),
    /// `a & b` of truth values.
    Joins,
    /// `at::native::or_kernel_cuda`: a reduction with "or".
    Any,
    /// A copy, perhaps to another type.
    Copies,
}

/// What was just asked of the device.
#[derive(Clone, Copy, Debug)]
enum Asked {
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
    Count(counts::Count),
    /// A whole number that nobody knows.
    Whole,
    /// Something whose answer is clear already.
    Answered(bool),
    /// How floats compare with others.
    Measured,
    /// Whether that holds for all of them.
    Holds,
    /// Whether any holds, of truth values that nobody knows.
    Any,
}

/// All kernels, by the address of their stub.
static KERNELS: RwLock<BTreeMap<u64, Registered>> = RwLock::new(BTreeMap::new());

/// A kernel that a library registered. There are tens of thousands, and most are never launched: what one is for is
/// looked up when it is.
#[derive(Debug)]
struct Registered {
    /// Its mangled name, which is as long there as the stub is.
    name: &'static CStr,
    kind: OnceLock<Kind>,
}

/// What is known of a kernel by its name.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// What it computes, of those whose results are computed.
    computed: Option<Kernel>,
    purpose: Option<Purpose>,
    room: Room,
}

impl Kind {
    fn of(name: &[u8]) -> Kind {
        Kind { computed: integers::kernel_of(name), purpose: purpose_of(name), room: room_of(name) }
    }
}

/// The kind of the kernel at `stub`, if one was registered.
fn kind(stub: u64) -> Option<Kind> {
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    let it = kernels.get(&stub)?;
    Some(*it.kind.get_or_init(|| Kind::of(it.name.to_bytes())))
}

/// What else a kernel makes the driver take when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing: it draws random numbers, as `randn` and `randint` do.
    Less,
    /// More local memory than a new context has.
    Usual,
    /// That, and the device's own heap: it could fail an assertion about an index or in a reduction.
    Asserting,
}

thread_local! {
    /// What the last kernel of this thread was asked, if we know.
    static LAST: Cell<Option<Asked>> = const { Cell::new(None) };
    static CONFIGURATIONS: Cell<Option<Configuration>> = const { Cell::new(None) };
    /// Blocks of the kernel that is launched, along their first two dimensions.
    static BLOCKS: Cell<[u32; 2]> = const { Cell::new([0; 2]) };
}

fn has(name: &[u8], part: &[u8]) -> bool {
    name.windows(part.len()).any(|it| it == part)
}

/// How many blocks, along their first two dimensions, the kernel has that this thread launches.
pub fn blocks() -> [u32; 2] {
    BLOCKS.get()
}

/// What a kernel of this (mangled) name is for.
fn purpose_of(name: &[u8]) -> Option<Purpose> {
    let has = |part: &[u8]| has(name, part);
    if has(b"15and_kernel_cuda") && has(b"13reduce_kernel") {
        Some(Purpose::All)
    } else if has(b"14or_kernel_cuda") && has(b"13reduce_kernel") {
        Some(Purpose::Any)
    } else if has(b"23direct_copy_kernel_cuda") {
        Some(Purpose::Copies)
    } else if has(b"16CompareEqFunctorIlE")
        && has(b"UnaryFunctorI")
        && (has(b"29vectorized_elementwise_kernel") || has(b"15LoadWithoutCast"))
    {
        Some(Purpose::Equal)
    } else if measures(name) {
        Some(Purpose::Measures(descent::Kernel::of(name)))
    } else if has(b"17BitwiseAndFunctorIbE") {
        Some(Purpose::Joins)
    } else {
        let whole = || {
            let of_whole_numbers = integers::letter_after(name, b"8ReduceOpI").is_some();
            of_whole_numbers.then_some(Purpose::Whole)
        };
        let scales = || overflow::Kernel::of(name).map(Purpose::Scales);
        counts::Kernel::of(name).map(Purpose::Counts).or_else(scales).or_else(whole)
    }
}

/// Whether a kernel of this (mangled) name compares floats, element by element.
fn measures(name: &[u8]) -> bool {
    const PARTS: [&[u8]; 3] =
        [b"16CompareEqFunctorI", b"14CompareFunctorI", b"21compare_scalar_kernelI"];
    let of_floats = |part: &[u8]| has(name, part) && integers::letter_after(name, part).is_none();
    PARTS.iter().any(|it| of_floats(it))
}

/// A kernel was launched on this thread.
///
/// # Safety
///
/// `arguments` must be what the stub at `stub` passes to a launch, or null.
pub unsafe fn launched(stub: u64, arguments: *const *const c_void) {
    waits::launched(stub, blocks()[0]);
    let kind = kind(stub);
    if let Some(kernel) = kind.and_then(|it| it.computed)
        && !arguments.is_null()
        && let Some(mut machine) = machine::lock()
    {
        let contents = &mut machine.current().contents;
        let gathers = kernel.gathers_flags();
        let origin = Cell::new(None);
        // SAFETY: the arguments of a kernel of this name.
        let indices = unsafe { kernel.indices(arguments) };
        // What was computed is not known of whichever was chosen for the program (the beams that a search goes on with). What it
        // put there, such as labels, is of any as good, and so is what was drawn or chosen.
        let by_choice = indices.into_iter().any(|at| contents.origin(at) == Some(Origin::Chosen));
        let known = |at, size| {
            let of = contents.origin(at);
            origin.set(origin.get().max(of));
            if by_choice && contents.is_computed(at) { None } else { contents.known(at, size) }
        };
        // SAFETY: the arguments of a kernel of this name.
        let effects = unsafe { integers::effects(kernel, arguments, known) };
        let flags = match effects.first() {
            Some(Effect::Unknown(at, _)) if gathers => Some(*at),
            _ => None,
        };
        effects::take(contents, effects, origin.get());
        flags.into_iter().for_each(|it| contents.gather(it));
    }
    let asked = match kind.and_then(|it| it.purpose) {
        Some(Purpose::All) if matches!(LAST.get(), Some(Asked::Measured)) => Some(Asked::Holds),
        Some(Purpose::Measures(of_descent)) => {
            let kernel = of_descent.filter(|_| !arguments.is_null());
            // SAFETY: the arguments of a kernel of this name.
            let answer = kernel.and_then(|it| unsafe { it.launched(arguments) });
            Some(answer.map_or(Asked::Measured, Asked::Answered))
        }
        // `(low <= x) & (x <= high)`.
        Some(Purpose::Joins) if matches!(LAST.get(), Some(Asked::Measured)) => return,
        // `found.any().float()`, which ranks add up before they ask.
        Some(Purpose::Copies) if matches!(LAST.get(), Some(Asked::Any)) => return,
        Some(Purpose::Any) => Some(Asked::Any),
        Some(Purpose::All) if arguments.is_null() => Some(Asked::All { operand: 0 }),
        Some(Purpose::All) => {
            // SAFETY: the arguments of a kernel of this name.
            Some(Asked::All { operand: unsafe { reductions::source(arguments) } })
        }
        Some(Purpose::Whole) => Some(Asked::Whole),
        // SAFETY: the arguments of a kernel of this name.
        Some(Purpose::Equal) if !arguments.is_null() => unsafe { equality(arguments) },
        Some(Purpose::Counts(kernel)) if !arguments.is_null() => {
            // SAFETY: as above.
            match unsafe { kernel.launched(arguments) } {
                counts::Launched::Asks(count) => Some(Asked::Count(count)),
                // The second half of a reduction: what was asked is asked still.
                counts::Launched::Continues => return,
                counts::Launched::Nothing => None,
            }
        }
        Some(Purpose::Scales(kernel)) if !arguments.is_null() => {
            // SAFETY: as above.
            unsafe { kernel.launched(arguments) };
            None
        }
        _ => None,
    };
    LAST.set(asked);
}

/// What the kernel at `stub` makes the driver take.
pub fn room(stub: u64) -> Room {
    kind(stub).map_or(Room::Usual, |it| it.room)
}

/// What a kernel of this (mangled) name makes the driver take, as an H200's driver did when PyTorch launched one.
fn room_of(name: &[u8]) -> Room {
    // Not every name with "index" in it: `arange` launches an `elementwise_kernel_with_index`.
    const ASSERTING: [&[u8]; 10] = [
        b"13reduce_kernel",
        b"24index_elementwise_kernel",
        b"11indexSelect",
        b"9indexFunc",
        b"mbedding",
        b"nll_loss",
        b"gather",
        b"scatter",
        b"RowwiseMoments",
        b"layer_norm_kernel",
    ];
    if has(name, b"distribution_elementwise_grid_stride_kernel") {
        Room::Less
    } else if ASSERTING.iter().any(|it| has(name, it)) {
        Room::Asserting
    } else {
        Room::Usual
    }
}

/// Whether the kernel at `stub` needs so few registers that a multiprocessor holds as many blocks of
/// it as its threads allow.
pub fn is_light(stub: u64) -> bool {
    let purpose = kind(stub).and_then(|it| it.purpose);
    matches!(purpose, Some(Purpose::Counts(kernel)) if kernel.is_light())
}

/// What an element-wise comparison asks, if it is of one element; of more, those whose operand is
/// known have a known result. Its arguments are how many elements, the functor (`EqOpType`, then the
/// scalar), and the addresses of result and operand.
///
/// # Safety
///
/// `arguments` must be those of a `vectorized_elementwise_kernel` or an `unrolled_elementwise_kernel`
/// (which takes operands whose addresses are not aligned) over an `AUnaryFunctor` or
/// `BUnaryFunctor` of a `CompareEqFunctor<int64_t>`.
unsafe fn equality(arguments: *const *const c_void) -> Option<Asked> {
    // SAFETY: three arguments of the layouts above, as the caller vouches.
    let (count, operation, scalar, result, operand) = unsafe {
        let count = arguments.read().cast::<i32>().read_unaligned();
        let functor = arguments.add(1).read().cast::<u8>();
        let operation = functor.cast::<u32>().read_unaligned();
        let scalar = functor.add(8).cast::<i64>().read_unaligned();
        let addresses = arguments.add(2).read().cast::<u64>();
        (count, operation, scalar, addresses.read_unaligned(), addresses.add(1).read_unaligned())
    };
    let negated = operation != 0;
    if count != 1 {
        counts::compare(result, operand, u64::try_from(count).unwrap_or(0), scalar, negated);
        return None;
    }
    Some(Asked::Equal { operand, scalar, negated })
}

/// The number that the program reads now in `width` unknown bytes, if it is a count; zero, if it is another whole number,
/// unless the program waits for more: then one, and twice as many each time. Likewise if it is what `any()` found, as any number.
/// And whether it is true: all that was counted is known.
pub fn unknown_count(contents: &mut Contents, width: usize) -> Option<(u64, bool)> {
    let asked = LAST.get();
    if !matches!(asked, Some(Asked::Count(_) | Asked::Whole | Asked::Any)) {
        return None;
    }
    LAST.set(None); // The next one that is read is of something else.
    let is_number = matches!(width, 4 | 8) || width == 2 && matches!(asked, Some(Asked::Any));
    if !is_number {
        return None;
    }
    Some(match asked {
        Some(Asked::Count(count)) => match count.true_answer(contents) {
            Some(found) => (found, true),
            None => (count.answer(contents), false),
        },
        // Hardly ever too large for what it indexes, and in the end enough for whoever waits for so many.
        _ => (waits::over(0).map_or(0, |it| 1 << (it - 1).min(20)), false),
    })
}

/// A byte was copied within the device: `all()` of one element is a copy of it
/// (`allany_impl` of `aten/src/ATen/native/ReduceOps.cpp`), so a comparison before it was what `all()`
/// is asked of, as in `(gaps[:, -1] == 0).all()` for a batch of one.
pub fn copied_one_byte() {
    match LAST.get() {
        Some(Asked::Equal { negated: false, .. }) => LAST.set(Some(Asked::All { operand: 0 })),
        Some(Asked::Measured) => LAST.set(Some(Asked::Holds)),
        _ => {}
    }
}

/// The value of one unknown byte that the program reads now: what [`assumed_byte`] says, unless it is known,
/// or the program waits for the other.
pub fn unknown_byte(contents: &mut Contents) -> u8 {
    match LAST.get() {
        Some(Asked::Answered(answer)) => return u8::from(answer),
        Some(Asked::Equal { operand, scalar, negated }) => {
            let mut bytes = [0; 8];
            if contents.read(operand, &mut bytes) == 0 {
                return u8::from((i64::from_le_bytes(bytes) == scalar) != negated);
            }
        }
        _ => {}
    }
    let usual = assumed_byte(contents);
    if waits::over(usual.into()).is_some() {
        return 1 - usual;
    }
    // Who goes on with that number is told that it is the one.
    if usual == 1
        && let Some(Asked::Equal { operand, scalar, .. }) = LAST.get()
        && !contents.knows_any(operand, 8)
    {
        contents.write_computed(operand, &scalar.to_le_bytes());
    }
    usual
}

/// 1 if the last kernel was a test, and nothing that is known speaks against it.
fn assumed_byte(contents: &Contents) -> u8 {
    match LAST.get() {
        Some(Asked::All { operand }) if contents.is_gathered(operand) => {
            report::approximate(
                "all() of flags that are gathered with | was answered with no: what ends by them ends by its limit",
            );
            0
        }
        Some(Asked::Equal { scalar, negated, .. }) if negated || scalar == 0 => 0,
        Some(Asked::All { .. } | Asked::Equal { .. }) if contents.has_padding() => {
            report::approximate(
                "a test of all elements was answered with no: a mask with padding is on the device",
            );
            0
        }
        Some(Asked::Equal { .. }) => {
            report::approximate("== was answered with yes: its operands are not known");
            1
        }
        // Of floats, such as that the scale of a distribution is positive: no mask of padding is.
        Some(Asked::All { .. } | Asked::Holds) => {
            report::approximate("all() was answered with yes: its operands are not known");
            1
        }
        _ => 0,
    }
}

/// What `<<<grid, block, shared, stream>>>` leaves for the stub that it calls.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
) -> c_uint {
    CONFIGURATIONS.set(Some(Configuration { grid, block, shared, stream }));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared: *mut usize,
    stream: *mut u64,
) -> i32 {
    let Some(it) = CONFIGURATIONS.take() else { return 9 }; // cudaErrorInvalidConfiguration
    BLOCKS.set([it.grid.x, it.grid.y]);
    // SAFETY: the stub that the compiler made passes four valid pointers.
    unsafe {
        grid.write(it.grid);
        block.write(it.block);
        shared.write(it.shared);
        stream.write(it.stream);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    _module: *mut c_void,
    stub: u64,
    _device_name: *const c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_dim: *mut c_void,
    _grid_dim: *mut c_void,
    _warp: *mut c_int,
) {
    if name.is_null() {
        return;
    }
    // SAFETY: not null; the compiler registers terminated names, of the library that the stub is in.
    let name = unsafe { CStr::from_ptr(name) };
    let it = Registered { name, kind: OnceLock::new() };
    KERNELS.write().unwrap_or_else(PoisonError::into_inner).insert(stub, it);
}

/// The program found a kernel of this name in a module that was made at run time: `function` is its handle.
pub fn found(function: u64, name: &CStr) {
    if name != reductions::PRODUCT {
        return; // Thousands of others, of which none is followed.
    }
    let it = Registered { name: reductions::PRODUCT, kind: OnceLock::new() };
    KERNELS.write().unwrap_or_else(PoisonError::into_inner).insert(function, it);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_by_their_mangled_names() {
        let arange = b"_ZN2at6native60_GLOBAL__N__57a6c4a5_15_RangeFactories_cu_38772b0d_5148529elementwise_kernel_with_indexIlZZZZNS0_15arange_cuda_out";
        assert_eq!(room_of(arange), Room::Usual);
        assert_eq!(room_of(b"_ZN2at6native24index_elementwise_kernelILi128ELi4E"), Room::Asserting);
        assert_eq!(
            room_of(b"_ZN2at6native54_GLOBAL__N_43distribution_elementwise_grid_stride_kernelI"),
            Room::Less
        );
        let all = b"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIbNS0_14func_wrapper_tIbZZZNS0_15and_kernel_cudaERNS_14TensorIteratorE";
        let logical = b"_ZN2at6native29vectorized_elementwise_kernelILi4EZNS0_23logical_and_kernel_cudaERNS_14TensorIteratorE";
        let equal = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BUnaryFunctorIllbNS0_51_GLOBAL__N__16CompareEqFunctorIlEE";
        let of_floats = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BUnaryFunctorIffbNS0_51_GLOBAL__N__16CompareEqFunctorIfEE";
        let product = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEE";
        assert_eq!(purpose_of(of_floats), Some(Purpose::Measures(None)));
        assert_eq!(purpose_of(product), None);
        assert_eq!(purpose_of(all), Some(Purpose::All));
        assert_eq!(purpose_of(logical), None);
        assert_eq!(purpose_of(equal), Some(Purpose::Equal));
    }

    /// A kernel at `stub` for that.
    fn register(stub: u64, purpose: Purpose) {
        let kind = Kind { computed: None, purpose: Some(purpose), room: Room::Usual };
        let it = Registered { name: c"", kind: OnceLock::from(kind) };
        KERNELS.write().expect("no panic while it is held").insert(stub, it);
    }

    /// `BUnaryFunctor<int64_t, int64_t, bool, CompareEqFunctor<int64_t>>`.
    #[repr(C)]
    struct Functor {
        operation: u32,
        scalar: i64,
    }

    /// Launches a comparison of the number at 4096 with `scalar`.
    fn compare(operation: u32, scalar: i64) {
        register(77, Purpose::Equal);
        let (count, functor, data) = (1_i32, Functor { operation, scalar }, [8192_u64, 4096]);
        let arguments: [*const c_void; 3] =
            [(&raw const count).cast(), (&raw const functor).cast(), (&raw const data).cast()];
        // SAFETY: arguments as the kernel has them.
        unsafe { launched(77, arguments.as_ptr()) };
    }

    #[test]
    fn an_unknown_number_is_what_it_is_compared_with_but_never_nothing() {
        let mut unknown = Contents::default();
        compare(0, 36);
        assert_eq!(unknown_byte(&mut unknown), 1);
        assert_eq!(unknown.known(4096, 8), Some(36_i64.to_le_bytes().to_vec()), "from now on");
        unknown.forget(4096, 8);
        compare(1, 36);
        assert_eq!(unknown_byte(&mut unknown), 0, "not equal");
        compare(0, 0);
        assert_eq!(unknown_byte(&mut unknown), 0, "is there nothing?");
        // SAFETY: no arguments.
        unsafe { launched(78, std::ptr::null()) };
        assert_eq!(unknown_byte(&mut unknown), 0, "another kernel came between");
    }

    #[test]
    fn all_of_one_comparison_is_a_test_of_all() {
        compare(0, 0);
        copied_one_byte();
        assert_eq!(unknown_byte(&mut Contents::default()), 1);
        compare(1, 0);
        copied_one_byte();
        assert_eq!(unknown_byte(&mut Contents::default()), 0, "not equal");
    }

    #[test]
    fn a_scale_that_nobody_knows_is_positive_even_alone() {
        register(80, Purpose::Measures(None));
        // `value > 0` of one element, read itself, and then by `all()`, which copies it.
        // SAFETY: no arguments.
        unsafe { launched(80, std::ptr::null()) };
        assert_eq!(unknown_byte(&mut Contents::default()), 0);
        // SAFETY: the same.
        unsafe { launched(80, std::ptr::null()) };
        copied_one_byte();
        assert_eq!(unknown_byte(&mut Contents::default()), 1);
    }

    #[test]
    fn a_known_number_is_compared_truly() {
        let mut known = Contents::default();
        known.write(4096, &36_i64.to_le_bytes());
        for (operation, scalar, answer) in [(0, 36, 1), (0, 35, 0), (1, 36, 0), (1, 35, 1)] {
            compare(operation, scalar);
            assert_eq!(unknown_byte(&mut known), answer, "{operation} {scalar}");
        }
    }

    #[test]
    fn a_mask_with_padding_speaks_against_a_yes() {
        register(79, Purpose::All);
        let mut contents = Contents::default();
        contents.write(4096, &[[1; 12].as_slice(), &[0; 4]].concat());
        // SAFETY: no arguments.
        unsafe { launched(79, std::ptr::null()) };
        assert_eq!(unknown_byte(&mut contents), 0);
        assert_eq!(unknown_byte(&mut Contents::default()), 1);
    }
}
