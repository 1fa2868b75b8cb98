//! What PyTorch's kernels would have computed, as far as a program's memory depends on it. Nothing runs on the phantom, but
//! some loops end by a handful of numbers that come from known ones (`unfinished & ~(length >= longest)` in text generation, a
//! counter, a mask of lengths), and some tensors are as large as a number says (`nonzero()`, packed sequences, a router's
//! tokens). An unknown zero would end no loop and size no tensor.
//!
//! The crate is the phantom's guest: [`Values`] is its one door. It is told which kernel is launched with which arguments, and
//! what the program copies; it keeps what is known of device memory ([`Contents`]), and says what the program reads. What it
//! assumes on the way it remarks, and the phantom reports.
//!
//! Data flows so: `signature` and `arguments` read a launch, `names` and `kernels` tell what it does, `numbers` computes, and
//! `memory` keeps what came of it. `questions` are tests and counts that the program reads back at once, and `guesses` what is
//! assumed where nobody knows. Which kernel is which is told by its mangled name; a layout that does not look as expected
//! computes nothing, and the value is unknown.
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "a launch is told its arguments as addresses")]
mod arguments;
mod guesses;
mod kernel;
mod kernels;
mod memory;
mod names;
mod numbers;
mod questions;
mod room;
mod signature;
mod types;

pub use crate::arguments::Arguments;
pub use crate::guesses::remarks::Remark;
pub use crate::guesses::settings::Settings;
pub use crate::kernel::Kernel;
pub use crate::kernels::collective;
pub use crate::kernels::matmul::Matrix;
pub use crate::memory::Memory;
pub use crate::memory::budget::Dropped;
pub use crate::memory::contents::Contents;
pub use crate::room::Room;
pub use crate::signature::Signature;

use crate::guesses::{Guesses, OfThread, descent, waits};
use crate::kernels::matmul;
use crate::memory::origin::Origin;
use crate::memory::writes::{self, Write};
use crate::memory::{IsLazy, Known, KnowsAny};
use crate::questions::Asked;

/// The lowest byte of a number that nobody computed and that `item()` reads (which it does into pinned memory, one
/// element at a time): the smallest number above zero, of floats of 16 and 32 bits. A loss is hardly ever
/// zero, and programs divide by it or take its logarithm.
const NEARLY_ZERO: u8 = 1;

/// What it reads once if it waits for more: far more than programs wait for, of floats of 32 bits, and in their upper half
/// of 16.
const LARGE: [u8; 4] = 0x7b00_0000_u32.to_le_bytes();

/// The guest: what it has assumed in this process.
#[derive(Debug)]
pub struct Values {
    guesses: Guesses,
}

/// What it keeps of one thread of the program.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// What the last kernel was asked, if we know.
    asked: Option<Asked>,
    guesses: OfThread,
}

/// One launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel, if its name is known.
    pub kernel: Option<&'a Kernel>,
    /// Its arguments; `None` if it was launched without.
    pub arguments: Option<Arguments<'a>>,
    /// What tells it from other kernels.
    pub identity: u64,
    /// How many blocks it has along the first two dimensions.
    pub blocks: [u32; 2],
}

/// What a program was told where it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBack {
    /// How many bytes nobody knows.
    pub unknown: u64,
    /// Whether those are an answer to what the program asked, and no zeros for want of one.
    pub is_answer: bool,
}

impl Thread {
    /// A thread that has done nothing yet.
    pub const NEW: Thread = Thread { asked: None, guesses: OfThread::NEW };
}

impl Values {
    /// The guest of a process that has done nothing yet.
    pub fn new(settings: Settings) -> Values {
        Values { guesses: Guesses::new(settings) }
    }

    /// A kernel was launched on `thread`: writes what it computes into `memory`, and keeps what it is asked.
    pub fn launched(&mut self, launch: Launch<'_>, thread: &mut Thread, memory: &mut dyn Memory) {
        let kernels = &mut thread.guesses.kernels;
        *kernels = waits::then(*kernels, launch.identity, launch.blocks[0]);
        if !self.guesses.settings.imitates {
            return;
        }
        if launch.kernel.is_some_and(|it| it.family.is_some()) && launch.arguments.is_some() {
            self.compute(launch, memory.current());
        }
        let purpose = launch.kernel.and_then(|it| it.purpose);
        let Thread { asked, guesses } = thread;
        questions::launched(purpose, asked, launch.arguments, memory, &mut self.guesses, guesses);
    }

    /// Writes what a kernel computes.
    fn compute(&mut self, launch: Launch<'_>, contents: &mut Contents) {
        let Some((family, arguments)) =
            launch.kernel.and_then(|it| it.family).zip(launch.arguments)
        else {
            return;
        };
        // What was computed is not known of whichever was chosen for the program (the beams that a search goes on with). What it
        // put there, such as labels, is of any as good, and so is what was drawn or chosen.
        let indices = family.indices(arguments);
        let by_choice = indices.into_iter().any(|at| contents.origin(at) == Some(Origin::Chosen));
        let origin = std::cell::Cell::new(None);
        let are_choices = std::cell::Cell::new(family.compares_tensors());
        let known = |at, size| {
            let this = contents.origin(at);
            are_choices.set(are_choices.get() && this == Some(Origin::Chosen));
            origin.set(origin.get().max(this));
            if by_choice && contents.is_computed(at) { None } else { contents.known(at, size) }
        };
        let knows_any = |at, size| contents.knows_any(at, size);
        let is_lazy = |at| contents.is_lazy(at);
        let reads = (&known as Known<'_>, &knows_any as KnowsAny<'_>, &is_lazy as IsLazy<'_>);
        let written = family.writes(launch.blocks, arguments, reads, &mut self.guesses);
        // What has other arguments than it should have writes we do not know where.
        let written = written.unwrap_or_else(|| vec![Write::NothingComputed]);
        let flags = match written.first() {
            Some(Write::Unknown(at, _)) if family.gathers_flags() => Some(*at),
            _ => None,
        };
        let compared = match written.first() {
            Some(&Write::Known(at, _) | &Write::Lazy { at, .. }) if are_choices.get() => Some(at),
            _ => None,
        };
        writes::take(contents, written, origin.get());
        compared.into_iter().for_each(|it| contents.compare_choices(it));
        flags.into_iter().for_each(|it| contents.gather(it));
    }

    /// Computes a product of matrices of floats, if it has few terms: `c = a b`, of so many rows, columns and terms.
    pub fn multiplied(
        &mut self,
        contents: &mut Contents,
        sizes: [usize; 3],
        a: Matrix,
        b: Matrix,
        c: u64,
    ) {
        if self.guesses.settings.imitates {
            matmul::multiply(contents, sizes, a, b, c);
        }
    }

    /// The program copied these bytes to the device.
    pub fn copied_to_device(&mut self, bytes: &[u8]) {
        self.guesses.wait.copied(bytes);
    }

    /// The program copied `size` bytes within a device.
    pub fn copied_within(thread: &mut Thread, size: u64) {
        if size == 1 {
            questions::copied_one_byte(&mut thread.asked);
        }
    }

    /// The program copies the bytes at `from` of a device, whose memory is `contents`, to the host: writes what they are into
    /// `out`, and returns what is to be said of them. `is_pinned` if the host's memory is pinned, as `item()` has it.
    pub fn read(
        &mut self,
        from: u64,
        out: &mut [u8],
        is_pinned: bool,
        thread: &mut Thread,
        contents: &mut Contents,
    ) -> ReadBack {
        let unknown = contents.read(from, out);
        let answer = ReadBack { unknown, is_answer: true };
        if let ([0], Some(Asked::All { operand })) = (&*out, thread.asked)
            && contents.are_compared_choices(operand)
        {
            out[0] = questions::choices_agree(&mut self.guesses);
            return answer;
        }
        let zeros = ReadBack { unknown, is_answer: false };
        let length = out.len();
        let Thread { asked, guesses: of_thread } = thread;
        if unknown == 1 && length == 1 {
            out[0] = questions::unknown_byte(*asked, contents, &mut self.guesses, of_thread);
            return answer;
        }
        if u64::try_from(length) != Ok(unknown) {
            return zeros;
        }
        let is_whole = matches!(asked, Some(Asked::Whole));
        let count = questions::unknown_count(asked, contents, length, &mut self.guesses, of_thread);
        if let Some((count, is_true)) = count {
            out.copy_from_slice(&count.to_le_bytes()[..length]);
            let unknown = if is_true { 0 } else { unknown };
            return ReadBack { unknown, is_answer: !is_whole || count != 0 };
        }
        if !is_pinned {
            return zeros;
        }
        if let Some(loss) = descent::loss(&mut of_thread.descent, length) {
            out.copy_from_slice(&loss[..length]);
            return answer;
        }
        if matches!(length, 2 | 4) {
            let Guesses { wait, remarks, .. } = &mut self.guesses;
            let usual = NEARLY_ZERO.into();
            if wait.over(&mut of_thread.kernels, usual, remarks).is_some() {
                out.copy_from_slice(&LARGE[4 - length..]);
                return answer;
            }
            out[0] = NEARLY_ZERO;
        }
        zeros
    }

    /// The program copied `size` bytes from `from`, wherever that is.
    pub fn copied(&mut self, from: u64, size: u64) {
        self.guesses.scalers.copied(from, size);
    }

    /// The program got on: it finished a step, or its data is new.
    pub fn progress(&mut self) {
        self.guesses.wait.progress();
    }

    /// This process is one rank of several.
    pub fn there_are_ranks(&mut self) {
        self.guesses.choices.has_ranks = true;
    }

    /// From now on filters of unknown values find this on `thread`: a share in millionths, as in code that bounds by itself what
    /// it keeps; -1: what they always do; -2: everything, and that is known. Returns what they found until now.
    pub fn keep(thread: &mut Thread, millionths: i32) -> i32 {
        std::mem::replace(&mut thread.guesses.kept, millionths)
    }

    /// From now on something is minimized on `thread` whose losses have `width` bytes, and nothing if that is zero. It goes on by
    /// every test, until it is `still`.
    pub fn descends(&mut self, thread: &mut Thread, width: usize, still: bool) {
        let remarks = &mut self.guesses.remarks;
        descent::descends(&mut thread.guesses.descent, width, still, remarks);
    }

    /// How often the program has read whether its scaled gradients overflowed.
    pub fn overflows_asked(&self) -> u64 {
        self.guesses.scalers.asked()
    }

    /// How often it has read that they did.
    pub fn overflows_found(&self) -> u64 {
        self.guesses.scalers.found()
    }

    /// What the report is to say of what was assumed since this was last asked.
    pub fn take_remarks(&mut self) -> Vec<Remark> {
        self.guesses.remarks.take()
    }
}
